"""What a person reads of the evaluations while a fine-tuning run goes on, and which one is saved.

All scores of all epochs are in the log and on the run's page. In the terminal an epoch has a line
where it is the best so far or the last one; the latest score stands in the progress line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertine.scores import score_name, score_text
from bertine.training.loop.best import Best, Choice


class EpochLines:
    """The evaluations of a run as they come.

    Args:
        judged: the metrics by which the task is judged; the first decides which is the best.
        epoch: steps of an epoch.
        steps: of the whole run.
        earlier: the evaluations before the run was resumed, each with its ``step``.
    """

    def __init__(
        self,
        judged: Sequence[str],
        *,
        epoch: int,
        steps: int,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._judged, self._epoch, self._steps = tuple(judged), epoch, steps
        self._choice = Choice(judged[0], highest=True)
        self._best: Best | None = None
        for scores in earlier:
            self._best = self._choice.better(self._best, int(scores["step"]), scores)

    def add(self, step: int, scores: Mapping[str, float]) -> str | None:
        """Take in the evaluation after `step` steps.

        Returns:
            Its line, if it is the best so far or that of the last epoch; else None.
        """
        self._best = self._choice.better(self._best, step, scores)
        is_best = self._best is not None and self._best.step == step
        if not is_best and step < self._steps:
            return None
        number = f"{epoch_of(step, self._epoch)} of {epoch_of(self._steps, self._epoch)}"
        names = [*self._judged, *(["loss"] if "loss" not in self._judged else [])]
        shown = ", ".join(_scored(name, scores[name], scores) for name in names if name in scores)
        if step < self._steps:
            shown += " (the best so far)"
        elif self._best is not None and not is_best:
            best = score_text(self._best.metric, self._best.value)
            shown += f" (the best was epoch {epoch_of(self._best.step, self._epoch)} with {best})"
        return f"validation after epoch {number}: {shown}"

    def latest(self, step: int, scores: Mapping[str, float]) -> str:
        """Return the first score after `step` steps, for the progress line: "accuracy 74% (epoch
        3)"."""
        name = self._judged[0]
        if name not in scores:
            return "-"
        return f"{_scored(name, scores[name], scores)} (epoch {epoch_of(step, self._epoch)})"


def epoch_of(step: int, epoch: int) -> int:
    """Return the number of the epoch, from 1 on, that `step` ends or is in."""
    return -(-step // epoch)


def saved_line(
    taken: Best | None,
    best: Best | None,
    last: Mapping[str, Any] | None,
    *,
    epoch: int,
    steps: int,
    asked: bool,
) -> str:
    """Return which epoch's weights are saved, in words.

    Args:
        taken: the evaluation whose weights were taken; None: those of the last step were kept.
        best: the best evaluation; None: there was none.
        last: the last evaluation, with its ``step``; None: there was none.
        epoch: steps of an epoch.
        steps: of the whole run, for one without evaluations.
        asked: the user has said whether the best epoch is wanted.
    """
    ended = steps if last is None else int(last["step"])
    if taken is None or taken.step == ended:
        line = f"saved: the last epoch ({epoch_of(ended, epoch)})"
        if taken is not None:
            return f"{line}, the best on the validation examples"
        higher = best is not None and (last is None or best.value != last.get(best.metric))
        if not asked and best is not None and best.step != ended and higher:
            line += f"; epoch {epoch_of(best.step, epoch)} was better by no more than chance"
        return line
    scores = score_text(taken.metric, taken.value)
    if last is not None and taken.metric in last:
        scores = (
            f"{score_name(taken.metric)} {scores}, after the last "
            f"{score_text(taken.metric, last[taken.metric])}"
        )
    why = "the best" if asked else "better than the last by more than chance"
    return (
        f"saved: epoch {epoch_of(taken.step, epoch)} of {epoch_of(ended, epoch)}, {why} on the "
        f"validation examples ({scores})"
    )


def _scored(name: str, value: float, beside: Mapping[str, float]) -> str:
    """Return a score after its name, as it is called `beside` the others."""
    return f"{score_name(name, beside)} {score_text(name, value)}"
