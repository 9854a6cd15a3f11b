"""The networks by name, and their weights files."""

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

from ..config import build, check, check_options, checked
from ..errors import InputError, InputTypeError, unknown_name
from ..files import parse_json, read_tensors, save_tensors
from . import networks
from .networks import Ensemble, Model, ModelConfig, Network
from .polarize import PolarizedNetwork, is_timm, timm_builder, timm_network

if TYPE_CHECKING:
    from .export import OnnxModel

WEIGHTS = Path(__file__).parent / "weights"
DEFAULT_TAG = "rotmnist"

# hides the options of the origin predictor in networks without one
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
    "ccnn_3d": partial(networks.plain_network, stack="voxels"),
    "cylindrical": partial(networks.cylindrical_network, stack="voxels"),
    "cylindrical_l": partial(networks.cylindrical_network, stack="residual_voxels"),
}
# members of each ensemble; an option goes to every member that has it
_ENSEMBLES: dict[str, tuple[str, ...]] = {"ptn_cnn_b": ("ptn_b", "ccnn_b")}
# metadata of a member that do not hold for its ensemble
_OF_ONE_RUN = ("recipe", "seed", "test_error")
# types of the metadata that are used; other strings than these are read as JSON if possible
_METADATA: dict[str, type] = {"dataset": str, "recipe": str, "fit": str, "dataset_options": dict}
# names of arguments in other libraries
_OTHER_NAMES = {"img_size": "image_size", "in_channels": "in_chans"}


@checked
def list_models(pattern: str = "*") -> list[str]:
    """Returns the names of the networks that match a pattern such as "ptn*".

    Args:
        pattern: with "*" for any characters.
    """
    return sorted(name for name in (*_BUILDERS, *_ENSEMBLES) if fnmatch(name, pattern))


@checked
def list_pretrained(pattern: str = "*") -> list[str]:
    """Returns the names of the released weights, as "model.tag", that match a pattern.

    Args:
        pattern: with "*" for any characters.
    """
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors") if fnmatch(path.stem, pattern))


@checked
def list_options(name: str) -> list[str]:
    """Returns the names of the options of `create_model(name)` besides the sizes.

    Args:
        name: of a network, as in `list_models`.
    """
    builder = _builder(name.partition(".")[0])
    fixed = {"config", "backbone", "image_size", "in_chans"}
    if isinstance(builder, partial):
        fixed |= builder.keywords.keys()
    return [option for option in inspect.signature(builder).parameters if option not in fixed]


@checked
def create_model(
    name: str,
    *,
    pretrained: bool | str | Path = False,
    num_classes: int | None = None,
    in_chans: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **options: Any,
) -> Model:
    """Returns the network `name`: images (N, C, H, W), floats in [0, 1] -> logits (N, num_classes).

    With pretrained weights the network is in evaluation mode, and sizes and options that are not passed are those
    of the weights. A polarized network of timm is "timm:resnet18" (see `polarize`); "timm-plain:resnet18" is the
    network of timm itself.

    Args:
        name: One of `list_models()`, or one of `list_pretrained()`, such as "ptn_b.rotmnist".
        pretrained: True for the default weights of the network, a tag, or a file that `save_weights` wrote.
        num_classes: By default 10. With 0 the network has no head and returns pooled features. If the weights have
            another number of classes, the head is newly initialized.
        in_chans: By default 1.
        image_size: Pixels, or (H, W); of voxels the side of the cube. By default 28.
        options: See `list_options(name)`.

    Raises:
        InputError: A name, tag, size or option is unknown or invalid, or the weights do not fit.
    """
    name, _, tag = name.partition(".")
    if tag and isinstance(pretrained, bool):
        pretrained = tag
    _check_options(name, options)
    changes: dict[str, Any] = {"num_classes": num_classes, "in_chans": in_chans, "image_size": image_size}
    changes = {key: value for key, value in changes.items() if value is not None}
    if "image_size" in changes and not isinstance(image_size, tuple | list):
        changes["image_size"] = (image_size, image_size)
    if not isinstance(pretrained, bool) and (Path(pretrained).suffix == ".safetensors" or "/" in str(pretrained)):
        return _load_file(Path(pretrained), name, changes, options)
    config = build(ModelConfig, {"name": name, **changes, "options": options})
    if pretrained is False:
        return build_model(config)
    if is_timm(name):
        return build_model(config, tag="" if pretrained is True else str(pretrained)).eval()
    tag = _default_tag(name) if pretrained is True else str(pretrained)
    if name in _ENSEMBLES:
        return _build_ensemble(name, tag, changes, options).eval()
    path = WEIGHTS / f"{name}.{tag}.safetensors"
    if not path.is_file():
        raise InputError(f"no pretrained weights {name}.{tag}; available: {', '.join(list_pretrained())}")
    return _load_file(path, name, changes, options)


def load_model(source: str | Path, *, revision: str | None = None) -> "Model | OnnxModel":
    """Returns a trained network in evaluation mode, with its `classes` and `metadata`.

    Args:
        source: A released tag ("ptn_b.rotmnist"), a `.safetensors` or `.onnx` file, the folder of a run or one that
            `save_pretrained` wrote, or "user/name" on the Hugging Face Hub.
        revision: A branch, tag or commit on the Hub.
    """
    if not isinstance(source, str | Path):
        raise InputTypeError(f"expected the name, file or folder of a model; got {source!r}")
    path, text = Path(source), str(source)
    if path.suffix == ".pt2":
        raise InputError(f"{source} is a program of torch.export: load it with torch.export.load(path).module()")
    if path.suffix == ".onnx":
        from .export import OnnxModel

        return OnnxModel(path).eval()
    if path.is_dir():  # of a run, or of save_pretrained
        names = ("weights.safetensors", "model.safetensors")
        path = next((path / name for name in names if (path / name).is_file()), path / names[0])
    if path.suffix == ".safetensors" or path.exists():
        return _load_file(path)
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", text) and not path.parent.exists():
        from .export import download

        return _load_file(download(text, revision=revision))
    name, dot, tag = text.partition(".")
    if dot and (name in list_models() or is_timm(name)):
        return create_model(name, pretrained=tag)
    raise InputError(
        f"no model at {source}: expected a .safetensors or .onnx file, the folder of a run, user/name on the Hub, "
        f"or one of {', '.join(list_pretrained())}"
    )


@checked
def save_weights(model: nn.Module, path: str | Path, *, half: bool = False) -> None:
    """Write the weights, configuration, classes and metadata of a model as a safetensors file.

    Args:
        model: Of `create_model`, or a module with its attributes config, classes and metadata.
        path: File to write, `.safetensors`.
        half: Store floats as float16, except for tensors with values that float16 cannot represent.
    """
    texts, tensors = encode_metadata(model), model.state_dict()
    save_tensors(Path(path), {k: _to_half(v) for k, v in tensors.items()} if half else tensors, texts)


def build_model(config: ModelConfig, *, tag: str | None = None) -> Model:
    """Returns the model of a configuration with new weights, or with those that timm has under `tag`."""
    if config.name in _ENSEMBLES:
        sizes = {key: getattr(config, key) for key in ("num_classes", "in_chans", "image_size")}
        return _build_ensemble(config.name, None, sizes, config.options)
    options = _check_options(config.name, config.options)
    if is_timm(config.name):
        model = timm_network(config, tag=tag, **options)
    else:
        model = _builder(config.name)(config, **options)
    if isinstance(model, PolarizedNetwork):  # loading the network does not repeat the search for its layout
        config = replace(config, options={**config.options, "layout": asdict(model.layout)})
    model.config = config
    return model


def count_parameters(model: nn.Module) -> int:
    """Returns the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def config_of(model: nn.Module) -> ModelConfig:
    """Returns the configuration of a model that `create_model` can build."""
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig):
        raise InputError(
            f"create_model cannot build this {type(model).__name__}, so it cannot be saved with its configuration: "
            "save its state_dict(), or polarize a network by its name in timm"
        )
    return config


def encode_metadata(model: Any, *, shared: bool = False) -> dict[str, str]:
    """Returns configuration, classes and metadata of a model as strings; other values are encoded as JSON.

    Args:
        shared: Omit the path of the training images on this machine.
    """
    config = config_of(model)
    values: dict[str, Any] = {**model.metadata, "config": asdict(config)}
    if shared and (options := values.get("dataset_options")):
        values["dataset_options"] = {key: value for key, value in options.items() if key != "root"}
    if model.classes is not None:
        values["classes"] = list(model.classes)
        _check_classes(values["classes"], config)
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def decode_metadata(
    texts: Mapping[str, str], path: Path
) -> tuple[ModelConfig | None, tuple[str, ...] | None, dict[str, Any]]:
    """Returns the configuration, classes and metadata that `encode_metadata` wrote to a file."""
    values: dict[str, Any] = dict(texts)
    for key, text in texts.items():
        if _METADATA.get(key) is str:
            continue
        try:
            values[key] = parse_json(text, f"{key} in {path}")
        except InputError:
            if key == "config":  # others may be plain strings
                raise
    config, classes = values.pop("config", None), values.pop("classes", None)
    if config is not None:
        config = build(ModelConfig, config, f"configuration in {path}")
    if classes is not None:
        _check_classes(classes, config)
    for key, kind in _METADATA.items():
        check(f"{key} in {path}", values.get(key), isinstance(values.get(key), kind | None), f"a {kind.__name__}")
    check(f"fit in {path}", values.get("fit"), values.get("fit") in (None, "resize", "pad"), "resize or pad")
    return config, None if classes is None else tuple(map(str, classes)), values


def _check_classes(classes: object, config: ModelConfig | None) -> None:
    valid = (
        isinstance(classes, list)
        and all(isinstance(name, str) for name in classes)
        and (config is None or len(classes) == config.num_classes)
    )
    count = "" if config is None else f"{config.num_classes} "
    check("classes", classes, valid, f"a list of names of {count}classes")


def _load_file(
    path: Path, name: str | None = None, changes: Mapping[str, Any] | None = None, options: Any = None
) -> Model:
    """The model in a weights file, with other sizes and options if specified."""
    tensors, texts = read_tensors(path, "weights file")
    saved, classes, metadata = decode_metadata(texts, path)
    if saved is None:
        raise InputError(f"{path} has no model configuration: was it written by ptn?")
    if name not in (None, saved.name):
        raise InputError(f"{path.name} has weights of {saved.name}, not of {name}")
    changes, inherited = changes or {}, dict(saved.options)
    if options or changes.keys() - {"num_classes"}:
        inherited.pop("layout", None)  # it depends on the size of the images
    values = {**asdict(saved), **changes, "options": {**inherited, **(options or {})}}
    model = build_model(build(ModelConfig, values, f"configuration in {path}"))
    _load_state(model, tensors, path, saved)
    if model.config.num_classes == saved.num_classes:
        model.classes = classes
    if model.config == saved:
        model.metadata = metadata
    return model.eval()


def _load_state(model: Model, tensors: dict[str, Tensor], path: Path, saved: ModelConfig) -> None:
    """Load the tensors of a file, adapted to another number of channels.

    A head for another number of classes remains newly initialized.
    """
    state, config = model.state_dict(), model.config
    for key, value in state.items():
        tensor = tensors.get(key)
        if tensor is not None and tensor.shape != value.shape and saved.in_chans != config.in_chans:
            tensor = tensors[key] = _adapt_channels(key, tensor, saved.in_chans, config.in_chans)
        if tensor is not None and tensor.shape == value.shape:
            continue
        same_input = saved.num_classes == 0 if tensor is None else tensor.shape[1:] == value.shape[1:]
        if config.num_classes == saved.num_classes or value.shape[:1] != (config.num_classes,) or not same_input:
            raise InputError(
                f"{path.name} does not fit this model ({key}): its weights are for images of "
                f"{saved.image_size[0]}×{saved.image_size[1]} pixels; leave out image_size and options"
            )
        tensors[key] = value
    model.load_state_dict({key: tensors[key].to(value.dtype) for key, value in state.items()})


def _adapt_channels(key: str, tensor: Tensor, before: int, after: int) -> Tensor:
    """The statistics and the weights of a first convolution for another number of input channels.

    All channels get the mean weight, so that a gray image gives the same result with one channel or several.
    """
    if key.rpartition(".")[2] in ("mean", "std") and tensor.shape == (before,):
        return tensor.mean().expand(after)
    if tensor.dim() >= 4 and tensor.shape[1] == before:
        return tensor.sum(dim=1, keepdim=True).expand(-1, after, *tensor.shape[2:]) / after
    return tensor


def _build_ensemble(name: str, tag: str | None, sizes: Mapping[str, Any], options: Mapping[str, Any]) -> Ensemble:
    """An ensemble with new weights, or with those that all members have under `tag`."""
    if sizes.get("num_classes") == 0:
        raise InputError(f"{name} averages predictions: num_classes must be at least 1")
    members: list[Network] = []
    combined: dict[str, Any] = {}
    for member_name in _ENSEMBLES[name]:
        known = list_options(member_name)
        own = {key: value for key, value in options.items() if key in known}
        member = create_model(member_name, pretrained=tag or False, **sizes, **own)
        assert isinstance(member, Network)
        members.append(member)
        combined = {**member.config.options, **combined}
    model = Ensemble(members)
    model.config = replace(members[0].config, name=name, options=combined)
    model.metadata = {key: value for key, value in members[0].metadata.items() if key not in _OF_ONE_RUN}
    return model


def _builder(name: str) -> Callable[..., Network]:
    """The function whose keyword options are those of a network; of an ensemble, that of its first member."""
    name = _ENSEMBLES.get(name, (name,))[0]
    if is_timm(name):
        return timm_builder(name)
    if name not in _BUILDERS:
        raise unknown_name("model", name, list_models())
    return _BUILDERS[name]


def _check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a network, checked and converted by the type hints of its builder."""
    for other, ours in _OTHER_NAMES.items():
        if other in options:
            raise InputError(f"unknown option of {name} {other!r}: use {ours}")
    return check_options(_builder(name), options, list_options(name), f"option of {name}")


def _default_tag(name: str) -> str:
    """The tag that `pretrained=True` selects: that of rotmnist, or the only one."""
    tags = [full.partition(".")[2] for full in list_pretrained(f"{_ENSEMBLES.get(name, (name,))[0]}.*")]
    if DEFAULT_TAG not in tags and len(tags) != 1:
        raise InputError(f"{name} has no default weights; its tags are: {', '.join(tags) or 'none'}")
    return DEFAULT_TAG if DEFAULT_TAG in tags else tags[0]


def _to_half(values: Tensor) -> Tensor:
    if not values.is_floating_point() or values.abs().max() > torch.finfo(torch.float16).max:
        return values
    return values.half()
