"""Dataclasses from JSON-like values and dotted keys: conversion, and refused values."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest

from ptn import InputError
from ptn.config import build, changes, check_options, override, parse_setting, setting_names


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    pair: tuple[float, float] = (1.0, 2.0)
    kind: Literal["slow", "fast"] = "slow"


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = 3
    limit: int | None = None
    size: int | tuple[int, int] = 28
    flag: bool = False
    inner: Inner = Inner()
    items: tuple[Inner, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


CHANGED = Outer("a", limit=2, inner=Inner(pair=(0.5, 1.0)), items=(Inner(kind="fast"), Inner()), options={"x": [1]})


def test_changes_are_the_values_that_build_the_instance_again():
    expected = {
        "name": "a",
        "limit": 2,
        "inner": {"pair": [0.5, 1.0]},
        "items": [{"kind": "fast"}, {}],
        "options": {"x": [1]},
    }
    assert changes(CHANGED) == expected
    assert build(Outer, expected) == CHANGED


def test_values_get_the_type_of_their_field():
    built = build(Outer, {"name": "a", "count": np.int64(4), "size": [8, 9], "inner": {"rate": 1, "pair": [1, 3]}})
    assert built == Outer("a", count=4, size=(8, 9), inner=Inner(1.0, (1.0, 3.0)))
    assert [type(built.count), type(built.inner.rate), type(built.inner.pair[0])] == [int, float, float]


def test_override_sets_dotted_keys_and_nothing_else():
    changed = override(CHANGED, {"inner.kind": "fast", "options.y": 2, "limit": None, "items": [{"rate": 2}]})
    assert changed.inner == Inner(pair=(0.5, 1.0), kind="fast")
    assert changed.options == {"x": [1], "y": 2}
    assert (changed.limit, changed.items, changed.name) == (None, (Inner(2.0),), "a")
    assert CHANGED.options == {"x": [1]}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cuont", 1, "did you mean 'count'"),
        ("inner.rte", 1, "did you mean 'inner.rate'"),
        ("inner", 1, "unknown setting 'inner'"),
        ("count", 1.5, "count must be an integer; got 1.5"),
        ("count", True, "count must be an integer"),
        ("limit", "a", "limit must be an integer"),
        ("size", "a", "size must be an integer or a list"),
        ("inner.kind", "fats", "did you mean 'fast'"),
        ("inner.pair", [1], "inner.pair must be a list of 2 values"),
    ],
)
def test_bad_values_are_named_with_their_key(key, value, message):
    with pytest.raises(InputError, match=message):
        override(CHANGED, {key: value})


def test_build_names_missing_values_and_the_place_they_come_from():
    with pytest.raises(InputError, match=r"^file\.json: no value for name$"):
        build(Outer, {"count": 1}, "file.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optimizer.lr=0.005", ("optimizer.lr", 0.005)),
        ("augment.scale=[1,2]", ("augment.scale", [1, 2])),
        ("data.valid=null", ("data.valid", None)),
        ("model.options.upright=True", ("model.options.upright", True)),
        ("name=a=b", ("name", "a=b")),
    ],
)
def test_settings_are_written_as_key_and_json_value(text, expected):
    assert parse_setting(text) == expected


def test_a_setting_needs_a_key_and_a_value():
    with pytest.raises(InputError, match="such as"):
        parse_setting("optimizer.lr")


def test_setting_names_are_the_keys_of_override():
    names = setting_names(Outer)
    assert names == [
        *("name", "count", "limit", "size", "flag", "inner.rate", "inner.pair", "inner.kind", "items"),
        "options.NAME",
    ]


def polar(*, size: int, law: Literal["log", "linear"] = "log", r_max: float | None = None, **more: Any) -> None: ...


def test_options_are_checked_by_the_signature():
    known = ["law", "r_max"]
    checked = check_options(partial(polar, size=3), {"law": "linear", "r_max": 3}, known, "option of ptn")
    assert checked == {"law": "linear", "r_max": 3.0}
    assert check_options(polar, {"r_max": None}, known, "option of ptn") == {"r_max": None}
    for options, message in (
        ({"lwa": 1}, "unknown option of ptn 'lwa'; did you mean 'law'"),
        ({"size": 3}, "unknown option of ptn 'size'"),
        ({"law": "cubic"}, "unknown value of law"),
        ({"r_max": "far"}, "r_max must be a number"),
    ):
        with pytest.raises(InputError, match=message):
            check_options(polar, options, known, "option of ptn")
