"""Define the options of distillation, on a token store or on the texts of a task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bertine.core.contrib import registered
from bertine.core.names import (
    MapKind,
    ObjectiveName,
    PlainFormat,
    SoftTokens,
    TeacherTask,
    TokenTypesOfTeacher,
    implementation,
)
from bertine.options.data import (
    Cleaning,
    OwnTable,
    SplitSeed,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.options.declare import OptionGroup, declare, like
from bertine.options.finetuning import Calibrating, FinetuneRecipe, InputLength
from bertine.options.pretraining import InstanceOptions, Learning, Length, SecondPhase
from bertine.options.training import (
    DropoutRate,
    Loading,
    Machine,
    Patience,
    Rate,
    Resuming,
    RunOutput,
    Saving,
    Seed,
    TeacherModel,
    Updates,
    WarmUp,
)
from bertine.options.vectors import PairTables, SimilarityOptions, VectorTraining

_STORE = "on a token store"
_TASK = "on texts of a task"
_VECTORS = "on vectors"


class TeacherFile(OptionGroup):
    """The file of another model's answers, in place of a teacher."""

    title = "teacher and student"

    probabilities: Path | str | None = declare(
        None,
        "in place of a teacher, a file (.csv, .tsv, .jsonl, .parquet) of another model's "
        "probabilities: a row for each row of DATA, a column for each label, or one with a "
        "dictionary or a list; or a column of scores",
        metavar="FILE",
    )
    teacher_task: TeacherTask | None = declare(
        None,
        "of `probabilities`: what the other model answers: one label a text (text), any number of "
        "them (multi-label), or a score (regression)",
        otherwise="text",
    )
    probability_column: str | None = declare(
        None,
        "of `probabilities`: the column with a dictionary, or a list in the order of `labels`; or "
        "with the score",
        otherwise="the usual names, or a column for each label",
    )
    labels: Sequence[str] | None = declare(
        None,
        "of `probabilities`: the labels, in the order of a list",
        otherwise="the names of the columns, or the keys of the dictionaries",
    )
    label_separator: str | None = like(
        OwnTable,
        "label_separator",
        help="of `probabilities` of the task multi-label: between labels in one column of DATA",
        otherwise="the bar | as usual",
        title="teacher and student",
    )


class StudentModel(OptionGroup):
    """The model that is trained."""

    title = "teacher and student"

    student: Path | str | None = declare(
        None,
        "what is trained: a model type such as distilbert (with the teacher's sizes), a preset, a "
        "config.json, or a model directory to begin from",
        otherwise="a model of the teacher's type with fewer layers",
        metavar="TYPE|PRESET|FILE|DIR",
    )
    layers: Sequence[int] | None = declare(
        None,
        "layers of the teacher, counted from 0, that the student begins with, along with its "
        "embeddings and heads",
        otherwise="every other one: 0 2 4 7 9 11 of 12",
        least=0,
    )
    fresh_weights: bool = declare(
        False,
        "begin the student with random weights instead of the teacher's layers; their number "
        "stays the same",
    )
    token_types: TokenTypesOfTeacher = declare(
        "fold",
        "for a student without token types: add the embedding of the first type to the positions, "
        "or drop it as DistilBERT did",
    )


class SoftTargets(OptionGroup):
    """How the student learns from the teacher's answers."""

    title = "soft targets"

    temperature: float = declare(
        2.0,
        "number that the logits of both are divided by; the loss is multiplied by its square",
        above=0,
    )


class StoreTerms(OptionGroup):
    """The loss terms of distillation on a token store (Sanh et al. 2019, section 3)."""

    title = _STORE

    soft_weight: float = declare(
        5.0, "weight of the loss on the teacher's distributions over the vocabulary", least=0
    )
    mlm_weight: float = declare(2.0, "weight of the loss on the masked tokens themselves", least=0)
    cosine_weight: float = declare(
        1.0,
        "weight of the loss on the angle between the last states of both; their widths must be "
        "equal",
        least=0,
    )
    cosine_projection: bool = declare(
        False, "learn a layer between the widths, where they differ, for the cosine", title=_STORE
    )
    soft_tokens: SoftTokens = declare(
        "all", "which tokens have soft targets: all real ones, as published, or the masked ones"
    )
    mask_smoothing: float = declare(
        0.7,
        "choose rarer tokens for prediction more often: in proportion to their count in the store "
        "to minus this; 0: all alike",
        more="As in the published code, but within each sequence "
        "(:func:`~bertine.corpora.collators.rarer_first`).",
        least=0,
    )
    freeze_positions: bool = declare(False, "do not train the position embeddings")
    freeze_token_types: bool = declare(False, "do not train the embeddings of token types")


class TaskTerms(OptionGroup):
    """The loss terms of distillation on the texts of a task."""

    title = _TASK

    label_weight: float = declare(
        0.5,
        "the share of the labels in the loss, a mean over the rows that have one; the rest is the "
        "teacher's, a mean over all rows",
        least=0,
        most=1,
    )


class MapTerms(OptionGroup):
    """The loss terms on hidden states and attention maps, layer by layer
    (:mod:`bertine.objectives.distillation`)."""

    title = "layer by layer"

    hidden_weight: float = declare(
        0.0,
        "weight of the loss on the states of each layer, compared with those of the teacher's "
        "layer",
        least=0,
    )
    attention_weight: float = declare(
        0.0, "weight of the loss on where the heads of each layer look", least=0
    )
    hidden_mean_weight: float = declare(
        0.0, "weight of the loss on the mean of each state (MobileBERT: 5000)", least=0
    )
    hidden_variance_weight: float = declare(
        0.0, "weight of the loss on the variance of each state (MobileBERT: 5)", least=0
    )
    layer_loss: MapKind = declare(
        "tinybert",
        "how they are compared: squared errors of states and of scores before the softmax; or of "
        "normalized states, and the divergence of distributions of attention",
        more="MobileBERT's weights are 100 and 1.",
    )
    progressive_steps: int | None = declare(
        None,
        "train one layer after the other, the lowest first, for this many steps each, on these "
        "terms alone; then all of them",
        otherwise="all layers from the first step on",
        least=1,
    )


class StudentTraining(
    Rate,
    WarmUp,
    Updates,
    DropoutRate,
    Patience,
    Machine,
    RunOutput,
    Saving,
    Loading,
    Resuming,
):
    """How a student is trained."""

    compile: bool | None = like(  # type: ignore[assignment]
        Loading, "compile", default=None, otherwise="on a store, not on a task", more=""
    )


class LmOptions(
    TeacherModel,
    StudentModel,
    SoftTargets,
    StoreTerms,
    MapTerms,
    Length,
    InstanceOptions,
    SecondPhase,
    StudentTraining,
):
    """The options of distillation on a token store."""

    objective: ObjectiveName = like(
        Learning,
        "objective",
        default="mlm",
        help="what is learned in addition to the soft targets: masked tokens, or next sentences "
        "too",
        otherwise="",
        title=_STORE,
    )
    held_out: Path | str | None = like(Learning, "held_out", title=_STORE)
    evaluate_every: int | None = like(Learning, "evaluate_every", title=_STORE)
    batch_size: int | None = like(  # type: ignore[assignment]
        InstanceOptions, "batch_size", default=None, otherwise="32"
    )
    learning_rate: float | None = like(Rate, "learning_rate", otherwise="1e-4")
    warmup_ratio: float | None = like(WarmUp, "warmup_ratio", otherwise="0.01")
    checkpoint_every: int | None = like(RunOutput, "checkpoint_every", otherwise="1000", more="")


class TeacherVectors(OptionGroup):
    """The file of vectors, in place of a teacher."""

    title = "teacher and student"

    vectors: Path | str | None = declare(
        None,
        "in place of a teacher, a file of another model's vectors, a row for each row of DATA: a "
        ".npy, or a .parquet or .jsonl with a column 'vector'",
        metavar="FILE",
    )


class VectorTerms(OptionGroup):
    """The loss terms of distillation on vectors, in addition to the cosine with the teacher's."""

    title = _VECTORS

    relation_weight: float = declare(
        0.0,
        "weight of the loss on how alike the texts of a batch are to each other by the teacher's "
        "vectors",
        least=0,
    )
    mlm_weight: float = like(
        StoreTerms,
        "mlm_weight",
        default=0.0,
        help="weight of the loss on masked words, in half of the texts; the model then keeps a "
        "head that guesses them",
        title=_VECTORS,
    )
    masked_lm_prob: float = like(
        InstanceOptions,
        "masked_lm_prob",
        help="with `mlm_weight`: share of the words that are masked in these texts",
        title=_VECTORS,
    )


class VectorOptions(
    TeacherModel,
    TeacherVectors,
    StudentModel,
    VectorTerms,
    Cleaning,
    VectorTraining,
):
    """The options of distillation on vectors."""

    teacher: Path | str | None = like(
        TeacherModel, "teacher", help="model directory to learn from: any that gives vectors"
    )
    text_columns: Sequence[str] | str | None = like(
        TableColumns, "text_columns", help="the text", more="", title="columns"
    )
    format: PlainFormat | None = like(PairTables, "format")
    batch_size: int | None = like(
        VectorTraining, "batch_size", help="texts of an update", otherwise="128"
    )
    validation: Path | str | None = declare(
        None,
        "pairs of texts that the student is judged on, with a score or without",
        otherwise="the texts held out",
        metavar="FILE",
        title="score",
    )
    held_out_texts: int | None = like(
        SimilarityOptions,
        "held_out_pairs",
        help="texts that are held out, to judge by the teacher's vectors of them; 0: none",
    )


class TaskOptions(
    TeacherModel,
    TeacherFile,
    StudentModel,
    SoftTargets,
    TaskTerms,
    MapTerms,
    TableColumns,
    TableReading,
    TaggedColumns,
    Calibrating,
    FinetuneRecipe,
    InputLength,
    SplitSeed,
    Seed,
    StudentTraining,
):
    """The options of distillation on the texts of a task."""

    calibrate: bool = like(
        Calibrating,
        "calibrate",
        help="at the end fit a temperature on the validation examples and divide the head by it, "
        "so that answers are right as often as their probability says; not if the examples have "
        "fewer than 50 labels, or are judged by the teacher's answers",
        title=_TASK,
    )


#: The options of the kinds of contrib, by kind.
_CONTRIB: dict[str, type[OptionGroup]] = {
    kind: implementation(entry["options"]) for kind, entry in registered("DISTILL").items()
}


class DistillOptions(
    LmOptions,
    TaskOptions,
    VectorOptions,
    *_CONTRIB.values(),  # type: ignore[misc]
):
    """The options of ``distill`` for all that it learns from."""

    kinds: ClassVar = {
        "task": TaskOptions,
        "lm": LmOptions,
        "vectors": VectorOptions,
        **_CONTRIB,
    }

    mlm_weight: float | None = like(  # type: ignore[assignment]
        StoreTerms,
        "mlm_weight",
        default=None,
        otherwise="2; of vectors 0, and above it half of the texts are masked",
    )
    batch_size: int | None = like(
        FinetuneRecipe,
        "batch_size",
        help="sequences, or examples, in an update",
        otherwise="32; of a task 16, or 32 with more than 4,000 examples; of vectors 128",
        title="recipe",
    )
    learning_rate: float | None = like(
        Rate, "learning_rate", otherwise="1e-4; of a task and of vectors by the width of the model"
    )
    warmup_ratio: float | None = like(
        WarmUp, "warmup_ratio", otherwise="0.01; of a task and of vectors 0.1, of one-cycle 0.5"
    )
    checkpoint_every: int | None = like(
        RunOutput,
        "checkpoint_every",
        otherwise="1000; of a task and of vectors one after each epoch",
        more="Those of a task are removed when the model directory has been written.",
    )
