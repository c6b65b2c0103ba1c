"""ROUGE-1, -2 and -L, by which summaries are scored (Lin 2004), as the field computes them today
(google-research, ``rouge_score``, without stemming).

Texts are lower-cased, and what is neither a-z nor a digit parts words: letters of other alphabets
count as nothing, so of texts in these the scores say nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_OTHERS = re.compile(r"[^a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Return the words of a text that count."""
    return _OTHERS.sub(" ", text.lower()).split()


def rouge_n(ours: Sequence[str], wanted: Sequence[str], n: int) -> float:
    """Return the F1 of the runs of `n` words that two texts have in common, each as often as in
    both."""
    first, second = _runs(ours, n), _runs(wanted, n)
    return _f1((first & second).total(), first.total(), second.total())


def rouge_l(ours: Sequence[str], wanted: Sequence[str]) -> float:
    """Return the F1 of the longest sequence of words that both texts have in this order."""
    return _f1(longest_common(ours, wanted), len(ours), len(wanted))


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by the bits of one number for a row of
    the table (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(first)) - 1
    row = full
    for word in second:
        same = row & places.get(word, 0)
        row = ((row + same) | (row - same)) & full
    return len(first) - row.bit_count()


def _runs(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _f1(common: int, ours: int, wanted: int) -> float:
    return 2.0 * common / (ours + wanted) if common else 0.0
