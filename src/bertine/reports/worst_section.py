"""The examples that were predicted worst, for a run's page: entities and answers marked in their
texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bertine.errors import BertineError
from bertine.reports.html import Judged, JudgedExamples, Section, Segment
from bertine.reports.run_files import RunFiles

#: What marks a part of a text, and how the page calls that side.
_SIDES: dict[str, Literal["true", "predicted"]] = {"label": "true", "answer": "predicted"}


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
        examples = [_judged(one) for one in wrong or kept]
        mean, count = float(files.worst["mean_loss"]), int(files.worst["num_examples"])
        sources = {str(one.get("file", "")) for one in files.worst["examples"]} - {""}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
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
            f"{mean:.3f}): what was not learned. Wrong labels are often among them.",
        )
    ]


def _judged(one: Mapping[str, Any]) -> Judged:
    texts = [str(text) for text in one["texts"]]
    marks = one.get("marks") or []
    marked = {int(mark["text"]) for mark in marks}
    lines: list[tuple[str, list[Segment]]] = []
    for at, text in enumerate(texts):
        for side, name in _SIDES.items() if at in marked else ():
            own = [mark for mark in marks if int(mark["text"]) == at and mark["of"] == side]
            lines.append((name, _segments(text, own, name)))
        if at not in marked:
            lines.append(("", [Segment(text)]))
    probability = one.get("label_probability")
    return Judged(
        lines,
        str(one["label"]),
        str(one["answer"]),
        f"{float(one['loss']):.3f}",
        place=_place(one),
        label_probability=None if probability is None else float(probability),
        marked=bool(marks),
    )


def _segments(
    text: str, marks: Sequence[Mapping[str, Any]], side: Literal["true", "predicted"]
) -> list[Segment]:
    """`text` in parts, those that are marked among them."""
    parts, at = [], 0
    for mark in sorted(marks, key=lambda each: int(each["begin"])):
        begin, end = int(mark["begin"]), int(mark["end"])
        if not at <= begin < end <= len(text):
            continue
        parts.append(Segment(text[at:begin]))
        parts.append(Segment(text[begin:end], side, str(mark.get("label", ""))))
        at = end
    return [*(part for part in parts if part.text), Segment(text[at:])]


def _place(one: Mapping[str, Any]) -> str:
    line, file = one.get("line"), str(one.get("file", ""))
    if not line:
        return f"example {int(one['index']) + 1:,}"
    word = {".parquet": "row", ".pq": "row", ".json": "question"}.get(Path(file).suffix, "line")
    return f"{Path(file).name}, {word} {int(line):,}" if file else f"{word} {int(line):,}"
