"""Declare the options of verbs: each option once, as a field of a dataclass.

:func:`declare` makes the field. From it come the verb's keyword argument with its type and default,
its entry in the verb's documentation, the command's argument with its help, the checks of type and
range, the key in configuration files, and whether it may change when a run is resumed. A group of
options is a dataclass that inherits from :class:`OptionGroup`. The options of a verb are a class
that inherits from several groups, so that code which needs one group can take the whole object.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import briefly, listing

_KEY = "option"
#: Where an option may change on resuming: in the folder of a run, or in that of a search.
Free = Literal["run", "search"]
#: The largest value of an option without an upper bound, and the smallest of one that must be above
#: 0; other values make runs endless or numbers overflow.
MOST, LEAST = 10**9, 1e-9
#: The highest seed.
MOST_SEED = 2**64 - 1
#: The message for a name that an option does not accept.
MUST_BE = "{name} is {value!r}, but must be {must}"
NOT_KNOWN = "{name} {value!r} is not known; choose {known}"


class Option(NamedTuple):
    """The declaration of an option, without its name, type and default.

    Attributes:
        help: its description, for ``--help`` and the documentation; names of other options are in
            single backticks, code in double ones.
        otherwise: what is done if it is None.
        more: further text, for the documentation only.
        metavar: the placeholder of its value in ``--help``; None: by its type.
        flags: its options on the command line, without the two dashes; empty: its name.
        values: how many values a list must have.
        least, most: inclusive bounds of a number.
        above, below: exclusive bounds.
        free: whether it may change on resuming: of a run and a search, or of one of them.
        each_process: whether the processes of a run may have different values.
        recorded: whether a run's settings include it if it is not the default.
        not_in: the commands that take over this group without this option.
        title: the title of its section of ``--help``; None: that of the group.
        unknown: the message for a name that it does not accept.
        no: the option that negates a switch; "": ``no-`` and its name.
    """

    help: str
    otherwise: str = ""
    more: str = ""
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    values: int | None = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    free: Free | bool = False
    each_process: bool = False
    recorded: bool = False
    not_in: tuple[str, ...] = ()
    title: str | None = None
    unknown: str = MUST_BE
    no: str = ""


class Declared(NamedTuple):
    """An option with its name, type and default; ``MISSING`` means it is required."""

    name: str
    hint: Any
    default: Any
    option: Option
    title: str

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of its values, without None."""
        hint = self.hint
        inner = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        return tuple(entry for entry in inner if entry is not type(None))

    @property
    def choices(self) -> tuple[Any, ...]:
        """The names that it accepts; () if it accepts other values."""
        return tuple(
            name for entry in self.kinds if get_origin(entry) is Literal for name in get_args(entry)
        )

    @property
    def metavar(self) -> str:
        """The placeholder of its value in help."""
        option = self.option
        if option.metavar is not None:
            return option.metavar
        lists = [
            get_args(entry)[0] for entry in self.kinds if get_origin(entry) not in (None, Literal)
        ]
        kinds = (*self.kinds, *lists)
        if float in kinds:
            return "P" if 1 in (option.most, option.below) else "X"
        return "N" if int in kinds else "NAME"

    @property
    def text(self) -> str:
        """Its text in the documentation."""
        words = self.option.help.rstrip(".")
        if self.option.otherwise:
            words += f"; None: {self.option.otherwise}"
        return f"{words}. {self.option.more}".strip()


def declare(default: Any, help: str, **words: Any) -> Any:
    """Declare an option: a field of an :class:`OptionGroup`.

    Args:
        default: its default value; ``MISSING``: it is required.
        help, words: see the attributes of :class:`Option`.
    """
    return field(default=default, metadata={_KEY: Option(help, **words)})


def like(group: type[OptionGroup], name: str, **changes: Any) -> Any:
    """Declare the option `name` of `group` again, with another ``default`` or other attributes."""
    before = next(entry for entry in fields(group) if entry.name == name)
    default = changes.pop("default", before.default)
    return field(default=default, metadata={_KEY: before.metadata[_KEY]._replace(**changes)})


@dataclass_transform(frozen_default=True, kw_only_default=True)
class OptionGroup:
    """Options that belong together; their ranges are checked on creation, and they do not change.
    Subclasses are dataclasses without a decorator; their methods are written out here, because
    making them for every class would take half of the time of ``--help``.

    Attributes:
        title: the title of their section of ``--help``.
        alternatives: sets of options with the same purpose, of which one replaces another.
        kinds: where a verb does different kinds of work: for each, a class with its options. Each
            kind is a command of its own, whose parser knows these alone.

    Raises:
        BertineError: a value is out of range, or a name is unknown.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    title: ClassVar[str] = ""
    alternatives: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[Mapping[str, type[OptionGroup]]] = {}

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, **given: Any) -> None:
        for entry in fields(self):
            if entry.name in given:
                value = given.pop(entry.name)
            elif entry.default_factory is not MISSING:
                value = entry.default_factory()
            elif entry.default is not MISSING:
                value = entry.default
            else:
                raise TypeError(f"{type(self).__name__} needs {entry.name}")
            vars(self)[entry.name] = value
        if given:
            raise TypeError(f"{type(self).__name__} has no option {', '.join(given)}")
        self.__post_init__()

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to {name}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.values().items())})"

    def __post_init__(self) -> None:
        for entry in declared(type(self)):
            check_value(entry, getattr(self, entry.name))

    @classmethod
    def of(cls, *sources: object, **others: Any) -> Self:
        """Take every option from the first of `sources` that has it; `others` take precedence.

        Raises:
            TypeError: no source has an option: a forgotten option must not silently become its
                default.
        """
        for entry in fields(cls):
            if entry.name not in others:
                source = next((one for one in sources if hasattr(one, entry.name)), None)
                if source is None:
                    raise TypeError(f"{cls.__name__} needs {entry.name}")
                others[entry.name] = getattr(source, entry.name)
        return cls(**others)

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def changed(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if getattr(self, entry.name) != entry.default
        }

    @classmethod
    def kinds_with(cls, name: str) -> list[str]:
        """Return the kinds that have the option `name`."""
        return [
            kind
            for kind, group in cls.kinds.items()
            if any(entry.name == name for entry in declared(group))
        ]

    @classmethod
    def refuse_others(cls, kind: str, given: Iterable[str], problem: str) -> None:
        """Refuse the options among `given` that other kinds have, but not `kind`.

        Raises:
            BertineError: there is one; the message names the kinds that have it, and `problem`.
        """
        for name in given if kind in cls.kinds else ():
            having = cls.kinds_with(name)
            if having and kind not in having:
                raise BertineError(f"{option(name)} is for {listing(having)}, but {problem}")

    def recorded(self) -> dict[str, Any]:
        """Return the values that a run's settings record if they differ from the defaults."""
        names = {entry.name for entry in declared(type(self)) if entry.option.recorded}
        return {name: value for name, value in self.changed().items() if name in names}


def declared(group: type[OptionGroup]) -> tuple[Declared, ...]:
    """Return the options of `group`: its own, then those of its bases in the order in which these
    are named."""
    known: Any = group  # mypy assumes that a class of dataclasses has no hash
    return _declared(known)


@cache
def _declared(group: Any) -> tuple[Declared, ...]:
    hints = get_type_hints(group)
    known: dict[str, Field[Any]] = {field.name: field for field in fields(group)}
    own, *bases = group.__mro__
    # A repeated declaration keeps the position of the first one.
    titles: dict[str, str] = {}
    for base in (*bases, own):
        for name in vars(base).get("__annotations__", {}):
            if name in known and _KEY in known[name].metadata:
                titles.setdefault(name, vars(base).get("title", ""))
    options = []
    for name, title in titles.items():
        option: Option = known[name].metadata[_KEY]
        title = title if option.title is None else option.title
        having = group.kinds_with(name)
        if having and 2 * len(having) < len(group.kinds):
            option = option._replace(help=f"of {', '.join(having)}: {option.help}")
        options.append(Declared(name, hints[name], known[name].default, option, title))
    return tuple(options)


def alternatives_of(group: type[OptionGroup]) -> Iterator[tuple[str, ...]]:
    """Return the options of `group` that replace each other."""
    for base in group.__mro__:
        if names := vars(base).get("alternatives"):
            yield names


def shared_values(
    group: type[OptionGroup], source: object, but: Container[str] = ()
) -> dict[str, Any]:
    """Return the values of the options of `group` that `source` has, by name, except those in
    `but`."""
    return {
        entry.name: getattr(source, entry.name)
        for entry in declared(group)
        if entry.name not in but and hasattr(source, entry.name)
    }


def names_of(group: type[OptionGroup], *, not_in: str) -> frozenset[str]:
    """Return the options of `group` that the command `not_in` does not take over."""
    return frozenset(entry.name for entry in declared(group) if not_in in entry.option.not_in)


def check_value(entry: Declared, value: Any) -> None:
    """Refuse a value that is out of range or an unknown name; None is always accepted.

    Raises:
        BertineError: the value is refused.
    """
    name, option = entry.name, entry.option
    if isinstance(value, str) and entry.choices and value not in entry.choices:
        known = ", ".join(entry.choices)
        must = f"one of {known}" if entry.choices[1:] else f"{entry.choices[0]!r} or left out"
        raise BertineError(option.unknown.format(name=name, value=value, must=must, known=known))
    several = hasattr(value, "__len__") and not isinstance(value, str)
    for item in value if several else (value,):
        if hasattr(item, "__float__") and not isinstance(item, bool):
            _check_number(name, option, item)


def _check_number(name: str, option: Option, value: float) -> None:
    """Refuse a number that is out of range or not finite.

    Raises:
        BertineError: the number is refused.
    """
    inside = value == value and (
        (option.least is None or value >= option.least)
        and (option.above is None or value > option.above)
        and (option.most is None or value <= option.most)
        and (option.below is None or value < option.below)
    )
    # Not converted before the comparison: a whole number may be too large for a float.
    if not inside or value == math.inf:
        shown = value if isinstance(value, int) else f"{value:g}"
        raise BertineError(f"{name} is {shown}, but must be {_range(option, value)}")
    if option.most is None and option.below is None and abs(value) > MOST:
        raise BertineError(f"{name} is {briefly(value)}, but must be from {-MOST:,} to {MOST:,}")
    if option.above == 0 and value < LEAST:
        raise BertineError(f"{name} is {value:g}, but must be at least {LEAST:g}")


def _range(option: Option, value: float) -> str:
    """Describe the range of an option's numbers."""
    least, above, most, below = option.least, option.above, option.most, option.below
    if (least, above, most, below) == (None,) * 4:
        return "finite"
    if most is None and below is None:
        finite = " and finite" if value == math.inf or value != value else ""
        if above is not None:
            return f"above {above:g}{finite}"
        return f"{least:g} or more{finite}" if least == 0 else f"at least {least:g}"
    if above is not None and below is not None:
        return f"between {above:g} and {below:g}"
    if least is not None and most is not None:
        whole = isinstance(least, int) and isinstance(most, int)
        return f"from {least:,} to {most:,}" if whole else f"from {least:g} to {most:g}"
    low = f"({above:g}" if above is not None else f"[{least:g}"
    return f"in {low}, " + (f"{below:g})" if below is not None else f"{most:g}]")


def free_in(where: Free, groups: Iterable[type[OptionGroup]]) -> frozenset[str]:
    """Return the options of `groups` that may change when a run or a search is resumed."""
    return frozenset(
        entry.name
        for group in groups
        for entry in declared(group)
        if entry.option.free in (True, where)
    )


def own_of_processes(groups: Iterable[type[OptionGroup]]) -> frozenset[str]:
    """Return the options of `groups` that may differ from process to process of a run."""
    return frozenset(
        entry.name for group in groups for entry in declared(group) if entry.option.each_process
    )


def as_flags(text: str, flags: Mapping[str, str]) -> str:
    """Return an option's text as ``--help`` writes it: names of other options become their `flags`,
    and code loses its backticks."""
    text = text.replace("``", "")
    return re.sub(r"`(\w+)`", lambda match: flags.get(match[1], match[1]), text)
