"""The pieces of words: each word is tokenized by itself, so that nothing has to be aligned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from bertine.tasks.entities import OUTSIDE
from bertine.tasks.sentences import Sentence
from bertine.text.tokenizer import Tokenizer


class WordPieces:
    """The pieces of all words of some sentences.

    Attributes:
        room: the most pieces that a word may have; what is beyond is left out.
        lengths: pieces of each word.
        first_word: the number of the first word of each sentence, and after the last.
    """

    def __init__(
        self, items: Sequence[Sentence], tokenizer: Tokenizer, room: int, *, keep: bool
    ) -> None:
        words = list(chain.from_iterable(item.words for item in items))
        ids, counts = tokenizer.encode_flat(words)
        ends = np.cumsum(counts, dtype=np.int64)
        self.room = room
        self._ids, self._starts = ids, ends - counts
        self._unknown = tokenizer.unk_token_id
        self.num_empty = int((counts == 0).sum())
        self.num_long, self.num_cut = int((counts > room).sum()), int((counts - room).clip(0).sum())
        self._keep = keep
        # Where no tag says "nothing", a word without pieces is an unknown one.
        kept = np.minimum(np.maximum(counts, 1) if keep else counts, room)
        self.lengths: list[int] = kept.tolist()
        self._regular = bool((kept == counts).all())
        sizes = np.fromiter((len(item.words) for item in items), np.int64, len(items))
        self.first_word: list[int] = [0, *np.cumsum(sizes).tolist()]

    def read(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids [n] of the words from `begin` to before `end`, and where each begins in them."""
        lengths = np.asarray(self.lengths[begin:end], np.int64)
        starts = np.cumsum(lengths) - lengths
        if begin == end:
            return np.zeros(0, np.int32), starts
        if self._regular:
            last = self._starts[end - 1] + lengths[-1]
            return self._ids[self._starts[begin] : last], starts
        parts = []
        for word, length in zip(range(begin, end), lengths.tolist(), strict=True):
            at = self._starts[word]
            after = self._starts[word + 1] if word + 1 < len(self._starts) else len(self._ids)
            found = self._ids[at : min(after, at + length)]
            parts.append(found if len(found) == length else np.array([self._unknown], np.int32))
        return np.concatenate(parts), starts

    def notes(self, source: str) -> list[str]:
        """One line for each thing that a user should know."""
        notes = []
        if self.num_empty:
            what = "read as unknown words" if self._keep else f"their tag is {OUTSIDE}"
            notes.append(
                f"{source}: of {self.num_empty} of {len(self.lengths)} words normalization leaves "
                f"nothing; {what}"
            )
        if self.num_long:
            notes.append(
                f"{source}: {self.num_long} words have more than {self.room} pieces; the last ones "
                f"are left out ({self.num_cut} pieces lost)"
            )
        return notes
