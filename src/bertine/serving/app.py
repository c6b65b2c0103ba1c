"""The application: every path, what it takes and what it answers.

Annotations are looked at by FastAPI where these functions are made, which rules out
``from __future__ import annotations``.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from bertine.inference.embedding.embedder import empty_texts
from bertine.serving import schemas
from bertine.serving.attention import AttentionQuestion
from bertine.serving.examples import RERANK_PATHS, example_body
from bertine.serving.http.body import parsed
from bertine.serving.http.errors import ApiError, error_response
from bertine.serving.http.guard import OPEN, Answer, Guard
from bertine.serving.http.hosts import Hosts
from bertine.serving.http.metrics import CONTENT_TYPE
from bertine.serving.hugging_face import characters, inference, label_scores
from bertine.serving.pages import page_response
from bertine.serving.request_schemas import request_schemas
from bertine.serving.rerank import rank, texts_of, written, written_plainly
from bertine.serving.service import Service
from bertine.serving.vectors import as_base64, cohere_vectors, refuse_cut, short, vectors
from bertine.version import __version__

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "Not one Host header"},
    401: {"model": schemas.Error, "description": "No key, or not that of the server"},
    404: {"model": schemas.Error, "description": "No such model"},
    408: {"model": schemas.Error, "description": "The request came too slowly"},
    413: {"model": schemas.Error, "description": "The body is too large"},
    415: {"model": schemas.Error, "description": "The body is not said to be JSON, or compressed"},
    421: {"model": schemas.Error, "description": "The Host header names another server"},
    422: {"model": schemas.Error, "description": "Not what this path takes"},
    429: {
        "model": schemas.Error,
        "description": "The queue is full; see Retry-After",
    },
    503: {"model": schemas.Error, "description": "The server is ending, or has no connection left"},
    504: {"model": schemas.Error, "description": "No answer in time"},
}
_STATE: dict[int | str, dict[str, Any]] = {code: _ERRORS[code] for code in (400, 421)}
_LOOK: dict[int | str, dict[str, Any]] = {**_STATE, 401: _ERRORS[401]}


def create_app(service: Service, api_key: str | None, hosts: Hosts) -> Guard:
    """Make the ASGI application over the models of `service`.

    Args:
        service: its metrics count what is answered.
        api_key: that requests must have as ``Authorization: Bearer KEY``; None: no key.
        hosts: that requests may name.
    """
    app = FastAPI(
        title="Bertine",
        version=__version__,
        summary="Answers of BERT models: predictions, filled masks, vectors.",
        # FastAPI's own pages load their scripts from elsewhere; ours is at the same path.
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    answers: dict[str, Answer] = {}

    async def failed(request: Request, error: Exception) -> Response:
        return error_response(error, _meant(request.url.path, answers))

    app.add_exception_handler(HTTPException, failed)
    app.add_exception_handler(Exception, failed)
    _add_pages(app, service)
    _add_answers(app, answers, service)
    _add_vectors(app, answers, service)
    _add_rankings(app, answers, service)
    _add_explanations(app, answers, service)
    paths = frozenset(route.path for route in app.routes if isinstance(route, APIRoute))
    if api_key is not None:
        _describe_key(app)
    return Guard(app, answers, service.limits, api_key, hosts, service.metrics, paths)


def _describe_key(app: FastAPI) -> None:
    """Say in the OpenAPI what wants the key, for clients that are made of it."""
    description = app.openapi()  # the application keeps it
    schemes = description["components"].setdefault("securitySchemes", {})
    schemes["key"] = {"type": "http", "scheme": "bearer"}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if path not in OPEN or method == "post":
                operation["security"] = [{"key": []}]


def _json(value: Any) -> Response:
    return _written(to_json(value))


def _written(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _check_either(body: Any, key: str, other: str) -> None:
    """Refuse a body that has its texts under both keys, or under none."""
    if (getattr(body, key) is None) == (getattr(body, other) is None):
        message = f"{key}: give the texts as {key!r} (or {other!r}, not both)"
        raise ApiError(422, message, param=key)


def _meant(path: str, known: Collection[str]) -> str:
    """Return the known path that a client meant whose base address lacks ``/v1``, or has a slash
    too many; "" where there is none."""
    once = "/" + "/".join(filter(None, path.split("/")))
    likely = () if once == "/" else (once, f"/v1{once}")
    return next((meant for meant in likely if meant in known and meant != path), "")


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_response("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page_response("docs.html")

    @app.get("/health", tags=["state"], response_model=schemas.Status, responses=_STATE)
    async def health() -> Response:
        """Tell whether the process answers."""
        return _json({"status": "ok"})

    @app.get(
        "/ready",
        tags=["state"],
        response_model=schemas.Status,
        responses={503: {"model": schemas.Error, "description": "Not now"}, **_STATE},
    )
    async def ready() -> Response:
        """Tell whether every model answers."""
        if not service.ready:
            raise ApiError(503, "not every model answers", retry_after=5)
        return _json({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["state"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **_LOOK},
    )
    async def metrics() -> Response:
        """Return counts and times, as Prometheus reads them."""
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.get("/v1/models", tags=["state"], response_model=schemas.Models, responses=_LOOK)
    async def models() -> Response:
        """Return the models, the one that answers where none is named first."""
        data = [served.describe() for served in service.models.values()]
        return _json({"object": "list", "data": data})

    @app.get(
        "/v1/models/{model:path}",
        tags=["state"],
        response_model=schemas.ModelInfo,
        responses={**_LOOK, 404: _ERRORS[404]},
    )
    async def one_model(model: str) -> Response:
        """Return one model, by its name."""
        return _json(service.named(model).describe())


def _add_answers(app: FastAPI, answers: dict[str, Answer], service: Service) -> None:
    requests = request_schemas(service.limits)

    async def predict(body: requests.predict) -> Response:  # type: ignore[name-defined]
        """Answer texts by a fine-tuned model."""
        served = service.model(body.model, "predict")
        _check_either(body, "texts", "inputs")
        if body.inputs is not None:
            scores, alone = await label_scores(service, served, body)
            return _json(scores[0] if alone else scores)
        size = sum(map(characters, body.texts))
        prepared = await service.aside(size, served.prepare, body.texts)
        outputs = await service.compute(served, "predict", prepared.features, prepared.costs)

        def written() -> bytes:
            answers = served.finish(prepared, outputs, body.all_probabilities)
            content = {"model": served.name, "task": served.task, "predictions": answers}
            return to_json(content)

        # Of many labels, short texts too have much to be written.
        content = await service.aside(size + sum(map(np.size, outputs)), written)
        return _written(content)

    async def fill_mask(body: requests.fill_mask) -> Response:  # type: ignore[name-defined]
        """Return the most probable pieces for each mask."""
        served = service.model(body.model, "fill-mask")
        await service.aside(sum(map(len, body.texts)), served.check_masks, body.texts)
        inputs = [(text, min(body.top_k, served.model.tokenizer.vocab_size)) for text in body.texts]
        costs = [served.tokens(text) for text in body.texts]
        masks_of = await service.compute(served, "fill-mask", inputs, costs)
        filled = [
            {"text": text, "masks": masks} for text, masks in zip(body.texts, masks_of, strict=True)
        ]
        size = sum(len(masks) * body.top_k for masks in masks_of)
        content = await service.aside(size, to_json, {"model": served.name, "filled": filled})
        return _written(content)

    async def root(body: requests.inference) -> Response:  # type: ignore[name-defined]
        """Answer as Hugging Face's inference API does, by the model's task."""
        return _json(await inference(service, body))

    post = _poster(app, answers, "answers", service)
    scores = list[schemas.LabelScore] | list[list[schemas.LabelScore]]
    post("/predict", "predict", requests.predict, predict, schemas.Predictions | scores)
    post("/", "inference", requests.inference, root, Any)
    post("/fill-mask", "fill-mask", requests.fill_mask, fill_mask, schemas.FillMaskAnswer)


def _add_vectors(app: FastAPI, answers: dict[str, Answer], service: Service) -> None:
    requests = request_schemas(service.limits)

    async def embed(body: requests.embed) -> Response:  # type: ignore[name-defined]
        """Return a vector for each text."""
        served = service.model(body.model, "embed")
        _check_either(body, "texts", "inputs")
        plain = body.inputs is not None  # as Text Embeddings Inference is asked, and answers
        texts = body.inputs if plain else body.texts
        texts = [texts] if isinstance(texts, str) else texts
        normalize = plain if body.normalize is None else body.normalize
        table, embedded = await vectors(
            service,
            served,
            texts,
            normalize=normalize,
            dimensions=body.dimensions,
            prompt=body.prompt_name,
        )
        if body.truncate is False:
            refuse_cut([each.pieces_cut for each in embedded], "inputs" if plain else "texts")

        def written() -> bytes:
            if plain:
                return to_json(short(table))
            content: dict[str, Any] = {
                "model": served.name,
                "dimensions": table.shape[1],
                "vectors": short(table),
                "pieces_cut": [each.pieces_cut for each in embedded],
            }
            if any(each.unknown for each in embedded):
                content["unknown"] = [round(each.unknown, 6) for each in embedded]
            assert served.embedder is not None
            if empty := {*empty_texts(served.embedder, texts)}:
                content["empty"] = [at in empty for at in range(len(texts))]
            return to_json(content)

        content = await service.aside(table.size, written)
        return _written(content)

    async def openai(body: requests.openai) -> Response:  # type: ignore[name-defined]
        """Return vectors of length 1, as OpenAI's embeddings answer."""
        served = service.model(body.model, "embed")
        texts = [body.input] if isinstance(body.input, str) else body.input
        prompt = body.prompt_name
        if prompt is None and body.input_type is not None:
            assert served.embedder is not None
            prompt = served.embedder.prompts.for_kind(body.input_type)
        table, embedded = await vectors(
            service, served, texts, normalize=True, dimensions=body.dimensions, prompt=prompt
        )
        used = sum(each.tokens for each in embedded)

        def written() -> bytes:
            rows: Sequence[Any]
            rows = as_base64(table) if body.encoding_format == "base64" else short(table)
            return to_json(
                {
                    "object": "list",
                    "data": [
                        {"object": "embedding", "index": at, "embedding": row}
                        for at, row in enumerate(rows)
                    ],
                    "model": served.name,
                    "usage": {"prompt_tokens": used, "total_tokens": used},
                }
            )

        content = await service.aside(table.size, written)
        return _written(content)

    async def cohere_1(body: requests.cohere) -> Response:  # type: ignore[name-defined]
        """Return vectors of length 1, as version 1 of Cohere's embed answers."""
        return _written(await cohere_vectors(service, body, by_type=False))

    async def cohere_2(body: requests.cohere) -> Response:  # type: ignore[name-defined]
        """Return vectors of length 1, as version 2 of Cohere's embed answers."""
        return _written(await cohere_vectors(service, body, by_type=True))

    post = _poster(app, answers, "vectors", service)
    post("/v1/embed", "embed", requests.cohere, cohere_1, schemas.CohereEmbeddings)
    post("/v2/embed", "embed", requests.cohere, cohere_2, schemas.CohereEmbeddings)
    answer = schemas.VectorsAnswer | list[list[float]]
    post("/embed", "embed", requests.embed, embed, answer)
    post("/v1/embeddings", "embed", requests.openai, openai, schemas.OpenAiEmbeddings)


def _add_rankings(app: FastAPI, answers: dict[str, Answer], service: Service) -> None:
    requests = request_schemas(service.limits)

    async def rerank(body: requests.rerank) -> Response:  # type: ignore[name-defined]
        """Order texts by how well they go with a query: by a model of pairs, or by vectors."""
        served = service.model(body.model, "rerank")
        _check_either(body, "documents", "texts")
        texts = body.texts or texts_of(
            body.documents, body.rank_fields or ["text"], service.limits.max_characters
        )
        ranked, tokens = await rank(
            service,
            served,
            body.query,
            texts,
            label=body.label,
            log_odds=bool(body.raw_scores),
        )
        ranked = ranked[: body.top_n]
        with_texts = bool(body.return_documents or body.return_text)
        if body.documents is None:
            return _json(written_plainly(ranked, texts, with_texts=with_texts))
        results = written(ranked, texts, body.documents if with_texts else None)
        return _json({"model": served.name, "results": results, "usage": {"total_tokens": tokens}})

    post = _poster(app, answers, "rankings", service)
    for path in RERANK_PATHS:
        answer = schemas.RerankAnswer | list[schemas.RankedText]
        post(path, "rerank", requests.rerank, rerank, answer)


def _add_explanations(app: FastAPI, answers: dict[str, Answer], service: Service) -> None:
    requests = request_schemas(service.limits)

    async def explain(body: requests.explain) -> Response:  # type: ignore[name-defined]
        """Return what each word contributes to the answer: what the answer loses without it, or by
        integrated gradients."""
        served = service.model(body.model, "explain")
        predictor = served.predictor
        text = body.text if predictor is None else predictor.unnamed(body.text, "text")
        parts = [text] if isinstance(text, str) else list(text)
        if body.pair is not None:
            parts.append(body.pair)
        explanation = await service.explain(served, parts, body.method, body.label, body.word)
        return _json({"model": served.name, **explanation.to_dict()})

    async def attention(body: requests.attention) -> Response:  # type: ignore[name-defined]
        """Return where each token looks, in one head of one layer."""
        served = service.model(body.model, "attention")
        item = AttentionQuestion(body.text, body.pair, body.layer, body.head)
        cost = served.tokens(item.text) + served.tokens(item.pair or "")
        # All states are kept: as much work as three plain passes.
        results = await service.compute(served, "attention", [item], [3 * cost])
        return _json({"model": served.name, **results[0]})

    post = _poster(app, answers, "inside", service)
    post("/explain", "explain", requests.explain, explain, schemas.ExplanationAnswer)
    post("/attention", "attention", requests.attention, attention, schemas.Attention)


def _poster(
    app: FastAPI, answers: dict[str, Answer], tag: str, service: Service
) -> Callable[..., None]:
    """Return what adds a path for POST to `answers` and to the application, which describes it."""

    def post(
        path: str,
        operation: str,
        request: type[BaseModel],
        handler: Callable[[Any], Awaitable[Response]],
        answer: Any,
    ) -> None:
        models = service.able(operation) or [*service.models.values()]
        example = example_body(path, models[0].describe())
        app.add_api_route(
            path,
            handler,
            methods=["POST"],
            response_model=answer,
            responses=_ERRORS,
            tags=[tag],
            openapi_extra={"requestBody": {"content": {"application/json": {"example": example}}}},
        )

        async def answered(body: bytes) -> Response:
            return await handler(parsed(body, request))

        answers[path] = answered

    return post
