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
        raise ApiError(422, _first_mistake(error)) from None


def _first_mistake(error: ValidationError) -> str:
    """ "texts[3]: String should have at most 20000 characters"; of many mistakes the first."""
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    where = ""
    for part in first["loc"]:
        if isinstance(part, int):
            where += f"[{part}]"
        elif part.isidentifier():  # not pydantic's names of the members of a union
            where += f".{part}" if where else part
    more = f" (and {len(others)} more)" if others else ""
    # Keys are the client's: they may be of any length, and of any characters.
    where = json.dumps(where[:100])[1:-1]
    return f"{where or 'the body'}: {first['msg']}{more}"
