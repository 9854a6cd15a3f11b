"""The house rules: a folder imports only from those above it, and `import ptn` and the repository are light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ptn

PACKAGE = Path(ptn.__file__).parent
ROOMS = [
    "errors",
    "files",
    "bundled",
    "geometry",
    "layers",
    "models",
    "data",
    "evaluation",
    "training",
    "reporting",
    "bench",
    "demo",
    "cli",
]
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(path):
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path):
    """The top-level parts of ptn that a module imports from, wherever in the file."""
    package = ["ptn", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = base + (node.module.split(".") if node.module else [])
            names = [target] if len(target) > 1 else [[*target, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        yield from (name[1] for name in names if name[0] == "ptn" and len(name) > 1)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_imports_only_from_those_above_it(path):
    room = room_of(path)
    if room in ("__init__", "__main__"):
        pytest.skip("the front door opens on every room")
    assert room in ROOMS, f"{room} is not in the house: say where it stands"
    below = {other for other in imported_rooms(path) if other in ROOMS[ROOMS.index(room) + 1 :]}
    assert not below, f"{path.name} in {room} imports from {below}, which stand below it"


def test_the_rule_sees_relative_and_late_imports():
    path = PACKAGE / "cli" / "quickstart.py"
    assert {"data", "files", "reporting"} <= set(imported_rooms(path))


def test_importing_ptn_imports_nothing_heavy():
    heavy = [
        "PIL",
        "starlette",
        "h5py",
        "huggingface_hub",
        "matplotlib",
        "mlxtend",
        "onnx",
        "onnxruntime",
        "pandas",
        "pooch",
        "rich",
        "scipy",
        "sklearn",
        "timm",
        "torchvision",
        "trimesh",
        "typer",
        "uvicorn",
    ]
    program = f"import sys, ptn; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_exists():
    assert [name for name in ptn.__all__ if not hasattr(ptn, name)] == []


def test_the_training_path_needs_nothing_optional():
    optional = [
        "PIL",
        "starlette",
        "h5py",
        "huggingface_hub",
        "lightning_fabric",
        "matplotlib",
        "mlxtend",
        "onnx",
        "onnxruntime",
        "pandas",
        "pooch",
        "scipy",
        "tensorboard",
        "timm",
        "torchvision",
        "trimesh",
        "uvicorn",
    ]
    program = (
        "import sys, ptn.cli, ptn.training.distributed, ptn.training.reporters, ptn.training.sums;"
        f"print([name for name in {optional} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_repository_stays_light():
    root = Path(__file__).parents[1]
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=False, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    files = [root / name for name in listed.stdout.split("\0") if name]
    assert sum(file.stat().st_size for file in files if file.exists()) < 10_000_000
    weights = [file for file in files if file.suffix == ".safetensors"]
    assert sum(file.stat().st_size for file in weights) < 8_000_000
