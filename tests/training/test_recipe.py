"""A recipe says everything; the named ones are those of the tables."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ptn import InputError
from ptn.models.polarize import is_timm
from ptn.models.zoo import build_on_meta, list_options
from ptn.reporting.published import PUBLISHED
from ptn.training import find_recipe, override, recipe_from_dict, recipe_names
from ptn.training.photo_recipes import TRIALS
from ptn.training.recipe import AugmentSpec, DataSpec, ModelSpec, Recipe, Row
from ptn.training.recipes import is_outdated, sum_recipes
from ptn.training.records import read_records
from ptn.training.settings import with_defaults

ROOT = Path(__file__).parents[2]
RECIPE = "rotmnist/ptn_b/paper+"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_survives_json(name):
    recipe = find_recipe(name)
    assert recipe.name == name
    assert recipe_from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_asks_only_for_options_its_network_has(name):
    recipe = find_recipe(name)
    assert set(recipe.model.options) <= set(list_options(recipe.model.name))
    if not is_timm(recipe.model.name):  # which is tried out with weights
        build_on_meta(recipe.model.name, image_size=32, **recipe.model.options)


def test_the_papers_recipe_is_the_papers():
    recipe = find_recipe(RECIPE)
    assert (recipe.optimizer.kind, recipe.optimizer.lr, recipe.schedule.kind) == ("adam", 0.01, "constant")
    assert (recipe.batch, recipe.epochs, recipe.data.train) == (200, 500, "train+valid")
    assert recipe.augment.rotation_deg == 180
    assert recipe.augment.mode == "nearest"
    assert recipe.model.options["heatmap"] == "linear"
    steps = {"mnist-r": 60_000, "mnist-rts": 60_000, "sim2mnist": 10_000}
    for dataset, count in steps.items():
        suffix = "" if dataset == "sim2mnist" else "+"
        other = find_recipe(f"{dataset}/ptn_b/paper{suffix}")
        assert other.epochs * count // other.batch == 30_000


def test_every_row_of_the_paper_that_is_ours_to_train_has_a_recipe_in_both_forms():
    ours = {(p.table, p.row, form) for p in PUBLISHED if not p.quoted for form in p.forms}
    recipes = [find_recipe(name) for name in recipe_names()]
    filled = {(row.table, row.row, recipe.form) for recipe in [*recipes, *sum_recipes()] for row in recipe.rows}
    assert ours - filled == set()


@pytest.mark.parametrize("model", ["ptn_b", "pcnn_b", "ccnn_b", "stn_b"])
def test_beyond_training_nothing_but_the_data_is_other_than_on_sim2mnist(model):
    whole = find_recipe(f"sim2mnist/{model}/modern")
    for name in ("larger", "turned"):
        recipe = find_recipe(f"sim2mnist-{name}/{model}/modern")
        assert (recipe.data.name, recipe.data.valid, recipe.selection) == (f"sim2mnist-{name}", "valid", "final")
        assert replace(recipe, data=whole.data).sha256 == whole.sha256


def test_the_joint_network_is_ptn_b_with_a_plain_stream_and_trained_alike():
    alone, joint = find_recipe("rotmnist/ptn_b/modern+"), find_recipe("rotmnist/ptn_b/modern+/joint")
    assert joint.model.options == {**alone.model.options, "two_stream": True}
    assert replace(joint, model=alone.model).sha256 == alone.sha256
    pair = next(one for one in sum_recipes() if one.name == "rotmnist/ptn_cnn_b/modern+")
    assert pair.members == ("rotmnist/ptn_b/modern+", "rotmnist/ccnn_b/modern+")


def test_the_controls_on_voxels_differ_from_the_papers_network_in_one_thing_each():
    learned = find_recipe("modelnet40/cylindrical/modern+")
    for name in (learned.name, "modelnet40/ccnn_3d/modern+", "modelnet40/cylindrical/modern+/fixed-axis"):
        turned, still = find_recipe(name), find_recipe(name.replace("+", ""))
        assert replace(turned, model=learned.model).sha256 == learned.sha256
        assert still.rows[0].row == f"{turned.rows[0].row}, no rotation aug."
        assert (still.augment.rotation_deg, still.epochs) == (0, turned.epochs // 2)
        rotated = replace(still.augment, rotation_deg=turned.augment.rotation_deg)
        assert replace(still, augment=rotated, epochs=turned.epochs).sha256 == turned.sha256


def test_on_house_numbers_both_networks_see_the_same_pixels():
    """Every PTN has a plain network beside it that is trained alike, but for the origin, which it has not."""
    names = [name for name in recipe_names() if "svhn" in name and "/ptn_" in name]
    for name in names:
        recipe = find_recipe(name)
        plain = find_recipe(name.replace("/ptn_", "/").removesuffix("/two-stream"))
        beside = replace(plain, model=recipe.model, origin_jitter_px=recipe.origin_jitter_px)
        assert beside.sha256 == recipe.sha256, name
    assert len(names) == 14


def test_trials_on_the_hold_out_are_a_ptn_and_what_they_say_that_they_change():
    for form in ("paper", "modern"):
        base = find_recipe(f"svhn/holdout/ptn-resnet32/{form}")
        plain = find_recipe(f"svhn/holdout/resnet32/{form}")
        assert replace(plain, model=base.model).sha256 == base.sha256
        wide, plain = (find_recipe(f"svhn/holdout/{name}-48-px/{form}") for name in ("ptn-resnet32", "resnet32"))
        assert replace(plain, model=wide.model).sha256 == wide.sha256
        known = [find_recipe(name) for name in recipe_names() if "/holdout/ptn" in name]
        tried = {recipe.rows[0].row: recipe.sha256 for recipe in known if recipe.form == form}
        trials = {title: trial.changes for title, trial in TRIALS.items() if form in trial.forms}
        expected = {f"PTN-ResNet32, {title}": override(base, changes).sha256 for title, changes in trials.items()}
        assert tried == {"PTN-ResNet32": base.sha256, "PTN-ResNet32, 48 px": wide.sha256, **expected}
        assert len(set(tried.values())) == len(tried)


def test_by_the_modern_recipe_a_ptn_on_house_numbers_has_what_was_chosen_for_digits_as_they_are_there():
    upright = [find_recipe(f"{name}/ptn_resnet32/modern") for name in ("svhn", "svhn-minus")]
    turned = [find_recipe(f"{name}/ptn_resnet32/modern") for name in ("rotsvhn", "rotsvhn-minus")]
    turned.append(find_recipe("rotsvhn/ptn_resnet32/modern+"))
    assert all(r.model.options == {"heatmap": "softplus", "upright": True} for r in upright)
    assert all(r.model.options == {"heatmap": "softplus", "angles": 64, "r_min_px": 2.0} for r in turned)
    assert [r.origin_jitter_px for r in (*upright, *turned)] == [None, None, 0.5, 0.5, 0.5]
    assert all(r.form == "modern" and len(r.rows) == 1 for r in (*upright, *turned))


def test_two_streams_on_test_digits_are_those_of_the_hold_out():
    tried = find_recipe("svhn/holdout/ptn-resnet32-upright-two-stream/modern")
    options = {"heatmap": "softplus", "two_stream": True, "stream_dropout": 0.9, "upright": True}
    assert tried.model == ModelSpec("ptn_resnet32", options)
    for name in ("svhn", "svhn-minus"):
        assert find_recipe(f"{name}/ptn_resnet32/modern/two-stream").model == tried.model


@pytest.mark.parametrize(
    ("begin", "table"), [("svhn/", "svhn"), ("svhn-minus/", "svhn"), ("svhn/holdout/", "svhn-holdout")]
)
def test_sums_on_house_numbers_are_of_a_ptn_and_the_network_beside_it_and_of_two_of_the_latter(begin, table):
    depth = begin.count("/")
    sums = {one.rows[0]: one for one in sum_recipes() if "/".join(one.name.split("/")[:depth]) + "/" == begin}
    both = sums[Row(table, "PTN-ResNet32 + ResNet32")]
    ptn, plain = map(find_recipe, both.members)
    assert (ptn.model.name, plain.model.name) == ("ptn_resnet32", "resnet32")
    assert ptn.model.options["upright"]
    assert replace(plain, model=ptn.model).sha256 == ptn.sha256  # the same digits, trained alike
    twice = sums[Row(table, "ResNet32 ×2")]
    assert (twice.members, twice.seeds) == ((plain.name,), (0, 1))


def test_what_is_chosen_on_the_hold_out_sees_no_test_digit():
    chosen = [find_recipe(name) for name in recipe_names() if "/holdout/" in name]
    assert {recipe.data.name for recipe in chosen} == {"svhn"}
    assert {(recipe.data.train, recipe.data.test) for recipe in chosen} == {("fit", "valid")}
    assert {row.table for recipe in chosen for row in recipe.rows} == {"svhn-holdout"}


def test_settings_that_are_not_used_leave_the_hash_alone():
    """Records that are older than mirroring, jitter and holding out keep the hash they have."""
    recipe = find_recipe(RECIPE)
    known = recipe.to_dict()
    known = {key: value for key, value in known.items() if key not in ("name", "form", "rows", "seed")}
    older = ("rotation_deg", "scale", "shift_px", "mode")
    known["augment"] = {key: known["augment"][key] for key in older}
    del known["data"]["hold_out"], known["schedule"]["origin_delay"], known["schedule"]["jitter_fade"]
    assert recipe.sha256 == hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    changes = ({"mirror": True}, {"z_scale": [0.9, 1.1]}, {"z_shift_px": 1.0}, {"jitter": 0.1}, {"crop_px": 20})
    for change in (
        *changes,
        {"stretch": [0.9, 1.1]},
        {"padding_mode": "border"},
        {"invert": 0.5},
        {"cutout_px": 4},
    ):
        settings = {f"augment.{key}": value for key, value in change.items()}
        assert override(recipe, settings).sha256 != recipe.sha256
    assert override(recipe, {"data.hold_out": 100}).sha256 != recipe.sha256
    assert override(recipe, {"schedule.origin_delay": 0.1}).sha256 != recipe.sha256


@pytest.mark.parametrize("name", recipe_names())
def test_what_differs_from_the_defaults_is_the_whole_recipe_but_for_what_records_say_themselves(name):
    recipe = replace(find_recipe(name), form="own", rows=(), seed=0)
    changes = replace(find_recipe(name), seed=3).changes()
    assert recipe_from_dict({"name": name, **changes}) == recipe
    assert recipe_from_dict({**with_defaults(changes), "name": name}) == recipe


def test_settings_left_at_their_defaults_are_not_said():
    recipe = Recipe("a", DataSpec("svhn"), ModelSpec("ptn_s"), augment=AugmentSpec(mirror=True))
    said = {"data": {"name": "svhn"}, "model": {"name": "ptn_s"}, "augment": {"mirror": True}}
    assert recipe.changes() == said


def test_the_records_of_this_repository_have_the_hash_of_their_settings():
    for path in (ROOT / "results").glob("*.jsonl"):
        for record in read_records(path):
            if "members" not in record.config:
                said = recipe_from_dict({"name": record.recipe, **record.config})
                assert said.sha256 == record.config_sha256
                assert not record.config.keys() & {"name", "form", "rows", "seed"}  # which it says itself


def test_sums_are_of_recipes_that_exist():
    for one in sum_recipes():
        assert set(one.members) <= set(recipe_names())


def test_a_record_is_outdated_once_its_recipe_says_something_else():
    recipe = find_recipe(RECIPE)
    known = next(record for record in read_records(ROOT / "results" / "rotmnist.jsonl") if record.recipe == RECIPE)

    def of(config, name=RECIPE):
        return replace(known, recipe=name, config=config)

    assert not is_outdated(known)
    assert not is_outdated(of(recipe.changes()))
    assert not is_outdated(of(override(recipe, {"seed": 3}).to_dict()))  # as older records have it, whole
    assert not is_outdated(of({}))
    changed = override(recipe, {"optimizer.lr": 0.02})
    assert is_outdated(of(changed.changes()))
    assert not is_outdated(of(changed.changes(), name="somebody/else"))
    both = [{"name": RECIPE, **one.changes()} for one in (recipe, changed)]
    assert not is_outdated(of({"members": both[:1]}, name="a/sum"))
    assert is_outdated(of({"members": both}, name="a/sum"))
    assert is_outdated(of({**recipe.changes(), "warp": 9}))


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(InputError, match=r"did you mean 'rotmnist/ptn_b/paper\+'"):
        find_recipe("rotmnist/ptn_b/papr+")
