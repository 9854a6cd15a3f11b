"""PTN-B answering: `for_inference` beside the model as it is, and beside ONNX Runtime."""

import tempfile
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from ..models import Model, create_model, for_inference
from .report import Bench, PeerMissing
from .samplers import need
from .timing import Work

# image sizes of the paper's smallest and largest digits, and batches of a test run and of one question
SIZES, BATCHES = (28, 96), (256, 1)


def measure(bench: Bench, *, sizes: tuple[int, ...] = SIZES, batches: tuple[int, ...] = BATCHES) -> None:
    """Logits of PTN-B for a batch of images, in evaluation mode and without gradients."""
    for size in sizes:
        model = make_model(size).to(bench.device)
        for batch in batches:
            images = torch.rand(batch, 1, size, size, device=bench.device)
            bench.compare(
                f"PTN-B inference {batch}×1×{size}×{size}",
                answering(for_inference(model), images),
                {"plain eager": lambda: answering(model, images), "ONNX Runtime": partial(onnx, model, images)},  # noqa: B023
                memory=batch > 1,
            )


def make_model(size: int) -> Model:
    torch.manual_seed(0)
    return create_model("ptn_b", image_size=size).eval()


def answering(model: nn.Module, images: Tensor) -> Work:
    def work() -> Tensor:
        with torch.inference_mode():
            return model(images)

    return work


def onnx(model: Model, images: Tensor) -> Work:
    """The same model in ONNX Runtime, with as many threads as torch has."""
    if images.device.type != "cpu":
        raise PeerMissing("it is measured on CPUs only")
    runtime = need("onnxruntime", "export")
    need("onnxscript", "export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, about versions of operators
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model,
            (images,),
            path,
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=["images"],
        )
        session = runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    pixels = images.numpy()
    return lambda: session.run(None, {"images": pixels})[0]
