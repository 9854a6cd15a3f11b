"""Downloads from a real server that misbehaves in every way the tests ask of it."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ptn.data.download import Remote, fetch, is_intact
from ptn.data.remotes import MADE_FROM, REMOTES, remotes_of
from ptn.errors import InputError

CONTENT = bytes(range(256)) * 1000
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server:
    """A server on this machine. `faults` are used up one a request; then it serves CONTENT as it should."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.give_up = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                fault = outer.faults.pop(0) if outer.faults else ""
                if fault.isdigit():
                    self.send_error(int(fault))
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(CONTENT)))
                self.end_headers()
                if fault == "stall":
                    self.wfile.write(CONTENT[:1000])
                    self.wfile.flush()
                    outer.give_up.wait(30)
                elif fault == "truncate":
                    self.wfile.write(CONTENT[: len(CONTENT) // 2])
                elif fault == "corrupt":
                    self.wfile.write(CONTENT[:-1] + b"x")
                else:
                    self.wfile.write(CONTENT)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/file.gz"

    def stop(self) -> None:
        self.give_up.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def quick(remote: Remote, *, attempts: int = 3, timeout_s: float = 5.0):
    return fetch(remote, progress=False, attempts=attempts, timeout_s=timeout_s, pause_s=0.0)


def nothing_is_left(store) -> bool:
    return not store.cache.exists()


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_file_is_fetched_once_and_then_found(store, server, checksum):
    remote = Remote("toy/file.gz", (server.url,), checksum)
    path = quick(remote)
    assert path == store.cache / "downloads" / "toy" / "file.gz"
    assert path.read_bytes() == CONTENT
    assert quick(remote) == path
    assert len(server.requests) == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["file.gz"]


@pytest.mark.parametrize("fault", ["truncate", "corrupt", "500", "404", "stall"])
def test_a_passing_fault_is_tried_again(store, server, fault):
    server.faults = [fault]
    path = quick(Remote("toy/file.gz", (server.url,), MD5), timeout_s=0.3 if fault == "stall" else 5.0)
    assert path.read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("truncate", "the connection closed before the file was complete"),
        ("corrupt", f"the checksum is md5:[0-9a-f]*, not {MD5}"),
        ("500", "the server answered 500 Internal Server Error"),
        ("stall", "the server sent nothing for 0.2 s"),
    ],
)
def test_a_lasting_fault_is_one_line_and_leaves_nothing(store, server, fault, words):
    server.faults = [fault] * 10
    with pytest.raises(InputError, match=f"toy/file.gz.*{server.url}: {words}$") as caught:
        quick(Remote("toy/file.gz", (server.url,), MD5), attempts=2, timeout_s=0.2 if fault == "stall" else 5.0)
    assert "\n" not in str(caught.value)
    assert len(server.requests) == 2
    assert nothing_is_left(store)


def test_folders_with_something_in_them_stay(store, server):
    other = store.cache / "downloads" / "other.gz"
    other.parent.mkdir(parents=True)
    other.touch()
    server.faults = ["500"]
    with pytest.raises(InputError):
        quick(Remote("toy/file.gz", (server.url,), MD5), attempts=1)
    assert list(store.cache.rglob("*")) == [other.parent, other]


def test_a_download_that_cannot_be_written_names_the_file(store, server, monkeypatch):
    monkeypatch.setenv("PTN_CACHE", "/proc")
    with pytest.raises(InputError, match=r"/proc/downloads") as caught:
        quick(Remote("toy/file.gz", (server.url,), MD5))
    assert ".part" not in str(caught.value)


def test_a_server_that_is_not_there_is_one_line(store, server):
    url = server.url
    server.http.server_close()
    with pytest.raises(InputError, match=f"{url}: no connection to the server$"):
        quick(Remote("toy/file.gz", (url,), MD5), attempts=1)
    assert nothing_is_left(store)


def test_mirrors_are_tried_in_order_and_all_named_when_all_fail(store, server):
    first, second = server.url + "?first", server.url + "?second"
    server.faults = ["500", "500"]
    remote = Remote("toy/file.gz", (first, second), MD5)
    assert quick(remote, attempts=2).read_bytes() == CONTENT
    assert server.requests == ["/file.gz?first", "/file.gz?first", "/file.gz?second"]
    server.faults = ["404", "500"]
    with pytest.raises(InputError) as caught:
        quick(Remote("toy/other.gz", (first, second), MD5), attempts=1)
    assert "?first: the server answered 404" in str(caught.value)
    assert "?second: the server answered 500" in str(caught.value)


def test_a_damaged_download_is_fetched_again(store, server):
    remote = Remote("toy/file.gz", (server.url,), MD5)
    path = quick(remote)
    path.write_bytes(CONTENT[:-5])
    assert quick(remote).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_failed_attempt_leaves_the_old_file_as_it_was(store, server):
    remote = Remote("toy/file.gz", (server.url,), MD5)
    path = quick(remote)
    path.write_bytes(b"old")
    server.faults = ["truncate"]
    with pytest.raises(InputError):
        quick(remote, attempts=1)
    assert path.read_bytes() == b"old"


def test_an_intact_file_of_the_user_is_used_and_a_damaged_one_is_named(store, server):
    remote = Remote("toy/file.gz", (server.url,), MD5)
    mine = store.data / "toy" / "file.gz"
    mine.parent.mkdir()
    mine.write_bytes(CONTENT)
    assert quick(remote) == mine
    mine.write_bytes(b"something else")
    with pytest.raises(InputError, match=f"{mine} is damaged"):
        quick(remote)
    assert server.requests == []


def test_without_a_published_checksum_the_first_download_sets_it(store, server):
    remote = Remote("toy/file.gz", (server.url,), None)
    path = quick(remote)
    record = path.with_name("file.gz.sha256")
    assert record.read_text().strip() == SHA256
    assert is_intact(path, remote)
    path.write_bytes(b"changed")
    assert not is_intact(path, remote)
    assert quick(remote).read_bytes() == CONTENT


def test_off_a_terminal_one_plain_line_says_what_is_fetched(store, server, capsys):
    fetch(Remote("toy/file.gz", (server.url,), MD5), progress=True)
    assert capsys.readouterr().err == f"fetching toy/file.gz from {server.url}\n"


def test_on_a_terminal_a_bar_reaches_the_end(store, server, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    path = fetch(Remote("toy/file.gz", (server.url,), MD5), progress=True)
    assert path.read_bytes() == CONTENT
    shown = capsys.readouterr().err
    assert "toy/file.gz" in shown
    assert "256.0/256.0 kB" in shown


def test_every_known_file_has_a_url_and_all_but_one_a_published_checksum():
    lengths = {"md5": 32, "sha1": 40, "sha256": 64}
    remotes = [remote for group in REMOTES.values() for remote in group]
    for remote in remotes:
        assert remote.urls
        assert all(url.rpartition("/")[2] == remote.path.rpartition("/")[2] for url in remote.urls)
        if remote.checksum is not None:
            algorithm, _, digits = remote.checksum.partition(":")
            assert len(digits) == lengths[algorithm]
    assert [remote.path for remote in remotes if remote.checksum is None] == ["svhn/extra.tar.gz"]


def test_made_sets_are_fetched_by_their_source():
    assert all(remotes_of(name) == REMOTES[source] for name, source in MADE_FROM.items())
    with pytest.raises(InputError, match=r"did you mean 'mnist'"):
        remotes_of("mnits")
