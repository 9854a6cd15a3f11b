"""Every recipe builds and takes one step, on stand-ins of its data's shape."""

from dataclasses import replace

import pytest
import torch

from ptn.data import Dataset, VoxelDataset
from ptn.data.catalog import dataset_info
from ptn.evaluation import check_tta
from ptn.models.polarize import is_timm
from ptn.training import Run, RunData, find_recipe, recipe_names


def stand_in(name, count, *, occupancy="surface", size=None, training_tiles=False, **_):
    """Random data with the shape and classes of a data set of the catalog; voxels smaller, to be quick."""
    info = dataset_info(name)
    labels = torch.arange(count) % info.classes
    classes = tuple(map(str, range(info.classes)))
    if len(info.shape) == 4:
        channels = len(occupancy.split("+"))
        packed = torch.randint(0, 256, (count, channels * 16**3 // 8), dtype=torch.uint8)
        return VoxelDataset(name, "train", packed, 16, labels, classes)
    channels, height, _ = info.shape
    side = 48 if training_tiles else size or height
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8)
    return Dataset(name, "train", images, labels, classes)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_builds_and_takes_one_step(name, request):
    recipe = find_recipe(name)
    if is_timm(recipe.model.name):
        request.getfixturevalue("timm")
    recipe = replace(recipe, batch=4, epochs=1, precision="fp32")
    run = Run(recipe, RunData(stand_in(recipe.data.name, 4, **recipe.data.options)), torch.device("cpu"))
    for row in recipe.rows:  # found out now rather than after training
        check_tta(run.model, rotations=row.rotations, origins=row.origins)
    head = [parameter for parameter in run.model.parameters() if parameter.dim() > 1][-1]
    before = head.detach().clone()
    next(run.steps())
    assert int(run.step.count) == 1
    assert int(run.step.first_bad) == -1
    assert not torch.equal(head, before)


def test_a_step_in_bfloat16_is_close_to_one_in_float32():
    recipe = replace(find_recipe("rotmnist/ptn_s/paper"), batch=16, epochs=1)
    data = RunData(stand_in("rotmnist", 16))
    losses = {}
    for precision in ("fp32", "bf16"):
        run = Run(replace(recipe, precision=precision), data, torch.device("cpu"))
        next(run.steps())
        losses[precision] = float(run.step.loss_sum)
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)
