"""Arguments of a command, made from a group of options (:mod:`bertine.options.fields`)."""

from __future__ import annotations

import math
from argparse import Action
from collections.abc import Collection, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from bertine.commands.options.arguments import Gather, Kind, Parser, Switch, real, whole

if TYPE_CHECKING:
    from bertine.options.fields import Declared, OptionGroup


def add_options(
    parser: Parser,
    group: type[OptionGroup],
    *,
    but: Collection[str] = (),
    otherwise: Mapping[str, str] | None = None,
    help: Mapping[str, str] | None = None,
    title: str | None = None,
) -> None:
    """Declare the options of `group`, each in its part of the help.

    Args:
        parser: of the command.
        group: whose options.
        but: names that the command does not take.
        otherwise: by name, what is done here where an option is not given.
        help: by name, what an option is here.
        title: of the part of the help in which all of them stand; None: each in its own.
    """
    # Here, because ``bertine --help`` lists the commands without their options.
    from bertine.options.fields import alternatives_of, as_flags, declared

    listed = [entry for entry in declared(group) if entry.name not in but]
    flags = {
        action.dest: action.option_strings[0]
        for action in parser.options()
        if action.option_strings
    }
    flags |= {entry.name: _flags(entry)[0] for entry in listed}
    actions: dict[str, Action] = {}
    for entry in listed:
        words = (help or {}).get(entry.name, entry.option.help)
        last = (otherwise or {}).get(entry.name, entry.option.otherwise)
        if last:
            words += f" (not given: {last})"
        heading = entry.title if title is None else title
        place = parser.part(heading) if heading else parser
        actions[entry.name] = place.add_argument(
            *_flags(entry), help=as_flags(words, flags), **_arguments(entry)
        )
    for names in alternatives_of(group):
        if all(name in actions for name in names):
            parser.alternatives(*(actions[name] for name in names))


def _flags(entry: Declared) -> tuple[str, ...]:
    words = entry.name.replace("_", "-")
    flags = tuple(f"--{flag}" for flag in entry.option.flags or (words,))
    # One that is on, or not said, can be put off.
    can_be_off = bool in entry.kinds and entry.default is not False
    return (*flags, f"--{entry.option.no or f'no-{words}'}") if can_be_off else flags


def _arguments(entry: Declared) -> dict[str, Any]:
    """Return what argparse needs of an option beside its flags and its help."""
    arguments: dict[str, Any] = {"dest": entry.name}
    if entry.default is MISSING:
        arguments["required"] = True
    else:
        arguments["default"] = entry.default
    kinds = entry.kinds
    if bool in kinds:
        return arguments | {"action": Switch}
    if entry.choices:
        return arguments | {"choices": entry.choices}
    arguments["metavar"] = entry.metavar
    lists = [kind for kind in kinds if get_origin(kind) is not None]
    if lists:
        kinds = get_args(lists[0])
        # A list of names may be given in several parts.
        arguments |= {"nargs": entry.option.values or "+"} | (
            {"action": Gather} if str in kinds else {}
        )
    kind = _kind(entry, kinds)
    return arguments if kind is None else arguments | {"type": kind}


def _kind(entry: Declared, kinds: tuple[Any, ...]) -> Kind | None:
    option = entry.option
    low = next((bound for bound in (option.least, option.above) if bound is not None), 0)
    if int in kinds:
        return whole(int(low))
    if float in kinds:
        bounds = (option.most, option.below, math.inf)
        return real(low, next(bound for bound in bounds if bound is not None))
    return Path if Path in kinds else None
