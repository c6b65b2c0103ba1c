"""Estimate what a batch costs, learned from the batches that were computed."""

from __future__ import annotations

#: How much an old batch still counts when a new one comes: the last fifty or so do.
_KEPT = 0.98
#: Batches before which the usual overhead is taken, and that overhead, in tokens: about what
#: BERT-base and smaller models have on a CPU.
_FEW, _USUAL = 20, 48.0
#: Tokens of a batch while nothing is known.
_FIRST = 128.0
#: Nothing can be learned from batches whose sizes differ by less than a tenth: squared.
_ALIKE = 0.01
#: So much overhead, in tokens, is as good as any more: batches are filled.
_MOST = 1e6


class Pace:
    """The seconds of a batch as a fixed part and a part for each token, its padding among them: the
    line of least squares through the recent batches.

    Whether it is worth while to pad a text so that it goes along with longer ones depends on how
    the two parts compare, which is not the same for a small model and a large one, a CPU and a GPU.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Learn of a batch.

        Args:
            tokens: computed in it, padding among them.
            seconds: that it took.
        """
        self._batches += 1
        if self._batches == 1:
            return  # it also made what the others find there
        self._n = _KEPT * self._n + 1
        self._x = _KEPT * self._x + tokens
        self._y = _KEPT * self._y + seconds
        self._xx = _KEPT * self._xx + tokens * tokens
        self._xy = _KEPT * self._xy + tokens * seconds

    def tokens_in(self, seconds: float) -> float:
        """Return how many tokens, padding among them, a batch may have to take so many seconds; or
        as many as make it take twice its fixed part, where that alone is longer."""
        return max(seconds * self._x / self._y, self.overhead) if self._y else _FIRST

    @property
    def overhead(self) -> float:
        """The fixed part, in tokens: how many could be computed in its time."""
        spread = self._n * self._xx - self._x * self._x
        if self._batches < _FEW or spread < _ALIKE * self._n * self._xx:
            return _USUAL
        slope = (self._n * self._xy - self._x * self._y) / spread
        fixed = (self._y - slope * self._x) / self._n
        if slope <= 0:
            return _MOST
        return min(_MOST, max(0.0, fixed / slope))
