"""Explanations beside the answers of ``predict``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.inference.explaining.explained_text import NoWords
from bertine.inference.explaining.explanation import Explanation
from bertine.inference.explaining.nearest import NearestExamples
from bertine.inference.predictor import Predictor
from bertine.options.names import option

#: The name of an explanation among the columns of a file.
EXPLANATION = "explanation"


def check_explained(kind: str, output: Path | str) -> None:
    """Refuse explanations in an `output` of a `kind` that is not JSON lines.

    Raises:
        BertineError: it is another.
    """
    if kind != "jsonl":
        raise BertineError(
            f"{output}: explanations are JSON; name the output .jsonl, or leave out "
            f"{option('explain', True)}"
        )


def explained_or_none(
    predictor: Predictor, texts: Sequence[str], nearest: NearestExamples | None = None
) -> Explanation | None:
    """Explain the answer to the texts of an example by leaving words out, beside its `nearest`
    examples; None where there is no word."""
    text = texts[0] if len(texts) == 1 else tuple(texts)
    try:
        found = predictor.explain(text)
    except NoWords:
        return None
    return found if nearest is None else replace(found, nearest=nearest.to(text))


def explanation_values(
    predictor: Predictor, texts: Sequence[str], nearest: NearestExamples | None = None
) -> dict[str, Any] | None:
    """Return the explanation as JSON values; None where there is no word."""
    found = explained_or_none(predictor, texts, nearest)
    return None if found is None else found.to_dict()
