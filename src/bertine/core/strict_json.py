"""Parse JSON and YAML that may be damaged or hostile, check the types of values, write results.

All JSON files that are read whole are parsed here. Python's parser accepts more than JSON (NaN,
lone surrogates, duplicate keys), and a file can make it recurse too deeply. The result of
:func:`parse_json` is bounded in size and depth, has no duplicate keys, and can be written again as
UTF-8. :func:`parse_yaml` reads the safe subset of YAML in the same way.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import PurePath
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from bertine.core.errors import BertineError
from bertine.core.text import briefly

#: Most bytes of a file. The largest that Bertine reads are tokenizers: 30 MB with a million pieces.
MAX_BYTES = 64 * 2**20
#: Deepest nesting of lists and objects. The deepest files that Bertine reads have six levels.
MAX_DEPTH = 64
#: Most digits of a number. No size, count or seed needs more; transformers writes 10 to the power
#: of 30 if a tokenizer has no longest input.
MAX_DIGITS = 40

#: Deepest nesting of YAML, as of configuration files and of data sets' cards.
_YAML_DEPTH = 16

_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
#: Maps every digit to 0 and removes every other byte: a run of digits is then found by comparing
#: bytes, in a tenth of the time that a regular expression needs for a large file.
_AS_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0 for byte in range(256))
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)
_SHOWN = 60


class _Refused(ValueError):
    """Valid JSON that is not accepted; the message says why."""


def parse_json(raw: bytes, source: object, *, lenient: bool = False) -> Any:
    """Parse the UTF-8 bytes of a whole JSON file.

    Args:
        raw: the file's contents.
        source: the file's name, for messages.
        lenient: accept NaN, Infinity and lone surrogates, for files in which Bertine itself writes
            scores that may be undefined, and outside texts.

    Raises:
        BertineError: it is not JSON, is larger than `MAX_BYTES` or nested deeper than `MAX_DEPTH`,
            has a duplicate key, a lone surrogate, or a number of more than `MAX_DIGITS` digits.
    """
    if len(raw) > MAX_BYTES:
        raise BertineError(f"{source}: is larger than {MAX_BYTES >> 20} MiB, too large for JSON")
    try:
        text = raw.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_object_of_pairs,
            parse_constant=None if lenient else _refuse_constant,
            parse_float=None if lenient else _finite_float,
            # Checks every number, so it is used only if the text has a long one.
            parse_int=_short_int if _LONG_NUMBER in raw.translate(_AS_DIGITS) else None,
        )
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(value)
        if not lenient and _HALF_PAIR.search(text):
            _check_surrogates(value)
    except RecursionError:
        deep = f"{source}: lists and objects are nested more than {MAX_DEPTH} deep"
        raise BertineError(deep) from None
    except _Refused as error:
        raise BertineError(f"{source}: {error}") from None
    except ValueError as error:
        raise BertineError(f"{source}: not valid JSON ({error})") from error
    return value


@cache
def _yaml_loader() -> Any:
    """Return a reader of YAML's safe subset, without importing it for those who read none."""
    import yaml

    class Loader(yaml.SafeLoader):
        """A reader in which duplicate keys are errors, and so are aliases (``*name``), with which a
        few lines can expand to billions."""

        _depth = 0

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise _Refused("has an alias (*name); write the value out")
            self._depth += 1
            if self._depth > _YAML_DEPTH:
                raise _Refused(f"lists and mappings are nested more than {_YAML_DEPTH} deep")
            try:
                return super().compose_node(parent, index)
            finally:
                self._depth -= 1

        def construct_mapping(
            self, node: yaml.MappingNode, deep: bool = False
        ) -> dict[Hashable, Any]:
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

    return Loader


def parse_yaml(raw: bytes, source: object) -> Any:
    """Parse YAML: plain values, lists and mappings.

    Args:
        raw: the text, as bytes; its size is bounded by the caller.
        source: the file's name, for messages.

    Raises:
        BertineError: it is not YAML, is nested deeper than `_YAML_DEPTH`, has a duplicate key or an
            alias.
    """
    import yaml

    try:
        return yaml.load(raw, _yaml_loader())  # which is safe: plain values only
    except _Refused as error:
        raise BertineError(f"{source}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}, line {mark.line + 1}" if mark else f"{source}"
        problem = getattr(error, "problem", None) or "it is not text"
        raise BertineError(f"{where}: not valid YAML: {problem}") from error
    except (ValueError, TypeError, OverflowError) as error:  # a date in month 13, 5,000 digits
        raise BertineError(f"{source}: not valid YAML: {error}") from error


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"the key {key[:_SHOWN]!r} is there twice in one object; remove one")
            seen.add(key)
    return values


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"has the value {name}, which is not a number of JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"has the number {text[:_SHOWN]}, which is too large")
    return value


def _short_int(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise _Refused(f"has a number of {len(text)} digits; at most {MAX_DIGITS} are read")
    return int(text)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside: list[Any] = []
        for inner in level:
            if type(inner) is dict:
                inside += [item for item in inner.values() if type(item) in (dict, list)]
            elif type(inner) is list:
                inside += [item for item in inner if type(item) in (dict, list)]
        if not inside:
            return
        level = inside
    raise _Refused(f"lists and objects are nested more than {MAX_DEPTH} deep")


def _check_surrogates(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is dict:
            stack += [*item, *item.values()]
        elif type(item) is list:
            stack += item
        elif type(item) is str:
            try:
                item.encode("utf-8")
            except UnicodeEncodeError as error:
                code = f"\\u{ord(item[error.start]):04x}"
                raise _Refused(f"has half a character ({code}) in a text; correct it") from None


#: Kinds of values for :func:`check_shape`, and their names in messages.
COUNT, NUMBER, TEXT, FLAG, ANYTHING = "count", "number", "text", "flag", "anything"
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    COUNT: ("a whole number of at least 0", lambda value: type(value) is int and value >= 0),
    NUMBER: ("a number", lambda value: type(value) in (int, float)),
    TEXT: ("a text", lambda value: type(value) is str),
    FLAG: ("true or false", lambda value: type(value) is bool),
    ANYTHING: ("", lambda value: True),
}
#: A kind; a list of equal shapes as ``[shape]``; an object as ``{key: shape}``, where ``"key?"``
#: may be missing or null, and ``"*?"`` matches every key.
Shape = str | list[Any] | dict[str, Any]


def check_shape(value: Any, shape: Shape, source: object, place: str = "") -> None:
    """Check the types in a value that was read from a file.

    Args:
        value: the JSON value.
        shape: its required shape. Keys that it does not name are not checked.
        source: the file, for messages.
        place: the position of `value` in it, for messages.

    Raises:
        BertineError: a value has another type, or a key is missing; names the key.
    """
    if isinstance(shape, str):
        name, fits = _KINDS[shape]
        if not fits(value):
            what = f"{place} is {briefly(value)}, but must be {name}"
            raise BertineError(f"{source}: {what}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise BertineError(f"{source}: {place or 'it'} must be a list, not {briefly(value)}")
        for number, item in enumerate(value):
            check_shape(item, shape[0], source, f"{place}[{number}]")
    else:
        if not isinstance(value, dict):
            raise BertineError(f"{source}: {place or 'it'} must be an object, not {briefly(value)}")
        every = shape.get("*?")
        named: dict[str, Any] = shape
        if every is not None:
            named = dict.fromkeys((f"{key}?" for key in value), every)
        for key, inner in named.items():
            name = key.removesuffix("?")
            if name != key and value.get(name) is None:
                continue
            if name not in value:
                raise BertineError(f"{source}: {place + '.' if place else ''}{name} is missing")
            check_shape(value[name], inner, source, f"{place}.{name}" if place else name)


# Results as JSON: they are plain data, so that what is written follows from their fields.


class Jsonable:
    """Base of dataclasses that become JSON.

    Without a declaration every field is written, under its name. Otherwise `json_keys` lists what
    is written, in this order, each as

    - ``"name"``: an attribute under its name: a field, a property, or what a method returns,
    - ``"name?"``: the same, left out if it is None or empty,
    - ``"key=name"``: an attribute under another key; ``"key=name.part"``: one of an attribute, or
      None if that is None,
    - ``"**name"``: the items of an attribute that is a dictionary.

    Floats are rounded to `json_digits` decimals, if that is a number.
    """

    __slots__ = ()
    json_keys: ClassVar[tuple[str, ...]] = ()
    json_digits: ClassVar[int | None] = None

    def to_dict(self) -> dict[str, Any]:
        """Return the contents as JSON values."""
        values: dict[str, Any] = {}
        for entry in self.json_keys or _field_names(self):
            key, _, name = entry.rstrip("?").partition("=")
            value: Any = self
            for part in (name or key).lstrip("*").split("."):
                value = None if value is None else getattr(value, part)
            value = json_value(value() if callable(value) else value, self.json_digits)
            if not entry.endswith("?") or value not in (None, [], {}):
                values |= value if key.startswith("**") else {key: value}
        return values


class Readable(Jsonable):
    """Base of dataclasses that are read from JSON again: their ``json_keys`` name every field
    without a default, or they have none."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read the fields that :meth:`to_dict` wrote; other keys are left out.

        Raises:
            ValueError: a value is missing, or of another type than its field; names the key.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{briefly(values)} is no object")
        kinds, known = get_type_hints(cls), {}
        for entry in fields(cls):  # type: ignore[arg-type]  # subclasses are dataclasses
            if entry.name in values:
                known[entry.name] = typed(kinds[entry.name], values[entry.name], entry.name)
            elif entry.init and entry.default is entry.default_factory is MISSING:
                raise ValueError(f"{entry.name} is missing")
        return cls(**known)


def json_value(value: Any, digits: int | None = None) -> Any:
    """Convert a result, or a part of one, to JSON values: dataclasses by field, tuples as lists,
    paths as texts.

    Args:
        value: the value.
        digits: the number of decimals of floats; None: all.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value if digits is None else round(float(value), digits)
    for method in ("to_dict", "to_json", "tolist"):
        if hasattr(value, method):
            return getattr(value, method)()
    if is_dataclass(value):
        value = {name: getattr(value, name) for name in _field_names(value)}
    if isinstance(value, Mapping):
        return {name: json_value(inner, digits) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner, digits) for inner in value]
    return str(value) if isinstance(value, PurePath) else value


def _field_names(kind: Any) -> list[str]:
    return [entry.name for entry in fields(kind) if not entry.name.startswith("_")]


#: The types of JSON values, and their names in messages.
_TYPES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def typed(kind: Any, value: Any, place: str) -> Any:
    """Convert a JSON value to the type of a field.

    Raises:
        ValueError: it has another type.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else typed(inner[0], value, place)
    if isinstance(origin, type) and issubclass(origin, Readable) and isinstance(value, dict):
        return origin.from_dict(value)
    wanted = {tuple: list, Sequence: list, Mapping: dict}.get(origin, origin)
    if wanted is float and type(value) is int:
        return float(value)
    is_flag = isinstance(value, bool)
    if wanted in _TYPES and (not isinstance(value, wanted) or is_flag != (wanted is bool)):
        raise ValueError(f"{place} is {briefly(value)}, but must be {_TYPES[wanted]}")
    if wanted is list:
        items = [typed(inner[0], item, f"{place}[{at}]") for at, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if wanted is dict and inner:
        return {name: typed(inner[1], item, f"{place}.{name}") for name, item in value.items()}
    return value
