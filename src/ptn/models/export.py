"""Export to ONNX and torch.export files, each checked against the network, and ONNX files as classifiers."""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, nothing_at, optional_module
from ..files import atomic_path
from ..geometry import check_images
from .networks import Ensemble, Explanation, ModelConfig, Network, inferring
from .zoo import decode_metadata, encode_metadata

OPSET = 18
BATCHES = (1, 2, 5, 16)
"""Batch sizes with which a file is checked."""


@dataclass(frozen=True)
class Exported:
    """An exported file, and the largest difference of its logits from those of the network.

    The difference is that of `images` images in batches of the sizes `batches`.
    """

    path: Path
    difference: float
    images: int
    batches: tuple[int, ...]


def export(
    model: nn.Module, path: str | Path, *, images: Tensor | None = None, tolerance: float = 1e-4
) -> Exported:
    """Write a classifier as an ONNX file (`.onnx`) or a `torch.export` program (`.pt2`).

    The file takes images (N, C, H, W), floats in [0, 1], for any N, and returns logits (N, num_classes);
    normalization is included. It is run on `images` in batches of several sizes and only written if all logits
    agree with those of the network. Its metadata are "model", "image_size", "in_chans", "ptn_version", and for a
    network of ptn its "config", "classes" and `metadata`; a `.pt2` file has them in its extra file "metadata.json".

    Args:
        images: Images for the check; by default handwritten digits. Required for a module that
            is not a network of ptn.
        tolerance: Largest accepted difference between logits, relative to the largest logit if that exceeds 1.

    Raises:
        InputError: The network cannot be exported, or the logits differ.
    """
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InputError(f"{path}: the name of an exported file ends in .onnx or .pt2")
    if path.is_dir():
        raise InputError(f"{path} is a folder: name the file to write")
    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            optional_module(package, "ptn[export]")
    network, images = _prepare(model, images)
    texts = _describe(network, images)
    write = _write_onnx if path.suffix == ".onnx" else _write_torch
    program = _trace(network, images)
    with atomic_path(path) as temporary:
        exported = write(program, temporary, texts)
        differences: list[float] = []
        first = 0
        for count in BATCHES:
            # consecutive images, so that all are used; a few images are repeated
            batch = images[(torch.arange(count) + first) % len(images)]
            first += count
            with torch.no_grad():
                logits = network(batch)
                difference = float((exported(batch) - logits).abs().max())
                largest = float(logits.abs().max())
            if not difference <= tolerance * max(1.0, largest):  # also if it is NaN
                raise InputError(
                    f"{path} was not written: in a batch of {count} its logits, up to {largest:.3g}, differ from "
                    f"those of the network by {difference:.2g}; the tolerance is {tolerance:g}"
                )
            differences.append(difference)
    return Exported(path, max(differences), min(first, len(images)), BATCHES)


def _prepare(model: nn.Module, images: Tensor | None) -> tuple[nn.Module, Tensor]:
    """A copy of the network in float32 on the CPU, and images for the check."""
    if not isinstance(model, nn.Module):
        raise InputError(f"export takes a torch.nn.Module; got {type(model).__name__}")
    if isinstance(model, OnnxModel):
        raise InputError(f"{model.path} is an ONNX file already: export the network it was written from")
    network = copy.deepcopy(model).float().cpu().eval()
    if images is None:
        if not isinstance(network, Network | Ensemble):
            raise InputError(
                f"give images (N, C, H, W): the shape of the input of {type(model).__name__} is unknown"
            )
        return network, sample_images(network.input_shape, sum(BATCHES))
    check_images(images, "(N, C, X, Y, Z)" if isinstance(images, Tensor) and images.dim() == 5 else "(N, C, H, W)")
    if len(images) == 0:
        raise InputError("give at least one image for the check")
    return network, images.detach().float().cpu()


def _describe(network: nn.Module, images: Tensor) -> dict[str, str]:
    """Metadata of the file."""
    from .. import __version__

    with inferring(network):
        logits = network(images[:1])
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        kind = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"a classifier returns logits (N, classes); this network returns {kind}")
    texts = {
        "model": type(network).__name__,
        "image_size": json.dumps(list(images.shape[2:])),
        "in_chans": str(images.shape[1]),
        "ptn_version": __version__,
    }
    if not isinstance(network, Network | Ensemble) or not hasattr(network, "config"):
        return texts
    network.metadata = dict(network.metadata)
    if options := network.metadata.get("dataset_options"):  # without the path of a folder on this machine
        network.metadata["dataset_options"] = {key: value for key, value in options.items() if key != "root"}
    return {**texts, **encode_metadata(network), "model": network.config.name}


def _trace(network: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """The operations of the network for any batch size."""
    example = images[:1].expand(3, *images.shape[1:]).contiguous()  # a size of 1 would be taken for a constant
    batch = torch.export.Dim("batch", min=1)
    with inferring(network), _one_line_errors("torch.export cannot trace this network"), _quiet():
        program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths on this machine
    return program


def _write_torch(
    program: torch.export.ExportedProgram, path: Path, texts: dict[str, str]
) -> Callable[[Tensor], Tensor]:
    # streams, because torch warns about file names that do not end in .pt2
    with path.open("wb") as stream, _quiet():
        torch.export.save(program, stream, extra_files={"metadata.json": json.dumps(texts)})
    with path.open("rb") as stream, _quiet():
        return torch.export.load(stream).module()


def _write_onnx(
    program: torch.export.ExportedProgram, path: Path, texts: dict[str, str]
) -> Callable[[Tensor], Tensor]:
    import onnx

    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["logits"]}
    with _one_line_errors("ONNX cannot represent this network"), _quiet():
        exported: Any = torch.onnx.export(program, **names, opset_version=OPSET, dynamo=True, verbose=False)
    proto = exported.model_proto
    graph = proto.graph
    # notes of the exporter on each operation, half the size of a small network
    for item in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    onnx.helper.set_model_props(proto, texts)
    onnx.checker.check_model(proto, full_check=True)
    path.write_bytes(proto.SerializeToString())
    return OnnxModel(path)


@contextmanager
def _one_line_errors(what: str) -> Iterator[None]:
    """Replaces the exceptions of an exporter, of many types and lines, by an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{what}: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings of the exporters about torchvision and about deprecated functions that they call."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (FutureWarning, DeprecationWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        logger.setLevel(level)


def sample_images(input_shape: tuple[int, ...], count: int, *, seed: int = 0) -> Tensor:
    """Returns random handwritten digits of any size: (count, *input_shape), floats in [0, 1].

    All channels are equal. A voxel of a volume (C, X, Y, Z) is 1 if the digit is brighter than z / Z there.
    """
    from ..data.digits import bundled_digits

    channels, *size = input_shape
    digits, _ = bundled_digits()
    chosen = torch.randint(len(digits), (count,), generator=torch.Generator().manual_seed(seed))
    images = F.interpolate(digits[chosen][:, None] / 255, size=size[:2], mode="bilinear", align_corners=False)
    images = images.expand(-1, channels, -1, -1).contiguous()
    if len(size) == 2:
        return images
    heights = (torch.arange(size[2]) + 0.5) / size[2]
    return (images[..., None] > heights).float()


_DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(double)": torch.float64}


class OnnxModel(nn.Module):
    """The classifier in an ONNX file, run by ONNX Runtime on the CPU: images (N, C, H, W) -> logits (N, classes).

    Any file with one input of images and one output of logits can be used. A file with a fixed batch size is run on
    chunks of that size.

    Attributes:
        shape: Shape of an image; None for dimensions that the file leaves open.
        classes: Names of the classes that `export` wrote, or None.
        metadata: Metadata of the file.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        runtime = optional_module("onnxruntime", "ptn[export]")
        self.path = Path(path)
        if not self.path.is_file():
            raise nothing_at("ONNX file", path)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors only
        try:
            self.session = runtime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has many exceptions without a common base class
            raise InputError(f"ONNX Runtime cannot load {path}: {str(error).splitlines()[0]}") from error
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            raise InputError(f"{path} has {len(inputs)} inputs and {len(outputs)} outputs; expected one of each")
        if inputs[0].type not in _DTYPES:
            raise InputError(f"{path} takes {inputs[0].type}; expected floats")
        self._input, self._dtype = inputs[0].name, _DTYPES[inputs[0].type]
        sides: list[int | None] = [side if isinstance(side, int) else None for side in inputs[0].shape]
        if len(sides) not in (4, 5):
            raise InputError(f"{path} takes {_format_shape(sides)}; expected images (N, C, H, W)")
        self._batch = sides[0]
        self.shape = tuple(sides[1:])
        texts = dict(self.session.get_modelmeta().custom_metadata_map)
        self._config, self.classes, self.metadata = decode_metadata(texts, self.path)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of an image; raises `InputError` if the file leaves it open."""
        fixed = tuple(side for side in self.shape if side is not None)
        if len(fixed) < len(self.shape):
            shape = _format_shape([None, *self.shape])
            raise InputError(f"{self.path} takes images of any size, {shape}: export it with a fixed one")
        return fixed

    @property
    def config(self) -> ModelConfig:
        """Configuration of the network that was exported, or one inferred from the shapes."""
        if self._config is not None:
            return self._config
        channels, height, width = self.input_shape[:3]
        classes = self(torch.zeros(1, *self.input_shape)).shape[1]
        return ModelConfig(self.path.stem, classes, (height, width), channels)

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != len(self.shape) + 1 or any(
            side not in (None, actual) for side, actual in zip(self.shape, images.shape[1:], strict=True)
        ):
            shape = _format_shape([None, *self.shape])
            raise InputError(f"{self.path} takes {shape}; got {tuple(images.shape)}: resize the images")
        values: Any = images.detach().to("cpu", self._dtype).numpy()
        step = self._batch or max(1, len(values))
        chunks = [self._run(values[start : start + step]) for start in range(0, max(1, len(values)), step)]
        return torch.from_numpy(np.concatenate(chunks)).float().to(images.device)

    def _run(self, values: Any) -> Any:
        """Logits of one chunk; a fixed batch is filled with copies of the last image."""
        count = len(values)
        if self._batch is not None and 0 < count < self._batch:
            values = np.concatenate((values, np.repeat(values[-1:], self._batch - count, axis=0)))
        logits = self.session.run(None, {self._input: values})[0]
        if logits.ndim != 2 or len(logits) != len(values):
            raise InputError(f"{self.path} returns {logits.shape}; expected logits (N, classes)")
        return logits[:count]

    def explain(self, images: Tensor) -> Explanation:
        """The logits; an ONNX file has no intermediate results."""
        return Explanation(self(images))


def _format_shape(sides: list[int | None]) -> str:
    letters = "NCHW" if len(sides) == 4 else "NCXYZ"
    return f"({', '.join(letters[i] if side is None else str(side) for i, side in enumerate(sides))})"
