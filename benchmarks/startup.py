"""How long `import ptn` takes beside `import torch`, and each model to construct. Prints JSON.

    python benchmarks/startup.py
"""

import json
import platform
import statistics
import subprocess
import sys
import time

REPEATS = 5


def import_seconds(statement: str) -> float:
    """Median wall time of a fresh interpreter that runs `statement`."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def construction_seconds(name: str) -> float:
    """Median wall time of `create_model(name)` at 96 pixels (32 for voxels), after a first one."""
    from ptn import create_model

    size = 32 if name == "cylindrical" else 96
    create_model(name, image_size=size)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        create_model(name, image_size=size)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    import torch

    from ptn import list_models

    torch_seconds = import_seconds("import torch")
    ptn_seconds = import_seconds("import ptn")
    report = {
        "machine": {"system": platform.platform(), "cpu_threads": torch.get_num_threads()},
        "torch": torch.__version__,
        "import_torch_seconds": round(torch_seconds, 3),
        "import_ptn_seconds": round(ptn_seconds, 3),
        "import_ptn_beyond_torch_seconds": round(ptn_seconds - torch_seconds, 3),
        "construction_seconds": {name: round(construction_seconds(name), 4) for name in list_models()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
