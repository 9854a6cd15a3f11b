"""How far one polar image is shifted against another: equivariance as a number."""

import torch
from torch import Tensor

from ..errors import InputError
from .interpolate import check_images


def measure_shift(reference: Tensor, moved: Tensor) -> Tensor:
    """The shift that best carries each `reference` onto `moved`: two (N, C, angles, radii) -> (N, 2).

    Returns (rows, columns), fractions included; rows wrap and lie in (-angles/2, angles/2], columns do not and
    lie within half the radii. The best shift is where the overlapping parts correlate most,
    Σab / √(Σa²·Σb²), refined by a parabola along each axis: what a dilation brings in from below r_min or
    pushes out beyond r_max has no part in it.
    """
    check_images(reference, "(N, C, angles, radii)")
    check_images(moved, "(N, C, angles, radii)")
    if reference.shape != moved.shape:
        raise InputError(f"shapes differ: {tuple(reference.shape)} and {tuple(moved.shape)}")
    if reference.shape[0] == 0:
        return reference.new_zeros(0, 2, dtype=torch.float64)
    reference, moved = reference.double(), moved.double()
    angles, radii = reference.shape[-2:]
    shape = (angles, 2 * radii)  # so that columns do not wrap
    spectrum = torch.fft.rfft2(moved, s=shape) * torch.fft.rfft2(reference, s=shape).conj()
    products = torch.fft.irfft2(spectrum, s=shape).sum(dim=1)

    reach = radii // 2
    shifts = torch.arange(-reach, reach + 1, device=moved.device)
    products = products[:, :, shifts % (2 * radii)]
    energy = _overlap_energy(reference, -shifts) * _overlap_energy(moved, shifts)
    correlation = torch.where(energy > 0, products / energy.clamp(min=1e-30).sqrt(), -torch.ones_like(products))

    peak = correlation.flatten(1).argmax(dim=1)
    row, column = peak // len(shifts), peak % len(shifts)
    sample = torch.arange(len(peak), device=peak.device)
    rows = row + _parabola(correlation[sample, :, column], row, wraps=True)
    columns = shifts[column] + _parabola(correlation[sample, row, :], column, wraps=False)
    return torch.stack((torch.where(rows > angles / 2, rows - angles, rows), columns), dim=1)


def _overlap_energy(images: Tensor, shifts: Tensor) -> Tensor:
    """Σ values² over the columns that still overlap when the other image is shifted: (N, 1, len(shifts)).

    A positive shift cuts the first columns off, a negative one the last.
    """
    total = images.square().sum(dim=(1, 2)).cumsum(dim=1)
    total = torch.cat((torch.zeros_like(total[:, :1]), total), dim=1)
    radii = images.shape[-1]
    first, last = shifts.clamp(min=0), radii + shifts.clamp(max=0)
    return (total[:, last] - total[:, first])[:, None, :]


def _parabola(values: Tensor, index: Tensor, *, wraps: bool) -> Tensor:
    """Where between the neighbours of `index` the parabola through the three values peaks, in (-½, ½)."""
    length = values.shape[1]
    left, right = index - 1, index + 1
    left, right = (left % length, right % length) if wraps else (left.clamp(min=0), right.clamp(max=length - 1))
    a, b, c = (values.gather(1, i[:, None])[:, 0] for i in (left, index, right))
    curvature = a - 2 * b + c
    peaked = (curvature < 0) & (left != index) & (right != index)
    return torch.where(peaked, 0.5 * (a - c) / torch.where(peaked, curvature, 1.0), 0.0)
