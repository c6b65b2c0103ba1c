"""Order texts by their relevance to a query, with a model of pairs or by vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertine.core.scores import ranking
from bertine.inference.embedding.embedder import empty_texts, unit
from bertine.serving.compat import embedded_texts
from bertine.serving.models import ModelHandle
from bertine.serving.requests import ApiError
from bertine.serving.service import Service

#: Labels in data sets which mean that the second text fits the first.
_RELEVANT = frozenset(
    (
        *("true", "yes", "relevant", "match", "positive", "same", "similar", "answer"),
        *("duplicate", "is_duplicate", "paraphrase", "equivalent", "entailment", "entails"),
    )
)


@dataclass(frozen=True)
class Ranked:
    """A text in its place.

    Attributes:
        index: its number in the request, from 0.
        score: a label's probability, the number of a regression, or a cosine; higher is better.
        pieces_cut: the pieces cut from query and text together at the model's maximum length.
    """

    index: int
    score: float
    pieces_cut: int


def relevant_label(labels: Sequence[str]) -> str | None:
    """Return the label that means that a text fits the query: one with a usual name, or of two the
    one whose negation is the other. None: no label, or several, fit."""
    if {*labels} == {"0", "1"}:
        return "1"
    usual = [label for label in labels if _plain(label) in _RELEVANT]
    if len(usual) == 1:
        return usual[0]
    if len(labels) == 2:
        for label, other in (labels, labels[::-1]):
            if _plain(other) in (f"not_{_plain(label)}", f"no_{_plain(label)}"):
                return label
    return None


def _plain(label: str) -> str:
    return label.strip().lower().replace("-", "_").replace(" ", "_")


async def rank(
    service: Service,
    served: ModelHandle,
    query: str,
    texts: Sequence[str],
    *,
    label: str | None = None,
    log_odds: bool = False,
) -> tuple[list[Ranked], int]:
    """Order `texts`, the best first; of equals the earlier one. Repeated texts are computed once.
    Empty input has no score and no place: with vectors an empty text, with a model of pairs an
    empty text with an empty query.

    Args:
        served: a model of pairs, or one with vectors.
        label: for a model of pairs with labels, the label whose probability is the score; None: the
            one with a usual name.
        log_odds: whether probabilities become their log-odds.

    Returns:
        The texts in order, and the number of computed tokens.

    Raises:
        BertineError: an error of the preparation of the texts.
        ApiError: no such label, or none with a usual name; an error of the computation.
    """
    kinds = list(dict.fromkeys(texts))
    if served.judge is not None:
        scores, cut, tokens = await _by_pairs(service, served, query, kinds, label)
    else:
        if label is not None:
            raise _label_error(
                f"the model {served.name!r} compares vectors and has no labels; leave it out"
            )
        scores, cut, tokens = await _by_vectors(service, served, query, kinds)
    if log_odds and served.has_probabilities:
        scores = [None if score is None else _log_odds(score) for score in scores]
    of_text = dict(zip(kinds, zip(scores, cut, strict=True), strict=True))
    there = [
        Ranked(at, score, pieces_cut)
        for at, (score, pieces_cut) in enumerate(of_text[text] for text in texts)
        if score is not None
    ]
    order = ranking([each.score for each in there], tolerance=0.0).tolist()
    return [there[place] for place in order], tokens


def _label_error(message: str) -> ApiError:
    return ApiError(422, f"label: {message}", param="label")


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, 1e-7), 1 - 1e-7)
    return math.log(bounded / (1 - bounded))


async def _by_pairs(
    service: Service, served: ModelHandle, query: str, texts: Sequence[str], label: str | None
) -> tuple[list[float | None], list[int], int]:
    """Return the scores of `texts`, the pieces cut from each, and the number of tokens."""
    chosen = _label_of(served, label)
    scores: list[float | None] = []
    cut: list[int] = []
    tokens = 0
    # In parts, so that a large request neither fills the queue nor needs all of it free.
    for start in range(0, len(texts), service.limits.max_texts):
        pairs = [[query, text] for text in texts[start : start + service.limits.max_texts]]
        size = sum(len(text) for pair in pairs for text in pair)
        prepared = await service.aside(size, served.prepare, pairs, served.judge)
        outputs = await service.compute(
            served, "rerank", prepared.features, prepared.costs, patient=start > 0
        )
        answers = await service.aside(size, served.finish, prepared, outputs, True)
        scores += [
            None
            if answer.get("empty")
            else (answer["score"] if chosen is None else answer["probabilities"][chosen])
            for answer in answers
        ]
        cut += [answer["pieces_cut"] for answer in answers]
        tokens += sum(prepared.costs)
    return scores, cut, tokens


def _label_of(served: ModelHandle, label: str | None) -> str | None:
    """Return the label whose probability is the score; None: the model answers with a number.

    Raises:
        ApiError: there is no such label, or none is named and none can be chosen.
    """
    assert served.judge is not None
    labels = list(served.judge.task.labels)
    known = ", ".join(labels[:20])
    if not labels:
        if label is not None:
            raise _label_error(f"the model {served.name!r} answers with a number; leave it out")
        return None
    if label is not None and label not in labels:
        raise _label_error(f"there is no {label!r} in the model; it has {known}")
    chosen = relevant_label(labels) if label is None else label
    if chosen is None:
        raise _label_error(
            f"none of the labels of {served.name!r} is known to mean that a text goes with the "
            f"query; name the one that does: {known}"
        )
    return chosen


async def _by_vectors(
    service: Service, served: ModelHandle, query: str, texts: Sequence[str]
) -> tuple[list[float | None], list[int], int]:
    """Return the cosines of `texts` with the query, the pieces cut from each, and the number of
    tokens.

    Raises:
        ApiError: the query is empty (422); an error of the computation.
    """
    assert served.embedder is not None
    prompts = served.embedder.prompts
    both = served.prompted([query], prompts.for_queries)
    both += served.prompted(texts, prompts.for_documents)
    size = sum(map(len, both))
    empty = await service.aside(size, empty_texts, served.embedder, [query, *texts])
    if 0 in empty:
        raise ApiError(422, "query: is empty; give a text", param="query")
    embedded = await embedded_texts(service, served, both, "rerank")
    table = unit(np.stack([each.vector for each in embedded]))
    cosines = (table[1:] @ table[0]).tolist()
    without = {*empty}
    first = embedded[0].pieces_cut
    return (
        [None if at in without else cosine for at, cosine in enumerate(cosines, 1)],
        [first + each.pieces_cut for each in embedded[1:]],
        sum(each.tokens for each in embedded),
    )


def texts_of(
    documents: Sequence[str | Mapping[str, Any]], fields: Sequence[str], most: int
) -> list[str]:
    """Return the texts of documents, some of which may be objects: their values under the keys
    `fields`, one below the other.

    Args:
        most: the maximum characters of a text.

    Raises:
        ApiError: an object has none of the keys, a value that is not text, or too long a text
            (422).
    """
    texts = []
    for at, document in enumerate(documents):
        if not isinstance(document, str):
            parts = [document[key] for key in fields if document.get(key) is not None]
            where = f"documents[{at}]"
            if not parts:
                raise ApiError(422, f"{where}: has no {' or '.join(fields)}", param="documents")
            if not all(isinstance(part, str) for part in parts):
                raise ApiError(422, f"{where}: {', '.join(fields)} must be text", param="documents")
            document = "\n".join(parts)
            if len(document) > most:
                raise ApiError(422, f"{where}: more than {most} characters", param="documents")
        texts.append(document)
    return texts


def written(
    ranked: Sequence[Ranked],
    texts: Sequence[str],
    documents: Sequence[str | Mapping[str, Any]] | None,
) -> list[Any]:
    """Return the results in the format of Cohere's and Jina's clients.

    Args:
        texts: the texts of the documents.
        documents: the documents to return, objects with all their keys; None: none.
    """
    results: list[dict[str, Any]] = []
    for each in ranked:
        result: dict[str, Any] = {"index": each.index, "relevance_score": round(each.score, 6)}
        if documents is not None:
            given = documents[each.index]
            own = {} if isinstance(given, str) else given
            result["document"] = {"text": texts[each.index], **own}
        results.append({**result, "pieces_cut": each.pieces_cut})
    return results


def written_plainly(
    ranked: Sequence[Ranked], texts: Sequence[str], *, with_texts: bool
) -> list[Any]:
    """Return the results in the format of clients of Text Embeddings Inference."""
    return [
        {
            "index": each.index,
            "score": round(each.score, 6),
            **({"text": texts[each.index]} if with_texts else {}),
        }
        for each in ranked
    ]
