"""Options of fine-tuning; finding a rate and searching take them over."""

from __future__ import annotations

from bertine.names import LmSoftmax, PairReading
from bertine.options.fields import OptionGroup, declare, declared, like
from bertine.options.machine import Machine, Sharding
from bertine.options.optimization import DropoutRate, Patience, Rate, Updates, WarmUp
from bertine.options.paper_recipes import recipe_lines
from bertine.options.reading import (
    DocumentContext,
    GlueChoice,
    OwnTable,
    SpanReading,
    SplitSeed,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.options.run import Loading, Notes, Resuming, RunOutput, Saving, Seed


class FreshWeights(OptionGroup):
    """Options that say whether training begins with the model's weights."""

    fresh_weights: bool = declare(
        False,
        "take only the architecture and the vocabulary of the model, and begin with random "
        "weights: what a model reaches without pre-training",
        recorded=True,
    )


class FinetuneRecipe(OptionGroup):
    """The length and batches of a run; None: by rule (:mod:`bertine.training.finetuning.plan`)."""

    title = "recipe"

    epochs: int | None = declare(
        None,
        "passes over the training examples",
        otherwise="from 3 with many examples to 25 with few; more of many classes",
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
        "train as the paper of the model does, where nothing else is said, and keep the weights of "
        f"the last epoch. {'. '.join(recipe_lines())}. Models without such a paper: as BERT",
        not_in=("search", "lr-find"),
    )


class InputLength(OptionGroup):
    """Options that say how much of a text is read."""

    title = "recipe"

    max_length: int | None = declare(
        None,
        "tokens of an example; longer ones are cut, and counted",
        otherwise="128, spans 384",
        more="Contexts of spans are not cut, but read in windows.",
        least=3,
    )


class Layers(OptionGroup):
    """Options that say which layers are trained."""

    title = "schedule and layers"

    freeze_layers: int = declare(
        0, "so many of the lowest layers are not trained", least=0, recorded=True
    )
    frozen: bool | None = declare(
        None,
        "train no layer: fit the head alone, in seconds, on the vectors that the model gives "
        "already",
        otherwise="all weights are trained, but the head alone is saved where it is better",
        more="Of pairs the head is fitted on the vectors of both texts "
        "(:mod:`bertine.training.finetuning.frozen_head`). It can be better than training all "
        "weights where there are few labels. What is about training (`epochs`, `learning_rate` "
        "and the like) is refused beside it. None compares on the validation examples "
        "(:mod:`bertine.training.finetuning.head_alone`; not without `baselines`, not with "
        "`paper` or `focal_gamma`, not in several processes). False: the trained model is saved, "
        "whatever it is worth.",
        recorded=True,
        not_in=("search", "lr-find"),
    )
    freeze_embeddings: bool = declare(False, "do not train the embeddings", recorded=True)
    pairs: PairReading = declare(
        "joined",
        "read the two texts of a pair as one input, or each by itself, to compare their vectors "
        "and their words; with few labels, or for how alike two texts are, apart is mostly better",
        more="The vectors are compared by the head that `frozen` fits: it is fitted first, and "
        "then trained with all other weights.",
        recorded=True,
        not_in=("search", "lr-find"),
    )


class LanguageModelBeside(OptionGroup):
    """Options that say how much a language model counts beside a task."""

    title = "next tokens beside the task"

    lm_weight: float | None = declare(
        None,
        "how much guessing the next token of the inputs counts beside the task, the λ of GPT-1; "
        "0: nothing",
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


class Judging(OptionGroup):
    """Options that say what the score is put beside."""

    title = "score"

    baselines: bool = declare(
        True,
        "put the scores of cheap baselines beside the model's: the most frequent label, linear "
        "models on tf-idf and on the vectors of the model before training (some seconds)",
        more="On the validation examples; of all of GLUE none.",
        not_in=("search", "lr-find"),
    )


class FinetuneLoading(Loading):
    """Options that say who makes the batches of fine-tuning, and whether the model is compiled."""

    title = "run"

    workers: int = like(Loading, "workers", default=0, otherwise="", more="")
    compile: bool = like(
        Loading,
        "compile",
        default=False,
        more="With ``torch.compile``, for runs of many steps; a CPU does without.",
    )


class Calibrating(OptionGroup):
    """Options that say what the probabilities of answers are made to mean."""

    title = "probabilities"

    calibrate: bool = declare(
        True,
        "at the end fit a temperature on the validation examples and divide the head by it, so "
        "that answers are right as often as their probability says; with fewer than 50 examples, "
        "and of tasks whose answers have no probability, nothing is fitted",
        more="Answers stay the same, their probabilities change: in files, the server, exported "
        "models and other programs, since the weights of the head have it. Guo et al. 2017 "
        "(:mod:`bertine.tasks.calibration`).",
        recorded=True,
        not_in=("lr-find",),
    )


#: The options that say how weights are trained, and nothing of a head that is fitted alone. What a
#: run writes about itself changes neither.
OF_TRAINING = frozenset(
    entry.name
    for group in (
        *(FinetuneRecipe, Rate, WarmUp, Updates, DropoutRate, LanguageModelBeside, Patience),
        *(Sharding, Saving, FinetuneLoading),
    )
    for entry in declared(group)
) | {"freeze_layers", "freeze_embeddings", "focal_gamma"}


class FinetuneOptions(
    FreshWeights,
    GlueChoice,
    TableColumns,
    TableReading,
    OwnTable,
    TaggedColumns,
    DocumentContext,
    FinetuneRecipe,
    InputLength,
    SplitSeed,
    SpanReading,
    Rate,
    WarmUp,
    Updates,
    DropoutRate,
    Layers,
    LanguageModelBeside,
    Calibrating,
    Patience,
    Judging,
    Machine,
    Sharding,
    Seed,
    RunOutput,
    Saving,
    FinetuneLoading,
    Notes,
    Resuming,
):
    """All options of ``finetune``."""
