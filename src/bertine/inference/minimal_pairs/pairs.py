"""Read minimal pairs: JSON lines as BLiMP has them (Warstadt et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.tables.streams import COMPRESSIONS
from bertine.tables.table import Table, TableRow
from bertine.terminal.console import counted

#: The columns of the two sentences, and of what a pair is about.
GOOD, BAD = "sentence_good", "sentence_bad"
PARADIGM, PHENOMENON, PAIR = "UID", "linguistics_term", "pairID"
_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """Two sentences that differ in little.

    Attributes:
        good: the right one.
        bad: the wrong one.
        paradigm: what they differ in; "" where the file does not say.
        phenomenon: the kind of it; "" where the file does not say.
        number: its number in the paradigm; "" where the file does not say.
        where: file and line.
    """

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    number: str
    where: str


@dataclass
class MinimalPairs:
    """The pairs of a file or of a folder's files, in their order.

    Attributes:
        source: what was read.
        items: the pairs.
        notes: what was mended or left out.
    """

    source: str
    items: list[MinimalPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def sample(self, each: int) -> MinimalPairs:
        """Return the first `each` pairs of every paradigm."""
        seen: dict[str, int] = {}
        kept = []
        for pair in self.items:
            seen[pair.paradigm] = seen.get(pair.paradigm, 0) + 1
            if seen[pair.paradigm] <= each:
                kept.append(pair)
        return MinimalPairs(self.source, kept, list(self.notes))


def holds_pairs(data: Any) -> bool:
    """Tell whether `data` is JSON lines of minimal pairs, or a folder with such a file: one with
    the columns ``sentence_good`` and ``sentence_bad``."""
    if not isinstance(data, str | Path):
        return False
    path = Path(data)
    if path.is_dir():
        return any(map(_has_pairs, _json_files(path)))
    return path.is_file() and _is_json(path) and _has_pairs(path)


def read_pairs(path: Path | str) -> MinimalPairs:
    """Read a file of minimal pairs, or all those of a folder in the order of their names. Files
    with other columns in the folder are left out, and counted.

    Raises:
        BertineError: there are none; a sentence is missing or empty; what reading the table raises.
    """
    folder = Path(path)
    pairs = MinimalPairs(str(path))
    if not folder.is_dir():
        _read(folder, pairs)
        return pairs
    files = _json_files(folder)
    chosen = [file for file in files if _has_pairs(file)]
    if not chosen:
        raise BertineError(
            f"{path}: has no file of minimal pairs (JSON lines with {GOOD} and {BAD})"
        )
    for file in chosen:
        _read(file, pairs)
    if others := len(files) - len(chosen):
        pairs.notes.append(f"{path}: {counted(others, 'file')} of other columns left out")
    return pairs


def _read(path: Path, pairs: MinimalPairs) -> None:
    with Table(path, wanted=(GOOD, BAD)) as table:
        for row in table:
            where = f"{table.name}:{row.line}"
            sentences = [table.text(row, column) for column in (GOOD, BAD)]
            for column, sentence in zip((GOOD, BAD), sentences, strict=True):
                if not sentence.strip():
                    raise BertineError(f"{where}: {column} is empty; a pair has two sentences")
            good, bad = sentences
            paradigm, phenomenon, number = (
                _name(row, column) for column in (PARADIGM, PHENOMENON, PAIR)
            )
            pairs.items.append(MinimalPair(good, bad, paradigm, phenomenon, number, where))
        pairs.notes += table.stats.notes(table.name)


def _name(row: TableRow, column: str) -> str:
    value = row.values.get(column)
    return value if isinstance(value, str) else ""


def _is_json(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return plain.suffix.lower() in _SUFFIXES


def _json_files(folder: Path) -> Sequence[Path]:
    with os_errors(folder, "reading it"):
        return sorted(path for path in _regular(folder.iterdir()) if _is_json(path))


def _regular(paths: Iterable[Path]) -> Iterable[Path]:
    return (path for path in paths if path.is_file() and not path.name.startswith("."))


def _has_pairs(path: Path) -> bool:
    """Look at the first line; what is damaged is told by whoever reads the file."""
    try:
        with Table(path) as table:
            return {GOOD, BAD} <= set(table.columns)
    except BertineError:
        return False
