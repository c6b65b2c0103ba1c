"""A task made of Chinese texts: do two sentences, nearly the same, have two parts exchanged?

It asks for what PAWS-X asks for (Zhang et al. 2019, arXiv 1904.01130: pairs of the same words, in
another order), and costs no labels. Half of the pairs have other small words, characters and orders
of clauses, as paraphrases have; the other half has these, too, and two parts of a sentence in each
other's place. A model learns it before paraphrases (another task in between: Phang et al. 2018,
arXiv 1811.01088).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path

import numpy as np

from bertine.core.files import write_text
from bertine.core.rng import generator

#: Words that say nearly the same.
_ALIKE = ("在于", "和与及", "是为", "但而", "也亦", "或并", "被由", "此该", "从自", "将把")
_LIKE = {one: row.replace(one, "") for row in _ALIKE for one in row}
#: Characters that a paraphrase often leaves out.
_SMALL = "的了也都着"
#: The fewest and the most characters of a text, and of a part that is exchanged.
_FEWEST, _MOST = 10, 80
_PARTS = (2, 3, 4)
#: What stands in the texts this often is taken for a word or a name.
_FREQUENT = 30
_CHINESE = re.compile(r"[\u4e00-\u9fff]+")


def write_swaps(texts: Path, file: Path, count: int, seed: int) -> int:
    """Write ``sentence1,sentence2,label`` rows, two for each of at most `count` texts of the file
    `texts`, and return their number."""
    draw = generator(seed, "swaps")
    lines = texts.read_text(encoding="utf-8").splitlines()
    words = _words(lines)
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["sentence1", "sentence2", "label"])
    rows = 0
    for text in lines:
        base = text if _FEWEST <= len(text) <= _MOST else None
        if base is not None and draw.random() < 0.5:
            # So that whether a sentence is well formed says nothing: the two have to be compared.
            base = _exchange(base, words, draw)
        exchanged = None if base is None else _exchange(base, words, draw)
        if base is None or exchanged is None:
            continue
        for other, label in ((base, 1), (exchanged, 0)):
            pair = [base, _rephrase(other, draw)]
            if draw.random() < 0.5:
                pair.reverse()
            writer.writerow([*pair, label])
        rows += 2
        if rows >= 2 * count:
            break
    write_text(file, table.getvalue())
    return rows


def _words(lines: Sequence[str]) -> set[str]:
    """Return the frequent parts of the texts."""
    counts: Counter[str] = Counter()
    for line in lines:
        for run in _CHINESE.findall(line):
            for size in _PARTS:
                counts.update(run[at : at + size] for at in range(len(run) - size + 1))
    return {part for part, count in counts.items() if count >= _FREQUENT}


def _exchange(text: str, words: Container[str], draw: np.random.Generator) -> str | None:
    """Return a text with two of its words in each other's place; None: it has no two."""
    spans = [
        (at, at + size)
        for size in _PARTS
        for at in range(len(text) - size + 1)
        if text[at : at + size] in words
    ]
    for _ in range(20):
        if len(spans) < 2:
            break
        (a, b), (c, d) = sorted(spans[int(draw.integers(len(spans)))] for _ in range(2))
        if b <= c and text[a:b] != text[c:d]:
            return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]
    return None


def _rephrase(text: str, draw: np.random.Generator) -> str:
    """Return a text with other small words, an other character or two, other orders of clauses."""
    if draw.random() < 0.3:
        end = text[-1] if text[-1] in "。！？" else ""
        clauses = text.removesuffix(end).split("，")
        at = int(draw.integers(len(clauses)))
        text = "，".join(clauses[at:] + clauses[:at]) + end
    changed = []
    for one in text:
        luck = draw.random()
        if one in _LIKE and luck < 0.4:
            changed.append(str(draw.choice(list(_LIKE[one]))))
        elif one in _SMALL and luck < 0.3:
            continue
        elif luck < 0.03 and "\u4e00" <= one <= "\u9fff":
            changed.append(text[int(draw.integers(len(text)))])
        else:
            changed.append(one)
    return "".join(changed)
