"""``few_shot``: a model that answers, from a few labels of each class."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bertine.cores.launch import launched
from bertine.datasets.reading import Labelled
from bertine.errors import BertineError
from bertine.options.few_shot import FewShotOptions
from bertine.options.finetuning import FinetuneOptions
from bertine.options.verbs import takes_options
from bertine.records.examples import Examples
from bertine.tables.given import TableLike, as_data
from bertine.terminal.console import counted
from bertine.terminal.text import briefly
from bertine.training.arguments import reading_of
from bertine.training.few_shot.contrast import Contrast
from bertine.training.few_shot.encoder import plan_contrast
from bertine.training.finetuning.finetune import run_finetuning
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.setup import Prepared, Start

#: Options that are of contrastive training here, and of none where a head is fitted alone.
_OWN = frozenset({"learning_rate", "batch_size", "steps", "task", "trained_weights"})
#: Examples that each label must have.
_LEAST = 2


@takes_options()
def few_shot(
    *,
    model: Path | str,
    data: Path | str | Labelled | TableLike,
    out: Path | str,
    options: FewShotOptions,
) -> Learner:
    """Learn from few labels: train the encoder so that texts with the same label have vectors close
    to each other, by a contrastive loss over all pairs of a batch, and fit a linear head on these
    vectors (the idea of SetFit: Tunstall et al. 2022, arXiv 2209.11055).

    Args:
        model: the model directory to start from; best one that was trained to give texts vectors.
        data: labelled texts, or pairs of texts, as for :func:`bertine.finetune`. Where there is no
            validation file, nothing is held out, and the model is not judged.
        out: the run's folder; the model directory is ``out/model``.
        options: what the other arguments say.

    Returns:
        What :func:`bertine.finetune` returns.

    Raises:
        BertineError: a label with one example; what ``finetune`` raises.
    """
    if launched():
        raise BertineError("few-shot trains in one process; start it without torchrun")
    given = options.values()
    known = {field.name for field in fields(FinetuneOptions)} - _OWN
    of_finetune = FinetuneOptions(
        **{name: value for name, value in given.items() if name in known}, frozen=True
    )
    reading = reading_of(of_finetune)
    if not isinstance(data, Labelled):
        data, reading = as_data(data), replace(reading, whole=True)
    arguments = {"model": model, "data": data, "out": out, **given}

    def contrast(prepared: Prepared) -> Contrast:
        _check_counts(prepared.train.examples, prepared.task)
        return plan_contrast(
            prepared,
            steps=options.steps,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            trained_weights=options.trained_weights,
        )

    return run_finetuning(
        few_shot,
        arguments,
        of_finetune,
        Start.of(of_finetune, model=model),
        reading,
        contrast=contrast,
    )


def _check_counts(examples: Examples[Any], task: Any) -> None:
    """Refuse labels with too few examples to make a pair.

    Raises:
        BertineError: there are such labels.
    """
    counts = Counter(name for item in examples.items for name in task.names_in(item.label))
    few = sorted(label for label in task.labels if counts[label] < _LEAST)
    if few:
        raise BertineError(
            f"{examples.source}: the label {briefly(few[0])} has "
            f"{counted(counts[few[0]], 'example')}, but few-shot compares examples of a label and "
            f"needs {_LEAST} of each"
            + (f" ({len(few)} labels have fewer)" if len(few) > 1 else "")
            + "; label more of them, or leave it out"
        )
