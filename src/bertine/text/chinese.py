"""Find the words of Chinese text, which is written without spaces, with `jieba`.

A Chinese vocabulary has characters for pieces. Whole-word masks need to know which characters are
one word (Cui et al. 2019, arXiv 1906.08101, section 3.1), which only the text can tell: so words
are found when a store is prepared, and kept there (:mod:`bertine.data.store`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.packages import require_packages
from bertine.text.tokenizer import Tokenizer

#: A run of Chinese characters.
_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd]{2,}")


def check_segmenter() -> None:
    """Refuse to begin without `jieba`.

    Raises:
        BertineError: it is not installed.
    """
    require_packages("finding Chinese words", ["jieba"], "leave the segmenter out")


@lru_cache(1)
def _jieba() -> Any:
    """Return the segmenter with its dictionary, which takes a second."""
    import jieba

    segmenter = jieba.Tokenizer()
    # As `initialize` does, without the cache: a file of marshal in a folder for everybody.
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


class ChineseWords:
    """The words of `jieba`, with its own dictionary and its model for words that are not in it.

    Args:
        tokenizer: makes the pieces.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        check_segmenter()
        self._tokenizer = tokenizer

    def inside(self, text: str) -> npt.NDArray[np.bool_]:
        """Return which characters of a text go on with a Chinese word, bool [characters]."""
        marks = np.zeros(len(text), np.bool_)
        for run in _RUN.finditer(text):
            place = run.start()
            for word in _jieba().cut(run.group()):
                marks[place + 1 : place + len(word)] = True
                place += len(word)
        return marks

    def encode(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the ids of all texts' pieces, as :meth:`bertine.Tokenizer.encode_flat` does, and
        which of them go on with the word before: those that the vocabulary says, and those that
        begin inside a Chinese word.

        Returns:
            int32 [pieces]; int64 [texts], how many each has; bool [pieces].
        """
        ids, lengths = self._tokenizer.encode_flat(texts)
        goes_on = self._tokenizer.continues[ids]
        ends = np.cumsum(lengths)
        chinese = [number for number, text in enumerate(texts) if _RUN.search(text)]
        spans = self._tokenizer.encode_offsets([texts[number] for number in chinese])
        for number, (_, places) in zip(chinese, spans, strict=True):
            inside = self.inside(texts[number])
            begins = np.fromiter((begin for begin, _ in places), np.int64, len(places))
            begin = int(ends[number] - lengths[number])
            if len(begins):
                goes_on[begin : begin + len(begins)] |= inside[np.minimum(begins, len(inside) - 1)]
        return ids, lengths, goes_on
