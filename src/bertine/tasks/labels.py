"""The labels of a task: their numbers, and the message about one that is none of them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from bertine.errors import BertineError

#: How many of the known ones a message names.
_SHOWN = 20


def label_ids(task: str, labels: Sequence[str], what: str = "label") -> dict[str, int]:
    """Each of `labels` with its number, from 0 on.

    Raises:
        BertineError: there are fewer than two, or one is given twice.
    """
    ids = {label: index for index, label in enumerate(labels)}
    if len(ids) < 2:
        raise BertineError(f"{task} needs at least two {what}s, but got {sorted(ids)}")
    if len(ids) < len(labels):
        twice = next(name for name, number in Counter(labels).items() if number > 1)
        raise BertineError(f"the {what} {twice!r} is given twice")
    return ids


def unknown(what: str, label: str, labels: Sequence[str]) -> str:
    """ "unknown label 'jou' (did you mean 'joy'?); the known ones are joy, love"; `what` is
    ``label 'jou'``."""
    near = difflib.get_close_matches(label, labels, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    known = ", ".join(labels[:_SHOWN]) + (", …" if len(labels) > _SHOWN else "")
    return f"unknown {what}{hint}; the known ones are {known}"
