"""The networks by name, and reading and writing their weights."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..config import build as build_dataclass
from ..config import check_options
from ..errors import InputError, nothing_at, unknown_name
from ..files import read_tensors, save_tensors
from . import networks
from .networks import Ensemble, Model, ModelConfig, Network
from .polarize import PolarizedNetwork, is_timm, timm_builder, timm_options

if TYPE_CHECKING:
    from .export import OnnxModel

WEIGHTS = Path(__file__).parent / "weights"
DEFAULT_TAG = "rotmnist"

# options of the origin predictor, hidden in networks without one
_NO_PREDICTOR: dict[str, Any] = {"heatmap": "linear", "origin_turns": 1}

_BUILDERS: dict[str, Callable[..., Network]] = {
    "ptn_s": partial(networks.polar_network, stack="s", origin="learned"),
    "ptn_b": partial(networks.polar_network, stack="b", origin="learned"),
    "ptn_l": partial(networks.polar_network, stack="l", origin="learned"),
    "pcnn_s": partial(networks.polar_network, stack="s", origin="center", **_NO_PREDICTOR),
    "pcnn_b": partial(networks.polar_network, stack="b", origin="center", **_NO_PREDICTOR),
    "ccnn_s": partial(networks.plain_network, stack="s"),
    "ccnn_b": partial(networks.plain_network, stack="b"),
    "stn_s": partial(networks.spatial_network, stack="s"),
    "stn_b": partial(networks.spatial_network, stack="b"),
    "resnet32": partial(networks.plain_network, stack="resnet32"),
    "ptn_resnet32": partial(networks.polar_network, stack="resnet32", origin="learned"),
    "ccnn_3d": networks.voxel_network,
    "cylindrical": partial(networks.cylindrical_network, stack="plain"),
    "cylindrical_l": partial(networks.cylindrical_network, stack="residual"),
}
# members of each ensemble; an option goes to every member that has it
_ENSEMBLES: dict[str, tuple[str, ...]] = {"ptn_cnn_b": ("ptn_b", "ccnn_b")}
# names that other libraries use for arguments of `create_model`
_OTHER_NAMES = {"img_size": "image_size", "in_channels": "in_chans", "num_channels": "in_chans"}
# metadata of a single run, which do not hold for an ensemble of several
_OF_ONE_RUN = ("recipe", "seed", "test_error")


def list_models(pattern: str = "*") -> list[str]:
    """Names of the networks that match a pattern such as "ptn*"."""
    return sorted(name for name in (*_BUILDERS, *_ENSEMBLES) if fnmatch(name, pattern))


def list_pretrained(pattern: str = "*") -> list[str]:
    """Names of the released weights, as "model.tag", that match a pattern."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors") if fnmatch(path.stem, pattern))


def list_options(name: str) -> list[str]:
    """Names of the options that `create_model(name)` takes besides the number of classes, image size and channels."""
    name = name.partition(".")[0]
    if name in _ENSEMBLES:
        return list_options(_ENSEMBLES[name][0])
    if is_timm(name):
        return timm_options(name)
    builder = _builder(name)
    bound = builder.keywords if isinstance(builder, partial) else {}
    fixed = {"num_classes", "image_size", "in_chans", *bound}
    return [option for option in inspect.signature(builder).parameters if option not in fixed]


def create_model(
    name: str,
    *,
    pretrained: bool | str | Path | None = False,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **options: Any,
) -> Model:
    """Returns the network `name`: images in [0, 1] (N, C, H, W) -> logits (N, num_classes).

    With pretrained weights it is in evaluation mode; what is None is taken from the weights.

    Args:
        name: One of `list_models()`; with a tag, "ptn_b.rotmnist", weights are loaded. "timm:resnet18" is any
            convolutional architecture of timm, polarized (see `polarize`), "timm-plain:resnet18" any as it is.
        pretrained: True for the default weights of the network, a tag of `list_pretrained()` or of timm, or the path
            of a file that `save_weights` wrote.
        num_classes: By default 10; 0 removes the head and returns pooled features. A number other than that of the
            weights gives a newly initialized head.
        in_chans: By default 1.
        image_size: Pixels, or (H, W); for voxels the side of the cube. By default 28. Weights for another size are
            loaded as a starting point for training.
        options: See `list_options(name)`.
    """
    if not isinstance(name, str):
        raise InputError(f"name must be a string, one of {', '.join(list_models())}; got {name!r}")
    name, _, tag = name.partition(".")
    if tag and pretrained in (None, False, True):
        pretrained = tag
    _check_options(name, options)
    sizes: dict[str, Any] = {"num_classes": num_classes, "in_chans": in_chans}
    if image_size is not None:
        sizes["image_size"] = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    sizes = {key: value for key, value in sizes.items() if value is not None}
    if pretrained is None or pretrained is False:
        return build(build_dataclass(ModelConfig, {"name": name, **sizes, "options": options}))
    if not _is_path(pretrained):
        if is_timm(name):
            config = build_dataclass(ModelConfig, {"name": name, **sizes, "options": options})
            return build(config, timm_tag="" if pretrained is True else str(pretrained)).eval()
        tag = _default_tag(name) if pretrained is True else str(pretrained)
        if name in _ENSEMBLES:
            return _released_ensemble(name, tag, sizes, options)
        pretrained = _released_file(name, tag)
    return _from_file(Path(str(pretrained)), name, sizes, options)


def load_model(source: str | Path, *, revision: str | None = None) -> "Model | OnnxModel":
    """Returns a trained network in evaluation mode, with its `classes` and `metadata`.

    Args:
        source: A released tag ("ptn_b.rotmnist"), a `.safetensors` file, an `.onnx` file, the folder of a run or one
            that `save_pretrained` wrote, or "user/name" on the Hugging Face Hub.
        revision: A branch, tag or commit on the Hub.
    """
    path = Path(source)
    if path.suffix == ".onnx":
        from .export import OnnxModel

        return OnnxModel(path).eval()
    if path.is_dir():
        return _from_file(_weights_in(path))
    if path.suffix == ".safetensors" or path.is_file() or isinstance(source, Path):
        return _from_file(path)
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", source):
        from .hub import download

        return _from_file(download(source, revision=revision))
    name, dot, tag = source.partition(".")
    if dot and (name in list_models() or is_timm(name)):
        return create_model(name, pretrained=tag)
    raise InputError(
        f"no model at {source}: expected a .safetensors or .onnx file, the folder of a run, user/name on the Hub, or "
        f"one of {', '.join(list_pretrained())}"
    )


def save_weights(
    model: Model, path: str | Path, *, half: bool = False, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a model with its configuration, classes and metadata as a safetensors file.

    Args:
        half: Store floats as float16, except for tensors with values that float16 cannot represent.
        metadata: JSON-like values in addition to `model.metadata`.
    """
    tensors = model.state_dict()
    if half:
        tensors = {key: _to_half(value) for key, value in tensors.items()}
    save_tensors(Path(path), tensors, encode_metadata(model, metadata))


def build(config: ModelConfig, *, timm_tag: str | None = None) -> Model:
    """Returns the model of a configuration, newly initialized, or with the weights of timm under a tag."""
    sizes = {key: getattr(config, key) for key in ("num_classes", "image_size", "in_chans")}
    model: Model
    if config.name in _ENSEMBLES:
        if config.num_classes == 0:
            raise InputError(f"{config.name} is an ensemble of predictions: num_classes must be at least 1")
        members = []
        for name in _ENSEMBLES[config.name]:
            members.append(_BUILDERS[name](**sizes, **_check_options(name, _options_of(name, config.options))))
        model = Ensemble(members)
    else:
        options = _check_options(config.name, config.options)
        builder = timm_builder(config.name, timm_tag) if is_timm(config.name) else _builder(config.name)
        model = builder(**sizes, **options)
    if isinstance(model, PolarizedNetwork):  # a layout that was found once is not searched again
        config = replace(config, options={**config.options, "layout": asdict(model.layout)})
    model.config = config
    return model


def build_on_meta(name: str, **settings: Any) -> Model:
    """Returns a model on the meta device, to count its parameters."""
    with torch.device("meta"):
        return create_model(name, **settings)


def count_parameters(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def config_of(model: nn.Module) -> ModelConfig:
    """Configuration of a model that `create_model` can build."""
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig):
        raise InputError(
            f"create_model cannot build this {type(model).__name__}, so it cannot be saved with its configuration: "
            "save its state_dict(), or polarize a network that timm names"
        )
    return config


def encode_metadata(model: nn.Module, metadata: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Configuration, classes and metadata of a model as strings: other values than strings are JSON."""
    config, classes = config_of(model), getattr(model, "classes", None)
    if classes is not None:
        _check_classes(classes, config.num_classes)
    values = {**getattr(model, "metadata", {}), **(metadata or {})}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return {
        **texts,
        **({} if classes is None else {"classes": json.dumps(list(classes))}),
        "config": json.dumps(asdict(config)),
    }


def decode_metadata(
    texts: Mapping[str, str], path: Path
) -> tuple[ModelConfig | None, tuple[str, ...] | None, dict[str, Any]]:
    """Inverse of `encode_metadata`: configuration, classes and metadata; None for what is missing."""
    values = {key: _decode(text) for key, text in texts.items()}
    config, classes = values.pop("config", None), values.pop("classes", None)
    if classes is not None:
        if not isinstance(classes, list):
            raise InputError(f"{path}: classes must be a list; got {classes!r}")
        classes = tuple(map(str, classes))
    if config is not None:
        config = build_dataclass(ModelConfig, config, f"configuration in {path}")
        if classes is not None:
            _check_classes(classes, config.num_classes, f"{path}: ")
    return config, classes, values


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_classes(classes: tuple[str, ...], count: int, where: str = "") -> None:
    if len(classes) != count:
        raise InputError(f"{where}the model has {count} classes; got {len(classes)} names")


def _from_file(
    path: Path, name: str | None = None, sizes: Mapping[str, Any] | None = None, options: Any = None
) -> Model:
    """The model in a weights file, with other sizes and options where they are given."""
    tensors, texts = read_tensors(path, "weights file")
    saved, classes, metadata = decode_metadata(texts, path)
    if saved is None:
        raise InputError(f"{path} has no model configuration: was it written by ptn?")
    if name not in (None, saved.name):
        raise InputError(f"{path.name} has weights of {saved.name}, not of {name}")
    inherited = dict(saved.options)
    if options or (sizes and sizes.keys() - {"num_classes"}):
        inherited.pop("layout", None)  # it depends on the size of the images
    changes = {**(sizes or {}), "options": {**inherited, **(options or {})}}
    model = build(build_dataclass(ModelConfig, {**asdict(saved), **changes}, f"configuration in {path}"))
    _load_state(model, tensors, path, saved.num_classes)
    if model.config.num_classes == saved.num_classes:
        model.classes = classes
    if model.config == saved:
        model.metadata = metadata
    return model.eval()


def _load_state(model: Model, tensors: dict[str, Tensor], path: Path, saved_classes: int) -> None:
    """Load the tensors of a weights file; a head for another number of classes stays as it is initialized."""
    state, num_classes = model.state_dict(), model.config.num_classes
    for key, value in state.items():
        saved = tensors.get(key)
        if saved is not None and saved.shape == value.shape:
            continue
        same_input = saved is None and saved_classes == 0 or saved is not None and saved.shape[1:] == value.shape[1:]
        if num_classes != saved_classes and value.shape[:1] == (num_classes,) and same_input:
            tensors[key] = value
            continue
        problem = "is missing" if saved is None else f"has shape {tuple(saved.shape)}"
        raise InputError(f"{path.name} does not fit this model: {key} {problem}, expected {tuple(value.shape)}")
    model.load_state_dict({key: tensors[key].to(value.dtype) for key, value in state.items()})


def _released_ensemble(name: str, tag: str, sizes: Mapping[str, Any], options: Mapping[str, Any]) -> Ensemble:
    """An ensemble of released networks."""
    members = []
    for member in _ENSEMBLES[name]:
        members.append(create_model(member, pretrained=tag, **sizes, **_options_of(member, options)))
    combined: dict[str, Any] = {}
    for member_model in reversed(members):
        combined |= member_model.config.options
    model = Ensemble([member for member in members if isinstance(member, Network)])
    model.config = replace(members[0].config, name=name, options=combined)
    model.metadata = {key: value for key, value in members[0].metadata.items() if key not in _OF_ONE_RUN}
    return model.eval()


def _builder(name: str) -> Callable[..., Network]:
    if name not in _BUILDERS:
        raise unknown_name("model", name, list_models())
    return _BUILDERS[name]


def _check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a network, checked and converted by the type hints of its builder."""
    known = list_options(name)
    for option, ours in _OTHER_NAMES.items():
        if option in options:
            raise InputError(f"unknown option of {name} {option!r}: ptn calls it {ours}")
    first = _ENSEMBLES.get(name, (name,))[0]
    return check_options(timm_builder(name) if is_timm(name) else _builder(first), options, known, f"option of {name}")


def _options_of(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = list_options(name)
    return {key: value for key, value in options.items() if key in known}


def _default_tag(name: str) -> str:
    """The tag that `pretrained=True` means: rotmnist, or the only one."""
    members = _ENSEMBLES.get(name, (name,))
    tags = [{full.partition(".")[2] for full in list_pretrained(f"{member}.*")} for member in members]
    common = sorted(set.intersection(*tags))
    if DEFAULT_TAG in common:
        return DEFAULT_TAG
    if len(common) != 1:
        raise InputError(f"{name} has no default weights; pretrained takes one of these tags: {', '.join(common) or 'none'}")
    return common[0]


def _is_path(pretrained: bool | str | Path) -> bool:
    if isinstance(pretrained, bool):
        return False
    path = Path(pretrained)
    return path.suffix == ".safetensors" or len(path.parts) > 1


def _released_file(name: str, tag: str) -> Path:
    path = WEIGHTS / f"{name}.{tag}.safetensors"
    if not path.is_file():
        raise InputError(f"no pretrained weights {name}.{tag}; available: {', '.join(list_pretrained())}")
    return path


def _weights_in(folder: Path) -> Path:
    """The weights file in the folder of a run, or in one that `save_pretrained` wrote."""
    for name in ("weights.safetensors", "model.safetensors"):
        if (folder / name).is_file():
            return folder / name
    raise nothing_at("weights.safetensors or model.safetensors", folder)


def _to_half(values: Tensor) -> Tensor:
    if not values.is_floating_point() or values.abs().max() > torch.finfo(torch.float16).max:
        return values
    return values.half()
