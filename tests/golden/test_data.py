"""The first images and labels of every split, byte for byte."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adapter
import cases
import comparison
import pytest
import torch

DATA, DATA_ON = comparison.read("data")
FILES, FILES_ON = comparison.read("files")
# How far the mean of an image may be from the recorded one on another machine, in grey levels.
MEAN_TOLERANCE = 0.05


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cache, so that every set is generated; removed at the end, because sets are large."""
    folder = tmp_path_factory.mktemp("cache")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _environment(cache: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTN_CACHE", str(cache))


@pytest.fixture
def real_data() -> Path:
    """The folder of real data; skips without PTN_DATA."""
    if not os.environ.get("PTN_DATA"):
        pytest.skip("PTN_DATA is not set: no real data")
    return Path(os.environ["PTN_DATA"].split(os.pathsep)[0])


def _cases(entries: list[tuple[str, str, dict[str, Any]]], *marks: pytest.MarkDecorator) -> list[Any]:
    return [pytest.param(*entry, id=cases.data_key(*entry), marks=marks) for entry in entries]


def _check(actual: dict[str, Any], expected: dict[str, Any], same_machine: bool) -> None:
    """Compare all facts; images and poses, which are computed in floats, byte for byte on the same machine only."""
    facts = cases.data_facts(actual)
    means = torch.tensor(facts.pop("means")), torch.tensor(expected["means"])
    torch.testing.assert_close(*means, rtol=0, atol=MEAN_TOLERANCE)
    for key in facts:
        if same_machine or key not in ("images", "poses"):
            assert facts[key] == expected[key], key


def _check_split(name: str, split: str, options: dict[str, Any]) -> None:
    actual = adapter.load_split(name, split, count=cases.COUNT, **options)
    _check(actual, DATA[cases.data_key(name, split, options)], comparison.fingerprint() == DATA_ON)


@pytest.mark.parametrize(("name", "split", "options"), _cases(cases.QUICKSTART))
def test_quickstart_is_the_recorded_one(name: str, split: str, options: dict[str, Any]) -> None:
    _check_split(name, split, options)


@pytest.mark.parametrize(("name", "split", "options"), [*_cases(cases.REAL), *_cases(cases.SLOW, pytest.mark.slow)])
@pytest.mark.usefixtures("real_data")
def test_split_is_the_recorded_one(name: str, split: str, options: dict[str, Any]) -> None:
    _check_split(name, split, options)


@pytest.mark.parametrize(
    ("name", "split", "options"), [*_cases(cases.FOLDERS), *_cases(cases.SLOW_FOLDERS, pytest.mark.slow)]
)
def test_folder_is_the_recorded_one(name: str, split: str, options: dict[str, Any], cache: Path) -> None:
    root = cache / "folders" / name
    if not root.exists():
        cases.write_folder(name, root)
    actual = adapter.load_folder(root, split, count=cases.COUNT, **options)
    expected = dict(FILES[cases.data_key(name, split, options)])
    same_machine = comparison.fingerprint() == FILES_ON
    if not same_machine:  # the hash covers the bytes of the files, which depend on floats and on the PNG encoder
        actual["sha256"] = expected["sha256"]
    _check(actual, expected, same_machine)


def test_drawn_examples_are_those_recorded() -> None:
    for name, images in cases.draw_examples().items():
        comparison.check(images, FILES["examples"][name], comparison.fingerprint() == FILES_ON)


def test_idx_and_amat_files_are_read_as_recorded(tmp_path: Path) -> None:
    assert cases.read_formats(tmp_path) == FILES["formats"]


@pytest.mark.parametrize(("mesh", "size", "occupancy"), cases.MESHES)
def test_mesh_has_the_recorded_voxels(mesh: str, size: int, occupancy: str, real_data: Path) -> None:
    path = real_data / "modelnet40/meshes" / f"{mesh}.off"
    voxels = adapter.voxelize_mesh(path, size=size, occupancy=occupancy)
    actual = {"filled": int(voxels.sum()), "sha256": comparison.sha256(voxels.byte())}
    assert actual == FILES[f"{mesh} {size} {occupancy}"]
