"""Published numbers and row ids."""

import pytest

from experiments.published import find_table, load_published, row_title
from experiments.recipes import ensembles, find_recipe, form_of, recipe_names
from ptn import InputError

_, TABLES = load_published()
ROWS = {id: row for table in TABLES.values() for id, row in table.rows.items()}


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
