"""Build the HTTP application: its pages, the schemas of requests, and an answer for every path.

FastAPI and pydantic evaluate annotations when these functions and classes are defined, which rules
out ``from __future__ import annotations``.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError, to_json
from starlette.exceptions import HTTPException

from bertine.core.names import ExplanationMethod, __version__, option
from bertine.inference.embedding.embedder import empty_texts
from bertine.inference.rows import in_order
from bertine.serving import schemas
from bertine.serving.address import Limits
from bertine.serving.attention import AttentionQuestion
from bertine.serving.compat import (
    answers_to,
    as_base64,
    cohere_vectors,
    filled_masks,
    inference,
    label_scores,
    prompt_for,
    rank,
    refuse_cut,
    short,
    texts_of,
    vectors,
    written,
    written_plainly,
)
from bertine.serving.guard import CONTENT_TYPE, OPEN, Answer, Guard
from bertine.serving.requests import ApiError, Hosts, error_response, parsed, refused
from bertine.serving.schemas import RERANK_PATHS, Error, example_body
from bertine.serving.service import Service

# Pages: self-contained static files of the package, with a policy that allows nothing else.

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@functools.cache
def _page(package: str, name: str) -> tuple[bytes, str]:
    """Return a page and its content security policy: its own scripts and styles by their hashes,
    nothing from elsewhere, answers only from this server."""
    text = files(package).joinpath("static", name).read_text(encoding="utf-8")
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    policy = (
        f"default-src 'none'; script-src {' '.join(hashes['script'])}; "
        f"style-src {' '.join(hashes['style'])}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def page_response(name: str, package: str = "bertine.serving") -> Response:
    """Return the response for the page `name` in the folder ``static`` of a package."""
    content, policy = _page(package, name)
    headers = {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Response(content, media_type="text/html", headers=headers)


# Requests: what the server accepts, within its limits; OpenAPI is generated from these classes.

#: The kinds of texts, named as by Cohere and NVIDIA: models have prompts for some of them.
InputType = Literal[
    "query",
    "search_query",
    "passage",
    "document",
    "search_document",
    "classification",
    "clustering",
]
#: The maximum of named texts of one example; no model has as many.
_MOST_KEYS = 64


class Strict(BaseModel):
    """A request: unknown keys are mistakes, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _of_few_keys(value: Any) -> Any:
    """Refuse an object of very many keys, before each key becomes a separate mistake."""
    if isinstance(value, dict) and len(value) > _MOST_KEYS:
        raise PydanticCustomError("many_keys", f"has more than {_MOST_KEYS} keys")
    return value


def request_schemas(limits: Limits) -> dict[str, Any]:
    """Build the request classes for `limits`, by the name of the function that answers them."""
    Text = Annotated[str, Field(max_length=limits.max_characters)]
    ShortText = Annotated[str, Field(max_length=limits.explain_characters)]

    def at_most(count: int) -> Any:
        # The first mistake in a list ends its validation: a body of a megabyte can have half a
        # million, which take seconds, and hundreds of megabytes, to list.
        return Field(min_length=1, max_length=count, fail_fast=True)

    Texts = Annotated[list[Text], at_most(limits.max_texts)]
    Inputs = Annotated[list[Text], at_most(limits.max_embedding_inputs)]
    Parts = Annotated[list[Text], at_most(limits.max_characters)]
    Named = Annotated[
        dict[Annotated[str, Field(max_length=256)], Text],
        BeforeValidator(_of_few_keys),
        Field(min_length=1),
    ]
    Model = Annotated[
        str | None, Field(max_length=256, description="null: the first that does this")
    ]

    Dimensions = Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 20,
            description="keep only this many of a vector's first numbers, for models that are "
            "trained for it; null: all",
        ),
    ]

    Truncate = Annotated[
        bool | None, Field(description="false: a text that is too long is an error; else it is cut")
    ]
    Direction = Annotated[
        Literal["right", "Right"] | None, Field(description="where a text is cut: at its end")
    ]
    PromptName = Annotated[
        str | None,
        Field(
            max_length=256,
            description="one of the model's prompts (`prompts` in /v1/models), put before every "
            "text; empty: none; null: its default",
        ),
    ]

    Pair = Annotated[list[Text], Field(min_length=1, max_length=2)]
    TextsOrPairs = Text | Annotated[list[Text | Pair], at_most(limits.max_texts)]

    class PredictRequest(Strict):
        """Texts to predict. A text is a string, or a list of its parts: two texts of a model for
        pairs, question and context, the given text and the choices, or the words of a sentence. The
        parts may have names, those of the columns that the model was trained on (`text_columns` in
        /v1/models): {"question": …, "context": …}."""

        texts: Annotated[list[Text | Parts | Named], at_most(limits.max_texts)] | None = None
        model: Model = None
        all_probabilities: bool = Field(
            False, description="also of what was not chosen; of spans n_best; of tags the words"
        )
        inputs: TextsOrPairs | None = Field(
            None,
            description="in place of texts, as the clients of Text Embeddings Inference send them: "
            "a text, or a list of texts and pairs; answered by the probabilities of all labels",
        )
        truncate: Truncate = None
        truncation_direction: Direction = None
        raw_scores: Literal[False] | None = Field(None, description="answers are probabilities")

    class EmbedRequest(Strict):
        """Texts to embed: as `texts`, or as `inputs` like the clients of Text Embeddings Inference,
        which get a plain list of vectors."""

        texts: Texts | None = None
        model: Model = None
        normalize: bool | None = Field(
            None, description="to length 1; null: of inputs, and not of texts"
        )
        dimensions: Dimensions = None
        inputs: Text | Inputs | None = Field(None, description="in place of texts")
        truncate: Truncate = None
        truncation_direction: Direction = None
        prompt_name: PromptName = None

    class FillMaskRequest(Strict):
        """Texts with masks, written as in the model's vocabulary (`mask` in /v1/models)."""

        texts: Texts
        model: Model = None
        top_k: int = Field(5, ge=1, le=limits.max_top_k)

    class SearchRequest(Strict):
        """A query, or several, for the texts of the server's collection."""

        query: Text | None = None
        queries: Texts | None = Field(None, description="in place of query")
        model: Model = None
        top: int = Field(10, ge=1, le=limits.max_embedding_inputs, description="rows of each query")
        where: Annotated[str, Field(max_length=10_000)] | None = Field(
            None, description="a condition on the columns: lang = de and year >= 2020"
        )
        hybrid: bool = Field(False, description="join the order by vectors with one by words")

    class ExplainRequest(Strict):
        """A text, or several that belong together, whose answer is explained."""

        text: (
            ShortText
            | Annotated[list[ShortText], at_most(limits.max_texts)]
            | Annotated[dict[str, ShortText], BeforeValidator(_of_few_keys), Field(min_length=1)]
        ) = Field(description="a list or an object: the parts of a text, as /predict takes them")
        pair: ShortText | None = Field(None, description="the second text of a pair")
        model: Model = None
        method: ExplanationMethod = "leave-one-out"
        label: ShortText | None = Field(
            None, description="to explain in place of the answer; of a tagger a type of entities"
        )
        word: ShortText | None = Field(
            None, description="of a tagger: the word whose tag is explained, at its first place"
        )

    class AttentionRequest(Strict):
        """A text, or two, and the head whose attention is shown."""

        text: ShortText
        pair: ShortText | None = None
        model: Model = None
        layer: Annotated[int, Field(ge=0, le=1000)] | None = Field(
            None, description="from 0 on; null: the last"
        )
        head: Annotated[int, Field(ge=0, le=1000)] | None = Field(
            None, description="from 0 on; null: the mean of all"
        )

    class OpenAiRequest(BaseModel):
        """A request as sent by clients of OpenAI's embeddings; unknown keys are ignored. Token ids
        are not accepted."""

        model_config = ConfigDict(extra="ignore", strict=True)
        input: Text | Inputs
        model: str = Field(max_length=256)
        # LiteLLM sends null where its user has set nothing; to OpenAI it means "float".
        encoding_format: Literal["float", "base64"] | None = "float"
        dimensions: Dimensions = None
        user: str | None = None
        prompt_name: PromptName = None
        input_type: InputType | None = Field(
            None, description="in place of prompt_name: what the texts are"
        )

        @field_validator("input", mode="before")
        @classmethod
        def _no_token_ids(cls, value: Any) -> Any:
            """Refuse token ids: LangChain sends those of OpenAI's tokenizer, which are meaningless
            to the models here."""
            first = value[0] if isinstance(value, list) and value else None
            first = first[0] if isinstance(first, list) and first else first
            if isinstance(first, int) and not isinstance(first, bool):
                raise PydanticCustomError(
                    "token_ids",
                    "token ids are not taken; send texts (LangChain: "
                    "check_embedding_ctx_length=False)",
                )
            return value

    class CohereRequest(BaseModel):
        """A request as sent by clients of Cohere's embed; unknown keys are ignored."""

        model_config = ConfigDict(extra="ignore", strict=True)
        texts: Inputs
        model: Model = None
        input_type: InputType | None = Field(
            None, description="what the texts are, for models that have a prompt for it"
        )
        embedding_types: (
            Annotated[list[Literal["float", "base64"]], Field(min_length=1, max_length=2)] | None
        ) = None
        truncate: Literal["NONE", "END"] | None = Field(
            None, description="NONE: a text that is too long is an error; else its end is cut"
        )
        output_dimension: Dimensions = None

    class RerankRequest(BaseModel):
        """A query and texts to order, as sent by clients of Cohere's and Jina's rerank
        (`documents`) and of Text Embeddings Inference (`texts`); unknown keys are ignored."""

        model_config = ConfigDict(extra="ignore", strict=True)
        query: Text
        documents: (
            Annotated[
                list[Text | Annotated[dict[str, Any], BeforeValidator(_of_few_keys)]],
                at_most(limits.max_embedding_inputs),
            ]
            | None
        ) = Field(None, description="strings, or objects with `text`, or with `rank_fields`")
        rank_fields: (
            Annotated[list[Annotated[str, Field(max_length=256)]], at_most(_MOST_KEYS)] | None
        ) = Field(None, description="the keys of the documents that are read; null: text")
        texts: Inputs | None = Field(None, description="in place of documents; answered by a list")
        model: Model = None
        label: Text | None = Field(
            None, description="whose probability is the score; null: the one that says relevant"
        )
        top_n: int | None = Field(None, ge=1, le=1 << 20, description="null: all")
        return_documents: bool | None = False
        return_text: bool | None = False
        raw_scores: bool | None = Field(False, description="log-odds in place of probabilities")

    class Question(Strict):
        """A question, and the text that contains its answer."""

        question: Text
        context: Text

    class Comparison(Strict):
        """A text, and the texts that are compared with it."""

        source_sentence: Text
        sentences: Inputs

    class Parameters(Strict):
        """Further parameters of the clients of the inference API."""

        function_to_apply: Literal["softmax", "sigmoid", "none"] | None = Field(
            None, description="that which the model's task has"
        )
        top_k: int | None = Field(
            None, ge=1, le=limits.max_top_k, description="number of best results"
        )
        aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
            None, description="of a tagger; none: the words, else the entities"
        )

    class InferenceRequest(Strict):
        """`inputs` as Hugging Face's clients post them to the address of a model."""

        inputs: TextsOrPairs | Question | Comparison
        parameters: Parameters | None = None
        model: Model = None
        normalize: bool | None = Field(None, description="vectors to length 1; null: yes")
        dimensions: Dimensions = None
        truncate: Truncate = None
        truncation_direction: Direction = None
        prompt_name: PromptName = None

    return {
        "predict": PredictRequest,
        "root": InferenceRequest,
        "fill_mask": FillMaskRequest,
        "embed": EmbedRequest,
        "openai": OpenAiRequest,
        "cohere_1": CohereRequest,
        "cohere_2": CohereRequest,
        "rerank": RerankRequest,
        "search": SearchRequest,
        "explain": ExplainRequest,
        "attention": AttentionRequest,
    }


_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Error, "description": description}
    for code, description in {
        400: "Not one Host header",
        401: "No key, or not that of the server",
        404: "No such model",
        408: "The request came too slowly",
        413: "The body is too large",
        415: "The body is not said to be JSON, or compressed",
        421: "The Host header names another server",
        422: "Not what this path takes",
        429: "The queue is full; see Retry-After",
        503: "The server is ending, or has no connection left",
        504: "No answer in time",
    }.items()
}
_STATE: dict[int | str, dict[str, Any]] = {code: _ERRORS[code] for code in (400, 421)}
_LOOK: dict[int | str, dict[str, Any]] = {**_STATE, 401: _ERRORS[401]}


def create_app(service: Service, api_key: str | None, hosts: Hosts) -> Guard:
    """Make the ASGI application over the models of `service`.

    Args:
        service: the models; its metrics count the answers.
        api_key: the key that requests must have as ``Authorization: Bearer KEY``; None: no key.
        hosts: the hosts that requests may name.
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
    requests = request_schemas(service.limits)
    for post in _POSTS:
        answers[post.path] = post.added_to(app, service, requests[post.handler.__name__])
    paths = frozenset(route.path for route in app.routes if isinstance(route, APIRoute))
    if api_key is not None:
        _describe_key(app)
    return Guard(app, answers, service.limits, api_key, hosts, service.metrics, paths)


def _describe_key(app: FastAPI) -> None:
    """Add the key to the OpenAPI description, for clients that are generated from it."""
    description = app.openapi()  # the application caches it
    schemes = description["components"].setdefault("securitySchemes", {})
    schemes["key"] = {"type": "http", "scheme": "bearer"}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if path not in OPEN or method == "post":
                operation["security"] = [{"key": []}]


def _json(value: Any) -> Response:
    content = value if isinstance(value, bytes) else to_json(value)
    return Response(content, media_type="application/json")


def _check_either(body: Any, key: str, other: str) -> None:
    """Refuse a body with its texts under both keys, or under none."""
    if (getattr(body, key) is None) == (getattr(body, other) is None):
        raise refused(key, f"give the texts as {key!r} (or {other!r}, not both)")


def _meant(path: str, known: Collection[str]) -> str:
    """Return the known path that was probably meant by a client whose base address lacks ``/v1``,
    or has one slash too many; "" where there is none."""
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
        """Return whether the process answers."""
        return _json({"status": "ok"})

    @app.get(
        "/ready",
        tags=["state"],
        response_model=schemas.Status,
        responses={503: {"model": Error, "description": "Not now"}, **_STATE},
    )
    async def ready() -> Response:
        """Return whether every model answers."""
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
        """Return counts and times in the format of Prometheus."""
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.get("/drift", tags=["state"], response_model=schemas.Drifts, responses=_LOOK)
    async def drift() -> Response:
        """Return how the texts answered since the start differ from those of each model's training,
        and the accuracy estimated from that."""
        return _json({"object": "list", "data": await service.drifts()})

    @app.get("/v1/models", tags=["state"], response_model=schemas.Models, responses=_LOOK)
    async def models() -> Response:
        """Return the models, the default one first."""
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


# Answers: a function for each kind of request, from its body to a value of JSON, or to JSON that
# was written in another thread; its name and its first line are in the API reference.


async def predict(service: Service, body: Any) -> Any:
    """Answer texts with a fine-tuned model; of a pre-trained BERT or ALBERT, whether the second
    text of each pair is the next one, or the order right."""
    served = service.model(body.model, "predict")
    _check_either(body, "texts", "inputs")
    if body.inputs is not None:
        scores, alone = await label_scores(service, served, body)
        return scores[0] if alone else scores
    details = body.all_probabilities
    answers, size, _ = await answers_to(service, served, body.texts, details=details)
    content = {"model": served.name, "task": served.answers_for, "predictions": answers}
    return await service.aside(size, to_json, content)


async def root(service: Service, body: Any) -> Any:
    """Answer as Hugging Face's inference API does, by the model's task."""
    return await inference(service, body)


async def fill_mask(service: Service, body: Any) -> Any:
    """Return the most probable pieces for each mask."""
    served = service.model(body.model, "fill-mask")
    await service.aside(sum(map(len, body.texts)), served.check_masks, body.texts)
    masks_of = await filled_masks(service, served, body.texts, body.top_k)
    filled = [
        {"text": text, "masks": masks} for text, masks in zip(body.texts, masks_of, strict=True)
    ]
    size = sum(len(masks) * body.top_k for masks in masks_of)
    return await service.aside(size, to_json, {"model": served.name, "filled": filled})


async def embed(service: Service, body: Any) -> Any:
    """Return a vector for each text."""
    served = service.model(body.model, "embed")
    _check_either(body, "texts", "inputs")
    plain = body.inputs is not None  # requested and answered as in Text Embeddings Inference
    texts = body.inputs if plain else body.texts
    texts = [texts] if isinstance(texts, str) else texts
    table, embedded = await vectors(
        service,
        served,
        texts,
        normalize=plain if body.normalize is None else body.normalize,
        dimensions=body.dimensions,
        prompt=body.prompt_name,
    )
    cut = [item.pieces_cut for item in embedded]
    if body.truncate is False:
        refuse_cut(cut, "inputs" if plain else "texts")

    def written() -> bytes:
        if plain:
            return to_json(short(table))
        content: dict[str, Any] = {
            "model": served.name,
            "dimensions": table.shape[1],
            "vectors": short(table),
            "pieces_cut": cut,
        }
        if any(item.unknown for item in embedded):
            content["unknown"] = [round(item.unknown, 6) for item in embedded]
        assert served.embedder is not None
        if empty := {*empty_texts(served.embedder, texts)}:
            content["empty"] = [at in empty for at in range(len(texts))]
        return to_json(content)

    return await service.aside(table.size, written)


async def openai(service: Service, body: Any) -> Any:
    """Return vectors of length 1, in the format of OpenAI's embeddings."""
    served = service.model(body.model, "embed")
    texts = [body.input] if isinstance(body.input, str) else body.input
    named = body.prompt_name
    prompt = prompt_for(served, body.input_type) if named is None else named
    table, embedded = await vectors(
        service, served, texts, normalize=True, dimensions=body.dimensions, prompt=prompt
    )
    used = sum(item.tokens for item in embedded)

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

    return await service.aside(table.size, written)


async def cohere_1(service: Service, body: Any) -> Any:
    """Return vectors of length 1, in the format of version 1 of Cohere's embed."""
    return await cohere_vectors(service, body, by_type=False)


async def cohere_2(service: Service, body: Any) -> Any:
    """Return vectors of length 1, in the format of version 2 of Cohere's embed."""
    return await cohere_vectors(service, body, by_type=True)


async def rerank(service: Service, body: Any) -> Any:
    """Order texts by their relevance to a query: by a model of pairs, or by vectors."""
    served = service.model(body.model, "rerank")
    _check_either(body, "documents", "texts")
    texts = body.texts or texts_of(
        body.documents, body.rank_fields or ["text"], service.limits.max_characters
    )
    ranked, tokens = await rank(
        service, served, body.query, texts, label=body.label, log_odds=bool(body.raw_scores)
    )
    ranked = ranked[: body.top_n]
    with_texts = bool(body.return_documents or body.return_text)
    if body.documents is None:
        return written_plainly(ranked, texts, with_texts=with_texts)
    results = written(ranked, texts, body.documents if with_texts else None)
    return {"model": served.name, "results": results, "usage": {"total_tokens": tokens}}


async def search(service: Service, body: Any) -> Any:
    """Return the texts of the server's collection that are nearest to a query, with their
    columns."""
    if not service.able("search"):
        raise ApiError(
            422, f"this server has no collection; start it with {option('collection')} FILE"
        )
    served = service.model(body.model, "search")
    _check_either(body, "query", "queries")
    queries = [body.query] if body.queries is None else body.queries

    def refuse(at: int, why: str) -> None:
        key = "query" if body.queries is None else f"queries[{at}]"
        raise refused(key, why)

    for at, query in enumerate(queries):
        if not query.strip():
            refuse(at, "is empty; give a text")
    most = service.limits.max_embedding_inputs
    if len(queries) * body.top > most:
        raise refused("top", f"at most {most} rows are given for all queries")
    assert served.embedder is not None
    prompt = served.embedder.prompts.for_queries
    table, embedded = await vectors(service, served, queries, normalize=True, prompt=prompt)
    if not table.any(1).all():
        refuse(int(table.any(1).argmin()), "none of its words has a vector")
    nearest = await service.search(
        served, table, queries, top=body.top, where=body.where, hybrid=body.hybrid
    )

    def written() -> bytes:
        results = [
            {
                "rows": [
                    vars(row) | {"score": round(row.score, 6)} for row in nearest.neighbours(at)
                ],
                "pieces_cut": item.pieces_cut,
            }
            for at, item in enumerate(embedded)
        ]
        return to_json({"model": served.name, "compared": nearest.seen, "results": results})

    return await service.aside(sum(len(row.text) for row in nearest.documents.values()), written)


async def explain(service: Service, body: Any) -> Any:
    """Return the contribution of each word to the answer, by leaving it out or by integrated
    gradients."""
    served = service.model(body.model, "explain")
    task = served.tuned
    text = body.text if task is None else in_order(task, body.text, "text")
    parts = [text] if isinstance(text, str) else list(text)
    if body.pair is not None:
        parts.append(body.pair)
    explanation = await service.explain(served, parts, body.method, body.label, body.word)
    return {"model": served.name, **explanation.to_dict()}


async def attention(service: Service, body: Any) -> Any:
    """Return the attention of each token, in one head of one layer."""
    served = service.model(body.model, "attention")
    item = AttentionQuestion(body.text, body.pair, body.layer, body.head)
    cost = served.tokens(item.text) + served.tokens(item.pair or "")
    # All states are kept: as much work as three plain passes.
    results = await service.compute(served, "attention", [item], [3 * cost])
    return {"model": served.name, **results[0]}


@dataclass(frozen=True)
class _Post:
    """A path for POST.

    Attributes:
        path: the path.
        operation: the operation of the models that answer it.
        tag: the name of its section in the API reference.
        handler: the function that answers.
        answer: the schema of its answers.
    """

    path: str
    operation: str
    tag: str
    handler: Callable[[Service, Any], Awaitable[Any]]
    answer: Any

    def added_to(self, app: FastAPI, service: Service, request: type[BaseModel]) -> Answer:
        """Describe the path in `app`; return the function that answers it, for the guard."""

        async def endpoint(body: Any) -> Response:
            return _json(await self.handler(service, body))

        endpoint.__name__, endpoint.__doc__ = self.handler.__name__, self.handler.__doc__
        endpoint.__annotations__["body"] = request
        models = service.able(self.operation) or [*service.models.values()]
        example = example_body(self.path, models[0].describe())
        app.add_api_route(
            self.path,
            endpoint,
            methods=["POST"],
            response_model=self.answer,
            responses=_ERRORS,
            tags=[self.tag],
            openapi_extra={"requestBody": {"content": {"application/json": {"example": example}}}},
        )

        async def answered(body: bytes) -> Response:
            return await endpoint(parsed(body, request))

        return answered


_SCORES = list[schemas.LabelScore] | list[list[schemas.LabelScore]]
_COHERE = schemas.CohereEmbeddings
_POSTS = (
    _Post("/predict", "predict", "answers", predict, schemas.Predictions | _SCORES),
    _Post("/", "inference", "answers", root, Any),
    _Post("/fill-mask", "fill-mask", "answers", fill_mask, schemas.FillMaskAnswer),
    _Post("/v1/embed", "embed", "vectors", cohere_1, _COHERE),
    _Post("/v2/embed", "embed", "vectors", cohere_2, _COHERE),
    _Post("/embed", "embed", "vectors", embed, schemas.VectorsAnswer | list[list[float]]),
    _Post("/v1/embeddings", "embed", "vectors", openai, schemas.OpenAiEmbeddings),
    *(
        _Post(path, "rerank", "rankings", rerank, schemas.RerankAnswer | list[schemas.RankedText])
        for path in RERANK_PATHS
    ),
    _Post("/search", "search", "search", search, schemas.SearchAnswer),
    _Post("/explain", "explain", "inside", explain, schemas.ExplanationAnswer),
    _Post("/attention", "attention", "inside", attention, schemas.Attention),
)
