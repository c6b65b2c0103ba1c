"""Fit linear models on tf-idf or dense features: logistic regression, ridge regression, choices.

One solver (L-BFGS over the summed loss plus an L2 penalty) serves every kind of target: one class,
several labels, one choice of an example, a number. The strength of the penalty is chosen by
cross-validation on the same loss. scikit-learn has most of these models, but not the softmax among
the choices of an example, and not all labels at once. The features are the tf-idf of words and
characters (:class:`NgramFeatures`).

Shape legend: M rows of the matrix, N examples, D features, K outputs.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertine.core.rng import generator

#: Features of examples: fp32 [M, D], or the same as a sparse matrix (CSR).
Matrix = Any

#: Examples used to choose the penalty; more do not help.
_CHOSEN_ON = 1_000
_FOLDS = 3
#: The maximum number of iterations of the solver, and the relative gain of one iteration below
#: which it stops: while the penalty is chosen, and for the final fit.
_TRIED, _FITTED = (60, 1e-4), (300, 1e-7)
#: Scores that are computed at once: with thousands of outputs, those of all examples would take
#: gigabytes.
_AT_ONCE = 2**22
#: The maximum of numbers that the solver keeps (two per weight for each earlier step), and of
#: steps.
_KEPT, _STEPS = 2**26, 10
#: Up to this number of rows the solver works in the span of the rows, if that is smaller than the
#: features.
_ROTATED = 2_000


@dataclass(frozen=True)
class Targets(ABC):
    """The targets of a linear model.

    Attributes:
        values: one for each example, [N], or one for each output too, [N, K]. Whole numbers are the
            strata of the examples, which are spread evenly over the folds.
    """

    values: np.ndarray

    @property
    def outputs(self) -> int:
        """The number of outputs, K."""
        return 1 if self.values.ndim == 1 else int(self.values.shape[1])

    @property
    def strata(self) -> np.ndarray:
        """int64 [N]: the stratum of each example."""
        whole = self.values.dtype.kind == "i"
        return self.values if whole else np.zeros(len(self.values), dtype=np.int64)

    def take(self, examples: np.ndarray) -> tuple[np.ndarray, Targets]:
        """Return the rows of the matrix that belong to `examples` (int64 [n]), and their
        targets."""
        return examples, replace(self, values=self.values[examples])

    @abstractmethod
    def loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the summed loss of fp64 scores [M, K], and its gradient [M, K]."""


@dataclass(frozen=True)
class ClassTargets(Targets):
    """Targets that are one of K classes: cross-entropy. `values` are int64, `weights` fp64 [K] (one
    a class)."""

    classes: int
    weights: np.ndarray | None = None

    @property
    def outputs(self) -> int:
        return self.classes

    def loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        log = log_softmax(scores)
        rows = np.arange(len(scores))
        gradient = np.exp(log)
        gradient[rows, self.values] -= 1.0
        losses = -log[rows, self.values]
        if self.weights is not None:
            weights = self.weights[self.values]
            losses, gradient = losses * weights, gradient * weights[:, None]
        return float(losses.sum()), gradient


@dataclass(frozen=True)
class ShareTargets(Targets):
    """Targets that are probabilities of K classes, fp64: cross-entropy."""

    @property
    def strata(self) -> np.ndarray:
        return self.values.argmax(-1)

    def loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        log = log_softmax(scores)
        gradient = np.exp(log) * self.values.sum(-1, keepdims=True) - self.values
        return float(-(self.values * log).sum()), gradient


@dataclass(frozen=True)
class LabelTargets(Targets):
    """Targets that are any of K labels, fp64 0 or 1: binary cross-entropy. `weights` is fp64 [K],
    the weight of a label that is present."""

    weights: np.ndarray | None = None

    def loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        item = np.logaddexp(0.0, scores) - self.values * scores
        gradient = sigmoid(scores) - self.values
        if self.weights is not None:
            weights = np.where(self.values > 0, self.weights, 1.0)
            item, gradient = item * weights, gradient * weights
        return float(item.sum()), gradient


@dataclass(frozen=True)
class NumberTargets(Targets):
    """Targets that are numbers, fp64, best with mean 0 and variance 1: half the squared error."""

    def loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        error = scores[:, 0] - self.values
        return float(0.5 * (error**2).sum()), error[:, None]


@dataclass(frozen=True)
class ChoiceTargets(Targets):
    """Targets that are the right one of an example's rows, which are adjacent: cross-entropy of the
    softmax among them. `values` are int64, counted from the first row; `starts` is int64
    [N + 1]."""

    starts: np.ndarray

    def take(self, examples: np.ndarray) -> tuple[np.ndarray, ChoiceTargets]:
        rows = [np.arange(self.starts[item], self.starts[item + 1]) for item in examples]
        starts = np.concatenate([[0], np.cumsum([len(item) for item in rows])])
        return np.concatenate(rows), ChoiceTargets(self.values[examples], starts)

    def loss(self, scores: np.ndarray) -> tuple[float, np.ndarray]:
        log = grouped_log_softmax(scores[:, 0], self.starts)
        rows = self.starts[:-1] + self.values
        gradient = np.exp(log)
        gradient[rows] -= 1.0
        return float(-log[rows].sum()), gradient[:, None]


@dataclass(frozen=True)
class LinearModel:
    """A linear model: scores = x · weights + bias.

    Attributes:
        weights: fp64 [D, K].
        bias: fp64 [K].
        strength: the factor of the summed loss against half the squared weights (scikit-learn's
            C): the higher, the weaker the penalty.
        left_out: the held-out examples of the cross-validation that chose the strength: the
            examples (int64 [n], ascending), their rows of the matrix (int64 [m]), and the scores
            (fp64 [m, K]) of these rows by models that had not seen them; None: there was no
            cross-validation.
    """

    weights: np.ndarray
    bias: np.ndarray
    strength: float
    left_out: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def scores(self, matrix: Matrix) -> np.ndarray:
        """Compute the scores fp64 [M, K] of a matrix [M, D]."""
        return np.asarray(matrix @ self.weights.astype(np.float32), np.float64) + self.bias


def fit_linear(
    matrix: Matrix,
    targets: Targets,
    strengths: Sequence[float],
    *,
    score: Callable[[np.ndarray, np.ndarray], float] | None = None,
) -> LinearModel:
    """Fit a linear model with the best of `strengths` in cross-validation (three folds, at most
    1,000 examples). A single strength is used as it is.

    The same arguments give the same model.

    Args:
        matrix: [M, D].
        targets: the targets of its N examples.
        strengths: see :class:`LinearModel`.
        score: maps scores [m, K] and their examples (int64 [n]) to a quality, higher is better;
            None: the lowest loss is best. Equal scores are ordered by the loss, too.
    """
    best, left_out = strengths[0], None
    if len(strengths) > 1:
        best, left_out = _chosen(matrix, targets, strengths, score)
    rows, features = matrix.shape
    if features <= rows or rows > _ROTATED:
        return replace(_fit(matrix, targets, best, None, *_FITTED), left_out=left_out)
    small, back = _rotated(matrix)
    model = _fit(small, targets, best, None, *_FITTED)
    weights = np.asarray(matrix.T @ (back @ model.weights))
    return replace(model, weights=weights, left_out=left_out)


def _chosen(
    matrix: Matrix,
    targets: Targets,
    strengths: Sequence[float],
    score: Callable[[np.ndarray, np.ndarray], float] | None,
) -> tuple[float, tuple[np.ndarray, np.ndarray, np.ndarray] | None]:
    """Return the strength that is best on held-out examples, and the predictions for these."""
    strata = targets.strata
    order = generator(0, "folds").permutation(len(strata))[:_CHOSEN_ON]
    order = np.sort(order)
    of_matrix, targets = targets.take(order)
    matrix = matrix[of_matrix]
    if matrix.shape[1] > matrix.shape[0]:
        matrix = _rotated(matrix)[0]
    ids = order
    order = np.argsort(strata[ids], kind="stable")
    folds = min(_FOLDS, len(order))
    if folds < 2:
        return strengths[0], None
    strengths = sorted(strengths)
    losses = np.zeros(len(strengths))
    held_scores: list[list[np.ndarray]] = [[] for _ in strengths]
    numbers, places = [], []
    for fold in range(folds):
        apart = np.arange(len(order)) % folds == fold
        rows, train = targets.take(order[~apart])
        others, held = targets.take(order[apart])
        numbers.append(order[apart])
        places.append(others)
        model: LinearModel | None = None
        known, new = matrix[rows], matrix[others]
        # From strong to weak penalties; each fit starts from the weights of the one before.
        for at, strength in enumerate(strengths):
            model = _fit(known, train, strength, model, *_TRIED)
            held_scores[at].append(model.scores(new))
            losses[at] += held.loss(held_scores[at][-1])[0]
    best = int(losses.argmin())
    if score is not None:
        examples = ids[np.concatenate(numbers)]
        reached = [score(np.concatenate(item), examples) for item in held_scores]
        best = max(range(len(strengths)), key=lambda at: (round(reached[at], 9), -losses[at]))
    in_order = np.argsort(np.concatenate(places))  # these are all rows, each once
    return strengths[best], (ids, of_matrix, np.concatenate(held_scores[best])[in_order])


def _rotated(matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of `matrix` in coordinates of their own span, fp32 [M, M], with the same
    products among each other, and the map from weights for these (fp64 [M, K]) to weights for the
    rows, fp64 [M, M]. A linear model with an L2 penalty has its weights in that span."""
    gram = matrix @ matrix.T
    table = np.asarray(gram.todense() if hasattr(gram, "todense") else gram, np.float64)
    values, vectors = np.linalg.eigh(table)
    root = np.sqrt(np.maximum(values, 0.0))
    inverse = np.where(root > 1e-4 * root.max(initial=0.0), 1.0 / np.maximum(root, 1e-12), 0.0)
    return np.asarray(vectors * root, np.float32), vectors * inverse


def _fit(
    matrix: Matrix,
    targets: Targets,
    strength: float,
    start: LinearModel | None,
    iterations: int,
    least_gain: float,
) -> LinearModel:
    features, outputs = matrix.shape[1], targets.outputs
    count = max(1, len(targets.strata))
    blocks = list(_blocks(matrix, targets))

    def unpacked(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        table = flat.reshape(features + 1, outputs)
        return table[:-1], table[-1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = unpacked(flat)
        small = weights.astype(np.float32)
        gradient = np.zeros((features + 1, outputs))
        loss = 0.0
        for rows, transposed, wanted in blocks:
            scores = np.asarray(rows @ small, np.float64) + bias
            more, slope = wanted.loss(scores)
            loss += more
            gradient[:-1] += transposed @ slope.astype(np.float32)
            gradient[-1] += slope.sum(0)
        gradient[:-1] += weights / strength
        penalty = 0.5 * float((weights**2).sum()) / strength
        return (loss + penalty) / count, gradient.reshape(-1) / count

    begin = np.zeros((features + 1) * outputs)
    if start is not None:
        begin = np.concatenate([start.weights, start.bias[None]]).reshape(-1)
    # Late, as in the functions below: it takes 40 MB, which training should not have to share.
    from scipy import optimize

    done = optimize.minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": iterations,
            "maxcor": min(_STEPS, max(1, _KEPT // (2 * len(begin)))),
            "gtol": 1e-6,
            "ftol": least_gain,
        },
    )
    weights, bias = unpacked(done.x)
    return LinearModel(weights.copy(), bias.copy(), strength)


def _blocks(matrix: Matrix, targets: Targets) -> Iterator[tuple[Matrix, Matrix, Targets]]:
    """Divide examples into parts with a bounded number of scores: the rows of the matrix, the same
    transposed, and their targets."""
    count = len(targets.strata)
    item = max(1, _AT_ONCE // targets.outputs)
    for start in range(0, count, item):
        rows, wanted = matrix, targets
        if item < count:
            of_matrix, wanted = targets.take(np.arange(start, min(count, start + item)))
            rows = matrix[of_matrix]
        yield rows, rows.T.tocsr() if hasattr(rows, "tocsr") else rows.T, wanted


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the softmax over the last dimension."""
    shifted = scores - scores.max(-1, keepdims=True)
    logarithms: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logarithms


def grouped_log_softmax(scores: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the softmax, fp64 [M], over the groups that begin at `starts` (int64
    [N + 1], the end too)."""
    sizes = np.diff(starts)
    top = np.repeat(np.maximum.reduceat(scores, starts[:-1]), sizes)
    total = np.add.reduceat(np.exp(scores - top), starts[:-1])
    logarithms: np.ndarray = scores - top - np.repeat(np.log(total), sizes)
    return logarithms


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Compute 1 / (1 + exp(-x)) without overflow."""
    shares: np.ndarray = 0.5 * (1.0 + np.tanh(0.5 * scores))
    return shares


# tf-idf features: words and characters of texts and of pairs of texts.
#
# Shape legend: N texts, D features.

#: A word, or a single sign.
_WORD = re.compile(r"\w+|[^\w\s]")
#: Scripts without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese.
_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_SPACELESS_SHARE = 0.3
#: The maximum of characters of a text that are counted, and of features of each kind.
_CHARACTERS, _FEATURES = 5_000, 200_000


class NgramFeatures:
    """The tf-idf of words and pairs of words, and of 2 to 4 characters inside words, learned from
    `texts`; in scripts without spaces, of 1 to 3 characters.

    For pairs (two texts in each of `texts`) the features are those of both texts, their common
    part, their difference, and measures of the overlap.

    Args:
        most: the maximum number of features of each kind (words, characters); the frequent ones are
            kept.
    """

    def __init__(self, texts: Sequence[Sequence[str]], most: int = _FEATURES) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        flat = [_cut(item) for row in texts for item in row]
        sample = "".join(item[:200] for item in flat[:500])
        spaceless = len(_SPACELESS.findall(sample)) > _SPACELESS_SHARE * len(sample)
        # Of many texts, features that occur in only one are dropped.
        least = 2 if len(flat) > 1_000 else 1
        common: dict[str, Any] = {
            "sublinear_tf": True,
            "max_features": min(_FEATURES, most),
            "min_df": least,
            "dtype": np.float32,
        }
        kinds = [TfidfVectorizer(analyzer="char", ngram_range=(1, 3), **common)]
        if not spaceless:
            kinds = [
                TfidfVectorizer(token_pattern=_WORD.pattern, ngram_range=(1, 2), **common),
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **common),
            ]
        self._spaceless = spaceless
        self._kinds = []
        for kind in kinds:
            try:
                self._kinds.append(kind.fit(flat))
            except ValueError:  # no text has a word
                continue
        self._scale: tuple[np.ndarray, np.ndarray] | None = None

    def matrix(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Compute the features, sparse fp32 [N, D]. The first call with pairs fixes the scaling of
        their overlaps."""
        from scipy import sparse

        columns = [self.of_texts([row[at] for row in texts]) for at in range(len(texts[0]))]
        if len(columns) == 1:
            return columns[0]
        first, second = columns
        overlap = overlaps(texts, first, second, characters=self._spaceless)
        if self._scale is None:
            self._scale = overlap.mean(0), overlap.std(0) + 1e-6
        mean, deviation = self._scale
        return sparse.hstack(
            [
                first,
                second,
                first.multiply(second),
                abs(first - second),
                sparse.csr_matrix(((overlap - mean) / deviation).astype(np.float32)),
            ]
        ).tocsr()

    def of_texts(self, texts: Sequence[str]) -> Matrix:
        """Compute the features of single texts, sparse fp32 [N, D]; each kind of feature has length
        1."""
        from scipy import sparse

        parts = [kind.transform(map(_cut, texts)) for kind in self._kinds]
        if not parts:
            return sparse.csr_matrix((len(texts), 1), dtype=np.float32)
        return sparse.hstack(parts).tocsr()


def overlaps(
    texts: Sequence[Sequence[str]], first: Matrix, second: Matrix, *, characters: bool
) -> np.ndarray:
    """Measure the overlap of two texts, fp64 [N, 7]: the cosine of their tf-idf, the share of the
    words of each in the other and in both, the logarithms of their lengths, and whether only one of
    them has a negation."""
    cosine = np.asarray(first.multiply(second).sum(1)).reshape(-1)
    rows = []
    for at, row in enumerate(texts):
        a, b = (_words(item, characters) for item in row[:2])
        both = len(a & b)
        rows.append(
            [
                float(cosine[at]),
                both / max(1, len(a)),
                both / max(1, len(b)),
                both / max(1, len(a | b)),
                np.log1p(len(a)),
                np.log1p(len(b)),
                float(bool(a & _NEGATIONS) != bool(b & _NEGATIONS)),
            ]
        )
    return np.array(rows, dtype=np.float64)


_NEGATIONS = frozenset(("not", "no", "never", "nothing", "nobody", "none", "t", "n't"))


def _words(text: str, characters: bool) -> set[str]:
    text = _cut(text).lower()
    return set(text) if characters else set(_WORD.findall(text))


def _cut(text: str) -> str:
    return text[:_CHARACTERS]
