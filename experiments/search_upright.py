"""Search of PTN-B trained upright, on held-out training digits: one fleet; prints a line for each trial."""
import os, sys
from pathlib import Path
from dataclasses import replace
import ptn.cli.train as cli
from experiments.metrics import extra_metrics
from experiments.peers import build_network
from experiments.recipes import find_recipe
from ptn.config import override
from ptn.training.recipe import EvaluationSpec
from ptn.training.records import read_records

BASE = find_recipe("mnist-anywhere/ptn_b/modern")
TRIALS = {
    "base": {},
    "softplus": {"model.options.heatmap": "softplus"},
    "evidence": {"model.options.heatmap": "evidence", "model.options.origin_turns": 1},
    "antialias": {"model.options.antialias": True},
    "jitter1": {"origin_jitter_px": 1.0},
    "jitter4": {"origin_jitter_px": 4.0},
    "rmin2": {"model.options.r_min_px": 2.0},
    "rmax22": {"model.options.r_max_px": 22.0},
    "rmin2-rmax22": {"model.options.r_min_px": 2.0, "model.options.r_max_px": 22.0},
    "radii64": {"model.options.radii": 64},
    "angles96": {"model.options.angles": 96},
    "dropout": {"dropout": 0.2},
    "epochs20": {"epochs": 20},
    "bicubic": {"model.options.mode": "bicubic"},
}
tiny = {"epochs": int(os.environ["TINY"])} if "TINY" in os.environ else {}
names = sys.argv[1].split(",") if len(sys.argv) > 1 and sys.argv[1] else list(TRIALS)
recipes = []
for name in names:
    changes = {"data.train": "fit", "data.test": "valid", **TRIALS[name], **tiny}
    recipe = override(replace(BASE, name=f"search/{name}", evaluations=(EvaluationSpec(),)), changes)
    recipes += [replace(recipe, seed=seed) for seed in (0, 1)]
out = Path(os.environ.get("OUT", "/tmp"))
code = cli.run_session(recipes, output=Path("/tmp/runs-search"), results=out / "search.jsonl", resume=True,
                       budget_seconds=float(os.environ.get("BUDGET", 400)), extra_metrics=extra_metrics, build_network=build_network)
for r in read_records(out / "search.jsonl") if (out / "search.jsonl").exists() else []:
    m = r.metrics
    print(f"{r.recipe:24}{r.seed}", *(f"{p} {m[p + '_error']:.2f} ({m.get(p + '_error_averaged', 0):.2f})" for p in ("upright", "rotated", "shifted", "scaled")),
          "6/9/others", m["rotated_error_6"], m["rotated_error_9"], m["rotated_error_others"], f"{r.seconds_per_epoch:.2f} s/epoch")
