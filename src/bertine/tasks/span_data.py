"""Reading questions: SQuAD's official JSON, and tables of one's own.

SQuAD's files are one JSON object: articles under ``data``, their ``paragraphs`` with a
``context`` and the questions about it, ``qas``, with ``id``, ``question``, ``answers`` (``text``,
``answer_start``) and, in v2.0, ``is_impossible``. A table has a row for each question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine.console import counted, say
from bertine.errors import BertineError
from bertine.tasks.examples import as_columns, find_splits
from bertine.tasks.layout import inner_suffix, is_json_object, quotes_for
from bertine.tasks.parquet import is_parquet
from bertine.tasks.span_examples import RawQuestion, SpanExamples, span_examples
from bertine.tasks.span_tables import read_span_table
from bertine.tasks.tables import encodable, json_kind
from bertine.text.streams import looks_like_utf16, open_stream, without_bom

#: Held out of the training file where the data has no validation file.
_HOLD_OUT = 0.1
_COLUMNS = ("question", "context")
#: What stands in the place of "train" in the name of the validation file.
_VALIDATION = ("dev", "val", "valid", "validation")


def load_squad(path: Path | str) -> dict[str, Any] | None:
    """The object that a file in SQuAD's format holds; None where it is another kind of file.

    Raises:
        BertineError: the file cannot be read, or is broken: neither one JSON value nor JSON lines.
    """
    path = Path(path)
    if path.is_dir() or str(path) == "-" or is_parquet(path) or inner_suffix(path) != ".json":
        return None
    content = _json_of(path)
    return content if isinstance(content, dict) and _is_squad(content) else None


def _is_squad(content: dict[str, Any]) -> bool:
    return isinstance(content.get("data"), list)


def _json_of(path: Path) -> Any:
    """The JSON that a file holds; None where it holds JSON lines."""
    with open_stream(path) as stream:
        raw = without_bom(stream.reader.read(), path)
    text = raw.decode("utf-8", "replace")
    if not text.strip():
        raise BertineError(f"{path}: the file is empty")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if is_json_object(text.lstrip().partition("\n")[0]):
            return None
        place, reason = f"{path}", str(error)
        if isinstance(error, json.JSONDecodeError):
            place, reason = f"{path}:{error.lineno}:{error.colno}", error.msg
        if looks_like_utf16(raw):
            reason = f"many bytes are NUL, as in UTF-16 without a mark; {reason}"
        hint = "" if text.rstrip().endswith(("}", "]")) else "; is the file cut off?"
        raise BertineError(
            f"{place}: not valid JSON ({reason}{hint}); a file in SQuAD's format is one object "
            'with a list "data", a table has an object on each line'
        ) from error
    if isinstance(content, dict) and _is_squad(content):
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise BertineError(
                f"{path}:{line}: invalid UTF-8 (byte 0x{raw[error.start]:02x}); save the file as "
                "UTF-8"
            ) from error
    return content


def _not_squad(path: Path) -> BertineError:
    """Says what a file is that is not in SQuAD's format."""
    if path.is_dir():
        what = "is a folder, not a file in SQuAD's format"
    elif is_parquet(path) or inner_suffix(path) != ".json":
        what = "is not called .json, as files in SQuAD's format are"
    else:
        content = _json_of(path)
        found = "JSON lines" if content is None else json_kind(content)
        if isinstance(content, dict):
            keys = ", ".join(map(repr, list(content)[:10]))
            found = f"an object with the keys {keys}" if keys else "an object with no keys"
            if "data" in content:
                found = f'an object whose "data" is {json_kind(content["data"])}'
        what = f'is {found}, but SQuAD\'s format is one JSON object with a list "data"'
    return BertineError(f"{path}: {what}; for a table of questions use 'bertine finetune spans'")


def read_squad(
    path: Path | str,
    content: dict[str, Any] | None = None,
    *,
    answers: bool = True,
    strict: bool = False,
) -> SpanExamples:
    """All questions of a file in SQuAD's format; `content` is what it holds, where that was read
    already. Without `answers` those of the file are not looked at; `strict` refuses half a
    character instead of mending it.

    It counts as v2.0 if its ``version`` says so, or a question has ``is_impossible``. A question
    without ``answers`` (a test file's) has no label, unless it is said to be impossible.

    Raises:
        BertineError: the file is not in this format, or a part of it is missing or of another
            type; names its place.
    """
    content = content or load_squad(path)
    if content is None:
        raise _not_squad(Path(path))
    reader = _Reader(str(path), answers, strict)
    for number, article in enumerate(reader.items(content, "data", "")):
        place = f"data[{number}]"
        for index, paragraph in enumerate(reader.items(article, "paragraphs", place)):
            reader.paragraph(paragraph, f"{place}.paragraphs[{index}]")
    version = str(content.get("version", "")).lower().removeprefix("v")
    v2 = version.startswith("2") or reader.says_impossible
    if not reader.raws:
        raise BertineError(f"{path}: has no questions")
    return span_examples(
        str(path),
        _COLUMNS,
        "answers",
        reader.raws,
        v2=v2,
        dataset="squad/v2.0" if v2 else "squad/v1.1",
        notes=reader.notes(),
    )


class _Reader:
    """Questions as they are found, and what was odd about them."""

    def __init__(self, source: str, with_answers: bool, strict: bool) -> None:
        self.source, self._with_answers, self._strict = source, with_answers, strict
        self.raws: list[RawQuestion] = []
        self.says_impossible = False
        self._contradictions = 0
        self._surrogates = 0

    def notes(self) -> list[str]:
        notes = []
        if self._contradictions:
            notes.append(
                f"{self.source}: "
                + counted(self._contradictions, "question", "is", "are")
                + " called impossible and with answers, or neither; the answers count"
            )
        if self._surrogates:
            notes.append(
                f"{self.source}: {counted(self._surrogates, 'text')} with half a character "
                "(\\udXXX), mended by U+FFFD"
            )
        return notes

    def items(self, parent: Any, key: str, place: str) -> list[Any]:
        """The list `key` of the object `parent`."""
        return self._member(parent, key, place, list, "a list")

    def paragraph(self, paragraph: Any, place: str) -> None:
        context = self._text(paragraph, "context", place)
        for index, question in enumerate(self.items(paragraph, "qas", place)):
            self._question(question, context, f"{place}.qas[{index}]")

    def _question(self, question: Any, context: str, place: str) -> None:
        text = self._text(question, "question", place)
        name = question.get("id")
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not name:
            raise self._error(place, "has no id, by which its answer could be told")
        answers: list[tuple[str, int | None]] | None = None
        if self._with_answers and "answers" in question:
            answers = []
            for index, answer in enumerate(self.items(question, "answers", place)):
                where = f"{place}.answers[{index}]"
                start = self._member(answer, "answer_start", where, int, "a whole number")
                answers.append((self._text(answer, "text", where), start))
        if "is_impossible" in question:
            self.says_impossible = True
            given = self._member(question, "is_impossible", place, bool, "true or false")
            if answers is not None:
                self._contradictions += given == bool(answers)
            elif given and self._with_answers:
                answers = []  # said in its own way
        self.raws.append(RawQuestion(name, len(self.raws) + 1, text, context, answers))

    def _text(self, parent: Any, key: str, place: str) -> str:
        text: str = self._member(parent, key, place, str, "a text")
        if encodable(text):
            return text
        if self._strict:
            raise self._error(place, f"{key!r} has half a character (\\udXXX)")
        self._surrogates += 1
        return re.sub("[\ud800-\udfff]", "�", text)

    def _member(self, parent: Any, key: str, place: str, kind: type, what: str) -> Any:
        if not isinstance(parent, dict):
            raise self._error(place, f"is {json_kind(parent)}, but must be an object")
        if key not in parent:
            raise self._error(place, f"has no {key!r}, which must be {what}")
        value = parent[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._error(place, f"{key!r} is {json_kind(value)}, but must be {what}")
        return value

    def _error(self, place: str, what: str) -> BertineError:
        return BertineError(f"{self.source}: {place or 'the file'}: {what}")


def read_questions(
    path: Path | str,
    *,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
) -> SpanExamples:
    """Questions of a file in SQuAD's format, or else of a table; columns that are not named are
    told as :func:`~bertine.tasks.span_tables.read_span_table` does.

    Raises:
        BertineError: what reading either raises.
    """
    content = load_squad(path) if format is None else None
    if content is not None:
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
    data: Path | str, *, official: bool, seed: int, **reading: Any
) -> tuple[SpanExamples, SpanExamples]:
    """The training questions and those that the model is judged on. Where there is no validation
    file, a tenth of the training questions is held out, by contexts.

    Args:
        data: a file, or a folder with a training and a validation file. Beside a file in SQuAD's
            format ``train….json`` its ``dev….json`` (``val….json``, …) is taken.
        official: only files in SQuAD's format.
        seed: of what is held out.
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
    if official and load_squad(train) is None:
        read_squad(train)  # says what it is not
    if named and reading.get("format") is None and load_squad(train) is not None:
        refuse_reading(train, **reading)
    if validation is not None and not Path(data).is_dir():
        say(f"{validation}: beside the training file, and used for validation")
    files = [train] if validation is None else [train, validation]
    quotes = quotes_for(files, reading.get("format"), reading.pop("quotes", None))
    examples = read_questions(train, quotes=quotes[0], **reading).trainable()
    if validation is None:
        return examples.hold_out(_HOLD_OUT, seed)
    return examples, read_questions(validation, quotes=quotes[-1], **reading).scorable()


def read_span_evaluation(
    data: Path | str,
    *,
    trained_with: tuple[Sequence[str], str | None] = ((), None),
    **reading: Any,
) -> SpanExamples:
    """The questions to judge a model on: of a file, or of the validation file of a folder.

    Args:
        trained_with: the columns of question and context, and of the answer, of a table where
            `reading` names none.
        reading: how a table is read, see :func:`read_questions`.

    Raises:
        BertineError: there is no such file, or more than one; `reading` says something of a file
            in SQuAD's format; what reading raises.
    """
    path = Path(data)
    if path.is_dir():
        found = _json_files(path, "dev") or _json_files(path, "val")
        if len(found) > 1:
            raise _several(path, found)
        if found:
            path = found[0]
        else:
            splits = find_splits(path)
            table = splits.validation or splits.test
            if table is None:
                raise BertineError(
                    f"{path}: holds only training data; to evaluate on it, name the file itself"
                )
            path = table
    content = load_squad(path) if reading.get("format") is None else None
    if content is not None:
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


def span_files(data: Path | str, *, official: bool) -> tuple[Path, Path | None]:
    """Training and validation file: of tables, or where a file is SQuAD's, or must be (`official`),
    as for those.

    Raises:
        BertineError: there is no training file, or more than one.
    """
    path = Path(data)
    if official or _holds_json(path):
        train, validation = _official_files(path)
        if path.is_dir() and validation is None:
            _refuse_left_aside(train)
        return train, validation
    splits = find_splits(path)
    if splits.train is None:
        raise BertineError(f"{path}: has no training file (train.csv, .tsv or .jsonl)")
    return splits.train, splits.validation


def _holds_json(path: Path) -> bool:
    """Whether a file is SQuAD's, or a folder has a training file called .json, and no table."""
    if path.is_file():
        return load_squad(path) is not None
    found = _json_files(path, "train")
    return bool(found) and not set(path.glob("train.*")) - set(found)


def _official_files(data: Path | str) -> tuple[Path, Path | None]:
    path = Path(data)
    if not path.exists():
        raise BertineError(f"{path}: no such file or folder")
    if path.is_dir():
        found = _json_files(path, "train")
        if not found:
            raise BertineError(
                f"{path}: has no training file of SQuAD, such as train-v1.1.json or train-v2.0.json"
            )
        if len(found) > 1:
            raise _several(path, found)
        path = found[0]
    if not path.name.startswith("train"):
        return path, None
    rest = path.name.removeprefix("train")
    beside = (path.with_name(name + rest) for name in _VALIDATION)
    return path, next((each for each in beside if each.is_file()), None)


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
