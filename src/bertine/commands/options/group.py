"""Arguments of a command, made from a group of options (:mod:`bertine.options.fields`)."""

from __future__ import annotations

import math
from argparse import Action
from collections.abc import Collection, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, get_args, get_origin

from bertine.commands.options.arguments import Gather, Kind, Parser, Switch, real, whole
from bertine.options.fields import Declared, OptionGroup, alternatives_of, as_flags, declared


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
    listed = [each for each in declared(group) if each.name not in but]
    flags = {
        action.dest: action.option_strings[0]
        for action in parser.options()
        if action.option_strings
    }
    flags |= {each.name: _flags(each)[0] for each in listed}
    made: dict[str, Action] = {}
    for each in listed:
        words = (help or {}).get(each.name, each.option.help)
        last = (otherwise or {}).get(each.name, each.option.otherwise)
        if last:
            words += f" (not given: {last})"
        heading = each.title if title is None else title
        place = parser.part(heading) if heading else parser
        made[each.name] = place.add_argument(
            *_flags(each), help=as_flags(words, flags), **_arguments(each)
        )
    for names in alternatives_of(group):
        if all(name in made for name in names):
            parser.alternatives(*(made[name] for name in names))


def _flags(each: Declared) -> tuple[str, ...]:
    words = each.name.replace("_", "-")
    flags = tuple(f"--{flag}" for flag in each.option.flags or (words,))
    # One that is on, or not said, can be put off.
    can_be_off = bool in each.kinds and each.default is not False
    return (*flags, f"--{each.option.no or f'no-{words}'}") if can_be_off else flags


def _arguments(each: Declared) -> dict[str, Any]:
    """What argparse is told of an option beside its flags and its help."""
    said: dict[str, Any] = {"dest": each.name}
    if each.default is MISSING:
        said["required"] = True
    else:
        said["default"] = each.default
    kinds = each.kinds
    if bool in kinds:
        return said | {"action": Switch}
    if each.choices:
        return said | {"choices": each.choices}
    said["metavar"] = each.metavar
    lists = [kind for kind in kinds if get_origin(kind) is not None]
    if lists:
        kinds = get_args(lists[0])
        # A list of names may be given in several parts.
        said |= {"nargs": each.option.values or "+"} | ({"action": Gather} if str in kinds else {})
    kind = _kind(each, kinds)
    return said if kind is None else said | {"type": kind}


def _kind(each: Declared, kinds: tuple[Any, ...]) -> Kind | None:
    said = each.option
    low = next((bound for bound in (said.least, said.above) if bound is not None), 0)
    if int in kinds:
        return whole(int(low))
    if float in kinds:
        bounds = (said.most, said.below, math.inf)
        return real(low, next(bound for bound in bounds if bound is not None))
    return Path if Path in kinds else None
