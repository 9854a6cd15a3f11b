"""Mesh files of every format, and damaged ones."""

import numpy as np
import pytest
import torch

from ptn.data.voxelize import parse_mesh, read_mesh, read_voxels, view_from_above, voxelize
from ptn.errors import InputError

pytest.importorskip("trimesh")

VERTICES = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]
FACES = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]
OFF = "OFF\n4 4 6\n0 0 0\n1 0 0\n0 2 0\n0 0 3e0\n3 0 2 1\n3 0 1 3\n3 1 2 3\n3 2 0 3\n"
OBJ = "v 0 0 0\nv 1 0 0\nv 0 2 0\nv 0 0 3\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"
PLY = (
    "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    "element face 4\nproperty list uchar int vertex_indices\nend_header\n"
    "0 0 0\n1 0 0\n0 2 0\n0 0 3\n3 0 2 1\n3 0 1 3\n3 1 2 3\n3 2 0 3\n"
)
STL = "solid tetrahedron\n" + "".join(
    "facet normal 0 0 0\nouter loop\n"
    + "".join(f"vertex {' '.join(map(str, VERTICES[corner]))}\n" for corner in face)
    + "endloop\nendfacet\n"
    for face in FACES
)
STL += "endsolid tetrahedron\n"


def triangles(mesh):
    vertices, faces = mesh
    return vertices[faces].tolist()


@pytest.mark.parametrize(
    ("name", "text"), [("a.off", OFF), ("a.obj", OBJ), ("a.ply", PLY), ("a.stl", STL), ("A.OFF", OFF)]
)
def test_every_format_gives_the_same_triangles(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    vertices, faces = read_mesh(tmp_path / name)
    assert (vertices.dtype, faces.dtype) == (np.float64, np.int64)
    assert triangles((vertices, faces)) == np.array(VERTICES)[FACES].tolist()


@pytest.mark.parametrize(
    "text",
    [
        OFF.replace("OFF\n4", "OFF4"),
        OFF.replace("OFF\n4", "OFF 4"),
        OFF.replace("\n", "\r\n"),
        OFF.replace("\n", "   # 3 9 9 9\n\n \t\n"),
        OFF.rstrip(),
        OFF.replace("3 0 2 1", "3 0 2 1 255 0 0"),
        OFF.replace("0 0 3e0", "0 0 3e0 255 0 0 255").replace("OFF", "COFF"),
    ],
    ids=["merged header", "one line", "CRLF", "comments", "no last line break", "face color", "vertex color"],
)
def test_every_form_of_an_off_file_is_the_same_mesh(text):
    assert triangles(parse_mesh(text.encode(), ".off", "a.off")) == np.array(VERTICES)[FACES].tolist()


def test_polygons_become_triangles_that_cover_them():
    square = "OFF\n5 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n-1 0.5 0\n4 0 1 2 3\n5 0 1 2 3 4\n"
    corners = np.array(triangles(parse_mesh(square.encode(), ".off", "a.off")))
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() / 2
    assert area == pytest.approx(1 + 1.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ply\nformat ascii 1.0\n",
        "OFF\nfive 4 0\n",
        OFF[: OFF.rindex("3 2 0 3")],
        OFF[:40],
        OFF.replace("4 4 6", "900000000000 4 6"),
        OFF.replace("3 0 1 3", "3 0 1 4"),
        OFF.replace("3 0 1 3", "3 0 -1 3"),
        OFF.replace("3 0 1 3", "x 0 1 3"),
        OFF.replace("0 0 3e0", "0 nan 3e0"),
        OFF.replace("0 0 3e0", "0 0,5 3e0"),
        "OFF\n4 0 0\n0 0 0\n1 0 0\n0 2 0\n0 0 3\n",
    ],
)
def test_a_damaged_off_file_is_one_line_that_names_it(tmp_path, text):
    path = tmp_path / "shape.off"
    path.write_text(text)
    with pytest.raises(InputError, match=r"shape\.off") as raised:
        read_mesh(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["absent.off", "shape.fbx", "broken.ply", "broken.stl", "broken.obj"])
def test_absent_and_damaged_files_and_unknown_formats_are_named(tmp_path, name):
    if name.startswith("broken"):
        (tmp_path / name).write_bytes(b"\x00\xffjunk\n")
    with pytest.raises(InputError, match=name) as raised:
        read_mesh(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_voxels_of_a_file_are_those_of_its_mesh(tmp_path):
    path = tmp_path / "a.off"
    path.write_text(OFF)
    both = read_voxels(path, size=32, occupancy="surface+solid")
    assert np.array_equal(both, voxelize(VERTICES, FACES, occupancy="surface+solid"))
    path.write_text("OFF\n3 1 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n")
    with pytest.raises(InputError, match=r"a\.off: the mesh cannot be scaled"):
        read_voxels(path, size=32, occupancy="surface")


def test_the_view_from_above_is_brighter_where_the_shape_is_higher():
    volume = torch.zeros(1, 4, 4, 4)
    volume[0, 1, 2, :2] = 1
    volume[0, 3, 0, 3] = 1
    view = view_from_above(volume)[0]
    assert view.nonzero().tolist() == [[0, 3], [2, 1]]
    assert view[0, 3] > view[2, 1]
