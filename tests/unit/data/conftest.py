"""Fixtures for the tests of data: an empty store, a shared cache, writers of the files of SVHN."""

import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

Boxes = list[tuple[float, ...]]


class Store(NamedTuple):
    data: Path
    cache: Path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty data folder and an empty cache."""
    folders = Store(tmp_path / "data", tmp_path / "cache")
    folders.data.mkdir()
    monkeypatch.setenv("PTN_DATA", str(folders.data))
    monkeypatch.setenv("PTN_CACHE", str(folders.cache))
    return folders


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache shared by the tests of one session, removed at the end because generated sets are large."""
    folder = tmp_path_factory.mktemp("cache")
    yield folder
    shutil.rmtree(folder)


def write_digit_struct(path: Path, photos: Iterable[tuple[str, Boxes]], **options: Any) -> None:
    """Write a digitStruct file: photos with the boxes of their digits, left, top, width, height and label."""
    import h5py

    with h5py.File(path, "w", **options) as file:
        refs, struct = file.create_group("#refs#"), file.create_group("digitStruct")

        def put(value: np.ndarray) -> Any:
            return refs.create_dataset(f"value{len(refs)}", data=value).ref

        def column(references: list[Any]) -> np.ndarray:
            return np.array(references, dtype=h5py.ref_dtype)[:, None]

        names, tables = [], []
        for index, (name, boxes) in enumerate(photos):
            names.append(put(np.array([[ord(letter)] for letter in name], dtype=np.uint16)))
            table = refs.create_group(f"box{index}")
            tables.append(table.ref)
            for field, *numbers in zip(("left", "top", "width", "height", "label"), *boxes, strict=True):
                values = [np.array([[number]], dtype=np.float64) for number in numbers]
                table.create_dataset(field, data=values[0] if len(values) == 1 else column(list(map(put, values))))
        struct.create_dataset("name", data=column(names))
        struct.create_dataset("bbox", data=column(tables))


def write_atlas(folder: Path, split: str, tiles: np.ndarray, labels: np.ndarray) -> None:
    """Write tiles (N, 48, 48, 3) as an atlas of 64 columns, and their labels, in the folder of SVHN."""
    folder.mkdir(exist_ok=True)
    rows = math.ceil(len(tiles) / 64)
    grid = np.zeros((rows * 64, 48, 48, 3), dtype=np.uint8)
    grid[: len(tiles)] = tiles
    pixels = grid.reshape(rows, 64, 48, 48, 3).transpose(0, 2, 1, 3, 4).reshape(rows * 48, 64 * 48, 3)
    Image.fromarray(pixels).save(folder / f"{split}_00.jpg", quality=100, subsampling=0)
    np.savez(
        folder / f"{split}_labels.npz",
        y=labels,
        image_id=np.arange(1, len(labels) + 1, dtype=np.int32),
        frac_outside=np.linspace(0, 0.5, len(labels), dtype=np.float32),
    )
