"""Make the section on a run's page with the examples that were predicted worst: entities and
answers are marked in their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bertine.reports.html import Section, Segment, TextCard, TextCards, percent_text
from bertine.runs.files import EXPLAINED, RunFolder, naming_damage
from bertine.text.spacing import close_up_places

#: What marks a part of a text, and what the page calls that side.
_SIDES = {"label": "actual", "answer": "predicted"}
#: Characters of a training example, and of its label, that are shown.
_NEAR, _LABEL = 120, 50


def worst(run: RunFolder) -> Section | None:
    """Show the examples with the highest loss; nothing where ``worst.json`` is missing.

    Raises:
        BertineError: the file is damaged.
    """
    if not run.worst:
        return None
    with naming_damage(run.path / "worst.json"):
        examples = run.worst["examples"]
        # With few validation examples the worst ones reach down to those predicted rightly.
        wrong = [example for example in examples if example["label"] != example["answer"]]
        info = run.labels_and_columns
        tagging = info.get("name", run.task) == "tagging"
        columns = [str(name) for name in info.get("text_columns") or ()]
        explained = _explained(run)
        cards = [
            _card(example, tagging, columns, explained.get(int(example["index"]), _Explained()))
            for example in wrong or examples
        ]
        mean, count = float(run.worst["mean_loss"]), int(run.worst["num_examples"])
        sources = {str(example.get("file", "")) for example in examples} - {""}
    source = f" of {Path(sources.pop()).name}" if len(sources) == 1 else ""
    lead = f"The {len(cards)} of {count:,} validation examples{source} with the highest loss"
    if wrong:
        lead += f" of those predicted wrongly (the mean of all is {mean:.3f}): what the model has "
        lead += "not learned. Wrong labels are often among them."
    else:
        lead += f" (the mean of all is {mean:.3f}). All of them are predicted rightly."
    return Section("Predicted worst", [TextCards(cards)], lead)


@dataclass(frozen=True)
class _Explained:
    """An explained answer: what its words contribute, in one line, and the nearest training
    examples, each with what stands before its text."""

    words: str = ""
    nearest: Sequence[tuple[str, str]] = ()


def _explained(run: RunFolder) -> dict[int, _Explained]:
    """Return the explained answers by the indices of their examples."""
    answers = {}
    with naming_damage(run.path / EXPLAINED):
        for each in run.explained.get("examples", []):
            words = [(str(word["word"]), float(word["contribution"])) for word in each["words"]]
            listed = ", ".join(f"{word} {value:+.2f}" for word, value in words)
            unit = "log-odds" if each["unit"] == "log-odds" else "score"
            answer = str(each["answer"]) or "no answer"
            nearest = [
                (
                    f"near in training, {_cut(str(near['label']), _LABEL)} "
                    f"({float(near['similarity']):.2f})",
                    " / ".join(
                        _cut(str(text), _NEAR // len(near["texts"])) for text in near["texts"]
                    ),
                )
                for near in each.get("nearest", [])
            ]
            answers[int(each["index"])] = _Explained(
                f"what words add to the {unit} of {answer}: {listed}", nearest
            )
    return answers


def _cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, an ellipsis for the rest."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _card(
    example: Mapping[str, Any], tagging: bool, columns: Sequence[str], explained: _Explained
) -> TextCard:
    """Show an example with its actual label and the predicted one, unless marks in its texts do;
    and what explains the answer, where that is known."""
    texts, marks = [str(text) for text in example["texts"]], _marks(example.get("marks") or [])
    if tagging:
        texts, marks = _closed_up(texts, marks)
    lines: list[tuple[str, list[Segment]]] = []
    names = columns if len(columns) == len(texts) > 1 else [""] * len(texts)
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        own = [mark for mark in marks if mark.text == number]
        if not own:
            lines.append((name, [Segment(text)]))
        elif not any(mark.label for mark in own):
            lines.append((name, _answers(text, own)))
        else:
            for side, word in _SIDES.items():
                marked = [mark for mark in own if mark.side == side]
                lines.append((word if marked else f"{word}: none", _segments(text, marked)))
    shown = {mark.side for mark in marks}
    if tagging and shown:
        shown = set(_SIDES)
    label, answer = str(example["label"]), str(example["answer"])
    remarks: list[tuple[str, str, Literal["", "right", "wrong"]]] = []
    if "label" not in shown and label:
        remarks.append(("actual", label, "right"))
    if "answer" not in shown and answer:
        remarks.append(("predicted", answer, "right" if label == answer else "wrong"))
    if (probability := example.get("label_probability")) is not None:
        share = percent_text(float(probability))
        remarks.append((f"probability of the actual label {share}", "", ""))
    remarks.append((f"loss {float(example['loss']):.3f}", "", ""))
    if explained.words:
        remarks.append((explained.words, "", ""))
    lines += [(before, [Segment(text)]) for before, text in explained.nearest]
    return TextCard(lines, remarks, place=_place(example))


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark of ``worst.json``; `right`: it is of the label, or the same as one of these."""

    text: int
    begin: int
    end: int
    label: str
    side: str
    right: bool = True


def _marks(entries: Sequence[Mapping[str, Any]]) -> list[_Mark]:
    marks = [
        _Mark(
            int(entry["text"]),
            int(entry["begin"]),
            int(entry["end"]),
            str(entry.get("label", "")),
            str(entry["of"]),
        )
        for entry in entries
    ]
    actual = {replace(mark, side="") for mark in marks if mark.side == "label"}
    return [replace(mark, right=replace(mark, side="") in actual) for mark in marks]


def _closed_up(texts: Sequence[str], marks: Sequence[_Mark]) -> tuple[list[str], list[_Mark]]:
    """Take the spaces between Chinese characters out of sentences of words, and move the marks."""
    shown, places = zip(*map(close_up_places, texts), strict=True)
    moved = [
        replace(mark, begin=places[mark.text][mark.begin], end=places[mark.text][mark.end])
        for mark in marks
        if mark.text < len(texts) and 0 <= mark.begin < mark.end <= len(texts[mark.text])
    ]
    return list(shown), moved


def _answers(text: str, marks: Sequence[_Mark]) -> list[Segment]:
    """Cut a context at the actual answer, the predicted one, and what both have of it."""
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
    """Cut `text` where marks begin and end; what overlaps an earlier mark is left out."""
    parts, done = [], 0
    for mark in sorted(marks, key=lambda mark: mark.begin):
        if not done <= mark.begin < mark.end <= len(text):
            continue
        parts.append(Segment(text[done : mark.begin]))
        kind: Literal["right", "wrong"] = "right" if mark.right else "wrong"
        parts.append(Segment(text[mark.begin : mark.end], kind, mark.label))
        done = mark.end
    return [*(part for part in parts if part.text), Segment(text[done:])]


def _place(example: Mapping[str, Any]) -> str:
    """Say where an example stands in its file."""
    line, file = example.get("line"), str(example.get("file", ""))
    if not line:
        return f"example {int(example['index']) + 1:,}"
    word = {".parquet": "row", ".pq": "row", ".json": "question"}.get(Path(file).suffix, "line")
    return f"{Path(file).name}, {word} {int(line):,}" if file else f"{word} {int(line):,}"
