"""ROUGE-1, -2 and -L, by which summaries are scored (Lin 2004), as the field computes them today
(google-research, ``rouge_score``, without stemming).

Texts are lower-cased, and what is neither a-z nor a digit parts words: letters of other alphabets
count as nothing. Where most letters to be written are such letters, that says nothing; then words
are those of all alphabets, and each Chinese, Japanese or Thai character is one, since nothing parts
their words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_PUBLISHED = re.compile(r"[a-z0-9]+")
#: Characters of scripts without spaces between words: Thai, Lao and Burmese; kana and Chinese.
_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u3005-\u3007\u3041-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003fffd"
)
_ALL = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_LETTERS = re.compile(r"[^\W\d_]")


def rouge_words(text: str, *, all_alphabets: bool = False) -> list[str]:
    """Return the words of a text that count: those of a-z and digits, or those of all alphabets."""
    return (_ALL if all_alphabets else _PUBLISHED).findall(text.lower())


def needs_all_alphabets(wanted: Sequence[str]) -> bool:
    """Tell whether most letters of the texts to be written are not among a to z."""
    letters = [letter for text in wanted for letter in _LETTERS.findall(text)]
    return 2 * sum("a" <= letter.lower() <= "z" for letter in letters) < len(letters)


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
