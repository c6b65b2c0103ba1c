"""Verbs whose options stand in groups: flat keyword arguments outside, one object inside."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING
from typing import Any, TypeVar

from bertine.options.fields import Declared, OptionGroup, declared
from bertine.options.types import check_types, resolved_signature
from bertine.terminal.console import quietly

Result = TypeVar("Result")
Verb = Callable[..., Result]

#: The attribute of a verb that has the groups it takes options from.
GROUPS = "option_groups"
#: The widest line of a docstring.
_WIDTH = 100


def takes_options(
    others: type[OptionGroup] | None = None, but: Collection[str] = ()
) -> Callable[[Verb[Result]], Verb[Result]]:
    """Let a verb take the options of a group as keyword arguments.

    The verb has a parameter whose type is an :class:`~bertine.options.fields.OptionGroup`; callers
    give its options one by one, by name, and the verb gets the group, its ranges checked. Its
    signature shows the options, and its documentation describes them: where its "Args:" have an
    entry for the parameter, those of the options stand. Types are checked, and with ``quiet`` the
    verb prints warnings alone.

    Args:
        others: a group of which the verb takes over the options besides, as they were given, in
            its last parameter, ``**options``.
        but: the names that it does not take over.
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
    """Leave PyTorch's global generators as they are found, where PyTorch is imported already: they
    are the caller's, and everything here draws by seeds of its own."""
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
    return textwrap.wrap(
        f"{option.name}: {option.text}",
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
