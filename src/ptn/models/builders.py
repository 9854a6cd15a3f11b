"""How each named network is put together. The keyword options of a builder are those of `create_model`."""

from functools import partial
from itertools import pairwise
from typing import Any, Literal

from torch import nn

from ..errors import InputError, check_choice
from ..geometry import Law, Mode, PaddingMode, PolarGrid
from ..layers import (
    Blocks,
    ConvBlock,
    CylindricalTransformer,
    OriginPredictor,
    PolarTransformer,
    SpatialTransformer,
    default_predictor,
)
from ..layers.origin import HeatmapActivation
from .classifiers import (
    Stack,
    VoxelStack,
    make_classifier,
    make_voxel_classifier,
    residual_stage,
)
from .networks import PlainNetwork, PolarNetwork, SpatialNetwork, TwoStreamNetwork

ImageSize = tuple[int, int]


def plain(
    *,
    stack: Stack,
    num_classes: int,
    image_size: ImageSize,
    in_chans: int,
    kernel: int | None = None,
    dropout: float = 0.0,
) -> PlainNetwork:
    """The conventional CNN: a stack on the image itself."""
    classifier = make_classifier(
        stack,
        num_classes=num_classes,
        image_size=image_size,
        in_chans=in_chans,
        kernel=kernel,
        dropout=dropout,
    )
    return PlainNetwork((in_chans, *image_size), classifier)


def polar(
    *,
    stack: Stack,
    origin: Literal["learned", "center"],
    num_classes: int,
    image_size: ImageSize,
    in_chans: int,
    angles: int | None = None,
    radii: int | None = None,
    r_min_px: float = 1.0,
    r_max_px: float | None = None,
    law: Law = "log",
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    heatmap: HeatmapActivation = "softplus",
    origin_turns: int = 1,
    origin_jitter_px: float | None = None,
    wrap: bool = True,
    kernel: int | None = None,
    dropout: float = 0.0,
    angle_stride: int = 1,
    two_stream: bool = False,
    stream_dropout: float = 0.0,
    upright: bool = False,
) -> PolarNetwork:
    """PTN (a learned origin) and PCNN (the middle of the image): a stack on the polar image.

    By default the polar image has the size of the image, stack L twice the angles; a learned origin is
    jittered by 2 pixels in training. With 4 `origin_turns` it turns by quarters as the image does. `angle_stride`
    is that of the first convolution along the angle, where there are more angles than its kernels can look over.
    With `two_stream` the same stack looks at the image itself too; in training one of them is left out for a share
    `stream_dropout` of the images, so that neither leaves all to the other. With `upright` scores depend on the
    direction in which features lie, where otherwise they are averaged over the angle: for objects that are others
    when turned.
    """
    height, width = image_size
    default_angles = 2 * height if stack == "l" else height
    learned = origin == "learned"
    transformer = PolarTransformer(
        PolarGrid(
            default_angles if angles is None else angles,
            width if radii is None else radii,
            r_min_px=r_min_px,
            r_max_px=r_max_px,
            law=law,
        ),
        make_predictor(stack, in_chans, image_size, heatmap=heatmap, origin_turns=origin_turns)
        if learned
        else None,
        origin_jitter_px=(2.0 if learned else 0.0) if origin_jitter_px is None else origin_jitter_px,
        mode=mode,
        padding_mode=padding_mode,
    )
    make = partial(
        make_classifier,
        stack,
        num_classes=num_classes,
        image_size=image_size,
        in_chans=in_chans,
        kernel=kernel,
        dropout=dropout,
    )
    if stream_dropout and not two_stream:
        raise InputError("stream_dropout is for two streams: set two_stream=True")
    rows = transformer.grid.angles if upright else None
    classifier = make(wrap=wrap, angle_stride=angle_stride, rows=rows)
    shape = (in_chans, *image_size)
    if not two_stream:
        return PolarNetwork(shape, transformer, classifier)
    return TwoStreamNetwork(shape, transformer, classifier, make(), dropout=stream_dropout)


def make_predictor(stack: Stack, in_chans: int, image_size: ImageSize, **options: Any) -> OriginPredictor:
    """The paper's origin predictors, with the `options` of `OriginPredictor`.

    Three blocks of 20, stride 2 on the first, on the first two at 96 pixels. Before a ResNet32, 8 residual
    convolutions of 16 behind a stem, stride 2 on the first.
    """
    if stack == "resnet32":
        body = Blocks(ConvBlock(in_chans, 16), *residual_stage(16, 16, 4, stride=2))
        return OriginPredictor(body, 16, **options)
    return default_predictor(in_chans, image_size, **options)


def stn(
    *,
    stack: Stack,
    num_classes: int,
    image_size: ImageSize,
    in_chans: int,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    kernel: int | None = None,
    dropout: float = 0.0,
) -> SpatialNetwork:
    """A spatial transformer over SIM(2), its localiser four blocks of 20 at stride 2 and 20 hidden units."""
    height, width = image_size
    blocks = [ConvBlock(c, 20, stride=2) for c in (in_chans, 20, 20, 20)]
    hidden = nn.Linear(20 * -(-height // 16) * -(-width // 16), 20)
    pose = nn.Linear(20, 4)
    nn.init.zeros_(pose.weight)
    nn.init.zeros_(pose.bias)
    localiser = nn.Sequential(Blocks(*blocks), nn.Flatten(), hidden, nn.ReLU(), pose)
    transformer = SpatialTransformer(localiser, mode=mode, padding_mode=padding_mode)
    classifier = make_classifier(
        stack,
        num_classes=num_classes,
        image_size=image_size,
        in_chans=in_chans,
        kernel=kernel,
        dropout=dropout,
    )
    return SpatialNetwork((in_chans, *image_size), transformer, classifier)


def voxels(*, num_classes: int, image_size: ImageSize, in_chans: int, dropout: float = 0.0) -> PlainNetwork:
    """The cylindrical network's classifier on the voxels themselves: (N, C, size, size, size) -> logits."""
    classifier = make_voxel_classifier("plain", num_classes=num_classes, in_chans=in_chans, dropout=dropout)
    return PlainNetwork((in_chans, *_cube(image_size)), classifier)


def cylindrical(
    *,
    stack: VoxelStack,
    num_classes: int,
    image_size: ImageSize,
    in_chans: int,
    origin: Literal["learned", "center"] = "learned",
    angles: int | None = None,
    radii: int | None = None,
    r_max_px: float | None = None,
    law: Law = "linear",
    mode: Mode = "bilinear",
    heatmap: HeatmapActivation = "softplus",
    origin_jitter_px: float = 0.0,
    wrap: bool = True,
    dropout: float = 0.0,
) -> PolarNetwork:
    """The cylindrical transformer network on cubes of voxels: (N, C, size, size, size) -> (N, num_classes).

    The axis predictor is the paper's, four blocks of 5×5 over the slices as channels; before residual blocks,
    which work at half the size, so does it.
    """
    check_choice("origin", origin, ("learned", "center"))
    cube = _cube(image_size)
    predictor = None
    if origin == "learned":
        channels = (in_chans * cube[0], 32, 16, 8, 4)
        strides = (1 if stack == "plain" else 2, 1, 1, 1)
        sizes = zip(pairwise(channels), strides, strict=True)
        blocks = [ConvBlock(c, d, kernel=5, stride=stride) for (c, d), stride in sizes]
        predictor = OriginPredictor(Blocks(*blocks), 4, heatmap=heatmap)
    transformer = CylindricalTransformer(
        cube[0],
        predictor,
        angles=angles,
        radii=radii,
        law=law,
        r_max_px=r_max_px,
        origin_jitter_px=origin_jitter_px,
        mode=mode,
    )
    classifier = make_voxel_classifier(
        stack, num_classes=num_classes, in_chans=in_chans, wrap=wrap, dropout=dropout
    )
    return PolarNetwork((in_chans, *cube), transformer, classifier)


def _cube(image_size: ImageSize) -> tuple[int, int, int]:
    size = image_size[0]
    if image_size != (size, size):
        raise InputError(f"a network for voxels takes cubes: give image_size as one number, not {image_size}")
    return size, size, size
