"""How long data takes: making SIM2MNIST, voxelising meshes, loading what is cached.

What needs files that no data folder has is skipped. Sets that are not cached yet are made and kept, as any use of
them would; that is not timed.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset, DatasetInfo, list_datasets, load_dataset
from ..data.digits import SPECS, generate_digits
from ..data.meshes import read_mesh
from ..data.mnist import load_mnist
from ..data.store import MissingDataError
from ..data.voxelize import voxelize_packed
from .report import Bench
from .timing import Timing

MESHES = 200
# Quadrilaterals along and around a torus, two faces each.
ALONG, AROUND = 60, 30


def measure(bench: Bench, *, meshes: int = MESHES) -> None:
    """Each once: they take seconds, not milliseconds."""
    note(bench, f"make SIM2MNIST, {sum(SPECS['sim2mnist'].splits.values()):,} images", make_sim2mnist)
    note(bench, f"voxelise {meshes} meshes of {2 * ALONG * AROUND:,} faces", partial(voxelize_meshes, meshes))
    for info in list_datasets():
        note(bench, f"load {info.name} from the cache", partial(load_cached, info))


def note(bench: Bench, name: str, measure_seconds: Callable[[], dict[str, float]]) -> None:
    """A row for the sum of the seconds that `measure_seconds` returns by part, unless files are missing."""
    try:
        seconds = measure_seconds()
    except MissingDataError:
        bench.skip(name, "", "its files are not here")
        return
    total = 1000 * sum(seconds.values())
    bench.add(name, Timing(total, (total, total), 1))
    if len(seconds) > 1:
        bench.details[name] = {part: round(value, 3) for part, value in seconds.items()}


def make_sim2mnist() -> dict[str, float]:
    """Seconds for each split of SIM2MNIST, from MNIST in memory to images in memory, without the cache."""
    source, spec = load_mnist(), SPECS["sim2mnist"]
    seconds = {}
    for split in spec.splits:
        start = time.perf_counter()
        generate_digits(source, spec, split)
        seconds[split] = time.perf_counter() - start
    return seconds


def voxelize_meshes(count: int) -> dict[str, float]:
    """Seconds for OFF files to packed grids, surface and solid at 32³ and 64³, by as many processes as cores."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(write_torus(Path(folder) / f"{index}.off", random)) for index in range(count)]
        start = time.perf_counter()
        for _ in map(voxelize_file, paths):
            pass
        return {"all": time.perf_counter() - start}


def voxelize_file(path: str) -> dict[str, NDArray[np.uint8]]:
    return voxelize_packed(*read_mesh(path))


def write_torus(path: Path, random: np.random.Generator) -> Path:
    """A torus of random proportions, stretched and out of round: ALONG · AROUND vertices, twice the faces."""
    u, v = np.meshgrid(np.arange(ALONG) / ALONG, np.arange(AROUND) / AROUND, indexing="ij")
    u, v = 2 * np.pi * u, 2 * np.pi * v
    tube = random.uniform(0.2, 0.8) * (1 + 0.2 * np.cos(3 * u))
    shape = np.stack(((1 + tube * np.cos(v)) * np.cos(u), (1 + tube * np.cos(v)) * np.sin(u), tube * np.sin(v)), -1)
    vertices = shape.reshape(-1, 3) * random.uniform(0.5, 1.5, 3)
    corner = np.arange(ALONG * AROUND).reshape(ALONG, AROUND)
    along, around = np.roll(corner, -1, axis=0), np.roll(corner, -1, axis=1)
    opposite = np.roll(along, -1, axis=1)
    faces = np.concatenate((np.stack((corner, along, opposite), -1), np.stack((corner, opposite, around), -1)))
    lines = [" ".join(f"{value:.6f}" for value in row) for row in vertices.tolist()]
    lines += ["3 " + " ".join(map(str, row)) for row in faces.reshape(-1, 3).tolist()]
    path.write_text("\n".join((f"OFF\n{len(vertices)} {2 * corner.size} 0", *lines)) + "\n")
    return path


def load_cached(info: DatasetInfo) -> dict[str, float]:
    """Seconds to load each split of a set a second time and read all of its images, which may be mapped only."""
    seconds = {}
    for split in info.splits:
        if split not in info.optional:
            load_dataset(info.name, split)
            start = time.perf_counter()
            dataset = load_dataset(info.name, split)
            (dataset.images if isinstance(dataset, Dataset) else dataset.packed).clone()
            seconds[split] = time.perf_counter() - start
    return seconds
