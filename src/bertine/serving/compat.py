"""Answer in the formats of Cohere's and Hugging Face's APIs.

Cohere's clients get vectors. The formats of Hugging Face are Text Embeddings Inference's
``/predict``, and the inference API, whose clients post ``inputs`` to the address of a model.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic_core import to_json

from bertine.inference.embedding.embedder import empty_texts, unit
from bertine.serving.models import PAIR_TASKS, AskedText, Embedded, ModelHandle
from bertine.serving.requests import ApiError
from bertine.serving.service import Service

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
        raise ApiError(
            422,
            f"dimensions: the model's vectors have {served.dimensions} numbers, and "
            f"{dimensions} are asked for",
            param="dimensions",
        )
    embedded = await embedded_texts(service, served, served.prompted(texts, prompt))
    table = np.stack([each.vector for each in embedded]).astype(np.float32)[:, :dimensions]
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


async def cohere_vectors(service: Service, body: Any, *, by_type: bool) -> bytes:
    """Return vectors of length 1 of `body.texts`, with the prompt for their kind, as JSON.

    Args:
        by_type: whether they are keyed by the types of their numbers, as in version 2, even where
            the body asks for no type.

    Raises:
        ApiError: texts that are too long and not to be cut, or an error of the computation.
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
        raise ApiError(
            422,
            f"inputs: are for models that give labels to texts, but {served.name!r} is for "
            f"{served.task}; send texts",
            param="inputs",
        )
    texts, alone = _texts_of(body.inputs, len(predictor.task.text_columns))
    answers = await _answers(service, served, texts, body)
    return [_scores(answer) for answer in answers], alone


async def _answers(
    service: Service, served: ModelHandle, texts: Sequence[AskedText], body: Any
) -> list[dict[str, Any]]:
    """Return the answers to the texts of `body.inputs`, with all their probabilities.

    Raises:
        BertineError: the texts do not fit the task.
        ApiError: a text is empty, or too long and not to be cut; an error of the computation.
    """
    size = sum(map(characters, texts))
    prepared = await service.aside(size, served.prepare, texts, None, "inputs")
    if body.truncate is False:
        refuse_cut(prepared.pieces_cut, "inputs")
    outputs = await service.compute(served, "predict", prepared.features, prepared.costs)
    size += sum(map(np.size, outputs))
    answers = await service.aside(size, served.finish, prepared, outputs, True)
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
    if parts == len(inputs) == 2 and all(isinstance(each, str) for each in inputs):
        return [inputs], True
    return [each if isinstance(each, str) or len(each) > 1 else each[0] for each in inputs], False


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
            refuse_cut([each.pieces_cut for each in embedded], "inputs")
        return [round(float(cosine), 8) for cosine in table[1:] @ table[0]]
    if hasattr(inputs, "question"):
        served = _answering_questions(service, body.model)
        (answer,) = await _answers(service, served, [[inputs.question, inputs.context]], body)
        best = [_span(each) for each in answer["n_best"]][: top or 1]
        return best if (top or 1) > 1 else _span(answer)
    served = service.named(service.first if body.model is None else body.model)
    texts = [inputs] if isinstance(inputs, str) else inputs
    if served.task in PAIR_TASKS:
        applied = body.parameters and body.parameters.function_to_apply
        if applied not in (None, _APPLIED[served.task]):
            raise ApiError(
                422,
                f"parameters.function_to_apply: of the model {served.name!r} is "
                f"{_APPLIED[served.task]}; leave it out",
                param="parameters.function_to_apply",
            )
        scores, _ = await label_scores(service, served, body)
        return [each[:top] for each in scores]
    if served.predictor is not None and served.task != "tagging":
        what = "a question and its context" if served.task == "spans" else "texts to /predict"
        raise ApiError(
            422,
            f"inputs: the model {served.name!r} is for {served.task}; send {what}",
            param="inputs",
        )
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(422, f"inputs: {served.name!r} takes texts, not pairs", param="inputs")
    if served.task == "tagging":
        answers = await _answers(service, served, texts, body)
        plain = body.parameters is not None and body.parameters.aggregation_strategy == "none"
        marked = [_words(answer) if plain else _entities(answer) for answer in answers]
        return marked[0] if isinstance(inputs, str) else marked
    mask = served.model.tokenizer.mask_text if "fill-mask" in served.operations else ""
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
        refuse_cut([each.pieces_cut for each in embedded], "inputs")
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
    raise ApiError(422, "inputs: no model here answers questions", param="inputs")


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
            "entity_group": each["type"],
            "score": each["probability"],
            "word": each["text"],
            "start": each["start"],
            "end": each["end"],
        }
        for each in answer["entities"]
    ]


def _words(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "entity": each["tag"],
            "score": each["probability"],
            "index": at,
            "word": each["word"],
            "start": each["start"],
            "end": each["end"],
        }
        for at, each in enumerate(answer["words"], 1)
        if each["tag"] != "O"
    ]


async def _filled(
    service: Service, served: ModelHandle, texts: Sequence[str], top: int
) -> list[list[Any]]:
    """Return the pieces for the mask of each text; for several masks a list for each.

    Raises:
        BertineError: a text has no mask, too many, or too many pieces for the model.
        ApiError: the filled texts would be too long together; an error of the computation.
    """
    size = sum(map(len, texts))
    await service.aside(size, served.check_masks, texts, "inputs")
    tokenizer = served.model.tokenizer
    top = min(top, tokenizer.vocab_size)
    written = top * sum(len(text) * text.count(tokenizer.mask_text) for text in texts)
    if written > _MOST_WRITTEN:
        raise ApiError(
            422,
            f"inputs: the filled texts would have {written:,} characters together, but at most "
            f"{_MOST_WRITTEN:,} are written; ask for fewer (parameters.top_k), or send fewer texts",
            param="inputs",
        )
    costs = [served.tokens(text) for text in texts]
    inputs = [(text, top) for text in texts]
    masks_of = await service.compute(served, "fill-mask", inputs, costs)

    def sequences() -> list[list[Any]]:
        filled = [
            [
                [
                    {
                        "score": each["probability"],
                        "token": each["id"],
                        "token_str": each["token"],
                        "sequence": tokenizer.put_piece(
                            text, mask["start"], mask["end"], each["id"]
                        ),
                    }
                    for each in mask["candidates"]
                ]
                for mask in masks
            ]
            for text, masks in zip(texts, masks_of, strict=True)
        ]
        return [masks[0] if len(masks) == 1 else masks for masks in filled]

    return await service.aside(written, sequences)
