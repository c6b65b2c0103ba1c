"""Rank examples by their loss, and write their labels and answers as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from bertine.core.scores import ranking
from bertine.data.entities import Sentence, entities, is_entity_tag
from bertine.data.examples import Examples
from bertine.data.label_sets import JOINT
from bertine.data.squad import Gold
from bertine.tasks.answer import Answer, Mark, WorstExample
from bertine.tokenization.sentences import cjk_space_places

#: Decimals of a loss.
_DIGITS = 5
#: The end of `Examples.source` for examples that were held out of a file.
_HELD_OUT = " (held out)"


def ranked(
    kind: type[Answer],
    examples: Examples[Any],
    losses: Sequence[float],
    answers: Sequence[Any],
    values: Sequence[Any],
    n: int,
) -> tuple[list[WorstExample], list[float]]:
    """Return the `n` labelled examples with the highest loss, highest first; of equals the first.

    Args:
        kind: the class of the task's answers.
        losses: the loss of each example, NaN where its label is not known.
        answers: the model's predictions.
        values: the answers as in a file of predictions.

    Returns:
        The worst examples, and the losses of all labelled examples, highest first.
    """
    rounded = [round(loss, _DIGITS) for loss in losses]
    labelled = [index for index, loss in enumerate(losses) if not math.isnan(loss)]
    order = [labelled[at] for at in ranking([losses[index] for index in labelled], n)]
    worst = []
    for index in order:
        item = examples.items[index]
        marks = _marks(item, answers[index])
        texts = (_shown(item)[0],) if isinstance(item, Sentence) else tuple(item.texts)
        tagged = isinstance(item, Sentence) and _mark_entities(item.tags, answers[index].tags)
        worst.append(
            WorstExample(
                index,
                texts,
                _entities(texts[0], marks, "label") if tagged else _text(item.label),
                _entities(texts[0], marks, "answer") if tagged else _text(values[index]),
                rounded[index],
                examples.source.removesuffix(_HELD_OUT),
                item.line,
                kind.label_probability(rounded[index]),
                marks,
            )
        )
    return worst, sorted((rounded[index] for index in labelled), reverse=True)


def label_text(item: Any) -> str:
    """Write the label of an example as text: of a sentence its entities with their types, or its
    tags."""
    if isinstance(item, Sentence):
        tags = item.tags or ()
        if _mark_entities(tags):
            return _entities(_shown(item)[0], _entity_marks(item, tags, "label"), "label")
        return _text(tags)
    return _text(item.label)


def _marks(item: Any, answer: Any) -> tuple[Mark, ...]:
    if isinstance(item, Sentence):
        tags, answered = item.tags or (), answer.tags
        if not _mark_entities(tags, answered):
            return (
                *_tag_marks(item, tags, answered, "label"),
                *_tag_marks(item, answered, tags, "answer"),
            )
        label = _entity_marks(item, tags, "label")
        return (*label, *_entity_marks(item, answered, "answer"))
    marks: list[Mark] = []
    if isinstance(item.label, Gold) and item.label.span is not None:
        marks.append(Mark(1, *item.label.span, "", "label"))
    if answer.place is not None:
        begin, end = answer.place
        marks.append(Mark(1, begin, end, "", "answer"))
    return tuple(marks)


def _mark_entities(*sides: Sequence[str] | None) -> bool:
    """Return whether tags mark entities, and are not plain ones such as parts of speech."""
    return all(is_entity_tag(tag) for tags in sides for tag in tags or ())


def _shown(item: Sentence) -> tuple[str, Sequence[tuple[int, int]]]:
    """Return the text of a sentence, or its words joined (Chinese ones without spaces between
    them), and the place of each word."""
    if item.text is not None:
        return item.text, item.offsets
    words = item.words
    text, places = cjk_space_places(" ".join(words))
    spans, begin = [], 0
    for word in words:
        spans.append((places[begin], places[begin + len(word)]))
        begin += len(word) + 1
    return text, spans


def _tag_marks(
    item: Sentence, tags: Sequence[str], others: Sequence[str], side: Literal["label", "answer"]
) -> list[Mark]:
    """Mark the words whose tags differ between the label and the answer."""
    places = _shown(item)[1]
    return [
        Mark(0, *place, tag, side)
        for place, tag, other in zip(places, tags, others, strict=True)
        if tag != other
    ]


def _entity_marks(
    item: Sentence, tags: Sequence[str], side: Literal["label", "answer"]
) -> list[Mark]:
    places = _shown(item)[1]
    return [
        Mark(0, places[one.begin][0], places[one.end - 1][1], one.type, side)
        for one in entities(tags)
    ]


def _entities(text: str, marks: Sequence[Mark], side: str) -> str:
    """Write the entities of one side as text: ``"Paul Walker: person; Rome: location"``."""
    named = [f"{text[m.begin : m.end]}: {m.label}" for m in marks if m.of == side]
    return "; ".join(named) or "(none)"


def _text(value: Any) -> str:
    """Write a label or an answer as text, an empty one included."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text.replace(JOINT, "|") or "(none)"
