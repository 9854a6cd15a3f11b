"""Runs that are no row of a table: settings that were tried in order to choose, and networks of one's own."""

import json
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from ..training.records import Record
from ..training.settings import with_defaults
from .align import align
from .tables import newest

_Key = tuple[str, str, str]  # recipe, split, the hash of what was set


def summarise_own(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One object per recipe, its settings, and split that it was tested on: the seeds that finished, their error in
    %, and how many others failed."""
    groups: dict[_Key, list[Record]] = {}
    for record in records:
        if record.row is None:
            split = record.config.get("data", {}).get("test", "test")
            groups.setdefault((record.recipe, split, record.config_sha256), []).append(record)
    rows = []
    changes = _changes({key: group[0].config for key, group in groups.items()})
    for (recipe, split, settings), group in groups.items():
        finished = newest(group)
        seeds = {record.seed for record in finished}
        errors = [record.test_error for record in finished if record.test_error is not None]
        seconds = [record.train_seconds for record in finished]
        rows.append(
            {
                "recipe": recipe,
                "settings": changes[recipe, split, settings],
                "split": split,
                "n": len(errors),
                "failed": len({record.seed for record in group if record.status == "failed"} - seeds),
                "mean": statistics.fmean(errors) if errors else None,
                "std": statistics.stdev(errors) if len(errors) > 1 else None,
                "train_seconds": statistics.fmean(seconds) if seconds else None,
            }
        )
    return rows


def _changes(configs: Mapping[_Key, Mapping[str, Any]]) -> dict[_Key, dict[str, Any]]:
    """What each recipe sets otherwise than the others that begin with the same data set, network and form."""
    families: dict[tuple[str, ...], list[_Key]] = {}
    for key in configs:
        families.setdefault(tuple(key[0].split("/")[:3]), []).append(key)
    changes = {}
    for keys in families.values():
        settings = {key: _flat(with_defaults(configs[key])) for key in keys}
        names = dict.fromkeys(name for values in settings.values() for name in values)
        differing = [n for n in names if len({json.dumps(settings[key].get(n)) for key in keys}) > 1]
        for key in keys:
            changes[key] = {name: settings[key][name] for name in differing if name in settings[key]}
    return changes


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names, but for what names a run rather than trains it."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif prefix + key not in ("name", "form", "rows", "seed"):
            flat[prefix + key] = value
    return flat


def render_own(rows: Iterable[dict[str, Any]], *, heading: bool = True) -> str:
    """The same as a table in Markdown."""
    given = list(rows)
    if not given:
        return "No runs of one's own are among these records.\n"
    columns = {
        "recipe": [row["recipe"] for row in given],
        "what differs": [_settings(row["settings"]) for row in given],
        "tested on": [row["split"] for row in given],
        "error": [_error(row) for row in given],
        "seconds": ["" if row["train_seconds"] is None else f"{row['train_seconds']:.0f}" for row in given],
    }
    note = "- Error in %: mean ± sample standard deviation over n seeds."
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    title = ["## Runs of one's own", ""] if heading else []
    return "\n".join([*title, *align(columns, names=("recipe", "what differs", "tested on")), "", note, ""])


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {_value(value)}" for name, value in settings.items())


def _value(value: Any) -> str:
    return "–".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _error(row: dict[str, Any]) -> str:
    mean, std, failed = row["mean"], row["std"], f"{row['failed']} failed"
    if mean is None:
        return failed
    counts = [f"n={row['n']}", *([failed] if row["failed"] else [])]
    return f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}") + f" ({', '.join(counts)})"
