"""Registration: the similarity that maps one image onto another, by phase correlation and refinement."""

import math
from functools import lru_cache, reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from .grid import PolarGrid
from .sample import check_images, polar_sample
from .similarity import Similarity, affine_warp, peak_offset, similarity_warp

_SIDE = 128  # pixels of the images that are compared, and half of them for the refinement
_SPECTRUM = PolarGrid(128, 96, r_min_px=4, r_max_px=_SIDE / 2, start=-math.pi / 2, sweep=math.pi)
_LOG_STEP = math.log(_SIDE / 2 / 4) / 96
_MAX_SCALE = 2.2
_WINDOW_POWER = 0.8  # of a cosine window; a wide one, because shifted images overlap at their borders
_MAGNITUDE_POWER, _PHASE_POWER = 0.7, 0.8
_SMOOTHING = 0.3  # standard deviation of the Gaussian in the frequency domain, in cycles per pixel
_REFINEMENTS = 2
# confidence below which further peaks of the correlation are tried, how many, and how many of them are refined
_UNCERTAIN, _CANDIDATES, _REFINED = 0.8, 16, 2
_CHUNK = 16  # pairs whose images and spectra stay in the cache of a core
_GPU_CHUNK = 256  # bounds the memory of the candidates


class Registration(NamedTuple):
    """Result of `register`.

    Attributes:
        pose: maps positions in `moving` to positions in `fixed`; all fields are tensors.
        warped: `moving` warped by the pose to the size of `fixed`, (N, C, H, W).
        confidence: (N,) from 0 to 1, the correlation of both images where they overlap.
    """

    pose: Similarity
    warped: Tensor
    confidence: Tensor


@torch.no_grad()
def register(moving: Tensor, fixed: Tensor) -> Registration:
    """Return the rotation, scale and shift that map each image of `moving` onto the image of `fixed`.

    (N, C, H, W) and (N, C, h, w) -> Registration. Rotation and scale, from 1/2.2 to 2.2, shift the log-polar image
    of the magnitude of the spectrum, which does not depend on the shift of the image; a phase correlation finds
    them, up to 180°. A phase correlation of the images finds the shift for both rotations, and the better one is
    refined by least squares. Where the result is uncertain, further maxima are tried. Images are reduced to gray
    images of 128 × 128 pixels first. Not differentiable.

    Args:
        moving: images (N, C, H, W) in [0, 1] to be moved.
        fixed: images (N, C, H, W) to move them onto.
    """
    check_images(moving)
    check_images(fixed)
    if moving.shape[:2] != fixed.shape[:2] or moving.device != fixed.device:
        raise InputError(
            "moving and fixed must have the same number of images and channels, and be on one device; got "
            f"{tuple(moving.shape)} on {moving.device} and {tuple(fixed.shape)} on {fixed.device}"
        )
    numbers, warped = fixed.new_empty((len(moving), 5), dtype=torch.float32), torch.empty_like(fixed)
    length = _CHUNK if moving.is_cpu else _GPU_CHUNK
    for start in range(0, len(moving), length):
        part = slice(start, start + length)
        numbers[part] = _match(moving[part], fixed[part])
    pose = Similarity(numbers[:, 0], numbers[:, 1], numbers[:, 2:4])
    matrices, length = pose.inverse().matrix(), 2 if moving.is_cpu else length
    for start in range(0, len(moving), length):
        part = slice(start, start + length)
        warped[part] = affine_warp(moving[part], matrices[part], size=(fixed.shape[2], fixed.shape[3]))
    return Registration(pose, warped, numbers[:, 4])


def _match(moving: Tensor, fixed: Tensor) -> Tensor:
    """Return rotation, scale, shift_px and confidence of each pair: (N, 5)."""
    count, side = len(moving), max(*moving.shape[2:], *fixed.shape[2:])
    reduced = [_reduce(images, side) for images in (moving, fixed)]
    windowed = torch.cat([pixels * window for pixels, window in reduced])
    spectra = torch.fft.rfft2(windowed)
    high_pass, low_pass, columns = _filters(moving.device)
    magnitude = torch.fft.fftshift(_power(spectra).pow(_MAGNITUDE_POWER / 2) * high_pass, dim=1)
    magnitude = magnitude / magnitude.amax(dim=(1, 2), keepdim=True).clamp(min=1e-30)
    # frequency 0 is at pixel (_SIDE / 2, 0) of the half of the spectrum with non-negative frequencies along x
    origin = magnitude.new_tensor((1 / (_SIDE // 2 + 1) - 1, 1 / _SIDE)).expand(2 * count, 2)
    polar = polar_sample(magnitude[:, None], origin, _SPECTRUM)[:, 0]
    polar = (polar - polar.mean(dim=(1, 2), keepdim=True)) * columns
    shape = (_SPECTRUM.angles, 128)  # zero-padded by more than `reach` columns, so that columns do not wrap
    both = torch.fft.rfft2(polar, s=shape)
    cross = _whiten(both[:count].conj() * both[count:], _PHASE_POWER)
    reach = int(math.log(_MAX_SCALE) / _LOG_STEP)
    correlation = torch.fft.irfft2(cross, s=shape)
    correlation = torch.cat((correlation[..., -reach:], correlation[..., : reach + 1]), dim=2)
    row, column, _ = _peak(correlation, wraps=False)
    small, target = _halve(windowed)[:, None].split(count)
    phases = _whiten(torch.fft.rfft2(target[:, 0]), 1.0) * low_pass
    supported = [_with_support(*part) for part in reduced]

    def locate(pairs: Tensor, row: Tensor, column: Tensor, refined: int) -> Tensor:
        """Return the best pose of each pair after the `refined` ones with the highest peaks are refined: (N, 5)."""
        each = len(row) // len(pairs)
        several = pairs.repeat_interleave(each)
        rotation, scale = row * (math.pi / _SPECTRUM.angles), torch.exp((reach - column) * _LOG_STEP)
        found = _locate(small[several], phases[several], rotation, scale).unflatten(0, (-1, each))
        likely = found[..., 4:].topk(refined, dim=1).indices
        found = torch.take_along_dim(found, likely, dim=1).flatten(0, 1)
        several = pairs.repeat_interleave(refined)
        found = _refine(supported[0][several], supported[1][several], found).unflatten(0, (-1, refined))
        return torch.take_along_dim(found, found[..., 4:].argmax(dim=1, keepdim=True), dim=1)[:, 0]

    numbers = locate(torch.arange(count, device=row.device), row, column, 1)
    uncertain = (numbers[:, 4] < _UNCERTAIN).nonzero()[:, 0]
    if len(uncertain):
        others = locate(uncertain, *_further_peaks(correlation[uncertain]), _REFINED)
        better = others[:, 4] > numbers[uncertain, 4]
        numbers[uncertain[better]] = others[better]
    numbers[:, 2:4] *= 2 * side / _SIDE
    return numbers


def _locate(moving: Tensor, phases: Tensor, rotation: Tensor, scale: Tensor) -> Tensor:
    """Return rotation, scale, shift, and the height of the correlation peak at that shift: (N, 5).

    `moving` (N, 1, h, w) has its window, `phases` are whitened spectra of the images to find it in. The rotation is
    known up to 180°.
    """
    # The magnitude of a spectrum is the same after a rotation by 180°, so both rotations are tried. The spectrum of
    # the rotated image is the conjugate, except for a shift by one pixel: the image is rotated about its centre,
    # but the conjugate is the spectrum of the image rotated about its first pixel.
    count, half = len(moving), _SIDE // 2
    rotated = _whiten(torch.fft.rfft2(affine_warp(moving, Similarity(-rotation, 1 / scale).matrix())[:, 0]), 1.0)
    cross = torch.cat((rotated.conj() * phases, rotated * phases))
    y, x, height = _peak(torch.fft.irfft2(cross, s=(half, half)), wraps=True)
    x, y = torch.where(x > half / 2, x - half, x), torch.where(y > half / 2, y - half, y)
    upright = height[:count] >= height[count:]
    shift = [torch.where(upright, v[:count], v[count:] + 1) for v in (x, y)]
    rotation = torch.where(upright, rotation, rotation + math.pi)
    return torch.stack((rotation, scale, *shift, height.view(2, count).amax(dim=0)), dim=1)


def _reduce(images: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Return gray images (N, _SIDE, _SIDE) of mean 0, scaled by _SIDE / side, and their window."""
    height, width = images.shape[2:]
    gray = images.mean(dim=1) if images.shape[1] > 1 else images[:, 0]
    factor = min(max(1, side // _SIDE), height, width)
    # sums of slices are several times as fast on a CPU as `avg_pool2d`
    rows, columns = height // factor * factor, width // factor * factor
    gray = reduce(torch.add, [gray[:, k:rows:factor] for k in range(factor)])
    gray = reduce(torch.add, [gray[:, :, k:columns:factor] for k in range(factor)]) / factor**2
    gray = (gray - gray.mean(dim=(1, 2), keepdim=True)).float()
    share = _SIDE / side
    # pixels at the right and at the bottom that no average contains
    shift = (-share * (width % factor) / 2, -share * (height % factor) / 2)
    if (tuple(gray.shape[1:]), factor * share, shift) != ((_SIDE, _SIDE), 1, (0, 0)):
        pose = Similarity(scale=factor * share, shift_px=shift)
        gray = similarity_warp(gray[:, None], pose, size=(_SIDE, _SIDE))[:, 0]
    span = torch.arange(_SIDE, device=images.device) - (_SIDE - 1) / 2
    y, x = ((span * (math.pi / (n * share))).clamp(-math.pi / 2, math.pi / 2).cos() for n in (height, width))
    window = (y[:, None] * x).clamp(min=0).pow(_WINDOW_POWER)
    return gray, torch.where(window > 1e-3, window, 0.0)


@lru_cache(maxsize=4)
def _filters(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return a high-pass for magnitudes, a low-pass for correlations, and a window for log-polar columns."""
    y, x = torch.fft.fftfreq(_SIDE)[:, None], torch.fft.rfftfreq(_SIDE)
    cosines = torch.cos(math.pi * y) * torch.cos(math.pi * x)
    half_y, half_x = torch.fft.fftfreq(_SIDE // 2)[:, None], torch.fft.rfftfreq(_SIDE // 2)
    low_pass = torch.exp(-(half_y.square() + half_x.square()) / (2 * _SMOOTHING**2))
    columns = torch.hann_window(_SPECTRUM.radii, periodic=False).sqrt()
    high_pass = (1 - cosines) * (1 + cosines)
    return high_pass.to(device), low_pass.to(device), columns.to(device)


def _power(spectrum: Tensor) -> Tensor:
    return spectrum.real.square() + spectrum.imag.square()


def _whiten(cross: Tensor, exponent: float) -> Tensor:
    """Return a cross spectrum divided by a power of its magnitude."""
    power = _power(cross)
    power = power + 1e-18 * power.amax(dim=(1, 2), keepdim=True) + 1e-30
    return cross * (power.rsqrt() if exponent == 1 else power.pow(-exponent / 2))


def _peak(correlation: Tensor, *, wraps: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return row and column of the maximum with subpixel accuracy, and its value: (N, h, w) -> three times (N,).

    Rows wrap; `wraps` says whether columns do.
    """
    height, index = correlation.flatten(1).max(dim=1)
    row, column = index // correlation.shape[2], index % correlation.shape[2]
    sample = torch.arange(len(row), device=row.device)
    y = row + peak_offset(correlation[sample, :, column], row, wraps=True)
    return y, column + peak_offset(correlation[sample, row], column, wraps=wraps), height


def _further_peaks(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of further local maxima, the largest first: (N, h, w) -> twice (N * _CANDIDATES,)."""
    around = F.pad(F.pad(correlation[:, None], (0, 0, 1, 1), mode="circular"), (1, 1), value=-math.inf)
    is_maximum = correlation == F.max_pool2d(around, 3, 1)[:, 0]
    maxima = torch.where(is_maximum, correlation, -math.inf).flatten(1)
    index = maxima.topk(1 + _CANDIDATES).indices[:, 1:].flatten()
    return index // correlation.shape[2], index % correlation.shape[2]


def _halve(pixels: Tensor) -> Tensor:
    rows = pixels[..., ::2, :] + pixels[..., 1::2, :]
    return (rows[..., ::2] + rows[..., 1::2]) / 4


def _with_support(pixels: Tensor, window: Tensor) -> Tensor:
    """Return pixels and the support of their window at half the resolution: (N, 2, h, w)."""
    parts = _halve(pixels), _halve((window > 0).to(pixels.dtype))
    return torch.stack(torch.broadcast_tensors(*parts), dim=1)


def _refine(moving: Tensor, fixed: Tensor, found: Tensor) -> Tensor:
    """Return rotation, scale, shift and confidence, (N, 5), after Gauss-Newton steps from the pose `found`.

    Images are (N, 2, h, w), with the support of their window.
    """
    pose = Similarity(found[:, 0], found[:, 1], found[:, 2:4])
    target, inside = fixed[:, 0], fixed[:, 1] > 0.99
    along_y, along_x = torch.gradient(target, dim=(1, 2))
    span = torch.arange(target.shape[1], device=target.device) - (target.shape[1] - 1) / 2
    x, y = span[None, :], span[:, None]
    # derivatives of the fixed image with respect to rotation, logarithm of the scale, and shift
    slopes = torch.stack((along_y * x - along_x * y, along_x * x + along_y * y, along_x, along_y), dim=1).flatten(2)
    for step in range(_REFINEMENTS + 1):
        warped = affine_warp(moving, pose.inverse().matrix())
        overlap = ((warped[:, 1] > 0.99) & inside).flatten(1).to(target.dtype)[:, None]
        area = overlap.sum(dim=2, keepdim=True).clamp(min=1)
        values = torch.stack((warped[:, 0], target), dim=1).flatten(2)
        values = (values - (values * overlap).sum(dim=2, keepdim=True) / area) * overlap
        if step == _REFINEMENTS:
            break
        masked = slopes * overlap
        normal = masked @ slopes.mT
        normal = normal + torch.diag_embed(1e-6 * normal.diagonal(dim1=1, dim2=2) + 1e-12)
        change = torch.linalg.solve(normal, masked @ (values[:, :1] - values[:, 1:]).mT)[:, :, 0].clamp(-2, 2)
        pose = Similarity(change[:, 0], change[:, 1].clamp(-0.2, 0.2).exp(), change[:, 2:]).compose(pose)
    products = values @ values.mT
    power = (products[:, 0, 0] * products[:, 1, 1]).sqrt().clamp(min=1e-12)
    confidence = (products[:, 0, 1] / power).clamp(0, 1)
    rotation, scale, shift = (torch.as_tensor(value) for value in (pose.rotation, pose.scale, pose.shift_px))
    rotation = torch.remainder(rotation + math.pi, 2 * math.pi) - math.pi
    return torch.cat((torch.stack((rotation, scale), dim=1), shift, confidence[:, None]), dim=1)
