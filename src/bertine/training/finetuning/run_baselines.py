"""The baselines of a fine-tuning run: measured once, before training, and kept in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertine.errors import BertineError
from bertine.files import read_json_object, write_json
from bertine.inference.baselines.frozen import FrozenEncoder, pooling_of
from bertine.inference.baselines.measure import measure_baselines
from bertine.scores import score_name, score_text
from bertine.tasks.baseline_scores import BaselineScore
from bertine.terminal.console import human_time, say
from bertine.training.finetuning.setup import Prepared

#: The file of a run's scores; the baselines stand in it under this key.
SCORES = "scores.json"
BASELINES = "baselines"


def baselines_of_run(prepared: Prepared, folder: Path, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return the baselines of a run that is about to train, or to go on; as JSON.

    They are fitted on the training examples, and judged on the validation examples, where there
    are some. What a run that was stopped had measured is taken from its `folder`.

    Args:
        prepared: its model still has the weights that the run started from.
        folder: of the run; ``scores.json`` in it holds the baselines while the run goes on.
        dtype: that the model's vectors are computed in.
    """
    file = folder / SCORES
    if file.is_file():
        return [score.to_dict() for score in kept_baselines(folder)]
    if not prepared.validation.features:
        return []
    start, loaded = prepared.start, prepared.loaded
    encoder = None
    if not start.fresh_weights:  # random weights know nothing
        encoder = FrozenEncoder(
            loaded.model, loaded.tokenizer, prepared.task.max_length, pooling_of(start.model), dtype
        )
    sets = {"": prepared.validation.examples}
    sets |= {word: part.examples for word, part in prepared.others.items()}
    measured = measure_baselines(prepared.task, prepared.train.examples, sets, encoder)
    if measured:
        say(_measured_line(measured, prepared.metric_names))
    values = [score.to_dict() for score in measured]
    write_json(file, {BASELINES: values})
    return values


def _measured_line(measured: Sequence[BaselineScore], names: Sequence[str]) -> str:
    """Return the baselines by the metrics of the task: "baselines (accuracy): majority 38.00%,
    …"."""

    def scores(score: BaselineScore) -> str:
        return " and ".join(score_text(name, score.metrics[name]) for name in names)

    shown = ", ".join(f"{score.name} {scores(score)}" for score in measured)
    seconds = sum(score.seconds for score in measured)
    return f"baselines ({' and '.join(map(score_name, names))}): {shown}; {human_time(seconds)}"


def kept_baselines(folder: Path) -> tuple[BaselineScore, ...]:
    """Return the baselines in the ``scores.json`` of the run in `folder`; none where it has none.

    Raises:
        BertineError: the file is damaged.
    """
    file = folder / SCORES
    if not file.is_file():
        return ()
    try:
        values = read_json_object(file, lenient=True).get(BASELINES, [])
        return tuple(BaselineScore.read(value) for value in values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BertineError(f"{file}: damaged ({error!r}); remove it or train again") from error
