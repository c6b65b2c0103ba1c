"""Pairs of sentences: the input format SENTENCE-PAIR+NSP of RoBERTa (Liu et al. 2019, section 4.2).

A is one natural sentence, B the next one of the document (label 0) or, half of the time, a
sentence of another document (label 1). The sequences are much shorter than the longest allowed;
the paper therefore raises the batch size, so that a batch has as many tokens as one of segments.

No code for this format was published. What the paper leaves open is done as in
:mod:`bertine.data.instances.segments`:

- In an epoch every other sentence is an A: the odd or the even ones of the corpus, decided per
  epoch, in a random order. The last sentence of a document, which has none after it, gives its
  turn to the one before. So A and B together are about as many tokens as the corpus has.
- The random B is a uniform sentence of a document drawn uniformly from all others. A document of
  one sentence always has a random B.
- Of a pair too long for a sequence, tokens of the longer sentence are cut off, each from its
  front or its back at random.
"""

from __future__ import annotations

from bisect import bisect_right

from bertine.data.instances.instance import Instance
from bertine.data.instances.order import Counted, Epochs
from bertine.data.instances.segments import (
    check_documents,
    cut_pair,
    random_words,
    uniform,
)
from bertine.data.store import TokenStore
from bertine.rng import generator


class SentencePairs:
    """The endless sequence of sentence pairs, each a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: of a pair, without special tokens; at least 2.
        seed: of everything random here.

    Attributes:
        instances_per_epoch: pairs after which every sentence has had its turn.

    Raises:
        BertineError: the store has fewer than two documents.
    """

    def __init__(self, store: TokenStore, *, max_tokens: int, seed: int = 0) -> None:
        check_documents(store)
        self.store = store
        self.max_tokens = max_tokens
        self.seed = seed
        self._sentences = Counted(store, lambda chunk: len(chunk.sentence_lengths))
        self.instances_per_epoch = -(-self._sentences.total // 2)
        self._epochs = Epochs(self.instances_per_epoch, seed, "sentence pairs", self._odd)

    def instance(self, index: int) -> Instance:
        """Return pair number `index`, from 0 without end; epochs follow each other in it."""
        return self.instances(index, 1)[0]

    def instances(self, first: int, count: int) -> list[Instance]:
        """Return pairs ``first`` to ``first + count - 1``: the same as one by one, at less cost
        each."""
        words = random_words(self.seed, "sentence pairs", first, count)
        return [self._make(first + i, own) for i, own in enumerate(words)]

    def _make(self, index: int, words: list[int]) -> Instance:
        random_next, other, other_sentence, cut_a, cut_b, *_ = words
        batch, flat = self._sentences.locate(self._turn(index))
        chunk = self.store.chunk(batch)
        row = bisect_right(chunk.sentence_offsets, flat) - 1
        document = chunk.first_document + row
        # Of the last sentence, the one before it, unless it is alone.
        is_last = flat == chunk.sentence_offsets[row + 1] - 1
        sentence = max(0, flat - chunk.sentence_offsets[row] - is_last)
        flat = chunk.sentence_offsets[row] + sentence
        start = chunk.sentence_start(row, sentence)
        length_a = chunk.sentence_lengths[flat]

        is_random_next = flat + 1 == chunk.sentence_offsets[row + 1] or uniform(random_next) < 0.5
        if is_random_next:
            number = other % (self.store.num_documents - 1)
            chunk_b, row_b = self.store.row(number + (number >= document))
            first = chunk_b.sentence_offsets[row_b]
            sentence_b = other_sentence % (chunk_b.sentence_offsets[row_b + 1] - first)
            start_b = chunk_b.sentence_start(row_b, sentence_b)
            length_b = chunk_b.sentence_lengths[first + sentence_b]
        else:
            chunk_b, row_b = chunk, row
            start_b = start + length_a
            length_b = chunk.sentence_lengths[flat + 1]

        return cut_pair(
            (chunk, row, start, length_a),
            (chunk_b, row_b, start_b, length_b),
            is_random_next,
            self.max_tokens,
            (cut_a, cut_b),
            (self.seed, "sentence cut", index),
        )

    def _odd(self, epoch: int) -> int:
        return int(generator(self.seed, "odd or even", epoch).integers(2))

    def _turn(self, index: int) -> int:
        """Return the number, in the whole store, of the sentence that pair `index` is about."""
        number, odd = self._epochs.locate(index)
        return (2 * number + odd) % self._sentences.total
