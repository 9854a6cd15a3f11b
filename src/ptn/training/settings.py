"""Temporary: the names of `ptn.config` under their old module."""

from collections.abc import Mapping
from typing import Any

from ..config import build, override, parse_setting, setting_names
from .recipe import DataSpec, ModelSpec, Recipe

__all__ = ["override", "parse_setting", "recipe_from_dict", "setting_names", "with_defaults"]


def recipe_from_dict(values: Mapping[str, Any]) -> Recipe:
    return build(Recipe, values)


def with_defaults(changes: Mapping[str, Any]) -> dict[str, Any]:
    return _merged(Recipe("", DataSpec(""), ModelSpec("")).to_dict(), changes)


def _merged(defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    within = {
        key: _merged(defaults[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(defaults.get(key), Mapping)
    }
    return {**defaults, **changes, **within}
