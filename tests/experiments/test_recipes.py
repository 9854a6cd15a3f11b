"""Named recipes build, train, and agree with the records."""

from dataclasses import replace

import pytest
import torch

from experiments.peers import build_network
from experiments.recipes import FORMS, ensembles, find_recipe, form_of, is_outdated, recipe_names, recipe_sha256
from experiments.tables import load_records
from ptn.config import build, override
from ptn.data import Dataset, VoxelDataset
from ptn.data.catalog import dataset_info
from ptn.evaluation import check_tta
from ptn.models import count_parameters, list_models
from ptn.training import Recipe, Run, RunData
from ptn.training.trainer import build_model

RECORDS = load_records()


def stand_in(name, count, *, occupancy="surface", size=None, training_tiles=False, **_):
    """Random data with the shape and classes of a data set; smaller voxels, to be quick."""
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
    if recipe.model.name.startswith("timm"):
        request.getfixturevalue("timm")
    if recipe.model.name == "e2cnn":  # its bases of filters take half a minute
        recipe = override(recipe, {"model.options": {"order": 4, "fields": [2, 2, 2, 2, 2, 2], "flips": False}})
    recipe = replace(recipe, batch=4, epochs=1, precision="fp32")
    data = stand_in(recipe.data.name, 4, **recipe.data.options)
    run = Run(recipe, RunData(data), torch.device("cpu"), network=build_network(recipe, data))
    for spec in recipe.evaluations:
        check_tta(run.model, rotations=spec.rotations, origins=spec.origins)
    head = [parameter for parameter in run.model.parameters() if parameter.dim() > 1][-1]
    before = head.detach().clone()
    next(run.steps())
    assert int(run.step.count) == 1
    assert int(run.step.first_bad) == -1
    assert not torch.equal(head, before)


def test_every_record_has_the_settings_of_its_recipe():
    assert {record.recipe for record in RECORDS if is_outdated(record)} == set()
    assert {record.id for record in RECORDS if recipe_sha256(record.recipe) is None} == {None}


def test_every_record_has_the_hash_of_its_settings():
    names = {ensemble.name: list(ensemble.members) for ensemble in ensembles()}
    for record in RECORDS:
        if record.recipe in names:
            assert record.config == {"members": names[record.recipe]}
        else:
            recipe = build(Recipe, {"name": record.recipe, **record.config})
            assert (recipe.changes(), recipe.sha256) == (record.config, record.config_sha256), record.run


def test_every_record_belongs_to_an_evaluation_of_its_recipe():
    trained = {recipe.name: recipe for recipe in (*map(find_recipe, recipe_names()), *ensembles())}
    for record in RECORDS:
        if record.id is not None:
            specs = {(spec.id, spec.rotations, spec.origins) for spec in trained[record.recipe].evaluations}
            assert (record.id, record.rotations, record.origins) in specs
    identities = [record.identity for record in RECORDS]
    assert len(identities) == len(set(identities))


def test_a_record_with_other_settings_is_outdated(make_record):
    assert not is_outdated(make_record())
    assert is_outdated(make_record(config_sha256="other"))
    assert not is_outdated(make_record(None, recipe="folder/coins/ptn_s", config_sha256="other"))
    member = make_record("rotmnist.ptn_cnn_b.plus", recipe="rotmnist/ptn_cnn_b/modern+")
    assert not is_outdated(member)
    assert is_outdated(replace(member, config_sha256=recipe_sha256("rotmnist/ptn_b/modern+")))


def test_names_tell_the_form():
    assert {form_of(name) for name in recipe_names()} == set(FORMS)
    assert form_of("rotmnist/ptn_b/modern+/no-wrap") == "modern"
    assert form_of("svhn/resnet32/paper") == "paper"
    assert form_of("folder/modern/ptn_s") is None
    assert form_of("rotmnist/ptn_b/paper++") is None


def test_the_paper_trains_digits_for_30000_steps_of_adam_at_a_constant_rate():
    counts = {"rotmnist": 12_000, "mnist-r": 60_000, "mnist-rts": 60_000, "sim2mnist": 10_000}
    for name in recipe_names():
        recipe = find_recipe(name)
        if recipe.data.name in counts and form_of(name) == "paper" and recipe.model.name in list_models():
            assert recipe.epochs * counts[recipe.data.name] // recipe.batch == 30_000
            assert (recipe.optimizer.kind, recipe.optimizer.lr, recipe.schedule.kind) == ("adam", 0.01, "constant")
            assert recipe.data.train == ("train+valid" if recipe.data.name == "rotmnist" else "train")


def test_an_ablation_changes_one_thing():
    for form in FORMS:
        full = find_recipe(f"rotmnist/ptn_b/{form}+")
        parts = {"origin": "origin_jitter_px", "rotation": "augment", "wrap": "model", "frame": "model"}
        for part, key in parts.items():
            changed = find_recipe(f"{full.name}/no-{part}")
            assert getattr(changed, key) != getattr(full, key)
            assert replace(changed, **{key: getattr(full, key)}).sha256 == full.sha256


def test_the_frame_is_shown_where_digits_are_centered_and_the_paper_normalizes_first():
    def options(name):
        return find_recipe(name).model.options

    for model in ("ptn_s/modern", "ptn_b/modern+", "ptn_l/modern+", "pcnn_b/modern+"):
        assert options(f"rotmnist/{model}")["frame"] == "disc"
    assert options("mnist-r/ptn_b/modern+")["frame"] == "disc"
    for name in ("mnist-rts/ptn_b/modern+", "sim2mnist/ptn_b/modern", "rotmnist/ptn_b/modern+/no-frame"):
        assert "frame" not in options(name)
    for model in ("ptn_s/paper", "pcnn_b/paper+", "stn_b/paper+"):
        assert options(f"rotmnist/{model}")["padding_mode"] == "mean"
    assert "padding_mode" not in options("rotmnist/ptn_b/paper+/no-frame")
    assert count_parameters(build_model(find_recipe("rotmnist/ptn_l/modern+"), stand_in("rotmnist", 4))) < 1_000_000
