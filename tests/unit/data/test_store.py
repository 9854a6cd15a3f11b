"""Data folders, the cache, and downloads from a real server."""

import hashlib
import logging
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

from ptn.data.store import REMOTES, Remote, cached, fetch, find, read_npz, remotes_of
from ptn.errors import InputError

SHA = "0123456789abcdef" * 4
CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def build():
    return {"images": torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4), "labels": torch.tensor([3, 1])}


def never():
    raise AssertionError("the cached set was built again")


def test_an_earlier_folder_is_preferred_to_an_earlier_name(store, tmp_path, monkeypatch):
    second = tmp_path / "second"
    for path in (second / "b.txt", store.cache / "downloads" / "a.txt"):
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setenv("PTN_DATA", f"{store.data}{os.pathsep}{second}")
    assert find("a.txt", "b.txt") == second / "b.txt"
    assert find("c.txt") is None


def test_a_set_is_built_once_and_is_the_same_from_the_cache(store):
    views = {"transposed": torch.arange(12).reshape(3, 4).T}
    built = cached("toy", SHA, lambda: build() | views)
    cached("toy", SHA, never)["images"].zero_()  # does not change the cache
    again = cached("toy", SHA, never)
    for name, tensor in (build() | views).items():
        assert torch.equal(built[name], tensor)
        assert torch.equal(again[name], tensor)
        assert again[name].dtype == tensor.dtype


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty"])
def test_a_damaged_cache_file_is_reported_and_rebuilt(store, caplog, damage):
    cached("toy", SHA, build)
    (path,) = (store.cache / "generated").iterdir()
    path.write_bytes({"truncated": path.read_bytes()[:-1], "garbage": b"\xff" * 100, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING, "ptn"):
        again = cached("toy", SHA, build)
    assert torch.equal(again["images"], build()["images"])
    assert str(path) in caplog.text
    assert cached("toy", SHA, never).keys() == again.keys()


def test_a_cache_that_cannot_be_written_is_skipped_with_a_warning(store, monkeypatch, caplog):
    (store.data / "file").touch()
    monkeypatch.setenv("PTN_CACHE", str(store.data / "file" / "cache"))
    with caplog.at_level(logging.WARNING, "ptn"):
        assert torch.equal(cached("toy", SHA, build)["images"], build()["images"])
    assert "PTN_CACHE" in caplog.text
    assert find("nothing.txt") is None


@pytest.mark.parametrize("content", [b"", b"not an archive", "truncated", "npy", "pickle"])
def test_a_bad_npz_file_is_one_line_that_names_it(tmp_path, content):
    path = tmp_path / "file.npz"
    np.savez(path, x=np.array([{}]) if content == "pickle" else np.zeros(1000))
    if content == "npy":
        with path.open("wb") as stream:
            np.save(stream, np.zeros(3))
    elif content != "pickle":
        path.write_bytes(path.read_bytes()[:-100] if content == "truncated" else content)
    with pytest.raises(InputError, match=r"file\.npz"):
        read_npz(path, "x")


class Server:
    """An HTTP server. `faults` are consumed one per request; after that it serves CONTENT."""

    def __init__(self):
        self.faults, self.requests = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                fault = outer.faults.pop(0) if outer.faults else ""
                if fault.isdigit():
                    self.send_error(int(fault))
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(CONTENT)))
                self.end_headers()
                content = {"truncate": CONTENT[: len(CONTENT) // 2], "corrupt": CONTENT[:-1] + b"x"}
                self.wfile.write(content.get(fault, CONTENT))

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file.gz"
        self.remote = Remote("toy/file.gz", (self.url,), SHA256, len(CONTENT))
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("pooch")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # pooch waits between attempts
    server = Server()
    yield server
    server.http.shutdown()
    server.thread.join()
    server.http.server_close()


def test_a_file_is_fetched_once_and_then_found(store, server, capsys):
    path = fetch(server.remote)
    assert capsys.readouterr().err == f"fetching toy/file.gz from {server.url}\n"
    assert path == store.cache / "downloads" / "toy" / "file.gz"
    assert path.read_bytes() == CONTENT
    assert fetch(server.remote) == path
    assert len(server.requests) == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["file.gz"]


@pytest.mark.parametrize("fault", ["truncate", "corrupt", "500"])
def test_a_failed_attempt_is_repeated_and_a_lasting_failure_is_an_error(store, server, fault):
    server.faults = [fault]
    assert fetch(server.remote).read_bytes() == CONTENT
    assert len(server.requests) == 2
    path = store.cache / "downloads" / "toy" / "file.gz"
    path.write_bytes(b"old")  # damaged: fetched again
    server.faults = [fault] * 10
    with pytest.raises(InputError, match=f"toy/file.gz.*{server.url}"):
        fetch(server.remote)
    assert len(server.requests) == 5
    assert [entry.name for entry in path.parent.iterdir()] == ["file.gz"]
    assert path.read_bytes() == b"old"


def test_mirrors_are_tried_in_order(store, server):
    server.faults = ["500"] * 3
    remote = Remote("toy/file.gz", (server.url + "?first", server.url + "?second"), SHA256, len(CONTENT))
    assert fetch(remote).read_bytes() == CONTENT
    assert server.requests == ["/file.gz?first"] * 3 + ["/file.gz?second"]


def test_an_intact_file_of_the_user_is_used_and_a_damaged_one_named(store, server):
    path = store.data / "toy" / "file.gz"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert fetch(server.remote) == path
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match=f"{path} is damaged"):
        fetch(server.remote)
    assert server.requests == []


def test_a_file_that_is_too_large_is_refused(store, server):
    with pytest.raises(InputError, match="too many bytes"):
        fetch(server.remote._replace(max_bytes=len(CONTENT) - 1))
    assert not list((store.cache / "downloads").rglob("*.gz"))


def test_every_download_has_a_sha256_and_a_limit():
    for remote in (remote for remotes in REMOTES.values() for remote in remotes):
        assert re.fullmatch(r"[0-9a-f]{64}", remote.sha256)
        assert 0 < remote.max_bytes < 2**32
    with pytest.raises(InputError, match=r"by hand.*md5"):  # no sha256 of it is known
        remotes_of("rotmnist")
