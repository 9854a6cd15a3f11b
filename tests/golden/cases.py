"""The cases of the golden tests by name. `record.py` and the tests share them."""

import math
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import adapter
import comparison
import numpy as np
import torch
from torch import Tensor

# Geometry: name -> function that returns the tensors to compare


def _gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The output of a function and the gradients of a fixed weighted sum of it."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    weights = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).reshape(out.shape)
    return [out, *torch.autograd.grad(out, leaves, weights)]


def geometry_cases() -> dict[str, Callable[[], list[Tensor]]]:
    image = comparison.fixed_images((1, 9, 13), count=2)
    colour = comparison.fixed_images((3, 8, 8), count=2, seed=1)
    volume = comparison.fixed_images((1, 7, 6, 3), count=2, seed=2)
    origin = torch.tensor([[0.0, 0.0], [0.3, -0.45]])
    log, linear = {"angles": 8, "radii": 5}, {"angles": 8, "radii": 5, "law": "linear"}
    bounded = {"angles": 6, "radii": 4, "r_min_px": 0.5, "r_max_px": 3.5}
    phase, dilation = torch.tensor([0.4, -2.0]), torch.tensor([0.7, 1.3])
    cases: dict[str, Callable[[], list[Tensor]]] = {}
    for law, grid in (("log", log), ("linear", linear)):
        for interpolation in ("bilinear", "nearest", "bicubic"):
            for padding in ("zeros", "border"):
                options = {"mode": interpolation, "padding_mode": padding}
                sample = partial(adapter.polar_sample, grid=grid, **options)
                cases[f"polar_sample {law} {interpolation} {padding}"] = partial(_gradients, sample, image, origin)

    def sample_rotated(images: Tensor, centre: Tensor, angle: Tensor, factor: Tensor) -> Tensor:
        return adapter.polar_sample(images, centre, log, phase=angle, dilation=factor)

    cases["polar_sample phase and dilation"] = partial(_gradients, sample_rotated, image, origin, phase, dilation)
    cases["polar_sample phase number"] = lambda: [adapter.polar_sample(image, origin, log, phase=math.pi / 3)]
    cases["polar_sample colour bounded"] = lambda: [adapter.polar_sample(colour, origin, bounded)]
    cases["polar_sample float64"] = lambda: [adapter.polar_sample(image.double(), origin.double(), log)]
    polar = comparison.fixed_images((1, 8, 5), count=2, seed=3)
    for law, grid in (("log", log), ("linear", linear)):
        unsample = partial(adapter.polar_unsample, grid=grid, size=(7, 9))
        cases[f"polar_unsample {law}"] = partial(_gradients, unsample, polar, origin)
    cases["polar_unsample bicubic fill"] = lambda: [
        adapter.polar_unsample(polar, origin, log, (9, 9), mode="bicubic", fill=0.5)
    ]
    cases["cylindrical_sample"] = partial(
        _gradients, partial(adapter.cylindrical_sample, grid=linear), volume, origin
    )
    cases["cylindrical_sample log phase"] = lambda: [
        adapter.cylindrical_sample(volume, origin, log, phase=phase, mode="bicubic", padding_mode="border")
    ]
    shift = torch.tensor([[1.5, -0.5], [0.0, 2.0]])

    def warp(images: Tensor, rotation: Tensor, scale: Tensor, shift_px: Tensor) -> Tensor:
        return adapter.similarity_warp(images, rotation=rotation, scale=scale, shift_px=shift_px)

    cases["similarity_warp"] = partial(_gradients, warp, image, phase, dilation, shift)
    cases["similarity_warp size bicubic border"] = lambda: [
        adapter.similarity_warp(colour, rotation=0.5, scale=1.5, size=(6, 7), mode="bicubic", padding_mode="border")
    ]
    cases["similarity_warp nearest"] = lambda: [adapter.similarity_warp(image, rotation=phase, mode="nearest")]
    cases["similarity_warp volume"] = lambda: [adapter.similarity_warp(volume, rotation=phase, shift_px=shift)]
    cases["wrap_pad"] = lambda: [adapter.wrap_pad(polar, 2)]
    cases["wrap_pad uneven"] = lambda: [adapter.wrap_pad(polar, ((9, 1), (0, 2)))]
    cases["wrap_pad volume"] = lambda: [adapter.wrap_pad(volume, (1, 2, (0, 1)))]
    scores = 4 * image[:, 0] - 1.5
    for activation in ("softplus", "linear"):
        centroid = partial(adapter.heatmap_centroid, activation=activation)
        cases[f"heatmap_centroid {activation}"] = partial(_gradients, centroid, scores)
    return cases


# Networks

SETTINGS: dict[str, dict[str, Any]] = {
    "ptn_resnet32": {"image_size": 32, "in_chans": 3},
    "resnet32": {"image_size": 32, "in_chans": 3},
    "ccnn_3d": {"image_size": 32},
    "cylindrical": {"image_size": 32},
    "cylindrical_l": {"image_size": 32},
}


def seeded(name: str) -> torch.nn.Module:
    """A network initialised with seed 0, for images of its default size."""
    return adapter.create_seeded(name, seed=0, **SETTINGS.get(name, {}))


def network_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    """The logits of the fixed images, and the origins where the network has them."""
    images = comparison.fixed_images(adapter.input_shape(model))
    tensors = {"logits": adapter.logits(model, images), "origins": adapter.origins(model, images)}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def state_facts(model: torch.nn.Module) -> dict[str, Any]:
    """Names and shapes of the state, the number of parameters, and the hash of all values."""
    state = model.state_dict()
    values = torch.cat([tensor.double().flatten() for tensor in state.values()])
    return {
        "state": {name: list(tensor.shape) for name, tensor in state.items()},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sha256": comparison.sha256(values),
    }


# Data: (data set, split, options), those that take long apart

COUNT = 64
QUICKSTART: list[tuple[str, str, dict[str, Any]]] = [
    ("quickstart", "train", {}),
    ("quickstart", "test", {}),
    ("quickstart", "train", {"perturbed": False}),
    ("quickstart", "test", {"seed": 1}),
]
REAL: list[tuple[str, str, dict[str, Any]]] = [
    *(("mnist", split, {}) for split in ("train", "test")),
    *(("rotmnist", split, {}) for split in ("train", "valid", "test", "train+valid")),
    ("rotmnist", "valid", {"seed": 1, "source": "regenerated"}),
    *((name, split, {}) for name in ("mnist-r", "mnist-rts") for split in ("train", "test")),
    *(("sim2mnist", split, {}) for split in ("train", "valid")),
    ("sim2mnist", "valid", {"clutter": 0}),
    ("sim2mnist", "valid", {"clutter": 5, "clutter_px": 6}),
    ("sim2mnist-larger", "valid", {}),
    ("sim2mnist-turned", "valid", {}),
    *((name, split, {}) for name in ("svhn", "svhn-minus") for split in ("train", "fit", "valid", "test")),
    *((name, "test", {}) for name in ("rotsvhn", "rotsvhn-minus")),
    ("svhn", "test", {"size": 48}),
    ("svhn", "fit", {"training_tiles": True}),
    *(("modelnet40", split, {}) for split in ("train", "valid", "test")),
    ("modelnet40", "test", {"occupancy": "solid"}),
]
SLOW: list[tuple[str, str, dict[str, Any]]] = [
    ("sim2mnist", "test", {}),
    *((name, split, {}) for name in ("sim2mnist-larger", "sim2mnist-turned") for split in ("train", "test")),
    *((name, split, {}) for name in ("rotsvhn", "rotsvhn-minus") for split in ("train", "fit", "valid")),
    ("rotsvhn", "test", {"size": 48}),
    ("rotsvhn", "test", {"scale": [0.5, 1.0]}),
    ("rotsvhn", "test", {"seed": 1}),
    ("rotsvhn-minus", "fit", {"training_tiles": True}),
    ("rotsvhn-minus", "valid", {"training_tiles": True, "size": 48, "scale": [0.5, 1.0]}),
    ("modelnet40", "test", {"size": 64}),
    ("modelnet40", "valid", {"size": 64}),
    ("modelnet40", "test", {"occupancy": "surface+solid", "size": 64}),
]
MESHES = [("cup_0080", 32, "surface"), ("cup_0080", 32, "solid"), ("bowl_0078", 64, "surface")]


def data_key(name: str, split: str, options: dict[str, Any]) -> str:
    return " ".join([name, split, *(f"{key}={value}" for key, value in options.items())])


def data_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Record of the first images of a split. `means` are those of the first eight images."""
    images = facts.pop("images")
    poses = {name: comparison.sha256(tensor) for name, tensor in facts.pop("poses").items()}
    labels = facts.pop("labels")
    return {
        **facts,
        "shape": list(images.shape),
        "dtype": str(images.dtype),
        "labels": labels.tolist(),
        "means": [round(value, 4) for value in images[:8].double().flatten(1).mean(dim=1).tolist()],
        "images": comparison.sha256(images),
        "poses": poses,
    }


SLOW_FOLDERS: list[tuple[str, str, dict[str, Any]]] = [
    ("coins", "train", {"image_size": 64}),
    ("coins", "test", {"image_size": 64}),
]
FOLDERS: list[tuple[str, str, dict[str, Any]]] = [
    ("textures", "train", {"image_size": 64}),
    ("textures", "valid", {"image_size": 32, "channels": 3}),
    ("textures", "test", {"image_size": (40, 56), "fit": "pad"}),
    ("plain", "train", {"image_size": 16}),
    ("plain", "valid", {"image_size": 16, "seed": 3, "valid_fraction": 0.3}),
    ("plain", "test", {"image_size": 16}),
]


def draw_examples() -> dict[str, Tensor]:
    """A few images of each example, at a quarter of their resolution."""
    examples = {}
    for name, kind in (("coins", "helmet"), ("textures", "gravel")):
        images = adapter.draw_example(name, kind, "test", count=4, seed=0)
        examples[f"{name} {kind}"] = torch.nn.functional.avg_pool2d(images[:, None], 4)
    return examples


def write_folder(name: str, root: Path) -> None:
    """The folder of images called `name` in `FOLDERS`: an example, or two classes of 20 colour images."""
    if name != "plain":
        adapter.write_example(name, root)
        return
    from PIL import Image

    pictures = (255 * comparison.fixed_images((3, 12, 20), count=40, seed=4)).round().byte().permute(0, 2, 3, 1)
    for index, picture in enumerate(pictures.numpy()):
        path = root / ("left", "right")[index % 2] / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)


def read_formats(folder: Path) -> dict[str, str]:
    """Hashes of the results of the readers of idx and amat files for small generated files."""
    images = np.random.default_rng(5).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    (folder / "images.idx").write_bytes(struct.pack(">HBB3I", 0, 8, 3, *images.shape) + images.tobytes())
    rows = np.concatenate([images.reshape(3, -1) / 255, [[7], [0], [3]]], axis=1)
    np.savetxt(folder / "images.amat", rows, fmt="%.6f")
    values, labels = adapter.read_amat(folder / "images.amat")
    arrays = {"idx": adapter.read_idx(folder / "images.idx"), "amat images": values, "amat labels": labels}
    return {name: comparison.sha256(torch.tensor(array)) for name, array in arrays.items()}
