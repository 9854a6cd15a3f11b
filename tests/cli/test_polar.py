"""`ptn polar`: photographs to log-polar images and back, all or none."""

import json
import math
import os

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ptn import PolarGrid, polar_sample


@pytest.fixture
def photograph(tmp_path, photographs):
    """A colour photograph in a file, and its pixels as bytes (H, W, 3)."""
    pixels = (photographs[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path, pixels


def test_it_writes_the_polar_image_of_a_colour_photograph(ptn_cli, photograph, tmp_path):
    path, pixels = photograph
    outcome = ptn_cli("polar", path, "-o", tmp_path / "out", "--origin", "-0.2,0.1", "--angles", 90)
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip() == str(tmp_path / "out" / "photo.polar.png")
    written = np.asarray(Image.open(tmp_path / "out" / "photo.polar.png"))
    images = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    expected = polar_sample(images, torch.tensor([[-0.2, 0.1]]), PolarGrid(90, pixels.shape[1]))
    difference = written - expected[0].permute(1, 2, 0).numpy() * 255
    assert written.shape == (90, 160, 3)
    assert np.abs(difference).max() <= 0.51


def test_and_back_without_being_told_anything(ptn_cli, photograph, tmp_path):
    path, pixels = photograph
    ptn_cli("polar", path, "-o", tmp_path / "polar", "--origin", "0.1,0.05", "--angles", 720, "--radii", 480)
    outcome = ptn_cli("polar", "--inverse", tmp_path / "polar" / "photo.polar.png", "-o", tmp_path / "back")
    assert outcome.code == 0, outcome.err
    back = np.asarray(Image.open(tmp_path / "back" / "photo.back.png")).astype(float)
    assert back.shape == pixels.shape
    inner = np.s_[20:100, 40:120]
    assert np.abs(back - pixels)[inner].mean() < 3


@pytest.mark.parametrize(
    ("mode", "channels"),
    [("L", 1), ("RGB", 3), ("RGBA", 4), ("LA", 2), ("1", 1), ("P", 3), ("CMYK", 3), ("I;16", 1)],
)
def test_any_kind_of_picture_is_read(ptn_cli, tmp_path, mode, channels):
    source = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8))
    grey = Image.fromarray(np.full((20, 30), 32768, dtype=np.uint16))
    source = grey if mode == "I;16" else source.convert(mode)
    path = tmp_path / ("picture.jpg" if mode == "CMYK" else "picture.png")
    source.save(path)
    outcome = ptn_cli("polar", path, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    written = np.asarray(Image.open(tmp_path / "out" / "picture.polar.png"))
    assert (1 if written.ndim == 2 else written.shape[2]) == channels
    if mode == "I;16":
        assert abs(int(written[0, 0]) - 128) <= 1


def mistakes(tmp_path, photo):
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "cut.png").write_bytes(photo.read_bytes()[:2000])
    (tmp_path / "twin").mkdir()
    (tmp_path / "twin" / "photo.png").write_bytes(photo.read_bytes())
    (tmp_path / "blocked").write_text("a file where a folder should be")
    out = tmp_path / "out"
    return {
        "text.png: not an image": [photo, tmp_path / "text.png", "-o", out],
        "cut.png: cannot be read as an image": [photo, tmp_path / "cut.png", "-o", out],
        "no file at": [photo, tmp_path / "none.png", "-o", out],
        "would both become photo.polar.png": [photo, tmp_path / "twin" / "photo.png", "-o", out],
        "angles must be a whole number": [photo, "-o", out, "--angles", 0],
        "did you mean 'linear'": [photo, "-o", out, "--law", "lineal"],
        "did you mean 'bicubic'": [photo, "-o", out, "--interpolation", "cubic"],
        "--origin must be two numbers": [photo, "-o", out, "--origin", "middle"],
        "--origin must lie in the image": [photo, "-o", out, "--origin", "3,0"],
        "does not say what it is the polar image of": ["--inverse", photo, "-o", out],
        "leave those options out": ["--inverse", photo, "-o", out, "--angles", 9],
        "too large": [photo, "-o", out, "--angles", 10_000_000, "--radii", 100_000],
        "cannot create folder": [photo, "-o", tmp_path / "blocked" / "out"],
    }


def test_mistakes_say_what_to_do_and_leave_nothing(ptn_cli, photograph, tmp_path):
    for says, arguments in mistakes(tmp_path, photograph[0]).items():
        outcome = ptn_cli("polar", *arguments)
        assert outcome.code == 2, says
        assert says in outcome.err
        assert outcome.err.count("\n") == 1
        assert not (tmp_path / "out").exists(), says


@pytest.mark.parametrize("option", ["--angles", "--radii", "--r-max"])
def test_the_way_back_takes_no_grid_not_even_zero(ptn_cli, photograph, tmp_path, option):
    ptn_cli("polar", photograph[0], "-o", tmp_path)
    outcome = ptn_cli("polar", "--inverse", tmp_path / "photo.polar.png", "-o", tmp_path / "out", option, 0)
    assert outcome.code == 2
    assert "leave those options out" in outcome.err


GRID = {"angles": 12, "radii": 10}
FACTS = {"origin": [0, 0], "size": [20, 20], "grid": GRID}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "makes no sense (Expecting value"),
        ("{}", "makes no sense (it has no 'grid')"),
        ("[1]", "makes no sense"),
        ("[" * 100_000, "makes no sense"),
        (json.dumps(FACTS | {"grid": GRID | {"zoom": 2}}), "unexpected keyword argument 'zoom'"),
        (json.dumps(FACTS | {"grid": {"angles": 12}}), "it has no 'radii'"),
        (json.dumps(FACTS | {"grid": GRID | {"r_max_px": "wide"}}), "makes no sense"),
        (json.dumps(FACTS | {"grid": GRID | {"r_max_px": 10**400}}), "makes no sense"),
        (json.dumps(FACTS | {"grid": GRID | {"r_min_px": 15}}), "must exceed r_min"),
        (json.dumps(FACTS | {"grid": GRID | {"angles": 13}}), "is 12×10 but says that it is 13×10"),
        (json.dumps(FACTS | {"origin": [0]}), "makes no sense"),
        (json.dumps(FACTS | {"origin": [0, math.nan]}), "its origin is not finite"),
        (json.dumps(FACTS | {"size": [20, 20.5]}), "its size is not two whole numbers"),
        (json.dumps(FACTS | {"size": [20, -20]}), "its size is not two whole numbers"),
        (json.dumps(FACTS | {"size": 20}), "makes no sense"),
        (json.dumps(FACTS | {"size": [800_000, 800_000]}), "would become 800000×800000"),
    ],
    ids=range(16),
)
def test_what_a_polar_file_says_of_itself_is_not_trusted(ptn_cli, tmp_path, text, says):
    path = tmp_path / "made.polar.png"
    header = PngInfo()
    header.add_text("ptn-polar", text)
    Image.new("L", (10, 12), 100).save(path, pnginfo=header)
    outcome = ptn_cli("polar", "--inverse", path, "-o", tmp_path / "out")
    assert outcome.code == 2
    assert says in outcome.err
    assert str(path) in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_target_that_cannot_be_written_is_named(ptn_cli, photograph):
    outcome = ptn_cli("polar", photograph[0], "-o", "/proc")
    assert outcome.code == 2
    assert "/proc" in outcome.err
    assert ".part" not in outcome.err


def test_an_input_is_never_overwritten(ptn_cli, photograph, tmp_path):
    path, _ = photograph
    ptn_cli("polar", path, "-o", tmp_path)
    polar = tmp_path / "photo.polar.png"
    before = path.read_bytes()
    ptn_cli("polar", "--inverse", polar, "-o", tmp_path)
    assert path.read_bytes() == before
    assert (tmp_path / "photo.back.png").exists()
    outcome = ptn_cli("polar", path, polar, "-o", tmp_path)
    assert outcome.code == 2
    assert "is one of the inputs" in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_is_named(ptn_cli, photograph, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    outcome = ptn_cli("polar", photograph[0], "-o", locked)
    assert outcome.code == 2
    assert "cannot write" in outcome.err
