"""The order of the subpackages, the public names, and the weight of imports."""

import ast
import subprocess
import sys
from importlib.util import resolve_name
from pathlib import Path

import pytest

import ptn

PACKAGE = Path(ptn.__file__).parent
ORDER = [
    *("errors", "files", "config", "device", "geometry", "layers", "figures", "data", "models", "evaluation"),
    *("training", "demo", "cli"),
]
"""Each part imports only from those before it."""

OPTIONAL = [
    *("PIL", "h5py", "huggingface_hub", "matplotlib", "mlxtend", "onnx", "onnxruntime", "pandas", "pooch", "scipy"),
    *("sklearn", "starlette", "timm", "torchvision", "trimesh", "uvicorn"),
]


def imported_names(path):
    """The absolute dotted names that a module imports, also inside functions, but not for type checkers."""
    package = ".".join(["ptn", *path.relative_to(PACKAGE).parent.parts])
    body = ast.parse(path.read_text(encoding="utf-8")).body
    statements = [
        node for node in body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    for node in ast.walk(ast.Module(statements, [])):
        if isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_part_imports_only_from_those_before_it():
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue
        later = ("experiments.", *(f"ptn.{name}." for name in ORDER[ORDER.index(part) + 1 :]))
        assert [name for name in imported_names(path) if f"{name}.".startswith(later)] == [], path


def modules_loaded_by(statement, names):
    program = f"import sys\n{statement}\nprint([name for name in {names} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return ast.literal_eval(result.stdout)


def test_import_ptn_is_light():
    assert modules_loaded_by("import ptn", ["torch", "numpy", "rich", "typer", *OPTIONAL]) == []


def test_training_needs_no_optional_package():
    assert modules_loaded_by("import ptn.cli, ptn.device, ptn.training.progress", OPTIONAL) == []


def test_every_public_name_exists_and_is_in_all():
    assert sorted(ptn._MODULES) == sorted(ptn.__all__)
    assert [name for name in ptn.__all__ if not hasattr(ptn, name)] == []
    assert set(ptn.__all__) <= set(dir(ptn))
    with pytest.raises(AttributeError, match="no attribute 'poler_sample'"):
        _ = ptn.poler_sample
