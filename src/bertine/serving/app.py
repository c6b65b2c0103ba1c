"""The application: every path, what it takes and what it answers.

Annotations are looked at by FastAPI where these functions are made, which rules out
``from __future__ import annotations``.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException as StarletteHTTPException

import bertine
from bertine.errors import BertineError
from bertine.serving import schemas
from bertine.serving.batcher import Batcher, Closed, QueueFull, Turns
from bertine.serving.errors import ApiError, error_body, error_response
from bertine.serving.explain import Explainable
from bertine.serving.guard import Guard
from bertine.serving.limits import Limits
from bertine.serving.metrics import CONTENT_TYPE, Metrics
from bertine.serving.pages import page_response
from bertine.serving.served import Served

Result = TypeVar("Result")

#: Characters (or numbers of an answer) from which on work leaves the thread of the event loop, so
#: that other requests are not kept waiting by it.
_ASIDE = 20_000
#: Keys of a request's object. Those that a path does not take are each looked at, and told of.
_MAX_KEYS = 64

_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": schemas.Error, "description": "No key, or not that of the server"},
    404: {"model": schemas.Error, "description": "No such model"},
    408: {"model": schemas.Error, "description": "The request came too slowly"},
    413: {"model": schemas.Error, "description": "The body is too large"},
    415: {"model": schemas.Error, "description": "The body is not said to be JSON"},
    422: {"model": schemas.Error, "description": "Not what this path takes"},
    429: {
        "model": schemas.Error,
        "description": "The queue is full; see Retry-After",
    },
    503: {"model": schemas.Error, "description": "The server is ending, or has no connection left"},
    504: {"model": schemas.Error, "description": "No answer in time"},
}
_LOOK: dict[int | str, dict[str, Any]] = {401: _ERRORS[401]}


class _StrictRequest(Request):
    """A request whose JSON is UTF-8 as it should be: no NaN, no lone surrogates, of bounded
    depth. What is parsed can be written again."""

    async def json(self) -> Any:
        try:
            found = from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(422, f"the body is not valid JSON: {error}") from None
        if isinstance(found, dict) and len(found) > _MAX_KEYS:
            raise ApiError(422, f"the body has {len(found)} keys; see /docs for those of this path")
        return found


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return handle


class Engine:
    """The models of a server and their batchers.

    Args:
        models: at least one; the first answers requests that name none.
        limits: of the server.
    """

    def __init__(self, models: Sequence[Served], limits: Limits) -> None:
        self.models = {model.name: model for model in models}
        self.first = models[0].name
        self.limits, self.metrics = limits, Metrics()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="aside")
        self._long: set[Future[Any]] = set()  # what runs there and takes long
        turns = Turns()
        self.batchers = {
            model.name: Batcher(
                model.operations,
                max_tokens=limits.max_batch_tokens,
                max_queue=limits.max_queue,
                max_wait=limits.max_wait_ms / 1000,
                turns=turns,
                on_batch=self.metrics.batch_counter(model.name),
                name=model.name,
            )
            for model in models
        }
        for name, batcher in self.batchers.items():
            self.metrics.watch_queue(name, lambda batcher=batcher: batcher.waiting)  # type: ignore[misc]

    @property
    def ready(self) -> bool:
        """Whether every model answers."""
        return all(batcher.alive for batcher in self.batchers.values())

    def model(self, name: str | None, operation: str) -> Served:
        """The model that a request means; without a name the first that does this.

        Raises:
            ApiError: there is none of this name (404), or it does not do this (422).
        """
        able = [each for each in self.models.values() if operation in each.operations]
        if name is None and able:
            return able[0]
        served = self.models.get(self.first if name is None else name)
        if served is None:
            known = ", ".join(list(self.models)[:20])
            raise ApiError(404, f"there is no model {name!r} here; there is {known}")
        if operation not in served.operations:
            others = ", ".join(each.name for each in able[:20])
            raise ApiError(
                422,
                f"the model {served.name!r} is for {served.task!r} and has no {operation}"
                + (f"; ask {others}" if able else ""),
            )
        return served

    async def compute(
        self, served: Served, operation: str, inputs: Sequence[Any], costs: Sequence[int]
    ) -> list[Any]:
        """Results for `inputs` from the model's batcher.

        Raises:
            ApiError: too many inputs (422), a full queue (429), the server is ending (503), what
                the model finds wrong with them (422).
        """
        most = max(self.limits.max_texts, self.limits.max_queue // 2)
        if len(inputs) > most:  # one request is not to fill the queue
            raise ApiError(
                422,
                f"the texts make {len(inputs)} inputs, but at most {most} are taken at a time; "
                "send fewer or shorter texts",
            )
        try:
            return await self.batchers[served.name].submit(operation, inputs, costs)
        except QueueFull as error:
            raise ApiError(
                429,
                f"too many texts are waiting; try again in {error.retry_after} s",
                retry_after=error.retry_after,
            ) from None
        except Closed:
            raise ApiError(503, "the server is ending; try another one", retry_after=5) from None

    async def aside(self, size: int, work: Callable[..., Result], *args: Any) -> Result:
        """``work(*args)``, in another thread where its `size` says that it takes long, or where it
        might wait for such work: the tokenizer serves one at a time."""
        if size < _ASIDE and not self._long:
            return work(*args)
        future = self._pool.submit(work, *args)
        if size >= _ASIDE:
            self._long.add(future)
            future.add_done_callback(self._long.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Answer what waits, and end the threads."""
        for batcher in self.batchers.values():
            batcher.close(self.limits.request_timeout)
        self._pool.shutdown(wait=False, cancel_futures=True)


def create_app(engine: Engine, api_key: str | None = None) -> Guard:
    """The ASGI application over the models of `engine`.

    Args:
        engine: its metrics count what is answered.
        api_key: that requests must have as ``Authorization: Bearer KEY``; None: no key.
    """
    app = FastAPI(
        title="Bertine",
        version=bertine.__version__,
        summary="Answers of BERT models: predictions, filled masks, vectors.",
        # FastAPI's own pages load their scripts from elsewhere; ours is at the same path.
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.router.route_class = _StrictRoute
    _add_error_handlers(app)
    _add_pages(app, engine)
    _add_answers(app, engine)
    _add_vectors(app, engine)
    _add_explanations(app, engine)
    paths = frozenset(route.path for route in app.routes if isinstance(route, APIRoute))
    return Guard(app, engine.limits, api_key, engine.metrics, paths)


def _json(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(StarletteHTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        return error_response(error)

    @app.exception_handler(BertineError)
    async def of_user(request: Request, error: BertineError) -> Response:
        return JSONResponse(error_body(422, str(error)), 422)

    @app.exception_handler(RequestValidationError)
    async def of_shape(request: Request, error: RequestValidationError) -> Response:
        return JSONResponse(error_body(422, _first_mistake(error)), 422)

    @app.exception_handler(Exception)
    async def of_ours(request: Request, error: Exception) -> Response:
        message = "a fault of the server; its log says more"
        return JSONResponse(error_body(500, message), 500)


def _first_mistake(error: RequestValidationError) -> str:
    """ "texts[3]: String should have at most 20000 characters"; of many mistakes the first."""
    first, *others = error.errors()
    where = ""
    for part in first["loc"][1:]:  # "body" is no news
        if isinstance(part, int):
            where += f"[{part}]"
        elif part.isidentifier():  # not pydantic's names of the members of a union
            where += f".{part}" if where else part
    more = f" (and {len(others)} more)" if others else ""
    # Keys are the client's: they may be of any length, and of any characters.
    where = json.dumps(where[:100])[1:-1]
    return f"{where or 'the body'}: {first['msg']}{more}"


def _add_pages(app: FastAPI, engine: Engine) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return page_response("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page_response("docs.html")

    @app.get("/health", tags=["state"], response_model=schemas.Status)
    async def health() -> Response:
        """Whether the process answers."""
        return _json({"status": "ok"})

    @app.get(
        "/ready",
        tags=["state"],
        response_model=schemas.Status,
        responses={503: {"model": schemas.Error, "description": "Not now"}},
    )
    async def ready() -> Response:
        """Whether every model answers."""
        if not engine.ready:
            raise ApiError(503, "not every model answers", retry_after=5)
        return _json({"status": "ready"})

    @app.get(
        "/metrics",
        tags=["state"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **_LOOK},
    )
    async def metrics() -> Response:
        """Counts and times, as Prometheus reads them."""
        return Response(engine.metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.get("/v1/models", tags=["state"], response_model=schemas.Models, responses=_LOOK)
    async def models() -> Response:
        """The models, the one that answers where none is named first."""
        data = [served.describe() for served in engine.models.values()]
        return _json({"object": "list", "data": data})


def _add_answers(app: FastAPI, engine: Engine) -> None:
    requests = schemas.request_schemas(engine.limits)

    async def predict(body: requests.predict) -> Response:  # type: ignore[name-defined]
        """Answers for texts, by a fine-tuned model."""
        served = engine.model(body.model, "predict")
        size = sum(
            len(text) if isinstance(text, str) else sum(map(len, text)) for text in body.texts
        )
        prepared = await engine.aside(size, served.prepare, body.texts)
        outputs = await engine.compute(served, "predict", prepared.features, prepared.costs)

        def written() -> bytes:
            answers = served.finish(prepared, outputs, body.all_probabilities)
            found = {"model": served.name, "task": served.task, "predictions": answers}
            return to_json(found)

        # Of many labels, short texts too have much to be written.
        content = await engine.aside(size + sum(map(np.size, outputs)), written)
        return Response(content, media_type="application/json")

    async def fill_mask(body: requests.fill_mask) -> Response:  # type: ignore[name-defined]
        """The most probable pieces for each [MASK]."""
        served = engine.model(body.model, "fill-mask")
        served.check_masks(body.texts)
        inputs = [(text, min(body.top_k, served.model.tokenizer.vocab_size)) for text in body.texts]
        costs = [served.tokens(text) for text in body.texts]
        found = await engine.compute(served, "fill-mask", inputs, costs)
        filled = [
            {"text": text, "masks": masks} for text, masks in zip(body.texts, found, strict=True)
        ]
        size = sum(len(masks) * body.top_k for masks in found)
        content = await engine.aside(size, to_json, {"model": served.name, "filled": filled})
        return Response(content, media_type="application/json")

    _post(app, "/predict", predict, schemas.Predictions, "answers")
    _post(app, "/fill-mask", fill_mask, schemas.FilledMasks, "answers")


def _add_vectors(app: FastAPI, engine: Engine) -> None:
    requests = schemas.request_schemas(engine.limits)

    async def vectors(served: Served, texts: Sequence[str], normalize: bool) -> np.ndarray:
        costs = [served.tokens(text) for text in texts]
        table = np.stack(await engine.compute(served, "embed", texts, costs)).astype(np.float32)
        if normalize:
            table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
        return table

    async def embed(body: requests.embed) -> Response:  # type: ignore[name-defined]
        """A vector for each text."""
        served = engine.model(body.model, "embed")
        table = await vectors(served, body.texts, body.normalize)

        def written() -> bytes:
            return to_json(
                {"model": served.name, "dimensions": table.shape[1], "vectors": _short(table)}
            )

        content = await engine.aside(table.size, written)
        return Response(content, media_type="application/json")

    async def openai(body: requests.openai) -> Response:  # type: ignore[name-defined]
        """Vectors of length 1, as OpenAI's embeddings answer."""
        served = engine.model(body.model, "embed")
        texts = [body.input] if isinstance(body.input, str) else body.input
        if body.dimensions not in (None, served.dimensions):
            raise ApiError(422, f"dimensions: the model has {served.dimensions}; leave it out")
        table = await vectors(served, texts, True)
        size = sum(map(len, texts))
        used = await engine.aside(size, served.count_tokens, texts)

        def written() -> bytes:
            if body.encoding_format == "base64":
                rows: list[Any] = [
                    base64.b64encode(row.astype("<f4").tobytes()).decode() for row in table
                ]
            else:
                rows = _short(table)
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

        content = await engine.aside(table.size, written)
        return Response(content, media_type="application/json")

    _post(app, "/embed", embed, schemas.Embeddings, "vectors")
    _post(app, "/v1/embeddings", openai, schemas.OpenAiEmbeddings, "vectors")


def _short(table: np.ndarray) -> list[list[float]]:
    """fp32 as numbers of eight decimals, which a text of JSON has half the length for."""
    rows: list[list[float]] = np.round(table.astype(np.float64), 8).tolist()
    return rows


def _add_explanations(app: FastAPI, engine: Engine) -> None:
    requests = schemas.request_schemas(engine.limits)

    async def look(served: Served, operation: str, item: Explainable) -> dict[str, Any]:
        cost = served.tokens(item.text) + served.tokens(item.pair or "")
        # Forward and backward, or all states kept: about three times a plain pass.
        found = await engine.compute(served, operation, [item], [3 * cost])
        result: dict[str, Any] = found[0]
        return result

    async def explain(body: requests.explain) -> Response:  # type: ignore[name-defined]
        """Which tokens the answer leaned on: gradient times input."""
        served = engine.model(body.model, "explain")
        found = await look(served, "explain", Explainable(body.text, body.pair))
        return _json({"model": served.name, **found})

    async def attention(body: requests.attention) -> Response:  # type: ignore[name-defined]
        """Where each token looks, in one head of one layer."""
        served = engine.model(body.model, "attention")
        item = Explainable(body.text, body.pair, body.layer, body.head)
        return _json({"model": served.name, **await look(served, "attention", item)})

    _post(app, "/explain", explain, schemas.Explanation, "inside")
    _post(app, "/attention", attention, schemas.Attention, "inside")


def _post(
    app: FastAPI,
    path: str,
    handler: Callable[..., Awaitable[Response]],
    answer: type,
    tag: str,
) -> None:
    app.add_api_route(
        path, handler, methods=["POST"], response_model=answer, responses=_ERRORS, tags=[tag]
    )
