"""Arguments of the public functions, compared with their type hints before anything is done.

A value of the wrong type, such as the text ``"5e-5"`` that YAML makes of a learning rate, would
else end somewhere inside with an error that names no argument.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from bertine.errors import BertineError
from bertine.terminal.text import briefly

Function = TypeVar("Function", bound=Callable[..., Any])

#: How messages call the types that most arguments have.
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    NoneType: "None",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


def check_types(function: Function) -> Function:
    """Let `function` refuse arguments of other types than its hints name, before it runs.

    Checked are truth values, numbers, texts, paths, names (that they are texts: which ones there
    are is the function's to say), sequences of these, and instances of classes. Numbers of NumPy
    count as numbers. A hint that cannot be resolved, or says nothing, is not checked.

    Raises:
        BertineError: when called: an argument has another type; the message names it and the type
            that is expected.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature, hints = _hints(call)
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own message: it has the function's name
        for name, value in arguments.items():
            hint = hints.get(name, Any)
            if not _fits(value, hint):
                raise BertineError(f"{name} must be {_expected(hint)}, not {_shown(value, hint)}")
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def resolved_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of `function`, with types in place of hints that are written as texts.

    A hint that needs a module which is imported for type checkers alone becomes ``Any``.
    """
    names = getattr(inspect.unwrap(function), "__globals__", {})
    signature = inspect.signature(function)
    return signature.replace(
        parameters=[
            parameter.replace(annotation=_resolved(parameter.annotation, names))
            for parameter in signature.parameters.values()
        ]
    )


@functools.cache
def _hints(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    signature = resolved_signature(function)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in signature.parameters.values() if each.kind not in kinds]
    return signature, {each.name: each.annotation for each in parameters}


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    if hint is inspect.Parameter.empty:
        return Any
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, names)  # the package's own source, as typing.get_type_hints does
    except (NameError, AttributeError, TypeError):
        return Any


def _fits(value: Any, hint: Any) -> bool:
    """Return whether `value` may stand where `hint` is asked for."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(each) or isinstance(value, str) for each in get_args(hint))
    if hint is None or hint is NoneType:
        return value is None
    if hint is bool:
        return _is_bool(value)
    if hint is int:
        return isinstance(value, numbers.Integral) and not _is_bool(value)
    if hint is float:
        return isinstance(value, numbers.Real) and not _is_bool(value)
    if hint is Path:
        return isinstance(value, os.PathLike)
    if isinstance(origin, type):
        return _fits_origin(value, origin, get_args(hint))
    if isinstance(hint, type) and not getattr(hint, "_is_protocol", False):
        return isinstance(value, hint)
    return True


def _fits_origin(value: Any, origin: type, inner: tuple[Any, ...]) -> bool:
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if not issubclass(origin, Iterable):
        return True
    # Arrays and columns of data frames are no Sequence, but stand for one.
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return False
    if isinstance(value, list | tuple) and inner and all(map(_is_simple, _alternatives(inner[0]))):
        return all(_fits(each, inner[0]) for each in value)
    return True


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _is_simple(hint: Any) -> bool:
    return hint in _WORDS or get_origin(hint) is Literal


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _expected(hint: Any) -> str:
    """Return the types of a hint in words: ``"a number or None"``."""
    kinds = _alternatives(hint)
    if Path in kinds:  # which may be written as a text
        kinds = tuple(each for each in kinds if each is not str)
    words = list(dict.fromkeys(map(_word, kinds)))
    return ", ".join(words[:-1]) + " or " + words[-1] if words[1:] else words[0]


def _word(hint: Any) -> str:
    if hint in _WORDS:
        return _WORDS[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dictionary"
    if isinstance(origin, type) and issubclass(origin, Collection | Iterable):
        kinds = [each for each in _alternatives(inner[0]) if each is not str or Path not in inner]
        plurals = [_PLURALS[each] for each in kinds if each in _PLURALS]
        return f"a list of {plurals[0]}" if plurals else "a list"
    name: str = getattr(hint, "__name__", str(hint))
    return f"a {name}"


def _shown(value: Any, hint: Any) -> str:
    """Return `value` with its type, and how to write it where that is clear."""
    shown = f"{briefly(value)} (a {type(value).__name__})" if value is not None else "None"
    kinds = _alternatives(hint)
    if isinstance(value, str) and (float in kinds or int in kinds):
        try:
            float(value)
        except ValueError:
            return shown
        return f"{shown}; give it without quotes (YAML reads 5e-5 as a text, 5.0e-5 as a number)"
    if isinstance(value, float) and int in kinds and value.is_integer():
        return f"{shown}; give {int(value)}"
    return shown
