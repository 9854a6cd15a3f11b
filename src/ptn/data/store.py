"""Storage: data folders, the cache of generated data, downloads, and readers shared by several data sets."""

import hashlib
import json
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
from ..files import LOG, read_tensors, save_tensors


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
    hint = f"get it with: ptn data fetch {dataset}" if dataset in REMOTES else _BY_HAND[dataset]
    return MissingDataError(f"{dataset}: no {names} in {folders}; {hint}")


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
        check_decoded(path, sum(file.zip.getinfo(f"{name}.npy").file_size for name in names))
        arrays = tuple(file[name] for name in names)
        if not all(isinstance(array, np.ndarray) for array in arrays):
            raise ValueError("it has a member that is not an array")
    return arrays


def max_decoded(path: Path) -> int:
    """Return how many bytes the content of a compressed file may have; data sets have far fewer."""
    return 2**29 + 16 * path.stat().st_size


def check_decoded(path: Path, size: int) -> None:
    """Raise ValueError if the content of a compressed file has too many bytes."""
    if size > max_decoded(path):
        raise ValueError(f"it would take {size:,} bytes of memory")


class Remote(NamedTuple):
    """A file to download: its path in a data folder, its mirrors, its sha256, and its largest size."""

    path: str
    urls: tuple[str, ...]
    sha256: str
    max_bytes: int


def _remote(path: str, sha256: str, megabytes: int, *folders: str) -> Remote:
    urls = tuple(f"{folder}/{path.rpartition('/')[2]}" for folder in folders)
    return Remote(path, urls, sha256, megabytes * 10**6)


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
_MNIST_SHA256 = {
    "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_SVHN_SHA256 = {
    "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    "extra_32x32.mat": "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
    "train.tar.gz": "4b17bb33b6cd8f963493168f80143da956f28ec406cc12f8e5745a9f91a51898",
    "test.tar.gz": "57ac9ceb530e4aa85b55d991be8fc49c695b3d71c6f6a88afea86549efde7fb5",
}
_MODELNET = ("http://modelnet.cs.princeton.edu", "http://3dvision.princeton.edu/projects/2014/3DShapeNets")
_MODELNET40_SHA256 = "42dc3e656932e387f554e25a4eb2cc0e1a1bd3ab54606e2a9eae444c60e536ac"
_MODELNET10_SHA256 = "9d8679435fc07d1d26f13009878db164a7aa8ea5e7ea3c8880e42794b7307d51"


def _svhn(*names: str) -> tuple[Remote, ...]:
    return tuple(_remote(f"svhn/{name}", _SVHN_SHA256[name], 1500, _SVHN) for name in names)


# Files without a known sha256, which are not downloaded, because they could not be verified.
_BY_HAND = {
    "rotmnist": "get http://www.iro.umontreal.ca/~lisa/icml2007data/mnist_rotation_new.zip by hand, into the "
    "folder rotmnist in a data folder. Only its md5 is known, 0f9a947ff3d30e95cd685462cbf3b847; ptn downloads only "
    "files with a known sha256",
    "rotsvhn-extra": f"get {_SVHN}/extra.tar.gz by hand, into the folder svhn in a data folder. Its sha256 is "
    "not known; ptn downloads only files with a known sha256",
}
REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": tuple(_remote(f"mnist/{name}-ubyte.gz", sha, 20, *_MNIST) for name, sha in _MNIST_SHA256.items()),
    "svhn": _svhn("train_32x32.mat", "test_32x32.mat"),
    "svhn-extra": _svhn("extra_32x32.mat"),
    "rotsvhn": _svhn("train.tar.gz", "test.tar.gz"),
    "modelnet40": (_remote("modelnet40/ModelNet40.zip", _MODELNET40_SHA256, 3000, _MODELNET[0]),),
    "modelnet10": (_remote("modelnet10/ModelNet10.zip", _MODELNET10_SHA256, 3000, _MODELNET[1]),),
}
# Data sets generated from the files of another one.
REMOTES |= dict.fromkeys(
    ("mnist-r", "mnist-rts", "sim2mnist", "sim2mnist-larger", "sim2mnist-turned"), REMOTES["mnist"]
)
REMOTES |= {"svhn-minus": REMOTES["svhn"], "rotsvhn-minus": REMOTES["rotsvhn"]}


def remotes_of(dataset: str) -> tuple[Remote, ...]:
    """Return the files that a data set is read or generated from.

    Raises:
        InputError: They have to be downloaded by hand.
    """
    check_choice("data set", dataset, [*REMOTES, *_BY_HAND])
    if dataset in _BY_HAND:
        raise InputError(f"{dataset} is not downloaded: {_BY_HAND[dataset]}")
    return REMOTES[dataset]


class Bounded:
    """A binary stream that raises `OSError` once more than `limit` bytes are read or written."""

    def __init__(self, stream: Any, limit: int) -> None:
        self.stream, self.remaining = stream, limit

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self._count(data)
        return data

    def write(self, data: bytes) -> int:
        self._count(data)
        return self.stream.write(data)

    def flush(self) -> None:
        self.stream.flush()

    def _count(self, data: bytes) -> None:
        self.remaining -= len(data)
        if self.remaining < 0:
            raise OSError("it has too many bytes")


def fetch(remote: Remote) -> Path:
    """Return the path of a file, downloaded unless an intact copy is in a data folder.

    The mirrors are tried in order. pooch verifies the checksum, moves a complete file into place, and retries.
    """
    pooch = optional_module("pooch")
    pooch.get_logger().setLevel("WARNING")
    present = find(remote.path)
    if present is not None and present != download_folder() / remote.path:
        if not pooch.hashes.hash_matches(str(present), remote.sha256):
            raise InputError(f"{present} is damaged (wrong checksum): delete it, then fetch it again")
        return present
    print(f"fetching {remote.path} from {remote.urls[0]}", file=sys.stderr)
    # With another encoding a server may compress the file again, and requests would undo both.
    options = {"timeout": 30.0, "headers": {"Accept-Encoding": "identity"}, "chunk_size": 1 << 16}
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), **options)

    def download(url: str, output: str, manager: Any, check_only: bool = False) -> Any:
        with Path(output).open("wb") as stream:
            return downloader(url, Bounded(stream, remote.max_bytes), manager, check_only)

    errors = []
    for url in remote.urls:
        files = pooch.create(
            path=download_folder(),
            base_url="",
            registry={remote.path: remote.sha256},
            urls={remote.path: url},
            retry_if_failed=2,
        )
        try:
            return Path(files.fetch(remote.path, downloader=download))
        except (OSError, ValueError) as error:  # includes every exception of requests
            errors.append(f"{url}: {first_line(error)}")
    raise InputError(f"cannot download {remote.path}: {'; '.join(errors)}")
