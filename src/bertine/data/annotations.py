"""Read the files of annotation tools: Label Studio, doccano, Prodigy, spaCy, Argilla and brat.

The tool is recognized by the first objects of a file that only it writes. What is no answer of a
person (predictions, suggestions, what was cancelled or rejected) and what has no place in a row
(relations, events, regions of pictures) is counted.
"""

from __future__ import annotations

import csv
import io
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import AnnotationTool
from bertine.core.strict_json import parse_json, typed
from bertine.core.text import briefly
from bertine.data.annotated_texts import AnnotatedText, Annotations, Answer, Span
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.lines import MAX_JSON_BYTES, TableLines, TableStats
from bertine.data.streams import cleaned, list_items, open_stream, open_text

#: Bytes and objects of a file by which its tool is recognized.
_HEAD, _LOOKED_AT = 1 << 20, 50
_BETWEEN = re.compile(r"[\s,]*")
_LIST = re.compile(r"\s*\[\s*[\[{\]]")
_JSON = re.compile(r'\[\{|\{"')
#: What every row of Label Studio's short exports, JSON-MIN and csv, has.
_SHORT = {"annotation_id", "annotator", "lead_time"}
#: Keys that may hold spans, and labels; keys of a span; the names of a
#: question of Label Studio, and its answers that are labels.
SPAN_KEYS = ("entities", "ents", "spans", "label", "labels")
_LABEL_KEYS = ("label", "labels", "cats")
_STARTS = ("start", "start_offset", "start_char")
_ENDS = ("end", "end_offset", "end_char")
_NAMES = ("from_name", "to_name", "type")
_CHOICES = ("choices", "taxonomy", "rating", "number")
#: Lines of brat that are no spans, by their first letter.
_BRAT = {"R": "relation", "*": "relation", "E": "event", "A": "attribute", "M": "attribute"}
_BRAT |= {"N": "normalization", "#": "remark"}
_BRAT_SPAN = re.compile(r"(\S+) (\d+) (\d+)")
#: What nobody has answered, or has no place in a row; counted if it is left off.
_UNREAD = ("prediction", "suggestion", "draft")


def annotation_tool(path: Source, format: str | None = None) -> str | None:
    """Return the tool that wrote a file (:data:`~bertine.core.names.AnnotationTool`); None for any
    other file. A `format` that is given decides.

    Raises:
        BertineError: the file cannot be read.
    """
    if format is not None or isinstance(path, InMemoryTable):
        return format if format in get_args(AnnotationTool) else None
    path = Path(path)
    if is_brat(path):
        return "brat"
    if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
        return None
    with open_stream(path) as stream:
        raw = stream.reader.read(_HEAD)
        codec = "utf-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8"
        head = raw.decode(codec, "ignore").lstrip("\ufeff \t\r\n")
    if not head.startswith(("{", "[")):
        header = re.split("[,;\t]", head.partition("\n")[0].replace('"', "").rstrip("\r"))
        return "label-studio" if set(header) >= _SHORT else None
    decoder, at = json.JSONDecoder(), 1 if _LIST.match(head) else 0
    for _ in range(_LOOKED_AT):
        match = _BETWEEN.match(head, at)
        try:
            item, at = decoder.raw_decode(head, match.end() if match else at)
        except (ValueError, RecursionError):
            return None
        if tool := _tool_of(item):
            return tool
    return None


def is_brat(path: object) -> bool:
    """Return whether it is a file of brat (``.ann``, beside the ``.txt``), or a folder of them."""
    if not isinstance(path, str | Path):
        return False
    return Path(path).suffix == ".ann" or next(Path(path).glob("*.ann"), None) is not None


def _tool_of(item: Any) -> str | None:
    """Return the tool that an object is certainly from."""
    if _is_pair(item):
        return "spacy"
    if not isinstance(item, dict):
        return None
    kinds = {key: type(value) for key, value in item.items()}
    lists = [item[key] for key in SPAN_KEYS if kinds.get(key) is list and item[key]]
    first = lists[0][0] if lists else None
    triple = isinstance(first, list) and [*map(type, first)] == [int, int, str]
    keys = first.keys() if isinstance(first, dict) else set()
    answers = [key for key in ("annotations", "completions", "predictions") if key in item]
    marks = {
        "label-studio": (kinds.get("data") is dict and any(kinds[key] is list for key in answers))
        or item.keys() >= _SHORT,
        "argilla": (kinds.get("fields") is dict and item.keys() & {"responses", "suggestions"})
        or item.keys() >= {"annotation", "prediction"},
        "prodigy": item.get("answer") in ("accept", "reject", "ignore") or "_task_hash" in item,
        "doccano": (triple and item.keys() & {"label", "labels"}) or "start_offset" in keys,
        "spacy": triple
        or dict in (kinds.get("cats"), kinds.get("spans"))
        or (kinds.get("annotations") is list and "classes" in item),
        "entities": keys >= {"start", "end", "label"} and kinds.get("text") is str,
    }
    return next((tool for tool, mark in marks.items() if mark), None)


def _is_pair(item: Any) -> bool:
    """Return whether it is an example of spaCy 2: a text, and an object with its annotations."""
    return isinstance(item, list) and [*map(type, item)] == [str, dict]


def read_annotations(path: Path, tool: str, *, strict: bool, stats: TableStats) -> Annotations:
    """Read a file of an annotation tool whole; `stats`, the counts of fixes, are changed in place.

    Raises:
        BertineError: the file cannot be read, is too large, or has an object that the tool does not
            write; names its line.
    """
    reader = _Reader()
    items = _brat_items if tool == "brat" else _items
    read = {
        "label-studio": reader.label_studio,
        "prodigy": reader.prodigy,
        "argilla": reader.argilla,
        "brat": reader.brat,
    }.get(tool, reader.object)
    texts: dict[Any, AnnotatedText] = {}
    for number, (line, record) in enumerate(items(path, strict, stats)):
        try:
            pair = _is_pair(record)
            item = {"text": record[0], **record[1]} if pair else typed(dict, record, "it")
            fields, answers = read(item)
        except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
            said = {ValueError: str(error), KeyError: f"{error} is missing"}
            what = said.get(type(error), "a value is of another kind")
            at = f", object {number + 1}" * (line != number + 1)
            raise BertineError(f"{path}:{line}{at}: is not as {tool} writes it: {what}") from error
        key = str(fields.get("text", line)) if tool == "prodigy" else None
        if fields.get("id") is not None and (tool == "doccano" or "annotation_id" in item):
            key = json.dumps([fields["id"], fields.get("text")])
        text = texts.setdefault(key or number, AnnotatedText(line, fields, [], record))
        text.answers.extend(answers)
    unit = "UTF-16 units" if tool == "label-studio" else "code points"
    annotations = Annotations(str(path), tool, [*texts.values()], unit)
    annotations.controls = reader.controls
    if counts := ", ".join(plural(count, noun) for noun, count in (+reader.left_out).items()):
        annotations.notes.append(f"{path}: not read: {counts}")
    return annotations


# Items: the objects of a file, each with its line.


def _items(path: Path, strict: bool, stats: TableStats) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a file of JSON, of JSON lines, or of csv."""
    text = _whole(path, strict, stats)
    if text.lstrip()[:1] not in ("{", "["):
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        cells = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            header = next(cells, [])
            for row in cells:
                where = f"{path}:{cells.line_num}"
                values = [
                    parse_json(cell.encode(), where, lenient=True) if _JSON.match(cell) else cell
                    for cell in row
                ]
                yield cells.line_num, dict(zip(header, values, strict=False))
        except csv.Error as error:
            raise BertineError(f"{path}:{cells.line_num}: not valid csv ({error})") from error
        return
    items = list_items(text, str(path)) if _LIST.match(text) else enumerate(text.split("\n"), 1)
    for number, item in items:
        if item.strip():
            value = parse_json(item.encode("utf-8"), f"{path}:{number}", lenient=True)
            pairs = value.get("annotations") if isinstance(value, dict) else None
            if isinstance(pairs, list) and "classes" in value:  # of an annotator of spaCy's
                yield from ((number, pair) for pair in pairs if pair)
            else:
                yield number, value


def _whole(path: Path, strict: bool, stats: TableStats) -> str:
    with open_text(path) as stream:
        lines = TableLines(stream.reader, str(path), strict, stats, stream.codec)
        return cleaned(lines.whole()) if next(lines, "") else ""


def _brat_items(path: Path, strict: bool, stats: TableStats) -> Iterator[tuple[int, Any]]:
    """Yield the texts of brat's files, each with its annotations; None where there is no file."""
    files = [*path.glob("*.ann"), *path.glob("*.txt")] if path.is_dir() else [path]
    for number, name in enumerate(sorted({file.with_suffix(".txt") for file in files}), 1):
        if not name.exists():
            raise BertineError(f"{name}: no such file; it should be the text of {name.stem}.ann")
        marks = name.with_suffix(".ann")
        given = _whole(marks, strict, stats) if marks.exists() else None
        yield number, {"text": _whole(name, strict, stats), "ann": given, "name": name.stem}


# The tools: the fields and the answers in an object of each.

_Read = tuple[dict[str, Any], list[Answer]]


class _Reader:
    """A reader of the objects of one file; `left_out` counts what is not read, by its noun."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.controls: dict[str, dict[str, str]] = {}

    def spans(self, items: Any, labels: Any = None, covered: Any = None) -> list[Span]:
        """Return the spans in a list: objects, ``[start, end, label]`` or ``[label, start, end]``;
        `labels` and `covered` are those of a single one."""
        spans = []
        for item in typed(list[Any], items, "the value of the spans"):
            if isinstance(item, list):
                start, end, label = (*item[1:3], item[0]) if type(item[0]) is str else item[:3]
            else:
                start = next(item[key] for key in _STARTS if key in item)
                end = next(item[key] for key in _ENDS if key in item)
                label, covered = item.get("label"), item.get("text", covered)
            for name in [label] if labels is None else labels:
                if name is None or not str(name).strip():
                    self.left_out["unlabelled span"] += 1
                    continue
                start, end = typed(int, start, "start"), typed(int, end, "end")
                spans.append(Span(start, end, str(name).strip(), str(covered) if covered else None))
        return spans

    def object(self, item: dict[str, Any]) -> _Read:
        """Read an object with a text and its spans or labels: of doccano, spaCy and others."""
        answer, used = Answer(), set()
        for key in (*SPAN_KEYS, "cats"):
            value = item.get(key)
            if isinstance(value, dict) and key == "spans":  # groups of spans
                value = [span for group in value.values() for span in group]
            if isinstance(value, dict) and key == "cats":
                value = [label for label, given in value.items() if given > 0.5]
            if value is None or (isinstance(value, str) and key not in _LABEL_KEYS):
                continue
            used.add(key)
            parts = value if isinstance(value, list) else [value]
            if key in _LABEL_KEYS and not all(isinstance(part, list | dict) for part in parts):
                answer.labels["label"] = _labels(value)
            else:
                answer.spans += self.spans(value)
        return self._others(item, *used), [answer] if used else []

    def _others(self, item: dict[str, Any], *used: str) -> dict[str, Any]:
        """Return what is left of an object; its relations, and predictions that are `used`, are
        counted."""
        for noun in ("relation", *(noun for noun in _UNREAD if f"{noun}s" in used)):
            self.left_out[noun] += len(item.get(f"{noun}s") or ())
        return {key: value for key, value in item.items() if key not in used}

    def label_studio(self, item: dict[str, Any]) -> _Read:
        if item.keys() >= _SHORT:
            return self._short(item)
        given = item.get("annotations") or item.get("completions") or []
        answers = [one for one in given if not one.get("was_cancelled")]
        if len(given) > len(answers):
            self.left_out["cancelled annotation"] += len(given) - len(answers)
        answers = [one for one in answers if one.get("ground_truth")] or answers
        fields = self._others(item, "data", "annotations", "completions", "predictions", "drafts")
        data = typed(dict, item["data"], "data")
        return data | fields, [self._regions(one["result"]) for one in answers]

    def _regions(self, regions: list[dict[str, Any]]) -> Answer:
        answer = Answer()
        for region in regions:
            kind, value = str(region["type"]), region.get("value") or {}
            place, labels = value.get("start"), value.get(kind)
            if type(place) is int and isinstance(labels, list):
                answer.spans += self.spans([value], labels or [None])
                self._control("spans", region)
            elif place is None and kind in _CHOICES:
                question = str(region.get("from_name") or kind)
                answer.labels.setdefault(question, []).extend(_labels(labels))
                self._control("labels", region)
            else:
                self.left_out[kind if kind == "relation" else f"{kind} region"] += 1
        return answer

    def _control(self, what: str, region: dict[str, Any]) -> None:
        """Keep the names of what asks for spans or labels."""
        names: dict[str, str] = {key: str(region[key]) for key in _NAMES if key in region}
        self.controls.setdefault(what, names)

    def _short(self, item: dict[str, Any]) -> _Read:
        """Read a row of JSON-MIN or csv, where the questions stand between the id and the
        annotator."""
        keys, answer = [*item], Answer()
        used = keys[keys.index("id") + 1 : keys.index("annotator")] if "id" in item else []
        for key, value in item.items():
            parts = value if isinstance(value, list) else [value]
            objects = [part for part in parts if isinstance(part, dict)]
            values = [part[name] for part in objects for name in _CHOICES if name in part]
            if objects and all("start" in part for part in objects):
                for part in objects:
                    kinds = [name for name in part if name.endswith("labels")]
                    answer.spans += self.spans([part], part[kinds[0]] if kinds else [None])
                self._control("spans", {"from_name": key})
            elif values or (key in used and value not in (None, "")):
                answer.labels[key] = [label for one in values or [value] for label in _labels(one)]
                self._control("labels", {"from_name": key})
            else:
                continue
            used.append(key)
        return self._others(item, *used), [answer]

    def prodigy(self, item: dict[str, Any]) -> _Read:
        fields = self._others(item, "spans", "label", "accept", "answer", "options", "relations")
        given, label, spans = item.get("answer"), item.get("label"), item.get("spans") or []
        binary = label is not None and not spans
        if given == "ignore" or (given == "reject" and not binary):
            self.left_out["ignored example" if given == "ignore" else "rejected example"] += 1
            return fields, []
        answer = Answer()
        if binary:
            answer.labels["label"] = [f"not {label}" if given == "reject" else str(label)]
        elif "accept" in item or "options" in item:
            answer.labels["label"] = _labels(item.get("accept") or [])
        words = {(one["start"], one["end"]): one.get("text") for one in item.get("tokens") or ()}
        for span in spans:
            answer.spans += self.spans([span], covered=words.get((span["start"], span["end"])))
        return fields, [answer]

    def argilla(self, item: dict[str, Any]) -> _Read:
        used = ("fields", "inputs", "annotation", "prediction", "vectors", "responses", "tokens")
        fields = self._others(item, *used, "suggestions")
        inputs, responses = item.get("fields", item.get("inputs")), item.get("responses") or {}
        fields |= inputs if isinstance(inputs, dict) else {}
        if item.get("annotation") is not None:  # version 1
            responses = {"label": [{"value": item["annotation"]}]}
        answers: defaultdict[str, Answer] = defaultdict(Answer)
        for number, question, response in _responses(responses):
            status = str(response.get("status") or item.get("status") or "").lower()
            if status in ("discarded", "draft"):
                self.left_out[f"{status} response"] += 1
                continue
            answer, value = answers[str(response.get("user_id") or number)], response["value"]
            if isinstance(value, list) and all(isinstance(part, list | dict) for part in value):
                answer.spans += self.spans(value)
                self._control("spans", {"from_name": question})
            else:
                answer.labels[question] = _labels(value)
                self._control("labels", {"from_name": question})
        return fields, [*answers.values()]

    def brat(self, item: dict[str, Any]) -> _Read:
        answer = Answer()
        for number, line in enumerate((item["ann"] or "").split("\n"), 1):
            name, place, covered = (*line.rstrip("\r").split("\t", 2), "", "")[:3]
            if match := _BRAT_SPAN.fullmatch(place):
                start, end = int(match[2]), int(match[3])
                answer.spans.append(Span(start, end, match[1], covered or None))
            elif noun := "discontinuous span" if ";" in place else _BRAT.get(name[:1]):
                self.left_out[noun] += 1
            elif line.strip():
                raise ValueError(f"line {number} of {item['name']}.ann is {briefly(line)}")
        return self._others(item, "ann"), [] if item["ann"] is None else [answer]


def _labels(value: Any) -> list[str | float]:
    """Return the labels in a value: one, several, or paths in a taxonomy.

    Raises:
        ValueError: it has something else.
    """
    parts = value if isinstance(value, list) else [value]
    parts = [" / ".join(map(str, part)) if isinstance(part, list) else part for part in parts]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | int | float):
            raise ValueError(f"{briefly(part)} is no label")
    return parts


def _responses(responses: Any) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the number of the annotator, the question and the answer of Argilla's responses: by
    question, or by annotator."""
    if isinstance(responses, dict):
        for question, given in responses.items():
            yield from ((number, question, one) for number, one in enumerate(given))
        return
    for number, one in enumerate(responses):
        yield from ((number, key, {**one, **value}) for key, value in one["values"].items())
