"""`ptn models`: what there is, how large it is, what it takes."""

import json
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    app.command("models")(list_networks)


def list_networks(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
) -> None:
    """Every network with its parameter counts at the input sizes of the paper."""
    rows = [row for name in _inputs() for row in _rows(name)]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    from ..models import list_pretrained

    table = Table(title="Networks, and their parameters by input size")
    table.add_column("model")
    table.add_column("input (channels × pixels)")
    table.add_column("classes", justify="right")
    table.add_column("parameters", justify="right")
    previous = None
    for row in rows:
        if previous and row["model"] != previous:
            table.add_section()
        shape = " × ".join(map(str, row["input"]))
        name = row["model"] if row["model"] != previous else ""
        table.add_row(name, shape, str(row["classes"]), f"{row['params']:,}")
        previous = row["model"]
    console = Console()
    console.print(table)
    console.print(f"Pretrained weights: {', '.join(list_pretrained()) or 'none yet'}")


def _inputs() -> dict[str, list[dict[str, Any]]]:
    """The settings in which the paper uses each network."""
    from ..models import list_models

    digits: list[dict[str, Any]] = [{"image_size": size} for size in (28, 42, 96)]
    photographs: list[dict[str, Any]] = [{"image_size": 32, "in_chans": 3}]
    special = {
        "resnet32": photographs,
        "ptn_resnet32": photographs,
        "ccnn_3d": [{"image_size": 32, "num_classes": 40}],
        "cylindrical": [{"image_size": 32, "num_classes": 40}],
        "cylindrical_l": [{"image_size": 64, "num_classes": 40, "in_chans": 2}],
    }
    return {name: special.get(name, digits) for name in list_models()}


def _rows(name: str) -> list[dict[str, Any]]:
    from ..models.zoo import build_on_meta, count_parameters

    rows = []
    for settings in _inputs()[name]:
        model = build_on_meta(name, **settings)
        classes = settings.get("num_classes", 10)
        rows.append(
            {"model": name, "input": list(model.input_shape), "classes": classes, "params": count_parameters(model)}
        )
    return rows
