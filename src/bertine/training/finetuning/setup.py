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
from bertine.core.names import FewShotWeights, OptimizerName, option
from bertine.core.scores import exact_rate
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
from bertine.models.heads import VECTOR_CLASSIFIER, Model
from bertine.models.pooling import Pooling
from bertine.models.precision import seeded
from bertine.objectives.losses import AuxiliaryLM, Loss
from bertine.options.declare import like
from bertine.options.finetuning import (
    AuxiliaryLMOptions,
    FinetuneRecipe,
    FreshWeights,
    Layers,
    PairComparison,
    PaperRecipe,
    paper_recipe,
)
from bertine.options.training import USUAL_RATE, DropoutRate, Patience, Rate, Saving, Updates
from bertine.tasks.base import Features, Task
from bertine.tasks.unknown_text import UnknownText
from bertine.training.step import check_freezing

# Plan: the default number of epochs, batch size and learning rate.
#
# The papers' recipes (:mod:`bertine.options.finetuning`) were made for BERT-base and data sets of
# thousands of examples. With a few hundred examples they do a few dozen updates, too few to learn
# anything; and small models need higher rates. The rule here follows the number of examples and the
# model's width. It was measured with a model of 384 hidden units on 300 examples
# (``docs/results.md``, "Defaults"; ``benchmarks/defaults.py``); for wider ones, which were not
# available, the rate is the published practice (Devlin et al. 2018, section A.3; Mosbach et al.
# 2021, who fine-tune on little data for 20 epochs).

#: The width whose rate was measured, and that rate. Rates fall with the square of the width: 384
#: units have 2e-4, 768 have the paper's 5e-5, and 1,024 have 3e-5.
_WIDTH, _RATE = 384, 2e-4
#: The highest rate for narrower models; models of more than two layers have at most the second
#: number divided by their number of layers. At 1e-3 models of eight layers of width 170 collapse to
#: one class, and those of four layers do sometimes (``docs/results.md``, "Defaults").
_HIGHEST_RATE, _HIGHEST_RATE_OF_LAYERS = 1e-3, 2e-3
#: The number of passes for `_MANY` examples; for fewer it grows with this power of the ratio.
_MANY, _PASSES, _POWER = 16_000, 3, 0.4
#: The most passes, for any number of examples.
_MOST_PASSES = 25
#: Up to this number of classes, the number has no influence.
FEW_CLASSES = 16
#: Up to this many examples, batches are smaller, so that there are more updates.
_FEW = 4_000


@dataclass(frozen=True)
class TrainingPlan:
    """The length of a fine-tuning run, its batch size and its rate.

    Attributes:
        epochs: passes over the training examples.
        batch_size: examples in an update.
        learning_rate: its highest value.
        save_best: whether the weights of the best epoch are saved, not those of the last; None:
            only if the best one is better by more than chance
            (:func:`bertine.core.scores.clearly_better`).
        chosen: whether epochs, batch size or rate come from the rule, not from the user or the
            paper.
        paper: the recipe of the model's paper, if that is asked for.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    save_best: bool | None
    chosen: bool
    paper: PaperRecipe | None = None

    def changes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the paper's settings of the optimizer, except for those that are `given`."""
        said = {name: getattr(self.paper, name, None) for name in ("weight_decay", "layer_decay")}
        return {name: v for name, v in said.items() if v is not None and name not in given}


class Overrides(FinetuneRecipe, Rate, Saving, Patience):
    """The user's values for a run's length, batches and rate; None: the rule chooses. See
    :func:`bertine.finetune`."""

    optimizer: OptimizerName = like(Updates, "optimizer")

    def plan(
        self, config: Config, num_examples: int, task: Task[Any] | None = None
    ) -> TrainingPlan:
        """Return the plan for a model with the sizes of `config` and `num_examples` training
        examples of a `task`; None: a task without classes."""
        named = "" if task is None else task.task_info().dataset or task.name
        recipe = paper_recipe(config.paper_family, named) if self.paper else None
        if recipe is not None:
            usual = (recipe.epochs, recipe.batch_size, recipe.learning_rate)
        else:
            batch_size = 16 if num_examples <= _FEW else 32
            usual = (epochs_for(num_examples, classes_of(task)), batch_size, rate_for(config))
        passes, size_of_batch, rate = usual
        usual = (passes, size_of_batch, float(f"{rate * USUAL_RATE[self.optimizer]:.2e}"))
        said = (self.epochs, self.batch_size, self.learning_rate)
        epochs, size, rate = (a if b is None else b for a, b in zip(usual, said, strict=True))
        save_best = self.save_best
        if save_best is None and (self.patience is not None or self.paper):
            save_best = self.patience is not None
        return TrainingPlan(
            int(epochs),
            int(size),
            float(rate),
            save_best,
            chosen=not self.paper and None in said,
            paper=recipe,
        )


def epochs_for(num_examples: int, num_classes: int = 0) -> int:
    """Return the number of passes over `num_examples` training examples: 3 for 16,000 and more, 9
    for 1,000, 23 for 100; more if there are many classes, because each then has few examples."""
    passes = _PASSES * (_MANY / max(1, num_examples)) ** _POWER
    passes = max(_PASSES, passes) * max(1.0, num_classes / FEW_CLASSES) ** _POWER
    return min(_MOST_PASSES, round(passes))


def classes_of(task: Task[Any] | None) -> int:
    """Return the number of classes that a task distinguishes; 0: it has none."""
    return len(getattr(task, "labels", ())) if task is not None and task.reads_whole_texts else 0


def rate_for(config: Config) -> float:
    """Return the highest learning rate for the width and depth of a model, with one significant
    digit."""
    rate = min(
        _HIGHEST_RATE,
        _HIGHEST_RATE_OF_LAYERS / config.num_hidden_layers,
        _RATE * (_WIDTH / config.hidden_size) ** 2,
    )
    return float(f"{rate:.0e}")


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


#: Of the cosines in the softmax of contrastive training.
TEMPERATURE = 0.1


@dataclass(frozen=True)
class Contrast:
    """How the encoder is trained before the head is fitted.

    Attributes:
        steps: batches.
        batch_size: texts in a batch.
        learning_rate: its highest value.
        trained_weights: that are trained, of the encoder.
        pooling: how the states of a text become its vector.
        temperature: of the cosines in the softmax.
    """

    steps: int
    batch_size: int
    learning_rate: float
    trained_weights: FewShotWeights
    pooling: Pooling
    temperature: float = TEMPERATURE

    def settings(self) -> dict[str, Any]:
        """Return JSON values, for the settings of a run."""
        return {**dataclasses.asdict(self), "pooling": self.pooling.name}


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
        """The approximate number of tokens in a batch."""
        lengths = [len(item.input_ids) for item in self.train.features[:_LOOKED_AT]]
        return self.plan.batch_size * sum(lengths) // max(1, len(lengths))


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
    wishes: Overrides,
    max_length: int | None,
    seed: int,
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
    if start.pairs == "apart" and not (built.reads_whole_texts and built.takes_pairs):
        raise BertineError(
            f"{option('pairs', 'apart')} is for pairs of texts, and the task {built.name!r} is "
            "over others here; leave it out"
        )
    if start.pairs == "apart" and not start.frozen and launched():
        raise BertineError(
            f"{option('pairs', 'apart')} fits the head in one process before it is trained; start "
            "it without torchrun"
        )
    if start.frozen or start.pairs == "apart":
        built = on_vectors(built, start, config)
    loaded = load_with_heads(start, built, config, seed)
    check_freezing(loaded.model, start.freeze_layers)
    loaded.model.to(where)
    features = built.featurize(train, loaded.tokenizer)
    built = built.weighted_for(features)
    held = built.featurize(validation, loaded.tokenizer) if judged else []
    others = {
        word: FeaturedExamples(examples, built.featurize(examples, loaded.tokenizer))
        for word, examples in (labelled.others if judged else {}).items()
    }
    weighed = getattr(built, "class_weights", None) is not None
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
        weighed=weighed,
    )
    log_data_summary(loaded, train, validation, built.notes(features), look)
    plan = wishes.plan(config, len(train), built)
    if judged and not start.frozen:
        say_plan(plan, len(train))
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
    if not weight or built.reads_apart:
        return None
    logger.info(
        f"beside the task each token of the inputs is guessed, with weight {weight:g} "
        f"({option('lm_weight', 0)}: the task alone)"
    )
    return AuxiliaryLM(built, weight, positions)


def on_vectors(task: Task[Any], start: ModelInit, config: Config) -> Task[Any]:
    """Return the task with a head that can be fitted alone. The two texts of a pair are encoded
    separately, so that their vectors and their words are compared. Single texts are represented by
    their vector if the published head on such layers cannot be made linear. Other tasks are
    unchanged."""
    if not task.reads_whole_texts:
        return task
    pooling = pooling_of(start.model)
    if task.takes_pairs:
        return dataclasses.replace(cast(Any, task), pair_pooling=pooling.name, shared_pieces=True)
    if VECTOR_CLASSIFIER not in family_of(config.model_type).heads or _takes_mean_layer(config):
        return task
    if can_be_linear(config, pooling, len(getattr(task, "labels", ())) or 1):
        return task
    return dataclasses.replace(cast(Any, task), text_pooling=pooling.name)


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


def say_plan(plan: TrainingPlan, num_examples: int) -> None:
    """Print the training plan, if the rule or a paper chose any of it."""
    if plan.paper is not None:
        logger.info(f"as in {plan.paper.source}: {plan.paper}")
    elif plan.chosen:
        logger.info(
            f"{plural(num_examples, 'example')}: {plural(plan.epochs, 'epoch')}, batches of "
            f"{plan.batch_size}, learning rate {exact_rate(plan.learning_rate)} "
            f"(for the settings of the model's paper: {option('paper', True)})"
        )


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
        reused = built.keeps_head or (task is not None and built.reuses(task))
        return [] if reused else list(heads)

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
