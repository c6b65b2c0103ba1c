"""``distill``: a large model and texts in, a smaller model that does about the same out."""

from __future__ import annotations

from pathlib import Path

from bertine.data.store import is_store
from bertine.options.distillation import ON_STORES, ON_TASKS, DistillOptions
from bertine.options.verbs import takes_options
from bertine.tables.given import TableLike, as_data
from bertine.training.distillation.arguments import OF_FILES, refuse_other_kind
from bertine.training.distillation.on_store import distill_on_store
from bertine.training.distillation.on_task import distill_on_task
from bertine.training.distillation.result import Distilled
from bertine.training.distributed.world import join, together
from bertine.training.pretraining.result import PretrainResult

#: Options beside those of groups that are for one kind of data.
_OF_STORES = ("objective", "held_out", "evaluate_every")
_OF_TASKS = ("probabilities", *OF_FILES, "split_seed")


@takes_options()
@together
def distill(
    data: Path | str | TableLike,
    *,
    out: Path | str,
    options: DistillOptions,
) -> PretrainResult | Distilled:
    """Train a small model, the student, to do what a large one, its teacher, does.

    On a token store the student learns a language from a pre-trained teacher, to be fine-tuned
    afterwards: soft targets, masked tokens, and the cosine of the last states (Sanh et al. 2019,
    DistilBERT). On texts of a task it learns that task from a fine-tuned teacher, or from a file of
    another model's answers; where texts have labels, these count too.

    Args:
        data: a token store (``prepare``); or the texts of a task, with labels or without, as
            ``finetune`` takes them: a file, a folder with training and validation files, a table
            in memory.
        out: the run's folder; the model directory is ``out/model``.
        options: what the other arguments say.

    Returns:
        On a store a :class:`~bertine.training.pretraining.result.PretrainResult`; of a task a
        :class:`~bertine.training.distillation.result.Distilled`.

    Raises:
        BertineError: an option of the other kind of data is given; teacher and student do not fit
            together; what ``pretrain`` and ``finetune`` raise.
    """
    world = join(options.device)
    data = as_data(data)
    if isinstance(data, str | Path) and is_store(Path(data)):
        refuse_other_kind(
            options,
            ON_TASKS,
            _OF_TASKS,
            data_are=f"{data} is a token store",
            meant_for="on texts of a task",
        )
        return distill_on_store(data, out, options, world)
    refuse_other_kind(
        options,
        ON_STORES,
        _OF_STORES,
        data_are=f"{data} is not a token store",
        meant_for="on a token store",
    )
    return distill_on_task(data, out, options, world)
