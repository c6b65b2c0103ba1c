"""Prepare a distillation on a task: the teacher, the student with the task's heads, the labels."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from bertine.core.console import logger, plural
from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision, Precision, TeacherTask, option
from bertine.core.scores import score_name, score_text
from bertine.core.strict_json import Readable
from bertine.corpora.batch import Batch, FeatureBatches
from bertine.data.examples import (
    Examples,
    as_columns,
    find_splits,
    open_table,
    resolve_text_columns,
)
from bertine.data.in_memory import Data
from bertine.data.label_sets import SEPARATORS
from bertine.data.soft_labels import Probabilities, read_probabilities, read_scores
from bertine.datasets.transfer_set import TransferSet
from bertine.hub.model_directory import LoadedModel, load_config, load_model
from bertine.hub.weights import LoadReport
from bertine.inference.predictor import Pipeline, Predictor
from bertine.inference.train_overlap import overlap_line
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import BOTH_ORDERS, PAIR_CLASSIFIER, Model
from bertine.objectives.distillation import HIDDEN, MapLosses, StagedBatches, check_maps
from bertine.options.data import DataConfig
from bertine.options.declare import declared
from bertine.options.distillation import DistillOptions, TeacherFile
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.multi_label import MultiLabel
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.distillation.student import (
    StudentPlan,
    add_projections,
    make_student,
    plan_student,
)
from bertine.training.distillation.teachers import (
    MAP_WEIGHTS,
    FileTeacher,
    ModelTeacher,
    Teacher,
    map_losses,
)
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.setup import load_with_heads


def open_teacher(data: Data, options: DistillOptions, config: DataConfig) -> Teacher:
    """Read the teacher, a model or a file.

    Raises:
        BertineError: neither or both are named; an option is for the other one.
    """
    if (options.teacher is None) == (options.probabilities is None):
        raise BertineError(
            f"give one of {option('teacher')}, a fine-tuned model, and "
            f"{option('probabilities')}, a file of another model's answers"
        )
    if options.teacher is not None:
        for entry in declared(TeacherFile):
            if getattr(options, entry.name) is not None:
                raise BertineError(f"{option(entry.name)} is for {option('probabilities')}")
        return ModelTeacher.load(options.teacher, options.device, options.precision)
    assert options.probabilities is not None
    if options.student is None:
        raise BertineError(
            f"{options.probabilities}: a file has no layers to begin as; name a model directory to "
            f"train with {option('student')} ({option('layers')} takes some of its layers alone)"
        )
    name: TeacherTask = options.teacher_task or "text"
    if options.label_separator is not None and name != MultiLabel.name:
        raise BertineError(
            f"{option('label_separator')} is for {option('teacher_task', MultiLabel.name)}, but "
            f"the task is {name!r}"
        )
    texts = as_columns(config.text_columns)
    columns: tuple[str, ...] = ()
    if not texts or name == MultiLabel.name:
        texts, columns = _columns(data, config)
    table = _READERS[name](
        Path(options.probabilities),
        labels=options.labels,
        column=options.probability_column,
        text_columns=texts,
    )
    one_column_each = config.label_column is None and set(table.labels) <= set(columns)
    known = {
        "labels": table.labels,
        "text_columns": texts,
        "label_column": config.label_column,
        "separator": options.label_separator or SEPARATORS[0],
        "one_column_each": one_column_each,
    }
    kind: Any = task_class(name)
    fields = {field.name for field in dataclasses.fields(kind)}
    task = kind(**{field: value for field, value in known.items() if field in fields})
    return FileTeacher(table, task, str(options.probabilities))


#: The reader of a file of another model's answers, by its task.
_READERS: dict[TeacherTask, Callable[..., Probabilities]] = {
    "text": read_probabilities,
    "multi-label": partial(read_probabilities, exclusive=False),
    "regression": read_scores,
}


def _columns(data: Data, config: DataConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the texts of a table, named or default, and all its columns."""
    splits = find_splits(data)
    if splits.train is None:
        raise BertineError(f"{data}: has no training file (train.csv, .tsv, .jsonl or .txt)")
    named = as_columns(config.text_columns)
    with open_table(splits.train, config, named) as table:
        if table.layout.kind == "text":
            return named or ("text",), ()
        return resolve_text_columns(table, named), tuple(table.columns)


def config_of(teacher: Teacher) -> Config | None:
    return teacher.layers_config if isinstance(teacher, ModelTeacher) else None


def plan_for(teacher: Config | None, options: DistillOptions) -> StudentPlan:
    """Plan a student of a teacher of this config; None: the teacher is a file."""
    if teacher is not None:
        return plan_student(
            teacher,
            options.student,
            options.layers,
            fresh_weights=options.fresh_weights,
        )
    assert options.student is not None
    if options.fresh_weights:
        raise BertineError(
            f"{option('fresh_weights', True)} is for a student of a teacher that is a model; of a "
            f"file it begins as {option('student')}"
        )
    if options.layers is None:
        return StudentPlan(load_config(options.student), None, options.student)
    cut = plan_student(load_config(options.student), None, options.layers)
    return dataclasses.replace(cut, source=options.student)


def load_student(
    plan: StudentPlan, teacher: Teacher, task: Task[Any], options: DistillOptions
) -> LoadedModel:
    """Return the student with the heads of its task."""
    if plan.folder is not None:
        dropout = options.dropout
        config = load_config(plan.folder, dropout=dropout)
        loading = FinetuneOptions(dropout=dropout, seed=options.seed)
        return load_with_heads(plan.folder, task, config, loading)
    config = plan.config.with_dropout(options.dropout)
    if isinstance(teacher, ModelTeacher):
        origin, tokenizer = teacher.model, teacher.tokenizer
    else:
        assert plan.source is not None
        loaded = load_model(plan.source)
        origin, tokenizer = loaded.model, loaded.tokenizer
    alone = isinstance(teacher, ModelTeacher) and teacher.head_alone
    if alone and plan.layers is not None:
        logger.info(
            "the head of the teacher was fitted alone, over layers that were not trained; the "
            "student begins with the layers and a new head"
        )
    model, taken = make_student(
        plan,
        origin,
        task.heads,
        seed=options.seed,
        dropout=options.dropout,
        token_types=options.token_types,
        with_heads=plan.source is None and task.reuses(teacher.task.task_info()) and not alone,
        with_pooler=not alone,
    )
    return as_loaded(model, taken, tokenizer)


def as_loaded(model: Model, taken: Collection[str], tokenizer: Tokenizer) -> LoadedModel:
    """Return a student of :func:`~bertine.training.distillation.student.make_student` as if it had
    been loaded; the weights `taken` are not new."""
    config = model.config
    names = family_of(config.model_type).names
    state = model.state_dict()
    old, new = (
        list(names.to_canonical({name: state[name] for name in some}, config))
        for some in (taken, [name for name in state if name not in taken])
    )
    report = LoadReport(config, names, old, new)
    return LoadedModel(model.eval(), config, tokenizer, None, report)


def task_maps(
    options: DistillOptions,
    plan: StudentPlan,
    teacher: Teacher,
    task: Task[Any],
    loaded: LoadedModel,
) -> MapLosses | None:
    """Return the terms on hidden and attention maps, and add the parts that they need to the
    student.

    Raises:
        BertineError: they cannot be compared.
    """
    if isinstance(teacher, FileTeacher):
        for name in (*MAP_WEIGHTS, "progressive_steps"):
            if getattr(options, name):
                raise BertineError(
                    f"{option(name)} compares layers, and a file of answers has none"
                )
        return None
    assert isinstance(teacher, ModelTeacher)
    maps = map_losses(options, plan, teacher.config)
    if maps is None:
        return None
    why = teacher.reads_otherwise(task, loaded)
    if teacher.task.head in (PAIR_CLASSIFIER, BOTH_ORDERS):
        why = (
            "the teacher encodes the two texts of a pair apart, or in both orders; leave out the "
            "weights of layers"
        )
    if why:
        raise BertineError(
            f"layers can be compared only where teacher and student read the same pieces, but {why}"
        )
    check_maps(maps, loaded.model, teacher.model)
    names = [HIDDEN] if maps.reads_states else []
    add_projections(loaded.model, teacher.model, names, options.seed)
    return maps


def labelled_by(teacher: Teacher, data: TransferSet) -> TransferSet:
    """Return the examples, with the teacher's answers as labels of those for validation.

    Raises:
        BertineError: the teacher has none for them.
    """
    answers = teacher.answers(data)
    if answers is None:
        raise BertineError(
            f"{data.validation.source}: has no labels, and {teacher.name} no row for it; label it, "
            "or leave it out, so that a tenth of the training file is held out"
        )
    items = [
        dataclasses.replace(item, label=answer.as_label)
        for item, answer in zip(data.validation.items, answers, strict=True)
    ]
    column = data.train.label_column or teacher.task.label_column or "label"
    held = dataclasses.replace(data.validation, items=items, label_column=column)
    return dataclasses.replace(data, validation=held)


def why_teacher_judges(read: TransferSet, labelled: int) -> str:
    """Explain why validation examples are judged by the teacher's answers, when `labelled` training
    examples have a label."""
    why = "no example has a label"
    if labelled and read.held_out:
        why = (
            f"all {labelled:,} labels are learned from, as a tenth of so few says little of a "
            f"student; {plural(len(read.validation), 'row')} without a label "
            f"{'is' if len(read.validation) == 1 else 'are'} held out"
        )
    elif labelled:
        why = f"{read.validation.source} has no labels"
    return (
        f"{why}: the validation examples are judged by the teacher's answers, so scores are how "
        "far both agree"
    )


def with_labels(
    examples: Examples[Any], features: Sequence[Any]
) -> tuple[Examples[Any], Sequence[Any]]:
    """Return the examples that have a label, and their features, renumbered."""
    if all(item.label is not None for item in examples.items):
        return examples, features
    kept = [n for n, item in enumerate(examples.items) if item.label is not None]
    number = {row: new for new, row in enumerate(kept)}
    own = [
        dataclasses.replace(feature, row=number[feature.row])
        for feature in features
        if feature.row in number
    ]
    return dataclasses.replace(examples, items=[examples.items[n] for n in kept]), own


class StagedFeatures(FeatureBatches[Any]):
    """The batches of a task, each with its stage of progressive distillation."""

    def __init__(self, plain: FeatureBatches[Any], steps: int, stages: int) -> None:
        self._plain, self._staged = plain, StagedBatches(plain.batch, steps, stages)

    @property
    def steps_per_epoch(self) -> int:
        return self._plain.steps_per_epoch

    def batch(self, step: int) -> Batch:
        return self._staged(step)


# Compare a student with its teacher: scores, agreement, and speed, measured in turns.

#: The number of turns of each model, and the approximate seconds of one turn of the teacher.
_TURNS, _SECONDS = 5, 0.5
#: The largest number of texts that are timed.
_TEXTS = 512


@dataclass(frozen=True)
class TeacherComparison(Readable):
    """The comparison of a student with its teacher, for the student's report.

    Attributes:
        name: of the teacher's folder or file.
        metrics: of the teacher on the validation examples; empty: not known.
        judged_by_teacher: whether the teacher's answers serve as labels of the validation examples,
            because these have none: the student's scores are its agreement with the teacher.
        seen: the validation examples that the teacher, or the model that the student is initialized
            from, was trained on, as far as known; 0 if they are few.
        judged: the number of validation examples.
        agreement: the share of the validation examples that both answer alike; None: not known, or
            answers are numbers.
        times_as_fast: the time of the teacher divided by that of the student, for the same texts;
            None: the teacher is no model that could be measured.
        threads: the number of threads of both.
        timed: the number of texts of the measurement.
        labelled, unlabelled: the numbers of training examples with and without a label.
    """

    name: str
    metrics: dict[str, float] = field(default_factory=dict)
    judged_by_teacher: bool = False
    seen: int = 0
    judged: int = 0
    agreement: float | None = None
    times_as_fast: float | None = None
    threads: int = 0
    timed: int = 0
    labelled: int = 0
    unlabelled: int = 0

    @classmethod
    def read(cls, values: Any) -> TeacherComparison:
        """Read the values that :meth:`to_dict` returned.

        Raises:
            BertineError: they are something else.
        """
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise BertineError(
                f"scores.json: what it says of the teacher is damaged ({error})"
            ) from error

    def lines(self, metrics: dict[str, float], judged: Sequence[str]) -> list[str]:
        """Describe the comparison with the student's `metrics`, using the metrics by which the task
        is `judged`."""
        lines = []
        parts = []
        for name in judged:
            if name in metrics and self.judged_by_teacher:
                parts.append(f"{score_name(name)} {score_text(name, metrics[name])}")
            elif name in metrics and name in self.metrics:
                theirs, ours = self.metrics[name], metrics[name]
                kept = f", {ours / theirs:.1%} of it" if theirs > 0 and ours > 0 else ""
                parts.append(
                    f"{score_name(name)} {score_text(name, ours)}, the teacher's "
                    f"{score_text(name, theirs)}{kept}"
                )
        if parts:
            against = " against the teacher's answers" if self.judged_by_teacher else ""
            lines.append(f"student{against}: {'; '.join(parts)}")
        facts = []
        if self.agreement is not None and not self.judged_by_teacher:
            facts.append(f"they agree on {self.agreement:.1%}")
        if self.times_as_fast is not None:
            facts.append(
                f"the student is {self.times_as_fast:.1f} times as fast "
                f"({self.timed:,} texts, in turns)"
            )
        if facts:
            lines.append("; ".join(facts))
        if self.seen:
            lines.append(seen_by_teacher(self.seen, self.judged))
        return lines


def seen_by_teacher(seen: int, judged: int) -> str:
    """Describe how many of the validation examples the teacher, or the model that its student is
    initialized from, was trained on."""
    whose = "the teacher, or what the student begins as,"
    line = overlap_line(seen, judged, whose, "validation examples")
    return f"{str(line).removeprefix('note: ')}, and the student's share of it as little"


def compare(
    teacher: Teacher,
    model: Path,
    data: TransferSet,
    *,
    judged_by_teacher: bool,
    seen: int,
    labelled: int,
    device: str | None,
    precision: Precision,
) -> TeacherComparison:
    """Judge a teacher on the validation examples, and measure its speed and that of its student,
    both in the precision of the teacher.

    Args:
        model: the student's model directory.
        judged_by_teacher, seen, labelled: see :class:`TeacherComparison`.
        device, precision: to compute on and in, if the teacher is a file, or on a GPU.
    """
    validation = data.validation
    facts: dict[str, Any] = {
        "name": teacher.name,
        "judged_by_teacher": judged_by_teacher,
        "seen": seen,
        "judged": len(validation),
        "labelled": labelled,
        "unlabelled": len(data.train) - labelled,
    }
    if not len(validation):
        return TeacherComparison(**facts)
    wanted: AnswerPrecision = precision
    side = None
    if isinstance(teacher, ModelTeacher):
        side = teacher.answering(validation.text_columns)
        if teacher.predictor.engine is not None:
            wanted = cast(AnswerPrecision, teacher.predictor.engine.precision)
    theirs = teacher.answers(data)
    student = Predictor.load(model, device, wanted).over(validation.text_columns)
    prepared = student.prepare(validation)
    ours = student.task.decode(student.compute(prepared.features), prepared.features)
    if theirs is not None:
        judge = teacher.task.over(validation.text_columns)
        facts["agreement"] = judge.answer.share_alike(ours, theirs)
        if not judged_by_teacher:
            facts["metrics"] = judge.judge(theirs, validation).metrics
    if side is not None:
        facts["times_as_fast"], facts["timed"] = speed_ratio(side, student, validation)
        engine = student.engine
        facts["threads"] = torch.get_num_threads() if engine is None else engine.threads
    return TeacherComparison(**facts)


def speed_ratio(teacher: Pipeline, student: Pipeline, examples: Examples[Any]) -> tuple[float, int]:
    """Measure how many times as fast a student is, on the same texts in turns; return the median of
    the ratios, and the number of timed texts."""
    items = examples.items[:_TEXTS]
    part = replace(examples, items=items)
    sides = [
        (answering, list(answering.task.featurize(part, answering.tokenizer)))
        for answering in (teacher, student)
    ]
    once = _seconds(*sides[0])
    _seconds(*sides[1])
    share = min(1.0, _SECONDS / max(once, 1e-9))
    rows = max(1, round(len(items) * share))
    sides = [(a, [f for f in features if f.row < rows]) for a, features in sides]
    for answering, features in sides:  # smaller batches have new shapes
        _seconds(answering, features)
    ratios = [_seconds(*sides[0]) / max(_seconds(*sides[1]), 1e-9) for _ in range(_TURNS)]
    return statistics.median(ratios), rows


def _seconds(answering: Pipeline, features: list[Any]) -> float:
    began = time.perf_counter()
    answering.compute(features)
    return time.perf_counter() - began


# The result of distilling on a task.


@dataclass(repr=False)
class Distilled(Learner):
    """A learner distilled on a task, with its comparison with the teacher.

    Attributes:
        teacher: the comparison: the teacher's scores on the validation examples, how often both
            answer alike, and how many times as fast the student is.
    """

    teacher: TeacherComparison = field(default_factory=lambda: TeacherComparison(""))

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        return self._with_comparison(super().lines())

    def shown_lines(self) -> list[str]:
        return self._with_comparison(super().shown_lines())

    def _with_comparison(self, lines: list[str]) -> list[str]:
        """Insert the comparison before the last two lines, which give the time and the folder."""
        at = next((n for n, line in enumerate(lines) if line.startswith("trained in")), len(lines))
        return [*lines[:at], *self.teacher.lines(self.metrics, self.metric_names), *lines[at:]]
