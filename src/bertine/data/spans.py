"""Find and read files of questions: SQuAD's official JSON, or a table with one row per question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import row_at
from bertine.data.examples import as_columns, find_splits, judged_table, open_table
from bertine.data.in_memory import SPLIT_NAMES, Data, DataParts, InMemoryTable, Source
from bertine.data.lines import inner_suffix, quotes_for
from bertine.data.squad import RawQuestion, SpanExamples, load_squad, read_squad, span_examples
from bertine.data.streams import ambiguous_column_error, missing_column, require_columns
from bertine.data.tables import Table, TableRow
from bertine.options.data import DEFAULTS, DataConfig

# Tables of questions: a row has a question, its context and, if known, the answer.

#: The default columns. The start of the answer and the id are optional.
TEXT_COLUMNS = ("question", "context")
ANSWER_COLUMNS = ("answer", "answers")
START_COLUMN = "answer_start"
ID_COLUMN = "id"

_Answers = list[tuple[str, int | None]]


def read_span_table(path: Source, config: DataConfig = DEFAULTS) -> SpanExamples:
    """Read a table of questions with their answers, whole.

    An empty answer means that the context has none; if a table has such a row, it is evaluated by
    the rules of SQuAD v2.0. ``answer_start`` is the first character of the answer in the context,
    counted from 0; without it, the answer is searched for. ``id`` names the question, by default
    its line does. In JSON lines the answer may also be null, or several: a list
    of ``{"text": …, "answer_start": …}``, or ``{"text": […], "answer_start": […]}``.

    Args:
        path: csv, tsv or JSON lines, see :class:`~bertine.data.tables.Table`.
        config: the columns of question and context, by default ``question`` and ``context``, and
            of the answer, by default ``answer`` or ``answers``.

    Raises:
        BertineError: an error of the table; a column is missing; an answer or its start is of the
            wrong kind; there is no row.
    """
    columns, label_column = as_columns(config.text_columns) or TEXT_COLUMNS, config.label_column
    if len(columns) != 2:
        raise BertineError(f"spans take two text columns, question and context, not {len(columns)}")
    wanted = [*columns, *([label_column] if label_column else [])]
    raws: list[RawQuestion] = []
    with open_table(path, config, wanted) as table:
        if table.layout.kind == "text":
            raise BertineError(
                f"{table.name}: its first line is not a header with columns for question and "
                "context; add one, or give the format (csv, tsv or jsonl)"
            )
        require_columns(table.name, table.columns, columns)
        label = label_column or next(
            (name for name in ANSWER_COLUMNS if name in table.columns), None
        )
        if label is None:
            raise ambiguous_column_error(
                table.name, table.columns, "answer", option("label_column")
            )
        for row in table:
            name = row.values.get(ID_COLUMN)
            raws.append(
                RawQuestion(
                    str(row.line if name is None or name == "" else name),
                    row.line,
                    table.text(row, columns[0]),
                    table.text(row, columns[1]),
                    _answers(table, row, label),
                )
            )
        if not raws:
            raise BertineError(f"{table.name}: has a header, but no rows")
        return span_examples(
            table.name,
            (columns[0], columns[1]),
            label,
            raws,
            v2=any(raw.answers is not None and not raw.answers for raw in raws),
            notes=table.stats.notes(table.name),
        )


def _answers(table: Table, row: TableRow, label: str) -> _Answers:
    """Return the answers of a row; empty if the cell is empty."""
    where = row_at(table.name, row.line)
    if label not in row.values:
        raise BertineError(missing_column(where, list(row.values), label))
    value = row.values[label]
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str):
        return [(value, _start(where, row.values.get(START_COLUMN)))]
    pairs: list[Any] = []
    if isinstance(value, list):
        pairs = [
            (item.get("text"), item.get("answer_start")) if isinstance(item, dict) else (item, None)
            for item in value
        ]
    elif isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and starts is None:
            starts = [None] * len(texts)
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise BertineError(
                f'{where}: {label!r} must have lists "text" and "answer_start" of the same length'
            )
        pairs = list(zip(texts, starts, strict=True))
    else:
        raise BertineError(f"{where}: {label!r} is {value!r}, but must be a text")
    answers: _Answers = []
    for text, start in pairs:
        if not isinstance(text, str):
            raise BertineError(f"{where}: an answer in {label!r} is {text!r}, but must be a text")
        answers.append((text, _start(where, start)))
    return answers


def _start(where: str, value: Any) -> int | None:
    """Return the character at which an answer begins; None if not given. 12.0 is accepted as 12: in
    pandas a column with missing values is one of floats."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, float):
            return None if math.isnan(value) else int(str(value).removesuffix(".0"))
        return int(value.removesuffix(".0") if isinstance(value, str) else value)
    except (ValueError, TypeError):
        raise BertineError(
            f"{where}: {START_COLUMN} is {value!r}, but must be a whole number"
        ) from None


#: The replacements of "train" in the name of the validation file; SQuAD's is "dev".
_VALIDATION = SPLIT_NAMES["validation"][::-1]


def read_questions(path: Source, config: DataConfig = DEFAULTS) -> SpanExamples:
    """Read the questions of a file in SQuAD's format, or else of a table; columns that are not
    named are found as in :func:`~bertine.data.spans.read_span_table`.

    Raises:
        BertineError: an error of either reader.
    """
    content = load_squad(path, config.encoding) if config.format is None else None
    if content is not None and not isinstance(path, InMemoryTable):
        return read_squad(path, content, strict=config.strict)
    return read_span_table(path, config)


def read_span_splits(
    data: Data, config: DataConfig = DEFAULTS, *, official: bool
) -> tuple[SpanExamples, SpanExamples]:
    """Read the training questions and the validation questions. If there is no validation file, a
    tenth of the training questions is held out, by contexts.

    Args:
        data: a file, or a folder with a training and a validation file. For a file ``train….json``
            in SQuAD's format, ``dev….json`` (``val….json``, …) in the same folder is used.
        config: how tables are read, see :func:`read_questions`.
        official: accept only files in SQuAD's format.

    Raises:
        BertineError: there is no training file, or more than one; columns are named for SQuAD's
            files; or an error of reading.
    """
    if official and config.layout:
        raise BertineError(
            "the columns and the format of SQuAD's files are known; leave them out, or fine-tune "
            "on the file as your own data (bertine finetune spans)"
        )
    train, validation = span_files(data, official=official, encoding=config.encoding)
    if isinstance(train, Path):
        if official and load_squad(train, config.encoding) is None:
            read_squad(train)  # raises the reason
        if (
            config.layout
            and config.format is None
            and load_squad(train, config.encoding) is not None
        ):
            _refuse_layout(train, config)
    if validation is not None and isinstance(data, str | Path) and not Path(data).is_dir():
        logger.info(f"{validation}: beside the training file, and used for validation")
    files = [train] if validation is None else [train, validation]
    configs = [
        DataConfig.of(config, quotes=quotes)
        for quotes in quotes_for(files, config.format, config.quotes)
    ]
    examples = read_questions(train, configs[0]).trainable()
    if validation is None:
        return examples.hold_out_by(config)
    return examples, read_questions(validation, configs[-1]).scorable()


def read_span_evaluation(
    data: Data,
    config: DataConfig = DEFAULTS,
    *,
    trained_with: tuple[Sequence[str], str | None] = ((), None),
) -> SpanExamples:
    """Read the questions for evaluating a model: of a file, or of a folder's validation file.

    Args:
        config: how a table is read, see :func:`read_questions`.
        trained_with: the columns of question and context, and of the answer, for a table if
            `config` names none.

    Raises:
        BertineError: there is no such file, or more than one; `config` has options of tables for a
            file in SQuAD's format; or an error of reading.
    """
    path: Source
    if isinstance(data, InMemoryTable | DataParts):
        path = judged_table(data)
    else:
        folder = Path(data)
        files = _json_files(folder, "dev") or _json_files(folder, "val")
        if len(files) > 1:
            raise _several(folder, files)
        path = files[0] if files else judged_table(folder) if folder.is_dir() else folder
    content = load_squad(path, config.encoding) if config.format is None else None
    if content is not None and not isinstance(path, InMemoryTable):
        _refuse_layout(path, config)
        return read_squad(path, content, strict=config.strict).scorable()
    return read_questions(path, config.over(*trained_with)).scorable()


def _refuse_layout(path: Path | str, config: DataConfig) -> None:
    """Refuse columns and quotes for the file `path` in SQuAD's format.

    Raises:
        BertineError: columns or quotes are given.
    """
    for name in config.layout:
        raise BertineError(
            f"{path}: is in SQuAD's format, whose columns and quotes are known; leave out "
            f"{name} (--{name.replace('_', '-')})"
        )


def span_files(
    data: Data, *, official: bool, encoding: str | None = None
) -> tuple[Source, Source | None]:
    """Find the training and the validation file: tables, or SQuAD's files if one is found or
    required (`official`).

    Raises:
        BertineError: there is no training file, or more than one.
    """
    lacking = "part called train"
    if isinstance(data, str | Path):
        path = Path(data)
        if official or _holds_json(path, encoding):
            train, validation = _official_files(path)
            if path.is_dir() and validation is None:
                _refuse_left_aside(train)
            return train, validation
        lacking = "training file (train.csv, .tsv or .jsonl)"
    splits = find_splits(data)
    if splits.train is None:
        raise BertineError(f"{data}: has no {lacking}")
    return splits.train, splits.validation


def _holds_json(path: Path, encoding: str | None) -> bool:
    """Return whether a file is SQuAD's, or a folder has a training file called .json and no
    table."""
    if path.is_file():
        return load_squad(path, encoding) is not None
    files = _json_files(path, "train")
    return bool(files) and not set(path.glob("train.*")) - set(files)


def _official_files(data: Path | str) -> tuple[Path, Path | None]:
    path = Path(data)
    if not path.exists():
        raise BertineError(f"{path}: no such file or folder")
    if path.is_dir():
        files = _json_files(path, "train")
        if not files:
            raise BertineError(
                f"{path}: has no training file of SQuAD, such as train-v1.1.json or train-v2.0.json"
            )
        if len(files) > 1:
            raise _several(path, files)
        path = files[0]
    if not path.name.startswith("train"):
        return path, None
    rest = path.name.removeprefix("train")
    extra = (path.with_name(name + rest) for name in _VALIDATION)
    return path, next((file for file in extra if file.is_file()), None)


def _refuse_left_aside(train: Path) -> None:
    """Raise a :class:`BertineError` if a validation table is in the folder of SQuAD's JSON: it
    would be ignored, and a part of the training file held out instead."""
    for name in _VALIDATION:
        for suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
            table = train.with_name(name + suffix)
            if table.is_file():
                raise BertineError(
                    f"{table}: is not read beside {train.name}; give both in one format, or name "
                    f"{train} alone"
                )


def _json_files(folder: Path, start: str) -> list[Path]:
    return sorted(
        path
        for path in folder.glob(f"{start}*.json*")
        if path.is_file() and inner_suffix(path) == ".json"
    )


def _several(folder: Path, paths: Sequence[Path]) -> BertineError:
    names = " and ".join(path.name for path in paths[:3])
    return BertineError(f"{folder}: has {names}; name the file itself, such as {paths[0]}")
