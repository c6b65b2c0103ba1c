"""Read the demo's bundled articles, novels and labelled passages, and score answers to them.

The files are in ``bertine/contrib/demo/data``, in a checkout and in an installed wheel alike.
``data/LICENSE-articles.md`` names every article, ``data/LICENSE.md`` every book.
"""

from __future__ import annotations

import csv
import functools
import importlib.resources
import io
import json
import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import zstandard

from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.scores import mean_interval
from bertine.core.strict_json import Jsonable

# Recipe: every size and rate of ``bertine demo``.

#: The layer sizes of the new model.
LAYERS: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
#: The model in the package that is shown for comparison, and the one that taught it.
BUNDLED_MODEL, TEACHER = "bertine-en", "all-MiniLM-L6-v2"


@dataclass(frozen=True)
class DemoRecipe:
    """The sizes and rates of a demo.

    Attributes:
        budget_seconds: the time of the whole demo. Pre-training gets the rest after the other
            stages.
        least_seconds: the minimum time of pre-training, for any budget: with less there is nothing
            to see.
        labels: the number of labelled training passages of each subject.
        draws: the number of trainings, each with other passages; scores are means over them.
        vocab_size: the number of pieces of the vocabulary.
        initializer_range: the scale of the random initial weights; attention is arranged as in
            trained models (:mod:`bertine.families.bert`).
        pretraining: the options of ``bertine.pretrain``.
    """

    budget_seconds: float
    least_seconds: float
    labels: int
    draws: int
    vocab_size: int
    initializer_range: float
    pretraining: dict[str, Any]


#: In so short a time the number of predicted words matters most, so 40% are masked and not 15%, and
#: no time is spent on other tasks (docs/results.md, "The demo").
_PRETRAINING: dict[str, Any] = {
    "objective": "mlm",
    "input_format": "doc-sentences",
    "masked_lm_prob": 0.4,
    "max_seq_length": 64,
    "batch_size": 32,
    "learning_rate": 1.5e-3,
    "warmup_ratio": 0.05,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
}

#: The recipe of ``bertine demo``.
FULL = DemoRecipe(
    budget_seconds=270.0,
    least_seconds=60.0,
    labels=5,
    draws=4,
    vocab_size=4000,
    initializer_range=0.06,
    pretraining=_PRETRAINING,
)

#: The recipe of ``bertine demo --fast``: every stage, too short to learn much.
FAST = replace(FULL, budget_seconds=45.0, least_seconds=8.0, draws=2, vocab_size=2000)

#: Sentences that the pre-trained models complete, at {}.
MASKED = (
    "He opened the {} and went out.",
    "She was born in New {}.",
    "The band released its first {} in 1994.",
    "They were married and had three {}.",
    "The town has a {} of about 5,000 people.",
    "Paris is the capital of {}.",
)


Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_DATA = importlib.resources.files("bertine.contrib.demo") / "data"


@dataclass(frozen=True)
class Passage:
    """A passage of 25 to 45 words from one article, in whole sentences. `subject` is the label."""

    split: Split
    subject: str
    article: str
    text: str


@dataclass(frozen=True)
class TextCounts:
    """The articles and passages of the demo in numbers.

    Attributes:
        articles: the number of articles to pre-train on.
        words, characters: their numbers in these articles; blanks separate words.
        subjects: the labels, in alphabetical order.
        passages: the number of passages of all subjects, by split.
        labelled_articles: the number of articles of the passages, by split.
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
    """Provide the demo's pre-training articles as a file for the corpus readers: JSON lines, zstd,
    a document a line in the field ``text`` (with a ``title``).

    A context manager because a package inside a zip file is unpacked for the time of the block.
    """
    return importlib.resources.as_file(_DATA / "articles.jsonl.zst")


def pretraining_corpus() -> AbstractContextManager[Path]:
    """Provide the old novels of the README and the tutorials as a file, like
    :func:`articles_corpus` (each with ``text``, ``author``, ``title`` and ``year``)."""
    return importlib.resources.as_file(_DATA / "pretraining.jsonl.zst")


def licence() -> str:
    """Read the description of the articles: their origin, and the changes to them."""
    return (_DATA / "LICENSE-articles.md").read_text(encoding="utf-8")


@functools.cache
def _passages() -> tuple[Passage, ...]:
    return tuple(Passage(**row) for row in _rows("subjects.jsonl.zst"))


def subjects() -> tuple[str, ...]:
    """List the subjects, which are the labels, in alphabetical order."""
    return tuple(sorted({passage.subject for passage in _passages()}))


def passages(split: Split) -> list[Passage]:
    """List the labelled passages of one split with alternating subjects, always in the same order.
    No two splits, and no split and the articles to pre-train on, share an article."""
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
    """Return the draw `number` (from 0) of training passages: `per_subject` of each subject. No two
    draws of the same size share a passage.

    Raises:
        BertineError: there are too few passages.
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
    """Count the bundled texts of the demo (about 0.1 s)."""
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


# Scores: accuracy on the test passages, with its interval.


@dataclass(frozen=True)
class DemoScores(Jsonable):
    """The results of one kind of model on the test passages, from several trainings on different
    labelled passages.

    Attributes:
        name: the name of the kind, for people.
        articles: the article of each test passage.
        right: for each training, whether each test passage was answered rightly.
    """

    name: str
    articles: Sequence[str]
    right: Sequence[Sequence[bool]]

    json_keys = (
        *("accuracy", "interval_95=interval", "accuracy_of_each=accuracies"),
        "test_passages=num_passages",
    )

    @property
    def num_passages(self) -> int:
        """The number of test passages."""
        return len(self.articles)

    @property
    def accuracies(self) -> list[float]:
        """The accuracy of each training."""
        return [statistics.fmean(run) for run in self.right]

    @property
    def accuracy(self) -> float:
        """The mean of all trainings."""
        return statistics.fmean(self.accuracies)

    @property
    def by_article(self) -> dict[str, float]:
        """The share of right answers to the passages of each article. Passages of one article
        resemble each other; articles are independent."""
        shares: dict[str, list[bool]] = {}
        for run in self.right:
            for article, right in zip(self.articles, run, strict=True):
                shares.setdefault(article, []).append(right)
        return {article: statistics.fmean(answers) for article, answers in shares.items()}

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of `accuracy` over other articles."""
        low, high = mean_interval(list(self.by_article.values()))
        return max(0.0, low), min(1.0, high)

    @property
    def interval_text(self) -> str:
        """The interval in words."""
        low, high = self.interval
        return f"95% interval {100 * low:.1f} to {100 * high:.1f}%"

    def line(self, chance: float) -> str:
        """Write the share of right answers for the terminal."""
        return (
            f"{self.name}: {self.accuracy:.1%} of {len(self.articles):,} test passages right "
            f"(guessing: {chance:.1%})"
        )

    def ahead_of(self, other: DemoScores) -> tuple[float, float, float]:
        """Compute how much more accurate this model is than `other`, with the 95% interval. Both
        answer the same passages, so it is narrower than the two separate intervals suggest."""
        mine, others = self.by_article, other.by_article
        low, high = mean_interval([mine[article] - others[article] for article in mine])
        return self.accuracy - other.accuracy, low, high
