"""Record today's values: `PTN_DATA=... python tests/golden/record.py [NAME ...]` writes expected/NAME.json.

Run it only to accept a deliberate change of behaviour, with the names of the files that change.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import adapter
import cases
import comparison
import torch

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def record_api() -> dict[str, Any]:
    return {
        "python": list(sys.version_info[:2]),
        "names": adapter.public_names(),
        "parameters": adapter.public_signatures(annotations=False),
        "signatures": adapter.public_signatures(annotations=True),
        "datasets": adapter.dataset_facts(),
        "models": {name: adapter.model_options(name) for name in adapter.model_names()},
        "released": adapter.released_tags(),
    }


def _record_network(model: torch.nn.Module) -> dict[str, Any]:
    measured = {name: comparison.measure(tensor) for name, tensor in cases.network_tensors(model).items()}
    return {**cases.state_facts(model), **measured}


def record_released() -> dict[str, Any]:
    return {tag: _record_network(adapter.load_released(tag)) for tag in adapter.released_tags()}


def record_seeded() -> dict[str, Any]:
    return {name: _record_network(cases.seeded(name)) for name in adapter.model_names()}


def record_geometry() -> dict[str, Any]:
    return {name: [comparison.measure(tensor) for tensor in run()] for name, run in cases.geometry_cases().items()}


def record_data() -> dict[str, Any]:
    entries = {}
    for name, split, options in (*cases.QUICKSTART, *cases.REAL, *cases.SLOW):
        facts = adapter.load_split(name, split, count=cases.COUNT, **options)
        entries[cases.data_key(name, split, options)] = cases.data_facts(facts)
    return entries


def record_files() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        entries: dict[str, Any] = {"formats": cases.read_formats(root)}
        entries["examples"] = {name: comparison.measure(images) for name, images in cases.draw_examples().items()}
        for name, split, options in (*cases.FOLDERS, *cases.SLOW_FOLDERS):
            if not (root / name).exists():
                cases.write_folder(name, root / name)
            facts = adapter.load_folder(root / name, split, count=cases.COUNT, **options)
            entries[cases.data_key(name, split, options)] = cases.data_facts(facts)
    meshes = Path(os.environ["PTN_DATA"]) / "modelnet40/meshes"
    for mesh, size, occupancy in cases.MESHES:
        voxels = adapter.voxelize_mesh(meshes / f"{mesh}.off", size=size, occupancy=occupancy)
        entries[f"{mesh} {size} {occupancy}"] = {
            "filled": int(voxels.sum()),
            "sha256": comparison.sha256(voxels.byte()),
        }
    return entries


def record_report() -> dict[str, Any]:
    rows = adapter.report_rows(RESULTS)
    return {" | ".join(str(row[key]) for key in KEYS): row for row in rows}


KEYS = ("table", "row", "dataset", "model", "recipe")
RECORDERS = {
    "api": record_api,
    "released": record_released,
    "seeded": record_seeded,
    "geometry": record_geometry,
    "data": record_data,
    "files": record_files,
    "report": record_report,
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PTN_CACHE"] = cache  # empty, so that all sets are generated
        for name in names or RECORDERS:
            comparison.write(name, RECORDERS[name]())
            print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
