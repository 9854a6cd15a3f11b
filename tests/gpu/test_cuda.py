"""Training on a GPU: runs are bit-identical, also as captured CUDA graphs, and geometry agrees with float64."""

import gc
from dataclasses import replace

import pytest
import torch

from ptn.data import Dataset
from ptn.data.augment import AugmentSpec, augment, noise_per_image
from ptn.device import prepare_device
from ptn.training import DataSpec, ModelSpec, OptimizerSpec, Recipe, Run, RunData
from ptn.training.fleet import train_fleet

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    # grid_sample warns that its gradient is not deterministic; the gradient used here is
    pytest.mark.filterwarnings("ignore:grid_sampler_2d_backward_cuda"),
    # raised by torch.compile
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]

GPU = torch.device("cuda")


@pytest.fixture(params=["fp32", "bf16"])
def recipe(request):
    prepare_device(request.param)
    return Recipe(
        name="test/gpu",
        data=DataSpec("rotmnist"),
        model=ModelSpec("ptn_s"),
        augment=AugmentSpec(rotation_deg=180.0, mode="bicubic"),
        epochs=3,
        batch=32,
        dropout=0.2,
        precision=request.param,
    )


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (200, 1, 28, 28), dtype=torch.uint8, generator=generator)
    return RunData(Dataset("noise", "train", images, torch.arange(200) % 10, tuple("0123456789")))


def weights(run):
    return {key: value.clone().cpu() for key, value in run.step.tensors().items()}


def different(a, b):
    return [key for key in a if not torch.equal(a[key], b[key])]


def test_alone_in_a_fleet_and_resumed_are_equal(recipe, data, tmp_path):
    alone = Run(recipe, data, GPU)
    assert alone.step.graph is not None
    train_fleet([alone])
    fleet = [Run(replace(recipe, seed=seed), data, GPU) for seed in (1, 0, 2)]
    train_fleet(fleet)
    assert different(weights(fleet[1]), weights(alone)) == []
    assert different(weights(fleet[0]), weights(alone)) != []

    stopped = Run(recipe, data, GPU, tmp_path)
    for count, _ in enumerate(stopped.steps(), start=1):
        if count == 8:
            break
    stopped.save()
    resumed = Run(recipe, data, GPU, tmp_path)
    assert resumed.resume()
    train_fleet([resumed])
    assert different(weights(resumed), weights(alone)) == []


def test_a_run_does_not_depend_on_another_that_had_its_stream(recipe, data):
    """Streams come from a pool of 32: freeing the graph of one run must not free memory that another run uses."""
    alone = Run(recipe, data, GPU)
    train_fleet([alone])
    first = Run(recipe, data, GPU)
    streams = [torch.cuda.Stream(GPU) for _ in range(31)]
    second = Run(recipe, data, GPU)
    assert second.cuda_stream == first.cuda_stream
    assert second.cuda_stream not in streams
    first.release()
    gc.collect()
    torch.cuda.empty_cache()
    others = [torch.full((2**20,), float("nan"), device=GPU) for _ in range(64)]
    train_fleet([second])
    assert different(weights(second), weights(alone)) == []
    assert all(bool(other.isnan().all()) for other in others)


PHOTOGRAPHS = AugmentSpec(
    rotation_deg=180.0,
    scale=(0.9, 1.1),
    shift_px=2.0,
    mode="bicubic",
    crop_px=32,
    padding_mode="border",
    brightness=0.2,
    contrast=0.3,
    saturation=0.3,
    invert=0.25,
    cutout_px=10,
)


def test_photographs_are_augmented_in_the_captured_step():
    recipe = Recipe(
        name="test/photographs",
        data=DataSpec("rotsvhn"),
        model=ModelSpec("ptn_resnet32"),
        optimizer=OptimizerSpec("sgd", lr=0.1, weight_decay=5e-4),
        augment=PHOTOGRAPHS,
        epochs=2,
        batch=32,
        precision="bf16",
    )
    prepare_device(recipe.precision)
    images = torch.randint(0, 256, (100, 3, 48, 48), dtype=torch.uint8)
    data = RunData(Dataset("noise", "train", images, torch.arange(100) % 10, tuple("0123456789")))
    runs = [Run(recipe, data, GPU) for _ in range(2)]
    assert runs[0].step.graph is not None
    outcome = train_fleet(runs)
    assert (len(outcome.done), outcome.failed) == (2, [])
    assert different(*map(weights, runs)) == []


def test_photographs_are_augmented_as_on_the_cpu():
    images = torch.rand(16, 3, 48, 48)
    noise = torch.rand(16, noise_per_image(images.shape[1:], PHOTOGRAPHS))
    ours = augment(images.to(GPU), noise.to(GPU), PHOTOGRAPHS)
    assert torch.allclose(ours.cpu(), augment(images, noise, PHOTOGRAPHS), atol=1e-3)
