"""Figures of the library: style, quickstart, log-polar shifts, audits and overlays."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ptn
from ptn import figures
from ptn.evaluation import Agreement, Audit, LayerError, Point

pytest.importorskip("matplotlib", reason="figures need pip install 'ptn[figures]'")
from matplotlib.figure import Figure
from PIL import Image


def draw(path):
    figure = Figure(figsize=(2, 1))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=figures.BLUE)
    figures.faint_grid(axes)
    figures.save(figure, path)


def colors(path):
    with Image.open(path) as picture:
        return {color for _, color in picture.convert("RGB").getcolors(1 << 24)}


def text_of(path):
    return path.read_text(encoding="utf-8")


YELLOW, BLUE, VERMILION = (0xF0, 0xE4, 0x42), (0, 0x72, 0xB2), (0xD5, 0x5E, 0)


@pytest.mark.parametrize("kind", ["png", "webp", "svg"])
def test_the_suffix_is_the_format_and_files_are_reproducible(kind, tmp_path):
    starts = {"png": b"\x89PNG", "webp": b"RIFF", "svg": b"<?xml"}
    contents = []
    for name in "ab":
        with figures.paper():
            draw(tmp_path / f"{name}.{kind}")
        contents.append((tmp_path / f"{name}.{kind}").read_bytes())
    assert contents[0].startswith(starts[kind])
    assert contents[0] == contents[1]


@pytest.fixture
def digit():
    image = torch.zeros(28, 28)
    image[6:22, 9:12] = image[6:9, 9:20] = 1
    return image


def test_rotation_and_dilation_shift_the_log_polar_image(digit):
    _, _, rotations = figures.log_polar_shifts(digit, "rotation", (0.0, 90.0, 290.0))
    assert [measured for measured, _ in rotations] == pytest.approx([0, 24, 96 * 290 / 360], abs=0.2)
    images, polar, dilations = figures.log_polar_shifts(digit, "dilation", (1.0, 2.0))
    assert images.shape == polar.shape == (2, 96, 96)
    measured, theory = dilations[1]
    assert theory == pytest.approx(96 * np.log(2) / np.log(np.hypot(48, 48)))
    assert measured == pytest.approx(theory, abs=0.3)


def test_the_log_polar_figure_has_the_measured_shifts(digit, tmp_path):
    with figures.paper():
        figures.draw_log_polar(digit, tmp_path / "figure.svg")
    text = text_of(tmp_path / "figure.svg")
    for words in ("rotated 90°", "theory 24.00", "enlarged 2.4×", "landmark"):
        assert words in text


def test_the_quickstart_figure_shows_both_networks(tmp_path):
    images = torch.rand(3, 1, 42, 42)
    explanation = ptn.create_model("ptn_s", image_size=42).explain(images)
    angles = (0, 90, 180, 270)
    networks = (
        figures.QuickstartResult("PTN-S", 5.0, [0, 1, 2], [95, 94, 95, 93]),
        figures.QuickstartResult("CCNN-S", 20.0, [0, 1, 7], [80, 60, 50, 62]),
    )
    for suffix in ("svg", "png"):
        with figures.paper():
            path = tmp_path / f"figure.{suffix}"
            figures.draw_quickstart(path, images, [0, 1, 2], explanation, networks, angles=angles, note=", on 3")
    assert colors(tmp_path / "figure.png") >= {BLUE, VERMILION, YELLOW}
    text = text_of(tmp_path / "figure.svg")
    for words in ("CCNN-S: 7 ✗", "PTN-S: 2", "PTN-S: 5.0% test error", "rotation, on 3"):
        assert words in text


def test_the_figure_of_an_audit_shows_what_there_is(tmp_path):
    def point(kind, amount, consistency):
        return Point(kind, amount, Agreement(consistency, 0.1, 60.0), Agreement(100.0, 0.0, 66.0))

    points = [point("rotation", 10.0 * k, 100.0 - k) for k in range(36)]
    points += [point("scale", scale, 90.0) for scale in (0.8, 1.0, 1.25)] + [point("shift", 2.0, 95.0)]
    layers = (
        LayerError("block.0", (8, 16, 16), "image", "rotation", 90.0, 0.5),
        LayerError("polar", (4, 8, 8), "polar", "rotation", 90.0, None),
    )
    full = Audit("net", "digits", 200, (1, 28, 28), 10, 70.0, tuple(points), layers)
    unlabeled = [replace(p, transformed=replace(p.transformed, accuracy=None)) for p in points[30:]]
    texts = []
    for audit in (full, replace(full, accuracy=None, points=tuple(unlabeled), layers=())):
        with figures.paper():
            figures.draw_audit(audit, tmp_path / "audit.svg", "net on digits")
        texts.append(text_of(tmp_path / "audit.svg"))
    for words in ("net on digits", "inside a disc", "correct", "polar  (polar)", "equivariance error"):
        assert words in texts[0]
    assert "correct" not in texts[1]
    assert "equivariance error" not in texts[1]


def test_an_overlay_marks_the_origin_and_the_heatmap():
    image = torch.full((1, 32, 32), 200, dtype=torch.uint8)
    heatmap = torch.zeros(16, 16)
    heatmap[2:4, 12:14] = 1.0  # upper right
    picture = np.asarray(figures.overlay(image, (-0.5, 0.5), heatmap, caption="ant (97.0%)"))
    size = 32 * 12
    assert picture.shape == (size + 26, size, 3)
    assert picture[3 * size // 4, size // 4].tolist() == list(YELLOW)
    hot = picture[3 * size // 16, 13 * size // 16].astype(int)
    assert hot[0] > hot[1] + 60
    assert picture[size // 4, size // 4].tolist() == [200] * 3
    assert picture[size:].max() > 200  # the caption
    assert figures.overlay(image, None, heatmap).tobytes() == figures.overlay(image, None, -heatmap).tobytes()


def test_a_constant_heatmap_and_a_long_caption():
    image = torch.randint(0, 255, (3, 300, 40), dtype=torch.uint8)
    picture = figures.overlay(image, (1.0, -1.0), torch.ones(5, 5), caption="a very long class name (12.3%)")
    assert np.array_equal(np.asarray(picture)[20:300, :20], image.permute(1, 2, 0).numpy()[20:, :20])


def test_on_a_dark_page_the_background_is_dark_and_the_networks_keep_distinct_light_colors(tmp_path):
    pages = {}
    for dark in (False, True):
        with figures.paper(dark=dark):
            figure = Figure()
            axes = figure.subplots()
            for height, color in enumerate((figures.PTN_COLOR, figures.CNN_COLOR, figures.INK)):
                axes.plot([0, 1], [height, height], color=color, linewidth=40)
            figures.save(figure, tmp_path / "page.png")
        with Image.open(tmp_path / "page.png") as picture:
            pages[dark] = picture.convert("RGB")
        assert {line.get_color() for line in axes.lines} == (
            {figures.SKY, "#f0a030", "#e8ecf1"} if dark else {figures.PTN_COLOR, figures.CNN_COLOR, figures.INK}
        )
    assert min(pages[False].getpixel((2, 2))) > 240
    assert max(pages[True].getpixel((2, 2))) < 40
