"""Check the table of replacements that a Unigram tokenizer normalizes text with.

It is a double-array trie over UTF-8 bytes whose leaves are places in a list of texts
(google/sentencepiece, ``builder.cc``). The library looks things up in it without asking whether the
places are there, and ends in a panic where they are not; so they are all looked at beforehand.
"""

from __future__ import annotations

import numpy as np

from bertine.errors import BertineError

_LEAF = np.uint32(1 << 31)


def check_charsmap(raw: bytes, source: object) -> None:
    """Refuse a table with a place that is not there.

    Args:
        raw: uint32, the size of the trie in bytes; the trie, a uint32 a node; the texts, each with
            a zero byte behind it.
        source: names it in the message.

    Raises:
        BertineError: there is one, or the table is damaged otherwise.
    """
    problem = _problem(raw)
    if problem:
        raise BertineError(
            f"{source}: the table of its normalization (precompiled_charsmap) is damaged "
            f"({problem}); copy or download it again"
        )


def _problem(raw: bytes) -> str:
    """Say what is wrong with a table; nothing: ``""``."""
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or size % 4 or not 4 <= size <= len(raw) - 4:
        return "its size is wrong"
    try:
        texts = raw[4 + size :].decode("utf-8")
    except UnicodeDecodeError:
        return "its texts are not UTF-8"
    trie = np.frombuffer(raw, "<u4", size // 4, 4)
    # A node's children lie at its place, changed by its offset and by the byte that leads to them
    # (Darts-clone): all 256 of them are looked at.
    inner = np.flatnonzero(trie < _LEAF)
    units = trie[inner].astype(np.int64)
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    children = inner ^ offsets
    if len(children) and int((children | 0xFF).max()) >= len(trie):
        return "a node leads out of it"
    ends = children[(units >> 8 & 1).astype(bool)]
    places = (trie[ends] & ~_LEAF).astype(np.int64)
    starts = np.zeros(len(raw) - 3 - size, np.bool_)
    starts[np.cumsum([0, *(len(character.encode()) for character in texts)])] = True
    if len(places) and (int(places.max()) >= len(starts) or not starts[places].all()):
        return "a leaf leads to no text"
    return ""
