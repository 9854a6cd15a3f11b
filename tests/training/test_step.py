"""One optimisation step: what it counts."""

from types import SimpleNamespace

import pytest
import torch

from ptn.training import Run
from ptn.training.step import compiled, tally


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_what_a_compiled_step_counts_is_what_was_seen(recipe, digits):
    step = Run(recipe, digits, torch.device("cpu")).step
    names = ("loss_sum", "wrong", "count", "first_bad")
    seen = SimpleNamespace(**{name: getattr(step, name).clone() for name in names})
    counted = compiled(tally)
    for loss, wrong in ((1.5, 3), (0.25, 1), (float("inf"), 0), (float("nan"), 2)):
        counted(seen, torch.tensor(loss), torch.tensor(wrong))
        if loss == 0.25:
            assert float(seen.loss_sum) == 1.75
    assert (int(seen.wrong), int(seen.count), int(seen.first_bad)) == (6, 4, 2)


def test_checkpoints_have_the_loss_as_they_always_had(recipe, digits):
    """A number without dimensions, which is restored in place."""
    step = Run(recipe, digits, torch.device("cpu")).step
    held = step.tensors()["loss_sum"]
    assert held.shape == ()
    held.copy_(torch.tensor(2.5))
    assert step.loss_sum.tolist() == [2.5]
