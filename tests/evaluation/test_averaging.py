"""Answers averaged over origins: around which points, of which networks, and together with rotations."""

import pytest
import torch
from torch import nn

import ptn
from ptn.errors import InputError
from ptn.evaluation import scores
from ptn.evaluation.averaging import averaged_over
from ptn.geometry import Similarity, similarity_warp
from ptn.models import OnnxModel


def network(name, **options):
    """A network in evaluation mode; if it predicts origins, each image has one of its own."""
    model = ptn.create_model(name, **{"image_size": (20, 30), "num_classes": 3, **options}).eval()
    transformer = model.transformer
    predictor = getattr(transformer, "polar", transformer).predictor
    if predictor is not None:
        nn.init.normal_(predictor.head.weight)
    return model


def around(model, images, steps):
    """The mean score around the origins that a network finds, moved by `steps` in units of [-1, 1]."""
    with torch.no_grad():
        found = model.explain(images).origins
        answers = [model(images, origin=found + torch.tensor(step)).softmax(dim=1) for step in steps]
    return torch.stack(answers).mean(dim=0)


def test_a_neighbouring_origin_is_an_image_moved_by_a_pixel():
    """Of a network whose origin is the middle: it then looks at every other point that it would look at."""
    model = network("pcnn_s")
    images = torch.zeros(4, 1, 20, 30)
    images[..., 1:-1, 1:-1] = torch.rand(4, 1, 18, 28)
    moves = [(0, 0), (0, -1), (0, 1), (-1, 0), (1, 0)]
    moved = [scores(model, images.roll(move, dims=(2, 3))) for move in moves]
    averaged = scores(model, images, origins=5)
    torch.testing.assert_close(averaged, torch.stack(moved).mean(dim=0))
    assert (averaged - scores(model, images)).abs().max() > 1e-4


@pytest.mark.parametrize("options", [{}, {"two_stream": True}])
def test_the_neighbours_are_those_of_the_origin_that_is_found(options):
    model = network("ptn_s", **options)
    images = torch.rand(5, 1, 20, 30)
    assert model.explain(images).origins.std(dim=0).min() > 1e-3
    x, y = 2 / 30, 2 / 20
    expected = around(model, images, [(0, 0), (x, 0), (-x, 0), (0, y), (0, -y)])
    torch.testing.assert_close(scores(model, images, origins=5, batch=2), expected)
    torch.testing.assert_close(scores(ptn.for_inference(model), images, origins=5), expected)


def test_of_volumes_it_is_the_axis_that_moves():
    model = network("cylindrical", image_size=8)
    volumes = torch.rand(3, 1, 8, 8, 8)
    expected = around(model, volumes, [(0, 0), (0.25, 0), (-0.25, 0), (0, 0.25), (0, -0.25)])
    torch.testing.assert_close(scores(model, volumes, origins=5), expected)


def test_in_every_rotation_the_origin_is_found_anew():
    model = network("ptn_s")
    images = torch.rand(3, 1, 20, 30)
    half = similarity_warp(images, Similarity(torch.pi))
    expected = (scores(model, images, origins=5) + scores(model, half, origins=5)) / 2
    torch.testing.assert_close(scores(model, images, rotations=2, origins=5), expected)


def test_no_images_have_no_scores_but_classes():
    assert scores(network("ptn_s"), torch.zeros(0, 1, 20, 30), origins=5).shape == (0, 3)


@pytest.mark.parametrize("name", ["ccnn_s", "stn_s", "ptn_cnn_b"])
def test_networks_without_an_origin_of_their_own_are_refused(name):
    model = ptn.create_model(name, image_size=20)
    with pytest.raises(InputError, match=f"polar transformer of their own, which {name} has not: leave origins"):
        scores(model, torch.zeros(1, 1, 20, 20), origins=5)


def test_so_are_other_modules_and_other_numbers_of_origins():
    with pytest.raises(InputError, match="which Flatten has not: leave origins at 1"):
        scores(nn.Flatten(), torch.zeros(1, 1, 20, 20), origins=5)
    with pytest.raises(InputError, match="origins must be 1 or 5; got 3"):
        scores(network("ptn_s"), torch.zeros(1, 1, 20, 30), origins=3)


def test_an_onnx_file_takes_no_origin_whatever_was_exported(tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    ptn.export(ptn.create_model("ptn_s", image_size=20), tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"model\.onnx is an ONNX file, which takes no origin: leave origins at 1"):
        scores(OnnxModel(tmp_path / "model.onnx"), torch.zeros(1, 1, 20, 20), origins=5)


def test_what_was_averaged_is_said():
    assert averaged_over(1, 1) == ""
    assert averaged_over(8, 1) == ", averaged over 8 rotations"
    assert averaged_over(1, 5) == ", averaged over 5 origins"
    assert averaged_over(8, 5) == ", averaged over 8 rotations and 5 origins"
