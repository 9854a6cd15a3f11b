"""Mesh files of every format, and voxelization: exact shapes, symmetries, agreement with packed voxels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn.data import voxelize as voxelizer
from ptn.data.voxelize import _points, parse_mesh, read_voxels, voxel_grids, voxelize
from ptn.errors import InputError

ndimage = pytest.importorskip("scipy.ndimage")
trimesh = pytest.importorskip("trimesh")


def sphere():
    """A closed ball of radius 1 about (5, -3, 2)."""
    ball = trimesh.creation.icosphere(subdivisions=4)
    return ball.vertices + np.array((5, -3, 2)), np.asarray(ball.faces)


def soup(seed, triangles=40):
    rng = np.random.default_rng(seed)
    vertices = rng.normal(size=(triangles, 3)) * rng.uniform(0.2, 3, size=3)
    return vertices, rng.integers(0, triangles, size=(triangles, 3))


def dilated(grid):
    return ndimage.binary_dilation(grid, np.ones((3, 3, 3)))


@pytest.mark.parametrize("size", [32, 64])
def test_a_sphere_has_the_volume_and_radius_of_its_ball(size):
    radius = 15 / 16 * size / 2
    grid = voxelize(*sphere(), size=size, occupancy="solid")
    assert grid.dtype == np.bool_
    centers = np.indices(grid.shape) + 0.5 - size / 2
    distance = np.linalg.norm(centers, axis=0)
    assert grid[distance < radius - 1].all()
    assert not grid[distance > radius + 1].any()
    volume = 4 / 3 * np.pi * radius**3
    shell = 4 * np.pi * radius**2  # the surface may add up to one layer of voxels
    assert volume < grid.sum() < volume + shell


def test_a_cube_fills_its_box():
    cube = trimesh.creation.box()
    # The corners lie at horizontal distance 15: a cube of side 15·√2 = 21.2 voxels, 10.6 to either side.
    surface, solid = (voxelize(cube.vertices, cube.faces, occupancy=kind) for kind in ("surface", "solid"))
    expected = np.zeros((32, 32, 32), dtype=np.bool_)
    expected[5:27, 5:27, 5:27] = True
    np.testing.assert_array_equal(solid, expected)
    inside = np.zeros_like(expected)
    inside[6:26, 6:26, 6:26] = True
    np.testing.assert_array_equal(surface, expected & ~inside)


@pytest.mark.parametrize("size", [32, 64])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_no_rotation_about_z_takes_a_voxel_out_of_the_grid(size, seed):
    centers = np.argwhere(voxelize(*soup(seed), size=size)) + 0.5 - size / 2
    reach = 15 / 16 * size / 2
    assert np.hypot(centers[:, 0], centers[:, 1]).max() < reach + np.sqrt(0.5) < size / 2
    assert abs(centers[:, 2]).max() < reach + 0.51


@pytest.mark.parametrize("occupancy", ["surface", "solid"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_a_rotation_by_90_degrees_rotates_the_voxels(occupancy, seed):
    vertices, faces = soup(seed)
    rotated = vertices[:, [1, 0, 2]] * (-1, 1, 1)  # (x, y) -> (-y, x)
    grid = voxelize(vertices, faces, occupancy=occupancy)
    np.testing.assert_array_equal(voxelize(rotated, faces, occupancy=occupancy), grid.transpose(1, 0, 2)[::-1])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_orientation_order_and_duplicates_of_faces_do_not_matter(seed):
    vertices, faces = soup(seed)
    rng = np.random.default_rng(seed)
    changed = rng.permuted(np.concatenate([faces, faces[::2]]), axis=1)
    np.testing.assert_array_equal(
        voxelize(vertices, rng.permutation(changed), size=64), voxelize(vertices, faces, size=64)
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), thin=st.floats(1e-6, 1))
def test_no_point_of_a_triangle_is_far_from_a_sample(seed, thin):
    rng = np.random.default_rng(seed)
    triangle = rng.uniform(0, 5, size=(3, 3))
    triangle[2] = triangle[:2].mean(axis=0) + thin * (triangle[2] - triangle[:2].mean(axis=0))
    samples = _points(triangle.T[:, :, None]).T
    anywhere = rng.dirichlet(np.ones(3), size=200) @ triangle
    nearest = np.linalg.norm(anywhere[:, None] - samples[None], axis=-1).min(axis=1)
    assert nearest.max() <= np.sqrt(5) / 2 * 0.25


@pytest.mark.parametrize("points", [1, 1000, 10**9])
def test_the_size_of_chunks_does_not_matter(monkeypatch, points):
    mesh = soup(7)
    expected = voxelize(*mesh, size=64)
    monkeypatch.setattr(voxelizer, "_POINTS_PER_CHUNK", points)
    np.testing.assert_array_equal(voxelize(*mesh, size=64), expected)


def test_real_meshes_agree_with_the_packed_voxels(real_data):
    folder = real_data / "modelnet40"
    paths = sorted((folder / "meshes").glob("*.off"))
    assert len(paths) == 8
    with np.load(folder / "vox32.npz") as file:
        names = file["names"].tolist()
        rows = [names.index(path.stem) for path in paths]
        theirs = {"surface32": file["surf"][rows], "solid32": file["solid"][rows]}
    with np.load(folder / "surf64.npz") as file:
        assert file["names"].tolist() == names
        theirs["surface64"] = file["surf64"][rows]
    for row, path in enumerate(paths):
        ours = voxel_grids(*parse_mesh(path.read_bytes(), ".off"))
        for grid, packed in theirs.items():
            a, b = ours[grid], np.unpackbits(packed[row]).reshape(ours[grid].shape) > 0
            assert (a & b).sum() / (a | b).sum() >= 0.93, (path.stem, grid)
            assert (a & dilated(b)).sum() / a.sum() >= 0.99, (path.stem, grid)
            assert (b & dilated(a)).sum() / b.sum() >= 0.99, (path.stem, grid)


VERTICES = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]
FACES = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]
OFF = "OFF\n4 4 6\n0 0 0\n1 0 0\n0 2 0\n0 0 3e0\n3 0 2 1\n3 0 1 3\n3 1 2 3\n3 2 0 3\n"


@pytest.mark.parametrize("suffix", [".off", ".obj", ".ply", ".stl", ".OFF"])
def test_every_format_gives_the_voxels_of_the_mesh(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    trimesh.Trimesh(VERTICES, FACES, process=False).export(path, file_type=suffix[1:].lower())
    both = read_voxels(path, size=32, occupancy="surface+solid")
    assert np.array_equal(both, voxelize(VERTICES, FACES, occupancy="surface+solid"))


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
    vertices, faces = parse_mesh(text.encode(), ".off")
    assert vertices[faces].tolist() == np.array(VERTICES)[FACES].tolist()


def test_polygons_become_triangles_that_cover_them():
    text = b"OFF\n5 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n-1 0.5 0\n4 0 1 2 3\n5 0 1 2 3 4\n"
    vertices, faces = parse_mesh(text, ".off")
    a, b, c = vertices[faces].transpose(1, 0, 2)
    assert np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2 == pytest.approx(1 + 1.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OFF\nfive 4 0\n",
        OFF[: OFF.rindex("3 2 0 3")],
        OFF.replace("4 4 6", "900000000000 4 6"),
        OFF.replace("3 0 1 3", "3 0 1 4"),
        OFF.replace("3 0 1 3", "3 0 -1 3"),
        OFF.replace("0 0 3e0", "0 nan 3e0"),
        OFF.replace("0 0 3e0", "0 0,5 3e0"),
        "OFF\n4 0 0\n0 0 0\n1 0 0\n0 2 0\n0 0 3\n",
        "OFF\n3 1 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n",
    ],
)
def test_a_damaged_off_file_is_named(tmp_path, text):
    path = tmp_path / "shape.off"
    path.write_text(text)
    with pytest.raises(InputError, match=r"shape\.off"):
        read_voxels(path, size=32, occupancy="surface")


@pytest.mark.parametrize("name", ["absent.off", "shape.fbx", "broken.ply", "broken.stl", "broken.obj"])
def test_absent_and_damaged_files_and_unknown_formats_are_named(tmp_path, name):
    if name.startswith("broken"):
        (tmp_path / name).write_bytes(b"\x00\xffjunk\n")
    with pytest.raises(InputError, match=name):
        read_voxels(tmp_path / name, size=32, occupancy="surface")


@pytest.mark.parametrize(
    ("vertices", "faces", "options", "words"),
    [
        (np.array(VERTICES) * np.nan, FACES, {}, "not finite"),
        (VERTICES, [[0, 1, 4]], {}, "does not exist"),
        (VERTICES, [[0, 1, 2, 3]], {}, r"faces \(F, 3\)"),
        (VERTICES, FACES, {"size": 48}, "unknown size 48"),
        (VERTICES, FACES, {"occupancy": "volume"}, "unknown occupancy 'volume'"),
    ],
)
def test_impossible_meshes_and_options_are_explained(vertices, faces, options, words):
    with pytest.raises(InputError, match=words):
        voxelize(vertices, faces, **options)
