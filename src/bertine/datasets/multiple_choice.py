"""Read the examples of multiple choice: SWAG's files (Zellers et al. 2018), RACE's (Lai et al.
2017), and users' tables.

SWAG's csv has the columns ``video-id, fold-ind, startphrase, sent1, sent2, gold-source, ending0,
ending1, ending2, ending3, label`` after a number without a name. The paper's sentence A is
``sent1``, sentence B is ``sent2`` and the ending.

RACE has a folder for each part, ``train``, ``dev`` and ``test``, with ``middle`` and ``high`` in
it, and in these a file for each passage: an object with ``article``, and for each question an item
of ``questions``, ``options`` (a list) and ``answers`` (a letter).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_json_object
from bertine.core.names import option, text_option
from bertine.core.strict_json import check_shape
from bertine.core.text import row_at
from bertine.data.examples import (
    Examples,
    as_columns,
    labelled_rows,
    open_table,
    read_examples,
    refuse_plain,
    resolve_label_column,
    resolve_text_columns,
)
from bertine.data.in_memory import SPLIT_NAMES, Data, DataParts, Source, as_table
from bertine.data.streams import ambiguous_column_error, listed, require_columns
from bertine.data.tables import Table, TableRow
from bertine.options.data import DEFAULTS, DataConfig
from bertine.tasks.base import Task
from bertine.tasks.choice import SWAG_CHOICES, SWAG_PROMPT, MultipleChoice

SWAG = "swag"
_SWAG_LABEL = "label"
#: Usual names of the prompt's columns, tried in this order; below, those of the choices.
_PROMPTS = (
    SWAG_PROMPT,
    ("article", "question"),
    ("context", "question"),
    ("question",),
    ("context",),
    ("text",),
)
#: The most digits of a choice's number.
_DIGITS = 9
_CHOICE = re.compile(r"((?:ending|choice|option|answer)[ _-]?)(\d+|[A-Ja-j])")


def choice_columns_of(
    name: str,
    columns: Sequence[str],
    text_columns: Sequence[str] | str | None,
    choice_columns: Sequence[str] | str | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the prompt and of the choices: those named, or those with usual
    names.

    Args:
        name: of the table, for messages.
        columns: of the table.

    Raises:
        BertineError: the columns are neither named nor recognized.
    """
    prompts, choices = as_columns(text_columns), as_columns(choice_columns)
    if not choices:
        choices = tuple(column for column in columns if _CHOICE.fullmatch(column))
        if len(choices) < 2:
            raise BertineError(
                f"{name}: cannot tell which columns hold the choices; name them with "
                f"{option('choice_columns')}; the columns are "
                f"{listed(columns)}"
            )
    if not prompts:
        known = [names for names in _PROMPTS if set(names) <= set(columns)]
        if not known:
            raise ambiguous_column_error(name, columns, "text before the choices", text_option())
        prompts = known[0]
    return prompts, choices


def read_choices(
    path: Source, config: DataConfig = DEFAULTS, *, swag: bool = False
) -> tuple[Examples, tuple[str, ...]]:
    """Read the examples of a table; return also which of their columns hold the choices. With
    `swag` the columns are SWAG's.

    Raises:
        BertineError: a column is missing or not recognized; a row of JSON lines has a choice that
            the first row does not have, and the user named none; there are choices that SWAG does
            not have; or the table cannot be read.
    """
    prompts: tuple[str, ...] = SWAG_PROMPT
    choices: tuple[str, ...] = SWAG_CHOICES
    if not swag:
        with open_table(path, config, ()) as table:
            prompts, choices = choice_columns_of(
                table.name, table.columns, config.text_columns, config.choice_columns
            )
    columns = (*prompts, *choices)
    label = _SWAG_LABEL if swag else config.label_column
    config = DataConfig.of(config, text_columns=columns, label_column=label)
    if config.choice_columns:
        require_columns(str(path), list(_all_columns(path, config)), choices)
    else:
        refuse_added(path, config, choices, swag=swag)
    return read_examples(path, config, optional=choices[2:], known=()), choices


def _all_columns(path: Source, config: DataConfig) -> dict[str, int]:
    """Return every column of a table, for JSON lines every key of any row, with the first line that
    has it. The text columns of `config` identify a header.

    Raises:
        BertineError: the table cannot be read.
    """
    wanted = as_columns(config.text_columns)
    with open_table(path, config, wanted, optional=wanted) as table:
        keys = dict.fromkeys(table.columns, 1)
        if table.keys_vary:
            keys = {}
            for row in table:
                for key in row.values:
                    keys.setdefault(key, row.line)
    return keys


def refuse_added(
    path: Source, config: DataConfig, choices: Sequence[str], *, swag: bool = False
) -> None:
    """Refuse a table with a choice that is not one of `choices`, which are SWAG's with `swag`, and
    that the user did not name. The text columns of `config` identify a header.

    Raises:
        BertineError: a column looks like another choice, with its line; the table cannot be read.
    """
    for key, line in _all_columns(path, config).items():
        if key not in choices and _CHOICE.fullmatch(key):
            raise BertineError(
                f"{row_at(path, line)}: has the choice {key!r} besides those of "
                + (
                    f"SWAG ({', '.join(choices)}); fine-tune on it as your own data (bertine "
                    "finetune choice)"
                    if swag
                    else f"the first row of the training file ({', '.join(choices)}); name all "
                    f"choices with {option('choice_columns')}"
                )
            )


def open_texts_of(
    task: Task[Any], path: Source, config: DataConfig, columns: Sequence[str] | None = None
) -> Table:
    """Open a table of texts for a trained `task`: with any number of choices if it chooses; see
    :func:`open_choices`. Else the table must have the `columns`, by default those that `config`
    names."""
    if isinstance(task, MultipleChoice):
        return open_choices(path, task, config)
    return open_table(path, config, columns)


def texts_of(
    task: Task[Any], table: Table, columns: tuple[str, ...], named: tuple[str, ...]
) -> tuple[tuple[str, ...], Iterable[TableRow], list[str]]:
    """Return the columns of texts in an open table, the rows, and notes on the columns: `columns`
    and all rows, if the `task` does not choose."""
    if not isinstance(task, MultipleChoice):
        return columns, table, []
    columns, notes = choices_of(table, task, named)
    return columns, choice_rows(table, task, columns, named), notes


def open_choices(path: Source, task: MultipleChoice, config: DataConfig) -> Table:
    """Open a table for a trained model; :func:`choices_of` gives the columns to read. Text columns
    of `config` are those of the prompt and of any number of choices.

    Raises:
        BertineError: fewer than two choices are named; the table cannot be opened.
    """
    named = as_columns(config.text_columns)
    usual = named or task.text_columns
    optional = task.optional(usual)
    return open_table(path, config, named or usual[: len(usual) - len(optional)], optional)


def choices_of(
    table: Table, task: MultipleChoice, named: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the columns of an open table that a trained model reads, and notes on them for the
    user.

    They are those `named`; otherwise those of training, without the last choices if the table lacks
    them, and with further ones under the next usual names (``ending4`` after ``ending3``): each
    choice is scored separately, so there may be any number. From here on empty ones are allowed.

    Raises:
        BertineError: a column is missing; a choice is not the next one after another.
    """
    prompts = len(task.prompt_columns)
    if named:
        columns = resolve_text_columns(table, named)
    else:
        trained = task.choice_columns
        later = () if task.named_choices else _later(table.name, trained, table.columns)
        choices = (*trained, *later)
        if not table.keys_vary:
            present = [number for number, name in enumerate(choices) if name in table.columns]
            choices = choices[: present[-1] + 1]
        columns = (*task.prompt_columns, *choices)
        table.allow_empty(task.optional(columns))
        table.require(columns)
    more = len(columns) - len(task.text_columns)
    if not more:
        return columns, []
    return columns, [
        f"{table.name}: has {len(columns) - prompts} columns of choices "
        f"({', '.join(columns[prompts:])}), {abs(more)} {'more' if more > 0 else 'fewer'} than in "
        f"training; all of them are scored, behind {' and '.join(columns[:prompts])}"
    ]


def choice_rows(
    table: Table, task: MultipleChoice, columns: Sequence[str], named: tuple[str, ...]
) -> Iterator[TableRow]:
    """Yield the rows of a table, with the `columns` of :func:`choices_of`.

    Raises:
        BertineError: a row of JSON lines has a further choice that the first row does not have, and
            the user named none.
    """
    if named or task.named_choices:
        yield from table
        return
    choices = columns[len(task.prompt_columns) :]
    known = {*table.columns, *columns}
    for row in table:
        if new := row.values.keys() - known:
            where = row_at(table.name, row.line)
            if later := _later(where, choices, sorted(new)):
                raise BertineError(
                    f"{where}: has the choice {later[0]!r}, but the first row has none; name all "
                    f"columns with {option('text_columns')}"
                )
        yield row


def _later(where: str, choices: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Find those of `columns` that continue the usual names of `choices`, in order; none if these
    have other names, or not all of the same kind.

    Raises:
        BertineError: one of them is not the next one after another; begins with `where`.
    """
    places = [_place(name) for name in choices]
    kinds = {place[0] if place else None for place in places}
    if None in kinds or len(kinds) > 1:
        return ()
    last = max(place[1] for place in places if place)
    later = [(place[1], name) for name in columns if (place := _place(name)) and place[0] in kinds]
    later = sorted(pair for pair in later if pair[0] > last)
    for expected, (number, name) in enumerate(later, last + 1):
        if number != expected:
            raise BertineError(
                f"{where}: has the choice {name!r}, but none just before it; name all columns with "
                f"{option('text_columns')}"
            )
    return tuple(name for _, name in later)


def _place(name: str) -> tuple[str, int] | None:
    """Return the kind of a choice's usual name ("ending" with a number, "option " with a capital),
    and its position among names of its kind."""
    match = _CHOICE.fullmatch(name)
    if match is None or len(match[2]) > _DIGITS:
        return None
    if match[2].isdecimal():
        return f"{match[1]}0", int(match[2])
    return f"{match[1]}{'A' if match[2].isupper() else 'a'}", ord(match[2])


def read_trained_choices(task: MultipleChoice, path: Source, config: DataConfig) -> Examples:
    """Read the labelled examples of a table for a trained model; :func:`choices_of` gives the
    columns.

    Raises:
        BertineError: a column is missing; the table cannot be read.
    """
    named = as_columns(config.text_columns)
    with open_choices(path, task, config) as table:
        refuse_plain(table)
        columns, notes = choices_of(table, task, named)
        label = resolve_label_column(table, config.label_column or task.label_column)
        rows = choice_rows(table, task, columns, named)
        examples = labelled_rows(table, rows, columns, label, known=())
    examples.notes[:0] = notes
    return examples


#: The usual longest input of RACE, whose passages are long, and what its files must hold.
RACE_LENGTH = 512
_RACE = {"article": "text", "questions": ["text"], "options": [["text"]], "answers": ["text"]}


def tables_of_race(data: Data) -> Data:
    """Return the parts of a folder in RACE's layout as tables, or the one table of a folder with
    files of one part; other data unchanged. A row is a question, with its article, the columns
    ``option A``, ``option B``, … and its letter as ``label``.

    Raises:
        BertineError: a file is not as in RACE; names it.
    """
    if not isinstance(data, str | Path):
        return data
    folder = Path(data)
    parts: dict[str, Any] = {
        part: as_table(rows, str(folder / name))
        for part, names in SPLIT_NAMES.items()
        for name in names
        if (rows := _rows_of_race(folder / name))
    }
    if parts:
        return DataParts(**parts, name=str(data))
    rows = _rows_of_race(folder)
    return as_table(rows, str(data)) if rows else data


def _rows_of_race(folder: Path) -> list[dict[str, str]]:
    """Read the questions of the files in `folder` and in its subfolders; none if it has no texts
    that begin as objects of JSON."""
    files = sorted(file for way in ("*.txt", "*/*.txt") for file in folder.glob(way))
    files = [file for file in files if file.is_file()]
    rows: list[dict[str, str]] = []
    if files:
        with os_errors(files[0], "reading it"), open(files[0], "rb") as first:
            files = files if first.read(1) == b"{" else []
    for file in files:
        passage = read_json_object(file)
        check_shape(passage, _RACE, file)
        asked = [passage[key] for key in ("questions", "options", "answers")]
        if len({*map(len, asked)}) != 1:
            raise BertineError(f"{file}: has not as many questions as lists of options and answers")
        for question, options, answer in zip(*asked, strict=True):
            choices = dict(zip(map("option {}".format, ascii_uppercase), options, strict=False))
            rows.append(
                {"article": passage["article"], "question": question, **choices, "label": answer}
            )
    return rows
