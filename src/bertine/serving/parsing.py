"""Bodies → requests, or one line about what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from bertine.serving.errors import ApiError

#: Keys of a request's object. Those that a path does not take are each looked at, and told of.
_MAX_KEYS = 64


def parsed(body: bytes, schema: type[BaseModel]) -> Any:
    """The request in a body of JSON, which is UTF-8 as it should be: no NaN, no lone surrogates,
    of bounded depth. What is parsed can be written again.

    Raises:
        ApiError: it is no JSON, or not what `schema` says (422).
    """
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(422, f"the body is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(422, "the body is not an object of JSON; see /docs for the keys it has")
    if len(found) > _MAX_KEYS:
        raise ApiError(422, f"the body has {len(found)} keys; see /docs for those of this path")
    try:
        return schema.model_validate(found)
    except ValidationError as error:
        raise _told(error) from None


def _told(error: ValidationError) -> ApiError:
    """ "texts[3]: String should have at most 20000 characters"; of many mistakes the first.

    What may be one of several types has a mistake for each of these. The one that counts is where
    the type was right, which is deeper in, or is not about a type.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    alike = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    first = max(alike, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    place = _place(first["loc"])
    others = {_place(each["loc"]) for each in found}
    more = sum(1 for other in others if other != place[: len(other)])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    # Keys are the client's: they may be of any length, and of any characters.
    where = json.dumps(where[1:101])[1:-1]
    message = f"{where or 'the body'}: {first['msg']}" + (f" (and {more} more)" if more else "")
    return ApiError(422, message, param=where or None)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without pydantic's names of the members of a union, which are no identifiers."""
    inside = (part for part in loc[1:] if isinstance(part, int) or part.isidentifier())
    return *loc[:1], *inside
