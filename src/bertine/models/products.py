"""The matrix products that a model does with its weights, and how long they take on this machine.

What the flags of a processor say is no measure: some that have bf16 instructions multiply fp32
faster, and with a narrow product or busy neighbours one thread may be faster than two. So the
choices of :mod:`bertine.models.precision` and :mod:`bertine.models.precision` are made by timing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

#: Tokens of a micro-batch, where the caller does not know.
TOKENS = 2048
#: Of each product so many rows are computed that it has about so many operations, within bounds,
#: and at most so many columns: more take longer, but have about the same rate.
_OPERATIONS, _FEWEST, _ROWS, _COLUMNS = 1e8, 128, 1024, 8192
#: Share of all operations that the measured products have, at least; the others are small ones.
_SHARE = 0.9
#: Operations of the largest product, at least: below it is not the arithmetic that takes the time.
_LEAST = 1e7
#: How often everything is timed, and seconds after which nothing is timed again. The first time is
#: for oneDNN, which compiles each product.
_TURNS, _ENOUGH = 4, 0.3


class Product(NamedTuple):
    """A product of activations [rows, inputs] with weights [outputs, inputs].

    Attributes:
        times: how often a product of this size is done in a forward pass; of one that is measured
            with fewer rows or columns than it has, a larger number.
        casts: how often weights of this size are brought to the type of the product.
    """

    rows: int
    inputs: int
    outputs: int
    times: float
    casts: float

    @property
    def operations(self) -> float:
        """Multiplications and additions of all of them."""
        return 2.0 * self.rows * self.inputs * self.outputs * self.times


def products_of(model: nn.Module, tokens: int = TOKENS, words: int = 0) -> tuple[Product, ...]:
    """List the products of a forward pass that have nearly all of its operations, the heaviest
    first.

    Args:
        model: whose matrices each token is multiplied with, but for tables that are looked up.
        tokens: of a micro-batch.
        words: of them, tokens whose word is scored against the whole table of words.

    Returns:
        None at all for a model so small that its products are not what takes the time.
    """
    tables = {id(part.weight): part for part in model.modules() if isinstance(part, nn.Embedding)}
    sizes = Counter(
        (tokens, parameter.shape[1], parameter.shape[0])
        for parameter in model.parameters()
        if parameter.dim() == 2 and id(parameter) not in tables
    )
    if words and tables:
        table = max(tables.values(), key=lambda table: table.num_embeddings)
        sizes[words, table.embedding_dim, table.num_embeddings] += 1
    products = []
    for (rows, inputs, outputs), count in sizes.items():
        width = min(outputs, _COLUMNS)
        height = int(_OPERATIONS / (2 * inputs * width))
        height = min(rows, max(_FEWEST, min(height, _ROWS)))
        casts = count * outputs / width
        products.append(Product(height, inputs, width, casts * rows / height, casts))
    products.sort(key=lambda product: -product.operations)
    if not products or products[0].operations / products[0].times < _LEAST:
        return ()
    whole, covered, kept = sum(product.operations for product in products), 0.0, []
    for product in products:
        if covered >= _SHARE * whole:
            break
        kept.append(product)
        covered += product.operations
    return tuple(kept)


@torch.no_grad()
def seconds_of(products: Sequence[Product], dtype: torch.dtype) -> float:
    """Time each of `products` once, on the CPU with fp32 weights and activations of `dtype`, as
    autocast computes them; return the seconds of all that they stand for."""
    total = 0.0
    for product in products:
        weights = torch.full((product.outputs, product.inputs), 0.01)
        activations = torch.full((product.rows, product.inputs), 0.5, dtype=dtype)
        began = time.perf_counter()
        cast = weights.to(dtype)
        between = time.perf_counter()
        F.linear(activations, cast)
        ended = time.perf_counter()
        total += product.casts * (between - began) + product.times * (ended - between)
    return total


def best_of(measures: Sequence[Callable[[], float]]) -> list[float]:
    """Return the best of some measurements of each kind. The kinds take turns, so that whatever
    else the machine does meets all of them.

    Args:
        measures: each returns the seconds of something.
    """
    best = [float("inf")] * len(measures)
    began = time.perf_counter()
    for turn in range(_TURNS):
        if turn > 1 and time.perf_counter() - began > _ENOUGH:
            break
        best = [min(before, measure()) for before, measure in zip(best, measures, strict=True)]
    return best
