"""Check the arguments of public functions, and pass their options in groups.

A value of the wrong type, such as the text ``"5e-5"`` that YAML makes of a learning rate, would
otherwise raise an error deep inside that names no argument.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from bertine.core.console import quietly
from bertine.core.errors import BertineError
from bertine.core.text import briefly, is_number
from bertine.options.declare import Declared, OptionGroup, declared

Function = TypeVar("Function", bound=Callable[..., Any])

#: The names of the most frequent types in messages.
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
    """Make `function` refuse arguments whose types do not match its hints, before it runs.

    Truth values, numbers, texts, paths, names (only that they are texts: the function checks which
    ones exist), sequences of these, and instances of classes are checked. NumPy's numbers count as
    numbers. A hint that cannot be resolved, or is too general, is not checked.

    Raises:
        BertineError: when called: an argument has another type; the message names it and the
            expected type.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature, hints = _hints(call)
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own message: it names the function
        for name, value in arguments.items():
            hint = hints.get(name, Any)
            if not _fits(value, hint):
                raise BertineError(f"{name} must be {_expected(hint)}, not {_shown(value, hint)}")
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def resolved_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of `function` with types in place of hints written as texts.

    A hint that needs a module imported only for type checkers becomes ``Any``.
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
    parameters = [item for item in signature.parameters.values() if item.kind not in kinds]
    return signature, {item.name: item.annotation for item in parameters}


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
    """Return whether `value` matches the type `hint`."""
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, item) for item in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(item) or isinstance(value, str) for item in get_args(hint))
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
    # Arrays and columns of data frames are not a Sequence, but are accepted as one.
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return False
    if isinstance(value, list | tuple) and inner and all(map(_is_simple, _alternatives(inner[0]))):
        return all(_fits(item, inner[0]) for item in value)
    return True


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _is_simple(hint: Any) -> bool:
    return hint in _WORDS or get_origin(hint) is Literal


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _expected(hint: Any) -> str:
    """Describe the types of a hint: ``"a number or None"``."""
    kinds = _alternatives(hint)
    if Path in kinds:  # also accepted as a text
        kinds = tuple(item for item in kinds if item is not str)
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
        kinds = [item for item in _alternatives(inner[0]) if item is not str or Path not in inner]
        plurals = [_PLURALS[item] for item in kinds if item in _PLURALS]
        return f"a list of {plurals[0]}" if plurals else "a list"
    name: str = getattr(hint, "__name__", str(hint))
    return f"a {name}"


def _shown(value: Any, hint: Any) -> str:
    """Return `value` with its type, and how to write it correctly if that is clear."""
    shown = f"{briefly(value)} (a {type(value).__name__})" if value is not None else "None"
    kinds = _alternatives(hint)
    if isinstance(value, str) and (float in kinds or int in kinds):
        if not is_number(value):
            return shown
        return f"{shown}; give it without quotes (YAML reads 5e-5 as a text, 5.0e-5 as a number)"
    if isinstance(value, float) and int in kinds and value.is_integer():
        return f"{shown}; give {int(value)}"
    return shown


# Option groups: flat keyword arguments for the caller, one object inside the verb.

Result = TypeVar("Result")
Verb = Callable[..., Result]

#: The attribute of a verb with its option groups.
GROUPS = "option_groups"
#: The widest line of a docstring.
_WIDTH = 100


def takes_options(
    others: type[OptionGroup] | None = None, but: Collection[str] = ()
) -> Callable[[Verb[Result]], Verb[Result]]:
    """Make a verb take the options of a group as keyword arguments.

    The verb has a parameter whose type is an :class:`~bertine.options.declare.OptionGroup`. Callers
    give its options one by one, by name; the verb gets the group, with checked ranges. Its
    signature shows the options, and its documentation describes them: their entries replace that of
    the parameter in "Args:". Types are checked, and with ``quiet`` the verb prints only warnings.

    Args:
        others: a group whose options the verb also accepts; it gets them as they were given, in its
            last parameter, ``**options``.
        but: names of `others` that it does not accept.
    """

    def wrap(verb: Verb[Result]) -> Verb[Result]:
        own = resolved_signature(verb)
        groups = {
            name: entry.annotation
            for name, entry in own.parameters.items()
            if isinstance(entry.annotation, type) and issubclass(entry.annotation, OptionGroup)
        }
        rest = next((n for n, p in own.parameters.items() if p.kind is p.VAR_KEYWORD), None)
        plain = [p for p in own.parameters.values() if p.name not in groups and p.name != rest]
        taken = {p.name for p in plain}
        # By parameter of the verb, the options that it holds.
        members: dict[str, list[Declared]] = {}
        for name, group in groups.items():
            members[name] = [entry for entry in declared(group) if entry.name not in taken]
            taken |= {entry.name for entry in members[name]}
        if rest is not None and others is not None:
            known = taken | {*but}
            members[rest] = [entry for entry in declared(others) if entry.name not in known]
        options = [_parameter(entry) for listed in members.values() for entry in listed]
        signature = own.replace(parameters=[*plain, *options])

        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> Result:
            try:
                bound = signature.bind(*args, **kwargs)  # refuses what it does not know
            except TypeError as error:
                raise TypeError(f"{verb.__name__}() {error}") from None
            bound.apply_defaults()
            arguments = bound.arguments
            # From flat arguments to one object for each parameter.
            for name, listed in members.items():
                values = {entry.name: arguments.pop(entry.name) for entry in listed}
                arguments |= {name: groups[name](**values)} if name in groups else values
            built = [arguments[name] for name in groups]
            quiet = any(getattr(options, "quiet", False) for options in built)
            with quietly(quiet), keeping_generators():
                return verb(**arguments)

        call.__signature__ = signature  # type: ignore[attr-defined]
        setattr(call, GROUPS, (*groups.values(), *([] if others is None else [others])))
        call.__doc__ = documented(verb.__doc__ or "", members)
        return check_types(call)

    return wrap


@contextlib.contextmanager
def keeping_generators() -> Iterator[None]:
    """Restore the state of PyTorch's global generators, if PyTorch is already imported: they belong
    to the caller, and Bertine draws with seeds of its own."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if gpus:
            torch.cuda.set_rng_state_all(gpus)


def _parameter(option: Declared) -> inspect.Parameter:
    """Return an option as a keyword parameter of a signature."""
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.default is MISSING else option.default,
        annotation=option.hint,
    )


def documented(text: str, members: dict[str, list[Declared]]) -> str:
    """Return the docstring `text` with the entries of options in place of those of the parameters
    that hold them."""
    lines = text.splitlines()
    for name, listed in members.items():
        pattern = re.compile(rf"^(\s+){name}: ")
        start = next((i for i, line in enumerate(lines) if pattern.match(line)), None)
        if start is None:
            continue
        indent = re.match(r"\s*", lines[start])[0]  # type: ignore[index]
        end = start + 1
        while end < len(lines) and lines[end].startswith(f"{indent} "):
            end += 1
        lines[start:end] = [line for entry in listed for line in _entry(entry, indent)]
    return "\n".join(lines)


def _entry(option: Declared, indent: str) -> list[str]:
    """Return the lines of an option in a docstring's "Args:"."""
    return textwrap.wrap(
        f"{option.name}: {option.text}",
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
