"""`ptn demo`: the page on which a person turns a digit and sees what a PTN makes of it."""

import webbrowser
from typing import Annotated

import typer

from ..errors import optional_module


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes any that is free.")
    ] = 8028,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="A .safetensors file of your own to show too: a PTN, or a plain CNN beside it. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve a page to draw, turn, scale and drag a digit, and see what a PTN and a plain CNN make of it.

    Only this machine can ask it. Ctrl-C stops it.
    """
    for package in ("starlette", "pydantic", "uvicorn"):
        optional_module(package, "ptn[demo]")
    from ..demo.models import find_pairs, sample_digits
    from ..demo.server import serve

    def announce(address: str) -> None:
        print(f"{address}  (Ctrl-C stops it)", flush=True)
        if open_browser:
            webbrowser.open(address)

    try:
        serve(find_pairs(weights or ()), sample_digits(), port=port, on_ready=announce)
    except KeyboardInterrupt:
        print()
