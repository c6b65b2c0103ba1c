"""Rows as numbers, by which a model directory knows those that the model was trained on, in
whatever order, part or file they come back.

A number is a hash of 32 bits of the texts of a row: blanks, case, and which text of a pair comes
first make no difference, and the label none. Where ten thousand rows are known, another one is
taken for one of them once in 400,000 times.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

#: The key of the facts of a training. It holds the rows of this one, and those of the models that
#: it began as or learned from.
ROWS = "rows"
_OWN, _BEFORE = "own", "before"
#: The setting of a run that has how many rows are known of the models that it begins with; absent:
#: none, or an earlier Bertine began the run, which held out whatever rows.
KNOWN = "known_rows"
#: Of more rows than that the numbers are not kept.
_MOST = 2_000_000
#: Up to this share of rows is no word worth: single texts come twice in many files.
_SHARE = 0.05


Unit = TypeVar("Unit", bound=Hashable)


def text_key(item: Any) -> tuple[str, ...]:
    """Return what texts that read the same have in common."""
    return tuple(" ".join(text.split()).casefold() for text in item.texts)


def row_number(item: Any) -> int:
    """Return the number of a row with ``texts``."""
    key = repr(sorted(text_key(item))).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "little")


def row_numbers(items: Iterable[Any]) -> frozenset[int]:
    """Return the numbers of rows."""
    return frozenset(map(row_number, items))


def rows_as_facts(own: Collection[int], before: Collection[int] = ()) -> dict[str, Any]:
    """Return what ``bertine.json`` keeps, under `ROWS`, of the rows that a model was trained on;
    nothing of millions.

    Args:
        own: the numbers of the rows of this training.
        before: those of the models that it began as or learned from.
    """
    named = {_OWN: own, _BEFORE: before}
    return {name: _written(rows) for name, rows in named.items() if 0 < len(rows) <= _MOST}


def rows_in_facts(facts: Mapping[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
    """Read from the facts of a training the rows of this one, and those of the models before;
    none where they are damaged or not there."""
    kept = facts.get(ROWS)
    kept = kept if isinstance(kept, Mapping) else {}
    return _read(kept.get(_OWN)), _read(kept.get(_BEFORE))


def _written(rows: Collection[int]) -> str:
    return base64.b64encode(np.array(sorted(rows), dtype="<u4").tobytes()).decode()


def _read(written: Any) -> frozenset[int]:
    try:
        raw = base64.b64decode(written, validate=True)
        return frozenset(np.frombuffer(raw, dtype="<u4").tolist())
    except (TypeError, ValueError, binascii.Error):
        return frozenset()


def staying(units: Mapping[Unit, Sequence[Any]], known: Collection[int], wanted: int) -> set[Unit]:
    """Return which units of rows, such as documents, are not to be held out, as one of their rows
    is known; none where the others have fewer than half of the rows that are wanted."""
    if not known:
        return set()
    stay = {name for name, rows in units.items() if any(row_number(row) in known for row in rows)}
    others = sum(len(rows) for name, rows in units.items() if name not in stay)
    return stay if 2 * others >= wanted else set()


def count_known(items: Iterable[Any], known: Collection[int]) -> int:
    """Count the rows whose numbers are `known`; 0 of few."""
    return share_of([row_number(item) for item in items] if known else [], known)


def share_of(numbers: Sequence[int], known: Collection[int]) -> int:
    """Count the numbers that are `known`; 0 of few."""
    count = sum(number in known for number in numbers)
    return count if count > _SHARE * len(numbers) else 0
