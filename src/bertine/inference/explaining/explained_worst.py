"""Explanations of the answers that a run's report shows as its worst ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.errors import BertineError
from bertine.files import write_json
from bertine.inference.explaining.explainer import Explainer
from bertine.tasks.worst import WorstExample

#: The file in a run's folder.
EXPLAINED = "explained.json"
#: Examples that are explained, the tokens of each that are read, and the words that are told: each
#: word costs the answer to one more text.
_EXAMPLES, TOKENS, _WORDS = 5, 128, 6


def write_explained(folder: Path, explainer: Explainer, worst: Sequence[WorstExample]) -> None:
    """Write what the words of the worst predicted examples contribute to their answers into a run's
    `folder`, as ``explained.json``: under ``examples`` the ``index`` of each, the ``answer``, the
    ``unit`` and its strongest ``words``, each with its ``contribution``. The first five that are
    predicted wrongly, or, where none is, the first five; nothing for a task whose answers cannot be
    explained.

    Args:
        folder: of the run.
        explainer: of the model; it should read at most :data:`TOKENS` of a text.
        worst: in their order.
    """
    wrong = [each for each in worst if each.label != each.answer]
    told = []
    for each in (wrong or worst)[:_EXAMPLES]:
        try:
            found = explainer.explain(each.texts)
        except BertineError:  # a text without words, a task that writes
            continue
        words = [
            {"word": word.word, "contribution": round(word.contribution, 4)}
            for word in found.strongest(_WORDS)
        ]
        told.append(
            {"index": each.index, "answer": found.answer, "unit": found.unit, "words": words}
        )
    if told:
        write_json(folder / EXPLAINED, {"examples": told})
