"""Audits of classifiers whose every prediction is known."""

import json

import numpy as np
import pytest
import torch

import ptn
from ptn.data import Dataset
from ptn.evaluation import Agreement, Audit, LayerError, Point
from ptn.evaluation.audit import round_trip
from ptn.evaluation.equivariance import Transform
from ptn.models.export import sample_images


def brighter_side(images):
    """Logits: sums over the left and the right half."""
    left, right = images.mean(dim=1).chunk(2, dim=2)
    return torch.stack((left.sum(dim=(1, 2)), right.sum(dim=(1, 2))), dim=1)


def dot(x, y, side=32):
    image = torch.zeros(1, side, side)
    image[0, y - 1 : y + 2, x - 1 : x + 2] = 1
    return image


def point(audit, kind, amount):
    (match,) = [p for p in audit.points if (p.kind, p.amount) == (kind, amount)]
    return match


SIDES = torch.stack((dot(7, 15), dot(24, 15)))
ONLY_180 = {"angles": (180,), "scales": (), "shifts_px": ()}


def test_predictions_for_rotated_images_are_counted():
    calls = []
    options = {"angles": (0, 60, 180), "scales": (), "shifts_px": (), "batch": 1}
    audit = ptn.audit(brighter_side, SIDES, [0, 1], **options, progress=lambda *counts: calls.append(counts))
    assert audit.accuracy == 100
    for angle, expected in ((0, 100), (60, 100), (180, 0)):
        result = point(audit, "rotation", angle)
        assert (result.transformed.consistency, result.transformed.accuracy) == (expected, expected)
        assert result.resampling.consistency == 100
    assert point(audit, "rotation", 0).transformed.change == 0
    assert point(audit, "rotation", 180).transformed.change > 0.9
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_a_shift_is_the_mean_over_four_directions():
    audit = ptn.audit(brighter_side, SIDES[:1], angles=(), scales=(), shifts_px=(14,))
    # To the right the dot crosses the center. To the left it leaves the image: of equal scores the first wins.
    assert point(audit, "shift", 14).transformed.consistency == 75
    assert audit.accuracy is None
    assert point(audit, "shift", 14).transformed.accuracy is None


def sharpness(images):
    """Two classes by the differences of neighboring pixels: sensitive to interpolation, not to rotation."""
    size = images.shape[-1]
    y, x = torch.meshgrid(*[torch.arange(size) - (size - 1) / 2] * 2, indexing="ij")
    inside = (torch.hypot(x, y) < size / 2 - 3).float()
    across = (images[..., 1:] - images[..., :-1]).square()[..., :-1, :]
    down = (images[..., 1:, :] - images[..., :-1, :]).square()[..., :-1]
    energy = ((across + down) * inside[:-1, :-1]).sum(dim=(1, 2, 3)) / inside.sum()
    return torch.stack((energy, torch.full_like(energy, 0.28)), dim=1)


def test_the_effect_of_interpolation_is_measured_separately():
    audit = ptn.audit(sharpness, torch.rand(8, 1, 33, 33), angles=(45, 90), scales=(), shifts_px=())
    for angle, expected in ((90, 100), (45, 0)):
        result = point(audit, "rotation", angle)
        assert (result.transformed.consistency, result.resampling.consistency) == (expected, expected)


@pytest.mark.parametrize(
    ("kind", "amount", "size", "exact"),
    [
        ("rotation", 90.0, (24, 24), True),
        ("rotation", 180.0, (24, 30), True),
        ("rotation", 90.0, (24, 31), False),
        ("shift", 3.0, (24, 30), True),
        ("shift", 0.5, (24, 30), False),
        ("scale", 1.25, (24, 24), False),
    ],
)
def test_a_round_trip_only_interpolates(kind, amount, size, exact):
    images = sample_images((3, *size), 2)
    difference = (round_trip(images, Transform.of(kind, amount).pose) - images).abs()
    assert (difference.max() < 1e-4) == exact
    assert difference.mean() < 0.06  # nothing is cut off or moved


def corner(images):
    value = images[..., 0, 0].mean(dim=1)
    return torch.stack((value, 0.5 + 0 * value), dim=1)


def test_the_disc_hides_the_corners_of_rotated_images():
    images = torch.ones(3, 1, 20, 20)
    audit = ptn.audit(corner, images, angles=(45,), scales=(0.8,), shifts_px=())
    assert point(audit, "rotation", 45).transformed.consistency == 100
    assert point(audit, "scale", 0.8).transformed.consistency == 0


def test_a_polar_network_is_invariant_to_quarter_rotations():
    model = ptn.create_model("pcnn_b", image_size=32, angles=32).train()
    images = (sample_images((1, 32, 32), 24) * 255).byte()
    audit = ptn.audit(model, images, torch.zeros(24, dtype=torch.int64), angles=(0, 90, 180), batch=10)
    assert (audit.model, audit.images, audit.shape, audit.classes) == ("pcnn_b", 24, (1, 32, 32), 10)
    assert all(p.transformed.change < 1e-5 for p in audit.curve("rotation"))
    assert all(module.training for module in model.modules())
    assert [p.amount for p in audit.curve("scale")] == [0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4]
    assert [p.amount for p in audit.curve("shift")] == [0, 1, 2, 4]
    assert {error.layer for error in audit.layers} > {"transformer", "classifier.features.0", "(output)"}


def test_volumes_rotate_about_z():
    model = ptn.create_model("cylindrical", image_size=16, origin="center")
    volumes = sample_images((1, 16, 16, 16), 3).byte()
    audit = ptn.audit(model, volumes, angles=(90, 45), scales=(), shifts_px=())
    assert point(audit, "rotation", 90).transformed.change < 1e-5
    assert audit.shape == (1, 16, 16, 16)


def test_bytes_arrays_data_sets_and_probabilities():
    pixels = (SIDES * 255).byte()
    dataset = Dataset("sides", "test", pixels, torch.tensor([0, 1]), ("left", "right"))
    for images in (pixels, SIDES.numpy(), dataset):
        audit = ptn.audit(brighter_side, images, None if images is dataset else [0, 1], **ONLY_180)
        assert (audit.accuracy, audit.points[0].transformed.accuracy) == (100, 0)
    assert audit.data == "sides test"
    arrays = ptn.audit(lambda images: brighter_side(images).numpy(), SIDES, **ONLY_180)
    shares = ptn.audit(lambda images: brighter_side(images).softmax(dim=1), SIDES, **ONLY_180)
    for other in (arrays, shares):
        assert other.points[0].transformed.change == pytest.approx(audit.points[0].transformed.change, abs=1e-5)


@pytest.mark.slow
def test_files_of_a_model_have_the_same_audit(tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    model = ptn.create_model("ccnn_s", image_size=20, num_classes=4).eval()
    ptn.save_weights(model, tmp_path / "model.safetensors")
    ptn.export(model, tmp_path / "model.onnx")
    images = sample_images((1, 20, 20), 12)
    settings = {"angles": (30, 90), "scales": (0.8,), "shifts_px": (1,)}
    sources = (model, tmp_path / "model.onnx", str(tmp_path / "model.safetensors"))
    audits = [ptn.audit(source, images, **settings) for source in sources]
    for points in zip(*(audit.points for audit in audits), strict=True):
        assert [p.transformed.change for p in points] == pytest.approx([points[0].transformed.change] * 3, abs=1e-5)
    assert [bool(audit.layers) for audit in audits] == [True, False, True]


@pytest.mark.parametrize(
    ("model", "images", "options", "word"),
    [
        (brighter_side, SIDES, {"labels": [0, 1, 1]}, r"shape \(3,\)"),
        (brighter_side, SIDES, {"labels": [0, 2]}, "outside the 2 classes"),
        (brighter_side, SIDES, {"labels": [0.0, 1.0]}, r"labels must be .* \[0\.0"),
        (lambda x: x.mean(dim=(1, 2, 3)), SIDES, {}, r"\(2, classes\)"),
        (lambda x: (brighter_side(x), None), SIDES, {}, "got tuple"),
        (lambda x: brighter_side(x) / 0, SIDES, {}, "not finite"),
        (brighter_side, SIDES * 255, {}, "up to 255"),
        (brighter_side, SIDES[0], {}, r"got \(1, 32, 32\)"),
        (brighter_side, SIDES, {"scales": (0,)}, "positive"),
        (brighter_side, SIDES, {"angles": (np.nan,)}, "finite"),
    ],
)
def test_invalid_input(model, images, options, word):
    with pytest.raises(ptn.InputError, match=word):
        ptn.audit(model, images, **options)


def result(kind, amount, consistency, accuracy=None, resampled=100.0):
    return Point(kind, amount, Agreement(consistency, 0.1, accuracy), Agreement(resampled, 0.01, accuracy))


def test_the_written_report_has_every_number(tmp_path):
    pytest.importorskip("matplotlib", reason="figures need pip install 'ptn[figures]'")
    points = (
        result("rotation", 90.0, 60.0, 50.0),
        result("rotation", 0.0, 100.0, 66.0),
        result("rotation", 45.0, 80.0, 60.0, resampled=90.0),
        result("scale", 1.25, 70.0, 65.0),
    )
    layers = (
        LayerError("block.0", (8, 16, 16), "image", "rotation", 90.0, 0.5),
        LayerError("block.0", (8, 16, 16), "image", "scale", 1.25, 0.4),
        LayerError("polar", (4, 8, 8), "polar", "rotation", 90.0, 0.025),
        LayerError("polar", (4, 8, 8), "polar", "scale", 1.25, None),
    )
    report = Audit("net", "digits test", 200, (1, 28, 28), 10, 70.0, points, layers)
    paths = ptn.write_audit(report, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["audit.json", "audit.md", "audit.png"]
    read = json.loads(paths[0].read_text(encoding="utf-8"))
    assert read["points"][2]["resampling"]["consistency"] == 90.0
    assert read["layers"][3]["error"] is None
    text = paths[1].read_text(encoding="utf-8")
    assert "200 images of digits test, 1 × 28 × 28, 10 classes; accuracy 70.0%, inside the disc 66.0%." in text
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    # Means without the identity.
    assert ["rotation", "60.0% at 90°", "70.0%", "0.100", "55.0%", "95.0%", "0.010", "55.0%"] in cells
    assert ["rotation 45°", "80.0%", "0.100", "60.0%", "90.0%", "0.010", "60.0%"] in cells
    assert ["block.0", "8×16×16", "transformed", "0.500", "0.400"] in cells
    assert ["polar", "4×8×8", "rolled, shifted", "0.025", "–"] in cells

    unlabeled = Audit("net", "", 200, (1, 28, 28), 10, None, (result("scale", 1.25, 70.0),), ())
    text = ptn.write_audit(unlabeled, tmp_path)[1].read_text(encoding="utf-8")
    assert "no labels" in text
    assert "accuracy" not in text
    assert "Inner layers" not in text
