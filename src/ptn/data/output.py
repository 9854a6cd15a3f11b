"""Files that the user asked for by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError
from ..files import atomic_path


@contextmanager
def output_path(target: Path) -> Iterator[Path]:
    """`atomic_path`, where a fault of the file system is told of `target`, not of the temporary file beside it."""
    try:
        with atomic_path(target) as temporary:
            yield temporary
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
