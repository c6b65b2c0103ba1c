"""Options of looking for wrong labels."""

from __future__ import annotations

from bertine.options.fields import declare, like
from bertine.options.finetuning import FinetuneRecipe, InputLength
from bertine.options.machine import Machine
from bertine.options.optimization import Rate
from bertine.options.reading import TableColumns, TableReading
from bertine.options.run import Resuming, Seed


class LabelCheckOptions(
    TableColumns, TableReading, FinetuneRecipe, InputLength, Rate, Machine, Seed, Resuming
):
    """All options of ``check_labels``."""

    folds: int = declare(
        5,
        "parts of the examples; each is judged by a model that was trained on the others",
        least=2,
        title="check",
    )
    frozen: bool = declare(
        False,
        "train no layer: fit the head alone, in seconds, on the vectors that the model gives "
        "already; mostly the better way with pairs and with few labels",
        title="recipe",
    )
    processes: int = declare(
        1, "models that are trained at a time, in processes that share the cores", least=1,
        title="check",
    )  # fmt: skip
    resume: bool = like(
        Resuming,
        "resume",
        help="go on with the check in the output folder; parts that are judged are not judged "
        "again",
        more="",
        title="check",
    )
