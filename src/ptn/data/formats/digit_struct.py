"""The `digitStruct.mat` of SVHN's full numbers (HDF5): each photo's name and the boxes of its digits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, optional_module

BOX_FIELDS = (b"left", b"top", b"width", b"height", b"label")


@dataclass(frozen=True)
class DigitBoxes:
    """The digits of all photos, photo by photo, in the order in which the file has them.

    `names` of the photos; `photo` (N,) the index into `names` of each digit; `boxes` (N, 4) left, top, width,
    height in pixels, where the corner of the photo is (0, 0); `labels` (N,) int64, 0 to 9.
    """

    names: tuple[str, ...]
    photo: NDArray[np.int64]
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]


def read_digit_struct(path: Path) -> DigitBoxes:
    """The boxes of a `digitStruct.mat`, whose own corner is (1, 1) and whose zeros are called 10."""
    try:
        names, tables = _read_photos(path)
    except InputError:
        raise
    # A damaged file can fail anywhere in HDF5, with whatever exception its bytes lead to.
    except Exception as error:
        fault = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot read {path} as a digitStruct file: {fault}") from error
    if len(names) != len(tables) or not tables:
        raise InputError(f"{path} has {len(names)} photos but boxes for {len(tables)}")
    table = np.concatenate(tables)
    if not np.isin(table[:, 4], np.arange(1, 11)).all():
        raise InputError(f"{path} has labels outside 1 to 10")
    if not (np.isfinite(table).all() and (table[:, 2:4] > 0).all()):
        raise InputError(f"{path} has boxes without a size")
    return DigitBoxes(
        tuple(names),
        np.repeat(np.arange(len(tables)), [len(rows) for rows in tables]),
        table[:, :4] - (1, 1, 0, 0),
        table[:, 4].astype(np.int64) % 10,
    )


def _read_photos(path: Path) -> tuple[list[str], list[NDArray[np.float64]]]:
    """The name of each photo, and its table of boxes (digits, 5) in the order of `BOX_FIELDS`.

    The file is half a million tiny datasets that refer to each other. h5py's low-level calls follow a
    reference in a fraction of the time that its usual ones take.
    """
    h5py = optional_module("h5py")
    everything, number, reference = h5py.h5s.ALL, h5py.h5t.NATIVE_DOUBLE, h5py.ref_dtype
    cell = np.empty((1, 1))

    def follow(ref: Any) -> Any:
        return h5py.h5r.dereference(ref, file.id)

    def value(dataset: Any) -> float:
        dataset.read(everything, everything, cell, number)
        return float(cell[0, 0])

    def field(box: Any, name: bytes) -> list[float]:
        """One number if the photo has one digit; else a column of references to numbers."""
        dataset = h5py.h5d.open(box, name)
        if dataset.shape == (1, 1):
            return [value(dataset)]
        column = np.empty(dataset.shape, dtype=reference)
        dataset.read(everything, everything, column)
        return [value(follow(ref)) for ref in column[:, 0]]

    def text(dataset: Any) -> str:
        letters = np.empty(dataset.shape, dtype=np.uint16)
        dataset.read(everything, everything, letters)
        return "".join(map(chr, letters.ravel()))

    with h5py.File(path, "r") as file:
        photos = file["digitStruct"]
        names = [text(follow(ref)) for ref in photos["name"][:, 0]]
        boxes = [follow(ref) for ref in photos["bbox"][:, 0]]
        return names, [np.array([field(box, name) for name in BOX_FIELDS]).T for box in boxes]
