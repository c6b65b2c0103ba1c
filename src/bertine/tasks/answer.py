"""Show a model's answers, lists of them, and its worst examples, in Python and in notebooks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from bertine.core import strict_json
from bertine.core.console import Report, Shown, ShownList, aligned, plural
from bertine.core.scores import ranking
from bertine.core.text import Index, cut, printable, row_at, visible
from bertine.data.lines import is_typed

#: Alternative answers in a notebook; characters of a text; answers of a list.
_CHANCES, _TEXT, _ANSWERS = 5, 80, 50


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """Base of models' answers: one line of text, and in notebooks the other likely answers.

    Attributes:
        unknown: the share of the text's pieces that the vocabulary does not know, if these are most
            of them, so that the answer means very little; else 0.
        empty: whether there was no text to answer. In files and in JSON there is no answer then;
            the attributes hold the model's output for an empty text.
    """

    __slots__ = ()

    unknown: float = field(default=0.0, kw_only=True)
    empty: bool = field(default=False, kw_only=True)

    def cells(self) -> tuple[str, str]:
        """Return the answer, and its probability or nothing, as text."""
        return ("(no answer)", "") if self.empty else self.own_cells()

    def own_cells(self) -> tuple[str, str]:
        """Return the cells for a text that is not empty."""
        raise NotImplementedError

    #: The name of its decision in messages.
    noun: ClassVar[str] = "label"
    #: The attributes that are written, in JSON and in the columns of a file, and those that are
    #: written together with the probability of all alternatives.
    written: ClassVar[tuple[str, ...]]
    detailed: ClassVar[tuple[str, ...]] = ()
    #: Those of `written` that are left open if it abstains.
    left_open: ClassVar[tuple[str, ...]] = ()
    #: Whether its probability is below the bound from which the model should answer.
    abstains = False

    @classmethod
    def names(cls, details: bool) -> tuple[str, ...]:
        """Return the names of the attributes that are written."""
        return (*cls.written, *(cls.detailed if details else ()))

    def to_json(self, details: bool) -> dict[str, Any]:
        """Return the answer as JSON values; with `details` also the probabilities of all
        alternatives."""
        return {name: self.value_of(name) for name in self.names(details)} | self.flags()

    def flags(self) -> dict[str, Any]:
        """Return the marks of an answer that means very little, as JSON values: ``unknown``,
        ``empty``."""
        flags: dict[str, Any] = {"unknown": json_value(self.unknown)} if self.unknown else {}
        return flags | ({"empty": True} if self.empty else {})

    def value_of(self, name: str) -> Any:
        """Return one of the written attributes as a JSON value; None for the decision if it
        abstains, and for all of them if the text is empty."""
        if self.empty or (self.abstains and name in self.left_open):
            return None
        return json_value(getattr(self, name))

    @property
    def decision(self) -> Any:
        """The answer itself, without its probabilities."""
        raise NotImplementedError

    @property
    def as_label(self) -> Any:
        """The answer in the form of an example's label."""
        return self.decision

    @property
    def place(self) -> tuple[int, int] | None:
        """The begin and end of the answer in its text; None if it is not a part of one."""
        return None

    @classmethod
    def share_alike(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> float | None:
        """Return the share of answers that are the same; None if they are numbers."""
        pairs = zip(ours, theirs, strict=True)
        return sum(a.as_label == b.as_label for a, b in pairs) / len(ours)

    @classmethod
    def agreement(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> str:
        """Describe how many sample texts have the same answer in a lower precision as in fp32."""
        same = sum(a.decision == b.decision for a, b in zip(ours, theirs, strict=True))
        return f"the same {cls.noun} as in fp32 for {same} of {len(ours)} sample texts"

    @classmethod
    def label_probability(cls, loss: float) -> float | None:
        """Return the probability of the label of an example with this loss; None if an answer is
        not one of several labels."""
        return None

    def chances(self) -> list[tuple[str, float]]:
        """Return the possible answers with their probabilities, in any order; may be empty."""
        return []

    def lines(self) -> list[str]:
        """Return the answer in one line, and its marks in another."""
        answer, sure = self.cells()
        return [f"{answer} ({sure})" if sure else answer, *self.flag_lines()]

    def flag_lines(self) -> list[str]:
        """Describe why an answer means very little."""
        if self.empty:
            return ["the text is empty"]
        if not self.unknown:
            return []
        return [f"{self.unknown:.0%} of the pieces of the text are unknown to the vocabulary"]

    def shown_lines(self) -> list[str]:
        """Return the answer, and the most probable alternatives in a table."""
        chances = [] if self.empty else self.chances()
        best = ranking([chance for _, chance in chances], _CHANCES)
        rows = [(short(chances[at][0], _TEXT), f"{chances[at][1]:.1%}") for at in best]
        return [*self.lines(), *(aligned(rows) if len(rows) > 1 else [])]

    def __str__(self) -> str:
        return printable("\n".join(self.lines()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


class OneLabel(Answer):
    """Base of answers that are one of several labels.

    Attributes:
        label: the most probable one, or that of least expected cost.
        label_set: the labels of a set that contains the right one with the requested coverage, the
            most probable first; None: no sets were requested.
    """

    __slots__ = ()

    label: str
    label_set: tuple[str, ...] | None

    def to_json(self, details: bool) -> dict[str, Any]:
        values = super().to_json(details)
        if self.label_set is not None and not self.empty:
            values["label_set"] = list(self.label_set)
        return values

    @property
    def decision(self) -> str:
        return self.label

    @classmethod
    def label_probability(cls, loss: float) -> float:
        return math.exp(-loss)


@dataclass(frozen=True, repr=False)
class LabelAnswer(Answer):
    """Base of answers with a probability for every label of the task.

    Attributes:
        all_labels: of the task, in the order of the head's outputs.
        numbers: their probabilities. With thousands of labels, a dictionary for each text would
            take a hundred times the memory.
    """

    all_labels: tuple[str, ...] = field(kw_only=True)
    numbers: Sequence[float] = field(kw_only=True)

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each label."""
        return dict(zip(self.all_labels, self.numbers, strict=True))

    def chances(self) -> list[tuple[str, float]]:
        return list(zip(self.all_labels, self.numbers, strict=True))


def compact(table: np.ndarray) -> list[array[float]]:
    """Return each row of fp64 [N, K] as a Python array, which compares like a list."""
    return [array("d", row.tobytes()) for row in table]


class Answers(ShownList[Any]):
    """The answers to several texts: a list that is shown as a table."""

    def __init__(self, answers: Iterable[Any], texts: Sequence[Any] = ()) -> None:
        """
        Args:
            answers: all of one kind.
            texts: their texts, or none; the beginning of each is kept to be shown.
        """
        super().__init__(answers)
        self._texts = [short(_joined(text), _TEXT) for text in texts[:_ANSWERS]]

    def lines(self) -> list[str]:
        """Return a row for each answer: its probability, if there is one, and its text."""
        rows = [answer.cells() for answer in self[:_ANSWERS]]
        if not rows:
            return ["no answers"]
        columns = [["answer", *(answer for answer, _ in rows)]]
        if any(sure for _, sure in rows):
            columns.append(["probability", *(sure for _, sure in rows)])
        if len(self._texts) == len(rows):
            columns.append(["text", *self._texts])
        texts = (0, len(columns) - 1) if self._texts else (0,)
        lines = aligned(zip(*columns, strict=True), left=texts, head=True)
        rest = len(self) - len(rows)
        return [*lines, f"and {plural(rest, 'more answer')}"] if rest else lines


#: Returns a value of an answer in its JSON form, numbers rounded to six decimals.
json_value = partial(strict_json.json_value, digits=6)


def short(text: str, limit: int = 60) -> str:
    """Return the beginning of a text, at most `limit` characters, on one line."""
    return cut(visible(text), limit)


def _joined(text: Any) -> str:
    if isinstance(text, str):
        return text
    return " / ".join(map(str, text.values() if isinstance(text, dict) else text))


# Worst examples: those that a model predicts worst, with their place in the file.

#: Characters of a text in the terminal, and in a run's files.
_SHORT, _LONG = 100, 400
#: The number of characters before the first mark that are kept in a text that is cut around marks.
_BEFORE = 80


@dataclass(frozen=True)
class Mark:
    """A part of a text that has a label: an entity, a word, or an answer to a question.

    Attributes:
        text: index of the text in the example.
        begin, end: its characters, end exclusive.
        label: the type of the entity, or the tag; "" for an answer.
        of: whether it belongs to the example's label or to the model's answer.
    """

    text: int
    begin: int
    end: int
    label: str
    of: Literal["label", "answer"]


@dataclass(frozen=True, repr=False)
class WorstExample(Report):
    """An example that a model predicts badly, for users.

    Attributes:
        index: in the examples, from 0 on.
        texts: of the example; for tagging its words with spaces between them, but not between
            Chinese characters.
        label: the true one as text: a class, a number, entities with their types, labels or answers
            separated by bars, "(none)" if there is no label or no answer.
        answer: the model's, as text.
        loss: see :mod:`bertine.inference.evaluate`; to five decimals.
        file: the file with the example; "" if it was not read from one.
        line: of `file`, from 1 on: the line on which the example begins, in Parquet its row, in
            SQuAD's JSON the number of the question; 0 if unknown. Of data in memory, whose name is
            `file`, the index, from 0 on; in JSON it is ``data_index`` then.
        label_probability: the model's probability of the label, 0 to 1; None for tasks whose answer
            is not one label.
        marks: the entities, the words with a wrong tag, or the answer in its context: those of the
            label and those predicted.
    """

    index: int
    texts: tuple[str, ...]
    label: str
    answer: str
    loss: float
    file: str = ""
    line: int = 0
    label_probability: float | None = None
    marks: tuple[Mark, ...] = ()

    @property
    def place(self) -> str:
        """Its place: ``"train.csv:17"``, in memory ``"data[16]"``, and ``"items[16]"`` if only its
        place among the examples is known."""
        if not self.line:
            return row_at("items", Index(self.index))
        if is_typed(self.file):
            return f"{self.file}, row {self.line}"
        if Path(self.file).suffix == ".json":
            return f"{self.file}, question {self.line}"
        return row_at(self.file, self.line)

    def lines(self) -> list[str]:
        """Return its place, its label and the answer, and its texts."""
        likely = _percent(self.label_probability)
        return [
            f"{visible(self.place)}: loss {self.loss:.3f}; label {visible(self.label)}"
            + (f" ({likely})" if likely else "")
            + f", answer {visible(self.answer)}",
            *(visible(cut(text, _LONG)) for text in self.texts),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON values for a program: texts, label and answer cut at 400 characters,
        around the marks if there are any."""
        values = Report.to_dict(self._cut())
        if isinstance(self.line, Index):
            values["data_index"] = values.pop("line")
        return {name: value for name, value in values.items() if value not in (None, [])}

    def _cut(self) -> WorstExample:
        texts, marks = list(self.texts), []
        for number, text in enumerate(texts):
            own = [mark for mark in self.marks if mark.text == number]
            begin, end = _window(text, own)
            front = "…" if begin else ""
            texts[number] = front + text[begin:end] + ("…" if end < len(text) else "")
            shift = begin - len(front)
            marks += [
                replace(mark, begin=mark.begin - shift, end=mark.end - shift)
                for mark in own
                if begin <= mark.begin and mark.end <= end
            ]
        return replace(
            self,
            texts=tuple(texts),
            marks=tuple(marks),
            label=cut(self.label, _LONG),
            answer=cut(self.answer, _LONG),
        )


class WorstExamples(ShownList[WorstExample]):
    """The worst predicted examples, highest loss first: a list that is shown as a table."""

    def lines(self) -> list[str]:
        """Return a row for each; see :func:`worst_lines`."""
        return worst_lines(self)[1:] or ["no examples"]


def worst_lines(worst: Sequence[WorstExample]) -> list[str]:
    """Return a table for the terminal: the place of each example, its loss, the label and the
    model's answer, and the beginning of its text."""
    if not worst:
        return []
    sure = any(example.label_probability is not None for example in worst)
    head = ["", "loss", *(["label's probability"] if sure else []), "label", "answer", "text"]
    rows = [head]
    for example in worst:
        likely = _percent(example.label_probability)
        rows.append(
            [
                visible(example.place),
                f"{example.loss:.3f}",
                *([likely] if sure else []),
                visible(cut(example.label, _SHORT // 2)),
                visible(cut(example.answer, _SHORT // 2)),
                visible(cut(" / ".join(example.texts), _SHORT)),
            ]
        )
    last = len(head) - 1
    return ["worst predicted:", *aligned(rows, left=(0, last - 2, last - 1, last), head=True)]


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def _window(text: str, marks: Sequence[Mark]) -> tuple[int, int]:
    """Choose the characters of `text` to keep: all, or about 400 with the first mark among
    them."""
    if len(text) <= _LONG:
        return 0, len(text)
    first = min((mark.begin for mark in marks), default=0)
    if first < _LONG // 2:
        return 0, _LONG - 1
    begin = min(max(0, first - _BEFORE), len(text) - _LONG + 2)
    return begin, min(len(text), begin + _LONG - 2)
