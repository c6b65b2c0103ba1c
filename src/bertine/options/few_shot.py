"""Options of learning from few labels."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.names import ClassWeights, FewShotTask, FewShotWeights
from bertine.options.fields import OptionGroup, declare, like
from bertine.options.finetuning import Calibrating, InputLength, Judging
from bertine.options.machine import Machine
from bertine.options.optimization import Rate
from bertine.options.reading import OwnTable, TableColumns, TableReading
from bertine.options.run import Notes, Resuming, Seed


class FewShotTaskChoice(OptionGroup):
    """Options that say what is learned."""

    title = "recipe"

    task: FewShotTask = declare(
        "text", "one label of each text or pair (text), or any number of them (multi-label)"
    )


class ContrastiveTraining(OptionGroup):
    """Options that say how the encoder is trained before its head is fitted."""

    title = "recipe"

    steps: int | None = declare(
        None, "batches of contrastive training", otherwise="by the number of examples", least=1
    )
    batch_size: int | None = declare(
        None,
        "texts in a batch, of which every two are a pair to learn from",
        otherwise="32",
        least=5,  # labels are met two texts at a time, and one twice where a round of them ends
    )
    trained_weights: FewShotWeights | None = declare(
        None,
        "weights of the encoder that are trained: its biases and layer norms, or all",
        otherwise="biases with fewer than 256 single texts, if the layers have any; else all",
    )


class LabelTables(OptionGroup):
    """Options that say how labels are read and weighed."""

    title = "own data"

    label_columns: Sequence[str] | str | None = like(OwnTable, "label_columns")
    label_separator: str | None = like(OwnTable, "label_separator")
    threshold: float = like(OwnTable, "threshold")
    class_weights: ClassWeights | None = like(OwnTable, "class_weights")


class FewShotOptions(
    FewShotTaskChoice,
    TableColumns,
    TableReading,
    LabelTables,
    ContrastiveTraining,
    InputLength,
    Rate,
    Calibrating,
    Judging,
    Machine,
    Seed,
    Notes,
    Resuming,
):
    """All options of ``few_shot``."""

    learning_rate: float | None = like(
        Rate,
        "learning_rate",
        otherwise="by the trained weights, the width of the model and the number of examples",
    )
