"""Where a run stands, and how much of it the next step is: by its steps, or by its time.

A run that has a time follows the clock. Before each step it is worked out, from how long the last
ones took, how many the rest of the time is enough for, and the schedule of the rate is divided
among these. So the rate comes down to 0 when the time is over, whether the machine became slower
on the way (another program has come) or faster than it was when its speed was measured.
"""

from __future__ import annotations

import statistics
from collections import deque

#: The median of so many steps is how long the next one will take, about.
_RECENT = 31
#: Fewer than this say too little for a median: the first steps are slow, they compile.
_FEW = 5
#: Until steps have been measured there is time for so many of them, whatever was planned.
_UNKNOWN = 20
#: Where something took the rest of the time at once, the rate comes down in this share of it more.
_GRACE = 0.02


class Progress:
    """The steps of a run, and where its schedule stands.

    Args:
        steps: of the schedule; without `seconds` those of the run.
        seconds: of the run; None: no limit.
        most: no more than `steps` are done, even if there is time for them.
        done: steps before this process began.
        position: where the schedule stood then, in `steps`; None: at `done`.

    Attributes:
        done: steps until now.
        position: of the schedule, in `steps`.
        expected: steps that the run will have, as far as is known.
        over: whether the run has come to its end.
    """

    def __init__(
        self,
        steps: int,
        seconds: float | None = None,
        *,
        most: bool = True,
        done: int = 0,
        position: float | None = None,
    ) -> None:
        self.steps, self.done = steps, done
        self.position: float = done if position is None else position
        self.expected = steps
        self.over = seconds is None and done >= steps
        self._seconds, self._most = seconds, most
        self._before = self.position
        self._first, self._pauses, self._reserved = done, 0.0, 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._began = 0.0
        self._ended: float | None = None

    def begin(self, now: float) -> float:
        """Begin a step at `now`, in seconds from the beginning of the run; return where in the
        schedule its rate stands, as a step."""
        self._began = now
        if self._ended is not None:
            self._pauses += now - self._ended
        self._before = self.position
        if self._seconds is None:
            self.position = self.done + 1
            return self.done
        left = self._steps_left(now)
        self.expected = self.done + max(1, round(left))
        rest = self.steps - self.position
        self.position = self.steps if left < 1.5 else self.position + rest / left
        # The time is over, and what the rate had yet to come down is given up.
        return self.steps if left == 0.0 else (self._before + self.position - 1) / 2

    def end(self, now: float) -> None:
        """Note that the step that was begun is done at `now`."""
        self._recent.append(now - self._began)
        self._ended = now
        self.done += 1
        self.over = self.position >= self.steps or (self._most and self.done >= self.steps)

    def reserve(self, seconds: float) -> None:
        """Keep so many seconds for what comes after the last step."""
        self._reserved = seconds

    def passed(self, every: int) -> bool:
        """Tell whether the last step has passed, or come to, a multiple of `every` steps of the
        schedule."""
        return int(self.position / every) > int(self._before / every)

    def _steps_left(self, now: float) -> float:
        """Return how many steps there is time for; 0: not even for one that brings the rate
        down."""
        assert self._seconds is not None
        rest = self.steps - self.position
        if now > (1 + _GRACE) * self._seconds:
            return 0.0
        left = max(self._seconds - now - self._reserved, _GRACE * self._seconds * rest / self.steps)
        step = self._step_seconds()
        # Until it is known as planned; but a plan of very few steps may have been a mistake.
        planned = rest if self._most else max(rest, _UNKNOWN)
        count = planned if step is None else left / step
        return min(count, self.steps - self.done) if self._most else count

    def _step_seconds(self) -> float | None:
        """Return the seconds from the beginning of a step to that of the next; None: not known
        yet."""
        if len(self._recent) < 2:
            return None
        usual = min(self._recent) if len(self._recent) < _FEW else statistics.median(self._recent)
        return max(usual, 1e-9) + self._pauses / (self.done - self._first)


def time_line(done: int, planned: int) -> str:
    """Return what a person should know of a run that ended with its time."""
    if done < planned:
        return f"the time was over after {done:,} of {planned:,} steps"
    return f"the time was enough for {done:,} steps, {done - planned:,} more than expected"
