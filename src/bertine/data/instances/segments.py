"""Pairs of segments for next-sentence prediction, any of them made at once, in any order.

The pairs are those of the paper (Devlin et al. 2018, section 3.1 and appendix A.2) and its
published code (google-research/bert, ``create_pretraining_data.py``): sentences are gathered up
to a target length, which is the full length or, for 10%, a random shorter one; A is a random
number of them; B is the rest (label 0, "next") or, half of the time, sentences from another
document (label 1, "random"); a pair too long loses tokens of the longer segment, each from its
front or its back at random.

The published code reads the corpus from front to back and writes every pair to disk. Here pair
number `index` is computed when it is asked for, and so differs from that code in these points:

- Where a pair starts is drawn per epoch: windows of the full length are laid over the corpus,
  shifted by a random amount, and visited in a random order. Each document counts half a window
  more than its tokens, so that short documents have their turn, and a window that would reach
  over an end of its document is moved inside it, so that it is filled where the document allows.
- At least two sentences are gathered wherever the document has two. The published code gathers
  one when it alone reaches the target; B is then always random, which makes more than half of
  the pairs random and lets a model tell them by the length of A.
- The random document is drawn from all others; the published code tries ten times not to draw
  the same one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from bertine.data.instances.instance import Instance
from bertine.data.instances.order import Epochs
from bertine.data.store import Chunk, TokenStore
from bertine.errors import BertineError
from bertine.options.names import option
from bertine.rng import generator, key

#: Record batch, row of the document in it, first token in the document, number of tokens.
Segment = tuple[Chunk, int, int, int]

#: Random 64-bit words that an instance has; a multiple of the four that one Philox counter gives.
_WORDS = 8


class NspSegments:
    """The endless sequence of pairs over a store, each a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: of a pair, without special tokens; at least 2.
        short_seq_prob: share of pairs with a random shorter target length.
        seed: of everything random here.

    Attributes:
        instances_per_epoch: pairs after which every document has had its turn.
        swaps: whether a pair of label 1 is A and B in the wrong order, and not A and another B.

    Raises:
        BertineError: the store has fewer than two documents, or an argument is out of range.
    """

    swaps: ClassVar[bool] = False

    def __init__(
        self,
        store: TokenStore,
        *,
        max_tokens: int,
        short_seq_prob: float = 0.1,
        seed: int = 0,
    ) -> None:
        if not 0.0 <= short_seq_prob <= 1.0:
            raise BertineError(f"short_seq_prob is {short_seq_prob}, but must be in [0, 1]")
        self.check(store)
        self.store = store
        self.max_tokens = max_tokens
        self.short_seq_prob = short_seq_prob
        self.seed = seed
        #: Half a window: by so much every document counts as longer than it is.
        self._padding = self.max_tokens // 2
        self._starts = [
            tokens + documents * self._padding
            for tokens, documents in zip(store.first_tokens, store.first_documents, strict=True)
        ]
        self._positions = store.num_tokens + store.num_documents * self._padding
        self.instances_per_epoch = -(-self._positions // self.max_tokens)
        self._epochs = Epochs(self.instances_per_epoch, seed, "windows", self._shift)

    def instance(self, index: int) -> Instance:
        """Return pair number `index`, from 0 without end; epochs follow each other in it."""
        return self.instances(index, 1)[0]

    def instances(self, first: int, count: int) -> list[Instance]:
        """Return pairs ``first`` to ``first + count - 1``: the same as one by one, at less cost
        each."""
        words = random_words(self.seed, "segments", first, count)
        return [self._make(first + i, own) for i, own in enumerate(words)]

    def _make(self, index: int, words: list[int]) -> Instance:
        short, shorter, random_next, split, other, other_start, cut_a, cut_b = words
        max_tokens = self.max_tokens
        target = max_tokens
        if uniform(short) < self.short_seq_prob:
            target = 2 + shorter % (max_tokens - 1)

        chunk, row, offset = self._anchor(index)
        document = chunk.first_document + row
        tokens = chunk.token_offsets[row + 1] - chunk.token_offsets[row]
        num_sentences = chunk.sentence_offsets[row + 1] - chunk.sentence_offsets[row]
        sentence, start = chunk.sentence_at(row, min(max(offset, 0), max(0, tokens - target)))
        if sentence == num_sentences - 1 and sentence > 0:
            # The last sentence has nothing after it: begin one earlier, so that B may be true.
            sentence -= 1
            start = chunk.sentence_start(row, sentence)
        ends = gather(chunk, row, sentence, start, target, 2)

        split = split % (len(ends) - 1) if len(ends) > 1 else 0
        start_b, end_b = ends[split], ends[-1]
        length_a = start_b - start
        chunk_b, row_b = chunk, row
        changed = len(ends) == 1 or uniform(random_next) < 0.5
        if changed and self.swaps and len(ends) > 1:
            start, length_a, start_b, end_b = start_b, end_b - start_b, start, start_b
        elif changed:
            number = other % (self.store.num_documents - 1)
            chunk_b, row_b = self.store.row(number + (number >= document))
            sentence_b = other_start % (
                chunk_b.sentence_offsets[row_b + 1] - chunk_b.sentence_offsets[row_b]
            )
            start_b = chunk_b.sentence_start(row_b, sentence_b)
            end_b = gather(chunk_b, row_b, sentence_b, start_b, target - length_a, 1)[-1]
        return cut_pair(
            (chunk, row, start, length_a),
            (chunk_b, row_b, start_b, end_b - start_b),
            changed,
            max_tokens,
            (cut_a, cut_b),
            (self.seed, "truncation", index),
        )

    @staticmethod
    def check(store: TokenStore) -> None:
        """Refuse a store that pairs cannot be made of; see :func:`check_documents`."""
        check_documents(store)

    def _shift(self, epoch: int) -> int:
        return int(generator(self.seed, "shift", epoch).integers(self.max_tokens))

    def _anchor(self, index: int) -> tuple[Chunk, int, int]:
        """Return where the window of pair `index` starts: (record batch, row, offset in the
        document).

        The offset may lie outside the document, by three quarters of a window before its start
        or one quarter before its end, so that both ends are covered as often as the middle.
        """
        window, shift = self._epochs.locate(index)
        position = (window * self.max_tokens + shift) % self._positions
        batch = bisect_right(self._starts, position) - 1
        chunk = self.store.chunk(batch)
        position -= self._starts[batch]
        row = chunk.row_at(position, self._padding)
        offset = position - chunk.token_offsets[row] - row * self._padding
        return chunk, row, offset - (self.max_tokens + self._padding) // 2


def check_documents(store: TokenStore) -> None:
    """Refuse a store that has no other document to take a random segment from.

    Raises:
        BertineError: it has fewer than two documents.
    """
    if store.num_documents < 2:
        raise BertineError(
            f"{store.path}: next-sentence prediction needs at least two documents, but there "
            f"is {store.num_documents}; separate documents with a blank line or prepare the "
            f"corpus with {option('document_per_file', True)}"
        )


def random_words(seed: int, purpose: str, first: int, count: int) -> Iterator[list[int]]:
    """Yield for each of the instances ``first`` to ``first + count - 1`` its eight random words of
    64 bits.

    Those of instance i are what the counters 2i and 2i + 1 give under one key, whichever other
    instances are asked for with it.
    """
    philox = np.random.Philox(key=key(seed, purpose), counter=first * (_WORDS // 4))
    words: list[int] = philox.random_raw(count * _WORDS).tolist()
    return (words[i : i + _WORDS] for i in range(0, count * _WORDS, _WORDS))


def cut_pair(
    a: Segment,
    b: Segment,
    label: bool,
    limit: int,
    words: tuple[int, int],
    where: tuple[int, str, int],
) -> Instance:
    """Return the pair of two segments with its label, cut to `limit` tokens: the longer one first,
    at its front and its back by the random `words` or, where these have not enough bits, by what is
    drawn for `where` (seed, purpose, index)."""
    chunk_a, row_a, start_a, length_a = a
    chunk_b, row_b, start_b, length_b = b
    kept_a, kept_b = kept_lengths(length_a, length_b, limit)
    front_a, front_b = length_a - kept_a, length_b - kept_b
    start_a += chunk_a.token_offsets[row_a] + _cut_in_front(front_a, words[0], *where, "a")
    start_b += chunk_b.token_offsets[row_b] + _cut_in_front(front_b, words[1], *where, "b")
    return Instance(
        (
            chunk_a.input_ids[start_a : start_a + kept_a],
            chunk_b.input_ids[start_b : start_b + kept_b],
        ),
        (chunk_a.first_document + row_a, chunk_b.first_document + row_b),
        front_a + front_b,
        int(label),
    )


def _cut_in_front(cut: int, word: int, seed: int, *where: int | str) -> int:
    """Return how many of `cut` tokens go from the front, the others from the back: one coin each,
    from the random `word` where it has enough, else drawn for the position `where`."""
    if cut <= 64:
        return (word & ((1 << cut) - 1)).bit_count()
    return int(generator(seed, *where).binomial(cut, 0.5))


def kept_lengths(length_a: int, length_b: int, limit: int) -> tuple[int, int]:
    """Return what is left of two lengths when, as long as they add up to more than `limit`, one is
    taken from the longer, or from B when they are equal (``truncate_seq_pair`` in the published
    code)."""
    kept_b = min(length_b, max(limit // 2, limit - length_a))
    return min(length_a, limit - kept_b), kept_b


def uniform(word: int) -> float:
    """Return a random 64-bit word as a number in [0, 1)."""
    return (word >> 11) * 2.0**-53


def gather(
    chunk: Chunk, row: int, sentence: int, start: int, target: int, at_least: int
) -> list[int]:
    """Return where consecutive sentences end (token offsets in the document), from number
    `sentence`, which begins at `start`, until they have `target` tokens and are `at_least` so many,
    or the document ends."""
    first = chunk.sentence_offsets[row]
    full = start + target
    ends: list[int] = []
    add: Callable[[int], None] = ends.append
    for length in chunk.sentence_lengths[first + sentence : chunk.sentence_offsets[row + 1]]:
        start += length
        add(start)
        if start >= full and len(ends) >= at_least:
            break
    return ends
