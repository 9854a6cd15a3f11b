"""Configuration: dataclasses built from JSON-like values and dotted keys, checked against their type hints."""

import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial, wraps
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from .errors import InputError, InputTypeError, check_choice, unknown_name
from .files import parse_json

P = ParamSpec("P")
T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Returns `cls(**values)` for a dataclass, with every value checked against its type hint.

    Fields that are dataclasses are built from mappings, tuples from lists.

    Args:
        values: JSON-like values by field name; fields with a default may be absent.
        where: Origin of the values, such as a file, that starts every error message.

    Raises:
        InputError: A name is unknown or missing, or a value does not have the type of its field.
    """
    try:
        return _build(cls, values, "")
    except InputError as error:
        raise type(error)(f"{where}: {error}" if where else str(error)) from error


def override(instance: T, settings: Mapping[str, Any]) -> T:
    """Returns a copy of a dataclass with dotted keys set: `{"optimizer.lr": 0.005, "model.options.wrap": True}`.

    The copy is checked once, with all settings, so that their order does not matter.
    """
    return _set(instance, [(key.split("."), value, key) for key, value in settings.items()], type(instance))


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns the key and value of "key=value". The value is JSON, True, False, None, or else a string.

    >>> parse_setting("optimizer.lr=0.005")
    ('optimizer.lr', 0.005)
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"a setting must be KEY=VALUE, such as optimizer.lr=0.005; got {text!r}")
    try:
        return key, parse_json(value, key)
    except InputError as error:
        if not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        return key, {"True": True, "False": False, "None": None}.get(value, value)


def setting_names(cls: Any, prefix: str = "") -> list[str]:
    """Returns every dotted key of a dataclass; that of a field with any names is "model.options.NAME"."""
    names: list[str] = []
    for name, hint in _hints(cls).items():
        if is_dataclass(hint):
            names += setting_names(hint, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}{'.NAME' if get_origin(hint) is dict else ''}")
    return names


def changes(instance: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that differ from their defaults, JSON-like; the inverse of `build`.

    Fields without a default are always included.
    """
    values: dict[str, Any] = json.loads(json.dumps(instance, default=_changed_fields))
    return values


def check(name: str, value: object, holds: bool, wanted: str) -> None:
    """Raises `InputError` with the message "{name} must be {wanted}" unless `holds`."""
    if not holds:
        raise InputError(f"{name} must be {wanted}; got {value!r}")


def check_options(
    function: Callable[..., Any], options: Mapping[str, Any], known: Iterable[str], kind: str
) -> dict[str, Any]:
    """Returns keyword options of `function`, checked and converted by its type hints.

    Args:
        function: A function, a class or a `functools.partial` of one.
        known: The option names that a caller may set.
        kind: Description of an option in error messages, such as "option of ptn_b".
    """
    while isinstance(function, partial):
        function = function.func
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    names = list(known)
    for name in options:
        check_choice(kind, name, names)
    return {name: _convert(value, hints.get(name, Any), name) for name, value in options.items()}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: arguments that are not of the types of their hints raise `InputTypeError`."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        for name, value in signature.bind(*arguments, **options).arguments.items():
            hint = signature.parameters[name].annotation
            if not _fits(value, hint):
                raise InputTypeError(f"{name} must be {_describe(hint)}; got {value!r}")
        return function(*arguments, **options)

    return call


def _fits(value: Any, hint: Any) -> bool:
    """False if a value is not of the type of a hint, where that is simple to say."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, member) for member in arguments)
    if origin is Sequence:  # also arrays and tensors, but not texts
        listed = hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)
        return listed and getattr(value, "ndim", 1) == 1 and all(_fits(item, arguments[0]) for item in value)
    kind = origin or hint
    # names of types; the values of Literal are checked by the function
    if not isinstance(kind, type) or kind in (Any, inspect.Parameter.empty):
        return True
    if kind is float:  # also of numpy and torch
        return hasattr(type(value), "__float__") and not getattr(value, "ndim", 0) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) < 2**63
    return isinstance(value, tuple | list if kind is tuple else kind)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Type hints of the fields of a dataclass, in their order."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _build(cls: Any, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise InputError(f"{prefix.rstrip('.') or cls.__name__} must be an object of settings; got {values!r}")
    hints = _hints(cls)
    for name in values:
        check_choice("setting", f"{prefix}{name}", [f"{prefix}{known}" for known in hints])
    missing = [
        prefix + field.name
        for field in fields(cls)
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise InputError(f"no value for {', '.join(missing)}")
    return cls(**{name: _convert(value, hints[name], prefix + name) for name, value in values.items()})


def _set(target: Any, settings: Iterable[tuple[list[str], Any, str]], root: type) -> Any:
    """Returns `target` with fields set: (path, value, key), `key` the whole path from an instance of `root`."""
    cls: Any = type(target)
    values: dict[str, Any] = {}
    nested: dict[str, list[tuple[list[str], Any, str]]] = {}
    for (name, *rest), value, key in settings:
        hint = _hints(cls).get(name)
        current = values.get(name, getattr(target, name, None))
        if hint is not None and is_dataclass(current) and rest:
            nested.setdefault(name, []).append((rest, value, key))
        elif hint is not None and isinstance(current, dict) and len(rest) == 1:
            values[name] = {**current, rest[0]: value}
        elif hint is None or rest or is_dataclass(current):
            raise unknown_name("setting", key, setting_names(root))
        else:
            values[name] = _convert(value, hint, key)
    values |= {name: _set(getattr(target, name), members, root) for name, members in nested.items()}
    return replace(target, **values)


def _changed_fields(instance: Any) -> dict[str, Any]:
    changed = {}
    for field in fields(instance):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if (current := getattr(instance, field.name)) != default:
            changed[field.name] = current
    return changed


_NAMES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    dict: "an object",
    tuple: "a list",
    Sequence: "a list of numbers",
    types.NoneType: "null",
}


def _convert(value: Any, hint: Any, key: str) -> Any:
    """Returns `value` as the type `hint`; integers become floats and lists tuples where the hint requires it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, hint, key)
    if origin is Literal:
        check_choice(f"value of {key}", value, arguments)
        return arguments[arguments.index(value)]  # 32, also for 32.0
    if is_dataclass(hint) and not isinstance(value, hint):  # type: ignore[arg-type]
        return _build(hint, value, f"{key}.")
    if origin is tuple and isinstance(value, list | tuple):
        if Ellipsis in arguments:
            return tuple(_convert(item, arguments[0], key) for item in value)
        check(key, value, len(value) == len(arguments), f"a list of {len(arguments)} values")
        return tuple(_convert(item, kind, key) for item, kind in zip(value, arguments, strict=True))
    expected_type = origin or hint
    if not isinstance(expected_type, type):  # Any, type variables
        return value
    accepted: Any = {float: Real, int: Integral}.get(expected_type, expected_type)
    holds = isinstance(value, accepted) and (expected_type is bool or not isinstance(value, bool))
    if not holds:
        raise InputTypeError(f"{key} must be {_describe(hint)}; got {value!r}")
    if expected_type is int:
        check(key, value, -(2**63) <= value < 2**63, "an integer of 64 bits")
    elif expected_type is float:
        check(key, value, abs(value) < 2**1023 and math.isfinite(value), "a finite number")
    return expected_type(value) if expected_type in (int, float) else value


def _convert_union(value: Any, hint: Any, key: str) -> Any:
    """Converts to the first member of a union that takes the value."""
    members = [member for member in get_args(hint) if member is not types.NoneType]
    if value is None and len(members) < len(get_args(hint)):
        return None
    if len(members) == 1:
        return _convert(value, members[0], key)
    for member in members:
        with suppress(InputError):
            return _convert(value, member, key)
    raise InputError(f"{key} must be {_describe(hint)}; got {value!r}")


def _describe(hint: Any) -> str:
    """A type hint in words: "an integer or null"."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_describe, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    kind = origin or hint
    name = getattr(kind, "__name__", str(kind))
    return _NAMES.get(kind, f"{'an' if name[0] in 'AEIO' else 'a'} {name}")
