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


def import_seconds(*statements: str) -> list[float]:
    """Median wall time of a fresh interpreter that runs each statement, taken in turns."""
    times: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(REPEATS):
        for statement in statements:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            times[statement].append(time.perf_counter() - start)
    return [statistics.median(values) for values in times.values()]


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
    from ptn.training.records import describe_device, git_commit

    torch_seconds, ptn_seconds = import_seconds("import torch", "import ptn")
    report = {
        "machine": {"system": platform.system(), "cpu": describe_device(torch.device("cpu"))},
        "python": platform.python_version(),
        "git": git_commit(),
        "torch": torch.__version__,
        "import_torch_seconds": round(torch_seconds, 3),
        "import_ptn_seconds": round(ptn_seconds, 3),
        "import_ptn_beyond_torch_seconds": round(ptn_seconds - torch_seconds, 3),
        "construction_seconds": {name: round(construction_seconds(name), 4) for name in list_models()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
