"""ONNX files as classifiers."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError, nothing_at, optional_module
from .networks import Explanation
from .zoo import ModelConfig, parse_config

_DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(double)": torch.float64}


class OnnxModel(nn.Module):
    """The classifier in an ONNX file, run by ONNX Runtime on the CPU: images (N, C, H, W) -> scores (N, classes).

    Whoever wrote the file: one input of images, one output of scores. Of what `export_onnx` wrote, `metadata`
    has the class names and more. `shape` is that of one image, None where the file leaves a side free; a file
    with a fixed batch is run that many images at a time.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        runtime = optional_module("onnxruntime", "ptn[export]")
        self.path = Path(path)
        if not self.path.is_file():
            raise nothing_at("ONNX file", path)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors: warnings are about how the file could be written better
        try:
            self.session = runtime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        # ONNX Runtime has an exception for each thing that can be wrong with a file, without a common base
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path} is not a model that ONNX Runtime can run: {reason}") from error
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            raise InputError(
                f"{path} has {len(inputs)} inputs and {len(outputs)} outputs; a classifier has one of each"
            )
        self._input = inputs[0].name
        if inputs[0].type not in _DTYPES:
            raise InputError(f"{path} takes {inputs[0].type}; images are floats in [0, 1]")
        self._dtype = _DTYPES[inputs[0].type]
        sides: list[int | None] = [side if isinstance(side, int) else None for side in inputs[0].shape]
        if len(sides) not in (4, 5):
            raise InputError(f"{path} takes {_written(sides)}; images are (N, C, H, W)")
        self._batch = sides[0]
        self.shape = tuple(sides[1:])
        self.metadata: dict[str, str] = dict(self.session.get_modelmeta().custom_metadata_map)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image; an error if the file takes several."""
        fixed = tuple(side for side in self.shape if side is not None)
        if len(fixed) < len(self.shape):
            free = _written([None, *self.shape])
            raise InputError(f"{self.path} takes images of several sizes, {free}: export it with a fixed one")
        return fixed

    @property
    def config(self) -> ModelConfig:
        """What the network is: that of ptn which was exported, or what can be seen from outside."""
        if "config" in self.metadata:
            return parse_config(self.metadata["config"], self.path)
        channels, height, width = self.input_shape[:3]
        classes = self(torch.zeros(1, *self.input_shape)).shape[1]
        return ModelConfig(self.path.stem, classes, (height, width), channels)

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != len(self.shape) + 1 or any(
            side not in (None, found) for side, found in zip(self.shape, images.shape[1:], strict=True)
        ):
            wanted = _written([None, *self.shape])
            raise InputError(f"{self.path} takes {wanted}; got {tuple(images.shape)}: bring the images to that")
        values: Any = images.detach().to("cpu", self._dtype).numpy()
        step = self._batch or max(1, len(values))
        parts = [self._run(values[start : start + step]) for start in range(0, max(1, len(values)), step)]
        return torch.from_numpy(np.concatenate(parts)).float().to(images.device)

    def _run(self, values: Any) -> Any:
        """The scores of at most one batch; a fixed batch is filled up with copies of its last image."""
        count = len(values)
        if self._batch is not None and 0 < count < self._batch:
            values = np.concatenate((values, np.repeat(values[-1:], self._batch - count, axis=0)))
        scores = self.session.run(None, {self._input: values})[0]
        if scores.ndim != 2 or len(scores) != len(values):
            raise InputError(f"a classifier gives scores (N, classes); {self.path} gives {tuple(scores.shape)}")
        return scores[:count]

    def explain(self, images: Tensor) -> Explanation:
        """The logits: what lies between them and the image stays in the file."""
        return Explanation(self(images))


def _written(sides: list[int | None]) -> str:
    """A shape with letters for what is free."""
    letters = "NCHW" if len(sides) == 4 else "NCXYZ"
    named = (str(side) if side is not None else letters[i] for i, side in enumerate(sides))
    return f"({', '.join(named)})"
