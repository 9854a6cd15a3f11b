"""Similarity transforms of images: the pose, the warp, and the shift between polar images."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, InputTypeError
from .grid import check_number, reduce_angle
from .sample import (
    Backend,
    Mode,
    PaddingMode,
    check_images,
    check_options,
    check_size,
    coordinate_dtype,
    fold_slices,
    interpolate,
    nan_where_not_finite,
    sample_points,
    uses_triton,
    values_known,
)


@dataclass(frozen=True)
class Similarity:
    """The map p -> scale·R(rotation)·p + shift_px of positions p = (x, y) in pixels from the middle of the image.

    Each field is one value for all images, or a tensor with one value per image.

    Convention: a positive rotation carries +x towards +y (y points down), the direction in which the rows of a
    polar image count. A rotation by θ about the middle rolls the polar image around the middle by θ·angles/2π rows.

    Args:
        rotation: angle in radians; a number or (N,).
        scale: factor; a number or (N,).
        shift_px: (x, y) in pixels; a pair of numbers or (N, 2).
    """

    rotation: Tensor | float = 0.0
    scale: Tensor | float = 1.0
    shift_px: Tensor | tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        check_number("rotation", self.rotation)
        check_number("scale", self.scale)
        shift = self.shift_px
        if not isinstance(shift, Tensor | tuple | list) or (isinstance(shift, Tensor) and shift.is_complex()):
            raise InputTypeError(f"shift_px must be (x, y) or a tensor (N, 2); got {shift!r}")
        if (shift.shape[-1:] if isinstance(shift, Tensor) else (len(shift),)) != (2,):
            raise InputError(f"shift_px must be (x, y) or a tensor (N, 2); got {shift!r}")
        for number in () if isinstance(shift, Tensor) else shift:
            check_number("shift_px", number)

    def compose(self, first: "Similarity") -> "Similarity":
        """Return the map that applies `first` and then `self`."""
        x, y = self._rotate_and_scale(*first._shift())
        dx, dy = self._shift()
        return Similarity(first.rotation + self.rotation, first.scale * self.scale, _as_pair(x + dx, y + dy))

    def inverse(self) -> "Similarity":
        """Return the inverse map."""
        if not isinstance(self.scale, Tensor) and self.scale == 0:
            raise InputError("scale must not be 0")
        back = Similarity(-self.rotation, 1 / self.scale)
        x, y = self._shift()
        return Similarity(back.rotation, back.scale, _as_pair(*back._rotate_and_scale(-x, -y)))

    def matrix(self) -> Tensor:
        """Return [scale·R(rotation) | shift_px]: (2, 3), or (N, 2, 3) if a field has one value per image."""
        x, y = self._shift()
        cos, sin = self._rotate_and_scale(1.0, 0.0)
        fields = (self.rotation, self.scale, self.shift_px)
        device = next((field.device for field in fields if isinstance(field, Tensor)), None)
        entries = [torch.as_tensor(value, device=device) for value in (cos, -sin, x, sin, cos, y)]
        return torch.stack(torch.broadcast_tensors(*entries), dim=-1).unflatten(-1, (2, 3))

    def _shift(self) -> tuple[Any, Any]:
        x, y = self.shift_px.unbind(dim=-1) if isinstance(self.shift_px, Tensor) else self.shift_px
        return x, y

    def _rotate_and_scale(self, x: Any, y: Any) -> tuple[Any, Any]:
        functions: Any = torch if isinstance(self.rotation, Tensor) else math
        exact = isinstance(self.rotation, Tensor) or math.isfinite(self.rotation)
        rotation = self.rotation if exact else math.nan  # math.cos raises for infinity
        cos, sin = self.scale * functions.cos(rotation), self.scale * functions.sin(rotation)
        return cos * x - sin * y, sin * x + cos * y


def _as_pair(x: Any, y: Any) -> Tensor | tuple[float, float]:
    return torch.stack((x, y), dim=-1) if isinstance(x, Tensor) else (x, y)


def similarity_warp(
    images: Tensor,
    pose: Similarity,
    *,
    size: tuple[int, int] | None = None,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
) -> Tensor:
    """Return each image rotated, scaled and shifted by `pose`: (N, C, H, W) -> (N, C, h, w).

    The value at p in the input is at `pose`(p) in the output; see `Similarity`. Differentiable in the images and
    in the fields of the pose. Volumes (N, C, X, Y, Z) -> (N, C, w, h, Z) have all z slices warped alike, each as an
    image with rows y and columns x. A sample whose pose is not finite is NaN. Images may have any range of values.

    Args:
        images: (N, C, H, W).
        pose: the similarity, one for all images or one for each.
        size: (h, w) of the output, by default that of the input.
        mode: interpolation, as in `polar_sample`.
        padding_mode: values outside the image, as in `polar_sample`.
        backend: as in `polar_sample`. "auto" takes Triton in every call on a GPU: it is one
            kernel, torch launches about twenty.
    """
    volumes = isinstance(images, Tensor) and images.dim() == 5
    check_images(images, "(N, C, X, Y, Z)" if volumes else "(N, C, H, W)")
    check_options(mode, padding_mode)
    if not isinstance(pose, Similarity):
        raise InputTypeError(f"pose must be a Similarity; got {pose!r}")
    rotation, scale = _per_image(reduce_angle(pose.rotation), images), _per_image(pose.scale, images)
    shift = _per_image(pose.shift_px, images, 2)
    if values_known(scale) and not bool((scale != 0).all()):
        raise InputError("scale must not be 0")
    height, width = (images.shape[3], images.shape[2]) if volumes else (images.shape[2], images.shape[3])
    if size is None:
        size = height, width
    else:
        check_size(size)
    if uses_triton(backend, images, size, 0):
        from . import triton_ops

        points = triton_ops.Points("plane", *size, 0.0, 0.0, mode, padding_mode)
        return triton_ops.sample(images, shift, rotation, scale, None, *points)
    x = torch.arange(size[1], dtype=scale.dtype, device=images.device) - (size[1] - 1) / 2
    y = torch.arange(size[0], dtype=scale.dtype, device=images.device) - (size[0] - 1) / 2
    x = x[None, None, :] - shift[:, 0, None, None]
    y = y[None, :, None] - shift[:, 1, None, None]
    cos = (torch.cos(rotation) / scale)[:, None, None]
    sin = (torch.sin(rotation) / scale)[:, None, None]
    warped = interpolate(
        fold_slices(images) if volumes else images,
        cos * x + sin * y + (width - 1) / 2,
        cos * y - sin * x + (height - 1) / 2,
        mode=mode,
        padding_mode=padding_mode,
    )
    warped = nan_where_not_finite(warped, rotation, scale, shift)
    return warped.unflatten(1, (images.shape[1], -1)).permute(0, 1, 4, 3, 2) if volumes else warped


def affine_warp(
    images: Tensor,
    matrix: Tensor,
    *,
    size: tuple[int, int] | None = None,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    backend: Backend = "auto",
) -> Tensor:
    """Return each image at the points `matrix`·(p, 1) of the pixels p of the output: (N, C, H, W) -> (N, C, h, w).

    Positions are (x, y) in pixels from the middle. `matrix` (N, 2, 3) is the inverse of the map that moves the
    image, such as `pose.inverse().matrix()`. Differentiable in both; options are those of `similarity_warp`.
    """
    check_images(images)
    check_options(mode, padding_mode)
    if matrix.shape[1:] != (2, 3):
        raise InputError(f"matrix must have shape {(len(images), 2, 3)}; got {tuple(matrix.shape)}")
    matrix = matrix.to(coordinate_dtype(images))
    height, width = images.shape[2:]
    rows, columns = size or (height, width)
    if uses_triton(backend, images, (rows, columns), 0):
        from . import triton_ops

        plane = triton_ops.Points("plane", rows, columns, 0.0, 0.0, mode, padding_mode)
        return triton_ops.sample(images, matrix.new_zeros(len(images), 2), None, None, matrix.flatten(1), *plane)
    x = torch.arange(columns, dtype=matrix.dtype, device=images.device) - (columns - 1) / 2
    y = torch.arange(rows, dtype=matrix.dtype, device=images.device) - (rows - 1) / 2
    # no matrix product, which may be in TF32; sums of a row and a column are few passes over memory
    a, b, c = (matrix * matrix.new_tensor([[2 / width], [2 / height]])).unbind(dim=2)
    points = a[:, :, None, None] * x + (b[:, :, None] * y + c[:, :, None])[..., None]
    warped = sample_points(images, points.permute(0, 2, 3, 1), mode, padding_mode)
    return nan_where_not_finite(warped, matrix)


def _per_image(value: Tensor | float | tuple[float, float], images: Tensor, *shape: int) -> Tensor:
    """Return `value`, one for all or one for each of `images`, as a tensor (N, *shape)."""
    count, dtype, device = images.shape[0], coordinate_dtype(images), images.device
    if isinstance(value, Tensor):
        # by the number of axes: comparing (N, 2) with (2,) would make torch.export exclude batches of 2
        if value.shape != (shape if value.dim() == len(shape) else (count, *shape)):
            raise InputError(
                f"a field of a Similarity must have shape {shape} or {(count, *shape)}; got {tuple(value.shape)}"
            )
        return value.to(dtype=dtype, device=device).expand(count, *shape)
    if isinstance(value, tuple | list):
        return torch.stack([_per_image(number, images) for number in value], dim=1)
    return torch.full((count,), value, dtype=dtype, device=device)


def measure_shift(reference: Tensor, moved: Tensor) -> Tensor:
    """Return the shift that carries each `reference` onto `moved`: two (N, C, angles, radii) -> (N, 2).

    The shift is (rows, columns) with fractions. Rows wrap and lie in (-angles/2, angles/2]; columns do not, and lie
    within half the radii. It maximises the correlation of the overlapping parts, Σab / √(Σa²·Σb²), refined by a
    parabola along each axis. Columns that a dilation moves in from below r_min or out beyond r_max do not count.

    Args:
        reference: (N, C, angles, radii).
        moved: of the same shape.
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
    rows = row + peak_offset(correlation[sample, :, column], row, wraps=True)
    columns = shifts[column] + peak_offset(correlation[sample, row, :], column, wraps=False)
    return torch.stack((torch.where(rows > angles / 2, rows - angles, rows), columns), dim=1)


def _overlap_energy(images: Tensor, shifts: Tensor) -> Tensor:
    """Return Σ values² over the columns that overlap after each shift: (N, 1, len(shifts)).

    A positive shift excludes the first columns, a negative one the last.
    """
    total = images.square().sum(dim=(1, 2)).cumsum(dim=1)
    total = torch.cat((torch.zeros_like(total[:, :1]), total), dim=1)
    radii = images.shape[-1]
    first, last = shifts.clamp(min=0), radii + shifts.clamp(max=0)
    return (total[:, last] - total[:, first])[:, None, :]


def peak_offset(values: Tensor, index: Tensor, *, wraps: bool) -> Tensor:
    """Return the peak, relative to `index`, of the parabola through three neighbouring values: in (-½, ½)."""
    length = values.shape[1]
    left, right = index - 1, index + 1
    left, right = (left % length, right % length) if wraps else (left.clamp(min=0), right.clamp(max=length - 1))
    a, b, c = (values.gather(1, i[:, None])[:, 0] for i in (left, index, right))
    curvature = a - 2 * b + c
    peaked = (curvature < 0) & (left != index) & (right != index)
    return torch.where(peaked, 0.5 * (a - c) / torch.where(peaked, curvature, 1.0), 0.0)
