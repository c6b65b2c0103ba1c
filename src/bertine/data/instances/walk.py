"""Walking over a few sentences of a store, from any place, and cutting them into sequences.

The places where the text may be cut, here *boundaries*, are the ends of sentences. A sentence
that is longer than a sequence has more of them inside, an eighth of a sequence apart.

Positions count tokens from any origin; between two documents one position is left free, for the
separator that a sequence over both has there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain

from bertine.data.instances.instance import Instance
from bertine.data.store import Chunk, TokenStore


class Walk:
    """A walk over consecutive sequences of whole sentences, begun at the boundary nearest to a
    place.

    Args:
        store: the documents.
        batch, row: the document to begin in: its record batch, its row there.
        document: the position of its first token.
        origin: where to begin, a position from `document` on to the end of that document
            (behind its last token included).
        limit: most tokens of a sequence, separators between documents counted.
        crossing: go on with the next document at the end of one; after the last with the first.

    Attributes:
        start, end: the positions of the sequence that :meth:`advance` made last.
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
        #: Documents met: the position of the first token, that behind the last, and where it is.
        self._documents: list[tuple[int, int, Chunk, int]] = []
        self._batch, self._chunk, self._row = batch, store.chunk(batch), row
        #: Of the sentences of the open document to which no boundary has been found yet.
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
        """Find boundaries until one is behind `position`, or a document that is not to be left
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
        """Make the next sequence: to the boundary nearest to `goal`, but at least one sentence,
        and not more tokens than the limit. False, and nothing is changed, at the end of a
        document that is not to be left."""
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
        """Make the next sequence as long as it may be; False as in :meth:`advance`."""
        return self.advance(self._begins[self._at] + self._limit)

    def retreat(self) -> None:
        """Make the longest sequence that ends where the open document does; for the last one of a
        document that is not to be left."""
        self._extend(self._document_end)
        self.end = self._document_end
        self.start = self._begins[bisect_left(self._begins, self.end - self._limit)]

    @property
    def following(self) -> int:
        """Where the next sequence begins."""
        return self._begins[self._at]

    def instance(self) -> Instance:
        """Return the sequence made last: its tokens, one view a document, the documents, and where
        the sentences end (those of a sentence that is longer than a sequence: its pieces)."""
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
    """Return a length in pieces of `unit`, the last one shorter."""
    return [min(unit, length - i) for i in range(0, length, unit)]
