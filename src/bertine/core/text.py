"""Make outside text safe to print: escape or cut what could harm a terminal.

Names of files, labels, texts and error messages that quote them pass through here before they are
printed; what is written to a file or a pipe does not. Imports nothing heavy, for ``--help``.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

#: Characters that end a line, move the cursor or change the writing direction, and surrogates.
_CONTROL_CHARACTERS = (
    "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
)


_CONTROL = re.compile(f"[{_CONTROL_CHARACTERS}]")


_CONTROL_IN_LINES = re.compile(f"(?![\n\t])[{_CONTROL_CHARACTERS}]")


#: Error handler for characters that an encoding lacks (``open(…, errors=ESCAPED)``): it escapes
#: them as JSON does, so that JSON stays valid.
ESCAPED = "bertine.escaped"


#: Most characters of one message; the middle of a longer one is left out.
_LONGEST_MESSAGE = 4000


def visible(text: str) -> str:
    """Escape line breaks and other control characters in outside text, such as a label or a file
    name, so that it fits on one terminal line: "a\\nb"."""
    return _CONTROL.sub(_escape, text)


def printable(text: str) -> str:
    """Escape control characters, except line breaks and tabs, in lines that may hold outside
    text."""
    return _CONTROL_IN_LINES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _escape_lacking(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def shortened(text: str, limit: int = _LONGEST_MESSAGE) -> str:
    """Return `text`; keep only its beginning and end if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … ({len(text) - 2 * half:,} characters left out) … {text[-half:]}"


def listing(words: Sequence[str]) -> str:
    """Join words as a sentence does: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


class Index(int):
    """The number of a row in memory, from 0 on, as Python counts; the lines and rows of files are
    counted from 1 on, and 0 is an unknown one."""

    def __bool__(self) -> bool:
        return True


def row_at(source: object, number: int) -> str:
    """Return the place of a row: "train.csv:17" in a file, "data[16]" in memory."""
    return f"{source}[{number}]" if isinstance(number, Index) else f"{source}:{number}"


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis for the rest."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def number_in(value: Any) -> float:
    """Return the number that an outside value says, such as "1e-3"; NaN if it says none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_number(text: str | bytes) -> bool:
    """Return whether a text is written as a number, which may be "nan"."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def exact_rate(rate: float) -> str:
    """Format a learning rate as papers do, ``3e-5``, with all its digits, so that different rates
    give different texts."""
    return f"{Decimal(repr(rate)):e}" if 0 < rate < 0.01 else repr(rate)


def one_line(message: object) -> str:
    """Return a message as one line of bounded length, with control characters escaped."""
    # Cut first, search later: a message may quote a line of many megabytes.
    return visible(" ".join(shortened(str(message)).split()))


def briefly(value: object, limit: int = 80) -> str:
    """Return the ``repr`` of an outside value for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


codecs.register_error(ESCAPED, _escape_lacking)
