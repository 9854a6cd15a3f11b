"""Fixtures for the tests of data: an empty store, a shared cache, a writer of digitStruct files."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

Photos = dict[str, list[tuple[float, ...]]]


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


@pytest.fixture
def write_digit_struct() -> Callable[[Path, Photos], None]:
    """A writer of digitStruct files as MATLAB writes them: photos with boxes left, top, width, height, label."""
    h5py = pytest.importorskip("h5py")

    def write(path: Path, photos: Photos) -> None:
        with h5py.File(path, "w", userblock_size=512) as file:
            refs = file.create_group("#refs#")

            def put(value: np.ndarray) -> Any:
                return refs.create_dataset(f"value{len(refs)}", data=value).ref

            def column(references: list[Any]) -> np.ndarray:
                return np.array(references, dtype=h5py.ref_dtype)[:, None]

            names, tables = [], []
            for name, boxes in photos.items():
                names.append(put(np.array([[ord(letter)] for letter in name], dtype=np.uint16)))
                table = refs.create_group(f"table{len(refs)}")
                tables.append(table.ref)
                for index, field in enumerate(("left", "top", "width", "height", "label")):
                    numbers = [np.array([[box[index]]], dtype=np.float64) for box in boxes]
                    if len(numbers) == 1:
                        table.create_dataset(field, data=numbers[0])
                    else:
                        table.create_dataset(field, data=column([put(number) for number in numbers]))
            struct = file.create_group("digitStruct")
            struct.create_dataset("name", data=column(names))
            struct.create_dataset("bbox", data=column(tables))

    return write
