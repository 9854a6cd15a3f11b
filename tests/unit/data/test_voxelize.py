"""Voxelization: exact shapes, symmetries, and agreement with the packed voxels of real meshes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn.data import voxelize as voxelizer
from ptn.data.voxelize import _points, read_mesh, voxelize, voxelize_packed
from ptn.errors import InputError

ndimage = pytest.importorskip("scipy.ndimage")

# The faces of a box whose corner 4a + 2b + c lies at (a, b, c).
BOX_FACES = np.array(
    [
        *([0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1]),
        *([2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]),
    ]
)


def box(x, y, z):
    corners = [[a, b, c] for a in (0, x) for b in (0, y) for c in (0, z)]
    return np.array(corners, dtype=np.float64), BOX_FACES


def sphere(rings=48, segments=96):
    """A closed ball of radius 1 about (5, -3, 2)."""
    polar = np.linspace(0, np.pi, rings + 1)[1:-1, None]
    around = np.linspace(0, 2 * np.pi, segments, endpoint=False)[None]
    ring = np.stack(np.broadcast_arrays(np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around)), -1)
    points = np.concatenate([ring, np.broadcast_to(np.cos(polar)[..., None], (*ring.shape[:2], 1))], -1)
    here = np.arange((rings - 1) * segments).reshape(rings - 1, segments)
    side = np.roll(here, -1, axis=1)
    north, south = here.size, here.size + 1
    faces = [
        np.stack([here[:-1], here[1:], side[:-1]], -1),
        np.stack([side[:-1], here[1:], side[1:]], -1),
        np.stack([np.full_like(here[0], north), here[0], side[0]], -1),
        np.stack([np.full_like(here[-1], south), side[-1], here[-1]], -1),
    ]
    vertices = np.concatenate([points.reshape(-1, 3), [[0, 0, 1], [0, 0, -1]]])
    return vertices + np.array([5, -3, 2]), np.concatenate([part.reshape(-1, 3) for part in faces])


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
    # The corners lie at horizontal distance 15: a cube of side 15·√2 = 21.2 voxels, 10.6 to either side.
    surface, solid = (voxelize(*box(1, 1, 1), occupancy=kind) for kind in ("surface", "solid"))
    expected = np.zeros((32, 32, 32), dtype=np.bool_)
    expected[5:27, 5:27, 5:27] = True
    np.testing.assert_array_equal(solid, expected)
    inside = np.zeros_like(expected)
    inside[6:26, 6:26, 6:26] = True
    np.testing.assert_array_equal(surface, expected & ~inside)


def test_a_tall_shape_is_limited_by_its_height():
    grid = voxelize(*box(1, 1, 10))
    x, y, z = (np.flatnonzero(grid.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1)))
    assert (z[0], z[-1]) == (1, 31)  # -15 and 15 from the middle, floor(coordinate + 16)
    assert (x[0], x[-1]) == (y[0], y[-1]) == (14, 17)  # ±1.5


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


def test_an_open_box_has_no_inside():
    vertices, faces = box(1, 1, 1)
    lid = (vertices[faces][..., 2] == 1).all(axis=1)
    np.testing.assert_array_equal(
        voxelize(vertices, faces[~lid], size=64, occupancy="solid"), voxelize(vertices, faces[~lid], size=64)
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


def test_packed_grids_are_the_grids_in_packbits_order():
    mesh = soup(3)
    packed = voxelize_packed(*mesh)
    assert sorted(packed) == ["solid32", "solid64", "surface32", "surface64"]
    for size in (32, 64):
        for occupancy in ("surface", "solid"):
            bits = np.unpackbits(packed[f"{occupancy}{size}"]).reshape(size, size, size)
            np.testing.assert_array_equal(bits, voxelize(*mesh, size=size, occupancy=occupancy))


def test_the_small_grid_is_the_large_one_pooled():
    mesh = sphere(20, 30)
    eighths = [voxelize(*mesh, size=64, occupancy=kind) for kind in ("surface", "solid")]
    surface, solid = (grid.reshape(32, 2, 32, 2, 32, 2).sum(axis=(1, 3, 5)) for grid in eighths)
    np.testing.assert_array_equal(voxelize(*mesh), surface > 0)
    np.testing.assert_array_equal(voxelize(*mesh, occupancy="solid"), (solid >= 4) | (surface > 0))


@pytest.mark.parametrize(
    ("vertices", "faces", "words"),
    [
        (np.zeros((3, 2)), [[0, 1, 2]], r"not \(3, 2\)"),
        (np.zeros((3, 3)), np.zeros((0, 3), dtype=int), r"\(0, 3\)"),
        (np.ones((3, 3)), [[0, 1, 2]], "cannot be scaled"),
        (np.diag([1.0, np.nan, 1.0]), [[0, 1, 2]], "not finite"),
        (np.diag([1.0, np.inf, 1.0]), [[0, 1, 2]], "not finite"),
    ],
)
def test_arrays_that_are_not_a_mesh_are_refused(vertices, faces, words):
    with pytest.raises(InputError, match=words):
        voxelize(vertices, faces)


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="size must be 32 or 64"):
        voxelize(*box(1, 1, 1), size=48)
    with pytest.raises(InputError, match="did you mean 'solid'"):
        voxelize(*box(1, 1, 1), occupancy="solids")


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
        ours = voxelize_packed(*read_mesh(path))
        for grid, packed in theirs.items():
            size = int(grid[-2:])
            a, b = (np.unpackbits(bits).reshape(size, size, size) > 0 for bits in (ours[grid], packed[row]))
            assert (a & b).sum() / (a | b).sum() >= 0.93, (path.stem, grid)
            assert (a & dilated(b)).sum() / a.sum() >= 0.99, (path.stem, grid)
            assert (b & dilated(a)).sum() / b.sum() >= 0.99, (path.stem, grid)
