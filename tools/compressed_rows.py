"""Read and write files of JSON lines compressed with zstd, for the scripts beside this one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import zstandard

from bertine.core.files import atomic_file
from bertine.data.streams import open_stream


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a file, each with its line end.

    Raises:
        BertineError: the file cannot be read, is damaged or is cut off.
    """
    with open_stream(path) as stream:
        for line in stream.reader:
            yield line.decode("utf-8")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a file, one a line.

    Raises:
        BertineError: the file cannot be read, is damaged or is cut off.
    """
    return map(json.loads, read_lines(path))


def write_lines(path: Path, lines: Iterable[str], *, level: int = 22) -> None:
    """Write lines that have their line ends; the same lines give the same bytes."""
    packed = zstandard.ZstdCompressor(level=level).compress("".join(lines).encode())
    with atomic_file(path) as temporary:
        temporary.write_bytes(packed)


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows, one a line; the same rows give the same bytes."""
    write_lines(path, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
