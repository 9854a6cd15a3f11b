"""What a model says about image files or meshes, and a picture of where it looked."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.folder import FITS, SUFFIXES, Fit, FittedImage, read_fitted
from ..data.meshes import MESH_SUFFIXES, read_voxels, view_from_above
from ..data.voxelize import OCCUPANCIES, SIZES, Occupancy
from ..device import default_batch, placement, precision_of
from ..errors import InputError, check_choice
from ..models import InferenceModel, Model, Network, OnnxModel
from ..models.inference import prepare_for_inference
from .classify import check_finite

if TYPE_CHECKING:
    from PIL.Image import Image

STRANGE = 2.0
"""From how many deviations on an image is strange to a network: see `is_strange`."""

# Overlays are enlarged by a whole factor to about this many pixels.
_OVERLAY_PX = 384
_CAPTION_PX = 26
_FONT_PX = 16
_CROSS_PX = 12
_BACKGROUND = (38, 40, 46)
_INK = (235, 235, 235)
_MARK = (40, 230, 90)
_HEAT = (255, 70, 0)
# how much of the image the hottest place hides
_HEAT_OPACITY = 0.65


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says about one file.

    `top` has the likeliest classes with their probabilities, the likeliest first. `image` uint8 (C, H, W) is
    what the model saw, a mesh's voxels from above; `origin` (x, y) in [-1, 1] of it and `heatmap` (h, w) are None
    if the model has none.
    """

    path: Path
    class_name: str
    probability: float
    top: tuple[tuple[str, float], ...]
    origin: tuple[float, float] | None
    image: Tensor = field(repr=False)
    heatmap: Tensor | None = field(repr=False)


class Fault(NamedTuple):
    """A file that could not be read, and a line that says why."""

    path: Path
    reason: str


def predict_files(
    model: Model | OnnxModel,
    classes: Sequence[str],
    paths: Sequence[Path],
    *,
    batch: int | None = None,
    top: int = 5,
    fit: Fit = "resize",
    occupancy: Occupancy | None = None,
    device: torch.device | str | None = None,
) -> tuple[list[Prediction], list[Fault]]:
    """What `model` says about the images in `paths`, in their order, and the files that could not be read.

    Images are brought to the model's size and channels as `load_folder` does; `fit` is what it was trained with.
    For a model of voxels the files are meshes, voxelised as ModelNet's are; `occupancy` is what it was trained
    with, by default the surface, and the solid too if it takes two channels.

    Args:
        classes: the names of the model's labels.
        batch: how many images are read and classified at a time; None is 1000, or fewer if they are large.
        top: how many classes a prediction names.
        device: where to compute; None is where the model is. A model that is elsewhere moves, and stays there.
    """
    read = _reader(model, fit, occupancy)
    if len(classes) != model.config.num_classes:
        raise InputError(f"the model has {model.config.num_classes} classes; got {len(classes)} names for them")
    if top < 1 or (batch is not None and batch < 1):
        raise InputError(f"top and batch must be at least 1; got {top} and {batch}")
    if device is not None:
        model.to(device)

    ready = prepare_for_inference(model)
    predictions: list[Prediction] = []
    faults: list[Fault] = []
    step = batch or default_batch(model.input_shape)
    for start in range(0, len(paths), step):
        chosen = paths[start : start + step]
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(read, chosen))
        images: list[Tensor] = []
        readable: list[Path] = []
        for path, result in zip(chosen, results, strict=True):
            if result.image is None:
                faults.append(Fault(path, result.fault))
            else:
                images.append(result.image)
                readable.append(path)
        if images:
            predictions += _predict(ready, classes, readable, torch.stack(images), top)
    return predictions, faults


def is_strange(model: Model | OnnxModel, image: Tensor) -> bool:
    """Whether `image` uint8 (C, H, W) is much brighter or darker than what `model` learned from, say inverted.

    By more than `STRANGE` deviations of a training pixel, on average. To models without these nothing is strange.
    """
    if not isinstance(model, Network) or len(model.input_shape) != 3:
        return False
    mean, std = (model.get_buffer(name).cpu() for name in ("mean", "std"))
    return bool(((image.flatten(1).float().mean(dim=1) / 255 - mean).abs() > STRANGE * std).all())


class FileKind(NamedTuple):
    """What a model takes, "an image" or "a mesh", and how such files' names end."""

    article: str
    name: str
    suffixes: tuple[str, ...]


def file_kind(model: Model | OnnxModel) -> FileKind:
    """The kind of files that `predict_files` reads for `model`."""
    if len(model.input_shape) == 3:
        return FileKind("an", "image", SUFFIXES)
    return FileKind("a", "mesh", MESH_SUFFIXES)


def _reader(model: Model | OnnxModel, fit: Fit, occupancy: Occupancy | None) -> Callable[[Path], FittedImage]:
    """How a file becomes what `model` takes."""
    channels, *size = model.input_shape
    check_choice("fit", fit, FITS)
    if len(size) == 2 and channels in (1, 3):
        return lambda path: read_fitted(path, (size[0], size[1]), channels, fit)
    kind = occupancy or ("surface" if channels == 1 else "surface+solid")
    check_choice("occupancy", kind, OCCUPANCIES)
    if len(size) != 3 or size[0] not in SIZES or len(kind.split("+")) != channels:
        takes = f"{model.config.name} takes {tuple(model.input_shape)}"
        raise InputError(f"{takes}, which no image file holds, nor do meshes become {kind} of that size")

    def read(path: Path) -> FittedImage:
        try:
            return FittedImage(read_voxels(path, size=size[0], occupancy=kind), "", "")
        except InputError as error:
            return FittedImage(None, "", str(error))

    return read


def _predict(
    model: Model | InferenceModel | OnnxModel,
    classes: Sequence[str],
    paths: Sequence[Path],
    images: Tensor,
    top: int,
) -> Iterator[Prediction]:
    """A prediction for each path, whose image (N, C, H, W) or volume is at the same place in `images`."""
    place, dtype = placement(model)
    volumes = images.dim() == 5
    with precision_of("fp32", place):
        seen = model.explain(images.to(place).to(dtype) / (1 if volumes else 255))
    answers = seen.logits.float().softmax(dim=1).cpu()
    check_finite(answers)
    best = answers.topk(min(top, len(classes)))
    for index, path in enumerate(paths):
        named = zip(best.indices[index].tolist(), best.values[index].tolist(), strict=True)
        ranking = tuple((classes[label], probability) for label, probability in named)
        origin = None
        if seen.origins is not None:
            x, y = seen.origins[index].tolist()
            origin = (x, y)
        heatmap = None if seen.heatmaps is None else seen.heatmaps[index].cpu()
        image = view_from_above(images[index]) if volumes else images[index]
        yield Prediction(path, *ranking[0], ranking, origin, image, heatmap)


def overlay(
    image: Tensor,
    origin: tuple[float, float] | None = None,
    heatmap: Tensor | None = None,
    *,
    caption: str = "",
) -> "Image":
    """A picture of where a model looked: the image enlarged, its heatmap in red, a cross at its origin.

    `image` uint8 (C, H, W), grey or colour; `origin` (x, y) in [-1, 1]; `heatmap` (h, w) of any size, the
    hotter the more it draws the origin to it. The caption stands below.
    """
    from PIL import Image, ImageDraw, ImageFont

    height, width = image.shape[1:]
    factor = max(1, round(_OVERLAY_PX / max(height, width)))
    pixels = image.expand(3, -1, -1).float()
    pixels = pixels.repeat_interleave(factor, dim=1).repeat_interleave(factor, dim=2)
    if heatmap is not None:
        share = heat_share(heatmap)[None, None]
        heat = F.interpolate(share, pixels.shape[1:], mode="bilinear", align_corners=False)[0]
        opacity = _HEAT_OPACITY * heat
        pixels = pixels * (1 - opacity) + pixels.new_tensor(_HEAT)[:, None, None] * opacity

    wide, high = width * factor, height * factor
    picture = Image.new("RGB", (wide, high + _CAPTION_PX), _BACKGROUND)
    picture.paste(Image.fromarray(pixels.round().byte().permute(1, 2, 0).contiguous().numpy()), (0, 0))
    draw = ImageDraw.Draw(picture)
    if origin is not None:
        x, y = (origin[0] + 1) / 2 * wide, (origin[1] + 1) / 2 * high
        # a dark rim, so that the cross shows on any background
        for colour, thickness in ((_BACKGROUND, 5), (_MARK, 2)):
            draw.line((x - _CROSS_PX, y, x + _CROSS_PX, y), fill=colour, width=thickness)
            draw.line((x, y - _CROSS_PX, x, y + _CROSS_PX), fill=colour, width=thickness)
    font = ImageFont.load_default(_FONT_PX)
    while caption and font.getlength(caption) > wide - 8:
        caption = caption.removesuffix("..")[:-1] + ".." if len(caption) > 3 else ""
    draw.text((4, high + 3), caption, fill=_INK, font=font)
    return picture


def heat_share(heatmap: Tensor) -> Tensor:
    """A heatmap from 0 to 1. A centroid does not know a map from its negative, so the sum is taken positive."""
    weights = heatmap.float().cpu()
    weights = weights if weights.sum() >= 0 else -weights
    weights = weights - weights.min()
    return weights / weights.max().clamp(min=torch.finfo(weights.dtype).tiny)
