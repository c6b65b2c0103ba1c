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

Shape legend: N texts, K labels, H hidden size, C cells, G kinds of texts.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bertine.core.console import Report, aligned, plural
from bertine.core.rng import generator
from bertine.core.strict_json import Jsonable
from bertine.core.text import visible
from bertine.data.examples import Examples
from bertine.tasks.base import Features, by_example, pooled
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.familiarity import Familiarity, array_text, label_number, text_array

#: The kinds of texts: undamaged, and the damages; and the most held-out texts of each.
KINDS = ("undamaged", "typing errors", "words left out")
_MOST = (2_000, 1_000, 1_000)
#: The largest shares of characters, and of words, that are damaged.
_TYPING, _LEFT_OUT = 0.15, 0.5
#: Words are longer than this on average only in scripts without spaces.
_LONG = 15
#: Bins of each mark.
_BINS = (12, 8, 8)
_CELLS = 12 * 8 * 8
#: The most labels of a model with a record.
_MOST_LABELS = 2_000
#: Bounds of the log-odds of an answer, and of marks in standard deviations.
_SUREST, _FAR = 9.0, 6.0
#: So many texts count as undamaged before any is seen.
_UNDAMAGED = 100.0
#: So many texts count as labelled like the held-out ones.
_LABELLED = 20.0
#: Texts below this familiarity are unfamiliar.
UNFAMILIAR = 0.05
#: The probability of an alarm by chance: of each of the three questions.
_CHANCE, _NORMAL = 0.01, 2.326
#: Digits of shares in JSON.
_DIGITS = 4
#: Resamples behind an interval, and the part of a loss by which its estimate may be wrong.
_RESAMPLES, _DOUBT = 60, 0.25

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

    @classmethod
    def of(
        cls,
        familiarity: Familiarity,
        outputs: Sequence[np.ndarray],
        features: Sequence[Features],
        texts: Sequence[str],
        num_labels: int,
        special: int,
    ) -> Readings:
        """Read texts from the outputs of :data:`Run` for their features, with as many `special`
        tokens each."""
        rows = np.stack(pooled(outputs, features))
        logits = rows[:, :num_labels].astype(np.float64)
        answers = logits.argmax(1)
        logits -= logits.max(1, keepdims=True)
        wrong = np.exp(logits)
        wrong[np.arange(len(rows)), answers] = 0  # 1 minus this sum would lose all digits near 1
        odds = np.clip(-np.log(np.maximum(wrong.sum(1), 1e-12)), -_SUREST, _SUREST)
        pieces = np.zeros(len(rows))
        numbers = [feature.row for feature in features]
        lengths = [len(feature.input_ids) - special + feature.num_truncated for feature in features]
        np.add.at(pieces, np.unique(numbers, return_inverse=True)[1], lengths)
        fine = np.log((np.maximum(pieces, 0) + 0.5) / (np.array(list(map(len, texts))) + 1))
        marks = np.column_stack([odds, familiarity.strangeness(rows, num_labels), fine])
        vectors = rows[:, num_labels:].astype(np.float32)
        return cls(answers, marks, familiarity.of(rows, num_labels), vectors)


def damaged(texts: Sequence[str], kind: int) -> list[str]:
    """Return copies of texts with damage of one of :data:`KINDS`, each text with another share of
    it. Wrong characters are drawn from the texts, so that they are of their script."""
    draw = generator(0, "damaged texts", kind)
    letters = "".join("".join(text[:200].split()) for text in texts) or "?"
    return [_damaged(text, kind, draw, letters) for text in texts]


def _damaged(text: str, kind: int, draw: np.random.Generator, letters: str) -> str:
    if kind == KINDS.index("words left out"):
        words = text.split()
        by = "" if len(text) > _LONG * len(words) else " "
        words = words if by else list(text)
        stay = draw.random(len(words)) >= _LEFT_OUT * draw.random()
        return by.join(word for word, stays in zip(words, stay, strict=True) if stays) or text
    signs = list(text)
    for at in np.flatnonzero(draw.random(len(signs)) < _TYPING * draw.random()).tolist():
        other = letters[int(draw.integers(len(letters)))]
        if not signs[at].isspace():
            following = signs[at + 1] if at + 1 < len(signs) else ""
            choice = int(draw.integers(4))
            signs[at] = ["", other, signs[at] + other, following][choice]
            if choice == 3 and following:
                signs[at + 1] = text[at]
    return "".join(signs)


@dataclass(frozen=True, eq=False)
class Reference:
    """The record of held-out texts with which new ones are compared.

    Attributes:
        edges, centers: of the bins of each mark, fp32: the bounds between them, and their means.
        cells: for each of :data:`KINDS` the texts, uint16 [n]: twice the number of the cell, plus
            1 if the answer is right.
        labels: uint16 [n, 2]: the label of each undamaged text, and the answer.
    """

    edges: tuple[np.ndarray, ...]
    centers: tuple[np.ndarray, ...]
    cells: tuple[np.ndarray, ...]
    labels: np.ndarray
    num_labels: int

    @classmethod
    def fit(
        cls,
        run: Run,
        featurize: Callable[[Examples[Any]], Sequence[Features]],
        familiarity: Familiarity,
        examples: Examples[Any],
        labels: Sequence[str],
        special: int,
    ) -> Reference | None:
        """Record labelled texts that the model was not trained on.

        Args:
            run, featurize: compute the outputs for features, and the features of examples.
            familiarity: judges the texts.
            examples: single texts; those without a label are left out.
            labels: the K labels.
            special: the special tokens of each sequence.

        Returns:
            None if there are fewer than 50 labelled texts, or too many labels.
        """
        order = generator(0, "held-out texts of drift").permutation(len(examples)).tolist()
        items = [examples.items[at] for at in order if examples.items[at].label is not None]
        if len(items) < LEAST_EXAMPLES or len(labels) > _MOST_LABELS:
            return None
        truth = np.zeros(0, dtype=np.int64)
        kinds: list[Readings] = []
        for kind, most in enumerate(_MOST):
            texts = [item.texts[0] for item in items[:most]]
            texts = damaged(texts, kind) if kind else texts
            copies = [
                replace(item, texts=(text,)) for item, text in zip(items, texts, strict=False)
            ]
            features = featurize(replace(examples, items=copies))
            if not kind:
                truth = np.array(
                    [label_number(own[0]) for own, _ in by_example(features, features)]
                )
            outputs = run(features)
            kinds.append(Readings.of(familiarity, outputs, features, texts, len(labels), special))
        return cls.of(kinds, truth, len(labels))

    @classmethod
    def of(cls, kinds: Sequence[Readings], truth: np.ndarray, num_labels: int) -> Reference:
        """Record what is read of each of :data:`KINDS`; the first texts of `truth`, int64 [n], the
        right labels, are those of each kind."""
        edges, centers = [], []
        every = np.concatenate([kind.marks for kind in kinds]).astype(np.float32)
        for values, bins in zip(every.T, _BINS, strict=True):
            cuts = np.quantile(values, np.arange(1, bins) / bins).astype(np.float32)
            at = np.searchsorted(cuts, values)
            counts = np.bincount(at, minlength=bins)
            means = np.bincount(at, values, bins) / np.maximum(counts, 1)
            edges.append(cuts)
            centers.append(np.where(counts > 0, means, np.append(cuts, cuts[-1])).astype("f4"))
        answers = np.column_stack([truth, kinds[0].answers]).astype(np.uint16)
        empty = cls(tuple(edges), tuple(centers), (), answers, num_labels)
        cells = [
            2 * empty.cells_of(kind) + (kind.answers == truth[: len(kind.answers)])
            for kind in kinds
        ]
        return replace(empty, cells=tuple(cell.astype(np.uint16) for cell in cells))

    def cells_of(self, readings: Readings) -> np.ndarray:
        """Return the numbers of the cells of texts, int64 [N]."""
        number = np.zeros(len(readings.marks), dtype=np.int64)
        for edges, values, bins in zip(self.edges, readings.marks.T, _BINS, strict=True):
            number = number * bins + np.searchsorted(edges, values.astype(np.float32))
        return number

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: the arrays as base64."""
        floats = {"edges": self.edges, "centers": self.centers}
        return {
            **{name: [array_text(a.astype("<f4")) for a in many] for name, many in floats.items()},
            "cells": [array_text(array.astype("<u2")) for array in self.cells],
            "labels": array_text(self.labels.astype("<u2")),
        }

    @classmethod
    def from_facts(cls, facts: Any, num_labels: int) -> Reference | None:
        """Read the result of :meth:`to_dict`; return None for anything else."""
        try:
            edges, centers, cells = (
                tuple(text_array(text, kind) for text in facts[name])
                for name, kind in (("edges", "<f4"), ("centers", "<f4"), ("cells", "<u2"))
            )
            labels = text_array(facts["labels"], "<u2").reshape(-1, 2)
        except (TypeError, KeyError, ValueError, binascii.Error):
            return None
        whole = (
            [len(array) for array in centers] == list(_BINS)
            and [len(array) + 1 for array in edges] == list(_BINS)
            and all(np.isfinite(array).all() for array in (*edges, *centers))
            and len(cells) == len(KINDS)
            and len(cells[0]) == len(labels)
            and all(len(array) and array.max() < 2 * _CELLS for array in cells)
            and labels.max(initial=0) < num_labels <= _MOST_LABELS
        )
        return cls(edges, centers, cells, labels, num_labels) if whole else None

    # The estimate.

    @property
    def accuracy(self) -> float:
        """The share of right answers to the held-out texts."""
        return float((self.cells[0] % 2).mean())

    @cached_property
    def _held(self) -> list[np.ndarray]:
        """The counts of wrong and right answers of each kind in each cell, int64 [C, 2]."""
        return [np.bincount(cell, minlength=2 * _CELLS).reshape(-1, 2) for cell in self.cells]

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the logistic regressions, fp64 [C, 3] and [C, 7]: for right answers 1, the
        log-odds and the strangeness; for kinds of texts 1, all marks and their squares."""
        grid = np.stack(np.meshgrid(*self.centers, indexing="ij"), -1).reshape(_CELLS, -1)
        counts = self._held[0].sum(1)
        mean, grid = np.average(grid, 0, counts), grid.astype(np.float64)
        spread = np.sqrt(np.average((grid - mean) ** 2, 0, counts)) + 1e-6
        marks = np.clip((grid - mean) / spread, -_FAR, _FAR)
        one = np.ones((_CELLS, 1))
        return (
            np.hstack([one, grid[:, :1], marks[:, 1:2]]),
            np.hstack([one, marks / 2, (marks / 2) ** 2]),
        )

    def _fitted(self, held: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return for each cell and kind the probability that an answer is right, and how much more
        probable the cell is than among undamaged texts, both fp64 [C, G]."""
        rights, kinds = self._rows
        start = np.array([0.0, 1.0, 0.0])  # the model's own probability
        right = [_logistic(rights, counts[:, 1], counts[:, 0], start) for counts in held]
        usual = held[0].sum(1)
        ratio = [np.ones(_CELLS)]
        for counts in held[1:]:
            here = counts.sum(1) * (usual.sum() / counts.sum())
            share = _logistic(kinds, here, usual, np.zeros(kinds.shape[1]))
            ratio.append(share / (1 - share))
        return np.stack(right, 1), np.stack(ratio, 1)

    @cached_property
    def _fit(self) -> tuple[np.ndarray, np.ndarray]:
        return self._fitted(self._held)

    def right(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for each cell the probability that an answer is right, fp64 [C], and the shares
        of the kinds, fp64 [G], if there are these counts of new texts, int64 [C]."""
        return _mixed(*self._fit, counts)

    def compare(self, sketch: Sketch, labels: Sequence[str]) -> Drift:
        """Compare the new texts of a sketch with the held-out ones."""
        counts, total = sketch.cells, sketch.texts
        chances, kinds = self.right(counts)
        now = float(counts @ chances / total)
        draw = generator(0, "resamples of drift")
        changes = []
        for _ in range(_RESAMPLES):
            held = [
                draw.multinomial(every.sum(), (every / every.sum()).ravel()).reshape(-1, 2)
                for every in self._held
            ]
            new = draw.multinomial(total, counts / total)
            other = float(new @ _mixed(*self._fitted(held), new)[0] / total)
            changes.append((other, held[0][:, 1].sum() / held[0].sum() - other))
        spread, of_loss = np.std(changes, axis=0)
        loss = self.accuracy - now
        by_chance = float(counts @ (chances * (1 - chances))) / total**2
        half = 1.96 * float(np.sqrt(spread**2 + by_chance + (_DOUBT * loss) ** 2))
        count = len(self.labels)
        usual = int(UNFAMILIAR * count)
        more = _by_chance(np.array([sketch.unfamiliar]), total, np.array([usual]), count)[0]
        return Drift(
            total,
            count,
            now,
            (max(0.0, now - half), min(1.0, now + half)),
            self.accuracy,
            bool(loss > _NORMAL * of_loss),
            {name: float(share) for name, share in zip(KINDS, kinds, strict=True)},
            sketch.unfamiliar / total,
            bool(more < 2 * _CHANCE and sketch.unfamiliar * count > usual * total),
            self._labels(sketch.labels, labels),
        )

    def _labels(self, answers: np.ndarray, names: Sequence[str]) -> list[LabelShare]:
        """Compare how often each label is the answer, and estimate how often it is the right one:
        by the answers to held-out texts of each label, with EM."""
        truth, given = self.labels.T.astype(np.int64)
        size, total = self.num_labels, int(answers.sum())
        before = np.bincount(truth, minlength=size)
        confused = np.zeros((size, size))
        np.add.at(confused, (truth, given), 1)
        usual = np.bincount(given, minlength=size)
        confused += self.accuracy * np.eye(size) + (1 - self.accuracy) * usual / len(truth)
        confused /= confused.sum(1, keepdims=True)
        shares = prior = (before + 0.5) / (len(truth) + size / 2)
        for _ in range(50):
            parts = shares[:, None] * confused
            parts *= answers / np.maximum(parts.sum(0), 1e-12)
            shares = (parts.sum(1) + _LABELLED * prior) / (total + _LABELLED)
        chance = _by_chance(answers, total, usual, len(truth))
        # Holm 1979: the smallest of K must be below 1 / K of what one alone must.
        order = np.argsort(chance, kind="stable")
        steps = np.maximum.accumulate(chance[order] * np.arange(size, 0, -1))
        clear = np.zeros(size, dtype=bool)
        clear[order] = steps < _CHANCE
        up = answers * len(truth) > usual * total
        return [
            LabelShare(
                name,
                float(before[at] / len(truth)),
                float(shares[at]),
                ("more" if up[at] else "fewer") if clear[at] else "",
            )
            for at, name in enumerate(names)
        ]


def _mixed(right: np.ndarray, ratio: np.ndarray, counts: np.ndarray) -> tuple[Any, Any]:
    """Fit the shares of the kinds; return what :meth:`Reference.right` does."""
    undamaged = np.eye(ratio.shape[1])[0]
    shares = np.full(ratio.shape[1], 1 / ratio.shape[1])
    some = counts > 0
    total, own, ratios = counts.sum() + _UNDAMAGED, counts[some], ratio[some]
    for _ in range(200):
        kinds = ratios * shares
        kinds /= kinds.sum(1, keepdims=True)
        before, shares = shares, (own @ kinds + _UNDAMAGED * undamaged) / total
        if abs(shares - before).max() < 1e-4:
            break
    kinds = ratio * shares
    return (kinds * right).sum(1) / kinds.sum(1), shares


def _logistic(
    rows: np.ndarray, yes: np.ndarray, no: np.ndarray, start: np.ndarray, penalty: float = 1.0
) -> np.ndarray:
    """Fit a logistic regression to counts, fp64 [C], by Newton's method, with a penalty on the
    distance of the weights (but the first) from `start`; return its probabilities."""
    count, weights = yes + no, start
    pull = np.append(1e-6, np.full(len(start) - 1, penalty))
    for _ in range(25):
        chance = _sigmoid(rows @ weights)
        slope = rows.T @ (count * chance - yes) + pull * (weights - start)
        curve = (rows.T * (count * chance * (1 - chance))) @ rows + np.diag(pull)
        step = np.linalg.solve(curve, slope)
        weights = weights - step
        if abs(step).max() < 1e-5:
            break
    return _sigmoid(rows @ weights)


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(scores, -30, 30))))


def _by_chance(new: np.ndarray, total: int, old: np.ndarray, count: int) -> np.ndarray:
    """Return the probability that counts, [M] of a total and [M] of another, differ as much by
    chance: each the exact test of two Poisson rates (Przyborowski and Wilenski 1940)."""
    from scipy.stats import binom

    both, share = new + old, total / (total + count)
    fewer, more = binom.cdf(new, both, share), binom.sf(new - 1, both, share)
    return np.minimum(1.0, 2 * np.minimum(fewer, more))


@dataclass
class Sketch:
    """Counts of new texts; no text and nothing of a single one is kept.

    Attributes:
        cells: int64 [C], the texts in each cell.
        labels: int64 [K], the texts with each answer.
        unfamiliar: the texts that are unfamiliar.
    """

    cells: np.ndarray
    labels: np.ndarray
    unfamiliar: int = 0

    @classmethod
    def empty(cls, num_labels: int) -> Sketch:
        """Return a sketch of no texts."""
        return cls(np.zeros(_CELLS, dtype=np.int64), np.zeros(num_labels, dtype=np.int64))

    @property
    def texts(self) -> int:
        """The number of texts."""
        return int(self.labels.sum())

    def add(self, reference: Reference, readings: Readings) -> None:
        """Count further texts."""
        self.cells += np.bincount(reference.cells_of(readings), minlength=_CELLS)
        self.labels += np.bincount(readings.answers, minlength=len(self.labels))
        self.unfamiliar += int((readings.familiar < UNFAMILIAR).sum())


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

    json_digits = _DIGITS


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

    json_keys: ClassVar[tuple[str, ...]] = (
        *("texts", "held_out", "accuracy", "interval", "accuracy_before", "fallen", "kinds"),
        *("unfamiliar", "more_unfamiliar", "labels"),
    )
    json_digits = _DIGITS

    @property
    def changed(self) -> list[LabelShare]:
        """The labels that are more or fewer by more than chance, the largest change first."""
        clear = [label for label in self.labels if label.change]
        return sorted(clear, key=lambda label: -abs(label.now - label.before))

    @property
    def alarms(self) -> bool:
        """Whether anything has changed by more than chance."""
        return self.fallen or self.more_unfamiliar or bool(self.changed)

    def loss_line(self) -> str:
        """Return the loss of accuracy in words."""
        loss = self.accuracy_before - self.accuracy
        if not self.fallen:
            return f"no loss by more than chance ({-100 * loss:+.1f} points)"
        likely = max(KINDS[1:], key=lambda kind: self.kinds[kind])
        share = self.kinds[likely]
        why = f"; {share:.0%} of the texts read like texts with {likely}" if share > 0.1 else ""
        return f"{100 * loss:.1f} points lower, by more than chance{why}"

    def lines(self) -> list[str]:
        """Return what the command prints."""
        low, high = self.interval
        lines = [
            f"estimated accuracy on {plural(self.texts, 'text')} without labels: "
            f"{self.accuracy:.1%} ({low:.1%} to {high:.1%})",
            f"it was {self.accuracy_before:.1%} on {plural(self.held_out, 'held-out text')}: "
            f"{self.loss_line()}",
        ]
        unusual = "more than by chance" if self.more_unfamiliar else "not more than by chance"
        lines.append(f"unfamiliar: {self.unfamiliar:.1%} of the texts (usually 5%), {unusual}")
        if not self.changed:
            return [*lines, "no label became more or less frequent by more than chance"]
        rows = [
            [visible(label.label), f"{label.before:.1%}", f"{label.now:.1%}", label.change]
            for label in self.changed
        ]
        return [*lines, *aligned([["label", "before", "now", ""], *rows], left=(0, 3))]
