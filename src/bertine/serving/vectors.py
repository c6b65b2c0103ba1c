"""Vectors of texts, made when somebody asks for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np


class Vectors(Protocol):
    """What the server asks of whoever makes vectors."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """fp32 [N, H] of N texts, in their order."""
        ...


class Late:
    """Vectors whose maker is opened when they are first asked for: not everybody who serves a
    classifier wants them, and they may take the weights once more.

    Args:
        open: makes them; what it raises is raised at every call until it succeeds.
    """

    def __init__(self, open: Callable[[], Vectors]) -> None:
        self._open = open
        self._opened: Vectors | None = None
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """fp32 [N, H] of N texts, in their order."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            opened = self._opened
        return opened(texts)
