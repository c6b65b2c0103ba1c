"""Find text that was encoded twice: UTF-8 that a program read in another encoding and wrote as
UTF-8 again, ``GrÃ¼ÃŸe`` for ``Grüße``.

Every byte is valid, so no decoder objects. A word counts if undoing the second encoding gives
letters that some language uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bertine.tables.alphabets import ENCODINGS
from bertine.terminal.console import counted
from bertine.terminal.text import briefly

#: The encodings that UTF-8 was read in.
_CODECS = ("cp1252", "cp1250", "cp1251", "mac-roman")
#: Signs that stand behind a capital or a root: one such pair in a word says nothing.
_BEHIND = "…”’“‘»«›‹•≤≥®"
#: What stands in formulas, and would be ù in Mac Roman.
_FORMULA = "√π"
#: First bytes of the characters beyond ASCII, and those that go on with them.
_FIRST, _FURTHER = range(0xC2, 0xF5), range(0x80, 0xC0)
#: So many places of a text are tried: of one that was encoded twice, the first are such words.
_TRIED = 1000
#: Characters of a word that are looked at, before and behind.
_LONGEST = 100
_WORD = re.compile(r"[^\x00-\x20]+")


def _bytes_of(codec: str) -> Mapping[str, int]:
    """Return the bytes of the characters of an encoding; those that it lacks are kept as they are,
    as programs do."""
    shown = ((byte, bytes([byte]).decode(codec, "ignore")) for byte in range(256))
    latin = {chr(byte): byte for byte in range(0x80, 0xA0)} if codec == "cp1252" else {}
    return latin | {character: byte for byte, character in shown if character}


_TABLES = {codec: _bytes_of(codec) for codec in _CODECS}


def _pair(table: Mapping[str, int]) -> str:
    first, further = (
        re.escape("".join(c for c, byte in table.items() if byte in wanted))
        for wanted in (_FIRST, _FURTHER)
    )
    return f"[{first}][{further}]"


_SUSPECT = re.compile("|".join(_pair(table) for table in _TABLES.values()))
_LETTERS = {c for encoding in ENCODINGS for c in encoding.usual + encoding.usual.upper()}


def twice_encoded(text: str) -> tuple[str, str] | None:
    """Return the first word of a text that was encoded twice, and what it was before; None: there
    is none."""
    if text.isascii():
        return None
    at = 0
    for _ in range(_TRIED):
        suspect = _SUSPECT.search(text, at)
        if suspect is None:
            break
        # The word may begin before the two characters, of which none is a blank.
        start = max(0, suspect.start() - _LONGEST)
        words = _WORD.finditer(text, start, suspect.end() + _LONGEST)
        word = next(word for word in words if word.end() > suspect.start())
        if before := _undone(word[0]):
            return word[0], before
        at = max(word.end(), suspect.end())
    return None


def _may_be_meant(pair: re.Match[str]) -> bool:
    """Tell whether two characters are a letter or a root, and a sign behind it that ends a word."""
    inside = pair.string[pair.start() - 1 : pair.start()], pair.string[pair.end() : pair.end() + 1]
    return pair[0][1] in _BEHIND and not all(map(str.isalpha, inside))


def _undone(word: str) -> str | None:
    """Return a word as it was before; None: it was not encoded twice."""
    pairs = [*_SUSPECT.finditer(word.replace(_FORMULA, ""))]
    if not pairs or (len(pairs) == 1 and _may_be_meant(pairs[0])):
        return None
    for codec, table in _TABLES.items():
        try:
            before = bytes(ord(c) if c < "\x80" else table[c] for c in word).decode("utf-8")
        except (KeyError, UnicodeDecodeError):
            continue
        usual = all(c.isascii() or c in _LETTERS or c >= "\u0900" for c in before)
        # Elsewhere two letters may stand together that are one such character.
        if usual and (codec == "cp1252" or sum(map(str.isalpha, before)) > 1):
            return before
    return None


def twice_note(unit: str, count: int, word: str, before: str) -> str:
    """Say that so many rows or documents hold text that was encoded twice, such as `word`."""
    return (
        f"{counted(count, unit, 'holds', 'hold')} text that was encoded twice ({briefly(word)} "
        f"for {briefly(before)}), and is read as it stands; mend the file, as ftfy does"
    )
