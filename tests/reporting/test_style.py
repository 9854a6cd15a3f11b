"""The look that all pictures share: ink on light and on dark paper, and files that repeat."""

import numpy as np
import pytest

from ptn.reporting.figures import style

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")


def draw(path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=style.BLUE)
    style.faint_grid(axis)
    style.save(figure, path)


def test_ink_and_paper_change_places_in_the_dark(tmp_path):
    from PIL import Image

    corners = []
    for dark in (False, True):
        with style.paper(dark=dark):
            draw(tmp_path / "made.png")
            assert sum(int(style.ink()[i : i + 2], 16) for i in (1, 3, 5)) > 3 * 128 or not dark
        corners.append(Image.open(tmp_path / "made.png").convert("L").getpixel((0, 0)))
    assert corners[0] == 255
    assert corners[1] < 30


def test_our_colours_stay_as_they_are_in_a_colourful_picture(tmp_path):
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(3, 3))
    axis = figure.subplots()
    axis.imshow(np.random.default_rng(0).random((40, 40, 3)))
    axis.plot([10, 20], [20, 20], color=style.YELLOW, linewidth=4)
    style.save(figure, tmp_path / "made.png")
    with Image.open(tmp_path / "made.png") as picture:
        assert picture.mode == "P"
        colours = [colour for _, colour in picture.convert("RGB").getcolors(1 << 24)]
    assert (0xF0, 0xE4, 0x42) in colours
    assert (255, 255, 255) in colours
    assert len(colours) > 200


@pytest.mark.parametrize("kind", style.FORMATS)
def test_the_suffix_says_the_format_and_a_file_repeats_bit_for_bit(kind, tmp_path):
    starts = {"png": b"\x89PNG", "webp": b"RIFF", "svg": b"<?xml", "pdf": b"%PDF"}
    made = []
    for name in "ab":
        with style.paper():
            draw(tmp_path / f"{name}.{kind}")
        made.append((tmp_path / f"{name}.{kind}").read_bytes())
    assert made[0].startswith(starts[kind])
    assert made[0] == made[1]


def test_lines_of_shifts_are_explained(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    figure.subplots()
    with style.paper():
        style.explain_shift_lines(figure)
        style.save(figure, tmp_path / "made.svg")
    text = (tmp_path / "made.svg").read_text(encoding="utf-8")
    for says in (
        "a landmark of the first picture",
        "where the measured shift carries it",
        style.YELLOW,
        style.GREEN,
    ):
        assert says in text
