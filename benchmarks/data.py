"""How long data takes: making SIM2MNIST, voxelising meshes, loading what is cached. Prints JSON.

    PTN_DATA=… python benchmarks/data.py

What needs files that no data folder has is skipped, and the report says which. Sets that are not cached yet are
made and kept, as any use of them would; that is not timed.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptn.data import Dataset, DatasetInfo, list_datasets, load_dataset
from ptn.data.digits import SPECS, make_digits, pool
from ptn.data.formats import read_mesh
from ptn.data.mnist import load_mnist
from ptn.data.store import MissingDataError
from ptn.data.voxelize import each_mesh, voxelize_packed

MESHES = 200
# Quadrilaterals along and around a torus, two faces each.
ALONG, AROUND = 60, 30


def main() -> None:
    report = {
        "machine": {
            "system": platform.platform(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "cpu_threads": torch.get_num_threads(),
        },
        "torch": torch.__version__,
        "make_sim2mnist": unless_missing(make_sim2mnist),
        "voxelize": voxelize_meshes(),
        "load_cached": {info.name: unless_missing(partial(load_cached, info)) for info in list_datasets()},
    }
    print(json.dumps(report, indent=2))


def unless_missing(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `measure` returns, or that it was skipped because files are missing, and which."""
    try:
        return measure()
    except MissingDataError as error:
        return {"skipped": str(error)}


def make_sim2mnist() -> dict[str, Any]:
    """Seconds for all splits of SIM2MNIST, from MNIST in memory to images in memory, without the cache."""
    source, spec = pool(load_mnist()), SPECS["sim2mnist"]
    seconds = {}
    for split in spec.splits:
        start = time.perf_counter()
        make_digits(source, spec, split)
        seconds[split] = round(time.perf_counter() - start, 2)
    return {"images": sum(spec.splits.values()), "seconds": round(sum(seconds.values()), 2), "by_split": seconds}


def voxelize_meshes() -> dict[str, Any]:
    """Seconds for OFF files to packed grids, surface and solid at 32³ and 64³, by as many processes as cores."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(write_torus(Path(folder) / f"{index}.off", random)) for index in range(MESHES)]
        start = time.perf_counter()
        for _ in each_mesh(voxelize_file, paths):
            pass
        seconds = time.perf_counter() - start
    return {
        "meshes": MESHES,
        "faces_each": 2 * ALONG * AROUND,
        "seconds": round(seconds, 2),
        "seconds_per_1000": round(seconds * 1000 / MESHES, 1),
    }


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


def load_cached(info: DatasetInfo) -> dict[str, Any]:
    """Seconds to load each split of a set a second time and read all of its images, which may be mapped only."""
    seconds = {}
    for split in info.splits:
        if split not in info.optional:
            load_dataset(info.name, split)
            start = time.perf_counter()
            dataset = load_dataset(info.name, split)
            (dataset.images if isinstance(dataset, Dataset) else dataset.packed).clone()
            seconds[split] = round(time.perf_counter() - start, 3)
    return {"seconds": round(sum(seconds.values()), 3), "by_split": seconds}


if __name__ == "__main__":
    main()
