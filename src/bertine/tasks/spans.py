"""Define the task of span extraction: the answer to a question is a part of its context, or none.

The sources are Devlin et al. 2018, sections 4.2 and 4.3.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.names import later
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import Batch
from bertine.data.examples import Examples
from bertine.data.spans import TEXT_COLUMNS
from bertine.data.squad import Gold, Question, SpanExamples
from bertine.models.config import Config
from bertine.tasks.answer import json_value
from bertine.tasks.base import NONE, Task, by_example, cross_entropies, pad_features, setting
from bertine.tasks.calibration import Decisions
from bertine.tasks.report import EvaluationReport, require_some
from bertine.tasks.span_scores import SpanPrediction, SpanReport, answer_question, span_report
from bertine.tasks.span_windows import (
    LEAST_BESIDE,
    SpanFeatures,
    check_room_beside,
    encode_spans,
    span_notes,
)
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model
    from bertine.objectives.distillation import divergences
    from bertine.objectives.losses import Term
else:
    later(
        globals(),
        "torch objectives.distillation:divergences objectives.losses:Term F=torch.nn.functional",
    )

#: The number of listed answers, as in the published code.
N_BEST = 20
#: The longest input by default, as in the paper's runs.
MAX_LENGTH = 384


@dataclass(frozen=True)
class SpanLimits:
    """The limits on how questions and contexts are read, and on the length of answers, in pieces.

    Attributes:
        doc_stride: from the beginning of one window of a context to that of the next.
        max_question_length: longer questions are cut.
        max_answer_length: longer spans are not answers.
    """

    doc_stride: int = 128
    max_question_length: int = 64
    max_answer_length: int = 30


@dataclass(frozen=True)
class SpanExtraction(Task[SpanPrediction]):
    """The task of finding the part of a context that answers a question, or (SQuAD v2.0) none.

    The head is a linear layer with two outputs on every token, the scores as start and as end (fp32
    [B, T, 2]; those at padding have no meaning); the loss is the mean of the two cross-entropies
    over the tokens of the input. If a window does not hold the answer, both targets are its [CLS].

    Attributes:
        text_columns: of the question and of the context.
        label_column: of the answer, None if unknown.
        max_length: longest input in pieces, special tokens included; longer contexts are read in
            windows.
        limits: of windows, questions and answers.
        unanswerable: whether a question may have no answer.
        null_threshold: no answer is given if its score exceeds that of the best span by more; None:
            not tuned yet, which counts as 0.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set, e.g. "squad/v2.0"; None for a user's own.
        abstain_below: an answer with a lower probability abstains.

    Raises:
        BertineError: there are not two text columns, a limit is below 1, or a maximum length leaves
            no room for the context besides the longest question.
    """

    name: ClassVar[str] = "spans"
    primary_metric: ClassVar[str] = "f1"
    answer: ClassVar[type[SpanPrediction]] = SpanPrediction
    reader = "questions"
    rules: ClassVar[tuple[str, ...]] = ("abstain_below",)
    example: ClassVar[str] = '--question "…" --context "…"'
    #: With the three digits of bf16 many spans would be equally good.
    fp32_head: ClassVar[bool] = True
    head = "spans"

    text_columns: tuple[str, ...] = ("question", "context")
    label_column: str | None = None
    max_length: int = MAX_LENGTH
    limits: SpanLimits = SpanLimits()
    unanswerable: bool = setting(False, always=True)
    null_threshold: float | None = None
    metric_names: tuple[str, ...] = ("f1",)
    dataset: str | None = None
    abstain_below: float = 0.0

    def __post_init__(self) -> None:
        if len(self.text_columns) != 2:
            raise BertineError(
                f"spans take two text columns, question and context, not {len(self.text_columns)}"
            )
        for name, value in dataclasses.asdict(self.limits).items():
            if value < 1:
                raise BertineError(f"{name} is {value}, but must be at least 1")
        check_room_beside(self.max_length, self.limits.max_question_length, LEAST_BESIDE)

    @classmethod
    def names_in(cls, label: Gold) -> list[str]:
        """Return a name for whether there is an answer."""
        return ["with an answer" if label.answerable else "without an answer"]

    @classmethod
    def from_examples(
        cls,
        examples: Examples[Question],
        *,
        max_length: int = MAX_LENGTH,
        labels: Sequence[str] | None = None,
        **settings: Any,
    ) -> SpanExtraction:
        """Create the task from training examples; `labels` must be None. They show whether a
        question may have no answer.

        Raises:
            BertineError: see the class.
        """
        if labels is not None:
            raise BertineError("span extraction has no labels")
        return cls(
            examples.text_columns,
            examples.label_column,
            max_length,
            unanswerable=any(item.label and item.label.v2 for item in examples.items),
            dataset=examples.dataset if isinstance(examples, SpanExamples) else None,
            **settings,
        )

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config, **known: Any) -> Self:
        """Create the task of a model directory; missing settings are as in the paper, and a model
        without the setting always answers.

        Raises:
            BertineError: an unknown setting, or one of the wrong kind.
        """
        max_length = info.input_length(config.longest_input, MAX_LENGTH)
        # By default, a model with short inputs leaves half of them to the context.
        question = min(SpanLimits.max_question_length, max_length // 2)
        limits = SpanLimits(
            info.setting("doc_stride", SpanLimits.doc_stride),
            info.setting("max_question_length", question),
            info.setting("max_answer_length", SpanLimits.max_answer_length),
        )
        settings = {*dataclasses.asdict(limits), "unanswerable", "null_threshold"}
        for key in info.settings:
            if key not in settings:
                raise BertineError(f"bertine.json: unknown setting {key!r} of the task 'spans'")
        tuned = info.settings.get("null_threshold") is not None
        return super().from_info(
            info,
            config,
            max_length=max_length,
            limits=limits,
            null_threshold=info.setting("null_threshold", 0.0) if tuned else None,
        )

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        """Return the task's entry for a model directory, with the limits and the threshold."""
        info, limits = super().task_info(training), dataclasses.asdict(self.limits)
        settings = {**limits, **info.settings, "null_threshold": self.null_threshold}
        return dataclasses.replace(info, settings=settings)

    def as_student(
        self, train: Examples[Any], max_length: int, outputs: Sequence[Any] = ()
    ) -> Self:
        """Return the task with a null threshold that is tuned again."""
        student = super().as_student(train, max_length)
        return dataclasses.replace(student, null_threshold=None)

    def finished(self, model: Model, report: EvaluationReport | None) -> Self:
        """Return the task with the null threshold that was tuned for `report`."""
        if not isinstance(report, SpanReport) or not report.tuned:
            return self
        return dataclasses.replace(self, null_threshold=report.null_threshold)

    def featurize(self, examples: Examples[Question], tokenizer: Tokenizer) -> list[SpanFeatures]:
        """Tokenize; one feature for each window of a context. Questions are cut.

        Raises:
            BertineError: an example is not a question and a context.
        """
        return encode_spans(
            examples,
            tokenizer,
            max_length=self.max_length,
            max_question_length=self.limits.max_question_length,
            doc_stride=self.limits.doc_stride,
        )

    def notes(self, features: Sequence[SpanFeatures]) -> list[str]:
        """Return notes on how many contexts were read in windows, how many questions were cut, and
        how many gold answers begin or end inside a piece, fit completely in no window, or are
        longer than answers may be."""
        return span_notes(features, max_length=self.max_length, **dataclasses.asdict(self.limits))

    def collate(self, features: Sequence[SpanFeatures], pad_id: int) -> Batch:
        """Pad; ``targets["start_positions"]`` and ``["end_positions"]`` int64 [B] when every
        feature has a span."""
        batch = pad_features(features, pad_id, self.max_length)
        spans = [feature.span for feature in features if feature.span is not None]
        if len(spans) == len(features):
            starts, ends = torch.tensor(spans, dtype=torch.int64).T
            batch.targets["start_positions"] = starts.contiguous()
            batch.targets["end_positions"] = ends.contiguous()
        return batch

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the mean of the cross-entropies of start and end, over the real tokens of the
        input, summed over the sequences, in fp32. A sequence is right if both are."""
        logits = self.outputs(model, batch, encoded)
        logits = logits.masked_fill(~batch.attention_mask[..., None], float("-inf"))
        starts, ends = batch.targets["start_positions"], batch.targets["end_positions"]
        start_logits, end_logits = logits.unbind(-1)
        total = (
            F.cross_entropy(start_logits, starts, reduction="sum")
            + F.cross_entropy(end_logits, ends, reduction="sum")
        ) / 2
        right = (start_logits.argmax(-1) == starts) & (end_logits.argmax(-1) == ends)
        return {self.head: Term(total, batch.num_sequences, right.sum())}

    def with_some_target(self, feature: Any) -> Any:
        if feature.span is not None:
            return feature
        return dataclasses.replace(feature, span=(0, 0))

    def _rows(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return logits [B, T, 2] as distributions over the real tokens of each input, of the start
        and of the end: [2 B, T]."""
        mask = batch.attention_mask.bool()
        outputs = outputs[:, : mask.shape[1]].masked_fill(~mask[..., None], float("-inf"))
        return outputs.permute(2, 0, 1).flatten(0, 1)

    def soft_term(
        self, outputs: Tensor, teacher_outputs: Tensor, batch: Batch, temperature: float
    ) -> Term:
        """Compute the mean of the divergences of start and end, summed over the sequences; a
        sequence is right if both agree with the teacher."""
        ours, theirs = self._rows(outputs.float(), batch), self._rows(teacher_outputs, batch)
        total = divergences(ours, theirs, temperature).sum() / 2
        agreed = (ours.argmax(-1) == theirs.argmax(-1)).view(2, -1).all(0).sum()
        return Term(total, batch.num_sequences, agreed)

    def decode(
        self, outputs: Sequence[np.ndarray], features: Sequence[SpanFeatures]
    ) -> list[SpanPrediction]:
        """Turn logits [T, 2] of each window into the answer to each question."""
        return [self._answer(*of_question) for of_question in by_example(outputs, features)]

    def _answer(
        self, tables: Sequence[np.ndarray], windows: Sequence[SpanFeatures]
    ) -> SpanPrediction:
        """Find the answer to a question in the logits of its windows."""
        answer = answer_question(
            tables,
            windows,
            max_pieces=self.limits.max_answer_length,
            n_best=N_BEST,
            unanswerable=self.unanswerable,
            threshold=self.null_threshold or 0.0,
        )
        if answer.probability < self.abstain_below:
            return dataclasses.replace(answer, abstains=True)
        return answer

    def decisions(
        self, outputs: Sequence[np.ndarray], features: Sequence[SpanFeatures]
    ) -> Decisions | None:
        """Return for each question the scores that its probability is computed from, those of the
        best answers, and which of them is the gold one, which is added if it is not among them.
        Questions whose answer fits completely in no window are left out."""
        logits, truth = [], []
        for tables, windows in by_example(outputs, features):
            if any(window.span is None for window in windows):
                continue
            listed = self._answer(tables, windows).n_best
            scores, texts = [one.score for one in listed], [one.text for one in listed]
            gold = _gold_span(tables, windows, self.unanswerable)
            if gold is None:
                continue
            text, score = gold
            if text not in texts:
                texts.append(text)
                scores.append(score)
            logits.append(np.array(scores))
            truth.append(texts.index(text))
        return Decisions.of(logits, truth)

    def losses(
        self, outputs: Sequence[np.ndarray], features: Sequence[SpanFeatures]
    ) -> list[float]:
        """Compute the mean of the cross-entropies of start and end of each question: the smallest
        over the windows that hold the answer, since any of them may find it; the mean over all
        windows if none holds it, since each has to answer that there is none."""
        losses = []
        for tables, windows in by_example(outputs, features):
            of_windows = list(map(_window_loss, tables, windows))
            holding = [
                loss
                for loss, window in zip(of_windows, windows, strict=True)
                if window.holds_answer
            ]
            losses.append(min(holding) if holding else float(np.mean(of_windows)))
        return losses

    def constant(
        self, examples: Examples[Any], features: Sequence[SpanFeatures]
    ) -> tuple[None, float | None]:
        """Return the mean log of the number of places in a window."""
        if not features:
            return None, None
        sizes = [math.log(1 + len(window.offsets)) for window in features]
        return None, sum(sizes) / len(sizes)

    def report(self, predictions: Sequence[SpanPrediction], labels: Sequence[Gold]) -> SpanReport:
        """Compute the official scores, exact_match and f1, and if questions may have no answer also
        those of the two kinds separately. A null threshold that has not been tuned is tuned here
        for the best F1.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        return span_report(
            predictions,
            labels,
            unanswerable=self.unanswerable,
            null_threshold=self.null_threshold,
        )

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Return the columns, or question and context if those are among `names`."""
        known = all(name in names for name in self.text_columns)
        usual = not known and all(name in names for name in TEXT_COLUMNS)
        return TEXT_COLUMNS if usual else self.text_columns, 0

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return ``answer``, ``start``, ``end`` (characters of the context), ``probability``;
        ``null_odds`` if there may be no answer; with `details` also ``n_best``."""
        columns = super().output_columns(False)
        if not self.unanswerable:
            del columns["null_odds"]
        if details:
            columns["n_best"] = lambda answer: _JsonList(n_best_values(answer))
        return columns


def n_best_values(prediction: SpanPrediction) -> list[dict[str, Any]]:
    """Convert the n best answers to JSON values: under the names in the published code's files,
    with the place of each answer in the context."""
    names = ("text", "probability", "start_logit", "end_logit", "start", "end")
    return [
        {name: json_value(getattr(answer, name)) for name in names} for answer in prediction.n_best
    ]


class _JsonList(list[Any]):
    """A list that stays a list in JSON lines, and is JSON text in a cell of a csv or tsv file."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


def _gold_span(
    tables: Sequence[np.ndarray], windows: Sequence[SpanFeatures], unanswerable: bool
) -> tuple[str, float] | None:
    """Return the text and the score of the gold answer, the highest over the windows that hold it,
    or of no answer, the lowest over all; None if it fits completely in no window, or the model
    always answers."""
    held = []
    for table, window in zip(tables, windows, strict=True):
        if window.holds_answer:
            assert window.span is not None
            start, end = window.span
            first, last = start - window.first, end - window.first
            text = window.context[int(window.offsets[first, 0]) : int(window.offsets[last, 1])]
            held.append((float(table[start, 0]) + float(table[end, 1]), text))
    if held:
        score, text = max(held)
        return text, score
    if not unanswerable or windows[0].answer_pieces is not None:
        return None
    nothing = [
        float(table[window.nowhere].sum()) for table, window in zip(tables, windows, strict=True)
    ]
    return "", min(nothing)


def _window_loss(output: np.ndarray, window: SpanFeatures) -> float:
    """Compute the loss of one window from its logits [T, 2], padding ignored."""
    if window.span is None:
        return NONE
    real = output[: len(window.input_ids)]
    return float(cross_entropies(real.T, np.array(window.span)).mean())
