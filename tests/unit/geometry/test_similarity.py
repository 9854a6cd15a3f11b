"""Similarity, similarity_warp and measure_shift: direction, centre and composition."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptn import InputError, Similarity, similarity_warp
from ptn.geometry import affine_warp, measure_shift

MODES = ["nearest", "bilinear", "bicubic"]
numbers = st.floats(-3, 3)
similarities = st.builds(Similarity, numbers, st.floats(0.3, 3), st.tuples(numbers, numbers))


def per_image(*poses):
    """The same poses as one Similarity of tensors."""
    fields = zip(*((p.rotation, p.scale, p.shift_px) for p in poses), strict=True)
    return Similarity(*(torch.tensor(values, dtype=torch.float64) for values in fields))


def homogeneous(pose):
    matrix = pose.matrix().double()
    return torch.cat((matrix, torch.tensor([0.0, 0.0, 1.0]).expand(*matrix.shape[:-2], 1, 3)), dim=-2)


@given(first=similarities, second=similarities)
@settings(max_examples=25, deadline=None)
def test_compose_and_inverse_are_those_of_the_matrices(first, second):
    composed = homogeneous(second.compose(first))
    assert torch.allclose(composed, homogeneous(second) @ homogeneous(first), atol=1e-4)
    assert torch.allclose(homogeneous(first.inverse().compose(first)), torch.eye(3, dtype=torch.float64), atol=1e-4)
    tensors = per_image(second, first).compose(per_image(first, second))
    assert tensors.matrix().shape == (2, 2, 3)
    assert torch.allclose(homogeneous(tensors)[0], composed, atol=1e-4)
    assert torch.allclose(
        homogeneous(per_image(first, second).inverse())[1], homogeneous(second.inverse()), atol=1e-4
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quarters", [0, 1, 10**7 + 1])
def test_quarter_rotations_are_exact_and_carry_x_to_y(mode, quarters):
    images = torch.rand(2, 1, 12, 12)
    rotated = similarity_warp(images, Similarity(quarters * math.pi / 2), mode=mode)
    assert torch.allclose(rotated, images.rot90(-quarters % 4, (2, 3)), atol=1e-4)


def test_a_point_moves_as_the_matrix_says():
    """p -> scale·R·p + shift, measured from the middle of the input and of the larger output."""
    images = torch.zeros(1, 1, 21, 21, dtype=torch.float64)
    span = torch.arange(21, dtype=torch.float64) - 10
    images[0, 0] = torch.exp(-((span[None] - 5) ** 2 + (span[:, None] + 3) ** 2) / 2)
    pose = Similarity(0.7, 1.9, (4.0, -6.0))
    out = similarity_warp(images, pose, size=(61, 71))[0, 0]
    mass = out / out.sum()
    x = (mass.sum(0) * (torch.arange(71) - 35)).sum().item()
    y = (mass.sum(1) * (torch.arange(61) - 30)).sum().item()
    assert [x, y] == pytest.approx((pose.matrix() @ torch.tensor([5.0, -3.0, 1.0])).tolist(), abs=0.02)


def test_each_image_has_its_own_pose():
    images = torch.rand(3, 1, 10, 10)
    poses = [Similarity(0.3, 0.8, (1.0, 2.0)), Similarity(1.0), Similarity(-2.0, 1.3, (-0.5, 0.25))]
    together = similarity_warp(images, per_image(*poses))
    for i, pose in enumerate(poses):
        assert torch.allclose(together[i : i + 1], similarity_warp(images[i : i + 1], pose), atol=1e-5)


def test_gradients_are_correct():
    images = torch.rand(2, 1, 7, 8, dtype=torch.float64, requires_grad=True)
    rotation = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([1.1, 0.9], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.2, 0.3], [-0.4, 0.1]], dtype=torch.float64, requires_grad=True)

    def warp(images, *fields):
        return similarity_warp(images, Similarity(*fields), size=(6, 5))

    assert torch.autograd.gradcheck(warp, (images, rotation, scale, shift))


def test_vmap_and_compile_give_the_same():
    images, rotation = torch.rand(3, 1, 12, 10), torch.tensor([0.3, -1.0, 2.0])

    def warp(images, rotation):
        return similarity_warp(images, Similarity(rotation, 1.2).compose(Similarity(shift_px=(1.0, 0.5))))

    expected = warp(images, rotation)
    mapped = torch.vmap(lambda image, angle: warp(image[None], angle[None])[0])(images, rotation)
    assert torch.allclose(mapped, expected, atol=1e-5)
    torch._dynamo.reset()
    compiled = torch.compile(warp, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(images, rotation), expected, atol=1e-5)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_a_non_finite_pose_gives_nan_for_its_image_only(padding_mode):
    nan = torch.tensor([0.0, math.nan])
    for pose in (Similarity(nan), Similarity(scale=1 + nan), Similarity(shift_px=torch.stack((nan, nan), 1))):
        warped = similarity_warp(torch.rand(2, 1, 6, 6), pose, padding_mode=padding_mode)
        assert torch.isfinite(warped[0]).all()
        assert torch.isnan(warped[1]).all()


def test_every_slice_of_a_volume_is_warped_like_an_image():
    volumes, pose = torch.rand(2, 3, 10, 8, 4), Similarity(torch.tensor([0.4, -1.1]))
    warped = similarity_warp(volumes, pose, size=(6, 9))
    assert warped.shape == (2, 3, 9, 6, 4)
    for z in range(4):
        image = similarity_warp(volumes[..., z].transpose(2, 3), pose, size=(6, 9))
        assert torch.allclose(warped[..., z].transpose(2, 3), image, atol=1e-6)


def test_a_scale_of_zero_is_refused():
    with pytest.raises(InputError, match="scale"):
        similarity_warp(torch.rand(2, 1, 5, 5), Similarity(scale=0.0))


@given(rows=st.floats(-7.5, 7.5), columns=st.floats(-8, 8))
@settings(max_examples=40, deadline=None)
def test_measure_shift_finds_fractional_shifts(rows, columns):
    def draw(row, column):
        y, x = torch.meshgrid(torch.arange(16.0), torch.arange(32.0), indexing="ij")
        wrapped = (y - row + 8) % 16 - 8
        return torch.exp(-(wrapped**2 / 6 + (x - column) ** 2 / 12))[None, None].double()

    shift = measure_shift(draw(5, 15), draw(5 + rows, 15 + columns))[0]
    assert shift.tolist() == pytest.approx([rows, columns], abs=0.1)


def test_columns_that_enter_do_not_bias_the_measured_shift():
    reference = torch.rand(1, 1, 8, 40)
    moved = torch.cat((torch.ones(1, 1, 8, 6), reference[..., :-6]), dim=-1)
    assert measure_shift(reference, moved)[0].tolist() == pytest.approx([0, 6], abs=0.2)


def test_an_affine_warp_by_the_inverse_of_a_pose_is_its_similarity_warp():
    images = torch.rand(2, 3, 9, 12)
    pose = Similarity(torch.tensor([0.4, -2.0]), torch.tensor([1.3, 0.6]), torch.tensor([[0.3, -1.7], [2.2, 0.9]]))
    matrix, options = pose.inverse().matrix(), {"size": (7, 8), "mode": "bicubic"}
    assert torch.allclose(
        affine_warp(images, matrix, **options), similarity_warp(images, pose, **options), atol=1e-5
    )
    matrix[1, 0, 2] = math.nan
    assert affine_warp(images, matrix).isnan().flatten(1).all(dim=1).tolist() == [False, True]
    with pytest.raises(InputError, match="shape"):
        affine_warp(images, matrix[:, :, :2])
