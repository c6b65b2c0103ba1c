"""The best evaluation of a run, and the checkpoint that holds its weights.

Each checkpoint says which evaluation was the best until then, and where one is better than all
before it a checkpoint is written at once. The newest whole checkpoint therefore always knows the
best, its own or an older one that is kept for it, whenever the run was killed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.training.loop.checkpoint import (
    DamagedCheckpoint,
    checkpoint_path,
    checkpoints,
    load_weights,
    read_state,
)


@dataclass(frozen=True)
class Best:
    """An evaluation that none before it was better than.

    Attributes:
        step: steps that were done when it was made.
        metric: the score's name.
        value: the score.
    """

    step: int
    metric: str
    value: float

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Choice:
    """By which score evaluations are compared. Of equal ones the first is the best; a score that
    is not a number never is.

    Attributes:
        metric: the score's name.
        highest: whether the highest is the best, not the lowest.
    """

    metric: str
    highest: bool

    def better(self, best: Best | None, step: int, scores: Mapping[str, float]) -> Best | None:
        """Return the better one of `best` and the evaluation `scores` after `step`."""
        value = scores.get(self.metric)
        if value is None or math.isnan(value):
            return best
        latest = Best(step, self.metric, float(value))
        if best is None or best.metric != self.metric:
            return latest
        wins = value > best.value if self.highest else value < best.value
        return latest if wins else best


def restored(state: Mapping[str, Any]) -> Best | None:
    """Return the best evaluation that the state of a checkpoint tells of."""
    best = state.get("best")
    return None if best is None else Best(**best)


def recorded_best(folder: Path) -> Best | None:
    """Return the best evaluation of the run whose checkpoints are in `folder`; None where there was
    none.

    Raises:
        BertineError: the newest checkpoint cannot be read.
    """
    kept = checkpoints(folder)
    return restored(read_state(kept[-1])) if kept else None


def load_best(folder: Path, model: nn.Module) -> Best | None:
    """Give `model` the weights of the best evaluation, from the checkpoints in `folder`.

    Returns:
        That evaluation; None, and the model as it was, where there was none.

    Raises:
        BertineError: its checkpoint is missing or damaged.
    """
    best = recorded_best(folder)
    if best is not None:
        path = checkpoint_path(folder, best.step)
        advice = f"put it back, or resume the run without {option('save_best', True)}"
        if path not in checkpoints(folder):
            raise BertineError(
                f"{path}: the checkpoint of the best evaluation is missing; {advice}"
            )
        try:
            load_weights(path, model)
        except DamagedCheckpoint as error:  # those before it are of no use here
            raise BertineError(f"{error.what}; {advice}") from error
    return best
