"""Write a model's answers into the objects of an annotation tool, for people to correct.

Each tool has its own place for predictions; where it has none, they stand where answers do. Offsets
are in the unit of the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from bertine.core.console import logger, plural
from bertine.data.annotated_texts import AnnotatedText, Annotations
from bertine.data.annotations import SPAN_KEYS
from bertine.data.streams import encodable

#: The author of predictions.
_MODEL = "bertine"
#: The keys of a span in tools of Python; and a rating.
_NAMES = ("start", "end", "label")
_NUMBER = re.compile(r"-?\d{1,9}(\.\d+)?")


class _Span(NamedTuple):
    """A predicted span: offsets in the unit of the tool, label, probability, and its text."""

    start: int
    end: int
    label: str
    score: float | None
    covered: str


class _Answer(NamedTuple):
    """What a model has answered: spans, or labels and the probability of a single one."""

    spans: list[_Span]
    labels: list[str]
    score: float | None


def write_predictions(rows: Path, target: Path, read: Annotations) -> None:
    """Convert answered rows to a file of the tool whose file was `read`. A warning counts the texts
    whose labels by people are replaced.

    Args:
        rows: JSON lines, one for each text, with the ``entities`` or ``label`` of a model last.
        target: the file to write; for a folder of brat an empty folder.
    """
    write = {
        "label-studio": _label_studio,
        "prodigy": _prodigy,
        "argilla": _argilla,
        "brat": _brat,
    }.get(read.tool, _object)
    labelled = sum(any(one.spans or one.labels for one in item.answers) for item in read.texts)
    if labelled and write in (_object, _prodigy):  # they have no place of their own for predictions
        logger.warning(
            f"the answers take the place of the labels that {plural(labelled, 'text')} had; "
            "an output named .parquet or .xlsx has both"
        )
    with open(rows, encoding="utf-8") as lines:
        pairs = zip(read.texts, map(json.loads, lines), strict=True)
        answered = ((item, write(item, _answer(item, row, read), read)) for item, row in pairs)
        if target.is_dir():
            for item, marks in answered:
                file = target / f"{item.record['name']}.txt"
                file.write_text(item.text, encoding="utf-8", newline="")
                file.with_suffix(".ann").write_text(marks, encoding="utf-8")
            return
        begin, between, end = (
            ("[\n", ",\n", "\n]\n") if read.suffix == ".json" else ("", "\n", "\n")
        )
        with open(target, "w", encoding="utf-8", newline="") as output:
            for _, value in answered:
                text = value if read.tool == "brat" else json.dumps(value, ensure_ascii=False)
                output.write(begin + (text if encodable(text) else json.dumps(value)))
                begin = between
            output.write(end if read.tool != "brat" else "")


def _answer(item: AnnotatedText, row: dict[str, Any], read: Annotations) -> _Answer:
    """Return the answer in a row: the columns that were added to those of the file."""
    added = {
        re.sub("^(predicted_)+", "", name): value
        for name, value in row.items()
        if name not in read.columns
    }
    offsets, spans = read.unit.offsets(item.text), []
    for one in added.get("entities") or ():
        start, end, score = one["start"], one["end"], one.get("probability")
        spans.append(_Span(offsets[start], offsets[end], one["label"], score, item.text[start:end]))
    label = added.get("label", added.get("score"))
    labels = (added.get("labels") or "").split("|") if label is None else [str(label)]
    return _Answer(spans, [name for name in labels if name], added.get("probability"))


def _label_studio(item: AnnotatedText, answer: _Answer, read: Annotations) -> Any:
    what, kind = ("labels", "choices") if answer.labels else ("spans", "labels")
    about = {"from_name": "label", "to_name": "text", "type": kind} | read.controls.get(what, {})
    result: list[dict[str, Any]] = []
    for number, span in enumerate(answer.spans):
        place = {"start": span.start, "end": span.end, "text": span.covered}
        value: dict[str, Any] = {**place, about["type"]: [span.label]}
        result.append({"id": str(number), **about, "value": value, "score": span.score})
    if answer.labels:
        numeric = about["type"] in ("rating", "number") and _NUMBER.fullmatch(answer.labels[0])
        chosen: Any = round(float(answer.labels[0])) if numeric else answer.labels
        if about["type"] == "taxonomy":
            chosen = [label.split(" / ") for label in answer.labels]
        elif not numeric:
            about["type"] = "choices"
        result.append({"id": "0", **about, "value": {about["type"]: chosen}})
    scores = [span.score for span in answer.spans if span.score is not None]
    score = answer.score if answer.labels else min(scores, default=None)
    task = item.record if "data" in item.record else {"data": item.fields}
    return task | {"predictions": [{"model_version": _MODEL, "score": score, "result": result}]}


def _object(item: AnnotatedText, answer: _Answer, read: Annotations) -> Any:
    pair = isinstance(item.record, list)
    record: dict[str, Any] = item.record[1] if pair else item.record
    usual = "label" if read.tool == "doccano" else "entities"
    key = next((key for key in SPAN_KEYS if key in record), usual)
    triples = [(span.start, span.end, span.label) for span in answer.spans]
    names = ("start_offset", "end_offset", "label") if read.tool == "doccano" else _NAMES
    value: Any = [dict(zip(names, triple, strict=True)) for triple in triples]
    if answer.labels:
        key = "cats" if read.tool == "spacy" else "label"
        value = dict.fromkeys(answer.labels, 1.0) if key == "cats" else answer.labels
    elif isinstance(record.get(key), dict):
        value = {next(iter(record[key]), "sc"): value}
    elif (read.tool, key) == ("doccano", "entities"):
        value = [{"id": number, **span} for number, span in enumerate(value)]
    elif read.tool == "doccano" or (read.tool, key) == ("spacy", "entities"):
        value = triples
    return [item.text, record | {key: value}] if pair else record | {key: value}


def _prodigy(item: AnnotatedText, answer: _Answer, read: Annotations) -> Any:
    record = {key: value for key, value in item.record.items() if key != "answer"}
    if answer.labels:
        several = "options" in record
        return record | ({"accept": answer.labels} if several else {"label": answer.labels[0]})
    tokens = record.get("tokens") or []
    starts = {token["start"]: number for number, token in enumerate(tokens)}
    ends = {token["end"]: number for number, token in enumerate(tokens)}
    spans: list[dict[str, Any]] = []
    for span in answer.spans:
        spans.append(dict(zip(_NAMES, span[:3], strict=True)))
        if span.start in starts and span.end in ends:
            spans[-1] |= {"token_start": starts[span.start], "token_end": ends[span.end]}
    return record | {"spans": spans}


def _argilla(item: AnnotatedText, answer: _Answer, read: Annotations) -> Any:
    if "fields" not in item.record:  # version 1
        spans = [[span.label, span.start, span.end, span.score] for span in answer.spans]
        labels = [[label, answer.score] for label in answer.labels]
        return item.record | {"prediction": spans or labels, "prediction_agent": _MODEL}
    value: Any = [dict(zip((*_NAMES, "score"), span, strict=False)) for span in answer.spans]
    if answer.labels:
        value = answer.labels if len(answer.labels) > 1 else answer.labels[0]
    about = read.controls.get("labels" if answer.labels else "spans", {})
    question, made = about.get("from_name", "label"), {"value": value, "agent": _MODEL}
    given = item.record.get("suggestions") or {}
    if isinstance(given, list) or isinstance(item.record.get("responses"), list):
        return item.record | {"suggestions": [{"question_name": question, **made}]}
    return item.record | {"suggestions": {**given, question: made}}


def _brat(item: AnnotatedText, answer: _Answer, read: Annotations) -> str:
    return "".join(
        f"T{number}\t{'_'.join(span.label.split())} {span.start} {span.end}\t"
        f"{' '.join(span.covered.split())}\n"
        for number, span in enumerate(answer.spans, 1)
    )
