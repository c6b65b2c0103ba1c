"""Read the bundled texts: articles and novels to pre-train on, and labelled passages.

The files lie in ``bertine/demo/data``, in a checkout and in an installed wheel alike.
``data/LICENSE-articles.md`` names every article, ``data/LICENSE.md`` every book.
"""

from __future__ import annotations

import csv
import functools
import importlib.resources
import io
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
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
    """25 to 45 words of one article, whole sentences. `subject` is the label."""

    split: Split
    subject: str
    article: str
    text: str


@dataclass(frozen=True)
class TextCounts:
    """The articles and passages of the demo in numbers.

    Attributes:
        articles: to pre-train on.
        words, characters: of these articles; words are what blanks separate.
        subjects: the labels, in alphabetical order.
        passages: of all subjects, by split.
        labelled_articles: that the passages are from, by split.
    """

    articles: int
    words: int
    characters: int
    subjects: tuple[str, ...]
    passages: dict[Split, int]
    labelled_articles: dict[Split, int]


def _rows(name: str) -> list[dict[str, Any]]:
    packed = (_DATA / name).read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)) as reader:
        return [json.loads(line) for line in reader.read().decode("utf-8").splitlines()]


def articles_corpus() -> AbstractContextManager[Path]:
    """Give the articles that the demo pre-trains on as a file that the corpus readers open: JSON
    lines, zstd, a document a line in the field ``text`` (beside ``title``).

    A context manager because a package inside a zip file is unpacked for the time of the block.
    """
    return importlib.resources.as_file(_DATA / "articles.jsonl.zst")


def pretraining_corpus() -> AbstractContextManager[Path]:
    """Give the old novels of the README and the tutorials as a file, as :func:`articles_corpus`
    does (beside ``text`` there are ``author``, ``title`` and ``year``)."""
    return importlib.resources.as_file(_DATA / "pretraining.jsonl.zst")


def licence() -> str:
    """Read what the articles are, where they are from, and what was changed."""
    return (_DATA / "LICENSE-articles.md").read_text(encoding="utf-8")


@functools.cache
def _passages() -> tuple[Passage, ...]:
    return tuple(Passage(**row) for row in _rows("subjects.jsonl.zst"))


def subjects() -> tuple[str, ...]:
    """List the subjects, which are the labels, in alphabetical order."""
    return tuple(sorted({passage.subject for passage in _passages()}))


def passages(split: Split) -> list[Passage]:
    """List the labelled passages of one split, subjects taking turns, always in the same order. No
    two splits, and no split and the articles to pre-train on, share an article."""
    by_subject: dict[str, list[Passage]] = {}
    for passage in _passages():
        if passage.split == split:
            by_subject.setdefault(passage.subject, []).append(passage)
    return [
        passage
        for turn in zip(*(by_subject[subject] for subject in sorted(by_subject)), strict=True)
        for passage in turn
    ]


def draw(number: int, per_subject: int) -> list[Passage]:
    """Take the draw `number` (from 0) of training passages: `per_subject` of each subject. No two
    draws of as many share a passage.

    Raises:
        BertineError: there are not so many passages.
    """
    available = passages("train")
    size = per_subject * len(subjects())
    chosen = available[number * size : (number + 1) * size]
    if number < 0 or per_subject < 1 or len(chosen) < size:
        raise BertineError(
            f"demo texts: draw {number} of {per_subject} passages a subject was asked for, but "
            f"there are {len(available) // len(subjects())} of each"
        )
    return chosen


def write_csv(path: Path, rows: Sequence[Passage]) -> None:
    """Write passages as UTF-8 csv with a header line and the columns ``text`` and ``subject``."""
    with (
        atomic_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as handle,
    ):
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(("text", "subject"))
        writer.writerows((passage.text, passage.subject) for passage in rows)


def count_texts() -> TextCounts:
    """Count what is bundled for the demo (about 0.1 s)."""
    articles = [row["text"] for row in _rows("articles.jsonl.zst")]
    labelled = {split: passages(split) for split in SPLITS}
    return TextCounts(
        articles=len(articles),
        words=sum(len(text.split()) for text in articles),
        characters=sum(map(len, articles)),
        subjects=subjects(),
        passages={split: len(rows) for split, rows in labelled.items()},
        labelled_articles={
            split: len({passage.article for passage in rows}) for split, rows in labelled.items()
        },
    )
