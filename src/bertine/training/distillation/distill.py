"""``distill``: a large model and texts in, a smaller model that does about the same out."""

from __future__ import annotations

from pathlib import Path

from bertine.data.store import is_store
from bertine.errors import BertineError
from bertine.options.distillation import ON_STORES, ON_TABLES, ON_TASKS, DistillOptions
from bertine.options.names import option
from bertine.options.verbs import takes_options
from bertine.tables.given import TableLike, as_data
from bertine.training.distillation.arguments import OF_FILES, refuse_for_table, refuse_other_kind
from bertine.training.distillation.on_store import distill_on_store
from bertine.training.distillation.on_task import distill_on_task
from bertine.training.distillation.result import Distilled
from bertine.training.distillation.static.distill_static import distill_static
from bertine.training.distillation.static.result import StaticResult
from bertine.training.distributed.world import join, together
from bertine.training.pretraining.result import PretrainResult

#: Options beside those of groups that are for one kind of data.
_OF_STORES = ("objective", "held_out", "evaluate_every")
_OF_TASKS = ("probabilities", *OF_FILES, "split_seed")


@takes_options()
@together
def distill(
    data: Path | str | TableLike | None = None,
    *,
    out: Path | str,
    options: DistillOptions,
) -> PretrainResult | Distilled | StaticResult:
    """Train a small model, the student, to do what a large one, its teacher, does.

    On a token store the student learns a language from a pre-trained teacher, to be fine-tuned
    afterwards: soft targets, masked tokens, and the cosine of the last states (Sanh et al. 2019,
    DistilBERT). On texts of a task it learns that task from a fine-tuned teacher, or from a file of
    another model's answers; where texts have labels, these count too. With `static` a table of
    vectors is made, a vector for each piece of the vocabulary (model2vec of Minish Lab), whose
    means take the place of the teacher's vectors.

    Args:
        data: a token store (``prepare``); or the texts of a task, with labels or without, as
            ``finetune`` takes them: a file, a folder with training and validation files, a table
            in memory. Of a table of static vectors any texts, or None.
        out: the run's folder; the model directory is ``out/model``. Of a table of static vectors
            the model directory itself.
        options: what the other arguments say.

    Returns:
        On a store a :class:`~bertine.training.pretraining.result.PretrainResult`; of a task a
        :class:`~bertine.training.distillation.result.Distilled`; of a table of vectors a
        :class:`~bertine.training.distillation.static.result.StaticResult`.

    Raises:
        BertineError: an option of the other kind of data is given; teacher and student do not fit
            together; what ``pretrain`` and ``finetune`` raise.
    """
    if options.static:
        refuse_for_table(options)
        return distill_static(data, out, options)
    refuse_other_kind(
        options,
        ON_TABLES,
        (),
        data_are=f"{option('static')} is not given",
        meant_for="a table of static vectors",
    )
    if data is None:
        raise BertineError(
            f"nothing to learn from; name a token store or texts of a task, or give "
            f"{option('static')}, which needs the teacher alone"
        )
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
