"""Words of plain text, for models that tag words.

Tagged corpora are in words already; this is for text that is not. Roughly as those corpora have
it: what white space separates, with punctuation at its ends apart, and ``'s``; Chinese characters
one by one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_RUN = re.compile(r"\S+")
#: Chinese characters as BERT's published tokenizer sets them apart, the rare planes included.
_CHINESE = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f]"
)
_POSSESSIVE = re.compile(r"['\u2019][sS]$")
#: What begins a word of social media and stays with it: @name, #topic.
_MARKS = "@#"


def split_words(text: str) -> list[tuple[int, int]]:
    """Find the words of `text` in their order: begin and end of each, in characters."""
    words: list[tuple[int, int]] = []
    for run in _RUN.finditer(text):
        begin = run.start()
        for match in _CHINESE.finditer(text, begin, run.end()):
            words.extend(_parts(text, begin, match.start()))
            words.append(match.span())
            begin = match.end()
        words.extend(_parts(text, begin, run.end()))
    return words


def _parts(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a run without white space and Chinese characters: punctuation, word, ending,
    punctuation."""
    start, stop = begin, end
    while start < stop and _is_mark(text[start]):
        if text[start] in _MARKS and start + 1 < stop and not _is_mark(text[start + 1]):
            break
        start += 1
    while stop > start and _is_mark(text[stop - 1]):
        stop -= 1
    yield from _equal_runs(text, begin, start)
    if start < stop:
        ending = _POSSESSIVE.search(text[start:stop])
        cut = start + ending.start() if ending and ending.start() else stop
        yield start, cut
        if cut < stop:
            yield cut, stop
    yield from _equal_runs(text, stop, end)


def _equal_runs(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Split punctuation, sign by sign; equal ones in a row ("...") are one word."""
    while begin < end:
        after = begin + 1
        while after < end and text[after] == text[begin]:
            after += 1
        yield begin, after
        begin = after


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
