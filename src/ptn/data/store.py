"""Where data lives: the folders it is looked for in, and the cache of what was made from it."""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from ..errors import InputError
from ..files import atomic_path, save_tensors

LOG = logging.getLogger("ptn")


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
            if (folder / relative).exists():
                return folder / relative
    return None


def require(dataset: str, *relative_paths: str) -> Path:
    """What `find` finds, or the error that says how to get it."""
    path = find(*relative_paths)
    if path is None:
        raise missing(dataset, *relative_paths)
    return path


def missing(dataset: str, *relative_paths: str) -> InputError:
    """The error for files of `dataset` that are in no data folder."""
    names = " or ".join(relative_paths)
    folders = ", ".join(str(folder) for folder in data_folders())
    return InputError(f"{dataset}: no {names} in {folders}; get it with: ptn data fetch {dataset}")


def fingerprint(**parts: object) -> str:
    """The sha256 of named numbers, strings, lists and dicts of them, in any order.

    >>> fingerprint(seed=1, split="test") == fingerprint(split="test", seed=1)
    True
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes, remembered in the cache until its size or time of change differs."""
    stat = path.stat()
    identity = fingerprint(path=str(path.resolve()), size=stat.st_size, time=stat.st_mtime_ns)
    memo = cache_folder() / "hashes" / identity[:32]
    if memo.exists() and len(known := memo.read_text()) == 64:
        return known
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    with atomic_path(memo) as temporary:
        temporary.write_text(digest)
    return digest


def sha256_of_files(paths: Iterable[Path]) -> str:
    """One sha256 for the bytes of several files, in the order given."""
    return fingerprint(files=[sha256_of_file(path) for path in paths])


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
    save_tensors(path, tensors, {"sha256": sha256})
    return tensors


def _load_cached(path: Path, sha256: str) -> dict[str, Tensor] | None:
    """The tensors of a cache file; None if it does not exist, is damaged, or is of other data."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
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
