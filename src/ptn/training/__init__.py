"""Where recipes become weights and records."""

from .recipe import Recipe
from .recipes import find_recipe, recipe_names
from .session import SessionOptions, train_recipes, with_seeds
from .settings import override, parse_setting, recipe_from_dict
from .trainer import Run, RunData
from .variants import vary

__all__ = [
    "Recipe",
    "Run",
    "RunData",
    "SessionOptions",
    "find_recipe",
    "override",
    "parse_setting",
    "recipe_from_dict",
    "recipe_names",
    "train_recipes",
    "vary",
    "with_seeds",
]
