"""Define the input formats of pre-training, and make their sequences of running text.

FULL-SENTENCES and DOC-SENTENCES are those of RoBERTa (Liu et al. 2019, section 4.2). A sequence
holds as many whole consecutive sentences as fit: with FULL-SENTENCES the sentences of the next
document follow after an extra separator; with DOC-SENTENCES a sequence ends with its document.
Special tokens are placed as in RoBERTa, ``<s> ... </s>``, and across the end of a document ``<s>
... </s> ... </s>``; BERT's likewise: ``[CLS] ... [SEP] ... [SEP]``. All of it is segment A
(``token_type_ids`` 0).

The published code (facebookresearch/fairseq, ``TokenBlockDataset``) packs the corpus once, front
to back, keeps a table of all sequences, and shuffles them. Here sequence number `index` is
computed on demand, and so differs from that code in these points:

- The cuts are drawn per epoch. A grid with a random offset is laid over the corpus, the distance
  of its lines slightly less than the mean length of sequences packed from the front; a sequence
  goes from the sentence end nearest to one line to that nearest to the next. One that would be too
  long ends earlier, and the next one begins there.
- To let a sequence begin where another ended, the code walks from the last grid line whose number
  is a multiple of eight (in a document: of eight from a random one on). Where sentences are longer
  than on average, sequences hold less, and the part not reached at the next such line is not seen
  in that epoch: of English books and articles 3% of the tokens at length 128, 0.8% at 512, others
  in each epoch. If no sentence ends between two lines, a few tokens are seen twice.
- A sentence longer than a sequence is cut, at multiples of an eighth of a sequence; in the
  published code it is a sequence of its own, of any length.
- With DOC-SENTENCES the batch size is constant; the paper raises it if sequences are short. A
  document that fits into one sequence always is one; in a longer one the first and the last
  sequence are the shorter ones, by random shares that change with the epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.core.names import InputFormat
from bertine.core.rng import generator, key
from bertine.corpora.sequences import (
    Counted,
    Epochs,
    Instance,
    NspSegments,
    OrderedSegments,
    SentencePairs,
    SentenceReader,
    gather,
    random_words,
)
from bertine.corpora.store import Chunk, TokenStore
from bertine.tokenization.base import Frame, Template

#: Number of sequences found by one walk.
_WALKED = 8
#: Distance of the grid's lines as a share of the mean length of full sequences. A smaller one makes
#: sequences shorter; a larger one leaves more of the corpus unseen in an epoch.
_SPACING = 0.98
#: Places of the corpus where full sequences are measured.
_SAMPLES = 64
#: Record batches whose sequence counts per document are cached.
_KEPT = 32


class FullSentences:
    """The endless sequence of packed sentences, each a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: most tokens of a sequence, without the special tokens at its ends.
        seed: of everything random here.

    Attributes:
        instances_per_epoch: number of sequences that see the whole corpus about once.

    Raises:
        BertineError: the store is empty.
    """

    def __init__(self, store: TokenStore, *, max_tokens: int, seed: int = 0) -> None:
        check_tokens(store)
        self.store, self.max_tokens, self.seed = store, max_tokens, seed
        #: The corpus is a ring: every document, followed by a separator.
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

    def neighbour(self, index: int, side: int) -> Instance | None:
        """Return the sequence whose text is before that of number `index` (`side` -1) or after it
        (1); None at the beginning or end of the corpus."""
        line, offset = self._epochs.locate(index)
        other = line + side
        return self._at(other, offset) if 0 <= other < self.instances_per_epoch else None

    def _at(self, line: int, offset: int) -> Instance:
        """Return the sequence that begins at a line of the grid, which is shifted by `offset`."""
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
    """Sequences like those of :class:`FullSentences`, none of which crosses the end of a
    document."""

    def __init__(self, store: TokenStore, *, max_tokens: int, seed: int = 0) -> None:
        check_tokens(store)
        self.store, self.max_tokens, self.seed = store, max_tokens, seed
        self._spacing = min(self.max_tokens, _spacing(store, self.max_tokens))
        #: For some record batches, the cumulative number of sequences up to each document.
        self._ends: dict[int, npt.NDArray[np.int64]] = {}
        self._sequences = Counted(store, lambda chunk: int(self._count(chunk).sum()))
        self.instances_per_epoch = self._sequences.total
        self._epochs = Epochs(self.instances_per_epoch, seed, "doc sentences", self._salt)

    def _salt(self, epoch: int) -> int:
        return key(self.seed, "first sequence", epoch) & _MASK

    def _count(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return the number of sequences of each document of a record batch, [documents]."""
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
        # The room left in the sequences is taken from the first one and the last. All random draws
        # belong to the document in this epoch, so that its sequences fit together.
        draw = _mixed(salt + chunk.first_document + row)
        off_first = draw // 16 % (count * spacing - tokens + 1)
        first = max(0, part - (part - draw) % _WALKED)
        walk = SentenceReader(
            self.store, batch, row, 0, max(0, first * spacing - off_first), self.max_tokens, False
        )
        for following in range(first + 1, part + 2):
            # If the document has already ended, its last sequence is repeated.
            if not walk.advance(following * spacing - off_first):
                break
        if part + 1 == count and walk.end < tokens and draw & 8:
            # There was no room for the last sentences. In every second epoch those before them are
            # left out instead.
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


def _walk_from(
    store: TokenStore, starts: list[int], position: int, ring: int, limit: int
) -> SentenceReader:
    """Start a walk at a position of the ring of documents, each followed by a separator."""
    within = position % ring
    batch = bisect_right(starts, within) - 1
    chunk = store.chunk(batch)
    row = chunk.row_at(within - starts[batch], 1)
    document = starts[batch] + chunk.token_offsets[row] + row
    return SentenceReader(store, batch, row, document + position - within, position, limit, True)


def _spacing(store: TokenStore, limit: int) -> int:
    """Return the distance of the grid's lines: slightly less than the mean length of sequences
    filled with whole sentences up to `limit` tokens, measured at some places all over the
    corpus."""
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


# Neighbouring texts: each is a sequence of its own, to be recognized among others.
#
# A window of consecutive sentences, twice as long as a sequence, is cut in two at a random sentence
# end, so that there are short and long texts: the part before is one sequence, the part after it
# the other. A text that is too long keeps the part nearer to the cut. A document of a single
# sentence has no neighbours; its two sequences are equal and differ only in their masks (as by
# dropout in Gao et al. 2021, SimCSE).
#
# Windows start as in :mod:`bertine.corpora.sequences`.


class Neighbours(NspSegments):
    """The endless sequence of texts over a store, in which numbers 2k and 2k + 1 are neighbours;
    each is a pure function of (store, seed, index).

    Args:
        store: the documents.
        max_tokens: most tokens of a text, without special tokens.
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


# Registry of the input formats.

#: The shortest length of sequences.
LEAST_SEQ_LENGTH = 8


class Instances(Protocol):
    """The endless sequence of instances of one format, each a pure function of (store, seed,
    index).

    Attributes:
        instances_per_epoch: number of instances that see the corpus about once.
    """

    @property
    def instances_per_epoch(self) -> int: ...

    def instances(self, first: int, count: int) -> Sequence[Instance]:
        """Return instances ``first`` to ``first + count - 1``."""
        ...


@dataclass(frozen=True)
class Label:
    """The meaning of the labels of a format's instances.

    Attributes:
        target: their name among the targets of a batch.
        meanings: the word for each label, from 0 on.
    """

    target: str
    meanings: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """A format of sequences.

    Attributes:
        make: makes the instances of a store, ``make(store, max_tokens=…, seed=…)``; `max_tokens`
            excludes special tokens.
        pairs: whether a sequence is two segments, A and B; else it is running text.
        label: the label of a sequence as a whole; None if it has none.
        shortened: whether some sequences are made shorter at random; `make` then takes their share
            as ``short_seq_prob``.
        bare: whether there are no special tokens at the ends of a sequence (GPT-1).
        neighbours: whether instances 0 and 1, 2 and 3, … are neighbouring texts.
    """

    make: Callable[..., Instances]
    pairs: bool = False
    label: Label | None = None
    shortened: bool = False
    bare: bool = False
    neighbours: bool = False


#: Whether B follows A in its document.
NEXT_SENTENCE = Label("next_sentence_label", ("next", "random"))
#: Whether A precedes B in its document.
SENTENCE_ORDER = Label("sentence_order_label", ("in order", "swapped"))
#: The four formats of Liu et al. 2019, section 4.2, the first of which is that of Devlin et al.
#: 2018; that of Radford et al. 2018, FULL-SENTENCES without special tokens at the ends; that of Lan
#: et al. 2019; and texts that are compared with each other.
FORMATS: dict[InputFormat, Format] = {
    "segment-pair": Format(NspSegments, pairs=True, label=NEXT_SENTENCE, shortened=True),
    "sentence-pair": Format(SentencePairs, pairs=True, label=NEXT_SENTENCE),
    "full-sentences": Format(FullSentences),
    "doc-sentences": Format(DocSentences),
    "running-text": Format(FullSentences, bare=True),
    "sentence-order": Format(OrderedSegments, pairs=True, label=SENTENCE_ORDER, shortened=True),
    "neighbours": Format(Neighbours, neighbours=True),
}
INPUT_FORMATS = tuple(FORMATS)
#: The formats that label whether B follows A, as next-sentence prediction requires.
PAIR_FORMATS: tuple[InputFormat, ...] = tuple(
    name for name, form in FORMATS.items() if form.label == NEXT_SENTENCE
)
#: The formats that label whether A and B are in order.
ORDER_FORMATS: tuple[InputFormat, ...] = tuple(
    name for name, form in FORMATS.items() if form.label == SENTENCE_ORDER
)


def make_instances(
    input_format: InputFormat,
    store: TokenStore,
    template: Template,
    *,
    max_seq_length: int,
    short_seq_prob: float = 0.1,
    seed: int = 0,
) -> Instances:
    """Create the instances of `store` in one of `INPUT_FORMATS`.

    Args:
        template: of the store's tokenizer, whose special tokens reduce the room.
        max_seq_length: most tokens of a sequence with its special tokens, at least 8.
        short_seq_prob: share of segment pairs, in order or not, made shorter at random; not used by
            the other formats.
        seed: of all random draws.

    Raises:
        BertineError: the format is unknown, an argument is out of range, or the store has too few
            documents for the format.
    """
    if input_format not in FORMATS:
        raise BertineError(
            f"input_format is {input_format!r}, but must be one of {', '.join(FORMATS)}"
        )
    if max_seq_length < LEAST_SEQ_LENGTH:
        raise BertineError(
            f"max_seq_length is {max_seq_length}, but must be at least {LEAST_SEQ_LENGTH}"
        )
    chosen = FORMATS[input_format]
    special = sequence_frame(input_format, template).added(2 if chosen.pairs else 1)
    options = {"short_seq_prob": short_seq_prob} if chosen.shortened else {}
    return chosen.make(store, max_tokens=max_seq_length - special, seed=seed, **options)


def sequence_frame(input_format: InputFormat, template: Template) -> Frame:
    """Return the special tokens of a sequence of a format."""
    form = FORMATS[input_format]
    if form.bare:
        return Frame((), template.running.between, ())
    return template.two if form.pairs else template.running
