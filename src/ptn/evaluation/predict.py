"""Predictions for images and meshes, from files or memory."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..config import check, checked
from ..data.images import Fit, fit_image, read_fitted, view_from_above
from ..data.voxelize import SIZES, read_voxels
from ..device import choose_device, default_batch, placement, precision_of
from ..errors import InputError
from ..models import load_model, prepare_for_inference
from ..models.networks import inferring
from .classify import check_finite, check_logits, to_float

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageLike = Image | str | Path | np.ndarray[Any, Any] | Tensor


@dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction of a model for one image or mesh.

    Attributes:
        label: index of the most probable class.
        top: the most probable classes with their probabilities, in descending order.
        origin: (x, y) in [-1, 1], and `heatmap` (h, w); None if the model has none.
        image: the input of the model as uint8 (C, H, W); voxels as a view from above.
        path: the file, if the input was one.
    """

    label: int
    class_name: str
    probability: float
    top: tuple[tuple[str, float], ...]
    origin: tuple[float, float] | None
    image: Tensor = field(repr=False)
    heatmap: Tensor | None = field(default=None, repr=False)
    path: Path | None = None


class Unreadable(NamedTuple):
    """A file that could not be read, and the reason."""

    path: Path
    reason: str


@checked
def predict(
    model: nn.Module | str | Path,
    images: "ImageLike | Sequence[ImageLike]",
    *,
    top: int = 5,
    batch: int | None = None,
    device: torch.device | str | None = None,
) -> list[Prediction]:
    """Returns a prediction for each image: files, PIL images, arrays or tensors, of any size.

    Images are converted to the size and channels of the model as in training (`load_folder`). For models of voxels
    the inputs are mesh files, which are voxelized, or tensors of voxels.

    Args:
        model: a model of this package, or a source of `load_model`.
        images: one or several: paths, PIL images, arrays (H, W) or (H, W, C), tensors (C, H, W), each uint8 or
            floats in [0, 1]; or a batch of tensors (N, C, H, W).
        top: number of classes in `Prediction.top`.
        batch: images per forward pass; by default 1000, fewer for large images.
        device: where to compute; by default the device of the model. The model is moved there.
    """
    if not isinstance(model, nn.Module):
        model = load_model(model)
    several = isinstance(images, Tensor) and images.dim() == len(_input_shape(model)) + 1
    if several or (isinstance(images, Sequence) and not isinstance(images, str)):
        inputs: list[Any] = list(images)  # type: ignore[arg-type]
    else:
        inputs = [images]
    predictions = []
    for result in predict_each(model, inputs, top=top, batch=batch, device=device):
        if isinstance(result, Unreadable):
            raise InputError(result.reason)
        predictions.append(result)
    return predictions


@checked
def predict_each(
    model: nn.Module,
    inputs: "Sequence[ImageLike]",
    *,
    top: int = 5,
    batch: int | None = None,
    device: torch.device | str | None = None,
) -> Iterator[Prediction | Unreadable]:
    """Yields a prediction for each input in order, or `Unreadable` for a file that cannot be read."""
    check("top", top, top >= 1, "at least 1")
    check("batch", batch, batch is None or batch >= 1, "at least 1")
    convert = _converter(model)
    if device is not None:
        model.to(choose_device(str(device)))
    prepared = prepare_for_inference(model)
    size = batch or default_batch(_input_shape(model))

    def read(source: Any) -> tuple[Path | None, Tensor] | Unreadable:
        path = Path(source) if isinstance(source, str | Path) else None
        try:
            return path, convert(source)
        except InputError as error:
            if path is None:
                raise
            return Unreadable(path, str(error))

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(inputs), size):
            items = list(pool.map(read, inputs[start : start + size]))
            readable = [item for item in items if not isinstance(item, Unreadable)]
            predictions = _predict(prepared, class_names(model), readable, top)
            yield from (item if isinstance(item, Unreadable) else next(predictions) for item in items)


def class_names(model: nn.Module) -> tuple[str, ...]:
    """Returns the names of the classes of a model, or their indices."""
    if classes := getattr(model, "classes", None):
        return tuple(classes)
    config: Any = getattr(model, "config", None)
    if config is None:  # a backbone of another package
        device, dtype = placement(model)
        with inferring(model):
            count = model(torch.zeros(1, *_input_shape(model), device=device, dtype=dtype)).shape[1]
    else:
        count = config.num_classes
    return tuple(map(str, range(count)))


def _input_shape(model: nn.Module) -> tuple[int, ...]:
    shape = getattr(model, "input_shape", None)
    if shape is None:
        raise InputError(f"predict takes a model of ptn or an ONNX file; got {type(model).__name__}")
    return tuple(shape)


def _converter(model: nn.Module) -> Callable[[Any], Tensor]:
    """Returns a function that converts an input to a uint8 tensor of the shape that a model takes."""
    shape = _input_shape(model)
    channels, *size = shape
    metadata: dict[str, Any] = getattr(model, "metadata", {})
    if len(size) == 2 and channels in (1, 3):
        fit: Fit = metadata.get("fit", "resize")

        def convert_image(source: Any) -> Tensor:
            if isinstance(source, str | Path):
                return read_fitted(Path(source), (size[0], size[1]), channels, fit)
            return fit_image(_to_tensor(source), (size[0], size[1]), channels, fit)

        return convert_image
    default = "surface" if channels == 1 else "surface+solid"
    occupancy: Any = (metadata.get("dataset_options") or {}).get("occupancy") or default
    if len(size) != 3 or size[0] not in SIZES or len(occupancy.split("+")) != channels:
        raise InputError(f"the model takes {shape}, to which neither images nor meshes can be converted")

    def convert_mesh(source: Any) -> Tensor:
        if isinstance(source, str | Path):
            return read_voxels(Path(source), size=size[0], occupancy=occupancy)
        if not isinstance(source, Tensor) or tuple(source.shape) != shape:
            raise InputError(f"voxels must be a mesh file or a tensor {shape}")
        return source.to(torch.uint8)

    return convert_mesh


def _to_tensor(source: Any) -> Tensor:
    """Returns a PIL image, an array (H, W) or (H, W, C), or a tensor (C, H, W) as floats in [0, 1] (C, H, W)."""
    from PIL import Image, ImageOps

    if isinstance(source, Image.Image):
        picture = ImageOps.exif_transpose(source)
        if picture.mode in ("1", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"):
            picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        source = np.asarray(picture)
    if isinstance(source, np.ndarray):
        if source.dtype == np.uint16:
            source = source.astype(np.float32) / 65535
        source = torch.from_numpy(source.copy())
        source = source[None] if source.dim() == 2 else source.movedim(-1, 0)
    if not isinstance(source, Tensor) or source.dim() != 3 or len(source) > 4:
        kind = f"shape {tuple(source.shape)}" if isinstance(source, Tensor) else type(source).__name__
        raise InputError(f"expected a file, a PIL image, an array (H, W, C) or a tensor (C, H, W); got {kind}")
    if source.dtype == torch.uint8:
        return source.float() / 255
    if not source.is_floating_point() or not (source.min() >= 0 and source.max() <= 1):
        values = f"{source.dtype} from {source.min():g} to {source.max():g}"
        raise InputError(f"images must be uint8, or floats in [0, 1] that are not normalized; got {values}")
    return source.float()


def _predict(
    model: Any, classes: Sequence[str], items: Sequence[tuple[Path | None, Tensor]], top: int
) -> Iterator[Prediction]:
    if not items:
        return
    device, dtype = placement(model)
    inputs = torch.stack([tensor for _, tensor in items])
    with precision_of("fp32", device):
        explanation = model.explain(to_float(inputs, device, dtype))
    probabilities = check_logits(explanation.logits, len(inputs)).float().softmax(dim=1).cpu()
    check_finite(probabilities)
    best = probabilities.topk(min(top, probabilities.shape[1]))
    for index, (path, tensor) in enumerate(items):
        labels, values = best.indices[index].tolist(), best.values[index].tolist()
        yield Prediction(
            label=labels[0],
            class_name=classes[labels[0]],
            probability=values[0],
            top=tuple((classes[label], value) for label, value in zip(labels, values, strict=True)),
            origin=None if explanation.origins is None else tuple(explanation.origins[index].tolist()),
            image=view_from_above(tensor) if tensor.dim() == 4 else tensor,
            heatmap=None if explanation.heatmaps is None else explanation.heatmaps[index].cpu(),
            path=path,
        )
