"""The picture of a network: its sizes are the network's, and it can be drawn."""

import pytest
import torch

import ptn
from ptn.reporting.figures import architecture as figure

DIGITS = tuple("0123456789")


def shapes(stages):
    return [stage.shape for stage in stages]


def test_sizes_are_read_off_the_network():
    reading = figure.read(ptn.create_model("ptn_b", image_size=96), torch.rand(1, 96, 96))
    assert shapes(reading.predictor) == [(20, 48, 48), (20, 24, 24), (20, 24, 24)]
    assert [shape[0] for shape in shapes(reading.classifier)] == [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    assert shapes(reading.classifier)[-1] == (64, *reading.seen.feature_maps.shape[2:])
    assert reading.parameters == 136_663
    assert reading.wraps
    assert not figure.read(ptn.create_model("ptn_s", wrap=False), torch.rand(1, 28, 28)).wraps


def test_other_networks_give_other_sizes():
    reading = figure.read(ptn.create_model("ptn_resnet32", image_size=32, in_chans=3), torch.rand(3, 32, 32))
    assert {stage.kind for stage in reading.classifier} == {"block", "residual block"}
    assert shapes(reading.classifier)[-1] == (64, 8, 8)


def test_reading_leaves_no_hooks_behind():
    model = ptn.create_model("ptn_s")
    figure.read(model, torch.rand(1, 28, 28))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["ccnn_s", "pcnn_s", "ptn_cnn_b"])
def test_a_network_without_a_learned_origin_is_refused(name):
    with pytest.raises(ptn.InputError, match="learned origin"):
        figure.read(ptn.create_model(name), torch.rand(1, 28, 28))


@pytest.mark.parametrize(("name", "size"), [("ptn_b", 42), ("ptn_b", 96), ("ptn_s", 28), ("ptn_l", 28)])
def test_headings_stand_clear_of_the_numbers_of_channels(name, size, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    kept = []
    monkeypatch.setattr(figure, "save", lambda drawn, path: kept.append(drawn))
    figure.draw(
        ptn.create_model(name, image_size=size), torch.rand(1, size, size), tmp_path, title="", classes=DIGITS
    )
    kept[0].canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in kept[0].axes[0].texts}
    numbers = [box for text, box in boxes.items() if text.isdigit()]
    assert numbers
    for part in ("origin predictor", "classifier"):
        heading = next(box for text, box in boxes.items() if text.startswith(part))
        assert not [box for box in numbers if box.overlaps(heading)]


@pytest.mark.parametrize(("name", "channels"), [("ptn_s", 1), ("ptn_resnet32", 3)])
def test_the_picture_can_be_drawn(name, channels, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    model = ptn.create_model(name, image_size=(40, 32), in_chans=channels)
    path = tmp_path / "architecture.svg"
    figure.draw(model, torch.rand(channels, 40, 32), path, title="a network", classes=DIGITS)
    text = path.read_text(encoding="utf-8")
    for says in ("origin predictor", "32 × 40", "40 angles × 32 radii", "20×16", "polar transformer"):
        assert says in text
