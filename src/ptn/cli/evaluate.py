"""`ptn evaluate`, `ptn predict` and `ptn audit`."""

from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, optional_module
from ..files import atomic_path, check_targets, make_folder
from .options import (
    BatchOption,
    DatasetOption,
    DeviceOption,
    FolderOption,
    JsonOption,
    SeveralWeightsArgument,
    SplitOption,
    WeightsArgument,
    image_shape,
    load_data,
    print_json,
    print_table,
    show,
    show_progress,
    warn,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ..evaluation import Evaluation, Prediction

_MAX_CLASSES = 16  # in a confusion matrix on a terminal
_MAX_PAIRS = 20
_OVERLAY_SUFFIX = ".overlay.png"


def evaluate(
    weights: SeveralWeightsArgument,
    dataset: DatasetOption = None,
    folder: FolderOption = None,
    split: SplitOption = "test",
    rotations: Annotated[int, typer.Option(min=1, help="Average over this many rotations (TTA).")] = 1,
    origins: Annotated[int, typer.Option(help="5: average over the origin and its neighbors (TTA).")] = 1,
    per_class: Annotated[bool, typer.Option("--per-class", help="Print the accuracy of each class.")] = False,
    confusion: Annotated[bool, typer.Option("--confusion", help="Print the confusion matrix.")] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    batch: BatchOption = None,
) -> None:
    """Print the test error of a model, or of an ensemble of several models.

    A folder without a folder for the split uses the same share of its images as in training.
    """
    import torch

    from .. import evaluation
    from ..device import choose_device
    from ..models import PolarNetwork, load_model

    place = choose_device(device)
    models = [load_model(name) for name in weights]
    for model in models:
        evaluation.check_tta(model, rotations=rotations, origins=origins)
    if len({(model.input_shape, evaluation.class_names(model)) for model in models}) > 1:
        raise InputError("the models differ in image size, channels or classes: they cannot be an ensemble")
    data = load_data(models[0], weights[0], dataset, folder, split)
    members = []
    for name, model in zip(weights, models, strict=True):
        with show_progress(f"evaluating {name} on {data.name} {data.split}") as report:
            options: dict[str, Any] = {"batch": batch, "device": place, "progress": report}
            members.append(evaluation.scores(model, data, rotations=rotations, origins=origins, **options))
    result = evaluation.evaluate(torch.stack(members).mean(dim=0), data)
    facts: dict[str, Any] = {
        "weights": list(weights),
        "models": [model.config.name for model in models],
        "dataset": data.name,
        "split": data.split,
        "source": data.meta.get("source"),
        "sha256": data.meta.get("sha256"),
        "n": result.n,
        "error": result.error,
        "accuracy": result.accuracy,
        "class_accuracy": result.class_accuracy,
        "rotations": rotations,
        "origins": origins,
        "device": str(place),
    }
    if len(models) == 1 and isinstance(models[0], PolarNetwork) and "center" in data.meta:
        median, p90 = evaluation.origin_error_px(models[0], data)
        facts["origin_error_px"] = {"median": median, "p90": p90}
    if as_json:
        if per_class:
            facts["per_class"] = dict(zip(data.classes, result.per_class, strict=True))
        if confusion:
            facts["confusion"] = result.confusion.tolist()
        print_json(facts)
        return
    _print_summary(facts)
    if per_class:
        _print_per_class(result, data.classes)
    if confusion:
        _print_confusion(result, data.classes)


def _print_summary(facts: dict[str, Any]) -> None:
    from ..evaluation import describe_tta

    source = f" ({facts['source']})" if facts["source"] else ""
    tta = describe_tta(facts["rotations"], facts["origins"])
    ensemble = "ensemble of " if len(facts["weights"]) > 1 else ""
    show(f"{ensemble}{' + '.join(facts['weights'])} on {facts['dataset']} {facts['split']}{source}{tta}")
    print(f"error           {facts['error']:.2f}% of {facts['n']:,}")
    print(f"accuracy        {facts['accuracy']:.2f}%")
    print(f"class accuracy  {facts['class_accuracy']:.2f}%")
    if "origin_error_px" in facts:
        origin = facts["origin_error_px"]
        print(f"origin error    {origin['median']:.2f} px (median), {origin['p90']:.2f} px (90th percentile)")


def _print_per_class(result: "Evaluation", classes: tuple[str, ...]) -> None:
    counts = result.confusion.sum(dim=1).tolist()
    rows = [
        (name, f"{count:,}", "–" if accuracy is None else f"{accuracy:.2f}%")
        for name, count, accuracy in zip(classes, counts, result.per_class, strict=True)
    ]
    print_table("Accuracy by class", ("class", "samples", "accuracy"), rows, right=("samples", "accuracy"))


def _print_confusion(result: "Evaluation", classes: tuple[str, ...]) -> None:
    """Prints the confusion matrix, or for many classes the most frequent errors."""
    matrix = result.confusion.tolist()
    if len(classes) <= _MAX_CLASSES:
        rows = [(name, *(f"{n:,}" if n else "·" for n in row)) for name, row in zip(classes, matrix, strict=True)]
        print_table("Confusion matrix (true × predicted)", ("true", *classes), rows, right=classes)
        return
    pairs = [
        (count, true, predicted)
        for true, row in zip(classes, matrix, strict=True)
        for predicted, count in zip(classes, row, strict=True)
        if count and true != predicted
    ]
    pairs.sort(key=lambda pair: -pair[0])
    frequent = [(true, predicted, f"{count:,}") for count, true, predicted in pairs[:_MAX_PAIRS]]
    headings = ("true", "prediction", "samples")
    print_table("Most frequent errors (--json prints the full matrix)", headings, frequent, right=("samples",))


def predict(
    weights: WeightsArgument,
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Image files of any size, or folders of them; for models of voxels, meshes (.off, .ply, .stl, "
            ".obj) with z up."
        ),
    ],
    overlay: Annotated[
        Path | None,
        typer.Option(
            help="Folder for NAME.overlay.png: the image with heatmap (red), origin (cross) and prediction."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print.")] = 1,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Print class and probability of each image or mesh, separated by tabs.

    Folders are searched recursively. Files that cannot be read are reported on standard error, and the exit status
    is 2.
    """
    from ..device import choose_device
    from ..evaluation import Unreadable, predict_each
    from ..models import load_model

    place = choose_device(device)
    model = load_model(weights)
    files = _find_files(images, model)
    targets: dict[Path, Path] = {}
    if overlay is not None:
        targets = {path: overlay / inside / f"{path.stem}{_OVERLAY_SUFFIX}" for path, inside in files.items()}
        check_targets(files, targets.values())
    rows: list[dict[str, Any]] = []
    with show_progress("predicting") if as_json else nullcontext() as report:
        for result in predict_each(model, list(files), top=top, device=place):
            if isinstance(result, Unreadable):
                rows.append({"path": str(result.path), "error": result.reason})
                warn(result.reason)
            else:
                rows.append(_predicted(result, targets, as_json))
            if report is not None:
                report(len(rows), len(files))
    if as_json:
        print_json(rows)
    if any("error" in row for row in rows):
        raise typer.Exit(2)


def _predicted(prediction: "Prediction", targets: dict[Path, Path], as_json: bool) -> dict[str, Any]:
    """Writes the overlay and prints the line of a prediction; returns its JSON object."""
    from ..figures import overlay

    assert prediction.path is not None
    target = targets.get(prediction.path)
    if target is not None:
        caption = f"{prediction.class_name} ({100 * prediction.probability:.1f}%)"
        picture = overlay(prediction.image, prediction.origin, prediction.heatmap, caption=caption)
        with atomic_path(target) as temporary:
            picture.save(temporary, format="PNG")
    if not as_json:
        cells = [cell for name, probability in prediction.top for cell in (name, f"{100 * probability:.1f}%")]
        show(prediction.path, *cells, sep="\t")
    return {
        "path": str(prediction.path),
        "class": prediction.class_name,
        "probability": prediction.probability,
        "top": [{"class": name, "probability": probability} for name, probability in prediction.top],
        "origin": prediction.origin,
        "overlay": None if target is None else str(target),
    }


def _find_files(roots: list[Path], model: Any) -> dict[Path, Path]:
    """Returns the files to read, each with its folder relative to its root; without overlays found in folders."""
    from ..data.folder import list_files
    from ..data.images import IMAGE_SUFFIXES
    from ..data.voxelize import MESH_SUFFIXES

    kind, suffixes = ("image", IMAGE_SUFFIXES) if len(model.input_shape) == 3 else ("mesh", MESH_SUFFIXES)
    folders: dict[Path, Path] = {}
    for root in roots:
        if not root.is_dir():
            folders[root] = Path()
            continue
        files = [path for path in list_files(root) if path.suffix.lower() in suffixes]
        readable = [path for path in files if not path.name.endswith(_OVERLAY_SUFFIX)]
        if not readable:
            raise InputError(f"{root} contains no {kind} ({', '.join(suffixes)})")
        folders |= {path: path.parent.relative_to(root) for path in readable}
    return folders


def audit(
    weights: WeightsArgument,
    dataset: DatasetOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="A folder of images instead: one folder per class, or unlabeled.")
    ] = None,
    split: SplitOption = "test",
    count: Annotated[int, typer.Option(min=1, help="Maximal number of images, drawn at random.")] = 1000,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for audit.json, audit.md and audit.png.")
    ] = Path("audit"),
    step: Annotated[float, typer.Option(min=1, help="Degrees between the angles.")] = 10.0,
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
    from ..models import load_model

    place = choose_device(device)
    model = load_model(weights)
    images, labels, name = _load_audited(model, weights, dataset, folder, split, count)
    make_folder(output)
    with show_progress(f"auditing {weights} on {len(images):,} images") as report:
        result = evaluation.audit(
            model,
            images,
            labels,
            angles=[step * k for k in range(int(-(-360 // step)))],
            batch=batch,
            device=place,
            progress=report,
        )
    result = replace(result, model=weights, data=name)
    paths = evaluation.write_audit(result, output)
    if as_json:
        print_json(asdict(result))
        return
    rows = audit_summary(result)
    headings = list(rows[0])
    print_table(describe_audit(result), headings, [list(row.values()) for row in rows], right=headings[1:])
    show(*paths, sep="\n")


def _load_audited(
    model: Any, weights: str, dataset: str | None, folder: Path | None, split: str, count: int
) -> "tuple[Tensor, Tensor | None, str]":
    """Returns at most `count` images, labels if there are any, and the name of the source."""
    import torch

    from ..data.dataset import subset
    from ..data.folder import list_flat, read_flat

    def draw(total: int) -> "Tensor":
        return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:count].sort().values

    if folder is not None and dataset is None and (files := list_flat(folder)):
        size, channels = image_shape(model, weights)
        fit = model.metadata.get("fit", "resize")
        images = read_flat([files[index] for index in draw(len(files)).tolist()], size, channels, fit)
        labels, name, total = None, folder.resolve().name, len(files)
    else:
        data = load_data(model, weights, dataset, folder, split)
        chosen = subset(data, draw(len(data)))
        images, labels, name, total = chosen.images, chosen.labels, f"{data.name} {data.split}", len(data)
    return images, labels, name if len(images) == total else f"{name} (of {total:,})"
