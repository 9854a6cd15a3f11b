"""`ptn audit`: how a classifier answers when images turn, grow and move."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..errors import InputError, check_choice
from .inputs import DataOption, SplitOption, load_for, picture_shape

if TYPE_CHECKING:
    from torch import Tensor

    from ..data import Dataset, VoxelDataset
    from ..evaluation import Audit, Weights
    from ..evaluation.consistency import Mask


def register(app: typer.Typer) -> None:
    app.command("audit")(audit_classifier)


def audit_classifier(
    weights: Annotated[
        str,
        typer.Argument(
            help="A .safetensors or .onnx file, the folder of a run, or a pretrained tag such as ptn_b.rotmnist.",
            show_default=False,
        ),
    ],
    data: DataOption = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder of images instead, one folder a class, or without labels.", show_default=False),
    ] = None,
    split: SplitOption = "test",
    count: Annotated[int, typer.Option(min=1, help="At most so many images, drawn at random.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Which images are drawn.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for audit.json, audit.md and audit.png.")
    ] = Path("audit"),
    step: Annotated[float, typer.Option(help="Degrees between the angles.", min=1)] = 10.0,
    layer: Annotated[
        list[str] | None,
        typer.Option(help="An inner layer to look at; again for more. By default its blocks.", show_default=False),
    ] = None,
    mask: Annotated[str, typer.Option(help="circle: look at turned images through a disc; or none.")] = "circle",
    as_json: Annotated[bool, typer.Option("--json", help="Print an object instead of a table.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images at a time; by default what suits.", show_default=False)
    ] = None,
) -> None:
    """Measure how many answers stay the same, and right, when images turn, grow and move; write a report.

    What interpolation does to images is measured beside, and so is how equivariant the inner layers are. A folder
    of images without class folders has no labels: consistency only.
    """
    if importlib.util.find_spec("matplotlib") is None:  # said now, rather than after a minute of work
        raise InputError("the picture of an audit needs matplotlib: pip install 'ptn[figures]'")
    from ..device import choose_device
    from ..evaluation import audit, open_weights
    from ..evaluation.audit import MASKS
    from ..files import make_folder
    from ..reporting.audit import write_audit
    from .progress import show_progress

    check_choice("mask", mask, MASKS)
    place = choose_device(device)
    network = open_weights(weights)
    images, labels, name = _load(network, data, folder, split, count, seed)
    make_folder(output)
    angles = [step * k for k in range(int(-(-360 // step)))]
    with show_progress(f"auditing {network.name} on {len(images):,} images") as report:
        found = audit(
            network.model,
            images,
            labels,
            angles=angles,
            layers=layer,
            mask=cast("Mask", mask),
            batch=batch,
            device=place,
            progress=report,
        )
    found = replace(found, model=network.name, data=name)
    written = write_audit(found, output)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found, written)


def _load(
    network: "Weights", data: str | None, folder: Path | None, split: str, count: int, seed: int
) -> "tuple[Tensor, Tensor | None, str]":
    """Images, their labels if they have any, and where they are from."""
    from ..data.dataset import VoxelDataset, unpack_voxels
    from ..data.folder import list_flat, read_flat
    from ..evaluation.classify import match_classes

    if folder is not None and data is None and (files := list_flat(folder)):
        chosen = _draw(len(files), count, seed)
        size, channels = picture_shape(network)
        images = read_flat([files[index] for index in chosen], size, channels, network.fit)
        return images, None, _described(folder.resolve().name, len(images), len(files))
    dataset = load_for(network, data, folder, split)
    if network.classes is not None:
        dataset = match_classes(dataset, network.classes)
    chosen = _draw(len(dataset), count, seed)
    _check_classes(network, dataset, chosen)
    if isinstance(dataset, VoxelDataset):
        images = unpack_voxels(dataset.packed[chosen], dataset.size)
    else:
        images = dataset.images[chosen]
    return images, dataset.labels[chosen], _described(f"{dataset.name} {dataset.split}", len(chosen), len(dataset))


def _check_classes(network: "Weights", dataset: "Dataset | VoxelDataset", chosen: list[int]) -> None:
    """Refuse classes that the network cannot be right about, where it does not name its own."""
    import torch

    from ..data.dataset import subset
    from ..evaluation import scores

    if network.classes is not None or not chosen:
        return
    outputs = scores(network.model, subset(dataset, torch.tensor(chosen[:1]))).shape[1]
    if outputs != len(dataset.classes):
        raise InputError(
            f"{network.name} gives scores of {outputs} classes and {dataset.name} has {len(dataset.classes)}: "
            "give it images of its own classes, or a folder without class folders for consistency alone"
        )


def _draw(total: int, count: int, seed: int) -> list[int]:
    """At most `count` of `total` indices, in order."""
    import torch

    drawn = torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count]
    return sorted(drawn.tolist())


def _described(name: str, count: int, total: int) -> str:
    return name if count == total else f"{name} (of {total:,})"


def _print(found: "Audit", written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..reporting.audit import describe, summary_columns

    columns = summary_columns(found)
    table = Table(title=describe(found))
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "against" else "right")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for path in written:
        print(path)
