"""Define the options of fine-tuning and few-shot learning, and the papers' recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from bertine.core.names import ClassWeights, FewShotTask, FewShotWeights, LmSoftmax, PairReading
from bertine.core.text import exact_rate
from bertine.options.data import (
    ChoiceColumns,
    ClassBalance,
    DocumentContext,
    GlueChoice,
    LabelColumns,
    LabelNames,
    LongTexts,
    SoftLabels,
    SpanReading,
    SplitSeed,
    Strictness,
    TableColumns,
    TableReading,
    TaggedColumns,
    TextWriting,
)
from bertine.options.declare import OptionGroup, declare, declared, like
from bertine.options.training import (
    DropoutRate,
    Loading,
    Machine,
    Notes,
    Patience,
    Rate,
    Resuming,
    RunOutput,
    Saving,
    Seed,
    Sharding,
    Updates,
    WarmUp,
)

# Recipes of the papers: passes, batches, rate and other settings, by family and task.
#
# If a paper or its published code counts steps, the passes are those that give that many steps on
# the official training file. If it searches among values, the first one is used here and the
# others are named.


@dataclass(frozen=True)
class PaperRecipe:
    """A paper's recipe for fine-tuning on a task.

    Attributes:
        epochs: passes over the training examples.
        batch_size: examples per update.
        learning_rate: its peak.
        source: where the paper or code states it.
        warmup_ratio: the share of the steps in which the rate rises; None: the schedule's default.
        weight_decay, layer_decay: None: Bertine's defaults, which are those of BERT's paper.
        others: further values that the paper tries; the best on the development set is taken; "":
            none.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    source: str = ""
    warmup_ratio: float | None = None
    weight_decay: float | None = None
    layer_decay: float | None = None
    others: str = ""

    def __str__(self) -> str:
        rate = exact_rate(self.learning_rate)
        parts = [f"{self.epochs} epochs, batches of {self.batch_size}, {rate}"]
        for name, value in (
            ("warm-up", self.warmup_ratio),
            ("weight decay", self.weight_decay),
            ("layer decay", self.layer_decay),
        ):
            parts += [] if value is None else [f"{name} {value:g}"]
        return ", ".join([*parts, *([f"also {self.others}"] if self.others else [])])


_GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
_BERT = "Devlin et al. 2018, sections 4 and A.3"
_BERT_GLUE = PaperRecipe(3, 32, 5e-5, _BERT, others="rates 4e-5, 3e-5 and 2e-5")
#: The recipe for a task that is not in a paper, or a family without a paper with one recipe.
_OTHERS = PaperRecipe(3, 32, 5e-5, _BERT, others="batches of 16, rates to 2e-5, 2 and 4 epochs")

_ROBERTA = PaperRecipe(10, 16, 1e-5, "Liu et al. 2019, table 10, and fairseq's README.glue.md")
_ROBERTA = replace(_ROBERTA, warmup_ratio=0.06, weight_decay=0.1)
_ROBERTA_SQUAD = replace(_ROBERTA, epochs=2, batch_size=48, learning_rate=1.5e-5, weight_decay=0.01)
_ALBERT = PaperRecipe(10, 16, 1e-5, "Lan et al. 2019, table 14")
_GPT = PaperRecipe(3, 32, 6.25e-5, "Radford et al. 2018, section 4.1", warmup_ratio=0.002)
_XLNET = PaperRecipe(3, 128, 2e-5, "Yang et al. 2019, table 8")


def _albert(epochs: int, batch_size: int, rate: float, steps: int, warmup: int) -> PaperRecipe:
    return replace(
        _ALBERT,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=rate,
        warmup_ratio=round(warmup / steps, 4),
    )


def _electra(size: str, rate: float, layer_decay: float) -> dict[str, PaperRecipe]:
    usual = PaperRecipe(
        *(3, 32, rate, f"Clark et al. 2020, table 7 ({size})"),
        warmup_ratio=0.1,
        weight_decay=0.0,
        layer_decay=layer_decay,
    )
    long, short = replace(usual, epochs=10), replace(usual, epochs=2)
    return {
        "": usual,
        **dict.fromkeys(("glue/RTE", "glue/STS-B"), long),
        **dict.fromkeys(("squad/v1.1", "squad/v2.0"), short),
    }


#: Family → task, or public data set → its recipe; "" for all others.
PAPER_RECIPES: Mapping[str, Mapping[str, PaperRecipe]] = {
    "BERT": {
        "": _OTHERS,
        **{f"glue/{name}": _BERT_GLUE for name in _GLUE},
        "squad/v1.1": PaperRecipe(3, 32, 5e-5, _BERT),
        "squad/v2.0": PaperRecipe(2, 48, 5e-5, _BERT),
        "swag": PaperRecipe(3, 16, 2e-5, _BERT),
    },
    "RoBERTa": {
        "": replace(_ROBERTA, others="2e-5 and 3e-5, batches of 32"),
        **dict.fromkeys(("glue/CoLA", "glue/MRPC"), _ROBERTA),
        **dict.fromkeys(("glue/RTE", "glue/STS-B"), replace(_ROBERTA, learning_rate=2e-5)),
        **{f"glue/{n}": replace(_ROBERTA, batch_size=32) for n in ("SST-2", "MNLI", "QNLI")},
        "glue/QQP": replace(_ROBERTA, batch_size=32, warmup_ratio=0.25),
        **dict.fromkeys(("squad/v1.1", "squad/v2.0"), _ROBERTA_SQUAD),
    },
    "ALBERT": {
        "": _OTHERS,
        "glue/CoLA": _albert(10, 16, 1e-5, 5336, 320),
        "glue/STS-B": _albert(10, 16, 2e-5, 3598, 214),
        "glue/SST-2": _albert(10, 32, 1e-5, 20935, 1256),
        "glue/MNLI": _albert(3, 128, 3e-5, 10000, 1000),
        "glue/QNLI": _albert(10, 32, 1e-5, 33112, 1986),
        "glue/QQP": _albert(5, 128, 5e-5, 14000, 1000),
        "glue/RTE": _albert(10, 32, 3e-5, 800, 200),
        "glue/MRPC": _albert(7, 32, 2e-5, 800, 200),
        "glue/WNLI": _albert(50, 16, 2e-5, 2000, 250),
        "squad/v1.1": _albert(2, 48, 5e-5, 3649, 365),
        "squad/v2.0": _albert(3, 48, 3e-5, 8144, 814),
    },
    "ELECTRA-Small": _electra("small", 3e-4, 0.8),
    "ELECTRA-Base": _electra("base", 1e-4, 0.8),
    "ELECTRA-Large": _electra("large", 5e-5, 0.9),
    "GPT-1": {"": _GPT},
    "XLNet": {
        "": _OTHERS,
        "glue/MNLI": _XLNET,
        **dict.fromkeys(
            ("squad/v1.1", "squad/v2.0"),
            replace(_XLNET, batch_size=48, learning_rate=3e-5, layer_decay=0.75),
        ),
    },
}


def paper_recipe(family: str, task: str) -> PaperRecipe:
    """Return the recipe of the `family`'s paper for a `task`; that of BERT if the paper has none.

    Args:
        family: a key of :data:`PAPER_RECIPES`, or the name of a family without one.
        task: a public data set ("glue/CoLA"), or the name of a task.
    """
    recipes = PAPER_RECIPES.get(family, PAPER_RECIPES["BERT"])
    result = recipes.get(task) or recipes[""]
    return PAPER_RECIPES["BERT"].get(task, result) if result is _OTHERS else result


def recipe_lines() -> list[str]:
    """Format the recipes as a table: one line per family, with its recipes and their tasks."""
    lines = []
    for family, recipes in PAPER_RECIPES.items():
        tasks: dict[PaperRecipe, list[str]] = {}
        for task, recipe in recipes.items():
            if family == "BERT" or recipe is not _OTHERS:
                tasks.setdefault(recipe, []).append(task.removeprefix("glue/") or "others")
        parts = [f"{', '.join(names)}: {recipe}" for recipe, names in tasks.items()]
        lines.append(f"{family} ({recipe.source}): {'; '.join(parts)}")
    return lines


class FreshWeights(OptionGroup):
    """Whether training begins with the model's weights."""

    fresh_weights: bool = declare(
        False,
        "take only the architecture and the vocabulary of the model, and begin with random "
        "weights: what a model reaches without pre-training",
        recorded=True,
    )


class AddedLabels(OptionGroup):
    """Whether a fine-tuned classifier keeps its labels and gets others."""

    title = "own data"

    add_labels: bool = declare(
        False,
        "keep the labels of the model, and add the data's",
        more="The rows of the head for the old labels stay, and what these lose is measured. "
        "Without it a model with other labels gets a new head.",
        recorded=True,
        not_in=("search", "lr-find"),
    )
    old_data: Path | str | None = declare(
        None,
        "old examples for `add_labels`",
        otherwise="those that the model was trained on",
        more="They are learned again, as many as keep the old labels.",
        metavar="FILE",
        not_in=("search", "lr-find"),
    )


class FinetuneRecipe(OptionGroup):
    """The length and batches of a run; None: by rule (:mod:`bertine.training.defaults`)."""

    title = "recipe"

    epochs: int | None = declare(
        None,
        "passes over the training examples",
        otherwise="from 3 with many examples to 25 with few",
        more="Of many classes more.",
        least=1,
        not_in=("search", "lr-find"),
    )
    batch_size: int | None = declare(
        None,
        "examples in an update",
        otherwise="16, or 32 with more than 4,000 examples",
        least=1,
        not_in=("search",),
    )
    paper: bool = declare(
        False,
        "use the settings of the model's paper wherever you give none, and keep the weights of the "
        f"last epoch. {'. '.join(recipe_lines())}. Models without such a paper: as BERT",
        not_in=("search", "lr-find"),
    )


class InputLength(OptionGroup):
    """How much of a text is read."""

    title = "recipe"

    max_length: int | None = declare(
        None,
        "tokens of an example; longer ones are cut, and counted",
        otherwise="128, spans 384",
        more="Contexts of spans are not cut, but read in windows.",
        least=3,
    )


class Layers(OptionGroup):
    """The layers that are trained."""

    title = "schedule and layers"

    freeze_layers: int = declare(
        0, "number of lowest layers that are not trained", least=0, recorded=True
    )
    frozen: bool | None = declare(
        None,
        "fit the head alone, in seconds, on the vectors that the model gives",
        otherwise="all weights are trained; the head alone is saved if better",
        more="Of pairs the head is fitted on the vectors of both texts "
        "(:mod:`bertine.training.finetuning.linear_probe`). It can be better than training all "
        "weights where there are few labels. What is about training (`epochs`, `learning_rate` "
        "and the like) is refused with it. None compares on the validation examples "
        "(:mod:`bertine.training.finetuning.linear_probe`; not without `baselines`, not with "
        "`paper` or `focal_gamma`, not in several processes). False: the trained model is saved, "
        "even if the head alone is better.",
        recorded=True,
        not_in=("search", "lr-find"),
    )
    freeze_embeddings: bool = declare(False, "do not train the embeddings", recorded=True)


class PairComparison(OptionGroup):
    """How the two texts of a pair are read."""

    title = "schedule and layers"

    pairs: PairReading = declare(
        "joined",
        "read the two texts of a pair as one input, or each by itself, to compare their vectors "
        "and their words; with few labels, or for how alike two texts are, apart is mostly better; "
        "both-orders adds up what GPT-1 makes of each order, as its paper does for similarity",
        more="The vectors are compared by the head that `frozen` fits: it is fitted first, and "
        "then trained with all other weights.",
        recorded=True,
        not_in=("search", "lr-find"),
    )


class AuxiliaryLMOptions(OptionGroup):
    """The weight of a language model loss in addition to a task's loss."""

    title = "next tokens in addition to the task"

    lm_weight: float | None = declare(
        None,
        "weight of guessing the next token of the inputs, in addition to the task (the λ of "
        "GPT-1); 0: none",
        otherwise="0.5 for openai-gpt, and nothing for other types, which do not guess it",
        metavar="X",
        least=0,
        most=100,
        recorded=True,
    )
    lm_softmax: LmSoftmax = declare(
        "tokens",
        "what the next token is compared with: the tokens, or, as in OpenAI's code, the positions "
        "too",
        recorded=True,
    )


class ValidationOptions(OptionGroup):
    """The baselines that the score is compared with."""

    title = "score"

    baselines: bool = declare(
        True,
        "compare the model's score with those of cheap baselines: the most frequent label, linear "
        "models on tf-idf and on the vectors of the model before training (some seconds)",
        more="On the validation examples; of all of GLUE none.",
        not_in=("search", "lr-find"),
    )


class FinetuneLoading(Loading):
    """The processes that make the batches, and the compilation of the model."""

    title = "run"

    workers: int = like(Loading, "workers", default=0, otherwise="", more="")
    compile: bool = like(
        Loading,
        "compile",
        default=False,
        more="With ``torch.compile``, for runs of many steps; a CPU does without.",
    )


class Calibrating(OptionGroup):
    """The calibration of the answers' probabilities."""

    title = "probabilities"

    calibrate: bool = declare(
        True,
        "at the end fit a temperature on the validation examples and divide the head by it, so "
        "that answers are right as often as their probability says; nothing is fitted with fewer "
        "than 50 examples, or if answers have no probability",
        more="Answers stay the same, their probabilities change: in files, the server, exported "
        "models and other programs, since the weights of the head have it. Guo et al. 2017 "
        "(:mod:`bertine.tasks.calibration`).",
        recorded=True,
        not_in=("lr-find",),
    )


#: The options that control the training of weights, which do not apply if only a head is fitted.
#: What a run writes about itself affects neither.
OF_TRAINING = frozenset(
    entry.name
    for group in (
        *(FinetuneRecipe, Rate, WarmUp, Updates, DropoutRate, AuxiliaryLMOptions, Patience),
        *(Sharding, Saving, FinetuneLoading),
    )
    for entry in declared(group)
) | {"freeze_layers", "freeze_embeddings", "focal_gamma"}


class TaskTraining(
    FreshWeights,
    FinetuneRecipe,
    InputLength,
    SplitSeed,
    Rate,
    WarmUp,
    Updates,
    DropoutRate,
    Layers,
    AuxiliaryLMOptions,
    Calibrating,
    Patience,
    ValidationOptions,
    Machine,
    Sharding,
    Seed,
    RunOutput,
    Saving,
    FinetuneLoading,
    Notes,
    Resuming,
):
    """The options of fine-tuning that every task has."""


class TextOptions(
    TableColumns,
    LabelNames,
    TableReading,
    SoftLabels,
    ClassBalance,
    LongTexts,
    PairComparison,
    AddedLabels,
    TaskTraining,
):
    """The options of fine-tuning for one label of a text or a pair."""


class MultiLabelOptions(
    TableColumns, TableReading, LabelColumns, ClassBalance, LongTexts, PairComparison, TaskTraining
):
    """The options of fine-tuning for any number of labels."""


class RegressionOptions(TableColumns, TableReading, LongTexts, PairComparison, TaskTraining):
    """The options of fine-tuning for a number."""


class ChoiceOptions(TableColumns, TableReading, ChoiceColumns, TaskTraining):
    """The options of fine-tuning for one of several endings."""


class SpansOptions(TableColumns, TableReading, SpanReading, TaskTraining):
    """The options of fine-tuning for the part of a context that answers a question."""


class TaggingOptions(TableColumns, TableReading, TaggedColumns, DocumentContext, TaskTraining):
    """The options of fine-tuning for a tag of each word."""

    sheet: str | None = like(TableReading, "sheet", title="reading")


class Seq2SeqOptions(TableColumns, TableReading, TextWriting, TaskTraining):
    """The options of fine-tuning for a text to write."""


class GlueOptions(GlueChoice, Strictness, PairComparison, TaskTraining):
    """The options of fine-tuning on GLUE, whose files have known columns."""


class SquadOptions(Strictness, SpanReading, TaskTraining):
    """The options of fine-tuning on SQuAD, whose files have known columns."""


class SwagOptions(TableReading, TaskTraining):
    """The options of fine-tuning on SWAG, whose files have known columns."""


class FinetuneOptions(
    GlueOptions,
    TextOptions,
    MultiLabelOptions,
    RegressionOptions,
    ChoiceOptions,
    SpansOptions,
    TaggingOptions,
    Seq2SeqOptions,
    SquadOptions,
    SwagOptions,
):
    """The options of ``finetune`` for all tasks."""

    kinds: ClassVar = {
        "text": TextOptions,
        "multi-label": MultiLabelOptions,
        "regression": RegressionOptions,
        "choice": ChoiceOptions,
        "spans": SpansOptions,
        "tagging": TaggingOptions,
        "seq2seq": Seq2SeqOptions,
        "glue": GlueOptions,
        "squad": SquadOptions,
        "swag": SwagOptions,
    }


# Few-shot learning.


class FewShotTaskChoice(OptionGroup):
    """The task to learn."""

    title = "recipe"

    task: FewShotTask = declare(
        "text", "one label of each text or pair (text), or any number of them (multi-label)"
    )


class ContrastiveTraining(OptionGroup):
    """The training of the encoder before its head is fitted."""

    title = "recipe"

    steps: int | None = declare(
        None, "batches of contrastive training", otherwise="by the number of examples", least=1
    )
    batch_size: int | None = declare(
        None,
        "texts in a batch; every two of them are a pair to learn from",
        otherwise="32",
        least=5,  # two texts of a label at a time, and one label twice at the end of a round
    )
    trained_weights: FewShotWeights | None = declare(
        None,
        "weights of the encoder that are trained: its biases and layer norms, or all",
        otherwise="biases with fewer than 256 single texts, if the layers have any; else all",
    )


class LabelTables(LabelNames, LabelColumns):
    """The reading and weighting of labels."""

    title = "own data"

    label_columns: Sequence[str] | str | None = like(
        LabelColumns,
        "label_columns",
        help="of multi-label: a column of 0 and 1 for each label, in place of `label_column`",
    )
    label_separator: str | None = like(
        LabelColumns, "label_separator", help="of multi-label: between labels in one column"
    )
    threshold: float = like(
        LabelColumns,
        "threshold",
        help="of multi-label: a label is given from this probability on",
    )
    class_weights: ClassWeights | None = like(ClassBalance, "class_weights")


class FewShotOptions(
    FewShotTaskChoice,
    TableColumns,
    TableReading,
    LabelTables,
    ContrastiveTraining,
    AddedLabels,
    InputLength,
    Rate,
    Calibrating,
    ValidationOptions,
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
