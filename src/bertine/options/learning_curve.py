"""Options of a learning curve."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.options.few_shot import FewShotTaskChoice, LabelTables
from bertine.options.fields import OptionGroup, declare, like
from bertine.options.finetuning import InputLength
from bertine.options.machine import Machine
from bertine.options.reading import TableColumns, TableReading
from bertine.options.run import Resuming, Seed


class CurvePoints(OptionGroup):
    """Options that say what is trained, on how many labels, and how often."""

    title = "curve"

    ways: Sequence[str] | str | None = declare(
        None,
        "tf-idf, or the vectors of the model as it is (frozen), with logistic regression; "
        "few-shot; finetune",
        otherwise="all four",
        metavar="WAY",
    )
    draws: int = declare(3, "draws of each number of labels", least=1)
    least: int = declare(8, "labels of each class in the smallest draw", least=2)
    most: int | None = declare(
        None, "labels in all in the largest draw", otherwise="all that there are", least=4
    )
    growth: float = declare(2.0, "times as many labels from one number to the next", above=1)
    test_share: float = declare(
        0.2,
        "share of the examples to judge on, where there is no validation file",
        above=0,
        below=1,
    )
    most_tested: int = declare(2_000, "examples to judge on, at most", least=10)


class LearningCurveOptions(
    CurvePoints,
    FewShotTaskChoice,
    TableColumns,
    TableReading,
    LabelTables,
    InputLength,
    Machine,
    Seed,
    Resuming,
):
    """All options of ``learning_curve``."""

    resume: bool = like(
        Resuming,
        "resume",
        help="go on with the curve in the output folder; what is trained and judged is not trained "
        "again",
        more="",
    )
