"""`ptn predict`: what trained weights say about image files, or about meshes."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..evaluation import FileKind, Prediction, Weights


OVERLAY = ".overlay.png"


def register(app: typer.Typer) -> None:
    app.command("predict")(predict_images)


def predict_images(
    weights: Annotated[
        str,
        typer.Argument(
            help="A .safetensors or .onnx file, the folder of a run, or a pretrained tag such as ptn_b.rotmnist.",
            show_default=False,
        ),
    ],
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Image files, of any size, or folders of them; for a network of voxels, meshes: .off, .ply, .stl "
            "or .obj, z up.",
            show_default=False,
        ),
    ],
    overlay: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a picture of where the network looked in each image, NAME.overlay.png: the redder a "
            "place, the more it draws the origin to it; the green cross is the origin; the answer stands below.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to name for each image.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of lines.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
) -> None:
    """Print the class and probability of each image or mesh: a line with tabs, or with --top several of them.

    Of a folder all images are taken, those in folders inside it too, in order of name; what is no image by its
    suffix is named on standard error. A file that cannot be read is a line there; the others are predicted, and the
    exit status is 2.
    """
    from ..device import choose_device, default_batch
    from ..evaluation import file_kind, is_strange, open_weights, predict_files
    from .progress import show_progress

    place = choose_device(device)
    network = open_weights(weights)
    found = _find_files(images, file_kind(network.model), overlay)
    files = [path for path, _ in found]
    targets = {} if overlay is None else _targets(found, overlay)
    step = default_batch(network.model.input_shape)
    rows: list[dict[str, Any]] = []
    strange: list[Path] = []
    explanation = ""
    # lines as they come are progress enough
    with show_progress("predicting") if as_json else nullcontext() as report:
        for start in range(0, len(files), step):
            chosen = files[start : start + step]
            predictions, faults = predict_files(
                network.model,
                network.class_names,
                chosen,
                batch=step,
                top=top,
                fit=network.fit,
                occupancy=network.dataset_options.get("occupancy"),
                device=place,
            )
            for prediction in predictions:
                if is_strange(network.model, prediction.image):
                    strange.append(prediction.path)
                target = targets.get(prediction.path)
                if target is not None:
                    _write_overlay(prediction, target)
                    explanation = explanation or _explain_overlay(prediction, network)
                rows.append(_row(prediction, target))
                if not as_json:
                    answers = (f"{name}\t{100 * probability:.1f}%" for name, probability in prediction.top)
                    print(prediction.path, *answers, sep="\t", flush=True)
            for fault in faults:
                rows.append({"path": str(fault.path), "error": fault.reason})
                print(f"ptn: {' '.join(fault.reason.split())}", file=sys.stderr)
            if report is not None:
                report(start + len(chosen), len(files))
    if as_json:
        print(json.dumps(rows, indent=2))
    if strange:
        named = f"{strange[0]} is" if len(strange) == 1 else f"{strange[0]} and {len(strange) - 1} more are"
        print(
            f"ptn: {named} much brighter or darker than the images that the network learned from: do not rely on "
            "what it says; perhaps they have to be inverted",
            file=sys.stderr,
        )
    if explanation:
        print(f"ptn: overlays are in {overlay}: {explanation}", file=sys.stderr)
    if any("error" in row for row in rows):
        raise typer.Exit(2)


def _find_files(given: list[Path], kind: "FileKind", overlay: Path | None) -> list[tuple[Path, Path]]:
    """The files to look at, and in which folder each lies inside the one that was given.

    What a folder holds beside them is said; overlays that were put into it before are not looked at.
    """
    from ..data.folder import list_files

    found: list[tuple[Path, Path]] = []
    for root in given:
        if not root.is_dir():
            found.append((root, Path()))
            continue
        files = list_files(root)
        if overlay is not None and root.resolve() in overlay.resolve().parents:
            files = [path for path in files if overlay.resolve() not in path.resolve().parents]
        elif overlay is not None and root.resolve() == overlay.resolve():
            files = [path for path in files if not path.name.endswith(OVERLAY)]
        chosen = [path for path in files if path.suffix.lower() in kind.suffixes]
        if not chosen:
            raise InputError(
                f"{root} has no {kind.name} in it: name a folder that has ({', '.join(kind.suffixes)})"
            )
        found += [(path, path.parent.relative_to(root)) for path in chosen]
        for path in files:
            if path.suffix.lower() not in kind.suffixes:
                print(f"ptn: skipped {path}: not {kind.article} {kind.name}", file=sys.stderr)
    return found


def _targets(found: list[tuple[Path, Path]], folder: Path) -> dict[Path, Path]:
    """Where the overlay of each image goes; two that would go to one place, or over an image, are an error."""
    inputs = {path.resolve() for path, _ in found}
    taken: dict[Path, Path] = {}
    for path, inside in found:
        target = folder / inside / f"{path.stem}{OVERLAY}"
        if target in taken:
            raise InputError(
                f"the overlays of {taken[target]} and {path} would both be {target}: predict them apart"
            )
        if target.resolve() in inputs:
            raise InputError(f"{target} is one of the images: choose another folder for the overlays")
        taken[target] = path
    return {path: target for target, path in taken.items()}


def _explain_overlay(prediction: "Prediction", network: "Weights") -> str:
    """What is to be seen in an overlay, or why there is little."""
    from ..models import OnnxModel

    if prediction.heatmap is not None:
        return "the green cross is the origin, and the redder a place, the more it draws the origin to it"
    if prediction.origin is not None:
        return "the green cross is the origin, which this network does not choose by a heatmap"
    if isinstance(network.model, OnnxModel):
        return (
            "no heatmap and no origin, which an ONNX file does not give: take the .safetensors file it is made from"
        )
    return "no heatmap and no origin, for this network has none"


def _write_overlay(prediction: "Prediction", target: Path) -> None:
    from ..evaluation import overlay
    from ..files import atomic_path

    caption = f"{prediction.class_name} ({100 * prediction.probability:.1f}%)"
    picture = overlay(prediction.image, prediction.origin, prediction.heatmap, caption=caption)
    with atomic_path(target) as temporary:
        picture.save(temporary, format="PNG")


def _row(prediction: "Prediction", target: Path | None) -> dict[str, Any]:
    return {
        "path": str(prediction.path),
        "class": prediction.class_name,
        "probability": prediction.probability,
        "top": [{"class": name, "probability": probability} for name, probability in prediction.top],
        "origin": prediction.origin,
        "overlay": None if target is None else str(target),
    }
