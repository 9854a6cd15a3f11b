"""Options and helpers that several commands share."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..data.dataset import AnyDataset

_MODEL_HELP = (
    "A .safetensors or .onnx file, the folder of a run, a tag such as ptn_b.rotmnist, or user/name on the Hub."
)

WeightsArgument = Annotated[str, typer.Argument(help=_MODEL_HELP)]
SeveralWeightsArgument = Annotated[list[str], typer.Argument(help=f"{_MODEL_HELP} Several are an ensemble.")]
DatasetOption = Annotated[
    str | None, typer.Option(help="A data set of `ptn data list`; by default that of the training.")
]
FolderOption = Annotated[Path | None, typer.Option(help="A folder of images instead, one folder per class.")]
SplitOption = Annotated[str, typer.Option(help="A split of the data set, or several: train+valid+test.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
BatchOption = Annotated[int | None, typer.Option(min=1, help="Images per forward pass; chosen by default.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def printable(text: object) -> str:
    """Returns a text with control characters, such as those in names of files, as escape sequences."""
    letters = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))
    return "".join(letters)


def show(*values: object, sep: str = " ") -> None:
    """Prints texts that may have names of files or classes."""
    print(*map(printable, values), sep=sep, flush=True)


def print_json(value: Any) -> None:
    """Prints JSON to standard output."""
    print(json.dumps(value, indent=2))


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    lines: bool = False,
) -> None:
    """Prints a table; the columns in `right` are right-aligned."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, show_lines=lines)
    for heading in headings:
        table.add_column(escape(printable(heading)), justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*("\n".join(escape(printable(line)) for line in cell.split("\n")) for cell in row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def warn(message: str) -> None:
    """Prints one line to standard error."""
    print(f"ptn: {printable(' '.join(message.split()))}", file=sys.stderr)


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Context manager that yields `report(done, total)`, which shows a bar or lines on standard error."""
    title = printable(title)
    if not sys.stderr.isatty():
        print(title, file=sys.stderr)
        tenths = 0

        def report(done: int, total: int) -> None:
            nonlocal tenths
            if 10 * done // total > tenths:
                tenths = 10 * done // total
                print(f"{title}: {done} of {total}", file=sys.stderr)

        yield report
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as display:
        task = display.add_task(title, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)


def load_split(name: str, split: str, title: str = "loading", **options: Any) -> "AnyDataset":
    """Returns a split of a data set, with progress."""
    from ..data import load_dataset
    from ..data.catalog import dataset_info

    with show_progress(f"{title} {name} {split}") as report:
        if "progress" in dataset_info(name).options:
            options["progress"] = report
        return load_dataset(name, split, **options)


def load_data(
    model: Any, weights: str, dataset: str | None, folder: Path | None, split: str, *, labelled: bool = True
) -> "AnyDataset":
    """Returns the requested data, by default that of the training; `labelled`: with the classes of the model."""
    from ..evaluation import class_names, match_classes

    if folder is not None and dataset is not None:
        raise InputError("use either --dataset or --folder")
    trained_on = model.metadata.get("dataset")
    options = model.metadata.get("dataset_options") or {}
    name = "folder" if folder is not None else dataset or trained_on
    if name is None:
        raise InputError(f"{weights} does not name its data set: use --dataset or --folder")
    if name == "folder":
        data = _load_parts(model, weights, folder or options.get("root"), options, split)
    else:
        data = load_split(name, split, **(options if name == trained_on else {}))
    if not labelled:
        return data
    if model.classes is not None:
        return match_classes(data, model.classes)
    if len(class_names(model)) != len(data.classes):
        counts = f"{len(class_names(model))} classes and {data.name} {len(data.classes)}"
        raise InputError(f"{weights} has {counts}: use images of the same classes")
    return data


def _load_parts(
    model: Any, weights: str, root: Path | str | None, options: dict[str, Any], split: str
) -> "AnyDataset":
    """Returns one or several splits of a folder of images, with the fractions of the training."""
    from ..data import load_folder
    from ..data.dataset import concatenate, split_names

    if root is None:
        raise InputError(f"{weights} was trained on a folder of images: use --folder")
    size, channels = image_shape(model, weights)
    same = {key: options[key] for key in ("valid_fraction", "test_fraction", "seed") if key in options}
    fit = model.metadata.get("fit", "resize")
    shape: Any = {"image_size": size, "channels": channels, "fit": fit}
    return concatenate([load_folder(root, part, **shape, **same) for part in split_names(split)])


def image_shape(model: Any, weights: str) -> tuple[tuple[int, int], Literal[1, 3]]:
    """Returns size and channels of the images that a model takes; raises InputError for other inputs."""
    channels, *size = model.input_shape
    if len(size) != 2 or channels not in (1, 3):
        raise InputError(f"{weights} takes inputs {tuple(model.input_shape)}, not images")
    return (size[0], size[1]), 3 if channels == 3 else 1
