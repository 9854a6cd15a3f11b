"""Temporary: see `ptn.training.recipe`."""

from .recipe import STEPS, folder_recipe

__all__ = ["STEPS", "folder_recipe"]
