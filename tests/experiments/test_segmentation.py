"""The example of segmentation: its images, its training, its records and its page."""

import math
from pathlib import Path

import pytest
import torch

pytest.importorskip("skimage")

from experiments import segmentation
from ptn.errors import InputError
from ptn.models import count_parameters

PAGE = Path(__file__).parents[2] / "docs" / "segmentation.md"


def results():
    return segmentation.read_rows(segmentation.RESULTS)


def test_the_mask_is_the_coin_of_the_image_at_its_rotation_and_shift():
    shift = torch.tensor([[0.0, 0.0], [6.0, -8.0]])
    images, masks = segmentation.views([3, 3], torch.tensor([0.0, math.pi / 2]), shift)
    assert masks.mean() > 0.1
    moved = masks[0, 0].rot90(-1, (0, 1)).roll((-8, 6), (0, 1))
    assert (masks[1, 0] != moved).float().mean() < 0.01
    assert images[masks.bool()].mean() > images[~masks.bool()].mean() + 0.1


def test_the_plain_network_is_not_smaller():
    polar, plain = map(segmentation.make_model, ("polar", "plain"))
    assert count_parameters(polar) <= count_parameters(plain)


def test_every_recorded_polar_network_is_better_at_rotations_that_training_did_not_show():
    for trained, margin in (("upright", 3), ("rotated", 0)):
        rows = [row for row in results() if row.trained == trained]
        scores = {kind: [row.rotated for row in rows if row.network == kind] for kind in ("polar", "plain")}
        assert len(scores["polar"]) == len(scores["plain"]) == 3
        assert min(scores["polar"]) > max(scores["plain"]) + margin


def test_the_page_has_the_recorded_table(tmp_path):
    assert segmentation.table(results()) in PAGE.read_text(encoding="utf-8")
    copy = tmp_path / "page.md"
    copy.write_text(f"a\n{segmentation.TABLE_START}\nold\n{segmentation.TABLE_END}\nb\n")
    segmentation.segmentation(page=copy)
    assert "old" not in copy.read_text()
    assert segmentation.table(results()) in copy.read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rows"', '"row"'),
        ('"polar"', '"plain"'),
        ('"upright": 9', '"upright": 19'),
        ('"parameters": ', '"parameters": 0.5'),
        ("{", "["),
    ],
)
def test_damaged_results_are_refused_and_the_page_kept(tmp_path, old, new):
    page, damaged = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(f"{segmentation.TABLE_START}\nold\n{segmentation.TABLE_END}\n")
    damaged.write_text(segmentation.RESULTS.read_text().replace(old, new))
    with pytest.raises(InputError, match=r"results\.json"):
        segmentation.segmentation(output=damaged, page=page)
    assert "old" in page.read_text()
    page.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"page\.md"):
        segmentation.segmentation(page=page)
    assert page.read_bytes() == b"\xff"


def test_a_file_that_cannot_be_written_is_an_error_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(segmentation, "train", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InputError):
        segmentation.segmentation(output=tmp_path)


@pytest.mark.slow
def test_training_gives_the_recorded_advantage():
    scores = {}
    for kind in ("polar", "plain"):
        upright, scores[kind] = segmentation.test(segmentation.train(kind, 0, rotate=False))
        assert upright > 95
    assert scores["polar"] > scores["plain"] + 2
