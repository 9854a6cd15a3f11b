"""Dense prediction in polar coordinates around a predicted origin."""

import copy
from dataclasses import replace

from torch import Tensor, nn

from ..config import check, checked
from ..device import placement
from ..errors import check_choice
from ..geometry import Mode, PolarGrid, polar_unsample
from ..layers import HeatmapActivation, Origin, PolarTransformer, default_predictor
from .networks import Explanation, Padding, PolarNetwork, check_sizes, make_transformer
from .polarize import find_layout, normalize_as_trained, wrap_network


class PolarSegmenter(PolarNetwork):
    """A fully convolutional backbone applied in polar coordinates: (N, C, H, W) in [0, 1] -> logits (N, K, H, W).

    Images are sampled on a polar grid around the predicted origin. A copy of the backbone, (N, C, angles, radii) ->
    (N, K, angles, radii), is applied to the polar images, and its logits are mapped back to the pixels of the
    images. Pixels outside the grid have the logits of the nearest row and column.

    If the rows of the grid are a full circle, the layers of the backbone wrap around the angle, and a numerical
    check verifies that the logits roll with the polar image, as in `polarize`. The segmentation of a rotated image
    is then the rotated segmentation, up to interpolation, if the origin rotates with the image. Upsample with mode
    "nearest"; other modes do not wrap and are rejected. On a sector the backbone is not changed.

    Args:
        backbone: its output has the size of its input.
        image_size: pixels, or (H, W).
        in_chans: number of channels of the images.
        grid: by default a grid with linear radii, and with as many angles and radii as the image has rows and
            columns; the angles are rounded up to a multiple of four strides of the backbone.
        origin: "learned" with the origin predictor of the paper, or the "center" of the image.
        heatmap: "softplus" or "linear", as in `heatmap_centroid`.
        origin_jitter_px: by default 2 for a learned origin.
        mode: as in `polar_sample`; logits are always interpolated bilinearly.
        padding_mode: as in `polarize`.
        antialias: as in `polar_sample`.
    """

    transformer: PolarTransformer

    @checked
    def __init__(
        self,
        backbone: nn.Module,
        *,
        image_size: int | tuple[int, int],
        in_chans: int = 3,
        grid: PolarGrid | None = None,
        origin: Origin = "learned",
        heatmap: HeatmapActivation = "softplus",
        origin_jitter_px: float | None = None,
        mode: Mode = "bilinear",
        padding_mode: Padding = "zeros",
        antialias: bool = False,
    ) -> None:
        check_choice("origin", origin, ("learned", "center"))
        size = check_sizes(image_size, in_chans)
        wrapped = copy.deepcopy(backbone)
        if grid is None or grid.wraps:
            shape = (None, None) if grid is None else (grid.angles, grid.radii)
            layout = find_layout(wrapped, wrap_network(wrapped), size, in_chans, *shape)
            grid = PolarGrid(layout.angles, layout.radii, law="linear") if grid is None else grid
        predictor = default_predictor(in_chans, size, heatmap=heatmap) if origin == "learned" else None
        transformer = make_transformer(
            grid, predictor, origin_jitter_px, padding_mode, mode=mode, antialias=antialias
        )
        super().__init__((in_chans, *size), wrapped, transformer)
        self.normalize_first = padding_mode == "mean"
        normalize_as_trained(self, backbone)
        self.to(*placement(backbone)).train(backbone.training)

    def forward(self, images: Tensor, origin: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Logits (N, K, H, W); `origin` (N, 2) replaces the predicted origin."""
        self.check(images)
        if origin is None:
            predicted = self.transformer.locate(self.normalize(images)).origin
            origin = self.transformer.jitter(predicted, (images.shape[2], images.shape[3]))
        return self.to_image(self.classifier(self.classifier_input(images, origin)), origin)

    def to_image(self, logits: Tensor, origin: Tensor) -> Tensor:
        """Polar logits (N, K, angles, radii) around `origin` as those of the image, (N, K, H, W)."""
        grid, size = self.transformer.grid, (self.input_shape[1], self.input_shape[2])
        fits = logits.dim() == 4 and tuple(logits.shape[2:]) == (grid.angles, grid.radii)
        check("output of the backbone", tuple(logits.shape), fits, f"(N, K, {grid.angles}, {grid.radii})")
        return polar_unsample(logits, origin.to(logits.dtype), grid, size, fill=None)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The polar logits twice: as feature maps and as logits."""
        logits = self.classifier(x)
        return logits, logits

    def trace(self, images: Tensor) -> Explanation:
        """The logits are those of the image; the feature maps are the polar logits."""
        explanation = super().trace(images)
        assert explanation.origins is not None
        return replace(explanation, logits=self.to_image(explanation.logits, explanation.origins))
