"""`ptn polar`: photographs to log-polar images and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..errors import InputError

if TYPE_CHECKING:
    from ..geometry import Law, Mode


def register(app: typer.Typer) -> None:
    app.command("polar")(convert)


def convert(
    images: Annotated[list[Path], typer.Argument(help="Image files, grey or colour.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    origin: Annotated[
        str | None,
        typer.Option(help="x,y in [-1, 1] of the image, 0,0 its middle (the default).", show_default=False),
    ] = None,
    inverse: Annotated[
        bool, typer.Option("--inverse", help="From polar images that this command wrote back to images.")
    ] = False,
    angles: Annotated[int | None, typer.Option(help="Rows of the polar image; by default its height.")] = None,
    radii: Annotated[int | None, typer.Option(help="Columns; by default the image's width.")] = None,
    law: Annotated[str, typer.Option(help="How the radius grows: log or linear.")] = "log",
    r_min: Annotated[float, typer.Option(help="Radius of the first column in pixels (log).")] = 1.0,
    r_max: Annotated[
        float | None, typer.Option(help="Radius reached, in pixels; by default half the diagonal.")
    ] = None,
    mode: Annotated[str, typer.Option(help="bilinear, bicubic or nearest.")] = "bilinear",
) -> None:
    """Write the log-polar image of each image as NAME.polar.png; with --inverse, NAME.back.png from that.

    A polar image carries its grid, origin and original size, so the way back needs no options.
    """
    from ..data.images import from_polar, to_polar

    point = None if origin is None else _parse_origin(origin)
    if inverse:
        given = any(option is not None for option in (point, angles, radii, r_max))
        if given or law != "log" or r_min != 1.0:
            raise InputError("--inverse takes origin and grid from the polar images: leave those options out")
        written = from_polar(images, output, mode=cast("Mode", mode))
    else:
        written = to_polar(
            images,
            output,
            origin=point or (0.0, 0.0),
            angles=angles,
            radii=radii,
            law=cast("Law", law),
            r_min_px=r_min,
            r_max_px=r_max,
            mode=cast("Mode", mode),
        )
    for path in written:
        print(path)


def _parse_origin(text: str) -> tuple[float, float]:
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--origin must be two numbers x,y in [-1, 1], say 0.1,-0.2; got {text!r}") from None
    if not (-1 <= x <= 1 and -1 <= y <= 1):
        raise InputError(f"--origin must lie in the image, x and y in [-1, 1]; got {text}")
    return x, y
