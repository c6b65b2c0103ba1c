"""Compare a student with its teacher: scores, agreement, and speed, measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision, Precision
from bertine.core.scores import score_name, score_text
from bertine.data.examples import Examples
from bertine.datasets.transfer_set import TransferSet
from bertine.inference.predictor import Pipeline, Predictor
from bertine.inference.training_rows import overlap_line
from bertine.tasks.base import Task
from bertine.training.distillation.teachers import ModelTeacher, Teacher
from bertine.training.finetuning.learner import Learner

#: The number of turns of each model, and the approximate seconds of one turn of the teacher.
_TURNS, _SECONDS = 5, 0.5
#: The largest number of texts that are timed.
_TEXTS = 512


@dataclass(frozen=True)
class TeacherComparison:
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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def read(cls, values: Any) -> TeacherComparison:
        """Read the values that :meth:`to_dict` returned.

        Raises:
            BertineError: they are something else.
        """
        try:
            return cls(**values)
        except TypeError as error:
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
    answering = student.answering
    prepared = answering.prepare(validation)
    ours = answering.task.decode(answering.compute(prepared.features), prepared.features)
    if theirs is not None:
        judge = teacher.task.over(validation.text_columns)
        facts["agreement"] = agreement(judge, ours, theirs)
        if not judged_by_teacher:
            facts["metrics"] = judge.judge(theirs, validation).metrics
    if side is not None:
        facts["times_as_fast"], facts["timed"] = speed_ratio(side, answering, validation)
        engine = student.engine
        facts["threads"] = torch.get_num_threads() if engine is None else engine.threads
    return TeacherComparison(**facts)


def agreement(task: Task[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> float | None:
    """Return the share of the examples that two models answer alike; None if answers are
    numbers."""
    if task.numeric or not ours:
        return None
    pairs = zip(ours, theirs, strict=True)
    return sum(task.as_label(a) == task.as_label(b) for a, b in pairs) / len(ours)


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


@dataclass(frozen=True, repr=False)
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
