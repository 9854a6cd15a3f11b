"""Where recipes become weights and records."""

from .recipe import Recipe
from .session import SessionOptions, train_recipes, with_seeds
from .settings import override, parse_setting, recipe_from_dict
from .trainer import Run, RunData

__all__ = [
    "Recipe",
    "Run",
    "RunData",
    "SessionOptions",
    "override",
    "parse_setting",
    "recipe_from_dict",
    "train_recipes",
    "with_seeds",
]
