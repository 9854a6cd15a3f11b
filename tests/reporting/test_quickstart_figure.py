"""The picture of `ptn quickstart`: what is measured for it, and that it can be drawn."""

import pytest
import torch

import ptn
from ptn.data import Dataset
from ptn.reporting.figures import quickstart as figure


class BrightSide(torch.nn.Module):
    """Says whether the left (0) or the right half (1) of an image is brighter."""

    def __init__(self):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))

    def forward(self, images):
        left, right = images.flatten(2).mean(1).view(len(images), *images.shape[2:]).chunk(2, dim=2)
        return torch.stack((left.sum(dim=(1, 2)), right.sum(dim=(1, 2))), dim=1)


def dot(x, y, side=42):
    image = torch.zeros(1, side, side)
    image[0, y, x] = 1
    return image


def test_accuracy_is_that_of_the_turned_images():
    images, labels = torch.stack((dot(8, 20), dot(33, 20))), torch.tensor([0, 1])
    assert figure.accuracy_by_angle(BrightSide(), images, labels, (0, 60, 120, 180, 360)) == [100, 100, 0, 0, 100]


def test_accuracy_counts_every_image():
    images, labels = torch.stack((dot(8, 20), dot(33, 20))), torch.tensor([0, 0])
    assert figure.accuracy_by_angle(BrightSide(), images, labels, (0, 180)) == [50, 50]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_digits_that_a_turn_would_cut_off_are_not_in_view(dtype):
    images = torch.stack((dot(20, 20), dot(1, 20), dot(3, 3), dot(41, 41), dot(7, 7))).to(dtype)
    assert figure.stays_in_view(images).tolist() == [True, True, False, False, True]


def test_what_stays_in_view_keeps_its_ink_at_every_angle():
    corner, middle = dot(4, 4)[None], dot(8, 9)[None]
    for image in (corner, middle):
        turned = [ptn.similarity_warp(image, ptn.Similarity(angle / 10)).sum() for angle in range(63)]
        assert bool(figure.stays_in_view(image)) == (min(turned) > 0.5)


def test_the_picture_shows_both_networks(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    pixels = torch.randint(0, 256, (12, 1, 42, 42), dtype=torch.uint8)
    pixels[:, :, :8] = pixels[:, :, -8:] = pixels[..., :8] = pixels[..., -8:] = 0
    test = Dataset("quickstart", "test", pixels, torch.arange(12) % 10, tuple("0123456789"))
    polar, plain = (
        figure.Contender(title, ptn.create_model(name, image_size=(42, 42)), error)
        for title, name, error in (("PTN-S", "ptn_s", 5.0), ("CCNN-S", "ccnn_s", 20.0))
    )
    path = tmp_path / "made" / "picture.png"
    figure.draw(polar, plain, test, path)
    picture = image_module.open(path).convert("RGB")
    colors = {color for _, color in picture.getcolors(1 << 24)}
    assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0), (0xF0, 0xE4, 0x42)} <= colors
    assert list(path.parent.iterdir()) == [path]
