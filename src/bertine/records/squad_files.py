"""Read SQuAD's official JSON.

Its files are one object: articles under ``data``, their ``paragraphs`` with a ``context`` and the
questions about it, ``qas``, with ``id``, ``question``, ``answers`` (``text``, ``answer_start``)
and, in v2.0, ``is_impossible``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.records.span_examples import RawQuestion, SpanExamples, span_examples
from bertine.tables.given import GivenTable, Source
from bertine.tables.json_rows import encodable, json_kind
from bertine.tables.layout import inner_suffix, is_json_object
from bertine.tables.lines import MAX_JSON_BYTES
from bertine.tables.parquet import is_parquet
from bertine.tables.streams import EncodingCheck, open_stream, text_begin
from bertine.terminal.console import counted

_COLUMNS = ("question", "context")


def load_squad(path: Source) -> dict[str, Any] | None:
    """Read the object that a file in SQuAD's format holds; None where it is another kind of file.

    Raises:
        BertineError: the file cannot be read, or is broken: neither one JSON value nor JSON lines.
    """
    if isinstance(path, GivenTable):
        return None
    path = Path(path)
    if path.is_dir() or str(path) == "-" or is_parquet(path) or inner_suffix(path) != ".json":
        return None
    content = _json_of(path)
    return content if isinstance(content, dict) and _is_squad(content) else None


def _is_squad(content: dict[str, Any]) -> bool:
    return isinstance(content.get("data"), list)


def _json_of(path: Path) -> Any:
    """Read the JSON that a file holds; None where it holds JSON lines."""
    with open_stream(path) as stream:
        raw = text_begin(stream.reader.read(MAX_JSON_BYTES + 1), path)
    if len(raw) > MAX_JSON_BYTES:
        raise BertineError(
            f"{path}: one JSON value of more than {MAX_JSON_BYTES >> 20} MiB; give JSON lines"
        )
    text = raw.decode("utf-8", "replace")
    if b"\0" in raw or "\ufffd" in text:
        EncodingCheck(path).damaged(path)
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
    """Say what a file is that is not in SQuAD's format."""
    if path.is_dir():
        what = "is a folder, not a file in SQuAD's format"
    elif is_parquet(path) or inner_suffix(path) != ".json":
        what = "is not called .json, as files in SQuAD's format are"
    else:
        content = _json_of(path)
        kind = "JSON lines" if content is None else json_kind(content)
        if isinstance(content, dict):
            keys = ", ".join(map(repr, list(content)[:10]))
            kind = f"an object with the keys {keys}" if keys else "an object with no keys"
            if "data" in content:
                kind = f'an object whose "data" is {json_kind(content["data"])}'
        what = f'is {kind}, but SQuAD\'s format is one JSON object with a list "data"'
    return BertineError(f"{path}: {what}; for a table of questions use 'bertine finetune spans'")


def read_squad(
    path: Path | str,
    content: dict[str, Any] | None = None,
    *,
    answers: bool = True,
    strict: bool = False,
) -> SpanExamples:
    """Read all questions of a file in SQuAD's format; `content` is what it holds, where that was
    read already. Without `answers` those of the file are not looked at; `strict` refuses half a
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
    """A reader of one file, which holds its questions and counts what is odd about them."""

    def __init__(self, source: str, with_answers: bool, strict: bool) -> None:
        self.source, self._with_answers, self._strict = source, with_answers, strict
        self.raws: list[RawQuestion] = []
        self.says_impossible = False
        self._contradictions = 0
        self._surrogates = 0

    def notes(self) -> list[str]:
        questions = counted(self._contradictions, "question", "is", "are")
        texts = counted(self._surrogates, "text")
        notes = [
            (
                self._contradictions,
                f"{questions} called impossible and with answers, or neither; the answers count",
            ),
            (
                self._surrogates,
                f"{texts} with half a character (\\udXXX), mended by U+FFFD",
            ),
        ]
        return [f"{self.source}: {note}" for count, note in notes if count]

    def items(self, parent: Any, key: str, place: str) -> list[Any]:
        """Return the list `key` of the object `parent`."""
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
            impossible = self._member(question, "is_impossible", place, bool, "true or false")
            if answers is not None:
                self._contradictions += impossible == bool(answers)
            elif impossible and self._with_answers:
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
