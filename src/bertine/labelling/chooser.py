"""Choose the texts whose labels teach a linear head most, and judge it by texts set apart.

The rule is coverage of what is uncertain. A sample of the texts stands for all of them. Each text
of the sample counts as much as the head is uncertain about it, and a text that may be asked covers
those of the sample whose vectors are near to its own. Chosen is the one that adds most to what the
labelled texts cover (facility location, greedily: Nemhauser, Wolsey and Fisher 1978). Before two
classes have labels all texts count the same, so it begins with the middles of clusters. Later it
asks where the head is unsure of many similar texts, not for single odd ones, as the smallest margin
would. From 100 labels on the smallest margin chooses every second text (measured by
``benchmarks/labelling.py``: with many labels it teaches more).

A fifth of the texts is set apart. They are asked in a random order and never learned from, so the
head's accuracy on them is an honest estimate, and they show what random labels would have taught.

Shape legend: N texts, D numbers of a vector, K classes, n labelled texts, R texts of the sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertine.core.console import plural
from bertine.core.rng import generator
from bertine.core.scores import clearly_better, wilson_interval
from bertine.inference.baselines.linear import log_softmax
from bertine.inference.embedding.vectors import unit

Reason = Literal["rule", "name", "random", "judge"]

#: One in this many texts is set apart to judge; of the others one in so many is drawn at random.
_APART, _RANDOM = 5, 10
#: Texts of the sample that stands for all, and texts among which one question is chosen.
_SAMPLE, _CANDIDATES = 1_000, 1_000
#: Labels from which on every second text is chosen by the head's uncertainty alone.
_MANY = 100
#: A head is fitted again after this share of new labels.
_GROWN = 0.05
#: Labels set apart that are needed to compare the rule with random labels, and the most used.
_LEAST_JUDGES, _MOST_JUDGES = 20, 400
#: Labels of the first point of a curve, and the factor from one point to the next.
_FIRST_POINT, _TO_NEXT_POINT = 8, 1.4
#: One in this many learned labels is contradicted at most.
_CONTRADICTED = 20
#: Names of classes are asked by while they give this many times as many right labels as chance;
#: it is counted from so many labels on.
_BETTER_THAN_CHANCE, _COUNTED = 2.0, 8

# The head: ridge regression on the classes, in closed form. Leaving one label out costs nothing
# there, which chooses the penalty and turns scores into probabilities.

_PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
_FACTORS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
#: Labels that are left out, one at a time, to choose by.
_LEFT_OUT = 1_000


@dataclass(frozen=True)
class Head:
    """A linear head on vectors of length 1.

    Attributes:
        weights: fp32 [D, K].
        bias: fp32 [K].
        factor: of the scores, before the softmax.
        unseen: fp32 [n, K], the probabilities of the classes for each text that it was fitted to,
            by a head that was fitted to all the others.
    """

    weights: np.ndarray
    bias: np.ndarray
    factor: float
    unseen: np.ndarray

    def classes(self, vectors: np.ndarray) -> np.ndarray:
        """Return the most probable class of each vector, int64 [N]."""
        return np.asarray((vectors @ self.weights + self.bias).argmax(1))

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes, fp32 [N, K]."""
        scores = self.factor * (vectors @ self.weights + self.bias)
        return np.asarray(np.exp(log_softmax(scores)), np.float32)

    def uncertainty(self, vectors: np.ndarray) -> np.ndarray:
        """Return 1 minus the margin of the two most probable classes, fp32 [N]."""
        best = np.partition(self.probabilities(vectors), -2, axis=1)
        return np.asarray(1 - (best[:, -1] - best[:, -2]), np.float32)


def fit_head(vectors: np.ndarray, labels: np.ndarray, classes: int) -> Head:
    """Fit a head to vectors of length 1, fp32 [n, D], and their classes, int64 [n]."""
    count, dimensions = vectors.shape
    wanted = np.eye(classes, dtype=np.float32)[labels]
    bias = wanted.mean(0)
    wanted -= bias
    # The left singular vectors, by the smaller of the two products.
    small = count <= dimensions
    product = vectors @ vectors.T if small else vectors.T @ vectors
    squares, basis = np.linalg.eigh(product.astype(np.float64))
    kept = squares > 1e-6 * squares.max()
    squares, basis = squares[kept].astype(np.float32), basis[:, kept].astype(np.float32)
    left = basis if small else vectors @ (basis / np.sqrt(squares))
    inside = left.T @ wanted
    step = count // _LEFT_OUT + 1
    some, own, right = left[::step], wanted[::step], labels[::step]

    def errors(penalty: float, left: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return the errors of the scores of texts, each without its own label, fp32 [n, K]."""
        shrunk = squares / (squares + penalty)
        own_share = np.minimum(left**2 @ shrunk, 0.999)[:, None]
        return np.asarray((own - left @ (shrunk[:, None] * inside)) / (1 - own_share))

    penalty = min(_PENALTIES, key=lambda penalty: float((errors(penalty, some, own) ** 2).sum()))
    unseen = wanted + bias - errors(penalty, left, wanted)
    rows = np.arange(len(right))
    gains = [float(log_softmax(factor * unseen[::step])[rows, right].sum()) for factor in _FACTORS]
    factor = _FACTORS[int(np.argmax(gains))]
    weights = vectors.T @ (left @ (inside / (squares + penalty)[:, None]))
    return Head(weights, bias, factor, np.exp(log_softmax(factor * unseen)))


# The choice of texts.


def set_apart(texts: Sequence[str]) -> np.ndarray:
    """Return which texts are set apart to judge, bool [N]: a fifth, by a hash of the text, so that
    it is the same in every call and for every file."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass")) for text in texts)
    return np.array([digest.digest()[0] % _APART == 0 for digest in digests], dtype=bool)


@dataclass(frozen=True)
class Question:
    """A text to ask for.

    Attributes:
        row: its number among the texts.
        reason: why: the ``rule``, the nearest to the ``name`` of a class without labels, drawn at
            ``random``, or set apart to ``judge``.
    """

    row: int
    reason: Reason


@dataclass(frozen=True)
class Comparison:
    """What the rule's labels and random ones have taught, judged by the texts set apart.

    Attributes:
        labels: how many labels each had.
        judges: how many texts judged.
        rule, random: the accuracies.
    """

    labels: int
    judges: int
    rule: float
    random: float

    @property
    def random_wins(self) -> bool:
        """Whether random labels have taught more, by more than chance."""
        return clearly_better("accuracy", self.random, self.rule, self.judges)

    def line(self) -> str:
        """Return the comparison in words."""
        line = (
            f"with {plural(self.labels, 'label')} each: {self.rule:.1%} by the rule, "
            f"{self.random:.1%} by random ones, judged by {self.judges}"
        )
        return f"{line}; so it goes on at random" if self.random_wins else line


def accuracy_line(accuracy: tuple[float, float, float], judges: int) -> str:
    """Describe an accuracy with its interval, judged by so many texts."""
    share, low, high = (f"{value:.1%}" for value in accuracy)
    return (
        f"accuracy of a linear head {share} ({low} to {high}) on {plural(judges, 'text')} set apart"
    )


class Chooser:
    """The labels of N texts so far, and the texts to ask for next.

    Not safe for threads. Without vectors all questions are drawn at random.

    Attributes:
        classes: K; it may grow.
        labels: int64 [N], the class of each text; -1: none.
        order: the labelled texts, as they were labelled.
        apart: bool [N], the texts that are set apart to judge.
        head: the head as last fitted; None: fewer than two classes have labels.
        comparison: of the rule with random labels; None: too few texts have judged.
    """

    def __init__(
        self,
        vectors: np.ndarray | None,
        apart: np.ndarray,
        classes: int,
        names: np.ndarray | None = None,
        *,
        seed: int = 0,
    ) -> None:
        """
        Args:
            vectors: fp32 [N, D], of the texts; None: they come later, by :meth:`see`.
            apart: see above.
            classes: K.
            names: fp32 [K, D], the vectors of the classes' names, if they are comparable.
            seed: of all that is drawn.
        """
        self.classes, self._seed = classes, seed
        self.labels = np.full(len(apart), -1, dtype=np.int64)
        self.order: list[int] = []
        self.apart = apart
        self.head: Head | None = None
        self.comparison: Comparison | None = None
        self._asked = np.zeros(len(apart), dtype=bool)
        self._shuffled = generator(seed, "random labels").permutation(len(apart))
        self._names: np.ndarray | None = None
        self._heads: dict[int, Head | None] = {}
        self._fitted = 0
        self._seeing = False
        if vectors is not None:
            self.see(vectors, names)

    def see(self, vectors: np.ndarray, names: np.ndarray | None = None) -> None:
        """Take the vectors of the texts, fp32 [N, D], and those of the classes' names, fp32
        [K, D]; the choice goes by them from here on."""
        middle = vectors.mean(0)
        self._vectors = unit(vectors - middle)
        self._names = None if names is None else unit(names - middle)
        sample = self._shuffled[~self.apart[self._shuffled]][:_SAMPLE]
        self._sample = self._vectors[sample]
        self._weights = np.ones(len(sample), dtype=np.float32)
        self._covered = np.zeros(len(sample), dtype=np.float32)
        self._seeing = True
        for row in self.learned:
            self._cover(row)
        self._fitted = 0

    def label(self, row: int, kind: int) -> None:
        """Note the class `kind` of a text, or another one than before."""
        if self.labels[row] < 0:
            self.order.append(row)
            self._asked[row] = True
            if self._seeing and not self.apart[row]:
                self._cover(row)
        elif self.labels[row] != kind:
            self._correct()
        self.labels[row] = kind

    def forget(self, row: int) -> None:
        """Forget the label of a text; it is not asked again."""
        if self.labels[row] >= 0:
            self.order.remove(row)
            self.labels[row] = -1
            self._correct()

    def _correct(self) -> None:
        """Fit all heads again, since a label that they have learned was wrong."""
        self._heads.clear()
        self._fitted = 0

    def ask(self, count: int) -> list[Question]:
        """Choose `count` texts, fewer if there are no more. A text is asked once."""
        if self._seeing and len(self.order) > (1 + _GROWN) * self._fitted:
            self.refit()
        at_random = not self._seeing or (
            self.comparison is not None and self.comparison.random_wins
        )
        judges = int((self.apart & ~self._asked).sum())
        reasons: list[Reason] = []
        begin = int(self._asked.sum())
        for place in range(begin, begin + count):
            if place % _APART == _APART - 1 and reasons.count("judge") < judges:
                reasons.append("judge")
            else:
                reasons.append("random" if at_random or place % _RANDOM == 0 else "rule")
        by_rule = reasons.count("rule")
        chosen = [
            *self._drawn(self.apart, reasons.count("judge"), "judge"),
            *self._drawn(~self.apart, reasons.count("random"), "random"),
        ]
        if by_rule:
            named = self._nearest_to_names((by_rule + 1) // 2)
            chosen += [*named, *self._covering(by_rule - len(named))]
        # Where one kind has run out, the others take its places.
        short = count - len(chosen)
        chosen += self._drawn(~self.apart, short, "random")
        chosen += self._drawn(self.apart, count - len(chosen), "judge")
        return _in_turn(chosen, reasons)

    def refit(self) -> None:
        """Fit the head to all labels but those set apart, and compare the rule with random
        labels."""
        self._fitted = len(self.order)
        learned, judges = self.learned, self.judges
        self.head, self._fitted_to = self._fit(learned), learned
        self._weights = np.ones(len(self._sample), dtype=np.float32)
        if self.head is not None:
            self._weights = self.head.uncertainty(self._sample)
        judges = judges[:_MOST_JUDGES]
        half = len(judges) // 2
        if len(judges) < _LEAST_JUDGES or len(learned) < half:
            return
        right_by_random = right_by_rule = 0
        by_rule = self._fit(learned[:half])
        for known, unseen in ((judges[:half], judges[half:]), (judges[half:], judges[:half])):
            right_by_random += self._right(self._fit(known[:half]), unseen)
            right_by_rule += self._right(by_rule, unseen)
        count = len(judges)
        self.comparison = Comparison(half, count, right_by_rule / count, right_by_random / count)

    @property
    def learned(self) -> np.ndarray:
        """The labelled texts that the head learns from, in their order, int64 [n]."""
        order = np.array(self.order, dtype=np.int64)
        return order[~self.apart[order]]

    @property
    def judges(self) -> np.ndarray:
        """The labelled texts that are set apart, in their order, int64 [n]."""
        order = np.array(self.order, dtype=np.int64)
        return order[self.apart[order]]

    def accuracy(self) -> tuple[float, float, float] | None:
        """Return the share of the labels set apart that the head gives, with its 95% interval;
        None: there is no head, or no such label."""
        judges = self.judges
        if self.head is None or not len(judges):
            return None
        right = self._right(self.head, judges)
        return right / len(judges), *wilson_interval(right, len(judges))

    def curve(self) -> list[tuple[int, float]]:
        """Return the accuracy of heads that were fitted to the first 8, 11, 16, … labels, and of
        the one that was fitted last: the number of labels, and the share of all labels set apart
        that it gives. So the points differ by what the heads have learned alone."""
        learned, judges, size = self.learned, self.judges, float(_FIRST_POINT)
        if self.head is None or not len(judges):
            return []
        points = {}
        while (count := round(size)) < len(learned):
            if count not in self._heads:
                self._heads[count] = self._fit(learned[:count])
            points[count] = self._heads[count]
            size *= _TO_NEXT_POINT
        points[len(self.head.unseen)] = self.head
        return [
            (count, self._right(head, judges) / len(judges))
            for count, head in sorted(points.items())
        ]

    def contradicted(self, most: int) -> list[tuple[int, int, float]]:
        """Return the labels that the head as last fitted contradicts most, the clearest first; at
        most `most`, and a twentieth of those that it learned. Those set apart are not among them:
        an accuracy on labels that were changed wherever the head gives others is not honest.

        Returns:
            The row, the class that a head gives it that was fitted to all other labels, and its
            probability.
        """
        if self.head is None:
            return []
        most = min(most, len(self.head.unseen) // _CONTRADICTED)
        chances, rows = self.head.unseen, self._fitted_to
        # Labels that were taken back since, or of classes that are new since, have no chance.
        known = (self.labels[rows] >= 0) & (self.labels[rows] < chances.shape[1])
        chances, rows = chances[known], rows[known]
        at, best = np.arange(len(rows)), chances.argmax(1)
        doubt = chances[at, best] - chances[at, self.labels[rows]]
        return [
            (int(rows[place]), int(best[place]), float(chances[place, best[place]]))
            for place in np.argsort(-doubt, kind="stable")[:most]
            if doubt[place] > 0
        ]

    def _fit(self, rows: np.ndarray) -> Head | None:
        labels = self.labels[rows]
        if len(np.unique(labels)) < 2:
            return None
        return fit_head(self._vectors[rows], labels, self.classes)

    def _cover(self, row: int) -> None:
        self._covered = np.maximum(self._covered, nearness_of(self._vectors[row], self._sample))

    def _right(self, head: Head | None, rows: np.ndarray) -> int:
        """Count the labels that a head gives; without one, those of the most frequent class."""
        if head is None:
            return int(np.bincount(self.labels[rows]).max(initial=0))
        return int((head.classes(self._vectors[rows]) == self.labels[rows]).sum())

    def _drawn(self, among: np.ndarray, count: int, reason: Reason) -> list[Question]:
        """Take the first texts of the shuffled ones that were not asked."""
        free = self._shuffled[(among & ~self._asked)[self._shuffled]][: max(0, count)]
        self._asked[free] = True
        return [Question(row, reason) for row in free.tolist()]

    def _nearest_to_names(self, most: int) -> list[Question]:
        """Choose the text that is nearest to the name of each class without a label."""
        known = np.array(self.order, dtype=np.int64)
        free = np.flatnonzero(~self.apart & ~self._asked)
        if self._names is None or not len(free):
            return []
        if len(known) >= _COUNTED:
            guessed = (self._vectors[known] @ self._names.T).argmax(1)
            right = float((guessed == self.labels[known]).mean())
            if right < _BETTER_THAN_CHANCE / self.classes:
                return []
        missing = np.setdiff1d(np.arange(len(self._names)), self.labels[known])[:most]
        near = self._vectors[free] @ self._names[missing].T
        rows = list(dict.fromkeys(free[near.argmax(0)].tolist()))
        self._asked[rows] = True
        return [Question(row, "name") for row in rows]

    def _covering(self, count: int) -> list[Question]:
        """Choose the texts that add most to what is covered of the uncertain ones; of many labels
        every second goes to the most uncertain text instead, since what is not covered by then are
        the odd ones."""
        free, asked = np.flatnonzero(~self.apart & ~self._asked), int(self._asked.sum())
        if len(free) > _CANDIDATES:
            draw = generator(self._seed, "candidates", asked)
            free = draw.choice(free, max(_CANDIDATES, min(len(free), 2 * count)), replace=False)
        count = min(count, len(free))
        chosen: list[int] = []
        if self.head is not None and len(self.order) >= _MANY:
            unsure = self.head.uncertainty(self._vectors[free])
            chosen = np.argsort(-unsure, kind="stable")[: (count + asked % 2) // 2].tolist()
        nearness = nearness_of(self._vectors[free], self._sample)
        covered = np.maximum(self._covered, nearness[chosen].max(0, initial=0))
        rest = np.delete(np.arange(len(free)), chosen)
        more, covered = cover(nearness[rest], self._weights, covered, count - len(chosen))
        rows = free[[*chosen, *rest[more]]]
        self._asked[rows], self._covered = True, covered
        return [Question(row, "rule") for row in rows.tolist()]


def nearness_of(vectors: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Return how much texts cover of each text of a sample, fp32 [n, R], by vectors of length 1:
    the square of the cosine, if it is above 0."""
    cosines = vectors @ sample.T
    return np.asarray(np.square(np.maximum(cosines, 0, out=cosines), out=cosines))


def cover(
    nearness: np.ndarray, weights: np.ndarray, covered: np.ndarray, count: int
) -> tuple[list[int], np.ndarray]:
    """Choose `count` of n texts, one after the other, each the one that adds most to what is
    covered of R weighted texts.

    Args:
        nearness: how much each text covers of each, fp32 [n, R].
        weights: fp32 [R].
        covered: how much is covered already, fp32 [R].

    Returns:
        The texts in their order, and how much is covered then.
    """
    chosen: list[int] = []
    for _ in range(min(count, len(nearness))):
        gains = np.maximum(nearness - covered, 0) @ weights
        gains[chosen] = -1.0
        best = int(gains.argmax())
        chosen.append(best)
        covered = np.maximum(covered, nearness[best])
    return chosen, covered


def _in_turn(chosen: Sequence[Question], reasons: Sequence[Reason]) -> list[Question]:
    """Put the questions into the order in which their reasons take turns."""
    waiting: dict[str, list[Question]] = {}
    for question in chosen:
        kind = "rule" if question.reason == "name" else question.reason
        waiting.setdefault(kind, []).append(question)
    ordered = [waiting[reason].pop(0) for reason in reasons if waiting.get(reason)]
    return [*ordered, *(question for rest in waiting.values() for question in rest)]
