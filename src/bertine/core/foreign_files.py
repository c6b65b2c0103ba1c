"""Read binary files of other programs, and turn every reading error into one line.

Libraries raise all kinds of errors on damaged files; here each becomes one line with the file's
name.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.files import check_regular, os_errors
from bertine.core.process import out_of_memory

# Protocol buffers: read numbers and messages (protobuf.dev, "Encoding"), as in the indexes of
# TensorFlow's checkpoints and the files of sentencepiece.

#: A number has at most 64 bits, seven per byte.
_NUMBER_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read the number at `at`; return it and the position after it.

    Raises:
        ValueError: `data` ends inside it, or it has more than 64 bits.
    """
    value = 0
    for index, byte in enumerate(data[at : at + _NUMBER_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at + index + 1
    raise ValueError("a number is cut short or has more than 64 bits")


def signed(value: int) -> int:
    """Convert `value` of an int64 field to a signed number of 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: field number, and value as a number or as bytes.

    Raises:
        ValueError: it is not a message, or is truncated.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == _VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field has the kind {kind}")
        if at + size > len(data):
            raise ValueError("a field is cut short")
        piece = data[at : at + size]
        at += size
        yield number, piece if kind == _BYTES else int.from_bytes(piece, "little")


#: Error numbers for a position that is not in the file.
_NO_PLACE = (None, errno.EINVAL, errno.EFAULT, errno.EOVERFLOW)
#: The header of a ``.npy``: its most bytes and its allowed contents. NumPy parses it as Python,
#: which a deep or long header could abuse.
_MAX_HEADER = 4096
_FACT = (
    rb"""['"](?:descr['"]\s*:\s*['"][<>|=]?\w{1,12}['"]"""
    rb"""|fortran_order['"]\s*:\s*(?:True|False)"""
    rb"""|shape['"]\s*:\s*\([\d,L ]{0,200}\))"""
)
_HEADER = re.compile(rb"\s*\{\s*(?:" + _FACT + rb"\s*,?\s*){3}\}\s*")


@contextlib.contextmanager
def reading_outside(path: str | Path, advice: str = "copy it again") -> Iterator[None]:
    """Turn any exception while a library reads `path` into an error of one line.

    Args:
        path: the file; it must be a regular one.
        advice: what to do about a damaged file.

    Raises:
        BertineError: replaces every other exception; a BertineError of the body is not changed.
    """
    check_regular(path)
    with os_errors(path, "reading it"):
        try:
            yield
        except (BertineError, FileNotFoundError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno not in _NO_PLACE:
                raise
            if "(os error " in str(error):  # from a Rust library
                raise
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            reason = " ".join(f"{kind}{error}".split())[:200].removesuffix(":")
            if out_of_memory(error):
                raise BertineError(
                    f"{path}: there is not enough memory for what it says that it holds ({reason})"
                ) from error
            raise BertineError(
                f"{path}: is damaged, cut short or of another kind ({reason}); {advice}"
            ) from error


@contextlib.contextmanager
def open_tensors(
    path: str | Path, framework: Literal["pt", "np"], advice: str = "copy it again"
) -> Iterator[Any]:
    """Open a safetensors file: ``keys()``, ``get_tensor(name)``, ``get_slice(name)`` and
    ``metadata()``. Errors in the body are handled as in :func:`reading_outside`.

    Args:
        path: the file.
        framework: the library whose tensors are returned.
        advice: what to do about a damaged file.
    """
    from safetensors import safe_open

    with reading_outside(path, advice), safe_open(path, framework=framework) as file:
        yield file


def open_array(path: str | Path, advice: str = "copy it again") -> np.ndarray:
    """Map the array of a ``.npy`` from disk: it takes no more memory than the file has bytes, even
    if its header is wrong.

    Raises:
        BertineError: it is missing, damaged, or holds anything but numbers or texts.
    """
    with reading_outside(path, advice):
        _check_header(path)
        return np.lib.format.open_memmap(path, mode="r")


def _check_header(path: str | Path) -> None:
    """Refuse a header with anything but a type, an order and a shape."""
    with open(path, "rb") as handle:
        version = np.lib.format.read_magic(handle)
        size = int.from_bytes(handle.read(2 if version[0] == 1 else 4), "little")
        header = handle.read(size) if size <= _MAX_HEADER else b""
    if not _HEADER.fullmatch(header):
        raise ValueError("its header is not that of an array of numbers")
