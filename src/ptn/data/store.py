"""Where data lives: the folders it is looked for in, and the cache of what was made from it."""

import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ..errors import InputError
from ..files import atomic_path, make_folder, save_tensors

LOG = logging.getLogger("ptn")

# Caches of which it has been said that they are of no use.
_UNUSABLE: set[Path] = set()


class MissingDataError(InputError):
    """Files that are in no data folder."""


def cache_folder() -> Path:
    """The folder for downloads and generated sets: `PTN_CACHE`, or "ptn" in the user's cache folder."""
    if chosen := os.environ.get("PTN_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        parent = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        parent = "~/Library/Caches"
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(parent).expanduser() / "ptn"


def download_folder() -> Path:
    return cache_folder() / "downloads"


def data_folders() -> list[Path]:
    """The folders searched for data, in order: those of `PTN_DATA`, then the downloads."""
    named = [Path(name).expanduser() for name in os.environ.get("PTN_DATA", "").split(os.pathsep) if name]
    for folder in named:
        if not folder.is_dir():
            raise InputError(f"PTN_DATA names {folder}, which is not a folder")
    return [*named, download_folder()]


def find(*relative_paths: str) -> Path | None:
    """The first of `relative_paths` that exists in the first data folder that has any of them."""
    for folder in data_folders():
        for relative in relative_paths:
            if _is_there(folder / relative):
                return folder / relative
    return None


def missing(dataset: str, *relative_paths: str) -> MissingDataError:
    """The error for files of `dataset` that are in no data folder."""
    names = " or ".join(relative_paths)
    folders = ", ".join(str(folder) for folder in data_folders())
    return MissingDataError(f"{dataset}: no {names} in {folders}; get it with: ptn data fetch {dataset}")


def fingerprint(**parts: object) -> str:
    """The sha256 of named numbers, strings, lists and dicts of them, in any order.

    >>> fingerprint(seed=1, split="test") == fingerprint(split="test", seed=1)
    True
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes, remembered in the cache until its size or time of change differs."""
    return _remembered(_identity(path), lambda: _sha256(path))


def sha256_of_files(paths: Sequence[Path]) -> str:
    """One sha256 for the bytes of several files, in the order given, remembered as one."""
    identity = fingerprint(files=[_identity(path) for path in paths])
    return _remembered(identity, lambda: fingerprint(files=[_sha256(path) for path in paths]))


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _identity(path: Path) -> str:
    stat = path.stat()
    return fingerprint(path=str(path.resolve()), size=stat.st_size, time=stat.st_mtime_ns)


def _remembered(identity: str, compute: Callable[[], str]) -> str:
    """The hash that the cache has for `identity`, or `compute()`, from now on in the cache."""
    memo = cache_folder() / "hashes" / identity[:32]
    known = _read_memo(memo)
    if known is not None:
        return known
    digest = compute()
    with _in_cache(), atomic_path(memo) as temporary:
        temporary.write_text(digest)
    return digest


def _read_memo(memo: Path) -> str | None:
    """The hash in a file; None if there is none, or not a whole one."""
    try:
        digest = memo.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return digest if len(digest) == 64 else None


def cached(key: str, sha256: str, build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What `build` returns, kept in the cache under `key` and `sha256` for the next time.

    `sha256` must cover everything the result depends on: source bytes, parameters, generator version.
    Processes that build the same set at once each write a whole file; the last one stays.
    """
    path = cache_folder() / "generated" / f"{key}-{sha256[:16]}.safetensors"
    known = _load_cached(path, sha256)
    if known is not None:
        return known
    tensors = {name: tensor.cpu().contiguous() for name, tensor in build().items()}
    with _in_cache():
        save_tensors(path, tensors, {"sha256": sha256})
    return tensors


def _load_cached(path: Path, sha256: str) -> dict[str, Tensor] | None:
    """The tensors of a cache file; None if it does not exist, is damaged, or is of other data."""
    from safetensors import SafetensorError, safe_open

    if not _is_there(path):
        return None
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("sha256") == sha256:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            fault = "made from other data"
    except (SafetensorError, OSError) as error:
        fault = f"damaged ({str(error).splitlines()[0]})"
    LOG.warning("cache file %s is %s: making it again", path, fault)
    return None


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for a while: in the cache, or where the system has such folders if that cannot be written."""
    parent: Path | None = None
    with _in_cache():
        parent = make_folder(cache_folder() / "unpacked")
    with tempfile.TemporaryDirectory(dir=parent, prefix="ptn-") as folder:
        yield Path(folder)


@contextmanager
def _in_cache() -> Iterator[None]:
    """Around a block that only writes to the cache: if it cannot, the work goes on without."""
    try:
        yield
    except (InputError, OSError) as error:
        _warn_once(error)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder on the way that may not be entered
        if not path.is_relative_to(cache_folder()):
            raise InputError(f"cannot look for {path}: {error.strerror}") from error
        _warn_once(error)
        return False


def _warn_once(error: InputError | OSError) -> None:
    folder = cache_folder()
    if folder not in _UNUSABLE:
        _UNUSABLE.add(folder)
        fault = error.strerror if isinstance(error, OSError) else str(error)
        LOG.warning("going on without the cache %s, which PTN_CACHE can move: %s", folder, fault)
