"""A weights file or an ONNX file opened: the network in it, and what it says about its training."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..data.folder import FITS, Fit
from ..errors import InputError, check_choice
from ..models import Model, OnnxModel, create_model, list_pretrained, load_model
from ..models.zoo import find_weights, shipped_members

_IN_FOLDERS = ("weights.safetensors", "model.safetensors")
"""What the weights are called in the folder of a run, and in one that `save_pretrained` wrote."""


_OF_ONE_RUN = ("recipe", "seed", "test_error")
"""What the files of a sum's members say, and what does not hold for their sum."""


@dataclass(frozen=True, eq=False)
class Weights:
    """A trained network and its file's metadata: "classes", "dataset", "dataset_options" and "fit".

    `classes` are the names of its labels; None if the file has none. `dataset` is the catalog's name of what it
    was trained on, or "folder", and `dataset_options` how that was loaded; `fit` is how images were brought to
    the network's size. `metadata` is all that the file says of itself.
    """

    name: str
    model: Model | OnnxModel
    classes: tuple[str, ...] | None = None
    dataset: str | None = None
    dataset_options: dict[str, Any] = field(default_factory=dict)
    fit: Fit = "resize"
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels, or their numbers."""
        return self.classes or tuple(map(str, range(self.model.config.num_classes)))


def open_weights(name: str) -> Weights:
    """The network in a `.safetensors` or `.onnx` file, or shipped under a tag such as "ptn_b.rotmnist".

    A folder is that of a run, or one that `save_pretrained` wrote.
    """
    model: Model | OnnxModel
    if name.endswith(".onnx"):
        path = Path(name)
        model = OnnxModel(path)
        metadata = model.metadata
    elif not name.endswith(".safetensors") and not Path(name).exists() and (members := shipped_members(name)):
        path = members[0]
        model = create_model(name).eval()
        metadata = {key: value for key, value in _read_metadata(path).items() if key not in _OF_ONE_RUN}
    else:
        path = _find(name)
        model = load_model(path)
        metadata = _read_metadata(path)
    classes = _read_json(path, metadata, "classes", list)
    if classes is not None and len(classes) != model.config.num_classes:
        raise InputError(f"{path} names {len(classes)} classes, but its network has {model.config.num_classes}")
    fit = metadata.get("fit", "resize")
    check_choice(f"fit in {path}", fit, FITS)
    return Weights(
        name,
        model,
        None if classes is None else tuple(map(str, classes)),
        metadata.get("dataset"),
        _read_json(path, metadata, "dataset_options", dict) or {},
        cast("Fit", fit),
        metadata,
    )


def _find(name: str) -> Path:
    if name.endswith(".safetensors"):
        return find_weights("", name)
    if Path(name).is_dir():
        return _find_in_folder(Path(name))
    model, dot, tag = name.partition(".")
    if not dot or Path(name).exists():
        tags = ", ".join(list_pretrained()) or "none yet"
        raise InputError(
            f"weights are a .safetensors or .onnx file, a run's folder or a pretrained tag ({tags}); got {name!r}"
        )
    return find_weights(model, tag)


def _find_in_folder(folder: Path) -> Path:
    for name in _IN_FOLDERS:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder} has no {' or '.join(_IN_FOLDERS)} in it: name the folder of a run, or a file")


def _read_metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata() or {}


def _read_json(path: Path, metadata: dict[str, str], key: str, kind: type) -> Any:
    """The metadata under `key`, or None; an error unless it is JSON of that kind."""
    if key not in metadata:
        return None
    try:
        value = json.loads(metadata[key])
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, kind):
        raise InputError(f"{path}: its {key!r} is not a JSON {kind.__name__}: {metadata[key][:40]!r}")
    return value
