"""Accuracy against azimuth: shapes turned about z, images about their middle."""

import numpy as np
import torch

from ptn.data import Dataset, VoxelDataset
from ptn.evaluation import AZIMUTHS, accuracy_by_azimuth


class HeavySide(torch.nn.Module):
    """Says whether the part of a volume at low x (0) or at high x (1) holds more."""

    def __init__(self):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))

    def forward(self, volumes):
        low, high = volumes.flatten(3).sum(dim=(1, 3)).chunk(2, dim=1)
        return torch.stack((low.sum(dim=1), high.sum(dim=1)), dim=1)


def rods(*places, size=16):
    """Upright rods at (x, y), one to a shape, packed."""
    volumes = np.zeros((len(places), size, size, size), dtype=bool)
    for volume, (x, y) in zip(volumes, places, strict=True):
        volume[x, y] = True
    labels = torch.tensor([int(x >= size // 2) for x, _ in places])
    packed = torch.from_numpy(np.packbits(volumes.reshape(len(places), -1), axis=1))
    return VoxelDataset("rods", "test", packed, size, labels, ("low", "high"))


def test_shapes_are_turned_about_z():
    shapes = rods((3, 8), (13, 7))
    assert accuracy_by_azimuth(HeavySide(), shapes, (0, 60, 120, 180, 360)) == [100, 100, 0, 0, 100]


def test_the_direction_is_that_of_rotation_in_every_warp():
    # at 60° below the x axis: turned by 60° (from +x towards +y) it lies on the axis, turned back it does not
    assert accuracy_by_azimuth(HeavySide(), rods((10, 3)), (45, -60)) == [100, 0]


def test_every_15_degrees_unless_told_otherwise_and_with_the_options_of_scores():
    seen = []
    curve = accuracy_by_azimuth(
        HeavySide(), rods((3, 8), (13, 7)), batch=1, progress=lambda done, total: seen.append((done, total))
    )
    assert len(curve) == len(AZIMUTHS) == 24
    assert seen[:3] == [(1, 2), (2, 2), (1, 2)]
    assert curve[0] == 100
    assert curve[12] == 0


def test_images_are_turned_too():
    images = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    images[0, 0, 8, 3] = 255
    left = Dataset("dot", "test", images, torch.tensor([0]), ("low", "high"))

    class LeftOrRight(HeavySide):
        def forward(self, pictures):
            return super().forward(pictures.mT[..., None])

    assert accuracy_by_azimuth(LeftOrRight(), left, (0, 180)) == [100, 0]
    assert accuracy_by_azimuth(LeftOrRight(), left, ()) == []


def test_a_model_keeps_its_mode():
    model = HeavySide().train()
    accuracy_by_azimuth(model, rods((3, 8)), (0,))
    assert model.training


class Brighter(torch.nn.Module):
    """Says whether the left (0) or the right (1) half of a 4-pixel image is brighter."""

    def forward(self, images):
        assert images.shape[2:] == (4, 4)
        left, right = images.mean(dim=(1, 2)).chunk(2, dim=1)
        return torch.cat((left.sum(dim=1, keepdim=True), right.sum(dim=1, keepdim=True)), dim=1)


def test_of_larger_images_the_model_sees_the_middle_with_no_border():
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    images[..., 4:] = 200
    digits = Dataset("halves", "test", images, torch.tensor([1]), ("left", "right"))
    assert accuracy_by_azimuth(Brighter(), digits, (0, 60, 180), size=(4, 4)) == [100, 100, 0]
