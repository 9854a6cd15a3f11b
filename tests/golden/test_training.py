"""Training of every kind of recipe gives the recorded losses and weights, also resumed or interleaved.

On the machine that recorded them, weights are equal bit for bit. Elsewhere rounding differs, and training amplifies
it: there the first losses are compared closely, and what follows within the limits measured with other instruction
sets.
"""

import itertools
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import golden
from training_runs import KINDS, digest, hash_weights, make_run, train

FIRST = 5
FIRST_RTOL = {"digits_modern_bf16": 5e-3}
LATER_RTOL = {
    "digits_modern_bf16": 2e-2,
    "digits_paper": 2e-2,
    "stn": 1e-2,
    "photographs": 5e-2,
    "large": 5e-2,
    "folder": 2e-2,
}
# the absolute part is for small weights, which rounding moves by a few times the learning rate
WEIGHT_RTOL, WEIGHT_ATOL = 2e-2, {"photographs": 0.05}


@cache
def trained(kind: str) -> dict[str, Any]:
    """The digest of an uninterrupted run of 20 steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(kind, Path(folder))
        return digest(run, train(run))


TRAINING = {kind: partial(trained, kind) for kind in KINDS}
CASES: golden.Cases = {"training": TRAINING}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_weights_are_those_recorded(kind):
    actual, expected = trained(kind), golden.read("training")[kind]
    losses = actual["losses"]
    assert losses[:FIRST] == pytest.approx(expected["losses"][:FIRST], rel=FIRST_RTOL.get(kind, 1e-3))
    assert losses == pytest.approx(expected["losses"], rel=LATER_RTOL.get(kind, 2e-3))
    assert actual["valid_errors"] == pytest.approx(expected["valid_errors"], abs=12)
    assert actual["weights"].keys() == expected["weights"].keys()
    atol = WEIGHT_ATOL.get(kind, 0.02)
    for name, (total, norm) in expected["weights"].items():
        actual_total, actual_norm = actual["weights"][name]
        assert actual_norm == pytest.approx(norm, rel=WEIGHT_RTOL, abs=atol), name
        # a sum may cancel: its error is of the order of the norm's, not of its own
        assert actual_total == pytest.approx(total, rel=WEIGHT_RTOL, abs=0.05 * norm + 10 * atol), name
    if golden.on_recorded_machine("training"):
        assert actual["sha256"] == expected["sha256"]


@pytest.mark.parametrize("kind", ["digits_modern", "photographs", "folder"])
def test_a_stopped_run_resumes_to_the_same_weights(kind, tmp_path):
    stopped = make_run(kind, tmp_path)
    losses = train(stopped, 7)
    stopped.save()
    resumed = make_run(kind, tmp_path)
    assert resumed.resume()
    assert digest(resumed, losses + train(resumed)) == trained(kind)


def test_interleaved_runs_give_the_weights_of_each_alone():
    runs = [make_run("digits_modern", seed=seed) for seed in (0, 1)]
    for _ in itertools.zip_longest(*(run.steps() for run in runs)):
        pass
    alone = make_run("digits_modern", seed=1)
    train(alone)
    first, second, expected = (hash_weights(run.model.state_dict()) for run in (*runs, alone))
    assert first == trained("digits_modern")["sha256"]
    assert second == expected != first
