"""What users give a task and what they get: examples of texts, answers as rows and lines."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, ClassVar, Self

from bertine.errors import BertineError
from bertine.records.examples import Example, Examples
from bertine.scores import ranking
from bertine.tables.layout import LINE_COLUMN
from bertine.tasks.answer import Answer, json_value, short
from bertine.terminal.console import aligned, counted


class UserSide:
    """The side of a task that users meet: what texts it takes, and how its answers are shown.

    Attributes:
        answer: the class of its answers.
        text_columns: the columns that hold an example's texts.
    """

    answer: ClassVar[type[Answer]]
    text_columns: tuple[str, ...]

    def examples_of(
        self, texts: Sequence[Any], source: str = "input", lines: Sequence[int] | None = None
    ) -> Examples:
        """Make examples without labels of texts.

        Args:
            texts: N strings, or several that belong together.
            source: of them, for messages.
            lines: of the source, one for each text; None: 1, 2, ….
        """
        numbers = range(1, len(texts) + 1) if lines is None else lines
        items = [
            Example((text,) if isinstance(text, str) else tuple(text), line=line)
            for text, line in zip(texts, numbers, strict=True)
        ]
        return Examples(source, self.text_columns, None, items)

    def answers(self, examples: Examples, predictions: Sequence[Any]) -> list[Any]:
        """Make what a user gets of the `predictions` for what :meth:`examples_of` returned."""
        return list(predictions)

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Say why a text, or several, is not what the task takes; None: it is."""
        columns, parts = self.text_columns, 1 if isinstance(text, str) else len(text)
        if parts == len(columns):
            return None
        wanted = "one text" if len(columns) == 1 else f"a list of {len(columns)} texts"
        return f"has {parts} parts; give {wanted} ({', '.join(columns)})"

    def group(self, strings: Sequence[str]) -> list[Any]:
        """Deal strings out to examples, as many to each as there are columns.

        Raises:
            BertineError: their number does not fit.
        """
        columns, step = self.text_columns, len(self.text_columns)
        if step == 1:
            return list(strings)
        if len(strings) % step:
            raise BertineError(
                f"{counted(len(strings), 'text')} given, but the model takes "
                f"{step} for each answer: {' and '.join(map(repr, columns))}"
            )
        return [tuple(strings[start : start + step]) for start in range(0, len(strings), step)]

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Choose the columns of texts that come by `names`, and how many of the last ones may be
        missing."""
        return self.text_columns, 0

    def columns_for(self, count: int) -> tuple[str, ...]:
        """Return the columns for `count` texts of an example."""
        return self.text_columns

    def over(self, columns: Sequence[str]) -> Self:
        """Return the task for a table with these text columns."""
        return self

    def sample_inputs(self, texts: Sequence[str]) -> list[Any]:
        """Make an input of the task's kind for each of `texts`: the text, or, where an input has
        several, the text and those after it."""
        width = len(self.text_columns)
        if width == 1:
            return list(texts)
        return [
            tuple(texts[(start + shift) % len(texts)] for shift in range(width))
            for start in range(len(texts))
        ]

    def summary(self, texts: Sequence[str], answer: Answer) -> tuple[str, str]:
        """Return an answer to `texts` and its probability, or nothing, for a person."""
        return answer.cells()

    def chances_of(self, texts: Sequence[str], answer: Answer) -> list[tuple[str, float]]:
        """Return what might be answered to `texts`, with its probability."""
        return [] if answer.empty else answer.chances()

    def lines_below(self, texts: Sequence[str], answer: Any, details: bool) -> list[str]:
        """Return what a person reads below an answer: with `details` its chances, the best
        first."""
        chances = self.chances_of(texts, answer) if details else []
        order = ranking([chance for _, chance in chances])
        return aligned([(short(chances[at][0]), f"{chances[at][1]:.1%}") for at in order])

    def row_of(self, texts: Sequence[str], answer: Any, details: bool) -> dict[str, Any]:
        """Return `texts` by their columns, a single one as that of a line, and their answer as the
        row of a table."""
        columns = self.text_columns if len(self.text_columns) > 1 else (LINE_COLUMN,)
        return dict(zip(columns, texts, strict=True)) | self.values_of(answer, details)

    def values_of(self, answer: Any, details: bool) -> dict[str, Any]:
        """Return what a file of answers holds of one, by the name of the column, and what marks
        it."""
        columns = self.output_columns(details)
        if not isinstance(answer, Answer):
            return {name: value(answer) for name, value in columns.items()}
        values = {name: None if answer.empty else value(answer) for name, value in columns.items()}
        return values | answer.flags()

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return the columns that a file of answers gets, more of them with `details`: by name,
        what makes the value of one, in JSON, of an answer. Usually those that
        :attr:`Answer.written` names."""
        return {name: _value_under(name) for name in self.answer.names(details)}


def _value_under(name: str) -> Callable[[Any], Any]:
    def value(answer: Any) -> Any:
        # What a task decodes may be the inner part of an answer.
        whole = isinstance(answer, Answer)
        return answer.value_of(name) if whole else json_value(getattr(answer, name))

    return value
