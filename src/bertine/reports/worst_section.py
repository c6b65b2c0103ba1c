"""The examples that were predicted worst, for a run's page: entities and answers marked in their
texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bertine.errors import BertineError
from bertine.reports.html import Judged, JudgedExamples, Section, Segment
from bertine.runs.files import RunFiles
from bertine.text.spacing import close_up_places

#: What marks a part of a text, and what the page calls that side.
_SIDES = {"label": "actual", "answer": "predicted"}


def worst(files: RunFiles) -> list[Section]:
    """The examples with the highest loss; none where ``worst.json`` is missing.

    Raises:
        BertineError: the file is damaged.
    """
    if not files.worst:
        return []
    try:
        kept = files.worst["examples"]
        # With few validation examples the worst ones reach down to those predicted rightly.
        wrong = [one for one in kept if one["label"] != one["answer"]]
        info = files.settings.get("labels_and_columns") or {}
        tagging = info.get("name", files.task) == "tagging"
        columns = [str(name) for name in info.get("text_columns") or ()]
        examples = [_judged(one, tagging, columns) for one in wrong or kept]
        mean, count = float(files.worst["mean_loss"]), int(files.worst["num_examples"])
        sources = {str(one.get("file", "")) for one in files.worst["examples"]} - {""}
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BertineError(
            f"{files.folder / 'worst.json'}: damaged ({error!r}); remove it or train again"
        ) from error
    source = f" of {Path(sources.pop()).name}" if len(sources) == 1 else ""
    return [
        Section(
            "Predicted worst",
            [JudgedExamples(examples)],
            lead=f"The {len(examples)} of {count:,} validation examples{source} with the highest "
            f"loss{' of those predicted wrongly' if wrong else ''} (the mean of all is "
            f"{mean:.3f}): what the model has not learned. Wrong labels are often among them.",
        )
    ]


def _judged(one: Mapping[str, Any], tagging: bool, columns: Sequence[str]) -> Judged:
    texts, marks = [str(text) for text in one["texts"]], _marks(one.get("marks") or [])
    if tagging:
        texts, marks = _closed_up(texts, marks)
    lines: list[tuple[str, list[Segment]]] = []
    names = columns if len(columns) == len(texts) > 1 else [""] * len(texts)
    for at, (text, name) in enumerate(zip(texts, names, strict=True)):
        own = [mark for mark in marks if mark.text == at]
        if not own:
            lines.append((name, [Segment(text)]))
        elif not any(mark.label for mark in own):
            lines.append((name, _answers(text, own)))
        else:
            for side, word in _SIDES.items():
                marked = [mark for mark in own if mark.side == side]
                lines.append((word if marked else f"{word}: none", _segments(text, marked)))
    probability = one.get("label_probability")
    sides = {mark.side for mark in marks}
    label, answer = str(one["label"]), str(one["answer"])
    told = sides | set(_SIDES) if tagging and sides else sides
    return Judged(
        lines,
        "" if "label" in told else label,
        "" if "answer" in told else answer,
        f"{float(one['loss']):.3f}",
        place=_place(one),
        label_probability=None if probability is None else float(probability),
        right=label == answer,
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark of ``worst.json``; `right`: it is the label's, or the same as one of these."""

    text: int
    begin: int
    end: int
    label: str
    side: str
    right: bool = True


def _marks(given: Sequence[Mapping[str, Any]]) -> list[_Mark]:
    found = [
        _Mark(
            int(mark["text"]),
            int(mark["begin"]),
            int(mark["end"]),
            str(mark.get("label", "")),
            str(mark["of"]),
        )
        for mark in given
    ]
    actual = {replace(mark, side="") for mark in found if mark.side == "label"}
    return [replace(mark, right=replace(mark, side="") in actual) for mark in found]


def _closed_up(texts: Sequence[str], marks: Sequence[_Mark]) -> tuple[list[str], list[_Mark]]:
    """Sentences of words, with the spaces between Chinese characters taken out."""
    shown, places = zip(*map(close_up_places, texts), strict=True)
    moved = [
        replace(mark, begin=places[mark.text][mark.begin], end=places[mark.text][mark.end])
        for mark in marks
        if mark.text < len(texts) and 0 <= mark.begin < mark.end <= len(texts[mark.text])
    ]
    return list(shown), moved


def _answers(text: str, marks: Sequence[_Mark]) -> list[Segment]:
    """A context with the actual answer, the predicted one, and what both have of it."""
    edges = {0, len(text), *(edge for mark in marks for edge in (mark.begin, mark.end))}
    parts, named = [], set()
    for begin, end in reversed(list(pairwise(sorted(e for e in edges if 0 <= e <= len(text))))):
        sides = {mark.side for mark in marks if mark.begin <= begin and end <= mark.end}
        beside = "both" if len(sides) > 1 else _SIDES.get("".join(sides), "")
        kind: Literal["", "right", "wrong"] = "right" if "label" in sides else "wrong"
        # A side that the other one divides is named once, at its end.
        parts.append(
            Segment(text[begin:end], kind if sides else "", "" if beside in named else beside)
        )
        named.add(beside)
    return parts[::-1]


def _segments(text: str, marks: Sequence[_Mark]) -> list[Segment]:
    """`text` in parts, those that are marked among them."""
    parts, at = [], 0
    for mark in sorted(marks, key=lambda each: each.begin):
        if not at <= mark.begin < mark.end <= len(text):
            continue
        parts.append(Segment(text[at : mark.begin]))
        kind: Literal["right", "wrong"] = "right" if mark.right else "wrong"
        parts.append(Segment(text[mark.begin : mark.end], kind, mark.label))
        at = mark.end
    return [*(part for part in parts if part.text), Segment(text[at:])]


def _place(one: Mapping[str, Any]) -> str:
    line, file = one.get("line"), str(one.get("file", ""))
    if not line:
        return f"example {int(one['index']) + 1:,}"
    word = {".parquet": "row", ".pq": "row", ".json": "question"}.get(Path(file).suffix, "line")
    return f"{Path(file).name}, {word} {int(line):,}" if file else f"{word} {int(line):,}"
