"""Vectors of a request's texts, and the shape in which Cohere's clients want them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic_core import to_json

from bertine.inference.embedding.embedder import unit
from bertine.serving.http.errors import ApiError
from bertine.serving.served import Embedded, Served
from bertine.serving.service import Service


async def vectors(
    service: Service,
    served: Served,
    texts: Sequence[str],
    *,
    normalize: bool,
    dimensions: int | None = None,
    prompt: str | None = None,
) -> tuple[np.ndarray, list[Embedded]]:
    """Compute vectors fp32 [N, D], and what is to be said of each text.

    Args:
        normalize: to length 1.
        dimensions: D; None: all.
        prompt: the name of what is put before each text; None: the model's default.

    Raises:
        ApiError: more dimensions than there are, no such prompt; what computing raises.
    """
    if dimensions is not None and dimensions > served.dimensions:
        raise ApiError(
            422,
            f"dimensions: the model's vectors have {served.dimensions} numbers, and "
            f"{dimensions} are asked for",
            param="dimensions",
        )
    embedded = await embedded_texts(service, served, served.prompted(texts, prompt))
    table = np.stack([each.vector for each in embedded]).astype(np.float32)[:, :dimensions]
    # As the embedder does with shorter vectors of its own.
    embedder = served.embedder
    if embedder is not None and table.shape[1] < served.dimensions:
        embedder.warn_of_shorter(table.shape[1])
    again = dimensions is not None and embedder is not None and embedder.pooling.normalize
    return unit(table) if normalize or again else table, embedded


async def embedded_texts(
    service: Service, served: Served, texts: Sequence[str], operation: str = "embed"
) -> list[Embedded]:
    """Compute the vectors of texts that have their prompts.

    Raises:
        ApiError: what computing raises.
    """
    embedded: list[Embedded] = []
    # Part by part, so that a large request neither fills the queue nor needs all of it free.
    for start in range(0, len(texts), service.limits.max_texts):
        part = texts[start : start + service.limits.max_texts]
        costs = [served.tokens(text) for text in part]
        embedded += await service.compute(served, operation, part, costs, patient=start > 0)
    return embedded


def as_base64(table: np.ndarray) -> list[str]:
    """Return each vector as base64 of little-endian fp32."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in table]


def short(table: np.ndarray) -> list[list[float]]:
    """Round fp32 to numbers of eight decimals, with which JSON has half the length."""
    rows: list[list[float]] = np.round(table.astype(np.float64), 8).tolist()
    return rows


def refuse_cut(pieces_cut: Sequence[int], key: str) -> None:
    """Refuse texts that were too long, where a client wants none to be cut.

    Args:
        pieces_cut: of each text.
        key: of the request that has the texts.

    Raises:
        ApiError: names the first one (422).
    """
    for at, cut in enumerate(pieces_cut):
        if cut:
            message = f"{key}[{at}]: is {cut} pieces too long for the model"
            raise ApiError(422, f"{message}; leave out truncate to have it cut", param=key)


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
