"""Made-up records to make tables of."""

import pytest

from ptn.training.records import Record


@pytest.fixture
def made_up():
    """`made_up(seed=1, test_error=0.9, …)`: a record of PTN-B+ on rotated MNIST unless told otherwise."""

    def make(**changes):
        seed = changes.get("seed", 0)
        values = {
            "recipe": "rotmnist/ptn_b/modern+",
            "form": "modern",
            "table": "rotmnist",
            "row": "PTN-B+",
            "dataset": "rotmnist",
            "model": "ptn_b",
            "params": 131_959,
            "seed": seed,
            "test_error": 1.0,
            "metrics": {"source": "regenerated"},
            "tta": 1,
            "epochs": 200,
            "train_seconds": 12.0,
            "seconds_per_epoch": 0.06,
            "selection": "final",
            "data_sha256": "d",
            "config": {},
            "config_sha256": "c",
            "git": "unknown",
            "torch": "2.13.0",
            "device": "NVIDIA H200",
            "precision": "fp32",
            "deterministic": True,
            "started": "2025-11-15T10:00:00+00:00",
            "status": "done",
        } | changes
        values.setdefault("run", f"{values['recipe']}-{values['form']}-{seed}")
        if values["status"] == "failed":
            values["test_error"] = None
        return Record(**values)

    return make
