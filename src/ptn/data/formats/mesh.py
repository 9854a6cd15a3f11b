"""One triangle-mesh file, whatever its format."""

from pathlib import Path

import numpy as np

from ...errors import InputError, check_choice, optional_module
from .off import Mesh, read_off

SUFFIXES = (".off", ".ply", ".stl", ".obj")


def read_mesh(path: str | Path) -> Mesh:
    """The triangles of a `.off`, `.ply`, `.stl` or `.obj` file.

    -> vertices float64 (V, 3), faces int64 (F, 3). A file with several parts is read as one mesh.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_choice(f"mesh format of {path}", suffix, SUFFIXES)
    return read_off(path) if suffix == ".off" else _read_with_trimesh(path, suffix)


def _read_with_trimesh(path: Path, suffix: str) -> Mesh:
    trimesh = optional_module("trimesh")
    try:
        with path.open("rb") as stream:
            mesh = trimesh.load(stream, file_type=suffix[1:], force="mesh", process=False)
        vertices = np.asarray(mesh.vertices, dtype=np.float64)
        faces = np.asarray(mesh.faces, dtype=np.int64)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except Exception as error:  # trimesh raises whatever its parsers trip over
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is not a readable {suffix} mesh: {reason}") from error
    if faces.ndim != 2 or len(faces) == 0:
        raise InputError(f"{path} has no faces")
    if not np.isfinite(vertices).all():
        raise InputError(f"{path}: a vertex is not finite")
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"{path}: a face names a vertex that does not exist")
    return vertices, faces
