"""Record the behaviour of today: `PTN_DATA=... python tests/golden/record.py NAME...` writes expected/NAME.json.

Do this only to accept a deliberate change, and review the differences. NAME is one of those in `CASES`.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `experiments`

import torch

import golden
import test_api
import test_data
import test_geometry
import test_networks
import test_report
import test_training

MODULES = (test_api, test_data, test_geometry, test_networks, test_report, test_training)
CASES: golden.Cases = {name: cases for module in MODULES for name, cases in module.CASES.items()}

if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PTN_CACHE"] = cache  # empty, so that all data sets are generated
        for name in sys.argv[1:]:
            golden.write(name, {key: case() for key, case in CASES[name].items()})
