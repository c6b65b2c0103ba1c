"""Split text into the words that have vectors."""

from __future__ import annotations

import re

#: Ideographs and kana, which are words by themselves: no spaces stand between them.
_CHARACTERS = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_INSIDE = rf"[^\W{_CHARACTERS}]+"
_WORD = re.compile(rf"[{_CHARACTERS}]|{_INSIDE}(?:['\u2019]{_INSIDE})*")


def words_of(text: str, *, lowercase: bool) -> list[str]:
    """Return the words of `text`: runs of letters, digits and ``_``, apostrophes between them
    included; each Chinese character and each kana by itself. Marks are left out."""
    return _WORD.findall(text.lower() if lowercase else text)
