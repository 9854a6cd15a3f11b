"""The idx files of MNIST: a big-endian header with the shape, then one byte a value."""

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError

UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an idx file of bytes, gzipped or not, of the shape that its header gives."""
    content = _uncompressed(path)
    if len(content) < 4:
        raise InputError(f"{path} is truncated: {len(content)} bytes are no idx header")
    zeros, kind, rank = struct.unpack(">HBB", content[:4])
    if zeros or kind != UNSIGNED_BYTE or rank == 0:
        raise InputError(f"{path} is no idx file of bytes: its magic number is 0x{content[:4].hex()}")
    start = 4 + 4 * rank
    if len(content) < start:
        raise InputError(f"{path} is truncated inside its header")
    shape = struct.unpack(f">{rank}I", content[4:start])
    found, expected = len(content) - start, prod(shape)
    if found != expected:
        fault = "is truncated" if found < expected else "has bytes left over"
        raise InputError(f"{path} {fault}: its header announces {shape}, {expected} bytes; it holds {found}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _uncompressed(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except EOFError as error:
        raise InputError(f"{path} is truncated: the gzip data stop early") from error
    except (OSError, zlib.error) as error:
        raise InputError(f"cannot read {path}: {error}") from error
