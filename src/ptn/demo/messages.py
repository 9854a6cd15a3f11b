"""What the page and the server say to each other, as types that check what comes in."""

import base64
import binascii
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from .look import Pose, Sight
from .models import Pair

LARGEST_SIDE = 512

_Side = Annotated[int, Field(strict=True, ge=1, le=LARGEST_SIDE)]
_Offset = Annotated[float, Field(ge=-4096, le=4096, allow_inf_nan=False)]
Point = tuple[float, float]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Picture(_Message):
    """Bytes row by row, the channels of a pixel side by side, as base64."""

    width: _Side
    height: _Side
    channels: Literal[1, 3]
    pixels: str

    @model_validator(mode="after")
    def _check_pixels(self) -> "Picture":
        needed = self.width * self.height * self.channels
        try:
            count = len(binascii.a2b_base64(self.pixels, strict_mode=True))
        except ValueError as error:  # text that is not ASCII included
            raise ValueError("pixels are not base64") from error
        if count != needed:
            raise ValueError(f"pixels are {count} bytes, not width × height × channels = {needed}")
        return self

    def tensor(self) -> Tensor:
        """Floats in [0, 1], (C, H, W)."""
        values = torch.frombuffer(bytearray(base64.b64decode(self.pixels)), dtype=torch.uint8)
        return values.view(self.height, self.width, self.channels).permute(2, 0, 1).float() / 255

    @classmethod
    def of(cls, image: Tensor) -> "Picture":
        """An image (C, H, W) or (H, W), uint8 or floats in [0, 1]."""
        image = image if image.dim() == 3 else image[None]
        if image.is_floating_point():
            image = (image.clamp(0, 1) * 255).round().to(torch.uint8)
        channels, height, width = image.shape
        pixels = image.permute(1, 2, 0).contiguous().numpy().tobytes()
        return cls.model_construct(
            width=width, height=height, channels=channels, pixels=base64.b64encode(pixels).decode("ascii")
        )


class Question(_Message):
    """What do the networks called `model` make of this image, in this pose?

    As in `Pose`; `pin` is a point of the image to follow, in pixels from its middle.
    """

    model: Annotated[str, Field(max_length=4096)]
    image: Picture
    turn: Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)] = 0.0
    scale: Annotated[float, Field(ge=0.02, le=64, allow_inf_nan=False)] = 1.0
    shift: tuple[_Offset, _Offset] = (0.0, 0.0)
    pin: tuple[_Offset, _Offset] = (0.0, 0.0)

    @property
    def pose(self) -> Pose:
        return Pose(self.turn, self.scale, self.shift)


class Answer(_Message):
    """What they saw and said; see `Sight`."""

    image: Picture
    origin: Point
    heatmap: Picture | None
    polar_image: Picture
    features: list[Picture]
    pin: Point
    polar_pin: Point
    polar_scores: list[float]
    plain_scores: list[float] | None

    @classmethod
    def of(cls, sight: Sight) -> "Answer":
        return cls.model_construct(
            image=Picture.of(sight.image),
            origin=sight.origin,
            heatmap=None if sight.heatmap is None else Picture.of(sight.heatmap),
            polar_image=Picture.of(sight.polar_image),
            features=[Picture.of(values / values.max().clamp(min=1e-6)) for values in sight.features],
            pin=sight.pin,
            polar_pin=sight.polar_pin,
            polar_scores=sight.polar_scores,
            plain_scores=sight.plain_scores,
        )


class Network(_Message):
    """A pair that the page offers."""

    key: str
    title: str
    about: str
    polar_name: str
    plain_name: str | None
    classes: list[str]
    width: int
    height: int
    channels: int
    digit_scale: float

    @classmethod
    def of(cls, pair: Pair) -> "Network":
        height, width = pair.size
        return cls(
            key=pair.key,
            title=pair.title,
            about=pair.about,
            polar_name=pair.polar_name,
            plain_name=pair.plain_name,
            classes=list(pair.classes),
            width=width,
            height=height,
            channels=pair.channels,
            digit_scale=pair.digit_scale,
        )


class Digit(_Message):
    """A real digit to pick, and its label."""

    image: Picture
    label: int


class Setup(_Message):
    """What the page needs to know before it asks."""

    models: list[Network]
    digits: list[Digit]
