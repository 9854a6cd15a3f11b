"""The published numbers are those that the paper prints, and every row has its place."""

import pytest

from ptn.models import list_models
from ptn.models.polarize import is_timm
from ptn.reporting.published import PAPER, PUBLISHED, TABLES
from ptn.training import find_recipe, recipe_names
from ptn.training.recipe import FORMS
from ptn.training.recipes import sum_recipes

ROWS = {(row.table, row.row, row.dataset): row for row in PUBLISHED}


def ours(table, dataset=None):
    """Published error and deviation of the rows that are ours to train."""
    return {
        row.row: (row.mean, row.std)
        for row in PUBLISHED
        if row.table == table and not row.quoted and row.mean and dataset in (None, row.dataset)
    }


def test_the_tables_are_those_of_the_design():
    digits = ["rotmnist", "ablation", "mnist-r", "mnist-rts", "sim2mnist", "generalisation"]
    assert [name for name in TABLES if name != "svhn-holdout"] == [*digits, "svhn", "modelnet40"]
    assert list(TABLES["svhn"].datasets) == ["svhn", "rotsvhn", "svhn-minus", "rotsvhn-minus"]


def test_no_row_stands_twice():
    assert len(ROWS) == len(PUBLISHED)


def test_table_1():
    assert ours("rotmnist") == {
        "PTN-S": (1.83, 0.04),
        "PCNN-S": (2.6, 0.08),
        "CCNN-S": (5.76, 0.35),
        "STN-S": (7.87, 0.18),
        "PTN-B+": (1.14, 0.08),
        "PTN-B++": (0.95, 0.09),
        "PTN-CNN-B+": (1.01, 0.06),
        "PTN-CNN-B++": (0.89, 0.06),
        "PCNN-B+": (1.37, 0.0),
        "CCNN-B+": (1.53, 0.07),
        "STN-B+": (1.31, 0.05),
    }
    ptn = ROWS["rotmnist", "PTN-B+", "rotmnist"]
    assert (ptn.params, ptn.seconds_per_epoch, ptn.model) == (129_000, 4.38, "ptn_b")


def test_table_2():
    assert ours("mnist-r") == {
        "PTN-S+": (0.88, 0.04),
        "PTN-B+": (0.62, 0.04),
        "PCNN-B+": (0.81, 0.04),
        "CCNN-B+": (0.74, 0.01),
        "STN-B+": (0.61, 0.02),
    }
    assert ours("mnist-rts") == {
        "PTN-S+": (0.78, 0.05),
        "PTN-B+": (0.57, 0.03),
        "PCNN-B+": (0.7, 0.01),
        "CCNN-B+": (0.62, 0.07),
        "STN-B+": (0.54, 0.02),
    }
    assert ours("sim2mnist") == {
        "PTN-S+": (5.44, 0.03),
        "PTN-B+": (5.03, 0.11),
        "PCNN-B+": (15.46, 0.22),
        "CCNN-B+": (11.73, 0.57),
        "STN-B+": (12.35, 1.61),
    }


def test_table_4_and_the_ablation():
    networks = ("PTN-ResNet32", "ResNet32")
    for dataset, errors in {
        "svhn": ((2.82, 0.07), (2.25, 0.15)),
        "rotsvhn": ((7.9, 0.14), (9.83, 0.29)),
        "svhn-minus": ((2.85, 0.07), (2.09, 0.06)),
        "rotsvhn-minus": ((3.96, 0.04), (5.39, 0.09)),
    }.items():
        assert ours("svhn", dataset) == dict(zip(networks, errors, strict=True))
    assert ours("ablation") == {
        "all": (1.12, 0.03),
        "no origin aug.": (1.33, 0.12),
        "no rotation aug.": (1.46, 0.11),
        "no wrap padding": (1.31, 0.06),
    }


def test_table_3_has_instance_and_class_accuracy():
    pairs = {row.row: (row.mean, row.class_mean) for row in PUBLISHED if row.table == "modelnet40"}
    assert pairs["Cylindrical Transformer"] == (89.9, 86.5)
    assert pairs["MO-SubvolumeSup"] == (89.2, 86.0)
    assert pairs["MO-Aniprobing"] == (89.9, 85.6)
    assert pairs["3D ShapeNets"] == (None, 77.3)
    assert pairs["VoxNet"] == (None, 83.0)
    assert (pairs["VRN"][0], pairs["VRN with voting"][0]) == (89.0, 91.3)
    assert (pairs["O-CNN"][0], pairs["O-CNN with voting"][0]) == (89.3, 90.2)
    unpublished = {"Cylindrical Transformer strong", "Cylindrical Transformer strong+vote"}
    unpublished |= {"Cartesian control", "Fixed axis"}
    trained = ("Cylindrical Transformer", "Cartesian control", "Fixed axis")
    unpublished |= {f"{row}, no rotation aug." for row in trained}
    assert {row for row, pair in pairs.items() if pair == (None, None)} == unpublished


@pytest.mark.parametrize(
    ("table", "row", "error"),
    [
        ("rotmnist", "HNet", 1.69),
        ("rotmnist", "P4CNN", 2.28),
        ("rotmnist", "OR-TIPooling", 1.54),
        ("rotmnist", "TI-Pooling", 1.2),
        ("rotmnist", "RotEqNet", 1.01),
        ("rotmnist", "E(2)-steerable CNN", 0.682),
        ("mnist-r", "STN", 0.7),
        ("mnist-r", "TI-Pooling", 0.8),
        ("mnist-rts", "STN", 0.5),
        ("sim2mnist", "HNet", 9.28),
    ],
)
def test_peers_are_quoted_with_their_source(table, row, error):
    peer = ROWS[table, row, table]
    assert peer.quoted
    assert peer.mean == error
    assert peer.source != PAPER


def test_rows_of_ours_name_a_network_there_is():
    for row in PUBLISHED:
        members = (row.model or "").split("+")
        assert row.quoted or set(members) <= set(list_models()) or is_timm(row.model)
        assert set(row.forms) <= set(FORMS)
        assert row.dataset in TABLES[row.table].datasets


def test_every_row_with_ptn_in_table_4_stands_beside_one_without():
    recipes = [*map(find_recipe, recipe_names()), *sum_recipes()]
    rows = {(row.table, row.row) for recipe in recipes for row in recipe.rows}
    for table in ("svhn", "svhn-holdout"):
        with_ptn = {row for name, row in rows if name == table and row.startswith("PTN")}
        assert with_ptn == set(TABLES[table].baselines)
        assert {(table, row) for row in TABLES[table].baselines.values()} <= rows
