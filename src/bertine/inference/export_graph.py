"""Write a model as a graph, and compare the graph with the model: answers and scores."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers

from bertine.core.console import Report, aligned, log_all, plural, progress, visible_list
from bertine.core.contrib import refuse_contrib
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, check_replaceable, write_json, write_text
from bertine.core.names import ABOUT, INT8, ONNX, TORCH, ExportFormat, __version__, option
from bertine.core.scores import is_share, jackknife_interval, score_text
from bertine.core.task_info import TASK, TaskInfo
from bertine.corpora.store import is_store
from bertine.data.in_memory import TableLike, as_data
from bertine.datasets.readers import read_evaluation
from bertine.hub.export import (
    INPUTS,
    OPSET,
    ExportModule,
    Runner,
    compare,
    example_inputs,
    exported_program,
    output_names,
    quantize_onnx,
    task_head,
    torch_runner,
    write_onnx,
    write_torch,
)
from bertine.hub.model_directory import CONFIG, load_model, model_folder
from bertine.inference.compute import run_features
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.predictor import graph_outputs, onnx_runner
from bertine.inference.train_overlap import overlap_note
from bertine.models.config_file import read_sentence_modules
from bertine.models.family import config_to_huggingface
from bertine.models.heads import BOTH_ORDERS, Model
from bertine.models.pooling import Pooling
from bertine.options.data import DataConfig
from bertine.options.vectors import AnyVectors
from bertine.tasks import TASKS, task_class
from bertine.tasks.base import Task, require_positions
from bertine.tasks.report import ClassificationReport, shown_metrics
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertine.hub.export import Difference


# Score exported graphs and the model they were made from on the same labelled examples.
#
# The task reads the examples and decides on answers, as in ``bertine evaluate``; a graph only
# replaces the model between the two.
#
# Shape legend: B sequences, T tokens of the longest, K labels.

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
class GraphScores(Report):
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

    json_keys = (
        *("data", "num_examples", "metrics", "accuracy_intervals=intervals", "differences"),
    )

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

    @property
    def data(self) -> str:
        """The name of the file of the examples, without its folders."""
        return Path(self.source).name


class GraphScorer:
    """Labelled examples, read and tokenized, to score a model and its graphs on.

    Args:
        model: the model in fp32 on the CPU, in evaluation mode.
        tokenizer: the tokenizer of the model.
        task: the task of the model.
        data: a file, folder or table, as for ``evaluate``.
        config: how `data` is read.
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
        config: DataConfig,
        training: Mapping[str, Any],
    ) -> None:
        data = as_data(data)
        if isinstance(data, str | Path) and is_store(Path(data)):
            raise BertineError(
                f"{data}: is a token store, which has no labels; give labelled examples to score "
                "the graph on"
            )
        self._sets = read_evaluation(task, data, config)
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
            outputs[name] = graph_outputs(run, features, self._pad_id, on_batch=on_batch)
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
            metrics = task.report([answered[index] for index in kept], truth).metrics
            scores[name].append({metric: metrics[metric] for metric in judged})
    return scores


def _difference(value: float, without: Sequence[float]) -> ScoreDifference:
    return ScoreDifference(value, jackknife_interval(value, without) if without else None)


def _row_name(file: str) -> str:
    return "the model" if file == MODEL else file


# Report: the result of ``export`` for people.


@dataclass(repr=False)
class ExportReport(Report):
    """The result of an export.

    Attributes:
        output: the folder.
        what: the outputs of the graph, in words.
        differences: the differences from PyTorch in fp32, by file.
        sizes: the sizes in bytes, by file.
        vectors: whether the outputs are vectors, not logits.
        scores: the scores of model and graphs on each set of labelled examples, where these were
            given.
        notes: further notes.
    """

    output: Path
    what: str
    differences: dict[str, Difference] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    vectors: bool = False
    scores: list[GraphScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [f"exported to {self.output}: {self.what}"]
        for name, difference in self.differences.items():
            size = self.sizes[name] / 1e6
            lines.append(f"{name}: {size:.1f} MB; {difference.text(self.vectors)}")
        for scores in self.scores:
            lines += scores.lines()
        return lines + self.notes


#: The largest difference from PyTorch in fp32, relative to the largest number, that counts as
#: rounding.
_TOLERANCE = 1e-3


def export_graph(
    model: Path | str,
    output: Path,
    *,
    format: ExportFormat,
    int8: bool,
    vectors: AnyVectors,
    normalize: bool | None,
    data: Path | str | TableLike | None,
    config: DataConfig,
    show_progress: bool,
) -> ExportReport:
    """Export a model as :func:`bertine.export` describes, once its packages are known to be
    installed.

    Raises:
        BertineError: see :func:`bertine.export`.
    """
    check_replaceable(
        output, "folder of an exported model", lambda folder: (folder / ABOUT).is_file()
    )
    source = _open(model, vectors, normalize)
    scorer = None if data is None else _scorer(source, data, config)
    about = _about(source)
    report = ExportReport(output, _what(source), vectors=source.pooling is not None)
    if source.prompt:
        report.notes.append(f"the graph sees no texts: put {source.prompt!r} before each")
    if (long_text := _long_text(source)) not in ("head", "tail"):
        report.notes.append(
            f"longer texts were read by {long_text!r} (long_text), but tokenizer.json keeps their "
            f"first {source.max_length} pieces"
        )
    graph = ExportModule(source.model, source.pooling).eval()
    program = exported_program(graph, source.model.config.longest_input)
    tokenizer = source.tokenizer
    around = tokenizer.template.one
    ends = (around.before, around.after)
    batches = example_inputs(source.model, ends, tokenizer.special_ids, source.max_length)
    with atomic_dir(output) as folder:
        if format == "torch":
            write_torch(program, folder / TORCH)
            runners = {TORCH: torch_runner(folder / TORCH)}
            about["file"] = TORCH
        else:
            write_onnx(program, folder / ONNX, output_names(source.model, source.pooling))
            runners = {ONNX: onnx_runner(folder / ONNX)}
            about |= {"file": ONNX, "opset": OPSET}
            if int8:
                quantize_onnx(folder / ONNX, folder / INT8)
                runners[INT8] = onnx_runner(folder / INT8)
                about["int8_file"] = INT8
        for name, runner in runners.items():
            difference = compare(source.model, source.pooling, batches, runner)
            report.differences[name] = difference
            report.sizes[name] = sum(file.stat().st_size for file in folder.glob(f"{name}*"))
            most = np.inf if name == INT8 else _TOLERANCE * difference.scale
            if not (difference.largest <= most and np.isfinite(difference.largest)):
                raise BertineError(
                    f"{model}: the exported graph answers otherwise than the model "
                    f"({difference.text(report.vectors)}); nothing was written. Please report this"
                )
        about["differences"] = {
            name: {key: getattr(difference, key) for key in ("largest", "cosine", "same")}
            for name, difference in report.differences.items()
        }
        if scorer is not None:
            report.scores = scorer.score(runners, show_progress=show_progress)
            about["scores"] = [scores.to_dict() for scores in report.scores]
        _write_tokenizer(folder, source)
        _write_config(folder, source)
        if source.task is not None:  # for `bertine predict`
            info = replace(source.task, max_length=source.max_length)
            write_json(folder / TASK, info.to_dict())
        write_json(folder / ABOUT, about)
    return report


def _write_config(folder: Path, source: _Source) -> None:
    """Write the model's ``config.json``; a checkpoint folder of Google's has the same facts in
    another file."""
    if (source.folder / CONFIG).exists():
        shutil.copyfile(source.folder / CONFIG, folder / CONFIG)
        return
    model = source.model
    labels = () if source.task is None else source.task.labels
    values = config_to_huggingface(model.config, heads=model.heads.keys(), labels=labels)
    write_json(folder / CONFIG, values)


@dataclass(frozen=True)
class _Source:
    """A model that is to be exported.

    Attributes:
        folder: the folder with the ``config.json``.
        pooling: the pooling of vectors; None: the graph gives the logits of the task.
        max_length: the number of pieces at which texts are cut.
        prompt: the text to put before every text.
    """

    folder: Path
    model: Model
    tokenizer: Tokenizer
    task: TaskInfo | None
    pooling: Pooling | None
    max_length: int
    prompt: str = ""


def _open(path: Path | str, vectors: AnyVectors, normalize: bool | None) -> _Source:
    """Load the model to export.

    Raises:
        BertineError: the model cannot be loaded; it is a table of word or piece vectors, or an
            ELMo; a maximum length that the model does not support, or that leaves no room for text.
    """
    refuse_contrib(path)
    modules = read_sentence_modules(path)
    folder = model_folder(modules.transformer if modules else path)
    bare = vectors.pooling is None and vectors.layer is None and normalize is None
    if modules is None and bare:
        loaded = load_model(folder)
        answers = loaded.task is not None and loaded.task.name in TASKS
        if answers and task_head(loaded.model) is None:
            pairs = BOTH_ORDERS in loaded.model.heads
            does = "reads pairs in both orders" if pairs else "writes texts by a search"
            raise BertineError(
                f"{path}: {does}, which is no graph; its vectors can be exported with "
                f"{option('pooling', 'mean')}"
            )
        if loaded.task is not None and task_head(loaded.model):
            log_all(loaded.report.lines())
            longest = vectors.max_length
            if longest is None and loaded.task.max_length is None:  # the maximum of the task itself
                task = task_class(loaded.task.name).from_info(loaded.task, loaded.config)
                longest = task.max_length
            elif longest is None:
                longest = loaded.task.input_length(loaded.config.longest_input)
            require_positions(longest, loaded.config)
            if longest <= loaded.tokenizer.template.added():
                raise BertineError(f"max_length {longest} leaves no room for text")
            return _Source(folder, loaded.model, loaded.tokenizer, loaded.task, None, longest)
    embedder = Embedder.opened(
        path,
        **vectors.values(),
        normalize=normalize,
        prompt=None,
        device="cpu",
        precision="fp32",
    )
    return _Source(
        folder,
        embedder.model,
        embedder.tokenizer,
        None,
        embedder.pooling,
        embedder.max_length,
        embedder.prompt,
    )


def _scorer(source: _Source, data: Path | str | TableLike, config: DataConfig) -> GraphScorer:
    """Read the labelled examples, before anything is computed.

    Raises:
        BertineError: the graph gives vectors; the examples cannot be read.
    """
    if source.task is None:
        raise BertineError(
            f"{source.folder}: is exported to give vectors, which have no labels to be scored on; "
            f"leave out {option('data')}"
        )
    info = replace(source.task, max_length=source.max_length)
    task = task_class(info.name).from_info(info, source.model.config)
    return GraphScorer(source.model, source.tokenizer, task, data, config, info.training)


def _long_text(source: _Source) -> str:
    """Return which part of a long text the task reads (:mod:`bertine.tasks.base`)."""
    if source.pooling is not None or source.task is None:
        return "head"
    return source.task.setting("long_text", "head")


def _what(source: _Source) -> str:
    """Describe the outputs of the graph."""
    if source.pooling is not None:
        kind = "tokens" if source.pooling.tokens else "texts"
        width = source.pooling.width(source.model.config)
        return f"vectors of {kind} ({source.pooling.describe()}; {width} numbers)"
    assert source.task is not None
    labels = source.task.labels
    names = f" of {len(labels)} labels ({visible_list(labels[:8])}{', …' * (len(labels) > 8)})"
    return f"the logits of the task {source.task.name!r}" + (names if labels else "")


def _about(source: _Source) -> dict[str, Any]:
    """Return the contents of ``export.json``: inputs, outputs and their meaning."""
    shapes = {
        "logits": "float32 [batch, K]",
        "vectors": "float32 [batch, D]",
        "token_vectors": "float32 [batch, length, D]",
        "start_logits": "float32 [batch, length]",
        "end_logits": "float32 [batch, length]",
    }
    if source.pooling is None and "token_classifier" in source.model.heads:
        shapes["logits"] = "float32 [batch, length, K]"
    about: dict[str, Any] = {
        "bertine": __version__,
        "inputs": dict.fromkeys(INPUTS, "int64 [batch, length]"),
        "outputs": {name: shapes[name] for name in output_names(source.model, source.pooling)},
        "max_length": source.max_length,
        "max_positions": source.model.config.longest_input,
    }
    if source.pooling is not None:
        about["pooling"] = list(source.pooling.modes)
        about["layer"], about["normalize"] = source.pooling.layer, source.pooling.normalize
        about["dimensions"] = source.pooling.width(source.model.config)
        if source.prompt:
            about["prompt"] = source.prompt
    elif source.task is not None:
        about["task"] = source.task.name
        about["labels"] = list(source.task.labels)
        about["text_columns"] = list(source.task.text_columns)
        about["label_column"] = source.task.label_column
        about["metrics"], about["dataset"] = list(source.task.metrics), source.task.dataset
        about["settings"] = source.task.settings
    return about


def _write_tokenizer(folder: Path, source: _Source) -> None:
    """Write the tokenizer's files; tokenizer.json cuts at the maximum length and pads to the
    longest of a batch."""
    source.tokenizer.save(folder, model_max_length=source.max_length)
    backend = tokenizers.Tokenizer.from_str(source.tokenizer.backend.to_str())
    # With a question and its context, the question is kept whole.
    spans = source.pooling is None and "spans" in source.model.heads
    strategy = "only_second" if spans else "longest_first"
    direction = "left" if _long_text(source) == "tail" else "right"
    backend.enable_truncation(source.max_length, strategy=strategy, direction=direction)
    pad_id = source.tokenizer.pad_token_id
    backend.enable_padding(pad_id=pad_id, pad_token=source.tokenizer.id_to_token(pad_id))
    write_text(folder / "tokenizer.json", backend.to_str(pretty=True) + "\n")
