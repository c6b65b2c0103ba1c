"""Answer what the page of labelling asks: an application around one session, for one person.

It is bounded and guarded like that of ``serve``. The key is in the part of the address behind
``#``, which a browser keeps to itself; the page sends it in a header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from bertine.labelling.session import Session
from bertine.options.inference import Bounds
from bertine.serving.address import Limits
from bertine.serving.app import Strict, page_response
from bertine.serving.guard import Answer, Guard, Metrics
from bertine.serving.requests import Hosts, error_response, parsed

#: Connections at once of one person, and bytes of a request.
_CONNECTIONS, _BODY = 32, 4 << 20
#: Most labels and marked words of one text.
_MOST = 100_000

_Number = Annotated[int, Field(ge=0, lt=1 << 53)]


class _Nothing(Strict):
    """A request without arguments."""


class _Seen(Strict):
    """The change that the window has seen last."""

    seen: _Number


class _Row(Strict):
    """A text."""

    row: _Number


class _Span(Strict):
    """Marked words."""

    start: _Number
    end: _Number
    label: str


class _Skip(_Row, _Seen):
    """A text that is skipped."""


class _Label(_Skip):
    """The answer about a text."""

    labels: Annotated[list[str], Field(max_length=_MOST)]
    spans: Annotated[list[_Span], Field(max_length=_MOST)]
    note: str


def create_app(session: Session, key: str, finish: Callable[[], None]) -> Guard:
    """Make the application.

    Args:
        session: what is shown and changed.
        key: the key that requests must have as ``Authorization: Bearer KEY``.
        finish: called when the person says that labelling is finished.
    """

    def label(row: int, seen: int, labels: list[str], spans: list[Any], note: str) -> Any:
        marked = [(one["start"], one["end"], one["label"]) for one in spans]
        return session.label(row, seen, labels, marked, note)

    def finished() -> dict[str, Any]:
        finish()
        return session.state()

    actions: Mapping[str, tuple[Callable[..., Any], type[Strict]]] = {
        "/state": (session.state, _Nothing),
        "/label": (label, _Label),
        "/skip": (session.skip, _Skip),
        "/undo": (session.undo, _Seen),
        "/again": (session.look_again, _Row),
        "/finish": (finished, _Nothing),
    }
    answers = {path: _answer(*action) for path, action in actions.items()}
    limits = Limits.within(Bounds(max_connections=_CONNECTIONS, max_body_bytes=_BODY))
    paths = frozenset({"/", *answers})
    return Guard(_page, answers, limits, key, Hosts("127.0.0.1"), Metrics(), paths)


def _answer(action: Callable[..., Any], schema: type[Strict]) -> Answer:
    async def answer(body: bytes) -> Response:
        asked = parsed(body, schema).model_dump()
        content = to_json(await run_in_threadpool(action, **asked))
        headers = {"Cache-Control": "no-store"}
        return Response(content, media_type="application/json", headers=headers)

    return answer


async def _page(scope: Any, receive: Any, send: Any) -> None:
    """Answer GET: the page, which shows nothing without the key, and nothing else."""
    if scope["path"] == "/" and scope["method"] == "GET":
        response = page_response("label.html", "bertine.labelling")
    else:
        response = error_response(HTTPException(404, "there is nothing here"))
    await response(scope, receive, send)
