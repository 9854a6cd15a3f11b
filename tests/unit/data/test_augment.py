"""Augmentation is determined by its random numbers."""

import math

import pytest
import torch

from ptn import InputError, Similarity, similarity_warp
from ptn.data.augment import AugmentSpec, augment

GEOMETRY = ("rotation", "scale", "x", "y")
ASPECT = (*GEOMETRY, "direction", "amount")
SHAPE = (*GEOMETRY, "flip", "z_scale", "z")
COLOR = (*GEOMETRY, "brightness", "contrast", "saturation", "invert", "cut_x", "cut_y")


def neutral(names, count=1, **values):
    """Noise that changes nothing, except for the named numbers."""
    noise = torch.full((count, len(names)), 0.5)
    for name, value in values.items():
        noise[:, names.index(name)] = torch.as_tensor(value)
    return noise


def test_the_middle_of_the_noise_changes_nothing():
    spec = AugmentSpec(rotation_deg=180, scale=(0.5, 2), shift_px=3, brightness=0.4, contrast=0.5, saturation=0.5)
    images = torch.rand(2, 3, 9, 9)
    assert torch.allclose(augment(images, neutral(COLOR, 2), spec), images, atol=1e-5)
    assert spec.active
    assert not AugmentSpec(mode="bicubic", padding_mode="border").active


def test_noise_is_rotation_log_scale_and_shift():
    images = torch.rand(1, 2, 16, 16)
    spec = AugmentSpec(
        rotation_deg=90, scale=(0.5, 2.0), shift_px=4, mode="bicubic", crop_px=10, padding_mode="border"
    )
    out = augment(images, torch.tensor([[1.0, 0.25, 0.0, 0.75]]), spec)
    pose = Similarity(math.pi / 2, 2**-0.5, (-4.0, 2.0))
    expected = similarity_warp(images, pose, size=(10, 10), mode="bicubic", padding_mode="border")
    assert torch.allclose(out, expected, atol=1e-5)


def test_volumes_rotate_about_z():
    volumes = torch.rand(1, 1, 8, 8, 3)
    out = augment(volumes, neutral(GEOMETRY, rotation=1.0), AugmentSpec(rotation_deg=90))
    assert torch.allclose(out, volumes.rot90(1, (2, 3)), atol=1e-5)


def test_half_of_the_images_are_flipped_along_x():
    noise = neutral(SHAPE, 2, flip=[0.2, 0.7])
    for shape, axis in (((2, 3, 5, 6), 3), ((2, 2, 6, 5, 4), 2)):
        images = torch.rand(shape)
        out = augment(images, noise, AugmentSpec(mirror=True))
        assert torch.allclose(out[0], images[0].flip(axis - 1), atol=1e-5)
        assert torch.allclose(out[1], images[1], atol=1e-5)


def test_volumes_are_scaled_and_shifted_along_z():
    z = torch.arange(33.0) - 16
    volumes = torch.exp(-((z - 2) ** 2) / 18).expand(1, 1, 4, 4, 33)
    spec = AugmentSpec(z_scale=(0.8, 1.25), z_shift_px=3)
    out = augment(volumes, neutral(SHAPE, z_scale=1.0, z=0.0), spec)
    assert torch.allclose(out[0, 0, 1, 1], torch.exp(-(((z + 3) / 1.25 - 2) ** 2) / 18), atol=0.02)
    assert torch.allclose(augment(volumes, neutral(SHAPE), spec), volumes, atol=1e-5)
    shifted = augment(torch.ones(1, 1, 2, 2, 8), neutral(SHAPE, z=1.0), AugmentSpec(z_shift_px=3))
    assert torch.allclose(shifted[0, 0, 0, 0], torch.tensor([0.0, 0, 0, 1, 1, 1, 1, 1]))


def moments(images):
    """Sum, mean (x, y) and covariance (xx, xy, yy) of each image as a distribution, in pixels from the middle."""
    rows, columns = (torch.arange(n) - (n - 1) / 2 for n in images.shape[-2:])
    points = torch.stack((columns.expand(len(rows), -1), rows[:, None].expand(-1, len(columns)))).flatten(1)
    weights = images.flatten(1) / images.sum(dim=(1, 2, 3))[:, None]
    mean = weights @ points.T
    x, y = (points - mean[:, :, None]).unbind(dim=1)
    return (
        images.sum(dim=(1, 2, 3)),
        mean,
        torch.stack([(weights * p).sum(1) for p in (x * x, x * y, y * y)], dim=1),
    )


def test_aspect_stretches_along_a_direction_and_keeps_the_area():
    span = torch.arange(64.0) - 31.5
    images = torch.exp(-(span**2 + span[:, None] ** 2) / (2 * 4.0**2)).expand(3, 1, 64, 64)
    # a rotation by a quarter after a stretch by 1.5 along 0°, 45° and 120°; the last by its root, and shifted
    noise = neutral(ASPECT, 3, rotation=1.0, direction=[0, 0.25, 2 / 3], amount=[1, 1, 0.5], x=[0.5, 0.5, 1.0])
    out = augment(images, noise, AugmentSpec(rotation_deg=90, shift_px=5, aspect=2.25, mode="bicubic"))
    total, mean, covariance = moments(out)
    assert torch.allclose(total, images.sum(dim=(1, 2, 3)), rtol=1e-3)
    assert torch.allclose(mean, torch.tensor([[0, 0], [0, 0], [5.0, 0]]), atol=1e-2)
    for angle, ratio, terms in zip((90, 135, 210), (2.25, 2.25, 1.5), covariance, strict=True):
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        xx, xy, yy = (
            ratio * cos**2 + sin**2 / ratio,
            (ratio - 1 / ratio) * cos * sin,
            ratio * sin**2 + cos**2 / ratio,
        )
        assert torch.allclose(terms, 16 * torch.tensor([xx, xy, yy]), rtol=0.01, atol=0.02)


def test_an_aspect_of_one_is_the_plain_warp_also_compiled():
    images, options = (
        torch.rand(2, 1, 9, 9),
        {"rotation_deg": 180, "scale": (0.5, 2.0), "shift_px": 3, "crop_px": 7},
    )
    noise = torch.rand(2, len(ASPECT))
    noise[:, ASPECT.index("amount")] = 0
    spec = AugmentSpec(**options, aspect=2.0, mode="bicubic")
    plain = augment(images, noise[:, : len(GEOMETRY)], AugmentSpec(**options, mode="bicubic"))
    assert torch.allclose(augment(images, noise, spec), plain, atol=1e-5)
    compiled = torch.compile(augment, backend="aot_eager", fullgraph=True, dynamic=False)
    assert torch.allclose(compiled(images, noise, spec), plain, atol=1e-5)


def test_jitter_drops_its_share_of_voxels_in_all_channels():
    volumes = torch.ones(2, 2, 16, 16, 16)
    dropped = torch.rand(2, 16**3)
    out = augment(volumes, torch.cat((neutral(SHAPE, 2), dropped), dim=1), AugmentSpec(jitter=0.3))
    assert torch.equal(out[:, 0], out[:, 1])
    assert torch.allclose(out[:, 0], (dropped >= 0.3).float().view(2, 16, 16, 16), atol=1e-4)


LUMA = 0.299 + 0.587 / 2  # of (1, 0.5, 0)


@pytest.mark.parametrize(
    ("pixel", "option", "amount", "noise", "expected"),
    [
        ([0.7], "brightness", 0.4, 1.0, [1.0]),  # clamped
        ([0.7], "brightness", 0.4, 0.0, [0.3]),
        ([0.4, 0.6, 0.5], "contrast", 0.5, 1.0, [0.35, 0.65, 0.5]),
        ([1.0, 0.5, 0.0], "saturation", 1.0, 0.0, [LUMA] * 3),
        ([0.3], "saturation", 1.0, 0.0, [0.3]),  # gray images have none
        ([0.2, 0.5, 0.9], "invert", 0.2, 0.1, [0.8, 0.5, 0.1]),
        ([0.2, 0.5, 0.9], "invert", 0.2, 0.9, [0.2, 0.5, 0.9]),
    ],
)
def test_colors_change(pixel, option, amount, noise, expected):
    images = torch.tensor(pixel)[None, :, None, None]
    out = augment(images, neutral(COLOR, **{option: noise}), AugmentSpec(**{option: amount}))
    assert torch.allclose(out.flatten(), torch.tensor(expected), atol=1e-5)


def test_a_square_is_cut_out_of_all_channels_and_may_cross_the_border():
    noise = neutral(COLOR, 2, cut_x=[0.5, 0.0], cut_y=[0.5, 0.99])
    out = augment(torch.zeros(2, 3, 9, 12), noise, AugmentSpec(cutout_px=4))
    expected = torch.zeros(2, 9, 12)
    expected[0, 2:6, 4:8] = 0.5
    expected[1, 6:9, 0:2] = 0.5
    assert torch.equal(out, expected[:, None].expand_as(out))


@pytest.mark.parametrize(
    ("options", "shape", "names"),
    [
        ({"aspect": 1.5}, (1, 1, 8, 8, 8), ASPECT),
        ({"z_shift_px": 1.0}, (1, 1, 8, 8), SHAPE),
        ({"invert": 0.5}, (1, 1, 8, 8, 8), COLOR),
    ],
)
def test_options_for_images_and_for_volumes_are_not_mixed(options, shape, names):
    with pytest.raises(InputError, match="got shape"):
        augment(torch.rand(shape), neutral(names), AugmentSpec(**options))


@pytest.mark.parametrize(
    "options",
    [
        *({"scale": (2.0, 1.0)}, {"aspect": 0.8}, {"z_scale": (0.0, 1.0)}, {"contrast": 1.5}, {"mode": "x"}),
        *({"crop_px": 0}, {"cutout_px": -1}, {"jitter": 1.0}),
    ],
)
def test_impossible_options_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        AugmentSpec(**options)
