"""An audit as JSON, Markdown and a picture."""

import json
from dataclasses import replace

import pytest

from ptn import write_audit
from ptn.evaluation import Answers, Audit, LayerError, Point
from ptn.reporting import render_audit
from ptn.reporting.audit import summarise
from ptn.reporting.figures import style
from ptn.reporting.figures.audit import draw

SETTINGS = {"mask": "circle", "mode": "bicubic", "scores": "logits", "layer_images": 8}


def point(kind, amount, consistency, accuracy=None, resampled=100.0):
    return Point(kind, amount, Answers(consistency, 0.1, accuracy), Answers(resampled, 0.01, accuracy))


@pytest.fixture
def audit():
    points = (
        point("rotation", 90.0, 60.0, 50.0),
        point("rotation", 0.0, 100.0, 66.0),
        point("rotation", 45.0, 80.0, 60.0, resampled=90.0),
        point("scale", 1.0, 100.0, 70.0),
        point("scale", 1.25, 70.0, 65.0),
        point("shift", 2.0, 95.0, 68.0),
    )
    layers = (
        LayerError("block.0", (8, 16, 16), "image", "rotation", 90.0, 0.5, 0.0),
        LayerError("block.0", (8, 16, 16), "image", "scale", 1.25, 0.4, 0.1),
        LayerError("polar", (4, 8, 8), "polar", "rotation", 90.0, 0.025, 0.0),
        LayerError("polar", (4, 8, 8), "polar", "scale", 1.25, None, None),
    )
    return Audit("net", "digits test", 200, (1, 28, 28), 10, 70.0, points, layers, SETTINGS, 1.5)


def test_the_summary_leaves_out_what_changes_nothing(audit):
    rotation, scale, shift = summarise(audit)
    assert (rotation.consistency, rotation.accuracy, rotation.worst.amount) == (70.0, 55.0, 90.0)
    assert rotation.resampling_consistency == 95.0
    assert (scale.consistency, shift.consistency) == (70.0, 95.0)


def test_markdown_has_every_number_and_says_what_it_is(audit):
    text = render_audit(audit)
    assert text.startswith("# Audit of net\n")
    assert "200 images of digits test, 1 × 28 × 28, 10 classes; accuracy as they are 70.0%, " in text
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    assert ["rotation", "70.0%", "60.0% at 90°", "0.100", "55.0%", "95.0%", "0.010"] in cells
    assert ["45°", "80.0%", "0.100", "60.0%", "90.0%", "0.010", "60.0%"] in cells
    assert ["×1.25", "70.0%", "0.100", "65.0%", "100.0%", "0.010", "65.0%"] in cells
    assert ["2 px", "95.0%", "0.100", "68.0%", "100.0%", "0.010", "68.0%"] in cells
    assert ["block.0", "8×16×16", "turned, scaled", "0.500", "0.000", "0.400", "0.100"] in cells
    assert ["polar", "4×8×8", "rolled, shifted", "0.025", "0.000", "–", "–"] in cells
    for says in ("*Resampled only*: images transformed and then transformed back", "seen through the largest disc"):
        assert says in text
    assert "Nothing is masked" in render_audit(replace(audit, settings=SETTINGS | {"mask": "none"}))
    assert "are probabilities" in render_audit(replace(audit, settings=SETTINGS | {"scores": "probabilities"}))


def test_accuracy_through_the_disc_is_not_taken_for_that_of_whole_images(audit, tmp_path):
    text = render_audit(audit)
    assert "accuracy as they are 70.0%, through the disc 66.0%." in text
    assert "the accuracy at 0°, 66.0%, is that through the disc, not that of the images as they are, 70.0%" in text
    written = letters(audit, tmp_path)
    assert "70.0% right as they are, 66.0% through a disc" in written
    assert "turned by, all seen through a disc" in written
    whole = replace(audit, settings=SETTINGS | {"mask": "none"})
    assert whole.accuracy_in_disc is None
    assert "through the disc" not in render_audit(whole)
    assert "through a disc" not in letters(whole, tmp_path)


def letters(audit, folder):
    """What is written in the picture of an audit."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    with style.paper():
        draw(audit, folder / "audit.svg")
    return (folder / "audit.svg").read_text(encoding="utf-8")


def without_accuracy(answers):
    return replace(answers, accuracy=None)


def unlabelled(audit):
    bare = [
        replace(p, transformed=without_accuracy(p.transformed), resampling=without_accuracy(p.resampling))
        for p in audit.points
    ]
    return replace(audit, accuracy=None, points=tuple(bare), layers=())


def test_without_labels_and_layers_nothing_is_said_about_them(audit):
    text = render_audit(unlabelled(audit))
    assert "no labels." in text
    assert "accura" not in text
    assert "Inner layers" not in text


def test_three_files_are_written(audit, tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    written = write_audit(audit, tmp_path / "new" / "folder")
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "audit.json",
        "audit.md",
        "audit.png",
    ]
    read = json.loads(written[0].read_text(encoding="utf-8"))
    assert read["points"][2]["resampling"]["consistency"] == 90.0
    assert read["layers"][3]["error"] is None
    assert written[1].read_text(encoding="utf-8") == render_audit(audit)
    picture = image_module.open(written[2]).convert("RGB")
    colors = {color for _, color in picture.getcolors(1 << 24)}
    assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0)} <= colors


@pytest.mark.parametrize("without", ["labels", "curves", "layers"])
def test_the_picture_draws_what_there_is(audit, tmp_path, without):
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    parts = {"labels": unlabelled(audit), "curves": replace(audit, points=()), "layers": replace(audit, layers=())}
    sizes = []
    for name, which in (("full", audit), ("less", parts[without])):
        with image_module.open(write_audit(which, tmp_path / name)[2]) as picture:
            sizes.append(picture.size)
    (wide, high), (narrow, low) = sizes
    assert narrow == wide
    assert low < high
