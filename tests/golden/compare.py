"""Compare a record with another one of the same case: bit for bit, or within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

#: How far floats may be from those of another machine, relative to the largest of the numbers that
#: they stand beside, by the nearest of these keys above them. With the kernels of AVX2, and of no
#: instructions in particular, and those of MKL that are the same everywhere, they were 1.5e-4,
#: 4.5e-2 and 1e-2 off at the most, and nearly all of fp32 less than 1e-5.
TOLERANCES = {"fp32": 5e-4, "bf16": 1e-1, "int8": 5e-2}
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
        bits: whether it is compared on machines of the same description only.
        relative: of floats, how far they are apart; infinite of all else.
    """

    place: str
    recorded: Any
    found: Any
    precision: str
    bits: bool
    relative: float

    @property
    def close(self) -> bool:
        """Whether another machine may differ by it."""
        return self.bits or self.relative <= TOLERANCES[self.precision]

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
    bits: bool = False
    scale: float = 0.0

    def inside(self, key: str | int, scale: float = 0.0) -> _At:
        """Return the place under `key`."""
        precision = key if isinstance(key, str) and key in TOLERANCES else self.precision
        place = f"{self.place}/{key}" if self.place else str(key)
        return _At(place, precision, self.bits or key == "bits", scale)

    def differ(self, a: Any, b: Any, relative: float = math.inf) -> Difference:
        """Return what stands here."""
        return Difference(self.place, a, b, self.precision, self.bits, relative)


def differences(recorded: Any, found: Any, *, exact: bool) -> list[Difference]:
    """List where `found` is not `recorded`.

    Args:
        exact: everything must be the same; else floats must be close, and what stands under the
            key ``bits`` is not looked at.
    """
    every = _walk(_At(), recorded, found)
    return [each for each in every if exact or not each.close]


def furthest(recorded: Any, found: Any) -> dict[str, Difference]:
    """Find the floats that are furthest apart, by precision; those under ``bits`` do not count."""
    worst: dict[str, Difference] = {}
    for each in _walk(_At(), recorded, found):
        if not each.bits and not math.isinf(each.relative):
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
                found = at.inside(key).differ(a.get(key), b.get(key))
                # Not every machine computes in 8 bits.
                yield replace(found, bits=True) if key == "int8" and key in a else found
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
