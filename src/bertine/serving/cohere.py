"""Vectors in the shape of Cohere's ``embed``."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from bertine.serving.service import Service
from bertine.serving.vectors import as_base64, refuse_cut, short, vectors


async def cohere_vectors(service: Service, body: Any, *, by_type: bool) -> bytes:
    """Return vectors of length 1 of `body.texts`, with the prompt for what they are, as JSON.

    Args:
        by_type: whether they stand under the names of the types of their numbers, as in version 2,
            even where the body asks for no type.

    Raises:
        ApiError: texts that are too long and not to be cut; what computing raises.
    """
    served = service.model(body.model, "embed")
    assert served.embedder is not None
    kind = body.input_type
    prompt = None if kind is None else served.embedder.prompts.for_kind(kind)
    table, texts = await vectors(
        service,
        served,
        body.texts,
        normalize=True,
        dimensions=body.output_dimension,
        prompt=prompt,
    )
    if body.truncate == "NONE":
        refuse_cut([each.pieces_cut for each in texts], "texts")
    forms = {"float": short, "base64": as_base64}
    wanted = body.embedding_types or ["float"]
    plain = not by_type and body.embedding_types is None

    def written() -> bytes:
        return to_json(
            {
                "id": "",
                "texts": body.texts,
                "embeddings": (
                    short(table) if plain else {name: forms[name](table) for name in wanted}
                ),
                "response_type": "embeddings_floats" if plain else "embeddings_by_type",
                "meta": {"billed_units": {"input_tokens": sum(each.tokens for each in texts)}},
            }
        )

    return await service.aside(table.size, written)
