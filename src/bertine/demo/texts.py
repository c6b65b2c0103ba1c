"""The bundled books of the demo: the pre-training corpus, the labelled passages, the facts.

The files lie in ``bertine/demo/data`` and are found through :mod:`importlib.resources`, so they
are there in a checkout and in an installed wheel alike. ``data/LICENSE.md`` names every book.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import importlib.resources
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import zstandard

from bertine.errors import BertineError
from bertine.files import atomic_file

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_DATA = importlib.resources.files("bertine.demo") / "data"


@dataclass(frozen=True)
class Passage:
    """25 to 40 words of one book, whole sentences. `author` is the label."""

    split: Split
    author: str
    title: str
    year: int
    text: str


@dataclass(frozen=True)
class BookFacts:
    """What of one book is bundled. `part` is ``"pre-training"`` or a split."""

    part: str
    author: str
    title: str
    year: int
    pieces: int
    """Documents (pre-training) or passages (labelled)."""
    characters: int
    words: int


@dataclass(frozen=True)
class Facts:
    """The bundled texts in numbers, for the report."""

    books: tuple[BookFacts, ...]
    documents: int
    """Pre-training documents."""
    words: int
    """Pre-training words (separated by blanks)."""
    characters: int
    """Pre-training characters."""
    authors: tuple[str, ...]
    """The labels, in alphabetical order."""
    passages: dict[Split, int]
    """Passages of all authors in each split."""

    def titles(self, part: str) -> list[str]:
        """``"Title (Author, year)"`` of the books of one part."""
        return [f"{b.title} ({b.author}, {b.year})" for b in self.books if b.part == part]


@dataclass(frozen=True)
class LabelledFiles:
    """Where :func:`write_labelled` wrote; the columns are ``text`` and ``author``."""

    train: Path
    validation: Path
    test: Path
    text_column: str = "text"
    label_column: str = "author"


def _rows(name: str) -> list[dict[str, Any]]:
    packed = (_DATA / name).read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)) as reader:
        return [json.loads(line) for line in reader.read().decode("utf-8").splitlines()]


@contextlib.contextmanager
def pretraining_corpus() -> Iterator[Path]:
    """The pre-training corpus as a file that the corpus readers open: JSON lines, zstd, a
    document a line in the field ``text`` (beside ``author``, ``title``, ``year``).

    A context manager because a package inside a zip file is unpacked for the time of the block.
    """
    with importlib.resources.as_file(_DATA / "pretraining.jsonl.zst") as path:
        yield path


def licence() -> str:
    """The text of ``LICENSE.md``: what the texts are, where from, what was changed."""
    return (_DATA / "LICENSE.md").read_text(encoding="utf-8")


@functools.cache
def _passages() -> tuple[Passage, ...]:
    return tuple(Passage(**row) for row in _rows("passages.jsonl.zst"))


def passages(split: Split, *, per_author: int | None = None) -> list[Passage]:
    """The labelled passages of one split, authors taking turns, always in the same order.

    With `per_author` only that many of each author, spread evenly over its books and along each
    book. No two splits, and no split and the pre-training corpus, share a book.

    Raises:
        BertineError: `per_author` is below 1 or above what is bundled.
    """
    mine = [passage for passage in _passages() if passage.split == split]
    available = min(Counter(passage.author for passage in mine).values())
    number = available if per_author is None else per_author
    if not 1 <= number <= available:
        raise BertineError(
            f"demo texts: {number} {split} passages per author were asked for; "
            f"choose between 1 and {available}"
        )
    of: dict[str, list[Passage]] = {}
    for passage in mine:
        of.setdefault(passage.author, []).append(passage)
    return [of[author][turn] for turn in range(number) for author in sorted(of)]


def write_csv(path: Path, rows: Sequence[Passage]) -> None:
    """Write passages as UTF-8 csv with a header line and the columns ``text`` and ``author``."""
    with (
        atomic_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as handle,
    ):
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(("text", "author"))
        writer.writerows((passage.text, passage.author) for passage in rows)


def write_labelled(folder: Path, *, train_per_author: int | None = None) -> LabelledFiles:
    """Write ``train.csv``, ``validation.csv`` and ``test.csv`` into `folder`.

    Args:
        folder: made when it is missing.
        train_per_author: labelled training passages of each author; all that are bundled when
            None. Validation and test passages are always all written.

    Raises:
        BertineError: `train_per_author` is out of range; the folder cannot be written.
    """
    files = LabelledFiles(folder / "train.csv", folder / "validation.csv", folder / "test.csv")
    write_csv(files.train, passages("train", per_author=train_per_author))
    write_csv(files.validation, passages("validation"))
    write_csv(files.test, passages("test"))
    return files


def facts() -> Facts:
    """Count what is bundled (decompresses both files; about 0.1 s)."""
    pretraining = [row | {"split": "pre-training"} for row in _rows("pretraining.jsonl.zst")]
    labelled = _rows("passages.jsonl.zst")
    pieces: dict[tuple[str, str, str, int], list[str]] = {}
    for row in [*pretraining, *labelled]:
        name = (row["split"], row["author"], row["title"], row["year"])
        pieces.setdefault(name, []).append(row["text"])
    books = tuple(
        BookFacts(
            part,
            author,
            title,
            year,
            len(texts),
            sum(map(len, texts)),
            sum(len(text.split()) for text in texts),
        )
        for (part, author, title, year), texts in pieces.items()
    )
    corpus = [book for book in books if book.part == "pre-training"]
    return Facts(
        books=books,
        documents=len(pretraining),
        words=sum(book.words for book in corpus),
        characters=sum(book.characters for book in corpus),
        authors=tuple(sorted({row["author"] for row in labelled})),
        passages={split: sum(row["split"] == split for row in labelled) for split in SPLITS},
    )
