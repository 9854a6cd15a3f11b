"""How long an audit of PTN-B takes: 1,000 images of 64 × 64 over 36 angles, alone and with all else."""

import time

import torch

from ..evaluation import audit
from ..models import create_model
from ..models.export import sample_images
from .report import Bench
from .timing import Timing

IMAGES = 1000
SIZE = 64


def measure(bench: Bench, *, images: int = IMAGES) -> None:
    """Each once: they take seconds, not milliseconds."""
    model = create_model("ptn_b", image_size=SIZE).to(bench.device)
    samples = sample_images((1, SIZE, SIZE), images)
    labels = torch.arange(images) % 10
    audit(model, samples[:64], labels[:64], angles=(0, 10))  # the first of anything is slower
    for what, parts in (("36 angles", {"scales": (), "shifts_px": (), "layers": ()}), ("everything", {})):
        start = time.perf_counter()
        audit(model, samples, labels, **parts)  # type: ignore[arg-type]
        total = 1000 * (time.perf_counter() - start)
        bench.add(f"audit {images:,} images of {SIZE}×{SIZE}, {what}", Timing(total, (total, total), 1))
