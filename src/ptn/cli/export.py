"""`ptn export`: trained weights as a file that runs without this package."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, check_choice
from .inputs import FolderOption, load_for

if TYPE_CHECKING:
    from torch import Tensor

    from ..evaluation import Weights

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}


def register(app: typer.Typer) -> None:
    app.command("export")(export_weights)


def export_weights(
    weights: Annotated[
        str,
        typer.Argument(
            help="A .safetensors file, the folder of a run, or a pretrained tag such as ptn_b.rotmnist.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; by default NAME.onnx.", show_default=False),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="onnx or torch; by default as the file is called.", show_default=False),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="The version of ONNX's operators; by default 18.", show_default=False)
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="How far logits may be from the network's for the file to be written.")
    ] = 1e-4,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "--dataset",
            help="Check the file on this data set of `ptn data list` instead of handwritten ones.",
            show_default=False,
        ),
    ] = None,
    folder: FolderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object instead of text.")] = False,
) -> None:
    """Write weights as one ONNX file, or as torch.export does (.pt2): images in [0, 1] in, logits out.

    Any number of images at a time; normalisation is part of the network. The file is compared with the network
    on real images, and put in its place only if their logits agree.
    """
    from ..evaluation import open_weights
    from ..models import OnnxModel, export

    path, kind = _target(weights, output, form)
    if opset is not None and kind == "torch":
        raise InputError("--opset is for ONNX: leave it out, or write a file that ends in .onnx")
    network = open_weights(weights)
    if isinstance(network.model, OnnxModel):
        raise InputError(f"{weights} is an ONNX file already: export the .safetensors file it was made from")
    images = None if data is None and folder is None else _images(network, data, folder)
    done = export(network.model, path, images=images, tolerance=tolerance)
    facts = {
        "path": str(done.path),
        "format": kind,
        "bytes": done.path.stat().st_size,
        "largest_difference": done.difference,
        "images": done.images,
        "batches": list(done.batches),
    }
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(f"{done.path}  {facts['bytes']:,} bytes")
    sizes = ", ".join(map(str, done.batches[:-1]))
    print(
        f"logits differ from the network's by at most {done.difference:.1g}, "
        f"on {done.images} images in batches of {sizes} and {done.batches[-1]}"
    )


def _target(weights: str, output: Path | None, form: str | None) -> tuple[Path, str]:
    """Where to write, and which kind of file."""
    if form is not None:
        check_choice("format", form, SUFFIXES)
    if output is None:
        name = Path(weights).name.removesuffix(".safetensors")
        return Path(name + SUFFIXES[form or "onnx"]), form or "onnx"
    named = next((kind for kind, suffix in SUFFIXES.items() if output.suffix == suffix), None)
    if named is None and form is None:
        raise InputError(f"{output}: call the file .onnx or .pt2, or say which with --format")
    if named is not None and form not in (None, named):
        raise InputError(f"{output} is the name of another format than {form}: call it {SUFFIXES[form or named]}")
    return output, form or named or "onnx"


def _images(network: "Weights", data: str | None, folder: Path | None) -> "Tensor":
    """Some test images as floats in [0, 1]."""
    from ..models.export import BATCHES

    images = load_for(network, data, folder, "test").images[: sum(BATCHES)]
    return images.float() / 255 if images.dim() == 4 else images.float()
