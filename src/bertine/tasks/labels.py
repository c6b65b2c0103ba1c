"""Labels of a task: their numbers; in messages one that is not known, several that are the same
number."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bertine.errors import BertineError
from bertine.terminal.console import visible_list

#: So many labels are named in a message.
_SHOWN = 20


def check_labels(task: str, labels: Sequence[str], what: str = "label") -> None:
    """Refuse fewer than two labels, and one that is there twice.

    Raises:
        BertineError: they are such.
    """
    counts = Counter(labels)
    if len(counts) < 2:
        raise BertineError(f"{task} needs at least two {what}s, but got {sorted(counts)}")
    if len(counts) < len(labels):
        twice = next(name for name, number in counts.items() if number > 1)
        raise BertineError(f"the {what} {twice!r} is given twice")


def label_id(label: str, ids: Mapping[str, int], where: str) -> int:
    """Return the number of `label`.

    Raises:
        BertineError: it is none of the labels; begins with `where`.
    """
    if label not in ids:
        raise BertineError(f"{where}: unknown label {label!r}{known_labels(label, [*ids])}")
    return ids[label]


def known_labels(label: str, labels: Sequence[str]) -> str:
    """Write the end of the message for a `label` that is none of `labels`: the one that may be
    meant (the same number, as 1.0 is 1, or a similar text), and the first of all."""
    number = _number(label)
    same = [name for name in labels if number is not None and _number(name) == number]
    near = same or difflib.get_close_matches(label, labels, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    more = ", …" if len(labels) > _SHOWN else ""
    return f"{hint}; the known ones are {visible_list(labels[:_SHOWN])}{more}"


def same_numbers(labels: Iterable[str]) -> list[tuple[str, str]]:
    """Find pairs of labels that are written differently and are the same number, such as 1 and 1.0:
    a column with gaps is one of floats to some programs."""
    first: dict[float, str] = {}
    pairs = []
    for label in sorted(labels, key=lambda label: (len(label), label)):
        number = _number(label)
        if number is None:
            continue
        if number in first:
            pairs.append((first[number], label))
        else:
            first[number] = label
    return pairs


def _number(label: str) -> float | None:
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
