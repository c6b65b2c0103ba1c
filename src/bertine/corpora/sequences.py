"""Make the sequences of segment pairs, each on demand, in any order.

The pairs for next-sentence prediction are those of the paper (Devlin et al. 2018, section 3.1 and
appendix A.2) and its published code (google-research/bert, ``create_pretraining_data.py``):
sentences are gathered up to a target length, which is the full length or, for 10%, a random shorter
one; A is a random number of them; B is the rest (label 0, "next") or, half of the time, sentences
from another document (label 1, "random"); a pair too long loses tokens of the longer segment, each
from its front or its back at random.

The published code reads the corpus from front to back and writes every pair to disk. Here pair
number `index` is computed on demand, and so differs from that code in these points:

- The start of a pair is drawn per epoch: windows of the full length are laid over the corpus,
  shifted by a random amount, and visited in a random order. Each document counts half a window
  more than its tokens, so that short documents are visited, and a window that would cross
  an end of its document is moved inside it, so that it is full if the document is long enough.
- At least two sentences are gathered if the document has two. The published code gathers
  one if it alone reaches the target; B is then always random, which makes more than half of
  the pairs random and lets a model recognize them by the length of A.
- The random document is drawn from all others; the published code makes ten attempts not to draw
  the same one.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.rng import Permutation, generator, key
from bertine.corpora.store import Chunk, TokenStore

# Instance: one sequence of pre-training before any corruption.


class Instance(NamedTuple):
    """The texts of one sequence, without its special tokens.

    Attributes:
        segments: ids, views into the store, one array for each stretch of text between special
            tokens; two for a pair. None of them is empty.
        documents: the number of the document of each.
        num_truncated: tokens cut off to fit.
        label: the label of the sequence as a whole, such as whether B follows A; None in formats
            without labels (:class:`bertine.corpora.formats.Format`).
        goes_on: of each segment, which pieces continue the word before; None: the vocabulary
            decides.
        sentences: of each segment, the ends of its sentences, counted from its first token, the
            last one with the segment; None: unknown, as in formats of pairs.
        context: ids of the text around it, in reading order; None: not requested
            (:class:`bertine.corpora.collators.ReadsAround`).
    """

    segments: tuple[npt.NDArray[Any], ...]
    documents: tuple[int, ...]
    num_truncated: int = 0
    label: int | None = None
    goes_on: tuple[npt.NDArray[np.bool_], ...] | None = None
    sentences: tuple[tuple[int, ...], ...] | None = None
    context: npt.NDArray[Any] | None = None


# Order: the instances of each epoch, and the items in record batches by number.


class Epochs:
    """The order of the instances of each epoch, and one random number for the epoch.

    Args:
        size: instances of an epoch.
        seed: of the order.
        name: of the order, so that orders with the same seed differ.
        draw: returns the number of an epoch, a pure function of it; a method, so that instances can
            be sent to other processes.
    """

    def __init__(self, size: int, seed: int, name: str, draw: Callable[[int], int]) -> None:
        self.size, self._seed, self._name, self._draw = size, seed, name, draw
        #: At most two: those on both sides of the end of an epoch.
        self._made: dict[int, tuple[Permutation, int]] = {}

    def locate(self, index: int) -> tuple[int, int]:
        """Return the index of instance `index` of the whole sequence within its epoch, from 0 to
        ``size - 1``, and the number drawn for that epoch."""
        epoch, number = divmod(index, self.size)
        if epoch not in self._made:
            if len(self._made) > 1:
                self._made.clear()
            permutation = Permutation(self.size, self._seed, self._name, epoch)
            self._made[epoch] = permutation, self._draw(epoch)
        permutation, drawn = self._made[epoch]
        return permutation[number], drawn


class Counted:
    """The items of a store, numbered consecutively, by a table of one number per record batch.

    Its creation visits every record batch (about a million tokens each) once, and reads only what
    `count` reads.

    Args:
        store: the documents.
        count: returns how many of them a record batch holds.

        Attributes:
        total: their number.
    """

    def __init__(self, store: TokenStore, count: Callable[[Chunk], int]) -> None:
        ends = list(itertools.accumulate(map(count, store.chunks()), initial=0))
        self.total = ends.pop()
        self._starts = ends

    def locate(self, number: int) -> tuple[int, int]:
        """Find item `number`: its record batch, and its number within it."""
        batch = bisect_right(self._starts, number) - 1
        return batch, number - self._starts[batch]


# Sentence walks: read a few sentences of a store from any place, and cut them into sequences.
#
# The text may be cut at *boundaries*, the ends of sentences. A sentence longer than a sequence has
# further boundaries inside, an eighth of a sequence apart.
#
# Positions count tokens from any origin; between two documents one position is left free, for the
# separator in a sequence over both.


class SentenceReader:
    """A walk over consecutive sequences of whole sentences, starting at the boundary nearest to a
    place.

    Args:
        store: the documents.
        batch, row: the first document: its record batch, and its row there.
        document: the position of its first token.
        origin: the start, a position from `document` to the end of that document
            (after its last token included).
        limit: most tokens of a sequence, separators between documents counted.
        crossing: continue with the next document at the end of one; after the last with the first.

    Attributes:
        start, end: the positions of the last sequence made by :meth:`advance`.
    """

    def __init__(
        self,
        store: TokenStore,
        batch: int,
        row: int,
        document: int,
        origin: int,
        limit: int,
        crossing: bool,
    ) -> None:
        self._store = store
        self._limit = limit
        self._unit = max(1, limit // 8)
        self._crossing = crossing
        #: Documents visited: the position of the first token, the one after the last, and its
        #: place.
        self._documents: list[tuple[int, int, Chunk, int]] = []
        self._batch, self._chunk, self._row = batch, store.chunk(batch), row
        #: Of the sentences of the open document whose boundaries have not been found yet.
        self._lengths: Iterator[int] = iter(())
        self._open(document)
        begin = self._begin(origin - document) + document
        #: Boundary k ends at ``_ends[k]``; what follows it begins at ``_begins[k]``. `_at` is the
        #: last boundary of the sequences made so far.
        self._ends, self._begins, self._at = [begin], [begin], 0
        if begin == self._document_end and crossing:
            self._begins[0] += 1
            self._next_document()
        self.start = self.end = begin

    def _open(self, document: int) -> None:
        chunk, row = self._chunk, self._row
        self._document = document
        self._document_end = document + chunk.token_offsets[row + 1] - chunk.token_offsets[row]
        self._documents.append((document, self._document_end, chunk, row))

    def _next_document(self) -> None:
        self._row += 1
        if self._row == self._chunk.num_documents:
            self._batch = (self._batch + 1) % len(self._store.first_documents)
            self._chunk, self._row = self._store.chunk(self._batch), 0
        self._open(self._document_end + 1)
        chunk, row = self._chunk, self._row
        self._lengths = iter(
            chunk.sentence_lengths[chunk.sentence_offsets[row] : chunk.sentence_offsets[row + 1]]
        )

    def _begin(self, offset: int) -> int:
        """Return the boundary nearest to a token offset in the open document, as such an offset."""
        chunk, row = self._chunk, self._row
        sentence, begin = chunk.sentence_at(row, offset)
        first = chunk.sentence_offsets[row]
        length = chunk.sentence_lengths[first + sentence]
        end = begin + length
        rest: list[int] = []
        if length > self._limit:
            unit = self._unit
            skipped = min(offset - begin, length - 1) // unit
            begin += skipped * unit
            rest = _pieces(end - begin, unit)
            end = begin + rest.pop(0)
        size = self._document_end - self._document
        at_end = end == size and not self._crossing
        if offset - begin <= end - offset or at_end:
            rest.insert(0, end - begin)
            end = begin
        last = chunk.sentence_offsets[row + 1]
        self._lengths = chain(rest, chunk.sentence_lengths[first + sentence + 1 : last])
        return end

    def _extend(self, position: int) -> None:
        """Find boundaries until one is after `position`, or a document that must not be left
        ends."""
        ends, begins, limit = self._ends, self._begins, self._limit
        while ends[-1] <= position:
            end = begins[-1]
            for length in self._lengths:
                for piece in (length,) if length <= limit else _pieces(length, self._unit):
                    end += piece
                    ends.append(end)
                    begins.append(end)
                if end > position:
                    break
            if end == self._document_end:
                if not self._crossing:
                    break
                begins[-1] += 1
                self._next_document()

    def advance(self, goal: int) -> bool:
        """Make the next sequence: to the boundary nearest to `goal`, but at least one sentence and
        not more tokens than the limit. Return False, without changes, at the end of a document that
        must not be left."""
        begin = self._begins[self._at]
        if begin == self._document_end and not self._crossing:
            return False
        self._extend(max(goal, begin))
        ends = self._ends
        chosen = bisect_right(ends, goal, self._at + 1) - 1
        if chosen + 1 < len(ends) and goal - self._begins[chosen] > ends[chosen + 1] - goal:
            chosen += 1
        chosen = max(chosen, self._at + 1)
        if ends[chosen] - begin > self._limit:
            chosen = bisect_right(ends, begin + self._limit, self._at + 1) - 1
        self._at = chosen
        self.start, self.end = begin, ends[chosen]
        return True

    def fill(self) -> bool:
        """Make the next sequence as long as possible; return False as in :meth:`advance`."""
        return self.advance(self._begins[self._at] + self._limit)

    def retreat(self) -> None:
        """Make the longest sequence that ends with the open document, for the last one of a
        document that must not be left."""
        self._extend(self._document_end)
        self.end = self._document_end
        self.start = self._begins[bisect_left(self._begins, self.end - self._limit)]

    @property
    def following(self) -> int:
        """The position where the next sequence begins."""
        return self._begins[self._at]

    def instance(self) -> Instance:
        """Return the last sequence: its tokens, one view per document, the documents, and the ends
        of its sentences (for a sentence longer than a sequence: of its pieces)."""
        pieces, numbers, sentences = [], [], []
        for first, end, chunk, row in self._documents:
            if first < self.end and self.start < end:
                shift = chunk.token_offsets[row] - first
                begin, stop = max(first, self.start), min(end, self.end)
                pieces.append(chunk.input_ids[begin + shift : stop + shift])
                numbers.append(chunk.first_document + row)
                low, high = bisect_right(self._ends, begin), bisect_right(self._ends, stop)
                sentences.append(tuple(place - begin for place in self._ends[low:high]))
        return Instance(tuple(pieces), tuple(numbers), sentences=tuple(sentences))


def _pieces(length: int, unit: int) -> list[int]:
    """Split a length into pieces of `unit`, the last one shorter."""
    return [min(unit, length - i) for i in range(0, length, unit)]


#: Record batch, row of the document in it, first token in the document, number of tokens.
Segment = tuple[Chunk, int, int, int]

#: Random 64-bit words of an instance; a multiple of the four that one Philox counter gives.
_WORDS = 8


class NspSegments:
    """The endless sequence of pairs over a store, each a pure function of (store, seed, index).

    Args:
        max_tokens: most tokens of a pair, without special tokens; at least 2.
        max_tokens: of a pair, without special tokens; at least 2.
        short_seq_prob: share of pairs with a random shorter target length.
        seed: of everything random here.

    Attributes:
        instances_per_epoch: number of pairs that visit every document.
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
        #: Half a window: every document counts as longer than it is by this length.
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
        """Return pairs ``first`` to ``first + count - 1``: equal to :meth:`instance`, but cheaper
        for each one."""
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
            # The last sentence has no successor: begin one earlier, so that B may be true.
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
        """Refuse a store from which pairs cannot be made; see :func:`check_documents`."""
        check_documents(store)

    def _shift(self, epoch: int) -> int:
        return int(generator(self.seed, "shift", epoch).integers(self.max_tokens))

    def _anchor(self, index: int) -> tuple[Chunk, int, int]:
        """Return the start of the window of pair `index`: (record batch, row, offset in the
        document).

        The offset may be outside the document, by three quarters of a window before its start
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
    """Refuse a store without another document from which a random segment could be taken.

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
    """Yield the eight random 64-bit words of each of the instances ``first`` to
    ``first + count - 1``.

    Those of instance i are the output of the counters 2i and 2i + 1 under one key, independent of
    the other instances in the call.
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
    at its front and its back by the random `words` or, if these have too few bits, by draws for
    `where` (seed, purpose, index)."""
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
    """Return how many of `cut` tokens are cut at the front, the others at the back: one coin each,
    from the random `word` if it has enough bits, else drawn for the position `where`."""
    if cut <= 64:
        return (word & ((1 << cut) - 1)).bit_count()
    return int(generator(seed, *where).binomial(cut, 0.5))


def kept_lengths(length_a: int, length_b: int, limit: int) -> tuple[int, int]:
    """Return the remaining two lengths when, as long as they add up to more than `limit`, one is
    taken from the longer, or from B if they are equal (``truncate_seq_pair`` in the published
    code)."""
    kept_b = min(length_b, max(limit // 2, limit - length_a))
    return min(length_a, limit - kept_b), kept_b


def uniform(word: int) -> float:
    """Convert a random 64-bit word to a number in [0, 1)."""
    return (word >> 11) * 2.0**-53


def gather(
    chunk: Chunk, row: int, sentence: int, start: int, target: int, at_least: int
) -> list[int]:
    """Return the ends of consecutive sentences (token offsets in the document), from number
    `sentence`, which begins at `start`, until they have `target` tokens and are at least `at_least`
    sentences, or the document ends."""
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


# Sentence-order prediction: pairs of segments in order or swapped.
#
# As in the paper (Lan et al. 2019, section 3.1) and its published code (google-research/albert,
# ``create_pretraining_data.py``): sentences are gathered up to a target length, which is the full
# length or, for 10%, a random shorter one; the first few of them, a random number, are one
# segment, the rest the other. Half of the time the two are swapped (label 1, "swapped"). A single
# sentence gets segments of a random document as B, also with label 1; a pair too long loses tokens
# of the longer segment.
#
# The start of pairs, and the differences from that code, are as for next-sentence prediction; so a
# single sentence is gathered only if a document has no other.


class OrderedSegments(NspSegments):
    """The endless sequence of pairs over a store whose order is to be predicted, each a pure
    function of (store, seed, index); the arguments are those of
    :class:`~bertine.corpora.sequences.NspSegments`.

    Raises:
        BertineError: the store is a single sentence, or an argument is out of range.
    """

    swaps: ClassVar[bool] = True

    @staticmethod
    def check(store: TokenStore) -> None:
        """Refuse a store of one sentence: it has no order to predict."""
        if store.num_sentences < 2:
            raise BertineError(
                f"{store.path}: sentence-order prediction needs at least two sentences, but there "
                f"is {store.num_sentences}; give more text, or check that it was split"
            )


# Sentence pairs: the input format SENTENCE-PAIR+NSP of RoBERTa (Liu et al. 2019, section 4.2).
#
# A is one natural sentence, B the next one of the document (label 0) or, half of the time, a
# sentence of another document (label 1). The sequences are much shorter than the longest allowed;
# the paper therefore raises the batch size, so that a batch has as many tokens as one of
# segments.
#
# No code for this format was published. Details that the paper leaves open are decided as for
# segment pairs:
#
# - In an epoch every second sentence is an A: the odd or the even ones of the corpus, decided per
#   epoch, in a random order. The last sentence of a document, which has no successor, is replaced
#   by the one before it. So A and B together have about as many tokens as the corpus.
# - The random B is a uniform sentence of a document drawn uniformly from all others. A document of
#   one sentence always has a random B.
# - A pair too long for a sequence loses tokens of the longer sentence, each from its front or its
#   back at random.


class SentencePairs:
    """The endless sequence of sentence pairs, each a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: most tokens of a pair, without special tokens; at least 2.
        seed: of everything random here.

    Attributes:
        instances_per_epoch: number of pairs that visit every sentence.

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
        """Return pairs ``first`` to ``first + count - 1``: equal to :meth:`instance`, but cheaper
        for each one."""
        words = random_words(self.seed, "sentence pairs", first, count)
        return [self._make(first + i, own) for i, own in enumerate(words)]

    def _make(self, index: int, words: list[int]) -> Instance:
        random_next, other, other_sentence, cut_a, cut_b, *_ = words
        batch, flat = self._sentences.locate(self._turn(index))
        chunk = self.store.chunk(batch)
        row = bisect_right(chunk.sentence_offsets, flat) - 1
        document = chunk.first_document + row
        # For the last sentence, the one before it, unless it is alone.
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
        """Return the number, in the whole store, of the sentence A of pair `index`."""
        number, odd = self._epochs.locate(index)
        return (2 * number + odd) % self._sentences.total
