"""Image files as tensors and back: grey, colour, with or without alpha, 8 or 16 bits."""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def read_image(path: Path) -> tuple[Tensor, dict[str, str]]:
    """The picture in a file, floats in [0, 1] (C, H, W), and the texts stored with it.

    Channels are grey, grey and alpha, RGB or RGBA, as the file has them; palettes become RGB(A), other
    colour spaces RGB. The camera's orientation is applied.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            texts = {str(key): value for key, value in file.info.items() if isinstance(value, str)}
            file.load()
            picture = ImageOps.exif_transpose(file)
    except FileNotFoundError:
        raise InputError(f"no file at {path}") from None
    except (
        UnidentifiedImageError,
        OSError,
        EOFError,
        SyntaxError,
        ValueError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise InputError(f"{path} is not an image that can be read: {error}") from error
    if picture.mode in ("I;16", "I;16B", "I;16L", "I"):
        values = np.asarray(picture).astype(np.float32) / 65535
    else:
        values = np.asarray(picture.convert(_plain_mode(picture))).astype(np.float32) / 255
    tensor = torch.from_numpy(values)
    return (tensor[None] if tensor.dim() == 2 else tensor.permute(2, 0, 1).contiguous()), texts


def write_png(image: Tensor, path: Path, texts: dict[str, str] | None = None) -> None:
    """Write (C, H, W) floats in [0, 1], C from 1 to 4, as an 8-bit PNG with `texts` in its header."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    header = PngInfo()
    for key, value in (texts or {}).items():
        header.add_text(key, value)
    values = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    mode = _MODES[values.shape[2]]
    picture = Image.fromarray(values[:, :, 0] if mode == "L" else values, mode=None)
    picture.save(path, format="PNG", pnginfo=header)


def _plain_mode(picture: object) -> str:
    """The mode among grey, grey+alpha, RGB and RGBA that loses nothing of a PIL picture's channels."""
    mode: str = picture.mode  # type: ignore[attr-defined]
    if mode in _MODES.values():
        return mode
    if mode in ("1", "F"):
        return "L"
    return "RGBA" if picture.has_transparency_data else "RGB"  # type: ignore[attr-defined]
