"""Explanations of the answers that a run's report shows as its worst ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import write_json
from bertine.inference.answering import Answering
from bertine.inference.explaining.explainer import Explainer
from bertine.inference.explaining.nearest import NearestExamples
from bertine.records.examples import Examples
from bertine.tasks.features import Features
from bertine.tasks.worst import WorstExample

#: The file in a run's folder.
EXPLAINED = "explained.json"
#: Examples that are explained, the tokens of each that are read, and the words that are written:
#: each word costs the answer to one more text.
_EXAMPLES, TOKENS, _WORDS = 5, 128, 6
#: Training examples that are shown beside each.
_NEAREST = 2


def write_explained(
    folder: Path,
    explainer: Explainer,
    answering: Answering,
    worst: Sequence[WorstExample],
    validation: Sequence[Features],
    training: tuple[Examples[Any], Sequence[Features]],
) -> None:
    """Write what the words of the worst predicted examples contribute to their answers into a run's
    `folder`, as ``explained.json``: under ``examples`` the ``index`` of each, the ``answer``, the
    ``unit`` and its strongest ``words``, each with its ``contribution``, and the ``nearest``
    training examples (of all that have labels, or of 1,000 drawn at random, with 65,536 tokens at
    most). The first five that are predicted
    wrongly, or, where none is, the first five; nothing for a task whose answers cannot be
    explained.

    Args:
        folder: of the run.
        explainer: of the model; it should read at most :data:`TOKENS` of a text.
        answering: the model, which computes the vectors of examples.
        worst: in their order, of the validation examples.
        validation: the features of these.
        training: the examples that the model was trained on, and their features.
    """
    wrong = [each for each in worst if each.label != each.answer]
    written: list[dict[str, Any]] = []
    near: NearestExamples | None = None
    for each in (wrong or worst)[:_EXAMPLES]:
        try:
            found = explainer.explain(each.texts)
        except BertineError:  # a text without words, a task that writes
            continue
        words = [
            {"word": word.word, "contribution": round(word.contribution, 4)}
            for word in found.strongest(_WORDS)
        ]
        entry = {"index": each.index, "answer": found.answer, "unit": found.unit, "words": words}
        try:
            near = near or NearestExamples.among_some(answering, *training, _NEAREST)
            own = [feature for feature in validation if feature.row == each.index]
            entry["nearest"] = [one.to_dict() for one in near.to_features(own)]
        except BertineError:  # no labels; another number of choices
            pass
        written.append(entry)
    if written:
        write_json(folder / EXPLAINED, {"examples": written})
