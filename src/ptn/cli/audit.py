"""`ptn audit`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, optional_module
from .options import (
    BatchOption,
    DatasetOption,
    DeviceOption,
    JsonOption,
    SplitOption,
    WeightsArgument,
    image_shape,
    load_data,
    print_json,
    print_table,
    show_progress,
)

if TYPE_CHECKING:
    from torch import Tensor


def audit(
    weights: WeightsArgument,
    dataset: DatasetOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="A folder of images instead: one folder per class, or unlabeled.")
    ] = None,
    split: SplitOption = "test",
    count: Annotated[int, typer.Option(min=1, help="Maximal number of images, drawn at random.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for audit.json, audit.md and audit.png.")
    ] = Path("audit"),
    step: Annotated[float, typer.Option(min=1, help="Degrees between the angles.")] = 10.0,
    layer: Annotated[
        list[str] | None, typer.Option(help="An inner layer to measure; by default the blocks. Repeatable.")
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    batch: BatchOption = None,
) -> None:
    """Measure consistency and accuracy of a classifier under rotations, scales and shifts, and write a report.

    The effect of interpolation and the equivariance errors of inner layers are measured, too. Images in a folder
    without class folders have no labels: consistency only.
    """
    optional_module("matplotlib", "ptn[figures]")
    from .. import evaluation
    from ..device import choose_device
    from ..evaluation.audit import audit_summary, describe_audit
    from ..files import make_folder
    from ..models import load_model

    place = choose_device(device)
    model = load_model(weights)
    images, labels, name = _load(model, weights, dataset, folder, split, count, seed)
    make_folder(output)
    with show_progress(f"auditing {weights} on {len(images):,} images") as report:
        result = evaluation.audit(
            model,
            images,
            labels,
            angles=[step * k for k in range(int(-(-360 // step)))],
            layers=layer,
            batch=batch,
            device=place,
            progress=report,
        )
    result = replace(result, model=weights, data=name)
    paths = evaluation.write_audit(result, output)
    if as_json:
        print_json(result.to_dict())
        return
    rows = audit_summary(result)
    headings = list(rows[0])
    print_table(describe_audit(result), headings, [list(row.values()) for row in rows], right=headings[1:])
    print(*paths, sep="\n")


def _load(
    model: Any, weights: str, dataset: str | None, folder: Path | None, split: str, count: int, seed: int
) -> "tuple[Tensor, Tensor | None, str]":
    """Returns images, labels if there are any, and the name of the source."""
    import torch

    from ..data.dataset import subset
    from ..data.folder import list_flat, read_flat
    from ..evaluation import class_names, match_classes

    def draw(total: int) -> "Tensor":
        return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values

    if folder is not None and dataset is None and (files := list_flat(folder)):
        size, channels = image_shape(model, weights)
        fit = model.metadata.get("fit", "resize")
        images = read_flat([files[index] for index in draw(len(files)).tolist()], size, channels, fit)
        labels, name, total = None, folder.resolve().name, len(files)
    else:
        data = load_data(model, weights, dataset, folder, split)
        if model.classes is not None:
            data = match_classes(data, model.classes)
        elif (outputs := len(class_names(model))) != len(data.classes):
            raise InputError(
                f"{weights} has {outputs} classes and {data.name} {len(data.classes)}: use images of the same "
                "classes, or a folder of images without class folders"
            )
        chosen = subset(data, draw(len(data)))
        images, labels, name, total = chosen.images, chosen.labels, f"{data.name} {data.split}", len(data)
    return images, labels, name if len(images) == total else f"{name} (of {total:,})"
