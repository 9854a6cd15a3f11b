"""Export to ONNX and torch.export files, checked against the network, and to the Hugging Face Hub."""

import copy
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import checked
from ..errors import InputError, first_line, nothing_at, optional_module
from ..files import atomic_path, make_folder, markdown_text, save_tensors, write_text
from .networks import Explanation, Model, ModelConfig
from .zoo import config_of, count_parameters, decode_metadata, encode_metadata

OPSET = 18
BATCHES = (1, 2, 5, 16)
"""Batch sizes with which a file is checked."""

Program = torch.export.ExportedProgram


@checked
@torch.no_grad()
def export(model: nn.Module, path: str | Path, *, images: Tensor | None = None, tolerance: float = 1e-4) -> float:
    """Write a network as an ONNX file (`.onnx`) or a `torch.export` program (`.pt2`).

    The file takes images (N, C, H, W), floats in [0, 1], for any N, and returns logits (N, num_classes);
    normalization is included. It is run on `images` in batches of several sizes and only written if all logits
    agree with those of the network. Its metadata are "ptn_version" and, for a network of ptn, "config", "classes"
    and `metadata`; a `.pt2` file has them in its extra file "metadata.json".

    Args:
        model: A network of ptn, or another classifier module.
        path: File to write; its suffix is the format.
        images: Images for the check; by default handwritten digits. Required for a module that
            is not a network of ptn.
        tolerance: Largest accepted difference between logits, relative to the largest logit if that exceeds 1.

    Returns:
        The largest difference between logits of the file and the network.

    Raises:
        InputError: The network cannot be exported, or the logits differ.
    """
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise InputError(f"{path}: the name of an exported file ends in .onnx or .pt2")
    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            optional_module(package, "ptn[export]")
    if isinstance(model, OnnxModel):
        raise InputError(f"{model.path} is an exported network: export the network that it was exported from")
    network: Any = copy.deepcopy(model).float().cpu().eval()
    if images is not None and not len(images):
        raise InputError("the check of the exported file needs at least one image")
    if images is None:
        if not hasattr(network, "input_shape"):
            raise InputError(f"give images (N, C, H, W): the input of {type(model).__name__} is unknown")
        images = sample_images(network.input_shape, max(BATCHES))
    images = images.detach().float().cpu()[torch.arange(max(BATCHES)) % len(images)]
    expected = {count: network(images[:count]) for count in BATCHES}
    if path.suffix == ".onnx" and (not isinstance(logits := expected[1], Tensor) or logits.dim() not in (2, 4)):
        returned = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"{type(model).__name__} returns {returned}; an ONNX file returns {_LOGITS}")
    program = trace(network, images)
    write = _write_onnx if path.suffix == ".onnx" else _write_torch
    largest_difference = 0.0
    with atomic_path(path) as temporary:
        exported = write(program, temporary, _metadata(network))
        for count, logits in expected.items():
            difference = float((exported(images[:count]) - logits).abs().max())
            largest = float(logits.abs().max())
            if not difference <= tolerance * max(1.0, largest):  # also if it is NaN
                raise InputError(
                    f"{path} was not written: in a batch of {count} its logits, up to {largest:.3g}, differ from "
                    f"those of the network by {difference:.2g}; the tolerance is {tolerance:g}"
                )
            largest_difference = max(largest_difference, difference)
    return largest_difference


def _metadata(network: Any) -> dict[str, str]:
    from .. import __version__

    texts = {"ptn_version": __version__}
    if isinstance(getattr(network, "config", None), ModelConfig):
        texts |= encode_metadata(network, shared=True)
    return texts


def trace(network: nn.Module, images: Tensor) -> Program:
    """The operations of the network for any batch size."""
    batch = torch.export.Dim("batch", min=1)
    with _quiet("torch.export cannot trace this network"):
        program = torch.export.export(network, (images[:3],), dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths on this machine
    return program


def _write_torch(program: Program, path: Path, texts: dict[str, str]) -> Callable[[Tensor], Tensor]:
    # streams, because torch warns about file names that do not end in .pt2
    with _quiet("torch.export cannot save this network"):
        with path.open("wb") as stream:
            torch.export.save(program, stream, extra_files={"metadata.json": json.dumps(texts)})
        with path.open("rb") as stream:
            return torch.export.load(stream).module()


def _write_onnx(program: Program, path: Path, texts: dict[str, str]) -> Callable[[Tensor], Tensor]:
    path.write_bytes(onnx_program(program, texts, ["logits"]).SerializeToString())
    return OnnxModel(path)


def onnx_program(program: Program, texts: dict[str, str], outputs: list[str]) -> Any:
    """The ONNX model of a program with the input "images", these outputs and these metadata."""
    import onnx

    names: dict[str, Any] = {"input_names": ["images"], "output_names": outputs}
    with _quiet("ONNX cannot represent this network"):
        exported: Any = torch.onnx.export(program, **names, opset_version=OPSET, dynamo=True, verbose=False)
    proto = exported.model_proto
    graph = proto.graph
    # notes of the exporter on each operation, half the size of a small network
    for item in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    onnx.helper.set_model_props(proto, texts)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@contextmanager
def _quiet(failure: str) -> Iterator[None]:
    """Hides warnings of the exporters, and replaces their exceptions, of many types and lines, by `InputError`."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")  # warns without torchvision
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (FutureWarning, DeprecationWarning):
                warnings.simplefilter("ignore", category)
            yield
    except Exception as error:
        raise InputError(f"{failure}: {first_line(error)}") from error
    finally:
        logger.setLevel(level)


def sample_images(input_shape: tuple[int, ...], count: int, *, seed: int = 0) -> Tensor:
    """Returns random handwritten digits of any size: (count, *input_shape), floats in [0, 1].

    All channels are equal. A voxel of a volume (C, X, Y, Z) is 1 if the digit is brighter than z / Z there.
    """
    from ..data.mnist import bundled_digits

    channels, *size = input_shape
    digits = bundled_digits().images
    chosen = torch.randint(len(digits), (count,), generator=torch.Generator().manual_seed(seed))
    images = F.interpolate(digits[chosen][:, None] / 255, size=size[:2], mode="bilinear", align_corners=False)
    images = images.expand(-1, channels, -1, -1).contiguous()
    if len(size) == 2:
        return images
    heights = (torch.arange(size[2]) + 0.5) / size[2]
    return (images[..., None] > heights).float()


_DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(double)": torch.float64}
_LOGITS = "logits (N, classes) or (N, classes, H, W)"


class OnnxModel(nn.Module):
    """The network in an ONNX file, run by ONNX Runtime on the CPU: images (N, C, H, W) -> logits (N, classes).

    A segmenter returns logits (N, classes, H, W). Any file with one input of images and one output of logits can be
    used. A file with a fixed batch size is run on chunks of that size.

    Args:
        path: of the file.

    Attributes:
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
            # without a fallback, which prints several lines
            where: Any = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}
            self.session = runtime.InferenceSession(self.path, options, **where)
        except Exception as error:  # ONNX Runtime has many exceptions without a common base class
            raise InputError(f"ONNX Runtime cannot load {path}: {first_line(error)}") from error
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        self._input, self._shape = inputs[0].name, inputs[0].shape
        single = len(inputs) == len(outputs) == 1
        if not single or inputs[0].type not in _DTYPES or len(self._shape) not in (4, 5):
            raise InputError(f"{path} must have one input, of floats (N, C, H, W), and one output, of logits")
        self._dtype = _DTYPES[inputs[0].type]
        texts = dict(self.session.get_modelmeta().custom_metadata_map)
        self._config, self.classes, self.metadata = decode_metadata(texts, self.path)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of an image; raises `InputError` if the file leaves it open."""
        if not all(isinstance(side, int) for side in self._shape[1:]):
            raise InputError(f"{self.path} takes images of any size: export it with a fixed one")
        return tuple(self._shape[1:])

    @property
    def config(self) -> ModelConfig:
        """Configuration of the network that was exported, or one inferred from the shapes."""
        if self._config is not None:
            return self._config
        channels, height, width = self.input_shape[:3]
        classes = self(torch.zeros(1, *self.input_shape)).shape[1]
        return ModelConfig(self.path.stem, classes, (height, width), channels)

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != len(self._shape) or any(
            isinstance(side, int) and side != actual
            for side, actual in zip(self._shape[1:], images.shape[1:], strict=True)
        ):
            shape = ("N", *self._shape[1:])
            raise InputError(f"{self.path} takes {shape}; got {tuple(images.shape)}: resize the images")
        batch, count = self._shape[0], len(images)
        if not isinstance(batch, int):
            batch = max(1, count)
        missing = -max(1, count) % batch  # a fixed batch is filled with zeros
        values = F.pad(images.detach().to("cpu", self._dtype), (*(0, 0) * (images.dim() - 1), 0, missing)).numpy()
        starts = range(0, max(1, len(values)), batch)
        try:
            chunks = [self.session.run(None, {self._input: values[start : start + batch]})[0] for start in starts]
            logits = torch.from_numpy(np.concatenate(chunks))[:count]
        except Exception as error:  # the exceptions of ONNX Runtime, and outputs that are not arrays
            raise InputError(f"ONNX Runtime cannot run {self.path}: {first_line(error)}") from error
        if logits.dim() not in (2, 4) or len(logits) != count:
            raise InputError(f"{self.path} returns {tuple(logits.shape)}; expected {_LOGITS}")
        return logits.float().to(images.device)

    def explain(self, images: Tensor) -> Explanation:
        """The logits; an ONNX file has no intermediate results."""
        return Explanation(self(images))


# The Hugging Face Hub

HUB_WEIGHTS = "model.safetensors"


@checked
def save_pretrained(model: Model, folder: str | Path, *, repo_id: str | None = None) -> Path:
    """Write a model to a folder as model.safetensors, config.json and a model card; `load_model` reads it.

    Args:
        model: A network of ptn, or an ensemble.
        folder: The folder, created if necessary. A README.md in it is not overwritten.
        repo_id: "user/name" in the model card; by default the name of the folder.
    """
    config = config_of(model)
    folder = make_folder(Path(folder))
    save_tensors(folder / HUB_WEIGHTS, model.state_dict(), encode_metadata(model, shared=True))
    description: dict[str, Any] = {"library_name": "ptn", "model": asdict(config)}
    if model.classes is not None:
        description["id2label"] = dict(enumerate(model.classes))
    write_text(folder / "config.json", json.dumps(description, indent=2) + "\n")
    if not (card := folder / "README.md").exists():
        write_text(card, model_card(model, repo_id or folder.resolve().name))
    return folder


@checked
def push_to_hub(model: Model, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Upload a model to "user/name" on the Hub and return the URL; `load_model(repo_id)` loads it.

    Args:
        model: A network of ptn, or an ensemble.
        repo_id: "user/name".
        private: Whether a new repository is private; None for the default of the Hub.
        token: By default the one that `hf auth login` stores.
    """
    hub = optional_module("huggingface_hub", "ptn[hub]")
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_pretrained(model, temporary, repo_id=repo_id)
        try:
            api = hub.HfApi(token=token)
            url = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=url.repo_id, folder_path=folder)
        except Exception as error:  # of the network or the Hub
            hint = "`hf auth login` stores a token"
            raise InputError(f"cannot upload to {repo_id} ({hint}): {first_line(error)}") from error
    return str(url)


def download(repo_id: str, *, revision: str | None = None) -> Path:
    """Returns the weights file of "user/name" on the Hub, downloaded if necessary."""
    hub = optional_module("huggingface_hub", "ptn[hub]")
    try:
        return Path(hub.hf_hub_download(repo_id, HUB_WEIGHTS, revision=revision, library_name="ptn"))
    except Exception as error:  # of the network or the Hub
        raise InputError(f"no file {repo_id}, and the Hub has no such model: {first_line(error)}") from error


def model_card(model: Model, repo_id: str, call: str | None = None) -> str:
    """Returns the README.md of a model; `call` is the expression that loads it."""
    config = config_of(model)
    voxels = len(model.input_shape) == 4
    pipeline = "" if voxels else "\npipeline_tag: image-classification"
    classes = f"\n- classes: {markdown_text(', '.join(model.classes))}" if model.classes is not None else ""
    return f"""---
library_name: ptn{pipeline}
tags: [polar-transformer-networks, rotation, equivariance, pytorch]
---

# {markdown_text(repo_id.rpartition("/")[2])}

A `{config.name}` of [Polar Transformer Networks](https://arxiv.org/abs/1709.01889) (Esteves et al., ICLR 2018).

- input: {"voxels" if voxels else "images"} as floats in [0, 1], (N, {", ".join(map(str, model.input_shape))})
- output: {config.num_classes} logits{classes}
- parameters: {count_parameters(model):,}

```python
import ptn

model = {call or f'ptn.load_model("{repo_id}")'}  # normalization is part of it
```
"""
