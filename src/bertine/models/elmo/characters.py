"""Words as ids of characters, as ELMo's published programs number them.

A word is at most 48 bytes of its UTF-8 between two marks, filled up to 50 places. The numbers in
the published code are 0 to 255 for bytes and five marks after them; what reads them has 1 more, so
that 0 can stand where there is no word: 262 ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Ids: 0, where there is no word; bytes, with 1 added; marks.
NUM_CHARACTERS = 262
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 257, 258, 259, 260, 261

#: Words that stand for the two ends of a sentence, as the published vocabularies write them.
BEGIN, END = "<S>", "</S>"
#: What stands for words that the vocabulary of a softmax does not have.
UNKNOWN = "<UNK>"

_ENDS = {BEGIN: BEGIN_SENTENCE, END: END_SENTENCE}


def character_ids(words: Sequence[str], places: int = 50) -> np.ndarray:
    """Number the characters of words; :data:`BEGIN` and :data:`END` are the ends of a sentence.

    Args:
        words: N; of longer ones the first ``places - 2`` bytes count.
        places: of a word, its two marks among them.

    Returns:
        int64 [N, places], from 1 on.
    """
    ids = np.full((len(words), places), PADDING, dtype=np.int64)
    for row, word in zip(ids, words, strict=True):
        row[0] = BEGIN_WORD
        if word in _ENDS:
            row[1], row[2] = _ENDS[word], END_WORD
            continue
        # A half of a surrogate pair is no UTF-8; it becomes the sign for what is unknown.
        text = word.encode("utf-8", "replace")[: places - 2]
        row[1 : 1 + len(text)] = np.frombuffer(text, dtype=np.uint8).astype(np.int64) + 1
        row[1 + len(text)] = END_WORD
    return ids


def is_cut(word: str, places: int = 50) -> bool:
    """Tell whether a word has more bytes than are read of it."""
    return len(word.encode("utf-8", "replace")) > places - 2
