"""Neighbouring texts, each a sequence of its own, to be recognized among others.

A window of consecutive sentences, twice as long as a sequence, is cut in two at the end of one of
its sentences, which is drawn, so that there are short and long texts: what stands before is one
sequence, what follows the other. Of a text that is too long the part is kept that is nearer to the
cut. A document of a single sentence has no neighbours; its two sequences are the same, so that
they differ by what is hidden of them alone (as by dropout in Gao et al. 2021, SimCSE).

Where windows start is as in :mod:`bertine.data.instances.segments`.
"""

from __future__ import annotations

from bertine.data.instances.full_sequences import check_tokens
from bertine.data.instances.instance import Instance
from bertine.data.instances.segments import NspSegments, gather, random_words
from bertine.data.store import TokenStore


class Neighbours(NspSegments):
    """The endless sequence of texts over a store, of which numbers 2k and 2k + 1 are neighbours;
    each is a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: of a text, without special tokens.
        seed: of everything random here.

    Raises:
        BertineError: the store is empty.
    """

    def __init__(self, store: TokenStore, *, max_tokens: int, seed: int = 0) -> None:
        super().__init__(store, max_tokens=2 * max_tokens, short_seq_prob=0.0, seed=seed)
        self._longest = max_tokens
        self.instances_per_epoch *= 2

    def instances(self, first: int, count: int) -> list[Instance]:
        """Return texts ``first`` to ``first + count - 1``."""
        begin, end = first // 2, -(-(first + count) // 2)
        words = random_words(self.seed, "neighbours", begin, end - begin)
        texts = [text for i, own in enumerate(words) for text in self._pair(begin + i, own)]
        return texts[first % 2 : first % 2 + count]

    def _pair(self, index: int, words: list[int]) -> tuple[Instance, Instance]:
        chunk, row, offset = self._anchor(index)
        tokens = chunk.token_offsets[row + 1] - chunk.token_offsets[row]
        last = chunk.sentence_offsets[row + 1] - chunk.sentence_offsets[row] - 1
        sentence, start = chunk.sentence_at(
            row, min(max(offset, 0), max(0, tokens - self.max_tokens))
        )
        if sentence == last and sentence > 0:
            sentence -= 1
            start = chunk.sentence_start(row, sentence)
        ends = gather(chunk, row, sentence, start, self.max_tokens, 2)
        if len(ends) == 1:
            parts = [(start, min(ends[0], start + self._longest))] * 2
            cut = 2 * max(0, ends[0] - start - self._longest)
        else:
            middle = ends[words[0] % (len(ends) - 1)]
            begin = max(start, middle - self._longest)
            end = min(ends[-1], middle + self._longest)
            parts = [(begin, middle), (middle, end)]
            cut = begin - start + ends[-1] - end
        shift, document = chunk.token_offsets[row], chunk.first_document + row
        one, other = (
            Instance((chunk.input_ids[shift + a : shift + b],), (document,)) for a, b in parts
        )
        return one._replace(num_truncated=cut), other

    @staticmethod
    def check(store: TokenStore) -> None:
        """Refuse a store without a token."""
        check_tokens(store)
