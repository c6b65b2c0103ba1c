"""Compare scores with those of baselines, and report results for users and programs."""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bertine.core.console import Report, aligned, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.scores import better_baseline, score_text, wilson_interval
from bertine.core.strict_json import Readable
from bertine.core.text import listing, visible
from bertine.tasks.answer import OneLabel, WorstExample, worst_lines
from bertine.tasks.calibration import Reliability, coverage_line

# Baselines: a model compared with cheap ones on the same examples.

#: The name of the baseline that trains only the head.
HEAD_ALONE = "frozen vectors"
#: The names of a search by words, and by words and vectors.
BY_WORDS, HYBRID = "BM25", "hybrid"
#: The most scores in a table of baselines, including those by which the task is judged.
_SHOWN = 3


@dataclass(frozen=True)
class BaselineScore(Readable):
    """The scores of one baseline.

    Attributes:
        name: "majority", "tf-idf", "frozen vectors", …
        metrics: of the task's report, under the same names.
        seconds: for fitting and answering.
        num_train: number of examples it was fitted on.
        num_judged: number of examples it was judged on.
        may_win: see :func:`~bertine.core.scores.better_baseline`.
    """

    name: str
    metrics: dict[str, float]
    seconds: float
    num_train: int = 0
    num_judged: int = 0
    may_win: bool = True


def winner(
    metrics: Mapping[str, float], judged: Sequence[str], baselines: Sequence[BaselineScore]
) -> BaselineScore | None:
    """Return the best of the baselines if it is better than a model with these `metrics` by more
    than chance; otherwise None."""
    values = [baseline.to_dict() for baseline in baselines]
    name = better_baseline(metrics, judged, values, 0)
    return next((baseline for baseline in baselines if baseline.name == name), None)


def baseline_lines(
    metrics: Mapping[str, float],
    judged: Sequence[str],
    baselines: Sequence[BaselineScore],
    most: int = _SHOWN,
) -> list[str]:
    """Return a table of the model and the baselines, with a headline if one of them wins; nothing
    without baselines.

    Args:
        metrics: of the model.
        judged: the metrics by which the task is judged.
        baselines: judged on the same examples.
        most: the most scores in the table, beside those of `judged`.
    """
    if not baselines:
        return []
    names = shown_metrics(metrics, judged, most)
    rows = [["", *names], ["this model", *(score_text(name, metrics.get(name)) for name in names)]]
    for baseline in baselines:
        rows.append(
            [baseline.name, *(score_text(name, baseline.metrics.get(name)) for name in names)]
        )
    lines = aligned(rows, head=True)
    best = winner(metrics, judged, baselines)
    if best is not None:
        by = " and ".join(judged)
        lines.insert(
            0,
            f"a baseline wins: {best.name} is better than this model by {by}, by more than chance; "
            + what_to_do(best.name),
        )
    return lines


def what_to_do(name: str) -> str:
    """Return advice for the case that the baseline of this name wins."""
    if name == HEAD_ALONE:
        return f"{option('frozen', True)} trains that one"
    if name in (BY_WORDS, HYBRID):
        return f"'bertine similar' with {option('hybrid', True)} searches by words too"
    return "use it, or train longer, on more labels or from another model"


def shown_metrics(
    metrics: Mapping[str, float], judged: Sequence[str], most: int = _SHOWN
) -> list[str]:
    """Return the names of the scores in a table of baselines: those by which the task is judged,
    then others, `most` in all, losses and errors last."""
    order = [name for name in judged if name in metrics]
    others = [name for name in metrics if name not in order]
    others.sort(key=lambda name: name.endswith(("loss", "error")))
    return [*order, *others][: max(most, len(order))]


#: The key of the most frequent training label in the training facts of a model directory.
MAJORITY = "training_majority"

#: The most classes of a confusion matrix in a terminal, and in a file; beyond that the most
#: frequent confusions are reported.
_MATRIX_LIMIT, _MATRIX_WRITTEN = 10, 100
_WORST, _CONFUSED = 10, 100

#: Scores of a classifier that are not shares of 1.
_PLAIN = ("loss", "matthews", "mean_cost", "most_probable_mean_cost", "mean_set_size")
#: The most labels in the terminal; rarer ones are in the JSON and in the report of a run.
_REPORT_SHOWN = 20


# Reports: the scores of a task, as lines and as JSON.


@dataclass(repr=False, kw_only=True)
class EvaluationReport(Report):
    """The result of an evaluation.

    Attributes:
        source: the file of the examples.
        notes: further facts for the user, e.g. how many texts were cut.
        worst: the examples predicted worst, highest loss first, if they were asked for.
        metrics: the scores by name.
        collapsed: whether the model gives the same answer for every example, although the truth
            differs: then it learned nothing, even if the score looks good.
    """

    source: str = ""
    notes: list[str] = field(default_factory=list)
    worst: list[WorstExample] = field(default_factory=list)

    if TYPE_CHECKING:  # fields or properties of the classes with this base

        @property
        def metrics(self) -> dict[str, float]: ...

        @property
        def collapsed(self) -> bool: ...

    def headline(self, size: str, metrics: Mapping[str, float], plain: Container[str] = ()) -> str:
        """Return the first line: the number of scored examples, and the scores, all but the `plain`
        ones as percentages."""
        scores = [
            f"{name} {value:.4f}" if name in plain else f"{name} {value:.2%}"
            for name, value in metrics.items()
        ]
        origin = f" of {self.source}" if self.source else ""
        return f"{size}{origin}: {', '.join(scores)}"


def require_some(predictions: Sequence[Any], what: str = "examples") -> None:
    """Refuse to report on no predictions.

    Raises:
        BertineError: there are no predictions.
    """
    if not predictions:
        raise BertineError(f"there are no {what} to evaluate on")


def label_lines(
    per_label: Mapping[str, Mapping[str, float]], order: Sequence[str] = ()
) -> list[str]:
    """Return a table of labels with their scores, in this `order`, or else the most frequent
    first."""
    order = order or sorted(per_label, key=lambda label: -per_label[label]["support"])
    names = [visible(label) for label in order[:_REPORT_SHOWN]]
    rows = [["label", "precision", "recall", "f1", "support"]]
    for label, name in zip(order, names, strict=False):
        scores = per_label[label]
        rows.append(
            [
                name,
                *(f"{scores[score]:.2%}" for score in ("precision", "recall", "f1")),
                f"{scores['support']:.0f}",
            ]
        )
    lines = aligned(rows, head=True)
    if len(order) > _REPORT_SHOWN:
        lines.append(f"and {plural(len(order) - _REPORT_SHOWN, 'label')} more")
    return lines


@dataclass(repr=False)
class ClassificationReport(EvaluationReport):
    """The scores of a classifier on labelled examples.

    Attributes:
        labels: the classes; K of them.
        metrics: scores by name, as fractions of 1; ``loss`` in nats.
        counts: how often an example of the first class was predicted as the second, by numbers.
        training_majority: the most frequent label of the training examples; None: unknown.
        reliability: how often answers are right, by their probability; None: unknown.
        order: the labels in the order of the tables; empty: the usual one.
    """

    labels: tuple[str, ...]
    metrics: dict[str, float]
    counts: Mapping[tuple[int, int], int]
    training_majority: str | None = None
    reliability: Reliability | None = None
    order: tuple[str, ...] = ()

    json_keys = (
        *("source", "num_examples", "metrics", "accuracy_interval", "majority_label"),
        *("majority_share", "collapsed", "labels", "per_label", "reliability", "notes"),
    )

    @cached_property
    def _sizes(self) -> tuple[list[int], list[int], list[int]]:
        """How many predictions of each class are right, its examples, and its predictions."""
        right, support, predicted = ([0] * len(self.labels) for _ in range(3))
        for (true, guess), count in self.counts.items():
            support[true] += count
            predicted[guess] += count
            if true == guess:
                right[true] += count
        return right, support, predicted

    @property
    def num_examples(self) -> int:
        return sum(self.counts.values())

    @property
    def confusion(self) -> list[list[int]]:
        """The confusion matrix, [K][K] counts: true class by row, predicted class by column."""
        matrix = [[0] * len(self.labels) for _ in self.labels]
        for (true, guess), count in self.counts.items():
            matrix[true][guess] = count
        return matrix

    @property
    def confused(self) -> list[tuple[str, str, int, int]]:
        """The most frequent confusions: true class, predicted class, how often, and the number of
        examples of the true one."""
        _, support, _ = self._sizes
        wrong = [(-count, *pair) for pair, count in self.counts.items() if pair[0] != pair[1]]
        return [
            (self.labels[true], self.labels[guess], -count, support[true])
            for count, true, guess in heapq.nsmallest(_CONFUSED, wrong)
        ]

    @property
    def majority_label(self) -> str:
        """The most frequent label of the training examples, as in the baseline "majority"; if that
        is unknown, of these examples (ties go to the first)."""
        if self.training_majority in self.labels:
            return str(self.training_majority)
        _, support, _ = self._sizes
        return self.labels[support.index(max(support))]

    @property
    def majority_share(self) -> float:
        """The accuracy of always answering `majority_label`, which a model must exceed."""
        _, support, _ = self._sizes
        return support[self.labels.index(self.majority_label)] / max(1, self.num_examples)

    @property
    def collapsed(self) -> bool:
        """Whether all predictions are one class although there are several classes."""
        _, support, predicted = self._sizes
        return sum(map(bool, predicted)) == 1 and sum(map(bool, support)) > 1

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95% interval of the accuracy, from 0 to 1, for other examples of the same kind
        (Wilson 1927)."""
        right, _, _ = self._sizes
        return wilson_interval(sum(right), self.num_examples)

    @property
    def per_label(self) -> dict[str, dict[str, float]]:
        """The scores of each label: ``precision``, ``recall``, ``f1`` (0 if there are no true, or
        no predicted ones), its number of examples (``support``) and of predictions
        (``predicted``)."""
        table = {}
        for label, right, support, predicted in zip(self.labels, *self._sizes, strict=True):
            table[label] = {
                "precision": right / predicted if predicted else 0.0,
                "recall": right / support if support else 0.0,
                "f1": 2 * right / (support + predicted) if support + predicted else 0.0,
                "support": support,
                "predicted": predicted,
            }
        return table

    def named(self, names: Sequence[str]) -> ClassificationReport:
        """Return the report with the labels in the order of `names`; labels that are the numbers 0,
        1, 2, … have the names that stand there.

        Raises:
            BertineError: there is another number of names, or they are other labels.
        """
        labels = self.labels
        if labels == tuple(map(str, range(len({*names})))):
            labels = tuple(names)
        if sorted(labels) != sorted(names):
            raise BertineError(
                f"class_names are {listing(names)}, but the model's labels are {listing(labels)}; "
                "give each of them once"
            )
        new = dict(zip(self.labels, labels, strict=True))
        majority = new.get(self.training_majority or "")
        worst = [replace(w, label=new[w.label], answer=new[w.answer]) for w in self.worst]
        order = tuple(names)
        return replace(self, labels=labels, training_majority=majority, worst=worst, order=order)

    def add_coverage(
        self, asked: float, answers: Sequence[OneLabel], labels: Sequence[str]
    ) -> None:
        """Add how often the sets of labels of the answers contain the right one."""
        sets = [answer.label_set for answer in answers]
        metrics, line = coverage_line(asked, sets, labels)
        self.metrics |= metrics
        self.notes.append(line)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values: with the confusion matrix or, for more than 100
        classes, where it would be mostly zeros, the most frequent confusions (`confused`)."""
        values = super().to_dict()
        if len(self.labels) <= _MATRIX_WRITTEN:
            return values | {"confusion": self.confusion}
        keys = ("actual", "predicted", "count", "of")
        return values | {"confused": [dict(zip(keys, e, strict=True)) for e in self.confused]}

    def lines(self) -> list[str]:
        """Return scores with the interval of the accuracy, the majority class, the class that f1 is
        for, the warning of a collapse, the scores of each label, and the confusion matrix."""
        where = " in training" if self.training_majority in self.labels else ""
        size = plural(self.num_examples, "example")
        lines = [
            self.headline(size, self.metrics, _PLAIN),
            f"majority class{where} {self.majority_label!r}: {self.majority_share:.2%}",
        ]
        if "accuracy" in self.metrics:
            low, high = self.accuracy_interval
            lines.insert(1, f"95% interval of the accuracy: {low:.1%} to {high:.1%}")
        if self.reliability is not None and self.reliability.bins:
            lines.append(self.reliability.line())
        if "f1" in self.metrics and len(self.labels) == 2:
            lines.append(f"f1 is that of the class {self.labels[1]!r}")
        if self.collapsed:
            _, _, predicted = self._sizes
            only = self.labels[predicted.index(max(predicted))]
            lines.append(
                f"collapsed: every prediction is {only!r}; train again with another seed, a lower "
                "learning rate or more epochs"
            )
        lines.extend(self.notes)
        lines += label_lines(self.per_label, self.order) + self._confusion_lines()
        return lines + worst_lines(self.worst)

    def _confusion_lines(self) -> list[str]:
        if len(self.labels) > _MATRIX_LIMIT:
            return [
                f"{plural(count, 'time')} {true!r} was taken for {guess!r}"
                for true, guess, count, _ in self.confused[:_WORST]
            ]
        order = [self.labels.index(label) for label in self.order or self.labels]
        names = [visible(self.labels[number]) for number in order]
        rows = [["actual label", *names]]
        for name, true in zip(names, order, strict=True):
            rows.append([name, *(str(self.confusion[true][guess]) for guess in order)])
        title = "how often each label (a row) was predicted as which (the columns):"
        return [title, *aligned(rows, head=True)]
