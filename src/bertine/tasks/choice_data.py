"""The examples of multiple choice: SWAG's files (Zellers et al. 2018), and one's own tables.

SWAG's csv has the columns ``video-id, fold-ind, startphrase, sent1, sent2, gold-source, ending0,
ending1, ending2, ending3, label`` behind a nameless number. As the paper's sentence A stands
``sent1``, as sentence B ``sent2`` and the ending.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.tasks.choice import SWAG_CHOICES, SWAG_PROMPT, MultipleChoice
from bertine.tasks.examples import Examples, as_columns, read_examples
from bertine.tasks.parquet import is_parquet
from bertine.tasks.tables import Table, listed, require_columns

SWAG = "swag"
_SWAG_LABEL = "label"
#: Usual names of what is given, tried in this order, and of the choices.
_PROMPTS = (SWAG_PROMPT, ("context", "question"), ("question",), ("context",), ("text",))
_CHOICE = re.compile(r"(?:ending|choice|option|answer)[ _-]?(?:\d+|[A-Ja-j])")


def choice_columns_of(
    name: str,
    columns: Sequence[str],
    text_columns: Sequence[str] | str | None,
    choice_columns: Sequence[str] | str | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of what is given, and those of the choices: those named, or the usual ones.

    Args:
        name: of the table, for messages.
        columns: that it has.

    Raises:
        BertineError: they are neither named nor to be told.
    """
    prompts, choices = as_columns(text_columns), as_columns(choice_columns)
    if not choices:
        choices = tuple(column for column in columns if _CHOICE.fullmatch(column))
        if len(choices) < 2:
            raise BertineError(
                f"{name}: cannot tell which columns hold the choices; name them with "
                f"choice_columns (--choice-columns); the columns are "
                f"{listed(columns)}"
            )
    if not prompts:
        known = [names for names in _PROMPTS if set(names) <= set(columns)]
        if not known:
            raise BertineError(
                f"{name}: cannot tell which column holds the text before the choices; name it "
                f"with text_columns (--text-columns); the columns are "
                f"{listed(columns)}"
            )
        prompts = known[0]
    return prompts, choices


def read_choices(
    path: Path | str,
    *,
    text_columns: Sequence[str] | str | None = None,
    choice_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    swag: bool = False,
    **reading: Any,
) -> tuple[Examples, tuple[str, ...]]:
    """The examples of a table, and which of their columns hold the choices.

    Args:
        swag: the columns are SWAG's.
        reading: `format`, `quotes` and `strict` of :func:`~bertine.tasks.examples.read_examples`.

    Raises:
        BertineError: a column is missing or cannot be told; a row of JSON lines has a choice that
            the first has not, where nobody names them; what reading the table raises.
    """
    prompts: tuple[str, ...] = SWAG_PROMPT
    choices: tuple[str, ...] = SWAG_CHOICES
    if swag:
        label_column = _SWAG_LABEL
    else:
        with Table(path, **reading) as table:
            prompts, choices = choice_columns_of(
                table.name, table.columns, text_columns, choice_columns
            )
        keys = json_keys(path, **reading)
        if keys and not choice_columns:
            refuse_added(str(path), keys, choices)
        if keys:
            require_columns(str(path), list(keys), choices)
    columns = (*prompts, *choices)
    return (
        read_examples(
            path,
            text_columns=columns,
            label_column=label_column,
            optional=choices[2:],
            **reading,
        ),
        choices,
    )


def json_keys(path: Path | str, **reading: Any) -> dict[str, int]:
    """Every key of JSON lines, whose rows may have different ones, and the line that has it first;
    of other tables none, since their rows have the same columns.

    Args:
        reading: `format`, `quotes` and `strict` of :class:`~bertine.tasks.tables.Table`.

    Raises:
        BertineError: what reading the table raises.
    """
    keys: dict[str, int] = {}
    with Table(path, **reading) as table:
        if table.layout.kind == "jsonl" and not is_parquet(path):
            for row in table:
                for key in row.values:
                    keys.setdefault(key, row.line)
    return keys


def refuse_added(name: str, keys: Mapping[str, int], choices: Sequence[str]) -> None:
    """Refuse a file `name` with a choice that is none of `choices`, which nobody has named.

    Args:
        keys: of the file, each with the first line that has it.

    Raises:
        BertineError: a key looks like another choice; names its line.
    """
    for key, line in keys.items():
        if key not in choices and _CHOICE.fullmatch(key):
            raise BertineError(
                f"{name}:{line}: has the choice {key!r} besides those of the first row of the "
                f"training file ({', '.join(choices)}); name all choices with choice_columns "
                "(--choice-columns)"
            )


def choice_task(
    examples: Examples, choices: tuple[str, ...], max_length: int, *, swag: bool
) -> MultipleChoice:
    """The task of training examples whose last columns are `choices`.

    Raises:
        BertineError: what :meth:`MultipleChoice.from_examples` raises.
    """
    task = MultipleChoice.from_examples(examples, max_length=max_length, labels=choices)
    return dataclasses.replace(task, dataset=SWAG if swag else None)
