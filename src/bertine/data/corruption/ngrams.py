"""Choose runs of neighbouring tokens or words for prediction: ALBERT's n-gram masks.

As in the paper (Lan et al. 2019, section 4.1, equation 4) and its published code
(google-research/albert, ``create_pretraining_data.py``): the tokens of a sequence, or its words,
are visited in a random order. At each a length n is drawn, with a probability proportional to 1/n,
from those that the text there has; if the n tokens or words from there on would be more than are
still to be chosen, shorter runs are tried; a run that meets one already chosen is passed over.

It differs in two points. Runs do not go over a special token, where the published code joins the
end of one segment with the beginning of the next. And where all places have been visited and fewer
are chosen than asked for, the places are visited again for runs of one: so single tokens always
come to the number asked for, and whole words to as many as fit.

Shape legend: B sequences in the batch, T tokens of the longest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Of a random number, the bits that do not order; in a sorting key the column is kept there.
LOW_BITS = np.uint64((1 << 20) - 1)


def starts_of_words(
    choosable: npt.NDArray[np.bool_], continues: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return where a word begins that may be chosen, bool [B, T]; behind a token that may not be, a
    piece begins a word in any case."""
    first = choosable.copy()
    first[:, 1:] &= ~(continues[:, 1:] & choosable[:, :-1])
    return first


def choose_runs(
    order: npt.NDArray[np.uint64],
    choosable: npt.NDArray[np.bool_],
    continues: npt.NDArray[np.bool_] | None,
    wanted: npt.NDArray[np.int64],
    longest: int,
) -> npt.NDArray[np.int64]:
    """Choose runs of tokens in each sequence.

    Args:
        order: [B, T], random numbers below 2^63: the order of the places, and in the lowest 20
            bits the length at each.
        choosable: [B, T], True where a token may be chosen.
        continues: [B, T], True where a token is part of the word of the token before it: runs are
            of whole words then. None: of tokens.
        wanted: [B], tokens to choose.
        longest: most tokens or words of a run.

    Returns:
        Ascending flat positions, int64 [P].
    """
    first = choosable if continues is None else starts_of_words(choosable, continues)
    length = order.shape[1]
    sums = np.cumsum(1.0 / np.arange(1, longest + 1))
    limits = [[], *((sums[:most] / sums[most - 1]).tolist() for most in range(1, longest + 1))]
    chosen: list[int] = []
    for row, count in enumerate(wanted.tolist()):
        starts = np.flatnonzero(first[row])
        if not count or not len(starts):
            continue
        # A run of units goes on where the next unit begins right behind it.
        open_end = np.flatnonzero(~np.append(choosable[row], False))
        ends = np.minimum(
            np.append(starts[1:], length), open_end[np.searchsorted(open_end, starts)]
        ).tolist()
        places = starts.tolist()
        numbers = order[row, starts]
        keys = (numbers & ~LOW_BITS) | np.arange(len(starts), dtype=np.uint64)
        visits = np.argsort(keys).tolist()
        drawn = ((numbers & LOW_BITS).astype(np.float64) * 2.0**-20).tolist()
        chosen += [
            row * length + column
            for column in _of_one(places, ends, visits, drawn, limits, count, longest)
        ]
    return np.sort(np.array(chosen, dtype=np.int64))


def _of_one(
    starts: Sequence[int],
    ends: Sequence[int],
    visits: Sequence[int],
    drawn: Sequence[float],
    limits: Sequence[Sequence[float]],
    count: int,
    longest: int,
) -> list[int]:
    """Choose `count` columns of one sequence.

    Args:
        starts, ends: of each token or word, its first column and that behind its last.
        visits: their numbers in the order in which they are visited.
        drawn: for each, a number in [0, 1) that decides on the length.
        limits: for each number of tokens or words that a run may have, the sums of the
            probabilities of the lengths.
    """
    taken = [False] * len(starts)
    columns: list[int] = []

    def take(unit: int, size: int) -> None:
        left = count - len(columns)
        while size and ends[unit + size - 1] - starts[unit] > left:
            size -= 1
        if size and not any(taken[unit : unit + size]):
            taken[unit : unit + size] = [True] * size
            columns.extend(range(starts[unit], ends[unit + size - 1]))

    for unit in visits:
        if len(columns) == count:
            return columns
        most = 1
        while (
            most < longest
            and unit + most < len(starts)
            and starts[unit + most] == ends[unit + most - 1]
        ):
            most += 1
        take(unit, 1 + sum(drawn[unit] >= limit for limit in limits[most][:-1]))
    for unit in visits:
        if len(columns) == count:
            break
        take(unit, 1)
    return columns
