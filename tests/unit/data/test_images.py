"""Image files: depths and modes, fitting to a size, polar files, contact sheets."""

import json

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin

from ptn.data.dataset import Dataset
from ptn.data.images import contact_sheet, fit_image, from_polar, read_image, to_polar, view_from_above, write_png
from ptn.errors import InputError
from ptn.geometry import PolarGrid, polar_sample


def saved(tmp_path, values, suffix="tif"):
    path = tmp_path / f"picture.{suffix}"
    (values if isinstance(values, Image.Image) else Image.fromarray(values)).save(path)
    return path


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_16_bit_values_are_divided_by_65535(tmp_path, suffix):
    values = np.array([[0, 1, 255], [256, 40_000, 65_535]], dtype=np.uint16)
    image, _ = read_image(saved(tmp_path, values, suffix))
    torch.testing.assert_close(image, torch.from_numpy(values / np.float32(65535))[None])


def test_floats_are_kept(tmp_path):
    values = np.array([[0.0, 0.25, 1.0]], dtype=np.float32)
    assert np.array_equal(read_image(saved(tmp_path, values))[0][0], values)


@pytest.mark.parametrize("values", [[0.0, 255.0], [-0.1, 1.0], [np.nan, 1.0], [0, 255]])
def test_32_bit_values_without_a_known_white_are_refused(tmp_path, values):
    kind = np.float32 if isinstance(values[0], float) else np.int32
    path = saved(tmp_path, np.array([values], dtype=kind))
    with pytest.raises(InputError, match="8 or 16 bits"):
        read_image(path)


@pytest.mark.parametrize(
    ("image", "channels"),
    [
        (Image.new("1", (4, 4), 1), [1.0]),
        (Image.new("LA", (4, 4), (255, 51)), [1.0, 0.2]),
        (Image.new("RGBA", (4, 4), (51, 102, 255, 0)), [0.2, 0.4, 1.0, 0.0]),
        (Image.new("RGB", (4, 4), (255, 0, 0)).quantize(), [1.0, 0.0, 0.0]),
    ],
)
def test_channels_are_those_of_the_file(tmp_path, image, channels):
    pixels, _ = read_image(saved(tmp_path, image, "png"))
    assert pixels[:, 2, 1].tolist() == pytest.approx(channels)


def test_the_exif_orientation_is_applied(tmp_path):
    image = Image.new("L", (6, 4), 0)
    image.paste(255, (0, 0, 6, 1))  # a bright top row
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90° clockwise to display
    image.save(tmp_path / "x.png", exif=exif)
    pixels = read_image(tmp_path / "x.png")[0][0]
    assert pixels.shape == (6, 4)
    assert (pixels[:, 3] == 1).all()
    assert (pixels[:, :3] == 0).all()


@pytest.mark.parametrize("content", [None, b"", b"text", "half", "folder"])
def test_a_file_that_is_not_an_image_is_named(tmp_path, content):
    path = tmp_path / "x.png"
    if content == "folder":
        path.mkdir()
    elif content == "half":
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(path)
        path.write_bytes(path.read_bytes()[:-1000])
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.png"):
        read_image(path)


@pytest.mark.parametrize(
    ("color", "gray", "rgb"),
    [
        ([0.2], [51], [51, 51, 51]),
        ([0.0, 0.0], [255], [255, 255, 255]),  # transparent pixels are white
        ([1.0, 0.0, 0.0], [round(0.299 * 255)], [255, 0, 0]),
        ([0.2, 0.4, 0.6, 1.0], [round(255 * (0.2 * 0.299 + 0.4 * 0.587 + 0.6 * 0.114))], [51, 102, 153]),
    ],
)
def test_channels_are_converted(color, gray, rgb):
    picture = torch.tensor(color)[:, None, None].expand(-1, 4, 4)
    assert fit_image(picture, (4, 4), 1, "resize")[:, 1, 1].tolist() == gray
    assert fit_image(picture, (4, 4), 3, "resize")[:, 1, 1].tolist() == rgb


def test_resize_changes_the_aspect_ratio_and_pad_keeps_it():
    wide = torch.full((1, 20, 40), 0.8)
    assert (fit_image(wide, (10, 10), 1, "resize") == 204).all()
    padded = fit_image(wide, (10, 10), 1, "pad")
    assert (padded[:, 2:7] == 204).all()
    assert not padded[:, :2].any()
    assert not padded[:, 7:].any()


def test_reduction_is_antialiased_and_the_right_size_is_kept():
    lines = torch.zeros(1, 64, 64)
    lines[:, :, ::8] = 240 / 255
    assert fit_image(lines, (8, 8), 1, "resize").float().mean().item() == pytest.approx(30, abs=3)
    noise = torch.randint(0, 256, (3, 9, 7))
    for fit in ("resize", "pad"):
        assert torch.equal(fit_image(noise / 255, (9, 7), 3, fit), noise.byte())


@pytest.fixture
def photo(tmp_path):
    y, x = torch.meshgrid(torch.linspace(-1, 1, 60), torch.linspace(-1, 1, 80), indexing="ij")
    write_png(torch.stack((x, y, x * y)) / 2 + 0.5, tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_polar_files_are_polar_samples_and_can_be_inverted(photo, tmp_path):
    (polar_path,) = to_polar([photo], tmp_path / "out", origin=(0.1, -0.2), angles=256, radii=128, mode="bicubic")
    assert polar_path == tmp_path / "out" / "photo.polar.png"
    image, polar = read_image(photo)[0], read_image(polar_path)[0]
    expected = polar_sample(image[None], torch.tensor([[0.1, -0.2]]), PolarGrid(256, 128), mode="bicubic")
    torch.testing.assert_close(polar, expected[0].clamp(0, 1), atol=0.51 / 255, rtol=0)
    (back_path,) = from_polar([polar_path], tmp_path / "out")
    assert back_path.name == "photo.back.png"
    back = read_image(back_path)[0]
    middle = (slice(None), slice(15, 35), slice(25, 60))
    assert (back[middle] - image[middle]).abs().max() < 0.03


def test_inputs_are_not_overwritten_and_names_do_not_collide(photo, tmp_path):
    (polar,) = to_polar([photo], tmp_path)
    with pytest.raises(InputError, match="would replace"):
        to_polar([photo, polar], tmp_path)
    other = tmp_path / "other" / "photo.png"
    other.parent.mkdir()
    other.write_bytes(photo.read_bytes())
    with pytest.raises(InputError, match="would replace"):
        to_polar([photo, other], tmp_path / "new")
    assert not (tmp_path / "new").exists()


GRID = {"angles": 4, "radii": 6, "r_min_px": 1.0, "r_max_px": None, "law": "log"}
INFO = {"origin": [0.0, 0.0], "size": [60, 80], "grid": GRID}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "not json",
        json.dumps(INFO | {"origin": [0.0]}),
        json.dumps(INFO | {"origin": [0.0, float("nan")]}),
        *(json.dumps(INFO | {"size": size}) for size in ([0, 80], [2**15, 2**14])),
        json.dumps(INFO | {"grid": GRID | {"angles": 5}}),
        json.dumps({key: INFO[key] for key in ("origin", "size")}),
    ],
)
def test_a_file_without_a_usable_polar_grid_is_named(tmp_path, text):
    path = tmp_path / "x.polar.png"
    header = PngImagePlugin.PngInfo()
    if text is not None:
        header.add_text("ptn-polar", text)
    Image.new("L", (6, 4)).save(path, pnginfo=header)
    with pytest.raises(InputError, match=r"x\.polar\.png"):
        from_polar([path], tmp_path / "out")


def dataset(images, **meta):
    count = len(images)
    return Dataset("toy", "test", images, torch.arange(count) % 2, ("cat", "d" * 200), {"source": "x", **meta})


def pixels(sheet):
    return np.asarray(sheet).astype(int)


def test_samples_are_evenly_spaced_enlarged_and_not_blurred():
    images = torch.arange(95, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8)
    sheet = pixels(contact_sheet(dataset(images)))
    shown = [gray for gray in range(95) if (sheet == gray).all(axis=2).sum() >= 192 * 192]
    assert shown == list(range(0, 95, 2))


def test_a_cross_marks_the_true_center():
    images = torch.zeros(1, 1, 48, 48, dtype=torch.uint8)
    images[0, 0, 12, 36] = 255  # the pixel around (x, y) = (36.5, 12.5)
    center = torch.tensor([[2 * 36.5 / 48 - 1, 2 * 12.5 / 48 - 1]])
    plain, marked = pixels(contact_sheet(dataset(images))), pixels(contact_sheet(dataset(images, center=center)))
    bright, cross = (
        np.argwhere((image[:198] == color).all(axis=2)).mean(axis=0)
        for image, color in ((plain, 255), (marked, (240, 228, 66)))
    )
    assert np.abs(bright - cross).max() <= 2


def test_the_view_from_above_is_brighter_where_the_shape_is_higher():
    volume = torch.zeros(1, 4, 4, 4)
    volume[0, 1, 2, :2] = 1
    volume[0, 3, 0, 3] = 1
    view = view_from_above(volume)[0]
    assert view.nonzero().tolist() == [[0, 3], [2, 1]]
    assert view[0, 3] > view[2, 1]
