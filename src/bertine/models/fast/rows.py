"""Which rows of a matrix are the tokens of which sequence.

Shape legend: B sequences, T tokens of the longest, H hidden size; N rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

#: Up to so many rows a layer is computed in as few calls as there can be: each takes some
#: microseconds before it begins.
FEW_ROWS = 40
#: Rows of several sequences, unless they are few, are filled up to a multiple of the first, those
#: of first tokens alone to one of the second, and without padding, sequences have places in
#: attention for a multiple of the third. oneDNN compiles a kernel for the very sizes of a product,
#: which takes milliseconds and a third of a megabyte (for attention two thirds): like this there
#: are few sizes. It costs next to nothing: in 8 bits 736 rows take as long as 768.
_ROWS, _FIRSTS, _TOKENS = 32, 8, 8


def _filled(count: int, multiple: int) -> int:
    """Return the least multiple that is no less than `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class PaddedRows:
    """Sequences that have places of one length for attention, one after the other in the rows;
    where they are several and not few, some rows at the end fill up.

    Attributes:
        sequences: B.
        length: T.
        bias: fp32 [B, 1, T] added to attention scores, 0 at real tokens and -inf at padding; None:
            all sequences have T tokens.
    """

    sequences: int
    length: int
    bias: Tensor | None = None

    @classmethod
    def of(cls, lengths: Tensor, length: int) -> PaddedRows:
        """Make the rows of sequences padded to `length`; lengths int64 [B], each at least 1."""
        sequences = lengths.shape[0]
        if int(lengths.min()) == length:
            return cls(sequences, length)
        padding = torch.arange(length)[None, :] >= lengths[:, None]
        bias = torch.zeros(sequences, 1, length).masked_fill_(padding[:, None, :], float("-inf"))
        return cls(sequences, length, bias)

    @property
    def area(self) -> int:
        """B * T."""
        return self.sequences * self.length

    @property
    def few(self) -> bool:
        """Whether they are so few that calls cost more than what is computed in them."""
        return self.area <= FEW_ROWS

    @property
    def count(self) -> int:
        """Rows: N."""
        if self.sequences == 1 or self.few:
            return self.area
        return _filled(self.area, _ROWS)

    def first(self, x: Tensor) -> Tensor:
        """x [N, H] → [at least B, H], the rows of first tokens."""
        if self.sequences == 1:
            return x[:1]
        if self.few:
            return self.padded(x)[:, 0].contiguous()
        first = x.new_zeros(_filled(self.sequences, _FIRSTS), x.shape[1])
        first[: self.sequences] = self.padded(x)[:, 0]
        return first

    def padded(self, x: Tensor) -> Tensor:
        """x [N, H] → [B, T, H]."""
        return x[: self.area].view(self.sequences, self.length, -1)


@dataclass(frozen=True)
class UnpaddedRows:
    """Sequences one after the other, without padding. For attention those of like length have
    places together.

    Attributes:
        groups: for attention.
        members: of each group int64 [B of it], which sequences they are; the last may be there
            several times, to fill it up.
        tokens: int64, of each place of all groups the row that belongs there; at padding any.
        places: int64 [N], of each row its place; some rows at the end fill up and are copies of the
            first.
        starts: int64, of each sequence the row of its first token; filled up with the first.
        lengths: int64 [B].
    """

    groups: list[PaddedRows]
    members: list[Tensor]
    tokens: Tensor
    places: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, lengths: Tensor, together: int) -> UnpaddedRows:
        """Make the rows of sequences with `lengths`, int64 [B], each at least 1, in groups of so
        many `together`."""
        ends = lengths.cumsum(0)
        starts = ends - lengths
        groups, tokens = [], []
        order = lengths.argsort(descending=True, stable=True)
        if len(order) > together:
            order = torch.cat([order, order[-1:].expand(-len(order) % together)])
        members = list(order.split(together))
        for chosen in members:
            sizes = lengths[chosen]
            length = _filled(int(sizes[0]), _TOKENS)
            groups.append(PaddedRows.of(sizes, length))
            within = torch.arange(length)
            rows = torch.where(within < sizes[:, None], starts[chosen][:, None] + within, -1)
            tokens.append(rows.flatten())
        of_places = torch.cat(tokens)
        real = (of_places >= 0).nonzero().flatten()
        total = int(ends[-1])
        places = torch.zeros(_filled(total, _ROWS), dtype=torch.int64)
        places[of_places[real]] = real
        places[total:] = places[0]
        starts = F.pad(starts, (0, -len(starts) % _FIRSTS))
        return cls(groups, members, of_places.clamp_(min=0), places, starts, lengths)

    @property
    def count(self) -> int:
        """Rows."""
        return len(self.places)

    @property
    def sequences(self) -> int:
        """B."""
        return len(self.lengths)

    def first(self, x: Tensor) -> Tensor:
        """x [N, H] → [at least B, H], the rows of first tokens."""
        return x.index_select(0, self.starts)

    def padded(self, x: Tensor) -> Tensor:
        """x [N, H] → [B, T, H]; anything at padding."""
        within = torch.arange(int(self.lengths.max()))
        rows = self.starts[: self.sequences, None] + torch.minimum(
            within, self.lengths[:, None] - 1
        )
        return x.index_select(0, rows.flatten()).view(*rows.shape, -1)


Rows = PaddedRows | UnpaddedRows
