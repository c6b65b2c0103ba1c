"""The examples that a model predicts worst, with their place in the file, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertine.tables.parquet import is_parquet
from bertine.terminal.console import aligned, visible
from bertine.terminal.shown import Shown, ShownList

#: Characters of a text in the terminal, and in a run's files.
_SHORT, _LONG = 100, 400
#: Of a text that is cut around its marks, how many characters stay before the first mark.
_BEFORE = 80


@dataclass(frozen=True)
class Mark:
    """A part of a text that has a label: an entity, a word, or an answer to a question.

    Attributes:
        text: which text of the example it is in.
        begin, end: its characters, end exclusive.
        label: the type of the entity, or the tag; "" for an answer.
        of: whether the example's label or the model's answer marks it.
    """

    text: int
    begin: int
    end: int
    label: str
    of: Literal["label", "answer"]


@dataclass(frozen=True, repr=False)
class WorstExample(Shown):
    """An example that a model predicts badly.

    Attributes:
        index: among the examples, from 0 on.
        texts: of the example; for tagging its words with spaces between them, but not between
            Chinese characters.
        label: the true one as text: a class, a number, entities with their types, labels or
            answers with a bar between them, "(none)" where there is no label or no answer.
        answer: the model's, as text.
        loss: see :mod:`bertine.inference.losses`; to five decimals.
        file: that holds the example; "" where it was not read from one.
        line: of `file`, from 1 on: the line on which the example begins, in Parquet its row, in
            SQuAD's JSON the number of the question; 0 where it is not known.
        label_probability: what the model gives the label, 0 to 1; None for tasks whose answer is
            not one label.
        marks: the entities, the words with a wrong tag, or the answer in its context: those of
            the label and those predicted.
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
        """Where to find it: ``"train.csv:17"``, or ``"example 3"`` (from 1 on) without a file."""
        if not self.line:
            return f"example {self.index + 1}"
        if is_parquet(self.file):
            return f"{self.file}, row {self.line}"
        if Path(self.file).suffix == ".json":
            return f"{self.file}, question {self.line}"
        return f"{self.file}:{self.line}"

    def lines(self) -> list[str]:
        """Return where it is, its label and the answer, and its texts."""
        likely = _percent(self.label_probability)
        return [
            f"{visible(self.place)}: loss {self.loss:.3f}; label {visible(self.label)}"
            + (f" ({likely})" if likely else "")
            + f", answer {visible(self.answer)}",
            *(visible(shortened(text, _LONG)) for text in self.texts),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what a program reads, only JSON types: texts, label and answer cut at 400
        characters, around the marks where there are any."""
        short = self._cut()
        values = asdict(short) | {
            "texts": list(short.texts),
            "marks": list(map(asdict, short.marks)),
        }
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
            label=shortened(self.label, _LONG),
            answer=shortened(self.answer, _LONG),
        )


class WorstExamples(ShownList[WorstExample]):
    """The worst predicted examples, highest loss first: a list, which is shown as a table."""

    def lines(self) -> list[str]:
        """Return a row for each; see :func:`worst_lines`."""
        return worst_lines(self)[1:] or ["no examples"]


def worst_lines(worst: Sequence[WorstExample]) -> list[str]:
    """Return a table for the terminal: where each example is, its loss, what the file and the model
    say, the beginning of its text."""
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
                visible(shortened(example.label, _SHORT // 2)),
                visible(shortened(example.answer, _SHORT // 2)),
                visible(shortened(" / ".join(example.texts), _SHORT)),
            ]
        )
    last = len(head) - 1
    return ["worst predicted:", *aligned(rows, left=(0, last - 2, last - 1, last), head=True)]


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, an ellipsis for the rest."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _window(text: str, marks: Sequence[Mark]) -> tuple[int, int]:
    """Choose the characters of `text` that are kept: all, or about 400, with the first mark in
    them."""
    if len(text) <= _LONG:
        return 0, len(text)
    first = min((mark.begin for mark in marks), default=0)
    if first < _LONG // 2:
        return 0, _LONG - 1
    begin = min(max(0, first - _BEFORE), len(text) - _LONG + 2)
    return begin, min(len(text), begin + _LONG - 2)
