"""How labelled data are read, and what is read: what every kind of data has in common."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bertine.datasets.choice_data import SWAG
from bertine.errors import BertineError
from bertine.options.reading import (
    DocumentContext,
    GlueChoice,
    SplitSeed,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.records.examples import Examples
from bertine.tasks.base import Task
from bertine.tasks.options import TableOptions
from bertine.tasks.spans.task import SpanExtraction, SpanLimits
from bertine.tasks.tagging.task import Tagging


@dataclass(frozen=True)
class Labelled:
    """The examples that a run is trained and judged on.

    Attributes:
        build: (the longest input) → the task that the training examples describe.
        train: the training examples.
        validation: what the model is judged on after each epoch; of none it is not judged.
        others: further validation sets, by the word before the names of their metrics.
        max_length: the longest input, in pieces, where nobody says.
    """

    build: Callable[[int], Task[Any]]
    train: Examples[Any]
    validation: Examples[Any]
    others: dict[str, Examples[Any]] = field(default_factory=dict)
    max_length: int = 128

    def whole(self) -> Labelled:
        """Return the same with the examples that were held out of one file back in their places."""
        items = sorted([*self.train.items, *self.validation.items], key=lambda item: item.line)
        return replace(
            self,
            train=replace(self.train, items=items),
            validation=replace(self.validation, items=[]),
        )


#: What only tagged words have.
_TAGGED = ("word_column", "tag_column", "tag_scheme", "document_context")


class Reading(GlueChoice, TableColumns, TableReading, TaggedColumns, DocumentContext, SplitSeed):
    """The options by which data are read; see :func:`bertine.finetune`, whose arguments the
    attributes are: `options` those of own tables, `limits` those of questions and contexts. Where
    there is no validation file, `whole` says that no examples are held out, and rows whose numbers
    are `known` (:mod:`~bertine.records.known_rows`) are not, as a model was trained on them."""

    options: TableOptions = field(default_factory=TableOptions)
    limits: SpanLimits | None = None
    whole: bool = False
    known: frozenset[int] = frozenset()

    @property
    def table(self) -> dict[str, Any]:
        """The options of a table: columns, format, quotes, strictness, by name."""
        return {
            "text_columns": self.text_columns,
            "label_column": self.label_column,
            "format": self.format,
            "quotes": self.quotes,
            "strict": self.strict,
        }

    @property
    def named(self) -> bool:
        """Whether columns, format or quotes are said, which the official files have of their
        own."""
        return any(value is not None for name, value in self.table.items() if name != "strict")

    def refuse(self, task: str) -> None:
        """Raise a :class:`BertineError` if anything is given that is for other tasks."""
        if self.limits is not None and task not in ("squad", SpanExtraction.name):
            raise BertineError(
                "doc_stride, max_question_length and max_answer_length are for spans, but the "
                f"task is {task!r}"
            )
        self.refuse_tagging(task)
        self.options.refuse("choice" if task == SWAG else task)

    def refuse_tagging(self, task: str) -> None:
        """Raise a :class:`BertineError` if anything is given that is for tagging, which `task` is
        not."""
        for name in _TAGGED:
            value = getattr(self, name)
            if task != Tagging.name and value is not None and value is not False:
                raise BertineError(f"{name} is for the task tagging, but the task is {task!r}")

    def given(self) -> dict[str, Any]:
        """Return what is said at all, by name; the limits of spans under that of the first."""
        said = _said(self, ("options", "limits", "known")) | _said(self.options)
        return said if self.limits is None else {**said, "doc_stride": self.limits}

    def to_facts(self) -> dict[str, Any]:
        """Return what is said at all, as JSON; :meth:`from_facts` takes it back. Limits of spans
        are left out, which say nothing of how a file is read."""
        return {name: value for name, value in self.given().items() if name != "doc_stride"}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Reading:
        """Take back what :meth:`to_facts` returned; unknown names are left out."""
        own = {field.name for field in fields(cls)} - {"options", "limits", "known"}
        options = {field.name for field in fields(TableOptions)} & facts.keys()
        return cls(
            **{name: facts[name] for name in own & facts.keys()},
            options=TableOptions(**{name: facts[name] for name in options}),
        )

    def refuse_all(self) -> None:
        """Raise a :class:`BertineError` if anything is given at all: for examples that are read
        already, and describe their task."""
        for name in self.given():
            raise BertineError(
                f"{name} is given, but the data are examples that are read already; leave it out, "
                "or give a file or a folder"
            )


def _said(group: Any, but: Container[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass that are not as usual, by name, all but some."""
    values = {field: getattr(group, field.name) for field in fields(group) if field.name not in but}
    return {field.name: value for field, value in values.items() if value != field.default}
