"""How long an audit of PTN-B takes: 1,000 images of 64 × 64 over 36 angles, alone and with all else. Prints JSON.

python benchmarks/audit.py
"""

import json
import os
import platform
import time

import torch

import ptn
from ptn.models.photograph import photograph_patches
from ptn.training.records import describe_device, git_commit

IMAGES = 1000
SIZE = 64


def main() -> None:
    model = ptn.create_model("ptn_b", image_size=SIZE)
    images = photograph_patches((1, SIZE, SIZE), IMAGES)
    labels = torch.arange(IMAGES) % 10
    ptn.audit(model, images[:64], labels[:64], angles=(0, 10))  # the first run of anything is slower
    rows = []
    for what, settings in (
        ("36 angles", {"scales": (), "shifts_px": (), "layers": ()}),
        ("36 angles, scales, shifts and layers", {}),
    ):
        load = os.getloadavg()[0]
        wall, cpu = time.perf_counter(), time.process_time()
        ptn.audit(model, images, labels, **settings)  # type: ignore[arg-type]
        rows.append(
            {
                "what": what,
                "seconds": round(time.perf_counter() - wall, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "load_before": round(load, 2),
            }
        )
    report = {
        "machine": {"system": platform.system(), "cpu": describe_device(torch.device("cpu"))},
        "git": git_commit(),
        "torch": torch.__version__,
        "model": "ptn_b",
        "images": [IMAGES, 1, SIZE, SIZE],
        "rows": rows,
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
