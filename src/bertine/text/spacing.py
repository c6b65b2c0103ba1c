"""Remove the spaces that joining pieces or words puts between Chinese characters.

Chinese and Japanese are written without spaces; a tokenizer's pieces, and the words of a column
file, come apart. Numbers and Latin words among the characters stay apart, as they are often
printed.
"""

from __future__ import annotations

import re

#: Ideographs, kana and bopomofo.
_CHARACTERS = (
    "\u3005-\u3007\u3041-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003fffd"
)
#: Full-width punctuation, which has its space in itself.
_FULL_WIDTH = (
    "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
#: Marks of all scripts: quotes, brackets (of "[MASK]", too), dashes.
_MARKS = r"\u2018\u2019\u201c\u201d\u2026\u2014\u00b7()\[\]<>\"'/"
_EXTRA_SPACE = re.compile(
    f"(?<=[{_FULL_WIDTH}]) +| +(?=[{_FULL_WIDTH}])"
    f"|(?<=[{_CHARACTERS}]) +(?=[{_CHARACTERS}{_MARKS}])"
    f"|(?<=[{_MARKS}]) +(?=[{_CHARACTERS}])"
)


def close_up(text: str) -> str:
    """Join the Chinese and Japanese characters of a text made of pieces or words.

    Args:
        text: pieces or words with spaces between them: ``"在 2019 年 ， 北 京"`` becomes
            ``"在 2019 年，北京"``.
    """
    return _EXTRA_SPACE.sub("", text)


def close_up_places(text: str) -> tuple[str, list[int]]:
    """Do the same, and find each character again.

    Returns:
        The text, and for each place in the given one, its end included, the place in the new one.
    """
    places: list[int] = []
    gone = passed = 0
    for space in _EXTRA_SPACE.finditer(text):
        places += range(passed - gone, space.start() - gone)
        places += [space.start() - gone] * (space.end() - space.start())
        gone += space.end() - space.start()
        passed = space.end()
    places += range(passed - gone, len(text) - gone + 1)
    return close_up(text), places
