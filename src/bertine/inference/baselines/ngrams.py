"""Texts and pairs of texts as tf-idf of words and characters: what counting can know of them.

Shape legend: N texts, D features.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bertine.inference.baselines.linear import Matrix

#: A word, or a sign that stands alone.
_WORD = re.compile(r"\w+|[^\w\s]")
#: Writing without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese.
_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_SPACELESS_SHARE = 0.3
#: Characters of a text that are counted, and features of each kind.
_CHARACTERS, _FEATURES = 5_000, 200_000


class NgramFeatures:
    """The tf-idf of single words and pairs of words, and of 2 to 4 characters inside words, learned
    from `texts`; where these are written without spaces, of 1 to 3 characters.

    Of pairs (two texts in each of `texts`) the features are those of both texts, what they have in
    common and what differs, and how much that is.

    Args:
        most: the features of a kind (words, characters) that a text may have, the frequent ones.
    """

    def __init__(self, texts: Sequence[Sequence[str]], most: int = _FEATURES) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        flat = [_cut(each) for row in texts for each in row]
        sample = "".join(each[:200] for each in flat[:500])
        spaceless = len(_SPACELESS.findall(sample)) > _SPACELESS_SHARE * len(sample)
        # What occurs once in many texts is of no use for others.
        least = 2 if len(flat) > 1_000 else 1
        common: dict[str, Any] = {
            "sublinear_tf": True,
            "max_features": min(_FEATURES, most),
            "min_df": least,
            "dtype": np.float32,
        }
        kinds = [TfidfVectorizer(analyzer="char", ngram_range=(1, 3), **common)]
        if not spaceless:
            kinds = [
                TfidfVectorizer(token_pattern=_WORD.pattern, ngram_range=(1, 2), **common),
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **common),
            ]
        self._spaceless = spaceless
        self._kinds = []
        for kind in kinds:
            try:
                self._kinds.append(kind.fit(flat))
            except ValueError:  # no text has a word
                continue
        self._scale: tuple[np.ndarray, np.ndarray] | None = None

    def matrix(self, texts: Sequence[Sequence[str]]) -> Matrix:
        """Compute the features, sparse fp32 [N, D]. The first call of pairs says how their overlaps
        are scaled."""
        columns = [self.of_texts([row[at] for row in texts]) for at in range(len(texts[0]))]
        if len(columns) == 1:
            return columns[0]
        first, second = columns
        overlap = overlaps(texts, first, second, characters=self._spaceless)
        if self._scale is None:
            self._scale = overlap.mean(0), overlap.std(0) + 1e-6
        mean, deviation = self._scale
        return sparse.hstack(
            [
                first,
                second,
                first.multiply(second),
                abs(first - second),
                sparse.csr_matrix(((overlap - mean) / deviation).astype(np.float32)),
            ]
        ).tocsr()

    def of_texts(self, texts: Sequence[str]) -> Matrix:
        """Compute the features, sparse fp32 [N, D] of single texts; each kind of feature has length
        1."""
        parts = [kind.transform(map(_cut, texts)) for kind in self._kinds]
        if not parts:
            return sparse.csr_matrix((len(texts), 1), dtype=np.float32)
        return sparse.hstack(parts).tocsr()


def overlaps(
    texts: Sequence[Sequence[str]], first: Matrix, second: Matrix, *, characters: bool
) -> np.ndarray:
    """Measure how much two texts have in common, fp64 [N, 7]: the cosine of their tf-idf, the share
    of the words of each in the other, that of all, the logarithms of their lengths, and whether one
    says a negation that the other does not."""
    cosine = np.asarray(first.multiply(second).sum(1)).reshape(-1)
    rows = []
    for at, row in enumerate(texts):
        a, b = (_words(each, characters) for each in row[:2])
        both = len(a & b)
        rows.append(
            [
                float(cosine[at]),
                both / max(1, len(a)),
                both / max(1, len(b)),
                both / max(1, len(a | b)),
                np.log1p(len(a)),
                np.log1p(len(b)),
                float(bool(a & _NEGATIONS) != bool(b & _NEGATIONS)),
            ]
        )
    return np.array(rows, dtype=np.float64)


_NEGATIONS = frozenset(("not", "no", "never", "nothing", "nobody", "none", "t", "n't"))


def _words(text: str, characters: bool) -> set[str]:
    text = _cut(text).lower()
    return set(text) if characters else set(_WORD.findall(text))


def _cut(text: str) -> str:
    return text[:_CHARACTERS]
