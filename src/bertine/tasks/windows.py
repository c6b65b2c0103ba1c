"""Windows over words: each word is predicted in exactly one, with words around it as context.

Paper, section 5.3: the words of a document around a sentence help; and a sentence may be longer
than the model. Both are one thing: a window has a *core*, the words that it predicts, and context
on both sides, as much as fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The words from `begin` to before `end` are read, those from `first` to before `last` of
    them predicted."""

    begin: int
    end: int
    first: int
    last: int


def cover(
    lengths: Sequence[int], first: int, last: int, room: int, *, low: int, high: int
) -> list[Window]:
    """Windows whose cores are, one after the other, the words from `first` to before `last`.

    Where these fit into one window, that is all. Else a core takes half of the room, so that every
    word has about a quarter of it or more as context on each side, but at the ends.

    Args:
        lengths: pieces of each word, none more than `room`.
        first, last: the words to predict, a sentence.
        room: pieces of a window, special tokens not counted.
        low, high: the words that may be read: the sentence itself, or the document around it.
    """
    cores: list[tuple[int, int]] = []
    if sum(lengths[first:last]) <= room:
        cores.append((first, last))
    else:
        begin, size = first, 0
        for at in range(first, last):
            if at > begin and size + lengths[at] > room // 2:
                cores.append((begin, at))
                begin, size = at, 0
            size += lengths[at]
        cores.append((begin, last))
    return [_widened(lengths, core, room, low, high) for core in cores]


def _widened(
    lengths: Sequence[int], core: tuple[int, int], room: int, low: int, high: int
) -> Window:
    """The window of a core: words are added at the side with fewer pieces of context, and at the
    other when that side has no more that fit."""
    begin, end = core
    free = room - sum(lengths[begin:end])
    left = right = 0
    while True:
        can_left = begin > low and lengths[begin - 1] <= free
        can_right = end < high and lengths[end] <= free
        if can_left and (left <= right or not can_right):
            begin -= 1
            left += lengths[begin]
            free -= lengths[begin]
        elif can_right:
            right += lengths[end]
            free -= lengths[end]
            end += 1
        else:
            return Window(begin, end, *core)
