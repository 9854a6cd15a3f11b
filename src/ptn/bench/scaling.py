"""How cost grows: with the batch, the size of the images and the number of angles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ..geometry import PolarGrid, polar_sample
from ..models import create_model, for_inference
from . import samplers
from .inference import answering
from .report import Bench, PeerMissing
from .timing import Work, time_together

BATCHES, SIZES, ANGLES = (1, 4, 16, 64, 256, 1024), (16, 32, 64, 128, 256, 512), (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Setting:
    """Images of one channel, and the angles of their polar images; as many radii as pixels."""

    batch: int
    size: int
    angles: int


def measure(
    bench: Bench,
    *,
    batches: Sequence[int] = BATCHES,
    sizes: Sequence[int] = SIZES,
    angles: Sequence[int] = ANGLES,
) -> None:
    """Curves of milliseconds, of `polar_sample` and of PTN-B answering, in the details of the report."""
    curves: list[dict[str, Any]] = []
    for what, contend, start in (
        ("polar_sample", sampling, Setting(batch=32, size=96, angles=96)),
        ("PTN-B inference", inference, Setting(batch=32, size=32, angles=32)),
    ):
        for axis, settings in (
            ("batch", [(n, replace(start, batch=n)) for n in batches]),
            ("image size", [(n, replace(start, size=n, angles=n)) for n in sizes]),
            ("angles", [(n, replace(start, angles=n)) for n in angles]),
        ):
            curve: dict[str, Any] = {"what": what, "axis": axis, "start": vars(start), "at": [], "ms": {}}
            for value, setting in settings:
                contenders = _present(bench, what, contend(setting, bench.device))
                curve["at"].append(value)
                for name, timing in time_together(contenders, bench.device, bench.effort).items():
                    curve["ms"].setdefault(name, []).append(float(f"{timing.ms:.4g}"))
            curves.append(curve)
    bench.details["curves"] = curves


def _present(bench: Bench, what: str, makers: dict[str, Callable[[], Work]]) -> dict[str, Work]:
    """Those contenders that can take part; the others are noted once."""
    contenders = {}
    for name, make in makers.items():
        try:
            contenders[name] = make()
        except PeerMissing as reason:
            note = {"name": what, "peer": name, "reason": str(reason)}
            if note not in bench.skipped:
                bench.skip(**note)
    return contenders


def sampling(setting: Setting, device: torch.device) -> dict[str, Callable[[], Work]]:
    images = torch.rand(setting.batch, 1, setting.size, setting.size, device=device)
    origin = torch.rand(setting.batch, 2, device=device) - 0.5
    grid = PolarGrid(setting.angles, setting.size)

    def quietly(sample: samplers.Sampler) -> Work:
        def work() -> object:
            with torch.inference_mode():
                return sample(images, origin)

        return work

    return {
        "ptn": lambda: quietly(lambda images, origin: polar_sample(images, origin, grid)),
        "F.grid_sample": lambda: quietly(samplers.grid_sample((setting.size, setting.size), grid, device)),
        "OpenCV remap": partial(samplers.opencv_remap, images, origin, grid, build_maps=True),
    }


def inference(setting: Setting, device: torch.device) -> dict[str, Callable[[], Work]]:
    model = create_model("ptn_b", image_size=setting.size, angles=setting.angles).eval().to(device)
    images = torch.rand(setting.batch, 1, setting.size, setting.size, device=device)
    return {
        "ptn": lambda: answering(for_inference(model), images),
        "plain eager": lambda: answering(model, images),
    }
