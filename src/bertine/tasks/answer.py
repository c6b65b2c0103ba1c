"""How a model's answer, and a list of them, look in Python and in notebooks."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bertine.scores import ranking
from bertine.terminal.console import aligned, counted, visible
from bertine.terminal.shown import Shown, ShownList
from bertine.terminal.text import printable

#: Other possible answers in a notebook; characters of a text; answers of a list.
_CHANCES, _TEXT, _ANSWERS = 5, 80, 50


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """Base of what models answer: one line of text, and in notebooks what else was likely.

    Attributes:
        unknown: the share of the text's pieces that the vocabulary does not know, where these are
            most of them, so that the answer says next to nothing; else 0.
        empty: whether there was no text to answer. In files and in JSON there is no answer then;
            the attributes are what the model makes of nothing.
    """

    __slots__ = ()

    unknown: float = field(default=0.0, kw_only=True)
    empty: bool = field(default=False, kw_only=True)

    def cells(self) -> tuple[str, str]:
        """Return the answer, and its probability or nothing, as text."""
        return ("(no answer)", "") if self.empty else self.own_cells()

    def own_cells(self) -> tuple[str, str]:
        """Return the same of a text that is not empty."""
        raise NotImplementedError

    #: What it decides, as messages call it.
    noun: ClassVar[str] = "label"
    #: The attributes that it is written as, in JSON and in the columns of a file, and those that
    #: come with the probability of everything that was not chosen.
    written: ClassVar[tuple[str, ...]]
    detailed: ClassVar[tuple[str, ...]] = ()
    #: Those of `written` that are left open where it abstains.
    left_open: ClassVar[tuple[str, ...]] = ()
    #: Whether its probability is below the bound from which on the model is to answer.
    abstains = False

    @classmethod
    def names(cls, details: bool) -> tuple[str, ...]:
        """Return the names of the attributes that are written."""
        return (*cls.written, *(cls.detailed if details else ()))

    def to_json(self, details: bool) -> dict[str, Any]:
        """Return the answer as JSON values; with `details` also the probability of everything
        that was not chosen."""
        return {name: self.value_of(name) for name in self.names(details)} | self.flags()

    def flags(self) -> dict[str, Any]:
        """Return what marks an answer that says next to nothing, as JSON values: ``unknown``,
        ``empty``."""
        flags: dict[str, Any] = {"unknown": json_value(self.unknown)} if self.unknown else {}
        return flags | ({"empty": True} if self.empty else {})

    def value_of(self, name: str) -> Any:
        """Return one of the attributes that are written as a JSON value; None for what it decides
        where it abstains, and for all of them where the text is empty."""
        if self.empty or (self.abstains and name in self.left_open):
            return None
        return json_value(getattr(self, name))

    @property
    def decision(self) -> Any:
        """The answer itself, without its probabilities."""
        raise NotImplementedError

    @property
    def place(self) -> tuple[int, int] | None:
        """The begin and end of the answer in the text that it was found in; None where it is no
        part of one."""
        return None

    @classmethod
    def agreement(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> str:
        """Say for how many of some sample texts answers in a lower precision are those in fp32."""
        same = sum(a.decision == b.decision for a, b in zip(ours, theirs, strict=True))
        return f"the same {cls.noun} as in fp32 for {same} of {len(ours)} sample texts"

    def chances(self) -> list[tuple[str, float]]:
        """Return what might be answered, with its probability, in any order; may be empty."""
        return []

    def lines(self) -> list[str]:
        """Return the answer in one line, and what marks it in another."""
        answer, sure = self.cells()
        return [f"{answer} ({sure})" if sure else answer, *self.flag_lines()]

    def flag_lines(self) -> list[str]:
        """Return what marks an answer that says next to nothing, for a person."""
        if self.empty:
            return ["the text is empty"]
        if not self.unknown:
            return []
        return [f"{self.unknown:.0%} of the pieces of the text are unknown to the vocabulary"]

    def shown_lines(self) -> list[str]:
        """Return the answer, and the most probable ones in a table."""
        chances = [] if self.empty else self.chances()
        best = ranking([chance for _, chance in chances], _CHANCES)
        rows = [(short(chances[at][0], _TEXT), f"{chances[at][1]:.1%}") for at in best]
        return [*self.lines(), *(aligned(rows) if len(rows) > 1 else [])]

    def __str__(self) -> str:
        return printable("\n".join(self.lines()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


@dataclass(frozen=True, repr=False)
class LabelAnswer(Answer):
    """Base of answers that give every label of the task a probability.

    Attributes:
        all_labels: of the task, in the order of the head's outputs.
        numbers: their probabilities. Of thousands of labels a dictionary for each text would take
            a hundred times the memory.
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
    """Return each row of fp64 [N, K] as an array of Python's, which compares as a list does."""
    return [array("d", row.tobytes()) for row in table]


class Answers(ShownList[Any]):
    """The answers to several texts: a list, which is shown as a table."""

    def __init__(self, answers: Iterable[Any], texts: Sequence[Any] = ()) -> None:
        """
        Args:
            answers: of one kind.
            texts: that they are for, or none; of each the beginning is kept to be shown.
        """
        super().__init__(answers)
        self._texts = [short(_joined(text), _TEXT) for text in texts[:_ANSWERS]]

    def lines(self) -> list[str]:
        """Return a row for each answer: its probability, where there is one, and its text."""
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
        return [*lines, f"and {counted(rest, 'more answer')}"] if rest else lines


def json_value(value: Any) -> Any:
    """Return a value of an answer as JSON has it, numbers rounded to six decimals."""
    if isinstance(value, float):
        return round(float(value), 6)
    if isinstance(value, dict):
        return {name: json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    return value.to_json() if hasattr(value, "to_json") else value


def short(text: str, limit: int = 60) -> str:
    """Return the beginning of a text, at most `limit` characters, in one line."""
    text = visible(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _joined(text: Any) -> str:
    if isinstance(text, str):
        return text
    return " / ".join(map(str, text.values() if isinstance(text, dict) else text))
