"""Score exported graphs and the model they were made from on the same labelled examples.

The task reads the examples and decides on answers, as in ``bertine evaluate``; a graph only
replaces the model between the two.

Shape legend: B sequences, T tokens of the longest, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import Shown, aligned, plural, progress
from bertine.core.errors import BertineError
from bertine.core.scores import is_share, jackknife_interval, score_text
from bertine.corpora.store import is_store
from bertine.data.in_memory import TableLike, as_data
from bertine.datasets.readers import DataConfig, read_evaluation
from bertine.hub.export import INPUTS, Runner
from bertine.inference.compute import CPU_TOKENS, in_batches, run_features
from bertine.inference.train_overlap import overlap_note
from bertine.models.heads import Model
from bertine.tasks.base import Features, Task
from bertine.tasks.report import ClassificationReport, shown_metrics
from bertine.tokenization.tokenizer import Tokenizer

#: The name of the model's own scores among those of the files.
MODEL = "model"
#: The number of parts of the examples that are left out in turn, for the interval of a difference.
_PARTS = 20


@dataclass(frozen=True)
class ScoreDifference:
    """The difference of a graph's score from the model's, on the same examples.

    Attributes:
        value: the graph's score minus the model's.
        interval: the 95% interval of the difference; None for fewer than 40 examples.
    """

    value: float
    interval: tuple[float, float] | None

    def text(self, metric: str) -> str:
        """Describe the difference of the score `metric`; shares of 1 in percentage points."""
        share = is_share(metric)
        digits, scale, unit = (2, 100, " points") if share else (4, 1, "")
        # Adding zero turns negative zero into zero.
        numbers = [
            round(number * scale, digits) + 0.0 for number in (self.value, *(self.interval or ()))
        ]
        if not any(numbers):
            return f"the same {metric}"
        value, *interval = (f"{number:+.{digits}f}" for number in numbers)
        sure = f" (95% interval {interval[0]} to {interval[1]})" if interval else ""
        return f"{metric} {value}{unit}{sure}"


@dataclass(frozen=True, repr=False)
class GraphScores(Shown):
    """The scores of a model, and of the graphs made from it, on the same labelled examples.

    Attributes:
        source: the file of the examples.
        num_examples: the number of examples.
        judged: the metrics by which the task is judged.
        metrics: the metrics by name, of ``"model"`` and of each file.
        intervals: the 95% interval of the accuracy, of ``"model"`` and of each file; empty where
            the task has no accuracy of examples.
        differences: the differences of each file from the model, by `judged` metric.
        notes: notes on the examples.
    """

    source: str
    num_examples: int
    judged: tuple[str, ...]
    metrics: dict[str, dict[str, float]]
    intervals: dict[str, tuple[float, float]]
    differences: dict[str, dict[str, ScoreDifference]]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a table of the scores, the intervals, and the distance of each file from the model
        as lines."""
        names = shown_metrics(self.metrics[MODEL], self.judged)
        rows = [["", *names]]
        rows += [
            [_row_name(file), *(score_text(name, metrics[name]) for name in names)]
            for file, metrics in self.metrics.items()
        ]
        origin = f" of {self.source}" if self.source else ""
        lines = [
            f"scores on {plural(self.num_examples, 'example')}{origin}:",
            *aligned(rows, head=True),
        ]
        if self.intervals:
            intervals = (
                f"{_row_name(file)} {low:.1%} to {high:.1%}"
                for file, (low, high) in self.intervals.items()
            )
            lines.append(f"95% interval of the accuracy: {', '.join(intervals)}")
        for file, differences in self.differences.items():
            texts = (difference.text(name) for name, difference in differences.items())
            lines.append(f"{file} against the model: {', '.join(texts)}")
        return lines + self.notes

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON values; the file of the examples only by name, without its
        folders."""
        return {
            "data": Path(self.source).name,
            "num_examples": self.num_examples,
            "metrics": self.metrics,
            "accuracy_intervals": {file: list(pair) for file, pair in self.intervals.items()},
            "differences": {
                file: {name: asdict(difference) for name, difference in differences.items()}
                for file, differences in self.differences.items()
            },
        }


class GraphScorer:
    """Labelled examples, read and tokenized, to score a model and its graphs on.

    Args:
        model: the model in fp32 on the CPU, in evaluation mode.
        tokenizer: the tokenizer of the model.
        task: the task of the model.
        data: a file, folder or table, as for ``evaluate``.
        reading: how `data` is read.
        training: the facts of the training in ``bertine.json``.

    Raises:
        BertineError: `data` is a token store or cannot be read; a column is missing; a label that
            the model does not know.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        task: Task[Any],
        data: Path | str | TableLike,
        reading: DataConfig,
        training: Mapping[str, Any],
    ) -> None:
        data = as_data(data)
        if isinstance(data, str | Path) and is_store(Path(data)):
            raise BertineError(
                f"{data}: is a token store, which has no labels; give labelled examples to score "
                "the graph on"
            )
        self._sets = read_evaluation(task, data, reading)
        self._training = training
        task = task.over(next(iter(self._sets.values())).text_columns)
        self._model, self._task, self._pad_id = model, task, tokenizer.pad_token_id
        self._features = {
            word: task.featurize(examples, tokenizer) for word, examples in self._sets.items()
        }

    def score(self, runners: Mapping[str, Runner], *, show_progress: bool) -> list[GraphScores]:
        """Score the model and each of `runners`, named by their files.

        Returns:
            The scores on each set of examples: most data sets have one.
        """
        count = sum(map(len, self._features.values())) * (1 + len(runners))
        with progress(show=show_progress) as bar:
            job = bar.add_task("score", total=count)
            return [
                self._score(word, runners, lambda done: bar.advance(job, done))
                for word in self._sets
            ]

    def _score(
        self, word: str, runners: Mapping[str, Runner], on_batch: Callable[[int], None]
    ) -> GraphScores:
        """Score on the set whose metrics have the prefix `word`."""
        task, examples, features = self._task, self._sets[word], self._features[word]
        outputs = {
            MODEL: run_features(self._model, task, features, pad_id=self._pad_id, on_batch=on_batch)
        }
        for name, run in runners.items():
            outputs[name] = _graph_outputs(
                run, task, features, pad_id=self._pad_id, on_batch=on_batch
            )
        labels = [example.label for example in examples.items if example.label is not None]
        answers = {name: task.decode(numbers, features) for name, numbers in outputs.items()}
        reports = {name: task.judge(answered, examples) for name, answered in answers.items()}
        notes = [*examples.notes, *task.notes(features)]
        if seen := overlap_note(self._training, examples):
            notes.insert(0, seen)
        judged = _judged(task, word, reports[MODEL].metrics)
        scored = _without_each_part(task, answers, labels, judged)
        return GraphScores(
            examples.source,
            len(labels),
            judged,
            {name: report.metrics for name, report in reports.items()},
            {
                name: report.accuracy_interval
                for name, report in reports.items()
                if isinstance(report, ClassificationReport) and "accuracy" in report.metrics
            },
            {
                name: {
                    metric: _difference(
                        reports[name].metrics[metric] - reports[MODEL].metrics[metric],
                        [a[metric] - b[metric] for a, b in zip(parts, scored[MODEL], strict=True)],
                    )
                    for metric in judged
                }
                for name, parts in scored.items()
                if name != MODEL
            },
            notes,
        )


def _graph_outputs(
    run: Runner,
    task: Task[Any],
    features: Sequence[Features],
    *,
    pad_id: int,
    on_batch: Callable[[int], None],
) -> list[np.ndarray]:
    """Compute the outputs of ``task.outputs`` for each of `features`, in their order, by a
    graph."""

    def compute(chosen: list[Features]) -> list[np.ndarray]:
        batch = task.collate(chosen, pad_id)
        tensors = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
        inputs = {
            name: tensor.numpy().astype(np.int64, copy=False)
            for name, tensor in zip(INPUTS, tensors, strict=True)
        }
        # Two of [B, T]: start and end of a span. For one number a sequence, [B, 1], the number.
        first, *others = run(inputs)
        if others:
            return list(np.stack([first, *others], -1))
        return list(first[:, 0] if task.single_output else first)

    return in_batches(features, CPU_TOKENS, compute, on_batch)


def _judged(task: Task[Any], word: str, metrics: Mapping[str, float]) -> tuple[str, ...]:
    """Choose the `metrics` that judge the task, in the set with the prefix `word`."""
    prefix = f"{word}_" if word else ""
    names = task.task_info().metrics or (task.primary_metric,)
    own = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return tuple(name for name in own if name in metrics) or (task.primary_metric,)


def _without_each_part(
    task: Task[Any],
    answers: Mapping[str, Sequence[Any]],
    labels: Sequence[Any],
    judged: Sequence[str],
) -> dict[str, list[dict[str, float]]]:
    """Compute the `judged` metrics of each of `answers` without each part of the examples in turn;
    nothing for fewer than two examples a part."""
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in answers}
    if len(labels) < 2 * _PARTS:
        return scores
    for part in range(_PARTS):
        kept = [index for index in range(len(labels)) if index % _PARTS != part]
        truth = [labels[index] for index in kept]
        for name, answered in answers.items():
            metrics = task.metrics([answered[index] for index in kept], truth)
            scores[name].append({metric: metrics[metric] for metric in judged})
    return scores


def _difference(value: float, without: Sequence[float]) -> ScoreDifference:
    return ScoreDifference(value, jackknife_interval(value, without) if without else None)


def _row_name(file: str) -> str:
    return "the model" if file == MODEL else file
