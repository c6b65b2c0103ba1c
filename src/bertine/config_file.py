"""Read ``--config FILE``: the arguments of a command in a YAML file, under the same names; or, by
its name alone, one of the recipes that come with the package.

A file is checked as the command line is: an unknown key, a key given twice and a value of the
wrong kind are errors that name the file and the key. Dashes and underscores are the same in a
key. What stands on the command line wins, wherever ``--config`` stands in it, also where it says
in another way what a key of the file says: ``--hours`` over ``steps``.
"""

from __future__ import annotations

import argparse
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from bertine.commands.options.arguments import Parser, Switch, nearest
from bertine.errors import BertineError
from bertine.files import read_bounded
from bertine.terminal.text import briefly

#: Configurations that come with the package.
_RECIPES = Path(__file__).parent / "recipes"


#: The longest recipe has 3 kB.
_MAX_BYTES = 2**18
#: Lists in each other; no argument has more than one.
_MAX_DEPTH = 16


class _TooDeep(ValueError):
    """An error for lists and mappings in each other, of which YAML's reader would recurse without
    bound."""


class _Loader(yaml.SafeLoader):
    """A reader of YAML's safe subset; a key that is given twice is an error, not the last one's
    gain, and so are aliases (``*name``), by which a few lines can stand for billions."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _TooDeep("has an alias (*name); write the value out")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _TooDeep(f"lists and mappings are nested more than {_MAX_DEPTH} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"'{key}' is given twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def recipes() -> list[str]:
    """Return the names of the configurations that come with the package."""
    return sorted(path.stem for path in _RECIPES.glob("*.yaml"))


def _found(path: str | Path) -> Path:
    """Return the file `path`; where there is none, the package's recipe of that name."""
    if not Path(path).exists() and str(path) in recipes():
        return _RECIPES / f"{path}.yaml"
    return Path(path)


def read_config(path: str | Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file, or of a recipe of the package by its name; dashes
    in keys turned to underscores.

    Raises:
        BertineError: the file cannot be read, is not YAML, or is not keys with values.
    """
    path = _found(path)
    raw = read_bounded(path, _MAX_BYTES, pipes=True)
    if len(raw) > _MAX_BYTES:
        raise BertineError(f"{path}: is larger than {_MAX_BYTES >> 10} KiB, not a configuration")
    try:
        content = yaml.load(raw, _Loader)  # _Loader is safe: plain values only
    except _TooDeep as error:
        raise BertineError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else f"{path}"
        problem = getattr(error, "problem", None) or "it is not text"
        raise BertineError(f"{where}: not valid YAML: {problem}") from error
    except (ValueError, TypeError, OverflowError) as error:  # a date in month 13, 5,000 digits
        raise BertineError(f"{path}: not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise BertineError(f"{path}: expected lines such as 'batch_size: 32'")
    config: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name in config:
            raise BertineError(f"{path}: '{key}' is given twice, with dashes and underscores")
        config[name] = value
    return config


def apply_config(path: str | Path, parser: Parser) -> list[str]:
    """Make the values of the file `path` the defaults of `parser`.

    Returns:
        The keys that do not count: those that `parser` leaves out, where some of them are no
        arguments of its own and so tell that the file was written for the other command.

    Raises:
        BertineError: a key is no argument of the command, or a value is none of its kind.
    """
    arguments = {action.dest: action for action in parser.options()}
    config = read_config(path)
    unused = [key for key in config if key in parser.left_out]
    if arguments.keys() >= set(unused):
        unused = []
    said_keys = {key for key, value in config.items() if value is not None}
    parser.take_back({action for name, action in arguments.items() if name in said_keys})
    for key, value in config.items():
        if key in unused:
            continue
        if key not in arguments:
            hint = nearest(key, arguments) or f"; the keys are {', '.join(arguments)}"
            raise BertineError(f"{path}: unknown key '{key}' for '{parser.prog}'{hint}")
        action = arguments[key]
        if value is None:
            if action.default is not None:
                raise BertineError(f"{path}: {key} has no value; give one or remove the line")
            continue
        action.default = _convert(path, key, value, action)
        action.required = False
        if not action.option_strings:
            # A positional argument may now be left out; if it is, its default counts.
            action.nargs = "*" if action.nargs == "+" else "?"
    return unused


def _convert(path: str | Path, key: str, value: Any, action: argparse.Action) -> Any:
    if isinstance(action, Switch):
        if not isinstance(value, bool):
            raise BertineError(f"{path}: {key} is {briefly(value)}, but must be true or false")
        return value
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        items = value if isinstance(value, list) else [value]
        if not items:
            raise BertineError(f"{path}: {key} is an empty list")
        if isinstance(action.nargs, int) and len(items) != action.nargs:
            raise BertineError(f"{path}: {key} has {len(items)} values, but needs {action.nargs}")
        return [_convert_one(path, key, item, action) for item in items]
    return _convert_one(path, key, value, action)


def _convert_one(path: str | Path, key: str, value: Any, action: argparse.Action) -> Any:
    if isinstance(value, list | dict | bool) or value is None:
        raise BertineError(f"{path}: {key} is {briefly(value)}, but must be one number or text")
    # Through text: YAML reads 1e-4 as text and 7 as a number, whichever the argument wants.
    try:
        text = str(value)
        converted = action.type(text) if callable(action.type) else text
    except (argparse.ArgumentTypeError, ValueError, OverflowError) as error:
        raise BertineError(f"{path}: {key}: {error}") from error
    if action.choices is not None and converted not in action.choices:
        choices = ", ".join(str(choice) for choice in action.choices)
        raise BertineError(f"{path}: {key} is {briefly(text)}, but must be one of {choices}")
    return converted
