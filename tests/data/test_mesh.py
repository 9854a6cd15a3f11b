import numpy as np
import pytest

from ptn.data.formats.mesh import read_mesh
from ptn.errors import InputError

VERTICES = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]
FACES = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]

OFF = "OFF4 4 6\n0 0 0\n1 0 0\n0 2 0\n0 0 3\n3 0 2 1\n3 0 1 3\n3 1 2 3\n3 2 0 3\n"
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


@pytest.mark.parametrize(
    ("name", "text"), [("a.off", OFF), ("a.obj", OBJ), ("a.ply", PLY), ("a.stl", STL), ("A.OFF", OFF)]
)
def test_every_format_gives_the_same_triangles(tmp_path, name, text):
    if not name.lower().endswith("off"):
        pytest.importorskip("trimesh")
    path = tmp_path / name
    path.write_text(text)
    vertices, faces = read_mesh(path)
    assert (vertices.dtype, faces.dtype) == (np.float64, np.int64)
    np.testing.assert_array_equal(vertices[faces], np.array(VERTICES)[FACES])


@pytest.mark.parametrize("suffix", [".ply", ".stl", ".obj"])
@pytest.mark.parametrize("content", [b"", b"\x00\xffjunk\n", b"ply\nformat ascii 1.0\n"])
def test_damaged_file_is_named_in_one_line(tmp_path, suffix, content):
    pytest.importorskip("trimesh")
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_mesh(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["absent.ply", "absent.off"])
def test_absent_file_is_named(tmp_path, name):
    with pytest.raises(InputError, match=f"cannot read .*{name}"):
        read_mesh(tmp_path / name)


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"Known: \.off, \.ply, \.stl, \.obj"):
        read_mesh(tmp_path / "shape.fbx")


def test_our_off_reader_agrees_with_trimesh_on_real_meshes(real_data):
    trimesh = pytest.importorskip("trimesh")
    paths = sorted((real_data / "modelnet40" / "meshes").glob("*.off"))
    assert len(paths) == 8
    for path in paths:
        vertices, faces = read_mesh(path)
        theirs = trimesh.load(path, force="mesh", process=False)
        np.testing.assert_array_equal(vertices, theirs.vertices)
        np.testing.assert_array_equal(faces, theirs.faces)
