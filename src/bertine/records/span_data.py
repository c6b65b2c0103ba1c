"""Find and read files of questions: SQuAD's official JSON, or the user's own table with a row for
each question.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.records.examples import as_columns
from bertine.records.span_examples import SpanExamples
from bertine.records.span_tables import read_span_table
from bertine.records.splits import find_splits, judged_table
from bertine.records.squad_files import load_squad, read_squad
from bertine.tables.given import SPLIT_NAMES, Data, GivenParts, GivenTable, Source
from bertine.tables.layout import inner_suffix, quotes_for
from bertine.terminal.console import say

#: Held out of the training file where the data has no validation file.
_HOLD_OUT = 0.1
#: What stands in the place of "train" in the name of the validation file; SQuAD's is "dev".
_VALIDATION = SPLIT_NAMES["validation"][::-1]


def read_questions(
    path: Source,
    *,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
) -> SpanExamples:
    """Read the questions of a file in SQuAD's format, or else of a table; columns that are not
    named are found as :func:`~bertine.records.span_tables.read_span_table` does.

    Raises:
        BertineError: what reading either raises.
    """
    content = load_squad(path) if format is None else None
    if content is not None and not isinstance(path, GivenTable):
        return read_squad(path, content, strict=strict)
    return read_span_table(
        path,
        text_columns=as_columns(text_columns),
        label_column=label_column,
        format=format,
        quotes=quotes,
        strict=strict,
    )


def read_span_splits(
    data: Data, *, official: bool, seed: int, known: Collection[int] = (), **reading: Any
) -> tuple[SpanExamples, SpanExamples]:
    """Read the training questions and those that the model is judged on. Where there is no
    validation file, a tenth of the training questions is held out, by contexts.

    Args:
        data: a file, or a folder with a training and a validation file. Beside a file in SQuAD's
            format ``train….json`` its ``dev….json`` (``val….json``, …) is taken.
        official: only files in SQuAD's format.
        seed: of what is held out.
        known: the numbers of rows that are not held out.
        reading: how tables are read, see :func:`read_questions`.

    Raises:
        BertineError: there is no training file, or more than one; columns are named for SQuAD's
            files; what reading raises.
    """
    named = [value for name, value in reading.items() if name != "strict" and value is not None]
    if official and named:
        raise BertineError(
            "the columns and the format of SQuAD's files are known; leave them out, or fine-tune "
            "on the file as your own data (bertine finetune spans)"
        )
    train, validation = span_files(data, official=official)
    if isinstance(train, Path):
        if official and load_squad(train) is None:
            read_squad(train)  # says what it is not
        if named and reading.get("format") is None and load_squad(train) is not None:
            refuse_reading(train, **reading)
    if validation is not None and isinstance(data, str | Path) and not Path(data).is_dir():
        say(f"{validation}: beside the training file, and used for validation")
    files = [train] if validation is None else [train, validation]
    quotes = quotes_for(files, reading.get("format"), reading.pop("quotes", None))
    examples = read_questions(train, quotes=quotes[0], **reading).trainable()
    if validation is None:
        return examples.hold_out(_HOLD_OUT, seed, known=known)
    return examples, read_questions(validation, quotes=quotes[-1], **reading).scorable()


def read_span_evaluation(
    data: Data,
    *,
    trained_with: tuple[Sequence[str], str | None] = ((), None),
    **reading: Any,
) -> SpanExamples:
    """Read the questions to judge a model on: of a file, or of the validation file of a folder.

    Args:
        trained_with: the columns of question and context, and of the answer, of a table where
            `reading` names none.
        reading: how a table is read, see :func:`read_questions`.

    Raises:
        BertineError: there is no such file, or more than one; `reading` says something of a file
            in SQuAD's format; what reading raises.
    """
    path: Source
    if isinstance(data, GivenTable | GivenParts):
        path = judged_table(data)
    else:
        folder = Path(data)
        files = _json_files(folder, "dev") or _json_files(folder, "val")
        if len(files) > 1:
            raise _several(folder, files)
        path = files[0] if files else judged_table(folder) if folder.is_dir() else folder
    content = load_squad(path) if reading.get("format") is None else None
    if content is not None and not isinstance(path, GivenTable):
        refuse_reading(path, **reading)
        return read_squad(path, content, strict=reading.get("strict", False)).scorable()
    texts, label = trained_with
    reading["text_columns"] = reading.get("text_columns") or texts
    reading["label_column"] = reading.get("label_column") or label
    return read_questions(path, **reading).scorable()


def refuse_reading(path: Path | str, **reading: Any) -> None:
    """Refuse what can be said of a table alone for the file `path` in SQuAD's format; `reading` as
    of :func:`read_questions`.

    Raises:
        BertineError: columns or quotes are given.
    """
    for name, value in reading.items():
        if name not in ("strict", "format") and value is not None:
            raise BertineError(
                f"{path}: is in SQuAD's format, whose columns and quotes are known; leave out "
                f"{name} (--{name.replace('_', '-')})"
            )


def span_files(data: Data, *, official: bool) -> tuple[Source, Source | None]:
    """Find training and validation file: of tables, or where a file is SQuAD's, or must be
    (`official`), as for those.

    Raises:
        BertineError: there is no training file, or more than one.
    """
    lacking = "part called train"
    if isinstance(data, str | Path):
        path = Path(data)
        if official or _holds_json(path):
            train, validation = _official_files(path)
            if path.is_dir() and validation is None:
                _refuse_left_aside(train)
            return train, validation
        lacking = "training file (train.csv, .tsv or .jsonl)"
    splits = find_splits(data)
    if splits.train is None:
        raise BertineError(f"{data}: has no {lacking}")
    return splits.train, splits.validation


def _holds_json(path: Path) -> bool:
    """Tell whether a file is SQuAD's, or a folder has a training file called .json, and no
    table."""
    if path.is_file():
        return load_squad(path) is not None
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
    beside = (path.with_name(name + rest) for name in _VALIDATION)
    return path, next((file for file in beside if file.is_file()), None)


def _refuse_left_aside(train: Path) -> None:
    """Raise a :class:`BertineError` if a validation table lies beside SQuAD's JSON, which would be
    left aside, and a part of the training file be held out in its place."""
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


def _several(folder: Path, found: Sequence[Path]) -> BertineError:
    names = " and ".join(path.name for path in found[:3])
    return BertineError(f"{folder}: has {names}; name the file itself, such as {found[0]}")
