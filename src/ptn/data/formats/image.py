"""Image files as tensors and back: grey, colour, with or without alpha, 8 or 16 bits."""

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import InputError, nothing_at

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def read_image(path: Path) -> tuple[Tensor, dict[str, str]]:
    """The picture in a file, floats in [0, 1] (C, H, W), and the texts stored with it.

    Channels are grey, grey and alpha, RGB or RGBA, as the file has them; palettes become RGB(A), other
    colour spaces RGB. The camera's orientation is applied. Integers of 16 bits are shares of 65535; numbers
    of 32 bits are taken only where it is plain which of them is white.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            texts = {str(key): value for key, value in file.info.items() if isinstance(value, str)}
            file.load()
            kind = file.format
            picture = ImageOps.exif_transpose(file)
    except FileNotFoundError:
        raise nothing_at("file", path) from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, not an image") from None
    except UnidentifiedImageError:
        raise InputError(f"{path}: not an image") from None
    except (
        OSError,
        EOFError,
        SyntaxError,
        ValueError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise InputError(f"{path}: cannot be read as an image: {error}") from error
    values: NDArray[np.floating]
    if picture.mode == "F":
        values = _floats(path, picture)
    elif picture.mode == "I":
        values = _integers(path, picture, kind)
    elif picture.mode.startswith("I;16"):
        values = np.asarray(picture).astype(np.float32) / 65535
    else:
        values = np.asarray(picture.convert(_plain_mode(picture))).astype(np.float32) / 255
    tensor = torch.from_numpy(values)
    return (tensor[None] if tensor.dim() == 2 else tensor.permute(2, 0, 1).contiguous()), texts


def _floats(path: Path, picture: "Picture") -> NDArray[np.floating]:
    values = np.array(picture, dtype=np.float32)
    if not (values.min() >= 0 and values.max() <= 1):
        raise _no_white(path, "F, 32-bit floats", values)
    return values


def _integers(path: Path, picture: "Picture", kind: str | None) -> NDArray[np.floating]:
    """Pillow gives 16 bits as 32 where the format knows 65535 to be white; a TIFF may really have 32 bits."""
    values = np.asarray(picture)
    fits = values.min() >= 0 and values.max() <= 65535
    if not fits or (kind not in ("PNG", "PPM") and 0 < values.max() < 256):
        raise _no_white(path, "I, 32-bit integers", values)
    return values.astype(np.float32) / 65535


def _no_white(path: Path, mode: str, values: NDArray[np.generic]) -> InputError:
    return InputError(
        f"{path}: mode {mode}, from {values.min():g} to {values.max():g}, does not say which of them is white: "
        "save it with 8 or 16 bits, or as floats in [0, 1]"
    )


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


def _plain_mode(picture: "Picture") -> str:
    """The mode among grey, grey+alpha, RGB and RGBA that loses nothing of a PIL picture's channels."""
    if picture.mode in _MODES.values():
        return picture.mode
    if picture.mode == "1":
        return "L"
    return "RGBA" if picture.has_transparency_data else "RGB"
