"""Where data are looked for, and what the cache promises."""

import errno
import hashlib
import logging
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ptn.data import store as data_store
from ptn.data.store import cached, find, fingerprint, missing, scratch_folder, sha256_of_file, sha256_of_files
from ptn.errors import InputError

SHA = "0123456789abcdef" * 4


def some_tensors() -> dict[str, Tensor]:
    return {"images": torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4), "labels": torch.tensor([3, 1])}


def never() -> dict[str, Tensor]:
    raise AssertionError("the cached set was built again")


def the_file(cache: Path) -> Path:
    (path,) = (cache / "generated").iterdir()
    return path


def test_folders_of_ptn_data_come_before_the_downloads(store, tmp_path, monkeypatch):
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.setenv("PTN_DATA", f"{store.data}{os.pathsep}{second}")
    assert data_store.data_folders() == [store.data, second, store.cache / "downloads"]


def test_find_prefers_an_earlier_folder_to_an_earlier_name(store):
    for path in (store.data / "b.txt", store.cache / "downloads" / "a.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert find("a.txt", "b.txt") == store.data / "b.txt"
    assert find("c.txt") is None


def test_a_folder_of_ptn_data_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PTN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"PTN_DATA names .*nowhere"):
        find("a.txt")


def test_a_missing_file_is_named_with_the_command_that_gets_it(store):
    message = str(missing("mnist", "mnist/a.gz", "mnist/b.npz"))
    assert re.fullmatch(r"mnist: no mnist/a.gz or mnist/b.npz .*: ptn data fetch mnist", message)


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "{set}/ptn"),
        ("linux", None, "{home}/.cache/ptn"),
        ("darwin", None, "{home}/Library/Caches/ptn"),
        ("win32", "LOCALAPPDATA", "{set}/ptn"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch, tmp_path, platform, variable, expected):
    for name in ("PTN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.platform", platform)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "set"))
    where = expected.format(set=tmp_path / "set", home=tmp_path / "home")
    assert data_store.cache_folder() == Path(where)


def test_a_changed_file_gets_a_new_hash(store):
    path = store.data / "file"
    path.write_bytes(b"abc")
    assert sha256_of_file(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    before = sha256_of_files([path])
    path.write_bytes(b"abcd")
    assert sha256_of_file(path) == "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589"
    assert sha256_of_files([path]) != before


def test_an_unchanged_file_is_not_read_again_for_its_hash(store):
    path = store.data / "file"
    path.write_bytes(b"abc")
    first = sha256_of_file(path)
    (memo,) = (store.cache / "hashes").iterdir()
    memo.write_text("0" * 64)
    assert sha256_of_file(path) == "0" * 64
    memo.write_text("half a ha")
    assert sha256_of_file(path) == first


def test_several_files_are_remembered_as_one_until_any_changes(store):
    paths = [store.data / name for name in "abc"]
    for path in paths:
        path.write_bytes(path.name.encode())
    first = sha256_of_files(paths)
    assert first == fingerprint(files=[hashlib.sha256(name).hexdigest() for name in (b"a", b"b", b"c")])
    (memo,) = (store.cache / "hashes").iterdir()
    memo.write_text("0" * 64)
    assert sha256_of_files(paths) == "0" * 64
    paths[1].write_bytes(b"longer")
    assert sha256_of_files(paths) not in ("0" * 64, first)


def test_a_garbled_memo_is_written_again(store):
    path = store.data / "file"
    path.write_bytes(b"abc")
    first = sha256_of_file(path)
    (memo,) = (store.cache / "hashes").iterdir()
    memo.write_bytes(b"\xff" * 64)
    assert sha256_of_file(path) == first
    assert memo.read_text() == first


@pytest.fixture(params=["below a file", "disk full"])
def unwritable(store, request, monkeypatch):
    """A cache that nothing can be written to, even by root."""
    if request.param == "below a file":
        (store.data / "file").touch()
        monkeypatch.setenv("PTN_CACHE", str(store.data / "file" / "cache"))
    else:

        def full(*args, **options):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("tempfile.mkstemp", full)
    return data_store.cache_folder()


def test_without_a_writable_cache_sets_are_made_and_one_line_says_so(unwritable, store, caplog):
    path = store.data / "source"
    path.write_bytes(b"abc")
    with caplog.at_level(logging.WARNING, "ptn"):
        for _ in range(2):
            assert sha256_of_file(path) == hashlib.sha256(b"abc").hexdigest()
            assert torch.equal(cached("toy", SHA, some_tensors)["images"], some_tensors()["images"])
    (record,) = caplog.records
    assert f"going on without the cache {unwritable}" in record.getMessage()
    assert find("nothing.txt") is None


def test_what_goes_wrong_in_making_a_set_is_not_taken_for_a_fault_of_the_cache(unwritable):
    def build() -> dict[str, Tensor]:
        raise InputError("the source is damaged")

    with pytest.raises(InputError, match="the source is damaged"):
        cached("toy", SHA, build)


def test_scratch_is_in_the_cache_or_else_where_the_system_has_it(store, monkeypatch):
    with scratch_folder() as inside:
        assert inside.parent == store.cache / "unpacked"
    assert not inside.exists()
    monkeypatch.setenv("PTN_CACHE", "/dev/null/cache")
    with scratch_folder() as outside:
        (outside / "file").touch()
    assert not outside.exists()


def test_a_folder_of_the_user_that_may_not_be_entered_is_named(store, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(InputError, match=f"cannot look for {store.data / 'a.txt'}: Permission denied"):
        find("a.txt")


def test_fingerprints_differ_when_any_part_differs():
    assert fingerprint(seed=0, size=32) == fingerprint(size=32, seed=0)
    assert len({fingerprint(seed=0), fingerprint(seed=1), fingerprint(seed="0"), fingerprint(sede=0)}) == 4


def test_a_set_is_built_once_and_comes_back_the_same(store):
    built = cached("toy", SHA, some_tensors)
    again = cached("toy", SHA, never)
    assert the_file(store.cache).name == "toy-0123456789abcdef.safetensors"
    assert built.keys() == again.keys() == some_tensors().keys()
    for name, tensor in some_tensors().items():
        assert torch.equal(built[name], tensor)
        assert torch.equal(again[name], tensor)
        assert again[name].dtype == tensor.dtype


def test_writing_into_a_cached_tensor_does_not_reach_the_cache(store):
    cached("toy", SHA, some_tensors)
    cached("toy", SHA, never)["images"].zero_()
    assert torch.equal(cached("toy", SHA, never)["images"], some_tensors()["images"])


def test_tensors_that_are_views_are_kept(store):
    whole = torch.arange(12).reshape(3, 4)
    cached("toy", SHA, lambda: {"turned": whole.T, "part": whole[:, 1:3]})
    again = cached("toy", SHA, never)
    assert torch.equal(again["turned"], whole.T)
    assert torch.equal(again["part"], whole[:, 1:3])


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "of other data"])
def test_a_damaged_cache_file_is_reported_and_made_again(store, caplog, damage):
    cached("toy", SHA, some_tensors)
    path = the_file(store.cache)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "of other data":
        cached("toy", SHA[:16] + "f" * 48, some_tensors)
    else:
        path.write_bytes(b"" if damage == "empty" else b"\xff" * 100)
    with caplog.at_level(logging.WARNING, "ptn"):
        again = cached("toy", SHA, some_tensors)
    assert torch.equal(again["images"], some_tensors()["images"])
    assert str(path) in caplog.text
    assert cached("toy", SHA, never).keys() == again.keys()


def test_a_build_that_fails_leaves_nothing(store):
    with pytest.raises(AssertionError):
        cached("toy", SHA, never)
    assert not (store.cache / "generated").exists()


def test_builders_of_the_same_set_do_not_disturb_each_other(store):
    together = threading.Barrier(2)

    def build() -> dict[str, Tensor]:
        together.wait(timeout=30)  # both have found the cache empty
        return some_tensors()

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: cached("toy", SHA, build), range(2)))
    assert all(torch.equal(result["images"], some_tensors()["images"]) for result in results)
    assert torch.equal(cached("toy", SHA, never)["labels"], some_tensors()["labels"])
    assert the_file(store.cache).suffix == ".safetensors"
