import numpy as np
import pytest

from ptn.data.formats.off import read_off
from ptn.errors import InputError

VERTICES = "0 0 0\n1 0 0\n1 1 0\n0 1 0\n0.5 0.5 1e0\n"
PYRAMID = f"OFF\n5 6 0\n{VERTICES}3 0 1 4\n3 1 2 4\n3 2 3 4\n3 3 0 4\n3 0 2 1\n3 0 3 2\n"


@pytest.fixture
def pyramid():
    return read_off(PYRAMID.encode())


def assert_same(mesh, other):
    for array, expected in zip(mesh, other, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_vertices_and_faces_keep_their_order_and_types(tmp_path):
    path = tmp_path / "pyramid.off"
    path.write_text(PYRAMID)
    vertices, faces = read_off(path)
    assert (vertices.dtype, vertices.shape) == (np.float64, (5, 3))
    assert (faces.dtype, faces.shape) == (np.int64, (6, 3))
    assert vertices[4].tolist() == [0.5, 0.5, 1.0]
    assert faces[1].tolist() == [1, 2, 4]


@pytest.mark.parametrize("header", ["OFF5 6 0\n", "OFF 5 6 0\n", "  OFF\n\n 5   6\n", "OFF\r\n5 6 0\r\n"])
def test_counts_may_stand_anywhere_after_the_keyword(header, pyramid):
    assert_same(read_off(PYRAMID.replace("OFF\n5 6 0\n", header).encode()), pyramid)


def test_comments_and_blank_lines_are_skipped(pyramid):
    text = PYRAMID.replace("\n", "   # 3 9 9 9\n\n \t\n").replace("OFF", "# a pyramid\nOFF", 1)
    assert_same(read_off(text.encode()), pyramid)


def test_file_without_a_last_line_break_is_whole(pyramid):
    assert_same(read_off(PYRAMID.rstrip().encode()), pyramid)


def test_polygons_become_fans():
    _, faces = read_off(f"OFF\n5 3 0\n{VERTICES}4 3 2 1 0\n3 0 1 4\n5 0 1 2 3 4\n".encode())
    assert faces.tolist() == [[3, 2, 1], [3, 1, 0], [0, 1, 4], [0, 1, 2], [0, 2, 3], [0, 3, 4]]


def test_polygons_without_a_surface_are_dropped():
    _, faces = read_off(f"OFF\n5 3 0\n{VERTICES}2 0 1\n1 4\n3 0 1 4\n".encode())
    assert faces.tolist() == [[0, 1, 4]]


@pytest.mark.parametrize("colour", [" 255 0 0", " 0.5 0.5 0.5 1.0", " 7"])
def test_colours_of_faces_are_dropped(colour, pyramid):
    head, faces = PYRAMID.split("1e0\n")
    coloured = head + "1e0\n" + faces.replace("\n", colour + "\n")
    assert_same(read_off(coloured.encode()), pyramid)


@pytest.mark.parametrize(
    ("keyword", "columns"), [("COFF", " 255 0 0 255"), ("NOFF", " 0 0 1"), ("CNOFF", " 0 0 1 9 9 9 9")]
)
def test_colours_and_normals_of_vertices_are_dropped(keyword, columns, pyramid):
    extended = VERTICES.replace("\n", columns + "\n")
    text = PYRAMID.replace(VERTICES, extended).replace("OFF", keyword, 1)
    assert_same(read_off(text.encode()), pyramid)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ply\nformat ascii 1.0\n", "does not begin with OFF"),
        ("", "does not begin with OFF"),
        (PYRAMID.replace("OFF", "4OFF"), "kind of OFF file that is not read"),
        (PYRAMID.replace("OFF", "OFF BINARY"), "kind of OFF file that is not read"),
        ("OFF\nfive 6 0\n", "found 'five 6 0'"),
        ("OFF\n-5 6 0\n", "found '-5 6 0'"),
        ("OFF\n5\n6\n0\n", "found '5'"),
        (PYRAMID[: PYRAMID.rindex("3 0 3 2")], "truncated"),
        (PYRAMID[:-3], "too short"),
        (PYRAMID[:40], "truncated"),
        (PYRAMID.replace("5 6 0", "5 5 0"), "damaged"),
        (PYRAMID.replace("5 6 0", "4 6 0"), "damaged"),
        (PYRAMID.replace("5 6 0", "900000000000 6 0"), "truncated"),
        (PYRAMID.replace("3 0 1 4", "3 0 1 5"), "names vertex 5, but vertices are 0 to 4"),
        (PYRAMID.replace("3 0 1 4", "3 0 -1 4"), "names vertex -1"),
        (PYRAMID.replace("3 0 1 4", "3 0 1.5 4"), r"names vertex 1\.5"),
        (PYRAMID.replace("3 0 1 4", "3 0 nan 4"), "names vertex nan"),
        (PYRAMID.replace("3 0 1 4", "-3 0 1 4"), "too short"),
        (PYRAMID.replace("3 0 1 4", "x 0 1 4"), "'x'"),
        (PYRAMID.replace("0.5 0.5 1e0", "0.5 nan 1e0"), "vertex 4 is not finite"),
        (PYRAMID.replace("0.5 0.5 1e0", "0.5 1e999 1e0"), "vertex 4 is not finite"),
        (PYRAMID.replace("0.5 0.5 1e0", "0.5 0,5 1e0"), "0,5"),
        (PYRAMID.replace("0.5 0.5 1e0", "0.5 0.5"), "vertex line '0.5 0.5' is too short"),
        (f"OFF\n5 0 0\n{VERTICES}", "no faces"),
        ("OFF\n0 0 0\n", "no vertices"),
        ("OFF\n0 1 0\n3 0 1 2\n", "no vertices"),
    ],
)
def test_damage_is_told_in_one_line_that_names_the_file(tmp_path, text, complaint):
    path = tmp_path / "shape.off"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as raised:
        read_off(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bytes_are_called_by_the_name_given():
    with pytest.raises(InputError, match=r"^chair_0001\.off is not an OFF mesh"):
        read_off(b"\x00\xff", name="chair_0001.off")


def test_absent_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent\.off"):
        read_off(tmp_path / "absent.off")


def test_large_mesh_comes_back_exactly():
    rng = np.random.default_rng(0)
    vertices = rng.normal(size=(500, 3))
    faces = rng.integers(0, 500, size=(900, 3))
    lines = [" ".join(map(repr, row)) for row in vertices.tolist()]
    lines += ["3 " + " ".join(map(str, row)) for row in faces.tolist()]
    assert_same(read_off("\n".join(["OFF500 900 0", *lines]).encode()), (vertices, faces))
