"""What labels are in programs: the types of their values, and what stands among them."""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Grade = enum.Enum("Grade", ("good", "bad", "fine"))
Number = enum.IntEnum("Number", ("one", "two", "three"))


class Word(enum.StrEnum):
    """Labels that are strings and more."""

    good = "good"
    bad = "bad"
    fine = "fine"


class Missing:
    """As the NA of pandas: compared with anything it is neither."""

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "<NA>"


Missing.__name__ = "NAType"
DAYS = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
NAMES, NUMBERS = ("good", "bad", "fine"), ("0", "1", "2")
#: By what is written: the labels of the clean twin, and the same three as somebody has them.
TYPES: dict[str, tuple[Sequence[str], Sequence[Any]]] = {
    "text": (NAMES, NAMES),
    "text of numpy": (NAMES, [np.str_(name) for name in NAMES]),
    "bytes": (NAMES, [name.encode() for name in NAMES]),
    "blanks around": (NAMES, ["good ", " bad", "\tfine\n"]),
    "no-break space": (NAMES, ["good\xa0", "\xa0bad", "fine"]),
    "zero-width space": (NAMES, ["good\u200b", "bad", "fine"]),
    "byte order mark": (NAMES, ["\ufeffgood", "bad", "fine"]),
    "whole numbers": (NUMBERS, [0, 1, 2]),
    "texts of numbers": (NUMBERS, ["0", "1", "2"]),
    "zeros before": (NUMBERS, ["00", "01", "02"]),
    "plus sign": (NUMBERS, ["+0", "+1", "+2"]),
    "numbers of numpy": (NUMBERS, [*np.arange(3)]),
    "floats": (NUMBERS, [0.0, 1.0, 2.0]),
    "floats of numpy": (NUMBERS, [*np.arange(3, dtype=np.float32)]),
    "decimals": (NUMBERS, [decimal.Decimal(n) for n in range(3)]),
    "truth values": (("true", "false"), [True, False]),
    "truth values of numpy": (("true", "false"), [np.True_, np.False_]),
    "texts of truth values": (("true", "false"), ["True", "False"]),
    "truth values in capitals": (("true", "false"), ["TRUE", "FALSE"]),
    "zero-dimensional arrays": (NUMBERS, [np.array(n) for n in range(3)]),
    "enum": (NAMES, [*Grade]),
    "enum of numbers": (("1", "2", "3"), [*Number]),
    "enum of texts": (NAMES, [*Word]),
    "dates": ([str(day) for day in DAYS], DAYS),
    "times": ([str(d) for d in DAYS], [datetime.datetime(d.year, d.month, d.day) for d in DAYS]),
    "dates of numpy": ([str(day) for day in DAYS], [np.datetime64(day) for day in DAYS]),
    "one in a list": (NAMES, [[name] for name in NAMES]),
    "one in a tuple": (NAMES, [(name,) for name in NAMES]),
    "one in a set": (NAMES, [{name} for name in NAMES]),
    "a frozen set": (NAMES, [frozenset((name,)) for name in NAMES]),
    "one in an array": (NAMES, [np.array([name]) for name in NAMES]),
    "one in a text of a list": (NAMES, [f"['{name}']" for name in NAMES]),
    "one-hot": (NUMBERS, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    "dictionary of one": (NAMES, [{"label": name} for name in NAMES]),
    "probabilities": (NAMES, [{n: 0.8 if n == name else 0.1 for n in NAMES} for name in NAMES]),
    "complex": (NUMBERS, [0j, 1 + 0j, 2 + 0j]),
    "ranges": (NUMBERS, [range(n) for n in range(3)]),
    "none": (NUMBERS, [None, None, None]),
}
#: In some rows of a column, in the place of a label; a missing one.
STRAY: dict[str, Callable[[Any, str], Any]] = {
    "nothing": lambda value, name: None,
    "nan": lambda value, name: float("nan"),
    "nan of numpy": lambda value, name: np.float64("nan"),
    "NA": lambda value, name: Missing(),
    "NaT": lambda value, name: np.datetime64("NaT"),
    "empty": lambda value, name: "",
    "blank": lambda value, name: "  ",
    "text nan": lambda value, name: "nan",
    "text None": lambda value, name: "None",
    "text null": lambda value, name: "null",
    "text NA": lambda value, name: "N/A",
    "text dash": lambda value, name: "-",
    "-1": lambda value, name: -1,
    "as a text": lambda value, name: name,
    "as a float": lambda value, name: float(name) if name.isdigit() else name,
    "as a truth value": lambda value, name: name == "1" if name in "01" else value,
    "in capitals": lambda value, name: name.upper(),
    "with a blank": lambda value, name: name + " ",
    "in a list": lambda value, name: [name],
    "infinity": lambda value, name: float("inf"),
}
GONE = (
    "nothing",
    "nan",
    "nan of numpy",
    "NA",
    "NaT",
    "empty",
    "blank",
    "text nan",
    "text None",
    "text null",
    "text NA",
)
#: Labels of their own, whatever else they may mean somewhere.
OWN = {"text dash": "-", "-1": "-1", "infinity": "inf"}
#: In columns of these types there may be something else in some rows.
NATURAL = (
    "text",
    "whole numbers",
    "numbers of numpy",
    "texts of numbers",
    "floats",
    "truth values",
    "texts of truth values",
    "dates",
    "blanks around",
)


def alike_or_renamed(odd: Any, clean: Any) -> bool:
    """Tell whether the labels of training are one for one those of the twin, and a model of the
    twin is judged by the same, or refuses."""
    trained, judged = odd
    if [text for text, _ in trained] != [text for text, _ in clean]:
        return False
    pairs = {(label, twin) for (_, label), (_, twin) in zip(trained, clean, strict=True)}
    one_for_one = len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    return one_for_one and judged in (None, clean)
