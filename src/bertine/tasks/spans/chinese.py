"""Exact match and F1 of Chinese answers, by the rules of CMRC 2018.

Cui et al. 2019 (arXiv 1810.07366, section 4), and ``cmrc2018_evaluate.py`` (v5), which it came
with. Chinese is written without spaces, so that by SQuAD's rules, which compare words, every answer
would be one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CHINESE = re.compile("[\u4e00-\u9fa5]")
#: Syllables of Japanese, and of Korean: whoever writes them too does not write Chinese.
_OTHERS = re.compile("[\u3040-\u30ff\uac00-\ud7a3]")
#: What is compared is without these.
_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
#: A Chinese character, or a run of others.
_RUNS = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")
#: What is a unit by itself in such a run, as in the published script, which has NLTK's tokenizer of
#: English for it. Left out: its shortened words (don't).
_MARKS = re.compile(r"""[;@#$%&?!()\[\]{}<>"–—]|,(?!\d)|(?<!\.)\.\s*$""")


def mostly_chinese(answers: Iterable[str]) -> bool:
    """Say whether more than half of `answers` have a Chinese character, and none a syllable of
    Japanese or Korean but for a tenth of them."""
    texts = list(answers)
    chinese = sum(bool(_CHINESE.search(text)) for text in texts)
    others = sum(bool(_OTHERS.search(text)) for text in texts)
    return 2 * chinese > len(texts) and 10 * others <= len(texts)


def without_punctuation(text: str) -> str:
    """Return `text` in lower case, without the punctuation that does not count."""
    return text.lower().strip().translate(_PUNCTUATION)


def units(text: str) -> list[str]:
    """Divide `text` into what is compared: each Chinese character by itself, others by words."""
    runs = _RUNS.findall(without_punctuation(text))
    return [unit for run in runs for unit in _MARKS.sub(r" \g<0> ", run).split()]


def exact_match(guess: str, gold: str) -> float:
    """Return 1 if the two are the same but for case and punctuation, else 0."""
    return float(without_punctuation(guess) == without_punctuation(gold))


def f1(guess: str, gold: str) -> float:
    """Compute the F1 of the longest run of units that both answers have; 0 where there is none."""
    guessed, true = units(guess), units(gold)
    same = _longest_common_run(guessed, true)
    return 2 * same / (len(guessed) + len(true)) if same else 0.0


def _longest_common_run(first: list[str], second: list[str]) -> int:
    longest, before = 0, [0] * (len(second) + 1)
    for unit in first:
        # now[j + 1]: how long the common run is that ends at this unit and at second[j].
        now = [0] * (len(second) + 1)
        for at, other in enumerate(second):
            if unit == other:
                now[at + 1] = before[at] + 1
        longest, before = max(longest, *now), now
    return longest
