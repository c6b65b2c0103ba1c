"""Estimate without labels how often a model is right on new texts, and what has changed.

Three marks of each text are read: how sure the model is of its answer, how strange the text is to
it (:mod:`bertine.tasks.familiarity`), and how many pieces its characters make. At fine-tuning they
are recorded for held-out texts, together with whether the answer is right; and once more for copies
of these texts with typing errors, and with words left out, whose labels are known too. New texts
are taken for a mixture of these three kinds. Its shares are fitted without labels (by EM, as
Saerens, Latinne and Decaestecker 2002, doi 10.1162/089976602753284446, do it for classes), and an
answer is as probably right as those to texts of the kind with such marks, by logistic regression.
The model's own probabilities are too high for texts unlike those that it knows; the damaged copies
show how much.

All is counted in cells of the marks, so that a server keeps counts and no texts.

Shape legend: N new texts, n held-out ones, K labels, H hidden size, C cells, G kinds of texts.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from bertine.core.console import Report, aligned, plural
from bertine.core.rng import generator
from bertine.core.strict_json import Jsonable
from bertine.core.text import visible
from bertine.data.entities import split_words
from bertine.data.examples import Examples
from bertine.tasks.base import Features, by_example, pooled
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.familiarity import Familiarity, array_text, label_number, text_array

#: The kinds of texts: undamaged, and the damages.
KINDS = ("undamaged", "typing errors", "words left out")
#: The most held-out texts, and labels of a model with a record.
_MOST, _MOST_LABELS = 2_000, 2_000
#: The largest shares of characters, and of words, that are damaged.
_TYPING, _LEFT_OUT = 0.15, 0.5
#: Marks of a text, bins of each, and their cells.
_MARKS, _BINS = 3, 10
_CELLS = _BINS**_MARKS
#: Bounds of the log-odds of an answer, and of marks in standard deviations.
_SUREST, _FAR = 9.0, 6.0
#: So many texts count as undamaged, and as labelled like the held-out ones, before any is seen.
_UNDAMAGED, _LABELLED = 100.0, 20.0
#: Texts below this familiarity are unfamiliar.
UNFAMILIAR = 0.05
#: The probability of an alarm by chance, of each of three kinds; the same in standard errors.
_CHANCE, _ERRORS = 0.01, 2.326
#: By how much an estimate may be wrong beside chance, as a standard error: always, and for each
#: point of a loss. Both are rules of thumb, from some dozen shifted sets.
_UNSEEN, _DOUBT = 0.01, 0.25

#: Computes logits and vectors, fp32 [K + H], of features, as
#: :class:`~bertine.tasks.familiarity.WithVectors` does.
Run = Callable[[Sequence[Features]], Sequence[np.ndarray]]


@dataclass(frozen=True, eq=False)
class Readings:
    """What is read of N texts.

    Attributes:
        answers: int64 [N], the most probable labels.
        marks: fp64 [N, 3]: the log-odds of the answer, the strangeness, and the logarithm of the
            pieces for each character.
        familiar: fp64 [N], the familiarity.
        vectors: fp32 [N, H].
    """

    answers: np.ndarray
    marks: np.ndarray
    familiar: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads texts by the outputs of :data:`Run`.

    Attributes:
        familiarity: judges them.
        labels: the labels of the model.
        special: the special tokens of each sequence.
    """

    familiarity: Familiarity
    labels: Sequence[str]
    special: int

    def read(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features], texts: Sequence[str]
    ) -> Readings:
        """Read the N texts of features from the outputs for these."""
        rows, count = np.stack(pooled(outputs, features)), len(self.labels)
        logits = rows[:, :count].astype(np.float64)
        answers = logits.argmax(1)
        others = np.exp(logits - logits.max(1, keepdims=True))
        others[np.arange(len(rows)), answers] = 0
        odds = np.clip(-np.log(np.maximum(others.sum(1), 1e-12)), -_SUREST, _SUREST)
        pieces = [
            sum(len(part.input_ids) - self.special + part.num_truncated for part in parts)
            for parts, _ in by_example(features, features)
        ]
        fine = np.log((np.maximum(pieces, 0) + 0.5) / (np.array([*map(len, texts)]) + 1))
        vectors = rows[:, count:]
        marks = np.column_stack([odds, self.familiarity.strangeness(vectors), fine])
        return Readings(answers, marks, self.familiarity.of(vectors), vectors)


def damaged(texts: Sequence[str], kind: int) -> list[str]:
    """Return copies of texts with damage of one of :data:`KINDS`, each text with another share of
    it. Wrong characters are drawn from the texts, so that they are of their script."""
    draw = generator(0, "damaged texts", kind)
    letters = "".join("".join(text[:200].split()) for text in texts) or "?"
    copies = []
    for text in texts:
        if KINDS[kind] == "words left out":
            begins = [begin for begin, _ in split_words(text)][1:]
            parts = [text[begin:end] for begin, end in pairwise([0, *begins, len(text)])]
            stay = draw.random(len(parts)) >= _LEFT_OUT * draw.random()
            parts = [part for part, stays in zip(parts, stay, strict=True) if stays]
        else:
            parts = list(text)
            wrong = draw.random(len(parts)) < _TYPING * draw.random()
            for at in np.flatnonzero(wrong).tolist():
                other = letters[int(draw.integers(len(letters)))]
                parts[at] = ("", other, parts[at] + other, parts[at] * 2)[int(draw.integers(4))]
        copies.append("".join(parts))
    return copies


@dataclass(frozen=True, eq=False)
class Reference:
    """The record of n held-out texts with which new ones are compared.

    Attributes:
        reader: reads texts in the same way.
        edges, centers: of the bins of each mark, fp32 [3, 9] and [3, 10]: the bounds between them,
            and their means.
        cells: uint16 [G, n], of each text of each of :data:`KINDS` twice the number of its cell,
            plus 1 if the answer is right.
        labels: uint16 [2, n]: the label of each undamaged text, and the answer.
    """

    reader: Reader
    edges: np.ndarray
    centers: np.ndarray
    cells: np.ndarray
    labels: np.ndarray

    @classmethod
    def fit(
        cls,
        run: Run,
        featurize: Callable[[Examples[Any]], Sequence[Features]],
        reader: Reader,
        examples: Examples[Any],
    ) -> Reference | None:
        """Record labelled single texts that the model was not trained on; `run` and `featurize`
        compute outputs of features, and features of examples.

        Returns:
            None if there are fewer than 50 labelled texts, or too many labels.
        """
        order = generator(0, "held-out texts of drift").permutation(len(examples)).tolist()
        items = [examples.items[at] for at in order if examples.items[at].label is not None][:_MOST]
        if len(items) < LEAST_EXAMPLES or len(reader.labels) > _MOST_LABELS:
            return None
        kinds = []
        for kind in range(len(KINDS)):
            texts = [item.texts[0] for item in items]
            texts = damaged(texts, kind) if kind else texts
            some = [replace(item, texts=(text,)) for item, text in zip(items, texts, strict=True)]
            features = featurize(replace(examples, items=some))
            kinds.append(reader.read(run(features), features, texts))
        truth = np.array([label_number(own[0]) for own, _ in by_example(features, features)])
        return cls.of(reader, kinds, truth)

    @classmethod
    def of(cls, reader: Reader, kinds: Sequence[Readings], truth: np.ndarray) -> Reference:
        """Record what is read of the texts of each kind, with their labels, int64 [n]."""
        every = np.concatenate([kind.marks for kind in kinds]).astype(np.float32)
        edges = np.quantile(every, np.arange(1, _BINS) / _BINS, axis=0).T.astype(np.float32)
        centers = np.append(edges, edges[:, -1:], 1)
        for mark, values in enumerate(every.T):
            inside = np.searchsorted(edges[mark], values)
            counts = np.bincount(inside, minlength=_BINS)
            means = np.bincount(inside, values, _BINS) / np.maximum(counts, 1)
            centers[mark] = np.where(counts > 0, means, centers[mark])
        none = np.zeros((len(kinds), 0), dtype=np.uint16)
        made = cls(reader, edges, centers, none, np.stack([truth, kinds[0].answers]))
        cells = [2 * made.cells_of(kind) + (kind.answers == truth) for kind in kinds]
        return replace(made, cells=np.stack(cells))

    def cells_of(self, readings: Readings) -> np.ndarray:
        """Return the numbers of the cells of texts, int64 [N]."""
        number = np.zeros(len(readings.marks), dtype=np.int64)
        for edges, values in zip(self.edges, readings.marks.T, strict=True):
            number = number * _BINS + np.searchsorted(edges, values.astype(np.float32))
        return number

    def to_dict(self) -> dict[str, str]:
        """Return JSON values: the bytes of the arrays, as base64."""
        return {
            name: array_text(getattr(self, name).astype(kind))
            for name, (kind, _) in _ARRAYS.items()
        }

    @classmethod
    def from_facts(cls, facts: Any, reader: Reader) -> Reference | None:
        """Read the result of :meth:`to_dict`; return None for anything else."""
        try:
            made = cls(
                reader,
                *(
                    text_array(facts[name], kind).reshape(rows, -1)
                    for name, (kind, rows) in _ARRAYS.items()
                ),
            )
        except (TypeError, KeyError, ValueError, binascii.Error):
            return None
        whole = (
            made.edges.shape[1] + 1 == made.centers.shape[1] == _BINS
            and bool(np.isfinite(made.edges).all() and np.isfinite(made.centers).all())
            and made.cells.shape[1] == made.labels.shape[1] >= LEAST_EXAMPLES
            and made.cells.max() < 2 * _CELLS
            and made.labels.max() < len(reader.labels) <= _MOST_LABELS
        )
        return made if whole else None

    @property
    def size(self) -> int:
        """The number of held-out texts."""
        return int(self.labels.shape[1])

    @property
    def accuracy(self) -> float:
        """The share of right answers to the held-out texts."""
        return float((self.labels[0] == self.labels[1]).mean())

    @cached_property
    def _fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """For each cell and kind the probability that an answer is right, and how much more
        probable the cell is than among undamaged texts, both fp64 [C, G]."""
        usual = np.bincount(self.cells[0] // 2, minlength=_CELLS)
        grid = np.stack(np.meshgrid(*self.centers.astype(np.float64), indexing="ij"), -1)
        grid = grid.reshape(_CELLS, _MARKS)
        mean = np.average(grid, 0, usual)
        spread = np.sqrt(np.average((grid - mean) ** 2, 0, usual)) + 1e-6
        marks = np.clip((grid - mean) / spread, -_FAR, _FAR)
        rights = np.column_stack([np.ones(_CELLS), grid[:, 0], marks[:, 1]])
        kinds = np.column_stack([np.ones(_CELLS), marks / 2, (marks / 2) ** 2])
        right, ratio = [], []
        for cells in self.cells:
            counts = np.bincount(cells, minlength=2 * _CELLS).reshape(-1, 2)
            # Before there is anything to learn, the probability is the model's own.
            right.append(_logistic(rights, counts[:, 1], counts[:, 0], np.array([0.0, 1.0, 0.0])))
            share = _logistic(kinds, counts.sum(1), usual, np.zeros(kinds.shape[1]))
            ratio.append(share / (1 - share))
        return np.stack(right, 1), np.stack(ratio, 1)

    def right(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for each cell the probability that an answer is right, fp64 [C], and the shares
        of the kinds, fp64 [G], if there are these counts of new texts, int64 [C]."""
        right, ratio = self._fitted
        undamaged = np.eye(len(KINDS))[0]
        shares, before = undamaged + 1, undamaged
        while abs(shares - before).max() > 1e-4:
            kinds = ratio * shares
            kinds /= kinds.sum(1, keepdims=True)
            before = shares
            shares = (counts @ kinds + _UNDAMAGED * undamaged) / (counts.sum() + _UNDAMAGED)
        return (kinds * right).sum(1), shares


#: The arrays of a record, with the kind of their numbers and their rows.
_ARRAYS = {
    "edges": ("<f4", _MARKS),
    "centers": ("<f4", _MARKS),
    "cells": ("<u2", len(KINDS)),
    "labels": ("<u2", 2),
}


def _logistic(rows: np.ndarray, yes: np.ndarray, no: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Fit a logistic regression to counts, [C], by Newton's method, with a penalty on the distance
    of the weights (but the first) from `start`; return its probabilities."""
    weights, pull = start, np.append(1e-6, np.ones(len(start) - 1))
    for _ in range(50):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ ((yes + no) * chance - yes) + pull * (weights - start)
        curve = (rows.T * ((yes + no) * chance * (1 - chance))) @ rows + np.diag(pull)
        step = np.linalg.solve(curve, slope)
        weights = weights - step / max(1.0, abs(step).max())  # a longer one may lead away
    return np.asarray(chance)


def _by_chance(new: np.ndarray, total: int, old: np.ndarray, count: int) -> np.ndarray:
    """Return the probability that counts of a total and of another one differ as much by chance:
    the exact test of two Poisson rates (Przyborowski and Wilenski 1940)."""
    from scipy.stats import binom

    both, share = new + old, total / (total + count)
    return np.asarray(2 * np.minimum(binom.cdf(new, both, share), binom.sf(new - 1, both, share)))


class Sketch:
    """Counts of new texts; no text and nothing of a single one is kept.

    Attributes:
        cells: int64 [C], the texts in each cell.
        labels: int64 [K], the texts with each answer.
        unfamiliar: the number of texts that are unfamiliar.
    """

    def __init__(self, held: Reference) -> None:
        self._held = held
        self.cells = np.zeros(_CELLS, dtype=np.int64)
        self.labels = np.zeros(len(held.reader.labels), dtype=np.int64)
        self.unfamiliar = 0

    def add(self, readings: Readings) -> None:
        """Count further texts."""
        cells = self._held.cells_of(readings)
        self.cells = self.cells + np.bincount(cells, minlength=_CELLS)
        self.labels = self.labels + np.bincount(readings.answers, minlength=len(self.labels))
        self.unfamiliar += int((readings.familiar < UNFAMILIAR).sum())

    def accuracy(self) -> float:
        """Return the estimated share of right answers to the new texts, one at least."""
        return float(np.average(self._held.right(self.cells)[0], weights=self.cells))

    def compare(self) -> Drift:
        """Compare the new texts, one at least, with the held-out ones."""
        held, total, now = self._held, int(self.cells.sum()), self.accuracy()
        chances, kinds = held.right(self.cells)
        loss = held.accuracy - now
        # Chance is in the answers to held-out texts (counted as if one more were right and one
        # wrong), in which new texts there are, and in the answers to these.
        smoothed = (held.accuracy * held.size + 1) / (held.size + 2)
        of_held = smoothed * (1 - smoothed) / held.size
        of_texts = np.average((chances - now) ** 2, weights=self.cells) / total
        of_answers = np.average(chances * (1 - chances), weights=self.cells) / total
        doubt = _UNSEEN**2 + (_DOUBT * loss) ** 2
        half = 1.96 * float(np.sqrt(of_held + of_answers + doubt))
        judges = len(held.reader.familiarity.held_out)
        few = int(UNFAMILIAR * judges)
        alone = _by_chance(np.array([self.unfamiliar]), total, np.array([few]), judges)[0]
        return Drift(
            total,
            held.size,
            now,
            (max(0.0, now - half), min(1.0, now + half)),
            held.accuracy,
            bool(loss > _ERRORS * np.sqrt(of_held + of_texts)),
            dict(zip(KINDS, kinds.tolist(), strict=True)),
            self.unfamiliar / total,
            bool(alone < 2 * _CHANCE and self.unfamiliar * judges > few * total),
            self._shares(total),
        )

    def _shares(self, total: int) -> list[LabelShare]:
        """Compare how often each label is the answer, and estimate how often it is the right one:
        by the answers to held-out texts of each label, with EM."""
        held, names = self._held, self._held.reader.labels
        truth, given = held.labels.astype(np.int64)
        size = len(names)
        before, usual = (np.bincount(numbers, minlength=size) for numbers in (truth, given))
        confused = held.accuracy * np.eye(size) + (1 - held.accuracy) * usual / held.size
        np.add.at(confused, (truth, given), 1)
        confused /= confused.sum(1, keepdims=True)
        shares = prior = (before + 0.5) / (held.size + size / 2)
        for _ in range(50):
            parts = shares[:, None] * confused
            parts *= self.labels / np.maximum(parts.sum(0), 1e-12)
            shares = (parts.sum(1) + _LABELLED * prior) / (total + _LABELLED)
        # Bonferroni: of K labels each may differ by chance.
        clear = _by_chance(self.labels, total, usual, held.size) < _CHANCE / size
        change = np.sign(self.labels * held.size - usual * total) * clear
        return [
            LabelShare(name, float(was / held.size), float(now), ("", "more", "fewer")[int(sign)])
            for name, was, now, sign in zip(names, before, shares, change, strict=True)
        ]


@dataclass(frozen=True)
class LabelShare(Jsonable):
    """How frequent a label is.

    Attributes:
        label: the label.
        before: its share of the held-out texts.
        now: its estimated share of the new texts.
        change: "more" or "fewer" if it is, by more than chance; else "".
    """

    label: str
    before: float
    now: float
    change: str

    json_digits = 4


@dataclass(repr=False)
class Drift(Report):
    """What has changed since the training.

    Attributes:
        texts: the number of new texts.
        held_out: the number of held-out texts that they are compared with.
        accuracy: the estimated share of right answers to the new texts.
        interval: of it, 95%.
        accuracy_before: the share of right answers to the held-out texts.
        fallen: whether the accuracy has fallen by more than chance.
        kinds: the estimated shares of texts that read like those of :data:`KINDS`.
        unfamiliar: the share of unfamiliar texts, 5% of those like the held-out ones.
        more_unfamiliar: whether these are more than 5% by more than chance.
        labels: how frequent each label was, and is.
    """

    texts: int
    held_out: int
    accuracy: float
    interval: tuple[float, float]
    accuracy_before: float
    fallen: bool
    kinds: dict[str, float]
    unfamiliar: float
    more_unfamiliar: bool
    labels: list[LabelShare] = field(default_factory=list)

    json_digits: ClassVar[int | None] = 4

    @property
    def changed(self) -> list[LabelShare]:
        """The labels that are more or fewer by more than chance, the largest change first."""
        clear = [label for label in self.labels if label.change]
        return sorted(clear, key=lambda label: -abs(label.now - label.before))

    @property
    def loss(self) -> float:
        """The estimated loss of accuracy, in points."""
        return 100 * (self.accuracy_before - self.accuracy)

    def loss_line(self) -> str:
        """Return the loss of accuracy in words."""
        if not self.fallen:
            return f"no loss by more than chance ({-self.loss:+.1f} points)"
        likely = max(KINDS[1:], key=lambda kind: self.kinds[kind])
        share = self.kinds[likely]
        why = f"; {share:.0%} of the texts read like texts with {likely}" if share > 0.1 else ""
        return f"{self.loss:.1f} points lower, by more than chance{why}"

    def lines(self) -> list[str]:
        """Return what the command prints."""
        low, high = self.interval
        rows = [
            [visible(label.label), f"{label.before:.1%}", f"{label.now:.1%}", label.change]
            for label in self.changed
        ]
        head = [["label", "before", "now", ""]] if rows else []
        return [
            f"estimated accuracy on {plural(self.texts, 'text')} without labels: "
            f"{self.accuracy:.1%} ({low:.1%} to {high:.1%})",
            f"it was {self.accuracy_before:.1%} on {plural(self.held_out, 'held-out text')}: "
            f"{self.loss_line()}",
            f"unfamiliar: {self.unfamiliar:.1%} of the texts (usually 5%), "
            f"{'' if self.more_unfamiliar else 'not '}more than by chance",
            *aligned([*head, *rows], left=(0, 3)),
            *([] if rows else ["no label became more or less frequent by more than chance"]),
        ]
