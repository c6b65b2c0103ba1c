"""The words of GPT-1's published code: texts mended by `ftfy`, made uniform, divided by `spaCy`'s
rules for English, lower-cased (openai/finetune-transformer-lm, ``text_utils.py``).

Both packages are optional (the extra ``gpt``); spaCy's rules need no model of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

#: Characters that are written in another way.
_UNIFORM = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
#: Runs of one mark, each of which stands by itself.
_MARKS = re.compile(r'([-~!";?+,)(\\/*\[\]}{|_])\1*')
_LINES = re.compile(r"\s*\n\s*")
_SPACES = re.compile(r"[^\S\n]+")
#: How far ahead of the last character the next one is looked for.
_AHEAD = 16


def has_exact_words() -> bool:
    """Tell whether both packages are installed."""
    return find_spec("ftfy") is not None and find_spec("spacy") is not None


@lru_cache(1)
def _english() -> Any:
    """Return spaCy's tokenizer for English, which takes a second."""
    import spacy

    return spacy.blank("en").tokenizer


def uniform(text: str) -> str:
    """Return `text` with dashes, dots and white space written in one way, and runs of marks
    between spaces (``text_standardize``)."""
    text = _MARKS.sub(lambda match: f" {match[0]} ", text.translate(_UNIFORM))
    return _SPACES.sub(" ", _LINES.sub(" \n ", text)).strip()


def exact_words(text: str) -> list[str]:
    """Divide a text into lower-cased words; a line's end is one too."""
    import ftfy

    words = (str(word.text).lower() for word in _english()(uniform(ftfy.fix_text(text))))
    # spaCy leaves the space behind a line's end with it; the published code has the same exception
    # where it divides words into pieces.
    return ["\n" if word == "\n " else word for word in words]


def places(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Find the characters of `words` in the text that they are from.

    The words are not all written as there, so each character is the next one that is alike, not
    far behind the last one; one without any is where the last one ended.

    Returns:
        For each character of the words, one after the other, its (begin, end) in `text`.
    """
    spans, cursor = [], 0
    for character in "".join(words):
        ahead = text[cursor : cursor + _AHEAD]
        at = next((n for n, other in enumerate(ahead) if character in other.lower()), None)
        if at is None:
            spans.append((cursor, cursor))
        else:
            spans.append((cursor + at, cursor + at + 1))
            cursor += at + 1
    return spans
