"""`python -m ptn` is the `ptn` command."""

from .cli import main

main()
