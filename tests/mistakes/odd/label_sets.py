"""Any number of labels in each row: lists of many types and spellings, 0 or 1 for each, a column
each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bertine.data.examples import Examples
from bertine.data.label_sets import labels_in, read_label_sets
from bertine.datasets.check import check_data
from bertine.datasets.own_data import read_for
from bertine.options.data import DataConfig
from bertine.tasks.multi_label import MultiLabel
from mistakes.odd.containers import CONTAINERS
from mistakes.odd_files import Answer, Case

SETS: tuple[tuple[str, ...], ...] = (
    ("a b", "c"),
    ("c",),
    ("d", "a b"),
    ("e",),
    ("a b",),
    ("d", "c", "e"),
)
ALL = ("a b", "c", "d", "e")


def _bits(labels: Sequence[str], yes: Any = 1, no: Any = 0) -> list[Any]:
    return [yes if name in labels else no for name in ALL]


FORMS: dict[str, Callable[[Sequence[str]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozen set": frozenset,
    "array": np.array,
    "list of numpy's texts": lambda ls: [np.str_(name) for name in ls],
    "dictionary of keys": lambda ls: dict.fromkeys(ls, 1),
    "JSON": json.dumps,
    "repr": lambda ls: repr([*ls]),
    "repr of a tuple": lambda ls: repr(tuple(ls)),
    "repr of a set": lambda ls: repr(set(ls)),
    "repr of an array": lambda ls: repr(np.array(ls)),
    "text of an array": lambda ls: str(np.array(ls)),
    "comma": ",".join,
    "comma and blank": ", ".join,
    "semicolon": ";".join,
    "pipe": "|".join,
    "pipe and blanks": " | ".join,
    "slash": "/".join,
    "plus": "+".join,
    "lines": "\n".join,
    "tabs": "\t".join,
    "double pipe": "||".join,
    "Chinese comma": "、".join,
    "and": " and ".join,
    "pipe at the end": lambda ls: "|".join(ls) + "|",
    "pipes around": lambda ls: f"|{'|'.join(ls)}|",
    "twice": lambda ls: "|".join([*ls, ls[0]]),
    "in another order": lambda ls: "|".join(ls[::-1]),
    "one-hot": _bits,
    "one-hot floats": lambda ls: _bits(ls, 1.0, 0.0),
    "one-hot truth": lambda ls: _bits(ls, True, False),
    "one-hot array": lambda ls: np.array(_bits(ls)),
    "one-hot tuple": lambda ls: tuple(_bits(ls)),
    "one-hot text": lambda ls: str(_bits(ls)),
    "one-hot blanks": lambda ls: " ".join(map(str, _bits(ls))),
    "one-hot commas": lambda ls: ",".join(map(str, _bits(ls))),
    "one-hot digits": lambda ls: "".join(map(str, _bits(ls))),
    "one-hot bytes": lambda ls: bytes(_bits(ls)),
    "one-hot of -1": lambda ls: _bits(ls, 1, -1),
    "dictionary of 0 and 1": lambda ls: dict(zip(ALL, _bits(ls), strict=True)),
    "dictionary of truth": lambda ls: dict(zip(ALL, _bits(ls, True, False), strict=True)),
    "dictionary of probabilities": lambda ls: dict(zip(ALL, _bits(ls, 0.9, 0.1), strict=True)),
    "JSON of a dictionary": lambda ls: json.dumps(dict(zip(ALL, _bits(ls), strict=True))),
    "list of dictionaries": lambda ls: [{"label": name} for name in ls],
    "lists in a list": lambda ls: [[name] for name in ls],
    "generator": lambda ls: (name for name in ls),
}
_CELLS: dict[str, tuple[Any, Any]] = {
    "0 and 1": (1, 0),
    "texts 0 and 1": ("1", "0"),
    "floats": (1.0, 0.0),
    "truth": (True, False),
    "texts of truth": ("True", "False"),
    "TRUE": ("TRUE", "FALSE"),
    "yes and no": ("yes", "no"),
    "x and empty": ("x", ""),
    "1 and empty": ("1", ""),
    "1 and nothing": (1, None),
    "probabilities": (0.9, 0.1),
    "1 and -1": (1, -1),
    "2 and 0": (2, 0),
    "numpy": (np.int8(1), np.int8(0)),
    "blanks": (" 1 ", " 0"),
    "1 and nan": (1.0, float("nan")),
}


def draw_several(draw: Random, folder: Path) -> Case:
    """Draw a table with any number of labels in each row."""
    container = draw.choice([*CONTAINERS])
    rows = draw.choice((6, 12, 60))
    texts = [f"the text {number}" for number in range(rows)]
    sets = [SETS[number % len(SETS)] for number in range(rows)]
    bare = draw.random() < 0.2
    own_columns = draw.random() < 0.3
    form = draw.choice([*_CELLS] if own_columns else [*FORMS])
    if form == "generator":  # is in no file
        container = "rows"
    if bare and (own_columns or form in ("list", "JSON", "one-hot", "comma", "set", "tuple")):
        sets[1] = ()
    clean = [(text, frozenset(labels)) for text, labels in zip(texts, sets, strict=True)]
    choices = {
        "kind": f"several, {'a column each, ' * own_columns}{form}",
        "container": container,
        "rows": str(rows),
        "bare": str(bare),
    }

    def columns() -> dict[str, list[Any]]:
        if not own_columns:
            return {"text": texts, "labels": [FORMS[form](labels) for labels in sets]}
        yes, no = _CELLS[form]
        return {"text": texts} | {n: [yes if n in s else no for s in sets] for n in ALL}

    def read() -> Answer:
        source = CONTAINERS[container](folder, columns())
        config = DataConfig(label_columns=ALL if own_columns else None)
        examples, separator = read_label_sets(source, config)
        notes = [
            *check_data(MultiLabel, examples, Examples("", (), None)).findings,
            *examples.notes,
        ]
        trained = [(item.texts[0], frozenset(labels_in(item.label))) for item in examples.items]
        judged: Any
        hot = bool(examples.class_names)
        judge = MultiLabel(
            ALL,
            ("text",),
            None if own_columns else "labels",
            16,
            separator=separator,
            one_column_each=own_columns,
            one_hot=hot,
        )
        try:
            again = read_for(
                judge, source if not own_columns else CONTAINERS[container](folder, columns())
            )
            for item in again.items:
                judge.target(item.label, again.source, item.line)
            judged = [(item.texts[0], frozenset(labels_in(item.label))) for item in again.items]
            notes += again.notes
        except Exception as error:
            if type(error).__name__ != "BertineError":
                raise
            judged = None
        return Answer((trained, judged), notes)

    def alike(odd: Any, clean: Any) -> bool:
        return odd[0] == clean and odd[1] in (None, clean)

    return Case(choices, read, clean, alike)
