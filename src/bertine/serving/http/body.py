"""Parse the body of a request, or say in one line what is wrong with it."""

from __future__ import annotations

import difflib
import json
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from bertine.serving.http.errors import ApiError

#: The keys that a body may have: each unknown one costs a search for the known one it resembles.
_MAX_KEYS = 64
#: Characters of an unknown key that are looked at, and shown.
_MAX_KEY = 100
#: How alike (0 to 1, difflib's ratio) two keys are where one is taken for a slip of the other.
_ALIKE = 0.6
#: The same where unknown keys are allowed, as OpenAI's are: only clear slips are mistakes.
_VERY_ALIKE = 0.8


def parsed(body: bytes, schema: type[BaseModel]) -> Any:
    """Parse a body of strict JSON: UTF-8, no NaN, no lone surrogates, of bounded depth. What is
    parsed can be written again.

    Args:
        body: of a request.
        schema: what it must be.

    Raises:
        ApiError: it is not JSON, has a key that the path does not take, or is not what `schema`
            says (422).
    """
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(422, f"the body is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ApiError(422, "the body is not a JSON object; /docs shows one to copy")
    if len(content) > _MAX_KEYS:
        raise ApiError(422, f"the body has {len(content)} keys; /docs lists those of this path")
    _check_keys(content, schema)
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise _first_mistake(error) from None


def _check_keys(body: dict[str, Any], schema: type[BaseModel]) -> None:
    """Refuse the first key that the path does not take, and name the one that was probably meant.

    Where unknown keys are allowed, only those that resemble a known one are refused.

    Raises:
        ApiError: there is such a key (422).
    """
    fields = schema.model_fields
    allowed = schema.model_config.get("extra") != "forbid"
    unused = [name for name in fields if name not in body]
    for key in body:
        if key in fields:
            continue
        alike = _VERY_ALIKE if allowed else _ALIKE
        near = difflib.get_close_matches(key[:_MAX_KEY].lower(), unused, 1, alike)
        if allowed and not near:
            continue
        hint = f"did you mean {near[0]!r}?" if near else f"this path takes {', '.join(fields)}"
        shown = json.dumps(key[:_MAX_KEY])[1:-1]  # any characters may be in it
        raise ApiError(422, f"{shown}: unknown key; {hint}", param=shown or None)


def _first_mistake(error: ValidationError) -> ApiError:
    """Say the first of the mistakes: "texts[3]: String should have at most 20000 characters".

    What may be one of several types has a mistake for each of these. The one that counts is where
    the type was right, which is deeper in, or is not about a type.
    """
    mistakes = error.errors(include_url=False, include_context=False, include_input=False)
    alike = [mistake for mistake in mistakes if mistake["loc"][:1] == mistakes[0]["loc"][:1]]
    first = max(
        alike, key=lambda mistake: (len(mistake["loc"]), not mistake["type"].endswith("_type"))
    )
    place = _place(first["loc"])
    others = {_place(mistake["loc"]) for mistake in mistakes}
    more = sum(1 for other in others if other != place[: len(other)])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    # Keys are the client's: they may be of any length, and of any characters.
    where = json.dumps(where[1:101])[1:-1]
    message = f"{where or 'the body'}: {first['msg']}" + (f" (and {more} more)" if more else "")
    return ApiError(422, message, param=where or None)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the place without pydantic's names of the members of a union: they are no
    identifiers, or classes, while all keys are in lower case."""
    inside = (part for part in loc[1:] if isinstance(part, int) or _is_key(part))
    return *loc[:1], *inside


def _is_key(part: str) -> bool:
    return part.isidentifier() and part.islower()
