"""Recipes by their settings: read from JSON, changed by dotted keys, every value checked."""

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal

from ..errors import InputError, unknown_name
from ..models.zoo import list_options
from .recipe import DataSpec, ModelSpec, Recipe


def recipe_from_dict(values: Mapping[str, Any]) -> Recipe:
    """The inverse of `Recipe.to_dict`, also after a trip through JSON, and of a name and `Recipe.changes`."""
    recipe: Recipe = _build(Recipe, values, "")
    return recipe


def with_defaults(changes: Mapping[str, Any]) -> dict[str, Any]:
    """All settings, where a record says only what differs from the defaults; nothing is checked."""
    return _merged(Recipe("", DataSpec(""), ModelSpec("")).to_dict(), changes)


def _merged(defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    within = {
        key: _merged(defaults[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(defaults.get(key), Mapping)
    }
    return {**defaults, **changes, **within}


def override(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """`recipe` with dotted keys set: {"optimizer.lr": 0.005, "model.options.heatmap": "linear"}.

    A recipe that trains differently is the caller's own: it no longer fills rows of the paper's tables.
    """
    changed = recipe
    for key, value in settings.items():
        if key not in setting_names() and key in list_options(recipe.model.name):
            raise InputError(f"unknown setting {key!r}; did you mean 'model.options.{key}'?")
        changed = _set(changed, key.split("."), value, key)
    return changed if changed.sha256 == recipe.sha256 else replace(changed, form="own", rows=())


def parse_setting(text: str) -> tuple[str, Any]:
    """ "optimizer.lr=0.005" -> ("optimizer.lr", 0.005). The value is JSON, True, False, None, or else a string."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"a setting looks like optimizer.lr=0.005; got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, _PYTHON.get(value, value)


_PYTHON = {"True": True, "False": False, "None": None}


def setting_names(kind: type = Recipe, prefix: str = "") -> list[str]:
    """Every key that `override` knows."""
    hints = typing.get_type_hints(kind)
    names = []
    for entry in fields(kind):
        if is_dataclass(hints[entry.name]):
            names += setting_names(hints[entry.name], f"{prefix}{entry.name}.")
        else:
            names.append(prefix + entry.name)
    return names


def _set(target: Any, path: list[str], value: Any, key: str) -> Any:
    name, rest = path[0], path[1:]
    known = {entry.name for entry in fields(target)}
    if name not in known:
        raise unknown_name("setting", key, setting_names())
    current = getattr(target, name)
    hint = typing.get_type_hints(type(target))[name]
    if is_dataclass(current) and rest:
        return replace(target, **{name: _set(current, rest, value, key)})
    if isinstance(current, dict) and len(rest) == 1:
        return replace(target, **{name: {**current, rest[0]: value}})
    if rest or is_dataclass(current):
        raise unknown_name("setting", key, setting_names())
    return replace(target, **{name: _coerce(value, hint, key)})


def _build(kind: type, values: Mapping[str, Any], prefix: str) -> Any:
    hints = typing.get_type_hints(kind)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            raise unknown_name("setting", prefix + name, setting_names())
        nested = is_dataclass(hints[name])
        arguments[name] = (
            _build(hints[name], value, f"{prefix}{name}.") if nested else _coerce(value, hints[name], prefix + name)
        )
    return kind(**arguments)


def _coerce(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint` of a field, or an error that says what was wanted."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _coerce(value, next(a for a in arguments if a is not type(None)), key)
    if origin is Literal:
        if value not in arguments:
            raise unknown_name(f"value of {key}", value, map(str, arguments))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{key} must be a list of numbers; got {value!r}")
        if Ellipsis not in arguments and len(value) != len(arguments):
            raise InputError(f"{key} must have {len(arguments)} numbers; got {value!r}")
        if is_dataclass(arguments[0]):
            return tuple(_build(arguments[0], item, f"{key}.") for item in value)  # type: ignore[arg-type]
        return tuple(_coerce(item, arguments[0], key) for item in value)
    wanted = origin or hint
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise InputError(f"{key} must be {_NAMES.get(wanted, wanted.__name__)}; got {value!r}")
    return value


_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
