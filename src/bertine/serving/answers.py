"""Predictions as JSON."""

from __future__ import annotations

from typing import Any

from bertine.inference.tagging import TaggedText
from bertine.tasks.choice import ChoicePrediction
from bertine.tasks.spans.decoding import SpanAnswer, SpanPrediction
from bertine.tasks.texts.classification import Prediction
from bertine.tasks.texts.multi_label import LabelSet
from bertine.tasks.texts.regression import Score

_DIGITS = 6


def as_json(prediction: Any, pieces_cut: int, details: bool) -> dict[str, Any]:
    """One prediction as an object of JSON types.

    Args:
        prediction: of any task.
        pieces_cut: of its input, to keep to the model's maximum length.
        details: also the probability of everything that was not chosen.
    """
    values = _values(prediction, details)
    values["pieces_cut"] = pieces_cut
    return values


def _values(prediction: Any, details: bool) -> dict[str, Any]:
    if isinstance(prediction, Prediction):
        found = {"label": prediction.label, "probability": _round(prediction.probability)}
        if details:
            found["probabilities"] = _rounded(prediction.probabilities)
        return found
    if isinstance(prediction, Score):
        return {"score": _round(prediction.score)}
    if isinstance(prediction, LabelSet):
        chances = prediction.probabilities
        chosen = {label: chances[label] for label in prediction.labels}
        return {
            "labels": list(prediction.labels),
            "probabilities": _rounded(chances if details else chosen),
        }
    if isinstance(prediction, ChoicePrediction):
        found = {
            "choice": prediction.choice,
            "label": prediction.label,
            "probability": _round(prediction.probability),
        }
        if details:
            found["probabilities"] = [_round(p) for p in prediction.probabilities]
        return found
    if isinstance(prediction, SpanPrediction):
        found = {
            "answer": prediction.answer,
            "start": prediction.start,
            "end": prediction.end,
            "probability": _round(prediction.probability),
            "null_odds": None if prediction.null_odds is None else _round(prediction.null_odds),
        }
        if details:
            found["n_best"] = [_span(answer) for answer in prediction.n_best]
        return found
    assert isinstance(prediction, TaggedText), f"no JSON for {type(prediction).__name__}"
    found = {
        "tags": list(prediction.tags),
        "entities": [mention.to_dict() for mention in prediction.entities],
    }
    if details:
        offsets = prediction.offsets or [(None, None)] * len(prediction.words)
        found["words"] = [
            {"word": word, "tag": tag, "probability": _round(p), "start": start, "end": end}
            for word, tag, p, (start, end) in zip(
                prediction.words,
                prediction.tags,
                prediction.probabilities,
                offsets,
                strict=True,
            )
        ]
    return found


def _span(answer: SpanAnswer) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "start": answer.start,
        "end": answer.end,
        "probability": _round(answer.probability),
    }


def _rounded(probabilities: dict[str, float]) -> dict[str, float]:
    return {name: _round(value) for name, value in probabilities.items()}


def _round(value: float) -> float:
    return round(float(value), _DIGITS)
