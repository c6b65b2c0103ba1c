"""Compare a record with another one of the same case: bit for bit, or within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from golden.taken import without_bits
from tolerance import CERTAIN, network_terms

#: How far floats may be from those of another machine, relative to the largest of the numbers that
#: they stand beside, by the nearest of these keys above them. Of the cases' two layers of width 32:
#: in fp32 all terms of six steps, every rounding to the same side, for an optimizer that divides by
#: the root of the gradients carries on what would cancel out. In bf16 and in 8 bits sums are as
#: exact, but the four inputs of a layer's products are rounded, to 8 binary digits there and back
#: in six steps, and to steps of 1/127 in the answers of four layers.
TOLERANCES = {
    "fp32": 6 * network_terms(2, 32, gradients=True) * 2**-24,  # 7e-4
    "bf16": CERTAIN * math.sqrt(6 * 2 * 2 * 4) * 2**-9,  # 0.11
    "int8": CERTAIN * math.sqrt(4 * 4) / 254,  # 0.09
}
#: Sizes of tensors are compared as if they were at least this. Where a gradient is zero but for
#: rounding (that of a key's bias, which the softmax takes away), the optimizer makes steps of the
#: rounding; in the few steps of a case they come to a ten thousandth.
_LEAST_SIZE = 1.0


@dataclass(frozen=True)
class Difference:
    """A place in a record, and what stands there in both.

    Attributes:
        place: the keys to it.
        recorded, found: the values, None where there is none.
        precision: whose tolerance holds there.
        relative: of floats, how far they are apart; infinite of all else.
    """

    place: str
    recorded: Any
    found: Any
    precision: str
    relative: float

    @property
    def close(self) -> bool:
        """Whether another machine may differ by it: not every one computes in 8 bits."""
        cannot = self.found is None and self.place.endswith("int8")
        return cannot or self.relative <= TOLERANCES[self.precision]

    def __str__(self) -> str:
        apart = "" if math.isinf(self.relative) else f" ({self.relative:.1e})"
        return f"{self.place}: recorded {_shown(self.recorded)}, found {_shown(self.found)}{apart}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


@dataclass(frozen=True)
class _At:
    """Where a comparison is, and what holds there."""

    place: str = ""
    precision: str = "fp32"
    scale: float = 0.0

    def inside(self, key: str | int, scale: float = 0.0) -> _At:
        """Return the place under `key`."""
        precision = key if isinstance(key, str) and key in TOLERANCES else self.precision
        place = f"{self.place}/{key}" if self.place else str(key)
        return _At(place, precision, scale)

    def differ(self, a: Any, b: Any, relative: float = math.inf) -> Difference:
        """Return what stands here."""
        return Difference(self.place, a, b, self.precision, relative)


def differences(recorded: Any, found: Any, *, exact: bool) -> list[Difference]:
    """List where `found` is not `recorded`.

    Args:
        exact: both are computed on this machine, and everything must be the same; else floats must
            be close, and bits are not looked at.
    """
    if exact:
        return list(_walk(_At(), recorded, found))
    every = _walk(_At(), without_bits(recorded), without_bits(found))
    return [each for each in every if not each.close]


def furthest(recorded: Any, found: Any) -> dict[str, Difference]:
    """Find the floats that are furthest apart, by precision; those under ``bits`` do not count."""
    worst: dict[str, Difference] = {}
    for each in _walk(_At(), without_bits(recorded), without_bits(found)):
        if not math.isinf(each.relative):
            before = worst.get(each.precision)
            if before is None or each.relative > before.relative:
                worst[each.precision] = each
    return worst


def _walk(at: _At, a: Any, b: Any) -> Iterator[Difference]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            if key in a and key in b:
                yield from _walk(at.inside(key), a[key], b[key])
            else:
                yield at.inside(key).differ(a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        sizes = [abs(each) for each in a if isinstance(each, float) and math.isfinite(each)]
        least = _LEAST_SIZE if at.place.endswith("/size") else 0.0
        scale = max([*sizes, least])
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _walk(at.inside(number, scale), one, other)
    elif isinstance(a, float) and isinstance(b, float):
        # As text: NaN is itself, and 0 is not -0.
        if repr(a) != repr(b):
            largest = max(abs(a), abs(b), at.scale)
            apart = abs(a - b) / largest if largest else 0.0
            yield at.differ(a, b, apart if math.isfinite(apart) else math.inf)
    elif type(a) is not type(b) or a != b:
        yield at.differ(a, b)
