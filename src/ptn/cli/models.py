"""`ptn models`, `ptn export` and `ptn demo`."""

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError, optional_module
from .options import (
    DatasetOption,
    FolderOption,
    JsonOption,
    WeightsArgument,
    load_data,
    print_json,
    print_table,
    show,
)

# The inputs that the paper uses each network for.
_DIGITS: list[dict[str, Any]] = [{"image_size": size} for size in (28, 42, 96)]
_COLOR: list[dict[str, Any]] = [{"image_size": 32, "in_chans": 3}]
_VOXELS: list[dict[str, Any]] = [{"image_size": 32, "num_classes": 40}]
_INPUTS = {
    "resnet32": _COLOR,
    "ptn_resnet32": _COLOR,
    "ccnn_3d": _VOXELS,
    "cylindrical": _VOXELS,
    "cylindrical_l": [{"image_size": 64, "num_classes": 40, "in_chans": 2}],
}


def models(as_json: JsonOption = False) -> None:
    """List all networks with their parameters at the input sizes of the paper, and the released weights."""
    from ..models import list_models, list_pretrained

    rows = [_row(name, settings) for name in list_models() for settings in _INPUTS.get(name, _DIGITS)]
    if as_json:
        print_json(rows)
        return
    print_table(
        "Networks and their parameters",
        ("model", "input (channels × pixels)", "classes", "parameters"),
        [
            (row["model"], " × ".join(map(str, row["input"])), str(row["classes"]), f"{row['params']:,}")
            for row in rows
        ],
        right=("classes", "parameters"),
    )
    print(f"Released weights: {', '.join(list_pretrained())}")


def _row(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    import torch

    from ..models import count_parameters, create_model

    with torch.device("meta"):
        model = create_model(name, **settings)
    classes = settings.get("num_classes", 10)
    return {"model": name, "input": list(model.input_shape), "classes": classes, "params": count_parameters(model)}


def export(
    weights: WeightsArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, .onnx or .pt2; by default NAME.onnx.")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest accepted difference of the logits.")] = 1e-4,
    dataset: DatasetOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a model as an ONNX file (.onnx) or a torch.export program (.pt2): images in [0, 1] -> logits.

    The batch size is dynamic and normalization is included. The file is compared with the model on handwritten
    digits, or images of --dataset or --folder, and only written if the logits agree.
    """
    from ..models import OnnxModel, load_model
    from ..models import export as export_model
    from ..models.export import BATCHES

    path = output or Path(Path(weights).name.removesuffix(".safetensors") + ".onnx")
    model = load_model(weights)
    if isinstance(model, OnnxModel):
        raise InputError(f"{weights} is an ONNX file already: export its .safetensors file")
    images = None
    if dataset is not None or folder is not None:
        images = load_data(model, weights, dataset, folder, "test", labelled=False).images[: max(BATCHES)]
        images = images.float() / 255 if images.dim() == 4 else images.float()
    difference = export_model(model, path, images=images, tolerance=tolerance)
    facts = {
        "path": str(path),
        "format": "torch" if path.suffix == ".pt2" else "onnx",
        "bytes": path.stat().st_size,
        "largest_difference": difference,
        "batches": list(BATCHES),
    }
    if as_json:
        print_json(facts)
        return
    show(f"{path}  {facts['bytes']:,} bytes; largest difference of the logits: {difference:.1g}")


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free port.")] = 8028,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="A .safetensors file to show as well: a PTN, or a plain CNN to compare with. Repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the page as static files, which need no server, and exit."),
    ] = None,
    runtime: Annotated[
        Path, typer.Option(help="With --output: the folder dist of the npm package onnxruntime-web.")
    ] = Path("node_modules/onnxruntime-web/dist"),
) -> None:
    """Serve a page to draw and transform a digit and compare a PTN with a plain CNN; Ctrl-C stops the server."""
    for package in ("starlette", "pydantic", "uvicorn"):
        optional_module(package, "ptn[demo]")
    from ..demo.models import find_pairs
    from ..demo.server import serve

    pairs = find_pairs(weights or ())
    if output is not None:
        from ..demo.bundle import write_page

        for package in ("onnx", "onnxscript"):
            optional_module(package, "ptn[export]")
        write_page(pairs, output, runtime)
        print(output / "index.html")
        return

    def announce(address: str) -> None:
        print(f"{address}  (Ctrl-C stops the server)", flush=True)
        if open_browser:
            webbrowser.open(address)

    try:
        serve(pairs, port=port, on_ready=announce)
    except KeyboardInterrupt:
        print()
