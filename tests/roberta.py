"""RoBERTa's published vocabulary."""

from __future__ import annotations

import lzma
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures" / "vocab"


def write_vocabulary(folder: Path) -> Path:
    """Make a folder with vocab.json and merges.txt."""
    folder.mkdir(parents=True)
    for name in ("vocab.json", "merges.txt"):
        packed = (FIXTURES / f"roberta-{name}.xz").read_bytes()
        (folder / name).write_bytes(lzma.decompress(packed))
    return folder
