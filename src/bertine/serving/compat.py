"""Answer in the formats of OpenAI's, Cohere's and Hugging Face's APIs, and rank texts.

Cohere's clients get vectors. The formats of Hugging Face are Text Embeddings Inference's
``/predict``, and the inference API, whose clients post ``inputs`` to the address of a model.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import to_json

from bertine.core.scores import ranking
from bertine.inference.embedding.embedder import empty_texts
from bertine.inference.embedding.vectors import unit
from bertine.serving.handles import PAIR_TASKS, AskedText, Embedded, ModelHandle
from bertine.serving.requests import ApiError, refused
from bertine.serving.service import Service

# The pipeline of a request: its texts are prepared, computed in a batch, perhaps with those of
# other requests, and finished.


class Answered(NamedTuple):
    """The answers to texts.

    Attributes:
        answers: an answer to each text, with the pieces cut from it.
        size: the characters of the texts and the numbers of their outputs.
        tokens: the computed tokens.
    """

    answers: list[dict[str, Any]]
    size: int
    tokens: int


async def answers_to(
    service: Service,
    served: ModelHandle,
    texts: Sequence[AskedText],
    *,
    details: bool = True,
    key: str = "texts",
    whole: bool = False,
    judged: bool = False,
    patient: bool = False,
) -> Answered:
    """Answer texts.

    Args:
        details: whether answers have all their probabilities.
        key: the key of the request that has the texts.
        whole: refuse texts that are too long, in place of cutting them.
        judged: whether they are a query and a text to rank each.
        patient: wait while the queue is full.

    Raises:
        BertineError: the texts do not fit the task.
        ApiError: a text is too long and not to be cut; an error of the computation.
    """
    operation, judge = ("rerank", served.judge) if judged else ("predict", None)
    size = sum(map(characters, texts))
    prepared = await service.aside(size, served.prepare, texts, judge, key)
    if whole:
        refuse_cut(prepared.pieces_cut, key)
    costs = prepared.costs
    outputs = await service.compute(served, operation, prepared.features, costs, patient=patient)
    # With many labels, even short texts have long answers.
    size += sum(map(np.size, outputs))
    answers = await service.aside(size, served.finish, prepared, outputs, details)
    return Answered(answers, size, sum(costs))


async def filled_masks(
    service: Service, served: ModelHandle, texts: Sequence[str], top: int
) -> list[list[dict[str, Any]]]:
    """Return the `top` pieces for each mask of each text.

    Raises:
        ApiError: an error of the computation.
    """
    inputs = [(text, min(top, served.tokenizer.vocab_size)) for text in texts]
    return await service.compute(served, "fill-mask", inputs, [*map(served.tokens, texts)])


# Vectors of a request's texts, and their format for Cohere's clients.


async def vectors(
    service: Service,
    served: ModelHandle,
    texts: Sequence[str],
    *,
    normalize: bool,
    dimensions: int | None = None,
    prompt: str | None = None,
) -> tuple[np.ndarray, list[Embedded]]:
    """Compute vectors fp32 [N, D], and the notes on each text.

    Args:
        normalize: scale vectors to length 1.
        dimensions: the dimensions D; None: all.
        prompt: the name of the prompt before each text; None: the model's default.

    Raises:
        ApiError: more dimensions than there are, no such prompt, or an error of the computation.
    """
    if dimensions is not None and dimensions > served.dimensions:
        raise refused(
            "dimensions",
            f"the model's vectors have {served.dimensions} numbers, and {dimensions} are asked for",
        )
    embedded = await embedded_texts(service, served, served.prompted(texts, prompt))
    table = np.stack([item.vector for item in embedded]).astype(np.float32)[:, :dimensions]
    # Like the embedder with shorter vectors of its own.
    embedder = served.embedder
    if embedder is not None and table.shape[1] < served.dimensions:
        embedder.warn_of_shorter(table.shape[1])
    again = dimensions is not None and embedder is not None and embedder.pooling.normalize
    return unit(table) if normalize or again else table, embedded


async def embedded_texts(
    service: Service, served: ModelHandle, texts: Sequence[str], operation: str = "embed"
) -> list[Embedded]:
    """Compute the vectors of texts that already have their prompts.

    Raises:
        ApiError: an error of the computation.
    """
    embedded: list[Embedded] = []
    # In parts, so that a large request neither fills the queue nor needs all of it free.
    for start in range(0, len(texts), service.limits.max_texts):
        part = texts[start : start + service.limits.max_texts]
        costs = [served.tokens(text) for text in part]
        embedded += await service.compute(served, operation, part, costs, patient=start > 0)
    return embedded


def as_base64(table: np.ndarray) -> list[str]:
    """Return each vector as base64 of little-endian fp32."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in table]


def short(table: np.ndarray) -> list[list[float]]:
    """Round fp32 to eight decimals, which halves the length of the JSON."""
    rows: list[list[float]] = np.round(table.astype(np.float64), 8).tolist()
    return rows


def refuse_cut(pieces_cut: Sequence[int], key: str) -> None:
    """Refuse texts that are too long, where a client wants none to be cut.

    Args:
        pieces_cut: the pieces cut from each text.
        key: the key of the request that has the texts.

    Raises:
        ApiError: names the first one (422).
    """
    for at, cut in enumerate(pieces_cut):
        if cut:
            message = f"{key}[{at}]: is {cut} pieces too long for the model"
            raise ApiError(422, f"{message}; leave out truncate to have it cut", param=key)


def prompt_for(served: ModelHandle, kind: str | None) -> str | None:
    """Return the name of the model's prompt for a kind of texts; None: its default."""
    assert served.embedder is not None
    return None if kind is None else served.embedder.prompts.for_kind(kind)


async def cohere_vectors(service: Service, body: Any, *, by_type: bool) -> bytes:
    """Return vectors of length 1 of `body.texts`, with the prompt for their kind, as JSON.

    Args:
        by_type: whether they are keyed by the types of their numbers, as in version 2, even where
            the body asks for no type.

    Raises:
        ApiError: texts that are too long and not to be cut, or an error of the computation.
    """
    served = service.model(body.model, "embed")
    table, texts = await vectors(
        service,
        served,
        body.texts,
        normalize=True,
        dimensions=body.output_dimension,
        prompt=prompt_for(served, body.input_type),
    )
    if body.truncate == "NONE":
        refuse_cut([item.pieces_cut for item in texts], "texts")
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
                "meta": {"billed_units": {"input_tokens": sum(item.tokens for item in texts)}},
            }
        )

    return await service.aside(table.size, written)


#: The conversion of the outputs of each task that gives labels to texts.
_APPLIED = {"text": "softmax", "multi-label": "sigmoid", "regression": "none"}
#: The name of the only output of a regression in `transformers`.
_ONE_OUTPUT = "LABEL_0"
#: The maximum characters of all filled texts of an answer: each candidate for a mask has the whole
#: text.
_MOST_WRITTEN = 1 << 24


async def label_scores(service: Service, served: ModelHandle, body: Any) -> tuple[list[Any], bool]:
    """Return the labels of each text of `body.inputs` with their probabilities, the best first; and
    whether there is only one text (or pair).

    Raises:
        ApiError: the model gives no labels to texts; texts that are too long and not to be cut; an
            error of the preparation or the computation.
    """
    predictor = served.predictor
    if predictor is None or predictor.task.name not in PAIR_TASKS:
        raise refused(
            "inputs",
            f"are for models that give labels to texts, but {served.name!r} is for "
            f"{served.task}; send texts",
        )
    texts, alone = _texts_of(body.inputs, len(predictor.task.text_columns))
    return [_scores(answer) for answer in await _answers(service, served, texts, body)], alone


async def _answers(
    service: Service, served: ModelHandle, texts: Sequence[AskedText], body: Any
) -> list[dict[str, Any]]:
    """Return the answers to the texts of `body.inputs`.

    Raises:
        BertineError: the texts do not fit the task.
        ApiError: a text is empty, or too long and not to be cut; an error of the computation.
    """
    whole = body.truncate is False
    answers, *_ = await answers_to(service, served, texts, key="inputs", whole=whole)
    _refuse_empty([number for number, answer in enumerate(answers) if answer.get("empty")])
    return answers


def _refuse_empty(empty: Sequence[int]) -> None:
    """Refuse a request in which these texts are empty: the formats of Hugging Face have no place
    for a missing answer."""
    if empty:
        message = f"inputs[{empty[0]}]: is empty, so there is no answer; give a text"
        raise ApiError(422, message, param="inputs")


def characters(text: AskedText) -> int:
    """Count the characters of a text, of all its parts together."""
    if isinstance(text, str):
        return len(text)
    return sum(map(len, text.values() if isinstance(text, Mapping) else text))


def _texts_of(inputs: Any, parts: int) -> tuple[list[AskedText], bool]:
    """Return texts, of which some may be pairs; and whether there is only one. Two texts in a list
    are a pair where the model takes pairs, else two texts."""
    if isinstance(inputs, str):
        return [inputs], True
    if parts == len(inputs) == 2 and all(isinstance(item, str) for item in inputs):
        return [inputs], True
    return [item if isinstance(item, str) or len(item) > 1 else item[0] for item in inputs], False


def _scores(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "score" in answer:
        return [{"label": _ONE_OUTPUT, "score": answer["score"]}]
    best = sorted(answer["probabilities"].items(), key=lambda item: -item[1])
    return [{"label": label, "score": probability} for label, probability in best]


async def inference(service: Service, body: Any) -> Any:
    """Return the answer of the inference API to `body.inputs`, by the model's task.

    Raises:
        ApiError: no model of this kind is served; an error of the computation.
        BertineError: an error of the preparation of texts.
    """
    inputs = body.inputs
    top = body.parameters and body.parameters.top_k
    if hasattr(inputs, "sentences"):
        served = service.model(body.model, "embed")
        both = [inputs.source_sentence, *inputs.sentences]
        assert served.embedder is not None
        size = sum(map(len, both))
        _refuse_empty(await service.aside(size, empty_texts, served.embedder, both))
        table, embedded = await vectors(
            service, served, both, normalize=True, prompt=body.prompt_name
        )
        if body.truncate is False:
            refuse_cut([item.pieces_cut for item in embedded], "inputs")
        return [round(float(cosine), 8) for cosine in table[1:] @ table[0]]
    if hasattr(inputs, "question"):
        served = _answering_questions(service, body.model)
        (answer,) = await _answers(service, served, [[inputs.question, inputs.context]], body)
        best = [_span(item) for item in answer["n_best"]]
        return best[:top] if top and top > 1 else _span(answer)
    served = service.named(service.first if body.model is None else body.model)
    texts = [inputs] if isinstance(inputs, str) else inputs
    if served.task in PAIR_TASKS:
        applied = body.parameters and body.parameters.function_to_apply
        if applied not in (None, _APPLIED[served.task]):
            raise refused(
                "parameters.function_to_apply",
                f"of the model {served.name!r} is {_APPLIED[served.task]}; leave it out",
            )
        scores, _ = await label_scores(service, served, body)
        return [item[:top] for item in scores]
    if served.tuned is not None and served.task != "tagging":
        what = "a question and its context" if served.task == "spans" else "texts to /predict"
        raise refused("inputs", f"the model {served.name!r} is for {served.task}; send {what}")
    if not all(isinstance(text, str) for text in texts):
        raise refused("inputs", f"{served.name!r} takes texts, not pairs")
    if served.task == "tagging":
        plain = body.parameters is not None and body.parameters.aggregation_strategy == "none"
        form = _words if plain else _entities
        marked = [form(answer) for answer in await _answers(service, served, texts, body)]
        return marked[0] if isinstance(inputs, str) else marked
    mask = served.tokenizer.mask_text if "fill-mask" in served.operations else ""
    if mask and any(mask in text for text in texts):
        filled = await _filled(service, served, texts, top or 5)
        return filled[0] if isinstance(inputs, str) else filled
    served = service.model(served.name, "embed")
    table, embedded = await vectors(
        service,
        served,
        texts,
        normalize=body.normalize is not False,
        dimensions=body.dimensions,
        prompt=body.prompt_name,
    )
    if body.truncate is False:
        refuse_cut([item.pieces_cut for item in embedded], "inputs")
    return await service.aside(table.size, short, table)


def _answering_questions(service: Service, name: str | None) -> ModelHandle:
    """Return the model for a question.

    Raises:
        ApiError: there is no such model (422).
    """
    asked = [*service.models.values()] if name is None else [service.named(name)]
    for served in asked:
        if served.task == "spans":
            return served
    raise refused("inputs", "no model here answers questions")


def _span(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "answer": answer["answer"] or "",
        "score": answer["probability"],
        "start": answer["start"] or 0,
        "end": answer["end"] or 0,
    }


def _entities(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "entity_group": item["label"],
            "score": item["probability"],
            "word": item["text"],
            "start": item["start"],
            "end": item["end"],
        }
        for item in answer["entities"]
    ]


def _words(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "entity": item["tag"],
            "score": item["probability"],
            "index": at,
            "word": item["word"],
            "start": item["start"],
            "end": item["end"],
        }
        for at, item in enumerate(answer["words"], 1)
        if item["tag"] != "O"
    ]


async def _filled(
    service: Service, served: ModelHandle, texts: Sequence[str], top: int
) -> list[list[Any]]:
    """Return the pieces for the mask of each text; for several masks a list for each.

    Raises:
        BertineError: a text has no mask, too many, or too many pieces for the model.
        ApiError: the filled texts would be too long together; an error of the computation.
    """
    await service.aside(sum(map(len, texts)), served.check_masks, texts, "inputs")
    mask, put = served.tokenizer.mask_text, served.tokenizer.put_piece
    top = min(top, served.tokenizer.vocab_size)
    written = top * sum(len(text) * text.count(mask) for text in texts)
    if written > _MOST_WRITTEN:
        raise refused(
            "inputs",
            f"the filled texts would have {written:,} characters together, but at most "
            f"{_MOST_WRITTEN:,} are written; ask for fewer (parameters.top_k), or send fewer texts",
        )
    masks_of = await filled_masks(service, served, texts, top)

    def sequences() -> list[list[Any]]:
        filled = [
            [
                [
                    {
                        "score": item["probability"],
                        "token": item["id"],
                        "token_str": item["token"],
                        "sequence": put(text, mask["start"], mask["end"], item["id"]),
                    }
                    for item in mask["candidates"]
                ]
                for mask in masks
            ]
            for text, masks in zip(texts, masks_of, strict=True)
        ]
        return [masks[0] if len(masks) == 1 else masks for masks in filled]

    return await service.aside(written, sequences)


# Order texts by their relevance to a query, with a model of pairs or by vectors.

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
            raise refused(
                "label",
                f"the model {served.name!r} compares vectors and has no labels; leave it out",
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
    order = ranking([item.score for item in there], tolerance=0.0).tolist()
    return [there[place] for place in order], tokens


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
        answers, _, computed = await answers_to(
            service, served, pairs, judged=True, patient=start > 0
        )
        scores += [
            None
            if answer.get("empty")
            else (answer["score"] if chosen is None else answer["probabilities"][chosen])
            for answer in answers
        ]
        cut += [answer["pieces_cut"] for answer in answers]
        tokens += computed
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
            raise refused("label", f"the model {served.name!r} answers with a number; leave it out")
        return None
    if label is not None and label not in labels:
        raise refused("label", f"there is no {label!r} in the model; it has {known}")
    chosen = relevant_label(labels) if label is None else label
    if chosen is None:
        raise refused(
            "label",
            f"none of the labels of {served.name!r} is known to mean that a text goes with the "
            f"query; name the one that does: {known}",
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
        raise refused("query", "is empty; give a text")
    embedded = await embedded_texts(service, served, both, "rerank")
    table = unit(np.stack([item.vector for item in embedded]))
    cosines = (table[1:] @ table[0]).tolist()
    without = {*empty}
    first = embedded[0].pieces_cut
    return (
        [None if at in without else cosine for at, cosine in enumerate(cosines, 1)],
        [first + item.pieces_cut for item in embedded[1:]],
        sum(item.tokens for item in embedded),
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
    for item in ranked:
        result: dict[str, Any] = {"index": item.index, "relevance_score": round(item.score, 6)}
        if documents is not None:
            given = documents[item.index]
            own = {} if isinstance(given, str) else given
            result["document"] = {"text": texts[item.index], **own}
        results.append({**result, "pieces_cut": item.pieces_cut})
    return results


def written_plainly(
    ranked: Sequence[Ranked], texts: Sequence[str], *, with_texts: bool
) -> list[Any]:
    """Return the results in the format of clients of Text Embeddings Inference."""
    return [
        {
            "index": item.index,
            "score": round(item.score, 6),
            **({"text": texts[item.index]} if with_texts else {}),
        }
        for item in ranked
    ]
