"""The pieces of words: each word is tokenized by itself, so that nothing has to be aligned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from bertine.records.entities import OUTSIDE
from bertine.records.sentences import Sentence
from bertine.terminal.console import counted
from bertine.text.tokenizer import Tokenizer


class WordPieces:
    """The pieces of all words of some sentences.

    Attributes:
        room: the most pieces that a word may have; what is beyond is left out.
        lengths: pieces of each word.
        met: counts of words; see :func:`met_notes`.
        first_word: the number of the first word of each sentence, and after the last.
    """

    def __init__(
        self, items: Sequence[Sentence], tokenizer: Tokenizer, room: int, *, keep: bool
    ) -> None:
        words = list(chain.from_iterable(item.words for item in items))
        ids, counts = tokenizer.encode_words(words)
        ends = np.cumsum(counts, dtype=np.int64)
        self.room = room
        self._ids, self._starts = ids, ends - counts
        self._unknown = tokenizer.unk_token_id
        self.met = Counter(
            words=len(words),
            empty=int((counts == 0).sum()),
            long=int((counts > room).sum()),
            cut=int((counts - room).clip(0).sum()),
        )
        # Where no tag says "nothing", a word without pieces is an unknown one.
        kept = np.minimum(np.maximum(counts, 1) if keep else counts, room)
        self.lengths: list[int] = kept.tolist()
        self._regular = bool((kept == counts).all())
        sizes = np.fromiter((len(item.words) for item in items), np.int64, len(items))
        self.first_word: list[int] = [0, *np.cumsum(sizes).tolist()]

    def read(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids [n] of the words from `begin` to before `end`, and where each begins in
        them."""
        lengths = np.asarray(self.lengths[begin:end], np.int64)
        starts = np.cumsum(lengths) - lengths
        if begin == end:
            return np.zeros(0, np.int32), starts
        if self._regular:
            last = self._starts[end - 1] + lengths[-1]
            return self._ids[self._starts[begin] : last], starts
        parts = []
        for word, length in zip(range(begin, end), lengths.tolist(), strict=True):
            start = self._starts[word]
            after = self._starts[word + 1] if word + 1 < len(self._starts) else len(self._ids)
            ids = self._ids[start : min(after, start + length)]
            parts.append(ids if len(ids) == length else np.array([self._unknown], np.int32))
        return np.concatenate(parts), starts


def met_notes(
    source: str, met: Mapping[str, int], max_length: int, room: int, *, keep: bool
) -> list[str]:
    """Return a line for each thing that a user should know.

    Args:
        source: the file.
        met: how many ``sentences`` there were and how many of them took ``several`` windows, how
            many ``windows`` these were; how many ``words``, how many of them were ``empty`` after
            normalization, how many too ``long``, and how many pieces were ``cut`` from these.
        max_length: of an input, in pieces.
        room: the same without special tokens.
        keep: whether words without pieces are read as unknown ones.
    """
    notes = {
        "several": f"{met['several']} of {met['sentences']} sentences are longer than "
        f"{max_length} pieces; they are read in {met['windows']} windows, so that every word is "
        "predicted",
        "empty": f"of {met['empty']} of {met['words']} words normalization leaves nothing; "
        + ("read as unknown words" if keep else f"their tag is {OUTSIDE}"),
        "long": f"{counted(met['long'], 'word', 'has', 'have')} more than {room} pieces; the last "
        f"ones are left out ({counted(met['cut'], 'piece')} lost)",
    }
    return [f"{source}: {note}" for name, note in notes.items() if met[name]]
