"""The published numbers are those of the papers, and every row has an id."""

import pytest

from experiments.published import find_table, load_published, row_title, table_names
from experiments.recipes import ensembles, find_recipe, form_of, recipe_names
from ptn import InputError

PAPER, TABLES = load_published()
ROWS = {id: row for table in TABLES.values() for id, row in table.rows.items()}


def errors(table):
    """Published error and deviation of the rows that are ours to train, by title."""
    rows = find_table(table).rows.values()
    return {row.title: (row.mean, row.std) for row in rows if row.source is None and row.mean is not None}


def test_table_1():
    assert errors("rotmnist") == {
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
    ptn = ROWS["rotmnist.ptn_b.plus"]
    assert (ptn.params, ptn.seconds_per_epoch) == (129_000, 4.38)


def test_table_2():
    titles = ("PTN-S+", "PTN-B+", "PCNN-B+", "CCNN-B+", "STN-B+")
    for table, numbers in {
        "mnist-r": ((0.88, 0.04), (0.62, 0.04), (0.81, 0.04), (0.74, 0.01), (0.61, 0.02)),
        "mnist-rts": ((0.78, 0.05), (0.57, 0.03), (0.7, 0.01), (0.62, 0.07), (0.54, 0.02)),
        "sim2mnist": ((5.44, 0.03), (5.03, 0.11), (15.46, 0.22), (11.73, 0.57), (12.35, 1.61)),
    }.items():
        assert errors(table) == dict(zip(titles, numbers, strict=True))


def test_table_3():
    pairs = {row.title: (row.mean, row.class_mean) for row in find_table("modelnet40").rows.values()}
    assert {title: pair for title, pair in pairs.items() if pair != (None, None)} == {
        "Cylindrical Transformer": (89.9, 86.5),
        "3D ShapeNets": (None, 77.3),
        "VoxNet": (None, 83.0),
        "MO-SubvolumeSup": (89.2, 86.0),
        "MO-Aniprobing": (89.9, 85.6),
        "VRN": (89.0, None),
        "VRN with voting": (91.3, None),
        "O-CNN": (89.3, None),
        "O-CNN with voting": (90.2, None),
    }


def test_table_4_and_the_ablation():
    numbers = {
        dataset: tuple(
            (ROWS[f"svhn.{dataset}.{model}"].mean, ROWS[f"svhn.{dataset}.{model}"].std)
            for model in ("ptn_resnet32", "resnet32")
        )
        for dataset in find_table("svhn").datasets
    }
    assert numbers == {
        "svhn": ((2.82, 0.07), (2.25, 0.15)),
        "rotsvhn": ((7.9, 0.14), (9.83, 0.29)),
        "svhn-minus": ((2.85, 0.07), (2.09, 0.06)),
        "rotsvhn-minus": ((3.96, 0.04), (5.39, 0.09)),
    }
    assert errors("ablation") == {
        "all": (1.12, 0.03),
        "no origin aug.": (1.33, 0.12),
        "no rotation aug.": (1.46, 0.11),
        "no wrap padding": (1.31, 0.06),
    }


@pytest.mark.parametrize(
    ("id", "error"),
    [
        ("rotmnist.hnet", 1.69),
        ("rotmnist.p4cnn", 2.28),
        ("rotmnist.or_tipooling", 1.54),
        ("rotmnist.ti_pooling", 1.2),
        ("rotmnist.roteqnet", 1.01),
        ("rotmnist.e2cnn", 0.682),
        ("mnist-r.stn", 0.7),
        ("mnist-r.ti_pooling", 0.8),
        ("mnist-rts.stn", 0.5),
        ("sim2mnist.hnet", 9.28),
    ],
)
def test_peers_are_quoted_with_their_source(id, error):
    assert ROWS[id].mean == error
    assert ROWS[id].source not in (None, PAPER)


def test_every_row_is_either_quoted_or_trained_by_one_recipe_per_form():
    trained = [
        (spec.id, form_of(recipe.name))
        for recipe in (*map(find_recipe, recipe_names()), *ensembles())
        for spec in recipe.evaluations
    ]
    assert len(trained) == len(set(trained))
    assert {id for id, _ in trained} == {id for id, row in ROWS.items() if row.source is None}


def test_ids_begin_with_their_table_and_name_their_data_set():
    for name, table in TABLES.items():
        for id in table.rows:
            assert id.split(".")[0] == name
            assert table.dataset_of(id) in table.datasets


def test_every_ptn_of_table_4_has_a_baseline_without():
    rows = find_table("svhn").rows
    for id, row in rows.items():
        assert (row.baseline is not None) == row.title.startswith("PTN")
        if row.baseline:
            assert rows[row.baseline].title == row.title.replace("PTN-", "") or "resnet32.x2" in row.baseline
            assert id.split(".")[1] == row.baseline.split(".")[1]


def test_titles_by_id():
    assert row_title("svhn.rotsvhn.ptn_resnet18.plus") == "PTN-ResNet18+"
    assert row_title("nothing") is None
    assert row_title(None) is None


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ('{ title = "A", maen = 1.0 }', "mean"),
        ('{ title = "A", mean = "1" }', "number"),
        ('{ title = "A", source = "nobody" }', "source"),
        ('{ title = "A", baseline = "t.b" }', "baseline"),
        ("{ mean = 1.0 }", "title"),
    ],
)
def test_a_mistake_in_the_file_is_an_error(tmp_path, row, word):
    path = tmp_path / "published.toml"
    path.write_text(
        'paper = "P"\n[sources]\n[tables.t]\ntitle = "T"\nresults = "t"\ndatasets = { t = "T" }\n'
        f'[tables.t.rows]\n"t.a" = {row}\n'
    )
    with pytest.raises(InputError, match=word):
        load_published(path)


def test_the_order_of_the_tables():
    digits = ["rotmnist", "ablation", "mnist-r", "mnist-rts", "sim2mnist", "generalisation"]
    assert table_names() == [*digits, "svhn", "modelnet40"]
