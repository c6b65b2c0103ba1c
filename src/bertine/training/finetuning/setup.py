"""Prepare a fine-tuning run: the model, the labelled examples, their batches, and the plan.

The search for a learning rate (:mod:`bertine.training.lr_find`) has the same preparation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from bertine.core.console import logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import FeatureBatches
from bertine.data.examples import KNOWN, Examples, SoftExample, count_known
from bertine.data.in_memory import Data
from bertine.datasets.check import DataReport, check_data
from bertine.datasets.readers import DataConfig, DatasetSplits, read_labelled
from bertine.families.fitted_heads import can_be_linear, takes_mean_layer
from bertine.hub.model_directory import LoadedModel, load_config, load_model
from bertine.inference.baselines.texts import pooling_of
from bertine.inference.train_overlap import START, overlap_line, rows_known_by
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import PAIR_CLASSIFIER, VECTOR_CLASSIFIER, Model
from bertine.models.matmul_timing import TOKENS
from bertine.models.precision import seeded
from bertine.objectives.losses import AuxiliaryLM, Loss
from bertine.options.finetuning import (
    AuxiliaryLMOptions,
    FinetuneOptions,
    FreshWeights,
    Layers,
    PairComparison,
)
from bertine.options.training import DropoutRate
from bertine.tasks.base import Features, Task
from bertine.tasks.unknown_text import UnknownText
from bertine.training.defaults import Contrast, TrainingPlan
from bertine.training.step import check_freezing

#: The number of features whose lengths are a sample for all others.
_LOOKED_AT = 1000


class ModelInit(FreshWeights, DropoutRate, Layers, PairComparison, AuxiliaryLMOptions):
    """The initial weights of training, and which of them are frozen; see
    :func:`bertine.finetune`."""

    model: Path | str


@dataclass(frozen=True)
class FeaturedExamples:
    """Examples, and their features."""

    examples: Examples[Any]
    features: Sequence[Features]


@dataclass(frozen=True)
class Prepared:
    """The preparation of a run before its first step.

    Attributes:
        task: derived from the training examples.
        loaded: the model with the task's heads, on its device, and its tokenizer.
        start: the source of the initial weights.
        train: the training examples.
        validation: the validation examples.
        others: further examples to evaluate on, by the prefix of the names of their metrics.
        plan: epochs, batch size and rate, by the user or by the rule.
        batches: of the training examples.
        data_path: where they were read.
        look: statistics of the training and validation examples.
        reading: how they were read; its `known` rows are those that `start`, or a teacher, was
            trained on.
        unlabelled: training examples without a label, which a teacher answers.
        loss: the loss to minimize; None: that of `task`.
        title: of the run, for its bar.
        contrast: how the encoder is trained before its head is fitted alone; None: not at all.
    """

    task: Task[Any]
    loaded: LoadedModel
    start: ModelInit
    train: FeaturedExamples
    validation: FeaturedExamples
    others: dict[str, FeaturedExamples] = field(default_factory=dict)
    plan: TrainingPlan = field(kw_only=True)
    batches: FeatureBatches[Any] = field(kw_only=True)
    data_path: str = field(kw_only=True)
    look: DataReport = field(kw_only=True)
    reading: DataConfig = field(kw_only=True)
    unlabelled: Sequence[Any] = field(default=(), kw_only=True)
    loss: Loss | None = field(default=None, kw_only=True)
    title: str = field(default="finetune", kw_only=True)
    contrast: Contrast | None = field(default=None, kw_only=True)

    @cached_property
    def seen(self) -> int:
        """The number of validation examples that `start`, or a teacher, was trained on; 0 if they
        are few. Scores on them are little evidence for new texts, so they are not used to choose,
        compare or calibrate."""
        return count_known(self.validation.examples.items, self.reading.known)

    @cached_property
    def seen_in_training(self) -> int:
        """The number of training examples that `start`, or a teacher, was trained on before; 0 if
        they are few."""
        return count_known(self.train.examples.items, self.reading.known)

    def seen_note(self) -> str | None:
        """Describe how many of the validation examples `start`, or a teacher, was trained on; None
        if they are few."""
        count = len(self.validation.examples)
        return overlap_line(self.seen, count, START, "validation examples")

    def say_seen(self) -> None:
        """Print which examples `start`, or a teacher, was trained on before."""
        if note := self.seen_note():
            logger.warning(note.removeprefix("note: "))
        elif self.seen_in_training and self.validation.examples.items:
            logger.info(
                f"{START} was trained on {self.seen_in_training:,} of these training examples; "
                "the validation examples are others"
            )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics by which the task is judged."""
        return self.task.task_info().metrics or (self.task.primary_metric,)

    @property
    def batch_tokens(self) -> int:
        """The approximate number of tokens in a batch, to measure with."""
        lengths = [len(item.input_ids) for item in self.train.features[:_LOOKED_AT]]
        return self.plan.batch_size * sum(lengths) // max(1, len(lengths)) or TOKENS


def load_splits(
    task: str, data: Data | DatasetSplits, *, seed: int, reading: DataConfig
) -> DatasetSplits:
    """Read the examples of `data`, or return `data` if they are examples.

    Raises:
        BertineError: options for reading are given for examples that were read before, or these are
            not all labelled; what reading raises.
    """
    if not isinstance(data, DatasetSplits):
        return read_labelled(task, data, seed=seed, reading=reading)
    reading.refuse_all()
    for examples in (data.train, data.validation, *data.others.values()):
        without = [number for number, item in enumerate(examples.items) if item.label is None]
        if without:
            raise BertineError(
                f"{examples.source}: {len(without)} of {len(examples)} examples have no label "
                f"(the first is items[{without[0]}]); label them or leave them out"
            )
    return data


def prepare(
    task: str,
    data: Data | DatasetSplits,
    *,
    start: ModelInit,
    reading: DataConfig,
    options: FinetuneOptions,
    where: torch.device,
    judged: bool = True,
    begun: Mapping[str, Any] | None = None,
) -> Prepared:
    """Read data and model, and build features and batches; print the statistics.

    The arguments are those of :func:`bertine.finetune`. Without `judged` the validation examples
    are read, but get no features. `begun` are the settings of the run that is resumed, if there is
    one.

    Raises:
        BertineError: what reading the model and the data raises; a label of the validation examples
            that the training examples lack; examples for another task.
    """
    config = load_config(start.model, dropout=start.dropout)
    max_length, seed = options.max_length, options.seed
    if not start.fresh_weights and (begun is None or KNOWN in begun):
        reading = dataclasses.replace(reading, known=rows_known_by(start.model))
    labelled = load_splits(task, data, seed=seed, reading=reading)
    train, validation = labelled.train, labelled.validation
    max_length = fitting(
        labelled.max_length if max_length is None else max_length, start.model, config
    )
    built = labelled.build(max_length)
    if isinstance(data, DatasetSplits) and task != built.name:
        raise BertineError(f"the examples are for the task {built.name!r}, not for {task!r}")
    if start.frozen or start.pairs == "apart":
        built = on_vectors(built, start, config)
    if start.pairs == "apart" and built.head != PAIR_CLASSIFIER:
        raise BertineError(
            f"{option('pairs', 'apart')} is for pairs of texts, and the task {built.name!r} is "
            "over others here; leave it out"
        )
    if start.pairs == "apart" and not start.frozen and launched():
        raise BertineError(
            f"{option('pairs', 'apart')} fits the head in one process before it is trained; start "
            "it without torchrun"
        )
    loaded = load_with_heads(start, built, config, seed)
    check_freezing(loaded.model, start.freeze_layers)
    loaded.model.to(where)
    features = built.featurize(train, loaded.tokenizer)
    built, unweighted = built.weighted_for(features), built
    held = built.featurize(validation, loaded.tokenizer) if judged else []
    others = {
        word: FeaturedExamples(examples, built.featurize(examples, loaded.tokenizer))
        for word, examples in (labelled.others if judged else {}).items()
    }
    look = check_data(
        type(built),
        train,
        validation,
        features,
        held,
        unknown=[
            UnknownText.of(part, made, loaded.tokenizer)
            for part, made in ((train, features), (validation, held))
        ],
        weighed=built is not unweighted,
    )
    log_data_summary(loaded, train, validation, built.notes(features), look)
    plan = TrainingPlan.of(options, config, len(train), built)
    if judged and not start.frozen:
        plan.say(len(train))
    batches = FeatureBatches(
        features,
        lambda chosen: built.collate(chosen, loaded.tokenizer.pad_token_id),
        batch_size=plan.batch_size,
        seed=seed,
    )
    prepared = Prepared(
        built,
        loaded,
        start,
        FeaturedExamples(train, features),
        FeaturedExamples(validation, held),
        others,
        plan=plan,
        batches=batches,
        data_path=train.source if isinstance(data, DatasetSplits) else str(data),
        look=look,
        reading=reading,
        loss=None if start.frozen else with_auxiliary_lm(built, config, start),
    )
    if judged:
        prepared.say_seen()
    return prepared


def with_auxiliary_lm(built: Task[Any], config: Config, start: ModelInit) -> Loss | None:
    """Return the loss of a task plus that of a language model; None: the task's loss alone.

    Raises:
        BertineError: it is asked for, and models of this type do not predict the next token, or the
            texts of a pair are encoded separately.
    """
    weight = config.task_lm_weight if start.lm_weight is None else start.lm_weight
    positions = start.lm_softmax != "tokens"
    if weight and not config.task_lm_weight:
        raise BertineError(
            f"lm_weight is {weight:g}, but a model of type {config.model_type} does not guess the "
            "next token in fine-tuning; leave it out"
        )
    if positions and not weight:
        raise BertineError(
            f"lm_softmax is {start.lm_softmax!r}, but no tokens are guessed beside the task; leave "
            "it out"
        )
    if not weight or built.head == PAIR_CLASSIFIER:
        return None
    logger.info(
        f"beside the task each token of the inputs is guessed, with weight {weight:g} "
        f"({option('lm_weight', 0)}: the task alone)"
    )
    return AuxiliaryLM(built, weight, positions)


def on_vectors(task: Task[Any], start: ModelInit, config: Config) -> Task[Any]:
    """Return the task with a head that can be fitted alone: pairs of texts, and single ones if the
    published head on such layers cannot be made linear, are represented by their vectors."""
    pooling = pooling_of(start.model)
    single = (
        VECTOR_CLASSIFIER in family_of(config.model_type).heads
        and not _takes_mean_layer(config)
        and not can_be_linear(config, pooling, len(task.labels) or 1)
    )
    return task.on_vectors(pooling.name, single=single)


def _takes_mean_layer(config: Config) -> bool:
    """Return whether models of `config` can compute the mean of all states by an added layer."""
    with torch.device("meta"):
        return takes_mean_layer(family_of(config.model_type).new_backbone(config, False))


def probe_variant(prepared: Prepared, seed: int) -> Prepared:
    """Return the same run with an encoder that is not trained: its initial weights and a fresh
    head; the examples and their features are shared."""
    start = dataclasses.replace(prepared.start, frozen=True)
    config = load_config(start.model, dropout=start.dropout)
    task = on_vectors(prepared.task, start, config)
    loaded = load_with_heads(start, task, config, seed)
    loaded.model.to(next(prepared.loaded.model.parameters()).device)
    return dataclasses.replace(prepared, task=task, loaded=loaded, start=start)


def fitting(max_length: int, model: Path | str, config: Config) -> int:
    """Return `max_length`, or the model's number of positions if that is smaller; print a note
    then."""
    if max_length > config.longest_input:
        max_length = config.longest_input
        logger.info(f"{model}: has {max_length} positions, so max_length is {max_length}")
    return max_length


def load_with_heads(start: ModelInit, built: Task[Any], config: Config, seed: int) -> LoadedModel:
    """Return the model with the heads of `built`; existing heads are kept if they have the same
    outputs.

    Raises:
        BertineError: its vocabulary has no special tokens to put around texts and between them.
    """
    heads = built.heads(config)

    def fresh(task: TaskInfo | None) -> list[str]:
        """Return the heads to create anew: a head for other labels is useless, even if it has the
        right shape."""
        return [] if built.reuses(task) else list(heads)

    loaded = load_model(start.model, heads=heads, fresh=fresh, seed=seed, dropout=start.dropout)
    if not loaded.tokenizer.template.added(2):
        loaded = _with_task_tokens(loaded, start.model, seed)
    return _with_fresh_weights(loaded, built, seed) if start.fresh_weights else loaded


def _with_task_tokens(loaded: LoadedModel, name: Path | str, seed: int) -> LoadedModel:
    """Add the special tokens around texts and between them to a model for running text, with new
    word embeddings, drawn as those of a new model (openai/finetune-transformer-lm, ``train.py:
    load_params``).

    Raises:
        BertineError: none are known for a vocabulary of its kind.
    """
    tokenizer = loaded.tokenizer.with_task_tokens()
    if tokenizer is None:
        raise BertineError(
            f"{name}: its vocabulary is for running text and has no special tokens, which stand "
            "around texts and between them in fine-tuning; give a model whose vocabulary has them, "
            "as those of 'bertine vocab' do"
        )
    model, old = loaded.model, loaded.tokenizer.vocab_size
    config = loaded.config.replace(vocab_size=max(tokenizer.vocab_size, loaded.config.vocab_size))
    with torch.no_grad(), seeded(seed, "special tokens"):
        table = torch.empty(config.vocab_size, config.embedding_width)
        table.normal_(0.0, config.initializer_range)
        # Rows of the model beyond its vocabulary were never used.
        table[:old] = model.backbone.word_weights[:old]
    embeddings = cast(Any, model.backbone.embeddings).word_embeddings
    embeddings.weight = torch.nn.Parameter(table)
    embeddings.num_embeddings = config.vocab_size
    model.config = model.backbone.config = config
    added = " ".join(tokenizer.tokens[old:])
    logger.info(f"{name}: added the special tokens {added} to its vocabulary, with new embeddings")
    return dataclasses.replace(loaded, config=config, tokenizer=tokenizer)


def _with_fresh_weights(loaded: LoadedModel, built: Task[Any], seed: int) -> LoadedModel:
    """Return the same architecture and tokenizer, with random weights from `seed`, initialized as
    for pre-training."""
    with seeded(seed, "initial weights"):
        pooler = loaded.model.backbone.pooler is not None
        model = Model(loaded.config, built.heads(loaded.config), add_pooler=pooler)
    logger.info("fresh weights: of the model only the architecture and the vocabulary are taken")
    report = dataclasses.replace(
        loaded.report,
        loaded=[],
        new=[*loaded.report.loaded, *loaded.report.new],
        dropped=[*loaded.report.loaded, *loaded.report.dropped],
    )
    return dataclasses.replace(loaded, model=model.eval(), report=report)


def log_data_summary(
    loaded: LoadedModel,
    train: Examples[Any],
    validation: Examples[Any],
    notes: Sequence[str],
    look: DataReport,
) -> None:
    for line in loaded.report.lines():
        logger.info(line)
    columns = " + ".join(train.text_columns)
    label = train.label_column or "none"
    if train.items and isinstance(train.items[0], SoftExample):
        label = f"probabilities of {plural(len(train.class_names), 'label')}"
    logger.info(
        f"{len(train)} training and {len(validation)} validation examples; "
        f"text: {columns}; label: {label}"
    )
    if line := look.label_line():
        logger.info(line)
    for note in [*look.findings, *(f"{train.source}: {note}" for note in notes)]:
        logger.warning(note)
