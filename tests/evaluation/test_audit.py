"""Audits of classifiers whose every answer is known, and of those that are none."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import ptn
from ptn.data import Dataset
from ptn.evaluation.classifier import are_probabilities
from ptn.models.export import sample_images


def bright_side(images):
    """Whether the left (0) or the right half (1) of images is brighter."""
    left, right = images.mean(dim=1).chunk(2, dim=2)
    return torch.stack((left.sum(dim=(1, 2)), right.sum(dim=(1, 2))), dim=1)


def dot(x, y, side=32):
    image = torch.zeros(1, side, side)
    image[0, y - 1 : y + 2, x - 1 : x + 2] = 1
    return image


def point(audit, kind, amount):
    (found,) = [p for p in audit.points if (p.kind, p.amount) == (kind, amount)]
    return found


SIDES = torch.stack((dot(7, 15), dot(24, 15)))


def test_answers_to_turned_images_are_counted():
    audit = ptn.audit(bright_side, SIDES, [0, 1], angles=(0, 60, 180), scales=(), shifts_px=())
    assert audit.accuracy == 100
    for angle, stays in ((0, 100), (60, 100), (180, 0)):
        answers = point(audit, "rotation", angle).transformed
        assert (answers.consistency, answers.accuracy) == (stays, stays)
        assert point(audit, "rotation", angle).resampling.consistency == 100
    assert point(audit, "rotation", 0).transformed.change == 0
    assert point(audit, "rotation", 180).transformed.change > 0.9


def test_wrong_answers_can_be_consistent():
    audit = ptn.audit(bright_side, SIDES, [1, 1], angles=(60,), scales=(0.8,), shifts_px=())
    for found in audit.points:
        assert (found.transformed.consistency, found.transformed.accuracy) == (100, 50)


def test_shifts_go_four_ways():
    audit = ptn.audit(bright_side, SIDES[:1], angles=(), scales=(), shifts_px=(14,))
    # to the right the dot crosses the middle, to the left it leaves: of nothing the left half is as bright
    assert point(audit, "shift", 14).transformed.consistency == 75


def test_without_labels_there_is_no_accuracy():
    audit = ptn.audit(bright_side, SIDES, angles=(90,), scales=(), shifts_px=())
    assert audit.accuracy is None
    assert point(audit, "rotation", 90).transformed.accuracy is None
    assert point(audit, "rotation", 90).resampling.accuracy is None


def sharpness(images):
    """Two classes by how much neighbouring pixels differ: a classifier that sees interpolation, and no turns."""
    size = images.shape[-1]
    y, x = torch.meshgrid(*[torch.arange(size) - (size - 1) / 2] * 2, indexing="ij")
    inside = (torch.hypot(x, y) < size / 2 - 3).float()
    across = (images[..., 1:] - images[..., :-1]).square()[..., :-1, :]
    down = (images[..., 1:, :] - images[..., :-1, :]).square()[..., :-1]
    energy = ((across + down) * inside[:-1, :-1]).sum(dim=(1, 2, 3)) / inside.sum()
    return torch.stack((energy, torch.full_like(energy, 0.28)), dim=1)


def test_what_interpolation_does_is_seen_apart_from_turning():
    torch.manual_seed(0)
    images = torch.rand(8, 1, 33, 33)
    audit = ptn.audit(sharpness, images, angles=(45, 90), scales=(), shifts_px=())
    assert point(audit, "rotation", 90).transformed.consistency == 100
    assert point(audit, "rotation", 90).resampling.consistency == 100
    assert point(audit, "rotation", 45).transformed.consistency == 0
    assert point(audit, "rotation", 45).resampling.consistency == 0  # nothing turned: it was interpolation


def corners(images):
    """Whether the corners are brighter than a half."""
    value = images[..., 0, 0].mean(dim=1)
    return torch.stack((value, 0.5 + 0 * value), dim=1)


def test_through_the_disc_no_corner_comes_or_goes():
    images = torch.ones(3, 1, 20, 20)
    settings = {"angles": (45, 90), "scales": (0.8,), "shifts_px": ()}
    masked = ptn.audit(corners, images, **settings)
    assert point(masked, "rotation", 45).transformed.consistency == 100
    assert point(masked, "scale", 0.8).transformed.consistency == 0  # seen whole
    bare = ptn.audit(corners, images, mask="none", **settings)
    assert point(bare, "rotation", 45).transformed.consistency == 0
    assert point(bare, "rotation", 90).transformed.consistency == 100


def test_a_network_in_the_middle_of_the_image_is_invariant_to_quarter_turns():
    model = ptn.create_model("pcnn_b", image_size=32, angles=32).train()
    images = (sample_images((1, 32, 32), 24) * 255).byte()
    audit = ptn.audit(model, images, torch.zeros(24, dtype=torch.int64), angles=(0, 90, 180))
    assert (audit.model, audit.images, audit.shape, audit.classes) == ("pcnn_b", 24, (1, 32, 32), 10)
    for found in audit.curve("rotation"):
        assert found.transformed.change < 1e-5
    assert all(module.training for module in model.modules())
    assert [p.amount for p in audit.curve("scale")] == [0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4]
    assert [p.amount for p in audit.curve("shift")] == [0, 1, 2, 4]
    assert {error.layer for error in audit.layers} > {"transformer", "classifier.features.0", "(output)"}
    assert json.loads(json.dumps(audit.to_dict()))["points"][0]["kind"] == "rotation"


@pytest.mark.parametrize("batch", [None, 1, 7])
def test_batches_make_no_difference(batch):
    images, labels = sample_images((3, 24, 24), 20), torch.arange(20) % 10
    model = ptn.create_model("ptn_s", image_size=24, in_chans=3)
    settings = {"angles": (40,), "scales": (0.8,), "shifts_px": (2,), "layers": ()}
    one, other = (ptn.audit(model, images, labels, batch=b, **settings) for b in (20, batch))
    for ours, theirs in zip(one.points, other.points, strict=True):
        assert ours.transformed.consistency == theirs.transformed.consistency
        assert ours.transformed.change == pytest.approx(theirs.transformed.change, abs=1e-5)


def test_progress_counts_every_answer():
    calls = []
    images = sample_images((1, 24, 24), 40)
    ptn.audit(
        ptn.create_model("pcnn_s", image_size=24),
        images,
        angles=(0, 30, 120, 90),
        scales=(1.2,),
        shifts_px=(1, 0.5),
        layers=(),
        progress=lambda done, total: calls.append((done, total)),
    )
    # plain, masked; three turns and one there and back that 30° and 120° share; a scale and back; eight shifts,
    # the half ones there and back
    assert {total for _, total in calls} == {40 * (2 + 3 + 1 + 2 + 8 + 4)}
    assert sorted(calls)[-1] == calls[-1]
    assert calls[-1][0] == calls[-1][1]


def test_arrays_lists_bytes_and_data_sets_are_images_too():
    settings = {"angles": (180,), "scales": (), "shifts_px": ()}
    pixels = (SIDES * 255).byte()
    dataset = Dataset("sides", "test", pixels, torch.tensor([0, 1]), ("left", "right"))
    for images in (pixels, SIDES.numpy(), list(SIDES), dataset):
        audit = ptn.audit(bright_side, images, None if images is dataset else [0, 1], **settings)
        assert (audit.accuracy, audit.points[0].transformed.accuracy) == (100, 0)
    assert audit.data == "sides test"


def test_scores_of_functions_may_be_arrays_and_probabilities():
    settings = {"angles": (180,), "scales": (), "shifts_px": ()}
    logits = ptn.audit(lambda images: bright_side(images).numpy(), SIDES, **settings)
    shares = ptn.audit(lambda images: bright_side(images).softmax(dim=1), SIDES, **settings)
    assert (logits.settings["scores"], shares.settings["scores"]) == ("logits", "probabilities")
    assert logits.points[0].transformed.change == pytest.approx(shares.points[0].transformed.change, abs=1e-6)
    assert not are_probabilities(torch.tensor([[0.5, 0.6]]))
    assert not are_probabilities(torch.tensor([[1.5, -0.5]]))


@pytest.mark.slow
def test_an_onnx_file_and_weights_get_the_same_audit(tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    model = ptn.create_model("ccnn_s", image_size=20, num_classes=4).eval()
    ptn.save_weights(model, tmp_path / "model.safetensors")
    ptn.export(model, tmp_path / "model.onnx")
    images = sample_images((1, 20, 20), 12)
    settings = {"angles": (30, 90), "scales": (0.8,), "shifts_px": (1,)}
    whole, file, weights = (
        ptn.audit(given, images, **settings)
        for given in (model, tmp_path / "model.onnx", str(tmp_path / "model.safetensors"))
    )
    for ours, onnx, saved in zip(whole.points, file.points, weights.points, strict=True):
        assert ours.transformed.change == pytest.approx(onnx.transformed.change, abs=1e-5)
        assert ours.transformed.change == pytest.approx(saved.transformed.change, abs=1e-6)
    assert (whole.layers != (), file.layers) == (True, ())
    assert file.model.endswith("model.onnx")


def test_volumes_turn_about_their_axis():
    model = ptn.create_model("cylindrical", image_size=16, origin="center")
    volumes = sample_images((1, 16, 16, 16), 3).byte()
    audit = ptn.audit(model, volumes, angles=(90, 45), scales=(), shifts_px=(), layers=())
    assert point(audit, "rotation", 90).transformed.change < 1e-5
    assert audit.shape == (1, 16, 16, 16)


class Pair(nn.Module):
    def forward(self, images):
        return bright_side(images), None


def test_mistakes_are_one_line(tmp_path):
    image = torch.zeros(2, 1, 8, 8)
    sided = ptn.create_model("ccnn_s", image_size=8)
    mistakes = [
        (r"2 images but labels of shape \(3,\)", lambda: ptn.audit(bright_side, SIDES, [0, 1, 1])),
        ("label 2 is outside the 2 classes", lambda: ptn.audit(bright_side, SIDES, [0, 2])),
        ("labels count from 0; got -1", lambda: ptn.audit(bright_side, SIDES, [0, -1])),
        ("labels are the numbers of classes; got torch.float32", lambda: ptn.audit(bright_side, SIDES, [0.0, 1.0])),
        (r"gives scores \(2, classes\)", lambda: ptn.audit(lambda x: x.mean(dim=(1, 2, 3)), SIDES)),
        (r"gives scores \(2, classes\)", lambda: ptn.audit(lambda x: bright_side(x)[:1], SIDES)),
        ("this one gives a list", lambda: ptn.audit(lambda x: [1, 2], SIDES)),
        ("this one gives a tuple", lambda: ptn.audit(Pair(), SIDES)),
        ("are not finite", lambda: ptn.audit(lambda x: bright_side(x) / 0, SIDES)),
        (r"shape, \(1, 8, 8\) and \(3, 8, 8\)", lambda: ptn.audit(sided, [image[0], image[0].expand(3, 8, 8)])),
        ("these go from 0 to 255", lambda: ptn.audit(bright_side, SIDES * 255)),
        ("got torch.int64", lambda: ptn.audit(bright_side, SIDES.long())),
        (r"at least one; got shape \(0, 1, 8, 8\)", lambda: ptn.audit(bright_side, image[:0])),
        (r"at least one; got shape \(1, 8, 8\)", lambda: ptn.audit(bright_side, image[0])),
        ("or a data set; got dict", lambda: ptn.audit(bright_side, {})),
        ("or a data set; got str", lambda: ptn.audit(bright_side, "photos")),
        ("expected a torch module, a function of images", lambda: ptn.audit(7, SIDES)),
        ("no ONNX file at", lambda: ptn.audit(tmp_path / "none.onnx", SIDES)),
        ("no weights at", lambda: ptn.audit(tmp_path / "none.safetensors", SIDES)),
        (r"takes \(N, 1, 8, 8\); got", lambda: ptn.audit(sided, SIDES)),
        (
            "inner layers can be looked at in torch modules only",
            lambda: ptn.audit(bright_side, SIDES, layers=["a"]),
        ),
        ("unknown mask 'disc'", lambda: ptn.audit(bright_side, SIDES, mask="disc")),
        ("scales positive", lambda: ptn.audit(bright_side, SIDES, scales=(0,))),
        ("must be finite", lambda: ptn.audit(bright_side, SIDES, angles=(np.nan,))),
        ("batch must be at least 1", lambda: ptn.audit(bright_side, SIDES, batch=0)),
    ]
    for says, ask in mistakes:
        with pytest.raises(ptn.InputError, match=says) as caught:
            ask()
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_networks_of_timm_can_be_audited():
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # torchvision of another torch raises the latter
        pytest.skip(f"timm cannot be imported: {error}")
    images = sample_images((3, 96, 96), 4)
    for name, layer in (
        ("resnet18", "layer4.1"),
        ("convnext_atto", "stages.3"),
        ("efficientnet_lite0", "blocks.6.0"),
    ):
        audit = ptn.audit(timm.create_model(name, num_classes=5), images, angles=(90,), scales=(), shifts_px=())
        assert audit.classes == 5
        assert layer in {error.layer for error in audit.layers}
