"""The film: origins follow, polar images shift, and every part ends where it began."""

import math

import pytest
import torch

import ptn
from ptn.reporting.figures import moving as figure


@pytest.fixture(scope="module")
def digit():
    rows = torch.linspace(-1, 1, 28)
    y, x = rows[:, None], rows[None, :]
    return torch.exp(-((x - 0.2) ** 2 + y**2) * 12) + 0.6 * torch.exp(-((x + 0.3) ** 2 + (y - 0.4) ** 2) * 30)


def test_every_part_ends_where_it_began():
    kinds, warp = figure.poses()
    assert len(kinds) == sum(figure.STEPS.values())
    for kind in figure.STEPS:
        first = kinds.index(kind)
        assert float(warp.rotation[first]) == 0
        assert warp.shift_px[first].tolist() == [0, 0]
        assert float(warp.scale[first]) == pytest.approx(float(warp.scale[0]))


def test_a_moved_digit_keeps_its_polar_image_and_a_turned_one_rolls(digit):
    frames = figure.film(digit)
    moved = frames.polar[: figure.STEPS["move"]]
    assert (moved - moved[0]).abs().max() < 0.12
    assert (frames.images[5] - frames.images[0]).abs().max() > 0.5
    quarter = frames.kinds.index("turn") + figure.STEPS["turn"] // 4
    turned = ptn.similarity_warp(frames.images[:1, None], ptn.Similarity(math.pi / 2))[0, 0]
    assert torch.allclose(frames.images[quarter], turned, atol=0.02)


def test_with_a_network_the_origins_and_answers_are_its_own(digit):
    model = ptn.create_model("ptn_s", image_size=48)
    torch.nn.init.normal_(model.transformer.predictor.head.weight)
    frames = figure.film(digit, model, classes=tuple("abcdefghij"))
    assert frames.images.shape[1:] == (48, 48)
    assert torch.equal(frames.origins, model.explain(frames.images[:, None]).origins)
    assert frames.answers[0][0] in "abcdefghij"


@pytest.mark.parametrize("model", [("ccnn_s", {}), ("ptn_s", {"in_chans": 3})])
def test_a_network_that_sees_no_polar_images_in_grey_is_refused(digit, model):
    name, options = model
    with pytest.raises(ptn.InputError, match="polar images in grey"):
        figure.film(digit, ptn.create_model(name, **options))


def test_it_is_written_as_a_film(digit, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    from PIL import Image

    monkeypatch.setattr(figure, "STEPS", {"move": 3, "turn": 3, "grow": 2})
    figure.draw(figure.film(digit), tmp_path / "moving.webp")
    with Image.open(tmp_path / "moving.webp") as made:
        assert (made.format, made.n_frames, made.info["loop"]) == ("WEBP", 8, 0)
