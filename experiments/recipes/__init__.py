"""Named recipes: one for each trained row of the paper's tables, and ours, with the ids of the rows it fills.

A name is DATASET/MODEL/FORM; a "+" after the form means that training images are rotated at random.
"""

import hashlib
from typing import Any

from ptn.errors import unknown_name
from ptn.training.recipe import Recipe
from ptn.training.records import Record

from . import mnist_variants, modelnet40, peers, rotmnist, svhn
from .base import FORMS, EnsembleRecipe, Form, form_of

__all__ = [
    "FORMS",
    "EnsembleRecipe",
    "Form",
    "ensembles",
    "find_recipe",
    "form_of",
    "is_outdated",
    "recipe_names",
    "recipe_sha256",
]

_MODULES: tuple[Any, ...] = (rotmnist, mnist_variants, svhn, modelnet40, peers)
_RECIPES: dict[str, Recipe] = {recipe.name: recipe for module in _MODULES for recipe in module.recipes()}
_ENSEMBLES: dict[str, EnsembleRecipe] = {
    ensemble.name: ensemble for module in (rotmnist, svhn) for ensemble in module.ensembles()
}


def recipe_names() -> list[str]:
    """Returns the names of all recipes in the order of the tables."""
    return list(_RECIPES)


def find_recipe(name: str) -> Recipe:
    """Returns the recipe with this name, with seed 0."""
    if name not in _RECIPES:
        raise unknown_name("recipe", name, _RECIPES)
    return _RECIPES[name]


def ensembles() -> list[EnsembleRecipe]:
    """Returns all ensembles."""
    return list(_ENSEMBLES.values())


def recipe_sha256(name: str) -> str | None:
    """Returns the configuration hash of a recipe or of an ensemble, None for an unknown name."""
    if name in _ENSEMBLES:
        members = " ".join(_RECIPES[member].sha256 for member in _ENSEMBLES[name].members)
        return hashlib.sha256(members.encode()).hexdigest()
    return _RECIPES[name].sha256 if name in _RECIPES else None


def is_outdated(record: Record) -> bool:
    """True if the recipe of a record exists and has other settings now."""
    return recipe_sha256(record.recipe) not in (None, record.config_sha256)
