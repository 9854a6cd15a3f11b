"""One recipe with several values of some settings."""

import pytest

from ptn import InputError
from ptn.training import find_recipe, recipe_from_dict, vary

RECIPE = "sim2mnist/ccnn_b/paper"


def test_every_combination_is_a_recipe_named_after_what_it_sets():
    made = vary(find_recipe(RECIPE), {"data.options.clutter": [2, 4], "augment.scale": [[1, 1], [0.9, 1.1]]})
    assert [recipe.name for recipe in made] == [
        f"{RECIPE}/clutter=2,scale=[1,1]",
        f"{RECIPE}/clutter=2,scale=[0.9,1.1]",
        f"{RECIPE}/clutter=4,scale=[1,1]",
        f"{RECIPE}/clutter=4,scale=[0.9,1.1]",
    ]
    assert [recipe.data.options["clutter"] for recipe in made] == [2, 2, 4, 4]
    assert [recipe.augment.scale for recipe in made[:2]] == [(1.0, 1.0), (0.9, 1.1)]
    assert len({recipe.sha256 for recipe in made}) == 4
    assert all(recipe_from_dict(recipe.to_dict()) == recipe for recipe in made)


def test_a_variant_fills_no_row_even_if_it_is_the_recipe_itself():
    recipe = find_recipe(RECIPE)
    (same,) = vary(recipe, {"dropout": [0.0]})
    assert same.sha256 == recipe.sha256
    assert recipe.rows
    assert (same.form, same.rows) == ("own", ())


def test_settings_of_the_same_last_name_are_told_apart():
    (made,) = vary(find_recipe(RECIPE), {"data.options.seed": [1], "seed": [2]})
    assert made.name == f"{RECIPE}/data.options.seed=1,seed=2"


def test_without_choices_the_recipe_is_as_it_was():
    assert vary(find_recipe(RECIPE), {}) == [find_recipe(RECIPE)]


@pytest.mark.parametrize("values", [0.1, []])
def test_values_are_a_list(values):
    with pytest.raises(InputError, match=r"dropout varies over a list of values, say dropout=\[1,2\]"):
        vary(find_recipe(RECIPE), {"dropout": values})


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'dropout'"):
        vary(find_recipe(RECIPE), {"droput": [0.1]})
