"""Texts from outside on their way to a terminal: what could move its cursor, turn the direction of
writing or fill it is shown as an escape, or cut.

File names, labels, texts and error messages that quote them all pass through here before they are
printed (:mod:`bertine.terminal.console`, :mod:`bertine.cli`, :mod:`bertine.system.process`). What
is written to a file or a pipe does not.
"""

from __future__ import annotations

import codecs
import json
import re

#: What ends a line, moves the cursor, turns the direction of writing, or is half a character.
_CONTROL_CHARACTERS = (
    "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
)
_CONTROL = re.compile(f"[{_CONTROL_CHARACTERS}]")
_CONTROL_IN_LINES = re.compile(f"(?![\n\t])[{_CONTROL_CHARACTERS}]")
#: How an encoding writes what it lacks (``open(…, errors=ESCAPED)``): as JSON does, so that JSON
#: stays JSON.
ESCAPED = "bertine.escaped"
#: Characters of one message; of a longer one the middle is left out.
_LONGEST_MESSAGE = 4000


def visible(text: str) -> str:
    """Return a text from outside, such as a label or a file name, for one line of the terminal:
    line breaks and other control characters escaped, as in "a\\nb"."""
    return _CONTROL.sub(_escape, text)


def printable(text: str) -> str:
    """Return lines for the terminal that may hold texts from outside: control characters escaped,
    but for line breaks and tabs."""
    return _CONTROL_IN_LINES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _escape_lacking(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(ESCAPED, _escape_lacking)


def shortened(text: str, limit: int = _LONGEST_MESSAGE) -> str:
    """Return `text`; where it has more than `limit` characters, its beginning and end alone."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … ({len(text) - 2 * half:,} characters left out) … {text[-half:]}"


def one_line(message: object) -> str:
    """Return a message as one line of bounded length, every control character in it shown."""
    # Cut before anything is searched in it: a message may quote a line of many megabytes.
    return visible(" ".join(shortened(str(message)).split()))


def briefly(value: object, limit: int = 80) -> str:
    """Return a value from outside for a message: as Python writes it, its beginning where it is
    long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
