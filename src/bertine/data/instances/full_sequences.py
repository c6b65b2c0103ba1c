"""Whole sentences packed to full length: RoBERTa's FULL-SENTENCES and DOC-SENTENCES.

Liu et al. 2019, section 4.2. A sequence holds as many whole consecutive sentences as there is
room for: with FULL-SENTENCES sentences of the next document follow those of one that ends, an
extra separator between them; with DOC-SENTENCES a sequence ends where its document does. Special
tokens stand as in RoBERTa, ``<s> ... </s>``, and over the end of a document ``<s> ... </s> ...
</s>``; BERT's in their place: ``[CLS] ... [SEP] ... [SEP]``. All of it is segment A
(``token_type_ids`` 0).

The published code (facebookresearch/fairseq, ``TokenBlockDataset``) packs the corpus once, front
to back, keeps a table of all sequences, and shuffles them. Here sequence number `index` is
computed when it is asked for, and so differs from that code in these points:

- The cuts are drawn per epoch. A grid with a random offset is laid over the corpus, its lines
  nearly as far apart as sequences packed from the front are long on average; a sequence goes from
  the sentence end nearest to one line to that nearest to the next. One that would be too long
  ends earlier, and the next one begins there.
- That a sequence begins where another ended is known by walking from the last grid line whose
  number is a multiple of eight (of a document: of eight from a random one on). Where sentences
  are longer than on average, sequences hold less, and what they have not reached at the next such
  line is not seen in that epoch: of English books and articles 3% of the tokens at length 128,
  0.8% at 512, others in each epoch. Where no sentence ends between two lines, a few tokens are
  seen twice.
- A sentence longer than a sequence is cut, at multiples of an eighth of a sequence; in the
  published code it is a sequence of its own, of any length.
- With DOC-SENTENCES the batch size stays; the paper raises it where sequences are short. A
  document that fits into one sequence always is one; of a longer one the first and the last
  sequence are the shorter ones, by random shares that change with the epoch.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from bertine.data.instances.instance import Instance
from bertine.data.instances.order import Counted, Epochs
from bertine.data.instances.walk import Walk
from bertine.data.store import Chunk, TokenStore
from bertine.errors import BertineError
from bertine.rng import generator, key

#: Sequences that are found by walking from one another.
_WALKED = 8
#: Distance of the grid's lines as a share of the mean length of full sequences. With less,
#: sequences are shorter; with more, more of the corpus is not seen in an epoch.
_SPACING = 0.98
#: Places of the corpus where full sequences are measured.
_SAMPLES = 64
#: Record batches whose documents' numbers of sequences are kept.
_KEPT = 32


class FullSentences:
    """The endless sequence of packed sentences, each a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: of a sequence, without the special tokens at its ends.
        seed: of everything random here.

    Attributes:
        instances_per_epoch: sequences in which the whole corpus is seen, about once.

    Raises:
        BertineError: the store is empty.
    """

    def __init__(self, store: TokenStore, *, max_tokens: int, seed: int = 0) -> None:
        check_tokens(store)
        self.store, self.max_tokens, self.seed = store, max_tokens, seed
        #: The corpus is a ring: every document, and a separator behind it.
        self._ring = store.num_tokens + store.num_documents
        self._starts = [
            a + b for a, b in zip(store.first_tokens, store.first_documents, strict=True)
        ]
        spacing = min(self._ring, _spacing(store, self.max_tokens))
        self.instances_per_epoch = -(-self._ring // spacing)
        self._epochs = Epochs(self.instances_per_epoch, seed, "full sentences", self._offset)

    def instance(self, index: int) -> Instance:
        """Return sequence number `index`, from 0 without end; epochs follow each other in it."""
        return self._at(*self._epochs.locate(index))

    def beside(self, index: int, side: int) -> Instance | None:
        """Return the sequence whose text stands before that of number `index` (`side` -1) or behind
        it (1); None where the corpus begins or ends."""
        line, offset = self._epochs.locate(index)
        other = line + side
        return self._at(other, offset) if 0 <= other < self.instances_per_epoch else None

    def _at(self, line: int, offset: int) -> Instance:
        """Return the sequence from a line of the grid on, which is moved by `offset`."""
        first = line - line % _WALKED
        walk = _walk_from(
            self.store, self._starts, offset + self._line(first), self._ring, self.max_tokens
        )
        for following in range(first + 1, line + 2):
            walk.advance(offset + self._line(following))
        return walk.instance()

    def instances(self, first: int, count: int) -> list[Instance]:
        """Return sequences ``first`` to ``first + count - 1``."""
        return [self.instance(index) for index in range(first, first + count)]

    def _offset(self, epoch: int) -> int:
        return int(generator(self.seed, "grid", epoch).integers(self._ring))

    def _line(self, number: int) -> int:
        return number * self._ring // self.instances_per_epoch


class DocSentences:
    """The same as :class:`FullSentences`, but no sequence goes over the end of a document."""

    def __init__(self, store: TokenStore, *, max_tokens: int, seed: int = 0) -> None:
        check_tokens(store)
        self.store, self.max_tokens, self.seed = store, max_tokens, seed
        self._spacing = min(self.max_tokens, _spacing(store, self.max_tokens))
        #: For some record batches, how many sequences there are up to the end of each document.
        self._ends: dict[int, npt.NDArray[np.int64]] = {}
        self._sequences = Counted(store, lambda chunk: int(self._count(chunk).sum()))
        self.instances_per_epoch = self._sequences.total
        self._epochs = Epochs(self.instances_per_epoch, seed, "doc sentences", self._salt)

    def _salt(self, epoch: int) -> int:
        return key(self.seed, "first sequence", epoch) & _MASK

    def _count(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return how many sequences each document of a record batch makes, [documents]."""
        tokens = np.diff(np.asarray(chunk.token_offsets)).astype(np.int64)
        return np.where(tokens <= self.max_tokens, 1, -(-tokens // self._spacing))

    def instance(self, index: int) -> Instance:
        """Return sequence number `index`, from 0 without end; epochs follow each other in it."""
        sequence, salt = self._epochs.locate(index)
        batch, part = self._sequences.locate(sequence)
        chunk = self.store.chunk(batch)
        ends = self._ends.get(batch)
        if ends is None:
            if len(self._ends) >= _KEPT:
                del self._ends[next(iter(self._ends))]
            ends = self._ends[batch] = np.cumsum(self._count(chunk))
        row = int(np.searchsorted(ends, part, side="right"))
        before = int(ends[row - 1]) if row else 0
        part, count = part - before, int(ends[row]) - before
        tokens = chunk.token_offsets[row + 1] - chunk.token_offsets[row]
        spacing = max(self._spacing, -(-tokens // count))
        # What the sequences could hold more is taken off the first one and the last. All that is
        # random here is the document's in this epoch, so that its sequences fit together.
        draw = _mixed(salt + chunk.first_document + row)
        off_first = draw // 16 % (count * spacing - tokens + 1)
        first = max(0, part - (part - draw) % _WALKED)
        walk = Walk(
            self.store, batch, row, 0, max(0, first * spacing - off_first), self.max_tokens, False
        )
        for following in range(first + 1, part + 2):
            # Where the document has ended already, its last sequence is seen again.
            if not walk.advance(following * spacing - off_first):
                break
        if part + 1 == count and walk.end < tokens and draw & 8:
            # There was no room for the last sentences. In every other epoch it is those before
            # them that are not seen.
            walk.retreat()
        return walk.instance()

    def instances(self, first: int, count: int) -> list[Instance]:
        """Return sequences ``first`` to ``first + count - 1``."""
        return [self.instance(index) for index in range(first, first + count)]


_MASK = (1 << 64) - 1


def _mixed(value: int) -> int:
    """Mix the bits of a 64-bit number: every bit of the result depends on all (the finalizer of
    SplitMix64)."""
    value = (value * 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def check_tokens(store: TokenStore) -> None:
    """Refuse a store without a token."""
    if not store.num_tokens:
        raise BertineError(f"{store.path}: there is no token in it; prepare it from other text")


def _walk_from(store: TokenStore, starts: list[int], position: int, ring: int, limit: int) -> Walk:
    """Return a walk from a position of the ring that the documents with a separator each make."""
    within = position % ring
    batch = bisect_right(starts, within) - 1
    chunk = store.chunk(batch)
    row = chunk.row_at(within - starts[batch], 1)
    document = starts[batch] + chunk.token_offsets[row] + row
    return Walk(store, batch, row, document + position - within, position, limit, True)


def _spacing(store: TokenStore, limit: int) -> int:
    """Return how far apart the lines of the grid are: a little less than sequences are long on
    average when each is filled with whole sentences up to `limit` tokens, measured at some places
    all over the corpus."""
    starts = [a + b for a, b in zip(store.first_tokens, store.first_documents, strict=True)]
    ring = store.num_tokens + store.num_documents
    total = 0
    for sample in range(_SAMPLES):
        walk = _walk_from(store, starts, sample * ring // _SAMPLES, ring, limit)
        first = walk.following
        for _ in range(_WALKED):
            walk.fill()
        total += walk.following - first
    return max(1, round(_SPACING * total / (_SAMPLES * _WALKED)))
