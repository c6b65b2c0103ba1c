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


class _Span(Strict):
    """Marked words."""

    start: _Number
    end: _Number
    label: str


class _Request(Strict):
    """What the page sends, as far as an action needs it: the text, the change that the window has
    seen last, and an answer."""

    row: _Number = -1
    seen: _Number = 0
    labels: Annotated[list[str], Field(max_length=_MOST)] = Field(default_factory=list)
    spans: Annotated[list[_Span], Field(max_length=_MOST)] = Field(default_factory=list)
    note: str = ""


def create_app(session: Session, key: str, finish: Callable[[], None]) -> Guard:
    """Make the application.

    Args:
        session: what is shown and changed.
        key: the key that requests must have as ``Authorization: Bearer KEY``.
        finish: called when the person says that labelling is finished.
    """

    def label(asked: _Request) -> dict[str, Any]:
        spans = [(one.start, one.end, one.label) for one in asked.spans]
        return session.label(asked.row, asked.seen, asked.labels, spans, asked.note)

    def finished(asked: _Request) -> dict[str, Any]:
        finish()
        return session.state()

    actions: Mapping[str, Callable[[_Request], dict[str, Any]]] = {
        "/state": lambda asked: session.state(),
        "/label": label,
        "/skip": lambda asked: session.skip(asked.row, asked.seen),
        "/undo": lambda asked: session.undo(asked.seen),
        "/again": lambda asked: session.look_again(asked.row),
        "/finish": finished,
    }
    answers = {path: _answer(action) for path, action in actions.items()}
    limits = Limits.within(Bounds(max_connections=_CONNECTIONS, max_body_bytes=_BODY))
    paths = frozenset({"/", *answers})
    return Guard(_page, answers, limits, key, Hosts("127.0.0.1"), Metrics(), paths)


def _answer(action: Callable[[_Request], dict[str, Any]]) -> Answer:
    async def answer(body: bytes) -> Response:
        content = to_json(await run_in_threadpool(action, parsed(body, _Request)))
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
