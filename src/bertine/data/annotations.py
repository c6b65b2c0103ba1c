"""Read the files of annotation tools: Label Studio, doccano, Prodigy, spaCy, Argilla and brat.

Their objects become rows with a ``text`` and its ``entities`` or ``label``; see
:class:`~bertine.data.annotated_texts.Combination`. The tool is recognized by the first objects of
a file that only it writes. What is no answer of a person (predictions, suggestions, what was
cancelled or rejected) and what has no place in a row (relations, events, regions of pictures) is
counted.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import AnnotationTool
from bertine.core.strict_json import parse_json, typed
from bertine.core.text import briefly
from bertine.data.annotated_texts import AnnotatedText, Answer, Combination, Span, choose_text
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.lines import MAX_JSON_BYTES, TableLines, TableStats
from bertine.data.streams import cleaned, list_items, open_stream

#: Bytes and objects of a file by which its tool is recognized.
_HEAD, _LOOKED_AT = 1 << 20, 50
_SEPARATORS = re.compile(r"[\s,]*")
#: Columns of Label Studio's short exports that are not data or answers.
_SHORT = ("annotation_id", "annotator", "lead_time")
#: Usual names of the field that is the text, tried in this order.
_USUAL = ("text", "sentence", "content", "document", "data", "body", "message")
#: Keys of an object that may hold its spans, and its labels.
_SPAN_KEYS = ("entities", "ents", "spans", "label", "labels")
_LABELS = ("label", "labels", "cats")
_STARTS = ("start", "start_offset", "start_char")
_ENDS = ("end", "end_offset", "end_char")


def annotation_tool(path: Source, format: str | None = None) -> str | None:
    """Return the name of the tool that wrote a file (:data:`~bertine.core.names.AnnotationTool`;
    ``"entities"``: an object with ``text`` and ``entities`` for each text); None for any other
    file. A `format` that is given decides.

    Raises:
        BertineError: the file cannot be read.
    """
    if format is not None or isinstance(path, InMemoryTable):
        return format if format in get_args(AnnotationTool) else None
    if is_brat(path):
        return "brat"
    path = Path(path)
    if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
        return None
    with open_stream(path) as stream:
        head = stream.reader.read(_HEAD).decode("utf-8", "ignore").lstrip("\ufeff \t\r\n")
    if head.startswith(("{", "[")):
        objects = _first_objects(head)
        return next((tool for item in objects if (tool := _tool_of(item))), None)
    header = next(csv.reader(io.StringIO(head.partition("\n")[0])), [])
    return "label-studio" if set(_SHORT) <= set(header) else None


def is_brat(path: object) -> bool:
    """Return whether it is a file of brat (``.ann``, beside the ``.txt``), or a folder of them."""
    if not isinstance(path, str | Path):
        return False
    path = Path(path)
    return path.suffix == ".ann" or (path.is_dir() and any(path.glob("*.ann")))


def _first_objects(head: str) -> list[Any]:
    decoder, objects = json.JSONDecoder(), list[Any]()
    at = 1 if re.match(r"\[\s*[\[{]", head) else 0
    while len(objects) < _LOOKED_AT:
        match = _SEPARATORS.match(head, at)
        try:
            value, at = decoder.raw_decode(head, match.end() if match else at)
        except (ValueError, RecursionError):
            break
        objects.append(value)
    return objects


def _tool_of(item: Any) -> str | None:
    """Return the tool that an object is certainly from."""
    if _is_pair(item):
        return "spacy"
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("annotations"), list) and "classes" in item:
        return "spacy"
    answers = ("annotations", "completions", "predictions")
    if isinstance(item.get("data"), dict) and any(type(item.get(key)) is list for key in answers):
        return "label-studio"
    if set(_SHORT) <= item.keys():
        return "label-studio"
    if item.get("answer") in ("accept", "reject", "ignore") or "_task_hash" in item:
        return "prodigy"
    if isinstance(item.get("fields"), dict) and item.keys() & {"responses", "suggestions"}:
        return "argilla"
    if {"annotation", "prediction"} <= item.keys():
        return "argilla"
    if isinstance(item.get("cats"), dict) or isinstance(item.get("spans"), dict):
        return "spacy"
    for key in _SPAN_KEYS:
        spans = item.get(key)
        first = spans[0] if isinstance(spans, list) and spans else None
        if isinstance(first, list) and [*map(type, first)] == [int, int, str]:
            return "doccano" if key.startswith("label") else "spacy"
        if isinstance(first, dict) and "start_offset" in first:
            return "doccano"
        if isinstance(first, dict) and {"start", "end", "label"} <= first.keys():
            return "entities" if isinstance(item.get("text"), str) else None
    return None


def _is_pair(item: Any) -> bool:
    """Return whether it is an example of spaCy 2: a text, and an object with its annotations."""
    return isinstance(item, list) and [*map(type, item)] == [str, dict]


@dataclass(frozen=True)
class AnnotationFile:
    """A file of an annotation tool as it was read.

    Attributes:
        tool: the name of the tool.
        texts: the texts, each with its object in the file.
        combination: their rows.
        notes: one line each on what was read and what was not.
    """

    tool: str
    texts: list[AnnotatedText] = field(repr=False)
    combination: Combination = field(repr=False)
    notes: list[str] = field(repr=False)


def read_annotations(
    path: Path | str, tool: str, *, strict: bool, stats: TableStats
) -> AnnotationFile:
    """Read a file of an annotation tool whole.

    Args:
        path: the file; for brat a ``.ann`` or a folder.
        tool: its name, from :func:`annotation_tool`.
        strict: whether damaged text is refused.
        stats: the counts of fixes, changed in place.

    Raises:
        BertineError: the file cannot be read, is too large, or has an object that the tool does not
            write; names its line.
    """
    name = str(path)
    items = _brat_items if tool == "brat" else _items
    reader = _Reader(name, tool)
    for number, item in items(Path(path), strict, stats):
        reader.add(number, item)
    texts = reader.finish()
    combination = Combination(name, texts)
    counts = [plural(len(texts), "text")]
    entities = sum(len(row.get("entities") or ()) for row in combination.rows)
    if "entities" in combination.columns:
        counts.append(f"{entities} entities")
    chosen = [name for name in combination.columns if name in _LABELS[:2]]
    title = TITLES[tool] + (f" ({reader.text})" * (reader.text != "text"))
    what = " and ".join([*counts, *chosen])
    notes = [f"{name}: read as {title}: {what}", *combination.notes, *reader.notes()]
    return AnnotationFile(tool, texts, combination, notes)


#: The names of the tools in notes.
TITLES = {
    "label-studio": "an export of Label Studio",
    "doccano": "an export of doccano",
    "prodigy": "examples of Prodigy",
    "spacy": "examples of spaCy",
    "argilla": "records of Argilla",
    "brat": "brat's standoff annotations",
    "entities": "texts with entities",
}


# Items: the objects of a file, each with its line.


def _items(path: Path, strict: bool, stats: TableStats) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a file of JSON, of JSON lines, or of csv."""
    with open_stream(path) as stream:
        lines = TableLines(stream.reader, str(path), strict, stats)
        first = next(lines, "")
        text = cleaned(lines.whole()) if first else ""
    if not text.strip():
        raise BertineError(f"{path}: the file is empty")
    if text.lstrip()[:1] not in ("{", "["):
        yield from _cells(text, path)
        return
    if re.match(r"\s*\[\s*[\[{\]]", text):
        items = list_items(text, str(path))
    else:
        lines_of_text = enumerate(text.split("\n"), 1)
        items = ((number, line) for number, line in lines_of_text if line.strip())
    for number, item in items:
        value = parse_json(item.encode("utf-8"), f"{path}:{number}", lenient=True)
        if isinstance(value, dict) and "classes" in value:
            pairs = value.get("annotations")
            yield from ((number, pair) for pair in pairs or () if pair)
        else:
            yield number, value


def _cells(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a csv file, with the JSON in their cells as values."""
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True, restkey="")
    try:
        for row in rows:
            where = f"{path}:{rows.line_num}"
            yield (
                rows.line_num,
                {
                    name: parse_json(cell.encode(), where, lenient=True)
                    if isinstance(cell, str) and cell.startswith(("[{", '{"'))
                    else cell
                    for name, cell in row.items()
                },
            )
    except csv.Error as error:
        raise BertineError(f"{path}:{rows.line_num}: not valid csv ({error})") from error


def _brat_items(path: Path, strict: bool, stats: TableStats) -> Iterator[tuple[int, Any]]:
    """Yield the texts of brat's files, each with the lines of its annotations; None: there are
    none."""
    names = sorted(path.glob("*.txt")) if path.is_dir() else [path.with_suffix(".txt")]
    for number, name in enumerate(names, 1):
        if not name.exists():
            raise BertineError(f"{name}: no such file; brat's annotations need their text")
        parts: list[str | None] = []
        for file in (name, name.with_suffix(".ann")):
            parts.append(None)
            if file.exists():
                with open_stream(file) as stream:
                    lines = TableLines(stream.reader, str(file), strict, stats)
                    parts[-1] = cleaned(lines.whole()) if next(lines, "") else ""
        yield number, {"text": parts[0], "ann": parts[1], "name": name.stem}


# The tools: the answers in an object of each.


class _Reader:
    """A reader of the objects of one file."""

    def __init__(self, name: str, tool: str) -> None:
        self.name, self.tool, self.text = name, tool, "text"
        self._texts: list[AnnotatedText] = []
        self._by_key: dict[Any, AnnotatedText] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._read: Callable[[Any], tuple[dict[str, Any], list[Answer]]] = {
            "label-studio": self._label_studio,
            "prodigy": self._prodigy,
            "argilla": self._argilla,
            "brat": self._brat,
        }.get(tool, self._object)

    def add(self, line: int, item: Any) -> None:
        """Read one object.

        Raises:
            BertineError: the tool does not write such objects.
        """
        if _is_pair(item):
            item = {"text": item[0], **item[1]}
        try:
            fields, answers = self._read(typed(dict, item, "it"))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BertineError(
                f"{self.name}:{line}: not {TITLES[self.tool]}: {str(error) or 'damaged'}"
            ) from error
        key = self._key(fields, item)
        if key is not None and key in self._by_key:
            self._by_key[key].answers.extend(answers)
            return
        text = AnnotatedText(line, fields, answers, item)
        self._texts.append(text)
        if key is not None:
            self._by_key[key] = text

    def _key(self, fields: dict[str, Any], item: dict[str, Any]) -> Any:
        """Return what is equal for objects about the same text; None: each has its own."""
        if self.tool == "prodigy":
            return fields.get("text")
        if "annotation_id" in item or self.tool == "doccano":
            number, text = fields.get("id"), fields.get("text") or fields.get("data")
            return None if number is None else (str(number), str(text))
        return None

    def finish(self) -> list[AnnotatedText]:
        """Return the texts.

        Raises:
            BertineError: there is none, or it is not clear which field is the text.
        """
        if not self._texts:
            raise BertineError(f"{self.name}: has no texts")
        self.text = choose_text(self.name, self._texts, _USUAL)
        return self._texts

    def notes(self) -> list[str]:
        """Return one line for each kind of answers that were not read."""
        return [
            f"{self.name}: {plural(count, noun)} {what}"
            for (noun, what), count in self._counts.items()
        ]

    def _skip(self, noun: str, what: str = "not read", count: int = 1) -> None:
        if count:
            self._counts[noun, what] += count

    def _spans(self, items: Any) -> list[Span]:
        """Return the spans of a list: objects, ``[start, end, label]`` or ``[label, start, end]``;
        those without a label are counted."""
        spans = []
        for item in typed(list[Any], items, "the spans"):
            if isinstance(item, list):
                first = isinstance(item[0], str)
                start, end, label = (item[1], item[2], item[0]) if first else item[:3]
                covered = None
            else:
                start = next(item[key] for key in _STARTS if key in item)
                end = next(item[key] for key in _ENDS if key in item)
                label, covered = item.get("label"), item.get("text")
            if label is None or not str(label).strip():
                self._skip("span", "without a label left out")
                continue
            start, end = typed(int, start, "start"), typed(int, end, "end")
            covered = covered if isinstance(covered, str) else None
            spans.append(Span(start, end, str(label).strip(), covered))
        return spans

    def _object(self, item: dict[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        """Read an object with a text and its spans or labels: doccano, spaCy and others."""
        answer, used = Answer(), set[str]()
        for key in (*_SPAN_KEYS, "cats"):
            value = item.get(key)
            if isinstance(value, dict) and key == "spans":  # groups of spans
                value = [span for group in value.values() for span in group]
            if key == "cats" and isinstance(value, dict):
                value = [label for label, given in value.items() if given > 0.5]
            if value is None or (isinstance(value, str) and not key.startswith("label")):
                continue
            parts = value if isinstance(value, list) else [value]
            if key in _LABELS and not all(isinstance(part, list | dict) for part in parts):
                answer.labels["label"] = _labels(value)
            else:
                answer.spans += self._spans(value)
            used.add(key)
        self._skip("relation", count=len(item.get("relations") or ()))
        fields = {key: value for key, value in item.items() if key not in used}
        return fields, [answer] if used else []

    def _label_studio(self, item: dict[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        if "annotation_id" in item:
            return self._short(item)
        given = item.get("annotations") or item.get("completions") or []
        kept = [answer for answer in given if not answer.get("was_cancelled")]
        self._skip("annotation", "that was cancelled left out", len(given) - len(kept))
        true = [answer for answer in kept if answer.get("ground_truth")]
        answers = [self._regions(answer["result"]) for answer in true or kept]
        own = ("data", "annotations", "completions", "predictions")
        others = {key: value for key, value in item.items() if key not in own}
        return typed(dict, item["data"], "data") | others, answers

    def _regions(self, regions: list[dict[str, Any]]) -> Answer:
        answer = Answer()
        for region in regions:
            kind, value = region["type"], region.get("value") or {}
            place, names = value.get("start"), value.get(kind)
            if type(place) is int and isinstance(names, list):
                covered = value.get("text")
                items = [{**value, "label": label} for label in names or [None]]
                answer.spans += self._spans([{**span, "text": covered} for span in items])
            elif place is None and kind in ("choices", "taxonomy", "rating", "number"):
                question = str(region.get("from_name") or kind)
                answer.labels.setdefault(question, []).extend(_labels(names))
            else:
                known = kind == "relation"
                self._skip(
                    "relation" if known else "region", f"of {kind} " * (not known) + "not read"
                )
        return answer

    def _short(self, item: dict[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        """Read a row of JSON-MIN or csv: the names of the questions stand between ``id`` and
        ``annotator``."""
        keys, answer = [*item], Answer()
        between = keys[keys.index("id") + 1 : keys.index("annotator")] if "id" in keys else []
        for key, value in item.items():
            parts = value if isinstance(value, list) else [value]
            objects = [part for part in parts if isinstance(part, dict)]
            if objects and all("start" in part for part in objects):
                for part in objects:
                    labels = next((part[name] for name in part if name.endswith("labels")), None)
                    answer.spans += self._spans(
                        [{**part, "label": label} for label in labels or [None]]
                    )
            elif objects and all(part.keys() & {*_ANSWERS} for part in objects):
                values = [part[name] for part in objects for name in _ANSWERS if name in part]
                answer.labels[key] = [label for value in values for label in _labels(value)]
            elif key in between and value not in (None, ""):
                answer.labels[key] = _labels(value)
            else:
                continue
            between.append(key)
        return {key: value for key, value in item.items() if key not in between}, [answer]

    def _prodigy(self, item: dict[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        own = ("spans", "label", "accept", "answer", "options", "relations")
        fields = {key: value for key, value in item.items() if key not in own}
        given, label = item.get("answer", "accept"), item.get("label")
        binary = label is not None and not item.get("spans")
        self._skip("relation", count=len(item.get("relations") or ()))
        if given == "ignore" or (given == "reject" and not binary):
            self._skip("example", f"with the answer {given} left out")
            return fields, []
        answer = Answer()
        if binary:
            answer.labels["label"] = [str(label) if given == "accept" else f"not {label}"]
        elif "accept" in item or "options" in item:
            answer.labels["label"] = _labels(item.get("accept") or [])
        tokens = {token["start"]: token for token in item.get("tokens") or ()}
        for span in item.get("spans") or ():
            first = tokens.get(span["start"], {})
            same = first.get("end") == span["end"]
            answer.spans += self._spans([{"text": first.get("text") if same else None, **span}])
        return fields, [answer]

    def _argilla(self, item: dict[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        if "fields" not in item:  # version 1
            own = ("annotation", "prediction", "inputs", "tokens")
            fields = {key: value for key, value in item.items() if key not in own}
            inputs, given = item.get("inputs"), item.get("annotation")
            fields |= inputs if isinstance(inputs, dict) else {}
            responses = {"label": [{"value": given}] * (given is not None)}
        else:
            own = ("fields", "responses", "suggestions", "vectors")
            fields = {key: value for key, value in item.items() if key not in own}
            fields |= typed(dict, item["fields"], "fields")
            responses = item.get("responses") or {}
        answers: dict[str, Answer] = {}
        for number, question, response in _responses(responses):
            status = str(response.get("status") or item.get("status") or "").lower()
            if status in ("discarded", "draft"):
                self._skip("response", f"that is {status} left out")
                continue
            answer = answers.setdefault(str(response.get("user_id") or number), Answer())
            value = response["value"]
            if isinstance(value, list) and all(isinstance(part, list | dict) for part in value):
                answer.spans += self._spans(value)
            else:
                answer.labels[question] = _labels(value)
        return fields, [*answers.values()]

    def _brat(self, item: dict[str, Any]) -> tuple[dict[str, Any], list[Answer]]:
        answer = Answer()
        for line in filter(str.strip, (item["ann"] or "").splitlines()):
            name, _, rest = line.partition("\t")
            kind = _BRAT.get(name[:1])
            if name.startswith("T"):
                place, _, covered = rest.partition("\t")
                label, _, offsets = place.partition(" ")
                pieces = offsets.split(";")
                self._skip("discontinuous span", "read from begin to end", len(pieces) > 1)
                start, end = int(pieces[0].split()[0]), int(pieces[-1].split()[1])
                whole = covered if len(pieces) == 1 else None
                answer.spans.append(Span(start, end, label, whole))
            elif kind is None:
                raise ValueError(f"{briefly(line)} is no line of it")
            else:
                self._skip(kind)
        fields = {key: value for key, value in item.items() if key != "ann"}
        return fields, [] if item["ann"] is None else [answer]


#: The kinds of lines of brat that are no spans.
_BRAT = {
    **dict.fromkeys("R*", "relation"),
    **dict.fromkeys("AM", "attribute"),
    **{"E": "event", "N": "normalization", "#": "remark"},
}
#: The keys of Label Studio's answers that are labels.
_ANSWERS = ("choices", "taxonomy", "rating", "number")


def _labels(value: Any) -> list[str | float]:
    """Return the labels in a value: one, several, or paths in a taxonomy.

    Raises:
        ValueError: it has none.
    """
    labels: list[str | float] = []
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, list):
            part = " / ".join(map(str, part))
        if isinstance(part, bool) or not isinstance(part, str | int | float):
            raise ValueError(f"{briefly(part)} is no label")
        labels.append(part)
    return labels


def _responses(responses: Any) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the number of an annotator, the question and the answer, of both forms: by question, or
    by annotator."""
    if isinstance(responses, dict):
        for question, given in responses.items():
            yield from ((number, question, answer) for number, answer in enumerate(given))
        return
    for number, answer in enumerate(responses):
        for question, value in (answer.get("values") or {}).items():
            yield number, question, {**answer, **value}
