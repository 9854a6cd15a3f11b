"""Networks as files that run without this package: ONNX and torch.export, checked before they are put in place."""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, optional_module
from ..files import atomic_path
from ..geometry import check_images
from .networks import Network, ScoreSum, inferring
from .onnx_model import OnnxModel
from .sample_images import sample_images

OPSETS = range(18, 26)
"""The versions of ONNX's operators that the exporter writes."""
BATCHES = (1, 2, 5, 16)
"""The batch sizes on which a file is checked."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, and by how much at most its logits differed from the network's.

    On so many `images`, in `batches` of these sizes.
    """

    path: Path
    difference: float
    images: int
    batches: tuple[int, ...]


def export_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    images: Tensor | None = None,
    classes: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    opset: int = OPSETS[0],
    tolerance: float = 1e-4,
) -> Exported:
    """Write a network as one ONNX file: images (N, C, H, W) in [0, 1], any N -> logits (N, num_classes).

    Normalisation is part of it. ONNX Runtime runs the file on `images` in batches of several sizes, 1 among
    them, and it is put in its place only if all logits are those of the network to `tolerance`. The metadata of
    the file have "model", "classes" (JSON, if given), "image_size", "in_chans" and "ptn_version", and of a
    network of this package its "config".

    Args:
        images: what the file is checked on, floats in [0, 1]; None is patches of a sheet of digits. Networks that
            are not this package's need it, to know the shape of an image.
        classes: the names of the labels.
        metadata: more texts for the file.
        opset: the version of ONNX's operators, 18 to 25.
    """
    onnx = optional_module("onnx", "ptn[export]")
    for package in ("onnxscript", "onnxruntime"):
        optional_module(package, "ptn[export]")
    if isinstance(opset, bool) or opset not in OPSETS:
        raise InputError(f"opset must be a whole number from {OPSETS[0]} to {OPSETS[-1]}; got {opset!r}")
    network, images = _prepare(model, images)
    texts = {**_describe(network, images, classes), **(metadata or {})}
    program = _trace(network, images)
    with _as_one_line("ONNX cannot express this network"), _quiet():
        exported: Any = torch.onnx.export(
            program,
            input_names=["images"],
            output_names=["logits"],
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    proto = exported.model_proto
    written = {entry.domain: entry.version for entry in proto.opset_import}[""]
    if written != opset:  # the exporter logs that it could not convert, and leaves the opset as it was
        raise InputError(f"this network can be written with opset {written}, but not with {opset}")
    _drop_notes(proto)
    onnx.helper.set_model_props(proto, texts)

    def write(target: Path) -> Callable[[Tensor], Tensor]:
        onnx.checker.check_model(proto, full_check=True)
        target.write_bytes(proto.SerializeToString())
        return OnnxModel(target)

    return _write_checked(network, Path(path), images, tolerance, write)


def export_torch(
    model: nn.Module,
    path: str | Path,
    *,
    images: Tensor | None = None,
    classes: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    tolerance: float = 1e-4,
) -> Exported:
    """Write a network as `torch.export` does, for `torch.export.load(path).module()`: any N, checked likewise.

    The metadata are in the extra file "metadata.json".
    """
    network, images = _prepare(model, images)
    texts = {**_describe(network, images, classes), **(metadata or {})}
    program = _trace(network, images)

    def write(target: Path) -> Callable[[Tensor], Tensor]:
        # through streams: by its name, torch would warn of a file that does not end in .pt2 yet
        with target.open("wb") as stream, _quiet():
            torch.export.save(program, stream, extra_files={"metadata.json": json.dumps(texts)})
        with target.open("rb") as stream, _quiet():
            return torch.export.load(stream).module()

    return _write_checked(network, Path(path), images, tolerance, write)


def _prepare(model: nn.Module, images: Tensor | None) -> tuple[nn.Module, Tensor]:
    """A copy of the network in float32 on the CPU, and what to check its file on."""
    if not isinstance(model, nn.Module):
        raise InputError(f"only a torch module can be exported; got {type(model).__name__}")
    if isinstance(model, OnnxModel):
        raise InputError(f"{model.path} is an ONNX file already: export the network it was made from")
    network = copy.deepcopy(model).float().cpu().eval()
    if images is None:
        if not isinstance(network, Network | ScoreSum):
            raise InputError("give images (N, C, H, W): the network itself does not say what it takes")
        return network, sample_images(network.input_shape, sum(BATCHES))
    check_images(images, "(N, C, X, Y, Z)" if isinstance(images, Tensor) and images.dim() == 5 else "(N, C, H, W)")
    if len(images) == 0:
        raise InputError("give at least one image to check the file on")
    return network, images.detach().float().cpu()


def _describe(network: nn.Module, images: Tensor, classes: Sequence[str] | None) -> dict[str, str]:
    """What a reader of the file wants to know."""
    from .. import __version__

    with inferring(network):
        logits = network(images[:1])
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"a classifier gives scores (N, classes); this network gives {found}")
    count = logits.shape[1]
    if classes is not None and len(classes) != count:
        raise InputError(f"the network has {count} classes; got {len(classes)} names for them")
    texts = {
        "model": type(network).__name__,
        "image_size": json.dumps(list(images.shape[2:])),
        "in_chans": str(images.shape[1]),
        "ptn_version": __version__,
    }
    if classes is not None:
        texts["classes"] = json.dumps(list(classes))
    if isinstance(network, Network | ScoreSum) and hasattr(network, "config"):  # not somebody's own backbone
        texts |= {"model": network.config.name, "config": json.dumps(asdict(network.config))}
    return texts


def _trace(network: nn.Module, images: Tensor) -> torch.export.ExportedProgram:
    """The network's operations for any number of images."""
    example = images[:1].expand(3, *images.shape[1:]).contiguous()  # 1 would be taken for a constant
    batch = torch.export.Dim("batch", min=1)
    with inferring(network), _as_one_line("torch.export cannot follow this network"), _quiet():
        program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names files of this machine
    return program


def _write_checked(
    network: nn.Module,
    path: Path,
    images: Tensor,
    tolerance: float,
    write: Callable[[Path], Callable[[Tensor], Tensor]],
) -> Exported:
    """The file at `path` if what `write` made of the network answers like it, else an error and no file."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name the file to write")
    with atomic_path(path) as temporary:
        answer = write(temporary)
        differences: list[float] = []
        used = 0
        for count in BATCHES:
            # in turns, so that all of many images are used, and few of them fill any batch
            chosen = images[(torch.arange(count) + used) % len(images)]
            used += count
            with torch.no_grad():
                logits = network(chosen)
                difference = float((answer(chosen) - logits).abs().max())
            if not difference <= tolerance:  # NaN is no agreement
                raise InputError(
                    f"{path} was not written: for {count} images its logits differ from the network's, which reach "
                    f"{float(logits.abs().max()):.3g}, by {difference:.2g}: more than the tolerance {tolerance:g}"
                )
            differences.append(difference)
    return Exported(path, max(differences), min(used, len(images)), BATCHES)


def _drop_notes(proto: Any) -> None:
    """Take off the exporter's notes on the making of each operation: half of a small network's file."""
    for item in (proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    for initializer in proto.graph.initializer:
        initializer.ClearField("metadata_props")


@contextmanager
def _as_one_line(what: str) -> Iterator[None]:
    """What an exporter cannot do, said in a line: its own exceptions are of many kinds and many pages."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{what}: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing that a user could change: deprecated parts of torch that the exporters call, operators of torchvision
    that they would know if it were installed, which no network needs here."""
    registry = logging.getLogger("torch.onnx._internal.exporter._registration")
    registry.addFilter(_is_of_interest)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=FutureWarning)
            warnings.simplefilter("ignore", category=DeprecationWarning)
            yield
    finally:
        registry.removeFilter(_is_of_interest)


def _is_of_interest(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("torchvision is not installed")
