"""What PyTorch draws as a function of a seed and a place, whatever it has drawn before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from bertine import rng


def torch_seed(seed: int, *where: int | str) -> int:
    """Return the seed of PyTorch's generators at the position `where` under `seed`: 63 bits of
    :func:`bertine.rng.key`."""
    return rng.key(seed, *where) & 0x7FFF_FFFF_FFFF_FFFF


@contextlib.contextmanager
def seeded(seed: int, *where: int | str) -> Iterator[None]:
    """Let PyTorch's generator on the CPU draw as at the position `where` under `seed`; afterwards
    it goes on as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, *where))
        yield
