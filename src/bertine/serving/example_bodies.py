"""Make an example body for each path, of texts that fit the models of a server."""

from __future__ import annotations

from typing import Any

from bertine.serving.sample_texts import masked_sample
from bertine.serving.service import Service
from bertine.text.special import WORDPIECE_MASK

_SENTENCES = ["A cat is asleep.", "The soup is boiling."]
#: The operation that a path asks for.
_OPERATIONS = {
    "/predict": "predict",
    "/fill-mask": "fill-mask",
    "/embed": "embed",
    "/v1/embeddings": "embed",
    "/explain": "explain",
    "/attention": "attention",
}


def example_body(path: str, service: Service) -> dict[str, Any]:
    """Return a body that `path` answers, for the first model of the server that can.

    Args:
        path: one that takes POST.
        service: the models.
    """
    operation = _OPERATIONS[path]
    able = [model for model in service.models.values() if operation in model.operations]
    model = able[0] if able else next(iter(service.models.values()))
    described = model.describe()
    text = described["example"]
    first, pair = (text, None) if isinstance(text, str) else (text[0], text[1])
    if path == "/predict":
        return {"texts": [text], "model": model.name, "all_probabilities": True}
    if path == "/fill-mask":
        mask = described["mask"] or WORDPIECE_MASK
        masked = text if isinstance(text, str) and mask in text else masked_sample(mask)
        return {"texts": [masked], "model": model.name, "top_k": 5}
    if path == "/embed":
        return {"texts": _SENTENCES, "model": model.name, "normalize": True}
    if path == "/v1/embeddings":
        return {"input": _SENTENCES, "model": model.name}
    if path == "/explain":
        return {"text": text, "model": model.name}
    body = {"text": first, "model": model.name}
    return body if pair is None else {**body, "pair": pair}
