"""OFF meshes (Object File Format), the text form in which ModelNet and Geomview keep polygons."""

import re
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError

Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]

# Each leaves the position in the first three columns of a vertex line: C adds a colour after it, N a normal.
KEYWORDS = (b"OFF", b"COFF", b"NOFF", b"CNOFF")


def read_off(source: str | Path | bytes, *, name: str | None = None) -> Mesh:
    """The triangles of an OFF file: vertices float64 (V, 3), faces int64 (F, 3) of vertex numbers.

    `source` is a path, or the file's bytes; `name` is what errors call it (the path by default).
    Read: comments and blank lines, counts on the line of the keyword or stuck to it (`OFF490 518 0`, as in
    ModelNet), colours and normals (dropped), polygons (cut into a fan around their first vertex, right for
    convex ones), and polygons of one or two vertices (dropped: they bound no surface).
    """
    if isinstance(source, bytes):
        data, name = source, name or "OFF data"
    else:
        name = name or str(source)
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror}") from error
    keyword, vertex_count, face_count, body = _header(data, name)
    mesh = _plain_triangles(body, vertex_count, face_count) if keyword == b"OFF" else None
    vertices, faces = mesh or _lines(body, vertex_count, face_count, name)
    _check(vertices, faces, name)
    return vertices, faces.astype(np.int64)


def _header(data: bytes, name: str) -> tuple[bytes, int, int, bytes]:
    """Keyword, vertex count, face count, and the lines after them with comments removed."""
    text = re.sub(rb"#[^\n]*", b"", data.replace(b"\r", b"\n")) if b"#" in data or b"\r" in data else data
    start = re.match(rb"\s*([A-Za-z0-9]{0,4}OFF)\s*", text)
    if not start:
        raise InputError(f"{name} is not an OFF mesh: it does not begin with OFF")
    keyword = start[1]
    if keyword not in KEYWORDS or text[start.end() :].startswith(b"BINARY"):
        kinds = b", ".join(KEYWORDS).decode()
        raise InputError(f"{name} is a kind of OFF file that is not read; save it as text, one of {kinds}")
    counts, _, body = text[start.end() :].partition(b"\n")
    if not re.fullmatch(rb"\d{1,12}\s+\d{1,12}(\s+\d{1,12})?\s*", counts):
        found = counts[:40].decode(errors="replace").strip()
        raise InputError(f"{name}: expected the numbers of vertices, faces and edges, found {found!r}")
    vertex_count, face_count = (int(count) for count in counts.split()[:2])
    return keyword, vertex_count, face_count, body


def _plain_triangles(body: bytes, vertex_count: int, face_count: int) -> tuple[NDArray[np.float64], ...] | None:
    """The common file, all triangles and no colours, parsed as one run of numbers; None if it is not that."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            numbers = np.fromstring(body, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    if numbers.size != 3 * vertex_count + 4 * face_count:
        return None
    faces = numbers[3 * vertex_count :].reshape(face_count, 4)
    if not (faces[:, 0] == 3).all():
        return None
    return numbers[: 3 * vertex_count].reshape(vertex_count, 3).copy(), faces[:, 1:]


def _lines(body: bytes, vertex_count: int, face_count: int, name: str) -> tuple[NDArray[np.float64], ...]:
    """Any other file, one vertex or polygon a line, with columns to drop or polygons to cut."""
    lines = [line.split() for line in body.split(b"\n") if line and not line.isspace()]
    if len(lines) != vertex_count + face_count:
        raise InputError(
            f"{name} declares {vertex_count} vertices and {face_count} faces but holds {len(lines)} lines "
            f"of them: it is {'truncated' if len(lines) < vertex_count + face_count else 'damaged'}"
        )
    try:
        vertices = np.array([_position(line) for line in lines[:vertex_count]]).reshape(-1, 3)
        polygons = [_polygon(line) for line in lines[vertex_count:]]
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
    fans = [(ring[0], ring[i], ring[i + 1]) for ring in polygons for i in range(1, len(ring) - 1)]
    return vertices, np.array(fans, dtype=np.float64).reshape(-1, 3)


def _position(line: list[bytes]) -> list[float]:
    """The coordinates in one vertex line, `x y z [normal] [colour]`."""
    if len(line) < 3:
        raise ValueError(f"vertex line {_shown(line)} is too short")
    return [float(value) for value in line[:3]]


def _polygon(line: list[bytes]) -> list[float]:
    """The vertex numbers in one face line, `count v1 v2 … [colour]`."""
    count = int(line[0])
    if count < 1 or len(line) < count + 1:
        raise ValueError(f"face line {_shown(line)} is too short")
    return [float(value) for value in line[1 : count + 1]]


def _shown(line: list[bytes]) -> str:
    return repr(b" ".join(line).decode(errors="replace")[:60])


def _check(vertices: NDArray[np.float64], faces: NDArray[np.float64], name: str) -> None:
    """Raise unless there are faces, coordinates are finite, and vertex numbers are whole and in range."""
    if len(vertices) == 0 or len(faces) == 0:
        raise InputError(f"{name} has no {'faces' if len(vertices) else 'vertices'}")
    if not np.isfinite(vertices).all():
        bad = int(np.flatnonzero(~np.isfinite(vertices).all(axis=1))[0])
        raise InputError(f"{name}: vertex {bad} is not finite")
    wrong = (faces != np.floor(faces)) | (faces < 0) | (faces >= len(vertices))
    if wrong.any():
        value = faces[wrong][0]
        raise InputError(f"{name}: a face names vertex {value:g}, but vertices are 0 to {len(vertices) - 1}")
