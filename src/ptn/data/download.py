"""Getting files from the network: whole and verified, or not at all."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, optional_module
from ..files import atomic_path
from .store import LOG, download_folder, find


@dataclass(frozen=True)
class Remote:
    """A file to be had from any of `urls`, kept under a data folder as `path`.

    `checksum` is "md5:…", "sha1:…" or "sha256:…". None says that nobody has published one: the sha256 of the
    first download is then written beside the file, as `path` + ".sha256", and later uses are held to it.
    """

    path: str
    urls: tuple[str, ...]
    checksum: str | None


class _DownloadError(Exception):
    """One attempt that failed; its message says how."""


def fetch(
    remote: Remote,
    *,
    progress: bool = True,
    attempts: int = 3,
    timeout_s: float = 30.0,
    pause_s: float = 1.0,
) -> Path:
    """The path of `remote`, downloaded unless an intact copy is in a data folder already.

    The urls are tried in order, each up to `attempts` times with `pause_s` between them; a server that sends
    nothing for `timeout_s` has failed. Every attempt starts afresh, and the file takes its name only when it
    is whole and its checksum is right.
    """
    target = download_folder() / remote.path
    present = find(remote.path)
    if present is not None:
        if is_intact(present, remote):
            return present
        if present != target:
            raise InputError(f"{present} is damaged (its checksum is wrong): delete it, then fetch it again")
        LOG.warning("%s is damaged (its checksum is wrong): fetching it again", present)
    faults = []
    with _without_empty_folders(target):
        for url in remote.urls:
            fault = ""
            for attempt in range(attempts):
                time.sleep(pause_s if attempt else 0)
                try:
                    _download(remote, url, target, progress=progress, timeout_s=timeout_s)
                    return target
                except _DownloadError as error:
                    fault = str(error)
            faults.append(f"{url}: {fault}")
    raise InputError(f"cannot download {remote.path}, {attempts} attempts each at {'; '.join(faults)}")


@contextmanager
def _without_empty_folders(target: Path) -> Iterator[None]:
    """Take back the folders that were made for `target` in the block, if it does not get there."""
    new = [folder for folder in target.parents if not folder.exists()]
    try:
        yield
    finally:
        for folder in new:
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()


def is_intact(path: Path, remote: Remote) -> bool:
    """Whether the bytes of the file at `path` are those of `remote`, as far as a checksum is known."""
    record = _checksum_record(path)
    checksum = remote.checksum or (record.read_text().strip() if record.exists() else None)
    return checksum is None or _checksum(path, checksum) == checksum


def _download(remote: Remote, url: str, target: Path, *, progress: bool, timeout_s: float) -> None:
    """Try once to bring `url` to `target`."""
    pooch = optional_module("pooch")
    # Without this header a server may compress a file again, and the client would undo both.
    headers = {"Accept-Encoding": "identity"}
    with atomic_path(target) as temporary:
        with _progress_bar(remote.path, url, progress) as bar:
            get = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=timeout_s, headers=headers)
            try:
                get(url, str(temporary), None)
            except OSError as error:
                raise _DownloadError(_describe(error, timeout_s)) from error
        found = _checksum(temporary, remote.checksum or "sha256:")
        if remote.checksum is None:
            with atomic_path(_checksum_record(target)) as record:
                record.write_text(found + "\n")
        elif found != remote.checksum:
            raise _DownloadError(f"the checksum is {found}, not {remote.checksum}")


def _checksum(path: Path, like: str) -> str:
    """The checksum of a file, by the algorithm that `like` begins with."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{optional_module('pooch').file_hash(str(path), alg=algorithm)}"


def _checksum_record(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _describe(error: OSError, timeout_s: float) -> str:
    """What went wrong, in a few words for a person. (Every error of requests is an OSError.)"""
    exceptions = optional_module("requests.exceptions")
    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    # A stall inside the body comes as a plain ConnectionError.
    if isinstance(error, exceptions.Timeout) or "timed out" in str(error):
        return f"the server sent nothing for {timeout_s:g} s"
    if isinstance(error, exceptions.ChunkedEncodingError):
        return "the connection closed before the file was complete"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection to the server"
    return (error.strerror or str(error) or type(error).__name__).splitlines()[0]


@contextmanager
def _progress_bar(name: str, url: str, shown: bool) -> Iterator[Any]:
    """What pooch reports progress to: a bar on a terminal, one plain line elsewhere, False for nothing."""
    if not shown:
        yield False
    elif not sys.stderr.isatty():
        print(f"fetching {name} from {url}", file=sys.stderr)
        yield False
    else:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True)) as display:
            yield _PoochBar(display, name)


class _PoochBar:
    """One line of a rich `Progress`, with the methods that pooch expects of a bar."""

    def __init__(self, display: Any, name: str) -> None:
        self.display = display
        self.task = display.add_task(name, total=None)
        self.total = 0

    def update(self, count: int) -> None:
        self.display.update(self.task, total=self.total or None, advance=count)

    def reset(self) -> None:
        self.display.update(self.task, completed=0)

    def close(self) -> None:
        self.display.refresh()
