"""Segmentation of single coins at rotations not seen in training: `python -m experiments segmentation`.

The photograph of 24 coins that scikit-image includes is segmented by a watershed. Twelve coins are for training,
always upright, and twelve for testing, rotated in steps of 15°. An image shows one coin near the middle, up to 10
pixels away from it, and parts of its neighbours, which are background.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from ptn.config import build, check
from ptn.data.store import reading
from ptn.errors import InputError, optional_module
from ptn.files import atomic_path, parse_json, write_text
from ptn.geometry import Similarity, similarity_warp
from ptn.models import PolarSegmenter, count_parameters
from ptn.training.records import git_commit

SIZE = 64
SCALE = 0.8  # of the photograph
MAX_SHIFT_PX = 10
DEGREES = tuple(range(0, 360, 15))
SEEDS = (0, 1, 2)
TABLE_START, TABLE_END = "<!-- segmentation -->", "<!-- end of segmentation -->"
RESULTS = Path(__file__).parent / "results" / "segmentation.json"


@lru_cache
def coins() -> tuple[Tensor, Tensor, list[tuple[float, float]]]:
    """Returns the photograph (1, 1, H, W), the label of the coin of each pixel, and the centre of each coin."""
    names = ("skimage.data", "skimage.filters", "skimage.measure", "skimage.segmentation", "scipy.ndimage")
    data, filters, measure, segmentation, ndimage = (optional_module(name, "ptn[examples]") for name in names)
    photograph = data.coins()
    markers = np.zeros_like(photograph)
    markers[photograph < 30], markers[photograph > 150] = 1, 2
    watershed = segmentation.watershed(filters.sobel(photograph), markers)
    labels, _ = ndimage.label(ndimage.binary_fill_holes(watershed - 1))
    regions = [region for region in measure.regionprops(labels) if region.area > 100]
    numbered = np.zeros_like(labels)
    for number, region in enumerate(regions, start=1):
        numbered[labels == region.label] = number
    centers = [(region.centroid[1], region.centroid[0]) for region in regions]
    return torch.from_numpy(photograph).float()[None, None] / 255, torch.from_numpy(numbered), centers


def views(indices: list[int], rotations: Tensor, shifts_px: Tensor) -> tuple[Tensor, Tensor]:
    """Returns images and masks, each (N, 1, SIZE, SIZE), of coins rotated and shifted in the image."""
    photograph, labels, centers = coins()
    height, width = labels.shape
    middle = torch.tensor(((width - 1) / 2, (height - 1) / 2))
    shift = torch.stack([middle - torch.tensor(centers[index]) for index in indices])
    pose = Similarity(rotations, SCALE, shifts_px).compose(Similarity(shift_px=shift))
    pictures = photograph.expand(len(indices), -1, -1, -1)
    masks = torch.stack([(labels == index + 1).float()[None] for index in indices])
    size = (SIZE, SIZE)
    images = similarity_warp(pictures, pose, size=size, mode="bicubic", padding_mode="border").clamp(0, 1)
    return images, (similarity_warp(masks, pose, size=size) > 0.5).float()


def convolutions(width: int) -> nn.Sequential:
    """Returns a fully convolutional network with dilated convolutions and a receptive field of 63 pixels."""
    layers: list[nn.Module] = []
    for channels, dilation in zip((1, *(width,) * 5), (1, 2, 4, 8, 8, 8), strict=True):
        layers += [
            nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 1))


def make_model(kind: str) -> nn.Module:
    """Returns the polar network, or the plain one with at least as many parameters."""
    polar = PolarSegmenter(convolutions(16), image_size=SIZE, in_chans=1)
    if kind == "polar":
        return polar
    width = 16
    while count_parameters(convolutions(width)) < count_parameters(polar):
        width += 1
    return convolutions(width)


def train(kind: str, seed: int, *, rotate: bool, steps: int = 150, batch: int = 16) -> nn.Module:
    """Returns a network trained on upright coins, or with random rotations if `rotate`."""
    torch.manual_seed(seed)
    model = make_model(kind).train()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    total = steps * batch
    indices = (2 * torch.randint(12, (total,), generator=generator)).tolist()
    rotations = (torch.rand(total, generator=generator) if rotate else torch.zeros(total)) * 2 * math.pi
    shifts = (2 * torch.rand(total, 2, generator=generator) - 1) * MAX_SHIFT_PX
    for step in range(steps):
        part = slice(step * batch, (step + 1) * batch)
        images, masks = views(indices[part], rotations[part], shifts[part])
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(images), masks).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.inference_mode()
def test(model: nn.Module) -> tuple[float, float]:
    """Returns the mean intersection over union of the test coins in %: upright, and at all other rotations."""
    generator = torch.Generator().manual_seed(1000)
    overlaps = []
    for degrees in DEGREES:
        shifts = (2 * torch.rand(12, 2, generator=generator) - 1) * MAX_SHIFT_PX
        images, masks = views([2 * k + 1 for k in range(12)], torch.full((12,), math.radians(degrees)), shifts)
        predicted = model(images) > 0
        both, either = (predicted & masks.bool()).sum((1, 2, 3)), (predicted | masks.bool()).sum((1, 2, 3))
        overlaps.append(100 * (both / either).mean().item())
    return overlaps[0], sum(overlaps[1:]) / len(overlaps[1:])


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one network: mean intersection over union of upright and of rotated test coins in %."""

    network: Literal["polar", "plain"]
    trained: Literal["upright", "rotated"]
    seed: int
    upright: float
    rotated: float
    parameters: int
    seconds: float

    def __post_init__(self) -> None:
        for name in ("upright", "rotated"):
            check(name, getattr(self, name), 0 <= getattr(self, name) <= 100, "from 0 to 100 %")


@dataclass(frozen=True, kw_only=True)
class Results:
    """The content of the file of the results."""

    git: str
    steps: int
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        kinds = sorted({f"{row.network} {row.trained}" for row in self.rows})
        check("rows", kinds, len(kinds) == 4, "of both networks, each trained on upright and on rotated coins")


def read_rows(path: Path) -> tuple[Row, ...]:
    """Returns the checked rows of a file of results."""
    with reading(path):
        content = path.read_bytes()
    return build(Results, parse_json(content, str(path)), str(path)).rows


def table(rows: Sequence[Row]) -> str:
    """Returns the results as a table in Markdown: mean (lowest to highest) over the seeds."""
    lines = ["| trained on | network | parameters | upright | rotated |", "|---|---|---:|---:|---:|"]
    for trained in ("upright", "rotated"):
        for kind in ("polar", "plain"):
            runs = [row for row in rows if (row.trained, row.network) == (trained, kind)]
            cells = [f"{trained} coins", kind, f"{runs[0].parameters:,}"]
            for values in ([run.upright for run in runs], [run.rotated for run in runs]):
                cells.append(f"{fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def segmentation(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = len(SEEDS),
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 150,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the results.")] = RESULTS,
    page: Annotated[
        Path | None, typer.Option(help="Train nothing: write the table of the results into this page.")
    ] = None,
) -> None:
    """Train a polar and a plain network to segment coins, and test both at rotations not seen in training."""
    if page is not None:
        with reading(page):
            before, opening, rest = page.read_text(encoding="utf-8").partition(TABLE_START)
        _, end, after = rest.partition(TABLE_END)
        if not end:
            raise InputError(f"{page} has no {TABLE_START} and {TABLE_END}")
        write_text(page, f"{before}{opening}\n{table(read_rows(output))}\n{end}{after}")
        print(page)
        return
    with atomic_path(output) as temporary:  # a file that cannot be written is an error before training
        results = Results(git=git_commit(), steps=steps, rows=tuple(train_all(seeds, steps)))
        temporary.write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")


def train_all(seeds: int, steps: int) -> Iterator[Row]:
    """Yields the result of each network, and prints it when it is available."""
    for rotate, kind, seed in product((False, True), ("polar", "plain"), range(seeds)):
        start = time.perf_counter()
        model = train(kind, seed, rotate=rotate, steps=steps)
        upright, rotated = test(model)
        row: dict[str, Any] = {"network": kind, "trained": "rotated" if rotate else "upright", "seed": seed}
        row |= {"upright": round(upright, 2), "rotated": round(rotated, 2), "parameters": count_parameters(model)}
        row["seconds"] = round(time.perf_counter() - start, 1)
        print(row, flush=True)
        yield build(Row, row)
