"""Training on voxels on a GPU: captured steps in bf16 and fp32, equal bit for bit after resuming."""

import pytest
import torch

from ptn.data import VoxelDataset
from ptn.data.augment import AugmentSpec
from ptn.device import prepare_device
from ptn.evaluation import evaluate
from ptn.training import DataSpec, ModelSpec, Recipe, Run, RunData
from ptn.training.fleet import train_fleet

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    # grid_sample warns that its gradient is not deterministic; the gradient used here is
    pytest.mark.filterwarnings("ignore:grid_sampler_2d_backward_cuda"),
    # raised by torch.compile
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled"),
]

GPU = torch.device("cuda")
SIZE = 16


def shapes(count):
    generator = torch.Generator().manual_seed(count)
    packed = torch.randint(0, 256, (count, 2 * SIZE**3 // 8), dtype=torch.uint8, generator=generator)
    return VoxelDataset("shapes", "train", packed, SIZE, torch.arange(count) % 3, ("a", "b", "c"))


@pytest.mark.parametrize("model", ["cylindrical", "cylindrical_l", "ccnn_3d"])
@pytest.mark.parametrize(("precision", "fused"), [("bf16", False), ("bf16", True), ("fp32", False)])
def test_a_captured_run_learns_and_resumes_to_the_same_weights(model, precision, fused, tmp_path):
    recipe = Recipe(
        name=f"test/{model}",
        data=DataSpec("modelnet40"),
        model=ModelSpec(model),
        augment=AugmentSpec(
            rotation_deg=180,
            scale=(0.9, 1.1),
            shift_px=1,
            mirror=True,
            z_scale=(0.9, 1.1),
            z_shift_px=1,
            jitter=0.02,
            mode="bicubic",
        ),
        epochs=3,
        batch=16,
        dropout=0.2,
        precision=precision,
    )
    prepare_device(recipe.precision)
    data = RunData(shapes(64))
    straight = Run(recipe, data, GPU, fused=fused)
    assert straight.step.graph is not None
    kernel = next(p for p in straight.model.classifier.parameters() if p.dim() == 5 and p.shape[1] > 1)
    assert kernel.is_contiguous(memory_format=torch.channels_last_3d) == (precision == "bf16")
    train_fleet([straight])
    assert straight.history[-1]["loss"] < straight.history[0]["loss"]

    stopped = Run(recipe, data, GPU, tmp_path, fused=fused)
    for count, _ in enumerate(stopped.steps(), start=1):
        if count == 5:
            break
    stopped.save()
    resumed = Run(recipe, data, GPU, tmp_path, fused=fused)
    assert resumed.resume()
    train_fleet([resumed])
    expected = straight.step.tensors()
    assert [key for key, value in resumed.step.tensors().items() if not torch.equal(value, expected[key])] == []

    assert evaluate(straight.finished_model(), shapes(20), rotations=3, precision=precision).n == 20
