"""Storage: data folders, the cache of generated data, downloads, and readers shared by several data sets."""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError, check_choice, first_line, optional_module
from ..files import read_tensors, save_tensors

LOG = logging.getLogger("ptn")


class MissingDataError(InputError):
    """Raised if the files of a data set are in no data folder."""


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Context manager: errors, of which decoders raise many types, become an `InputError` that names the file."""
    try:
        yield
    except Exception as error:
        raise InputError(f"cannot read {path}: {first_line(error)}") from error


def cache_folder() -> Path:
    """Return the folder for downloads and generated data: `PTN_CACHE`, or `ptn` in `XDG_CACHE_HOME` or ~/.cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ptn"
    return Path(os.environ.get("PTN_CACHE") or default).expanduser()


def download_folder() -> Path:
    return cache_folder() / "downloads"


def data_folders() -> list[Path]:
    """Return the folders searched for data, in order: those in `PTN_DATA`, then the downloads."""
    folders = [Path(name).expanduser() for name in os.environ.get("PTN_DATA", "").split(os.pathsep) if name]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"PTN_DATA names {folder}, which is not a folder")
    return [*folders, download_folder()]


def find(*relative_paths: str) -> Path | None:
    """Return the first of `relative_paths` that exists, in the first data folder that has any of them."""
    for folder in data_folders():
        for relative in relative_paths:
            if os.path.exists(folder / relative):  # noqa: PTH110 (Path.exists raises in a folder without permission)
                return folder / relative
    return None


def missing(dataset: str, *relative_paths: str) -> MissingDataError:
    """Return the error for files of `dataset` that are in no data folder."""
    names, folders = " or ".join(relative_paths), ", ".join(map(str, data_folders()))
    return MissingDataError(f"{dataset}: no {names} in {folders}; get it with: ptn data fetch {dataset}")


def fingerprint(**parts: object) -> str:
    """Return the sha256 of named JSON-like values, independent of their order."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def sha256_of_file(path: Path) -> str:
    with reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cached(key: str, sha256: str, build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return `build()`, stored in the cache under `key` and `sha256`.

    `sha256` covers everything that the result depends on: source bytes, parameters, generator version. A damaged
    file is rebuilt; a cache that cannot be written is skipped with a warning.
    """
    path = cache_folder() / "generated" / f"{key}-{sha256[:16]}.safetensors"
    if os.path.exists(path):  # noqa: PTH110
        try:
            return read_tensors(path, "cache file", needs_digest=True)[0]
        except InputError as error:
            LOG.warning("%s: rebuilding it", error)
    tensors = {name: tensor.contiguous() for name, tensor in build().items()}
    try:
        save_tensors(path, tensors, {"sha256": sha256})
    except InputError as error:
        LOG.warning("continuing without the cache %s (set PTN_CACHE to move it): %s", cache_folder(), error)
    return tensors


def read_npz(path: Path, *names: str) -> tuple[NDArray[Any], ...]:
    """Return the arrays with these names from an .npz file. Pickled arrays are refused."""
    with reading(path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        return tuple(file[name] for name in names)


class Remote(NamedTuple):
    """A file to download: its path in a data folder, its mirrors, and its sha256 or "md5:…" if published."""

    path: str
    urls: tuple[str, ...]
    checksum: str | None


def _remote(path: str, checksum: str | None, *folders: str) -> Remote:
    return Remote(path, tuple(f"{folder}/{path.rpartition('/')[2]}" for folder in folders), checksum)


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
_ROTMNIST = "http://www.iro.umontreal.ca/~lisa/icml2007data"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": (
        _remote("mnist/train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", *_MNIST),
        _remote("mnist/train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432", *_MNIST),
        _remote("mnist/t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3", *_MNIST),
        _remote("mnist/t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c", *_MNIST),
    ),
    "rotmnist": (_remote("rotmnist/mnist_rotation_new.zip", "md5:0f9a947ff3d30e95cd685462cbf3b847", _ROTMNIST),),
    "svhn": (
        _remote("svhn/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", _SVHN),
        _remote("svhn/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", _SVHN),
    ),
    "svhn-extra": (_remote("svhn/extra_32x32.mat", "md5:a93ce644f1a588dc4d68dda5feec44a7", _SVHN),),
    "rotsvhn": (
        _remote("svhn/train.tar.gz", "4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898", _SVHN),
        _remote("svhn/test.tar.gz", "57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5", _SVHN),
    ),
    "rotsvhn-extra": (_remote("svhn/extra.tar.gz", None, _SVHN),),
    "modelnet40": (
        _remote(
            "modelnet40/ModelNet40.zip",
            "42dc3e656932e387f554e25a4eb2cc0e1a1bd3ab54606e2a9eae444c60e536ac",
            "http://modelnet.cs.princeton.edu",
        ),
    ),
    "modelnet10": (
        _remote(
            "modelnet10/ModelNet10.zip",
            "9d8679435fc07d1d26f13009878db164a7aa8ea5e7ea3c8880e42794b7307d51",
            "http://3dvision.princeton.edu/projects/2014/3DShapeNets",
        ),
    ),
}
# Data sets generated from the files of another one.
REMOTES |= dict.fromkeys(
    ("mnist-r", "mnist-rts", "sim2mnist", "sim2mnist-larger", "sim2mnist-turned"), REMOTES["mnist"]
)
REMOTES |= {"svhn-minus": REMOTES["svhn"], "rotsvhn-minus": REMOTES["rotsvhn"]}


def remotes_of(dataset: str) -> tuple[Remote, ...]:
    """Return the files that a data set is read or generated from."""
    check_choice("data set", dataset, REMOTES)
    return REMOTES[dataset]


def fetch(remote: Remote) -> Path:
    """Return the path of a file, downloaded unless an intact copy is in a data folder.

    The mirrors are tried in order. pooch verifies the checksum, moves a complete file into place, and retries.
    """
    pooch = optional_module("pooch")
    pooch.get_logger().setLevel("WARNING")
    present = find(remote.path)
    if present is not None and present != download_folder() / remote.path:
        if not pooch.hashes.hash_matches(str(present), remote.checksum):
            raise InputError(f"{present} is damaged (wrong checksum): delete it, then fetch it again")
        return present
    print(f"fetching {remote.path} from {remote.urls[0]}", file=sys.stderr)
    # With another encoding a server may compress the file again, and requests would undo both.
    options = {"timeout": 30.0, "headers": {"Accept-Encoding": "identity"}, "chunk_size": 1 << 16}
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), **options)
    errors = []
    for url in remote.urls:
        files = pooch.create(
            path=download_folder(),
            base_url="",
            registry={remote.path: remote.checksum},
            urls={remote.path: url},
            retry_if_failed=2,
        )
        try:
            return Path(files.fetch(remote.path, downloader=downloader))
        except (OSError, ValueError) as error:  # includes every exception of requests
            errors.append(f"{url}: {first_line(error)}")
    raise InputError(f"cannot download {remote.path}: {'; '.join(errors)}")
