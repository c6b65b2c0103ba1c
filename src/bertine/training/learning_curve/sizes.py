"""How many labels the points of a learning curve have, and which examples each draw takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bertine.rng import generator

#: A number of labels is left out where there are fewer than so many times as many in all.
_APART = 1.3


def sizes_of_curve(
    labels: Sequence[Sequence[str]], least: int, growth: float, most: int | None, seed: int = 0
) -> list[int | None]:
    """Return the numbers of labels of each class, ascending.

    Args:
        labels: of each example.
        least: the first number.
        growth: from one to the next.
        most: examples in the largest draw; None: all.
        seed: of the draws.

    Returns:
        The numbers; None at the end: all examples, where `most` allows it.
    """
    sizes: list[int | None] = []
    counts = Counter(name for each in labels for name in each)
    limit = len(labels) if most is None else min(most, len(labels))
    size = float(least)
    while True:
        each = round(size)
        total = len(draw_examples(labels, each, seed, 0))
        enough = each >= max(counts.values(), default=0)
        if enough or total * (_APART if limit == len(labels) else 1.0) > limit:
            break
        if each not in sizes:
            sizes.append(each)
        size *= growth
    return sizes if limit < len(labels) else [*sizes, None]


def draw_examples(
    labels: Sequence[Sequence[str]],
    size: int | None,
    seed: int,
    number: int,
    most: int | None = None,
) -> list[int]:
    """Draw examples until each label has `size` of them, or all that there are; or until there are
    `most`, as with several labels an example one draw needs more of them than another.

    A larger draw of the same seed and number has all examples of the smaller ones.

    Returns:
        Their numbers, ascending.
    """
    if size is None:
        return list(range(len(labels)))
    counts: Counter[str] = Counter()
    chosen: list[int] = []
    order = generator(seed, "draws of a learning curve", number).permutation(len(labels))
    for at in order.tolist():
        if len(chosen) == most:
            break
        if any(counts[name] < size for name in labels[at]):
            counts.update(labels[at])
            chosen.append(at)
    return sorted(chosen)
