"""Kills training at random moments and at chosen points, resumes it, and prints what came of it as JSON.

Random moments are in CPU time, which does not depend on the load of the machine. Each trial is a fork of this
process with everything imported. `python kills.py FOLDER RANDOM CHOSEN` expects the images in FOLDER/pictures.
"""

import contextlib
import io
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import ptn.files
import ptn.training.records
import ptn.training.session
import ptn.training.trainer
from ptn.cli import main
from ptn.training import read_records

EPOCHS = 4


def train(folder: Path, *more: str) -> int:
    """Trains in this process and returns the exit code."""
    options = ("--model", "ccnn_s", "--image-size", "16", "--epochs", str(EPOCHS), "--checkpoint-every", "1")
    results = ("-o", str(folder / "runs"), "--results", str(folder / "all.jsonl"))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            main(["train", "--folder", "pictures", *options, *results, *more])
    except SystemExit as stop:
        if stop.code:
            print(errors.getvalue(), file=sys.stderr)
        return int(stop.code or 0)
    return 0


class Points:
    """Counts the moments before and after each change of a file; kills this process at number `deadly`."""

    def __init__(self, deadly: int | None) -> None:
        self.count, self.deadly = 0, deadly
        for owner, name in (
            (os, "fsync"),
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "chmod"),
            (ptn.training.session, "save_weights"),
            (ptn.training.session, "append_records"),
        ):
            setattr(owner, name, self.wrap(getattr(owner, name)))

    def wrap(self, function):
        def wrapped(*arguments, **options):
            self.reach()
            result = function(*arguments, **options)
            self.reach()
            return result

        return wrapped

    def reach(self) -> None:
        self.count += 1
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def fork(work) -> int:
    """Runs `work` in a fork of this process and returns its process id."""
    if child := os.fork():
        return child
    try:
        os._exit(work())
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(99)


def trial(folder: Path, *, point: int | None = None, seconds: float | None = None) -> dict[str, object]:
    """Kills a run at a point or after seconds of CPU time, resumes it, and returns what is in its folder."""
    folder.mkdir()

    def doomed() -> int:
        if point is not None:
            Points(point)
        if seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process as SIGKILL does
        return train(folder)

    killed = os.WIFSIGNALED(os.waitpid(fork(doomed), 0)[1])
    code = os.waitstatus_to_exitcode(os.waitpid(fork(lambda: train(folder, "--resume")), 0)[1])
    return {"killed": killed, "code": code, **contents(folder)}


def contents(folder: Path) -> dict[str, object]:
    [run] = (folder / "runs").glob("*/seed-0")
    files = [run / "result.jsonl", folder / "runs" / "records.jsonl", folder / "all.jsonl"]
    return {
        "weights": ptn.files._digests(run / "weights.safetensors")[1],
        "records": [len(read_records(path)) for path in files],
        "files": sorted(path.name for path in run.iterdir()),
        "parts": [str(path) for path in folder.rglob(".*.part")],
    }


def run_all(root: Path, randoms: int, chosen: int) -> None:
    os.chdir(root)
    torch.set_num_threads(1)
    for name in ("warm", "straight"):
        (root / name).mkdir()
    assert train(root / "warm") == 0  # imports what the forks need
    reader, writer = os.pipe()

    def count() -> int:
        points = Points(None)
        start = time.process_time()
        code = train(root / "straight")
        os.write(writer, json.dumps([points.count, time.process_time() - start]).encode())
        return code

    assert os.waitpid(fork(count), 0)[1] == 0
    total, seconds = json.loads(os.read(reader, 1000))
    expected = contents(root / "straight")
    dice = random.Random(0)
    trials = [trial(root / f"random-{k}", seconds=dice.uniform(0.001, seconds)) for k in range(randoms)]
    # half of the points around the checkpoints, half around the weights, the records and the report, the last 50
    points = [1 + k * (total - 50) // (chosen // 2) for k in range(chosen // 2)]
    points += [total - 50 + k * 50 // (chosen - len(points)) for k in range(chosen - len(points))]
    trials += [trial(root / f"chosen-{point}", point=point) for point in points]
    print(json.dumps({"expected": expected, "points": points, "total": total, "trials": trials}))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
