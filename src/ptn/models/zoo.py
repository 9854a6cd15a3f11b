"""Every network by name: `create_model`, `list_models`, and weights with the configuration they need."""

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor, nn

from ..errors import InputError, nothing_at, unknown_name
from ..files import save_tensors
from . import builders
from .networks import Model, Network, ScoreSum
from .polarize import PolarizedNetwork
from .timm_networks import is_timm, timm_builder, timm_options

WEIGHTS = Path(__file__).parent / "weights"

# options of an origin predictor, which a network without one does not have
_NO_PREDICTOR: dict[str, Any] = {"heatmap": "linear", "heatmap_bias": 1.0, "origin_turns": 1}

_BUILDERS: dict[str, Callable[..., Network]] = {
    "ptn_s": partial(builders.polar, stack="s", origin="learned"),
    "ptn_b": partial(builders.polar, stack="b", origin="learned"),
    "ptn_l": partial(builders.polar, stack="l", origin="learned"),
    "pcnn_s": partial(builders.polar, stack="s", origin="center", **_NO_PREDICTOR),
    "pcnn_b": partial(builders.polar, stack="b", origin="center", **_NO_PREDICTOR),
    "ccnn_s": partial(builders.plain, stack="s"),
    "ccnn_b": partial(builders.plain, stack="b"),
    "stn_s": partial(builders.stn, stack="s"),
    "stn_b": partial(builders.stn, stack="b"),
    "resnet32": partial(builders.plain, stack="resnet32", kernel=3),
    "ptn_resnet32": partial(builders.polar, stack="resnet32", origin="learned", kernel=3),
    "ccnn_3d": builders.voxels,
    "cylindrical": partial(builders.cylindrical, stack="plain"),
    "cylindrical_l": partial(builders.cylindrical, stack="residual"),
}
# scores summed over members; an option goes to every member that has it
_SUMS: dict[str, tuple[str, ...]] = {"ptn_cnn_b": ("ptn_b", "ccnn_b")}


def _is_whole(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True)
class ModelConfig:
    """All that is needed to build a model again."""

    name: str
    num_classes: int = 10
    image_size: tuple[int, int] = (28, 28)
    in_chans: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("num_classes", "in_chans"):
            if not _is_whole(getattr(self, name), least=1):
                raise InputError(f"{name} must be a whole number of at least 1; got {getattr(self, name)!r}")
        if not (len(self.image_size) == 2 and all(_is_whole(side, least=4) for side in self.image_size)):
            raise InputError(f"image_size must be a number of pixels or (H, W), at least 4; got {self.image_size}")


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return sorted([*_BUILDERS, *_SUMS])


def list_pretrained() -> list[str]:
    """The shipped weights, as `model.tag`."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def list_options(name: str) -> list[str]:
    """The options that a model takes beyond classes, image size and channels."""
    name = name.partition(".")[0]
    if name in _SUMS:
        return list_options(_SUMS[name][0])
    if is_timm(name):
        return timm_options(name)
    builder = _builder(name)
    # what the registry binds is what makes the name: not for the caller to change
    bound = builder.keywords if isinstance(builder, partial) else {}
    fixed = {"num_classes", "image_size", "in_chans", *bound}
    return [option for option in inspect.signature(builder).parameters if option not in fixed]


def _builder(name: str) -> Callable[..., Network]:
    """What makes the network called `name`, which is no sum of others."""
    if is_timm(name):
        return timm_builder(name)
    if name not in _BUILDERS:
        raise unknown_name("model", name, list_models())
    return _BUILDERS[name]


def create_model(
    name: str,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    in_chans: int | None = None,
    pretrained: str | Path | None = None,
    **options: Any,
) -> Model:
    """The network called `name`: images in [0, 1] (N, C, H, W) -> logits (N, num_classes).

    Args:
        num_classes: None takes what the pretrained weights have, else 10.
        image_size: a number or (H, W), for voxels the side of the cube; None takes what the weights have, else 28.
            Weights for another size load, as a place to start training from.
        in_chans: None takes what the weights have, else 1.
        pretrained: a tag of shipped weights ("rotmnist", also as part of the name: "ptn_b.rotmnist"), or the
            path of a `.safetensors` file that `save_weights` wrote. Another number of classes than theirs
            gets a fresh final layer.
        options: see `list_options(name)`.

    Beside the names of `list_models` there is `timm:` before any convolutional architecture of timm, which is
    polarized (see `polarize`); its tags are timm's own: "timm:resnet18.a1_in1k". `timm-plain:` leaves any
    architecture of timm as it is, to compare with.
    """
    if not isinstance(name, str):
        raise InputError(f"a model is named by a text, one of {', '.join(list_models())}; got {name!r}")
    if "." in name and pretrained is None:
        name, pretrained = name.split(".", 1)
    known = list_options(name)
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
    given: dict[str, Any] = {"num_classes": num_classes, "in_chans": in_chans}
    given = {key: _plain(value) for key, value in given.items() if value is not None}
    if image_size is not None:
        sides = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
        given["image_size"] = tuple(map(_plain, sides))
    if pretrained is None:
        return build(ModelConfig(name, **given, options=options))
    if is_timm(name) and not _is_path(pretrained):
        return build(ModelConfig(name, **given, options=options), tag=str(pretrained))
    if name in _SUMS and not _is_path(pretrained):
        return _sum_of_shipped(name, str(pretrained), given, options)

    path = find_weights(name, pretrained)
    saved = read_config(path)
    if saved.name != name:
        raise InputError(f"{path.name} holds weights of {saved.name}, not of {name}")
    inherited = dict(saved.options)
    if options or given.keys() - {"num_classes"}:
        inherited.pop("layout", None)  # found for other images
    config = ModelConfig(**{**asdict(saved), **given, "options": {**inherited, **options}})
    model = build(config)
    load_weights(model, path, fresh_head=config.num_classes != saved.num_classes)
    return model


def _sum_of_shipped(name: str, tag: str, given: dict[str, Any], options: dict[str, Any]) -> ScoreSum:
    """The members of a sum, each with its own shipped weights."""
    members = []
    for member in _SUMS[name]:
        own = {key: value for key, value in options.items() if key in list_options(member)}
        members.append(create_model(member, pretrained=tag, **given, **own))
    settings: dict[str, Any] = {}
    for made in reversed(members):
        settings |= made.config.options
    model = ScoreSum([made for made in members if isinstance(made, Network)])
    model.config = replace(members[0].config, name=name, options=settings)
    return model


def _plain(number: Any) -> Any:
    """A numpy integer as Python's own; anything else as it is."""
    return int(number) if hasattr(number, "__index__") and not isinstance(number, bool) else number


def build(config: ModelConfig, *, tag: str | None = None) -> Model:
    """The model that `config` describes, freshly initialised, or with the weights that timm has under `tag`."""
    size: dict[str, Any] = {
        "num_classes": config.num_classes,
        "image_size": config.image_size,
        "in_chans": config.in_chans,
    }
    model: Model
    if config.name in _SUMS:
        members = []
        for name in _SUMS[config.name]:
            own = {key: value for key, value in config.options.items() if key in list_options(name)}
            members.append(_made(_BUILDERS[name], size, own))
        model = ScoreSum(members)
    else:
        extra = {} if tag is None else {"tag": tag}
        model = _made(_builder(config.name), size, {**config.options, **extra})
    model.config = config
    if isinstance(model, PolarizedNetwork):  # what was found by trying need not be found again
        model.config = replace(config, options={**config.options, "layout": asdict(model.layout)})
    return model


def _made(builder: Callable[..., Network], size: dict[str, Any], options: dict[str, Any]) -> Network:
    """What `builder` makes, once its options are known to be numbers, or True or False, where they have to be."""
    hints = get_type_hints(builder.func if isinstance(builder, partial) else builder)
    for name, value in options.items():
        kinds = get_args(hints.get(name)) or (hints.get(name),)
        if bool in kinds and not isinstance(value, bool):
            raise InputError(f"{name} must be True or False; got {value!r}")
        missing = value is None and type(None) in kinds
        if float in kinds and not missing and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InputError(f"{name} must be a number; got {value!r}")
    return builder(**size, **options)


def _is_path(pretrained: str | Path) -> bool:
    path = Path(pretrained)
    return path.suffix == ".safetensors" or len(path.parts) > 1


def find_weights(name: str, pretrained: str | Path) -> Path:
    """The file behind a pretrained tag or path."""
    if _is_path(pretrained):
        path = Path(pretrained)
        if not path.is_file():
            raise nothing_at("weights", path)
        return path
    shipped = WEIGHTS / f"{name}.{pretrained}.safetensors"
    if not shipped.is_file():
        tags = ", ".join(list_pretrained()) or "none"
        raise InputError(f"no pretrained weights {name}.{pretrained}; available: {tags}")
    return shipped


def shipped_members(name: str) -> list[Path]:
    """The weights behind a tag of a sum, such as "ptn_cnn_b.rotmnist"; none for any other name."""
    model, _, tag = name.partition(".")
    return [find_weights(member, tag) for member in _SUMS.get(model, ())] if tag else []


def save_weights(
    model: Model, path: str | Path, *, half: bool = False, metadata: dict[str, str] | None = None
) -> None:
    """Write a model of this zoo and its configuration as safetensors, floats as float16 if `half`.

    What float16 cannot hold stays float32.
    """
    config = config_of(model)
    tensors = model.state_dict()
    if half:
        tensors = {key: _halved(value) for key, value in tensors.items()}
    save_tensors(Path(path), tensors, {**(metadata or {}), "config": json.dumps(asdict(config))})


def config_of(model: Model) -> ModelConfig:
    """The configuration of a model of this zoo."""
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig):
        raise InputError(
            f"this {type(model).__name__} was not made by create_model, which could make it again: make it so "
            "(`timm:NAME` polarizes a network of timm), or keep its state_dict() and the code that makes it"
        )
    return config


def _halved(values: Tensor) -> Tensor:
    if not values.is_floating_point() or values.abs().max() > torch.finfo(torch.float16).max:
        return values
    return values.half()


def read_config(path: Path) -> ModelConfig:
    """The configuration inside a weights file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise nothing_at("weights", path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a safetensors file: {error}") from error
    if "config" not in metadata:
        raise InputError(f"{path} has no model configuration in it: was it written by ptn?")
    return parse_config(metadata["config"], path)


def parse_config(written: Any, path: Path) -> ModelConfig:
    """The configuration found in the file at `path`, as `dataclasses.asdict` made it or as JSON of that."""
    try:
        values = json.loads(written) if isinstance(written, str) else written
        return ModelConfig(**{**values, "image_size": tuple(values["image_size"])})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} has a model configuration that cannot be read: {error}") from error


def load_weights(model: Model, path: Path, *, fresh_head: bool = False) -> None:
    """Load what `save_weights` wrote into `model`; `fresh_head` leaves final layers of another size as they are."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state = model.state_dict()
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file: {error}") from error
    if fresh_head:
        classes = config_of(model).num_classes
        other = {k for k, v in state.items() if k in tensors and _is_head(v, tensors[k], classes)}
        tensors |= {key: state[key] for key in other}
    for key, value in state.items():
        if key not in tensors or tensors[key].shape != value.shape:
            found = f"has shape {tuple(tensors[key].shape)}" if key in tensors else "is missing"
            raise InputError(f"{path.name} does not fit this model: {key} {found}, {tuple(value.shape)} needed")
    model.load_state_dict({k: tensors[k].to(state[k].dtype) for k in state})


def _is_head(ours: Tensor, saved: Tensor, classes: int) -> bool:
    """Whether two tensors are final layers, of `classes` and of another number of them."""
    return ours.shape[:1] == (classes,) and saved.shape[:1] != (classes,) and ours.shape[1:] == saved.shape[1:]


def load_model(path: str | Path) -> Model:
    """The model in a weights file, ready to use."""
    if str(path) in list_pretrained() and not Path(path).exists():
        raise InputError(f"{path} comes with the package: create_model({str(path)!r}) loads it")
    return create_model(read_config(Path(path)).name, pretrained=path).eval()


def count_parameters(model: nn.Module) -> int:
    """How many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters())


def build_on_meta(name: str, **settings: Any) -> Model:
    """A model without memory behind it, for counting."""
    with torch.device("meta"):
        return create_model(name, **settings)
