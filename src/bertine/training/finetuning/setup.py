"""Prepare a fine-tuning run: the model, the labelled examples, their batches, and the plan.

The search for a learning rate (:mod:`bertine.training.lr_find`) has the same preparation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from bertine.core.console import log_all, logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import FeatureBatches
from bertine.data.examples import KNOWN, Examples, SoftExample, count_known
from bertine.data.in_memory import TableLike
from bertine.data.languages import model_for
from bertine.data.published import data_of_run
from bertine.datasets.check import DataReport, check_data
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import given_data, splits_of
from bertine.families.fitted_heads import can_be_linear, takes_mean_layer
from bertine.hub.model_directory import LoadedModel, load_config, load_model
from bertine.inference.baselines.texts import pooling_of
from bertine.inference.train_overlap import START, overlap_line, rows_known_by
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import BOTH_ORDERS, PAIR_CLASSIFIER, VECTOR_CLASSIFIER, Model
from bertine.models.matmul_timing import TOKENS
from bertine.models.precision import seeded
from bertine.objectives.losses import AuxiliaryLM, Loss
from bertine.options.data import DataConfig
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks.base import Features, Task
from bertine.tasks.unknown_text import UnknownText
from bertine.tasks.whole_text import WholeTextTask
from bertine.training.defaults import Contrast, TrainingPlan
from bertine.training.finetuning.growing import Growth, say_other_labels
from bertine.training.step import check_freezing

#: The number of features whose lengths are a sample for all others.
_LOOKED_AT = 1000


@dataclass(frozen=True)
class Prepared:
    """The preparation of a run before its first step.

    Attributes:
        task: made from the training examples.
        loaded: the model with the task's heads, on its device, and its tokenizer.
        model: the name of the initial model.
        options: how it is trained.
        data: the examples; the `known_rows` of its config are those that the initial model, or a
            teacher, was trained on.
        features: of the training examples.
        held: those of the validation examples.
        others: those of further validation sets, by the prefix of the names of their metrics.
        plan: epochs, batch size and rate, by the user or by the rule.
        batches: of the training examples.
        look: statistics of the training and validation examples.
        unlabelled: training examples without a label, which a teacher answers.
        loss: the loss to minimize; None: that of `task`.
        title: of the run, for its bar.
        contrast: how the encoder is trained before its head is fitted alone; None: not at all.
        growth: the model as it was before it gets more labels; None: it gets none.
    """

    task: Task[Any]
    loaded: LoadedModel
    model: Path | str
    options: FinetuneOptions
    data: DatasetSplits
    features: Sequence[Features]
    held: Sequence[Features]
    others: Mapping[str, Sequence[Features]]
    plan: TrainingPlan
    batches: FeatureBatches[Any]
    look: DataReport
    unlabelled: Sequence[Any] = ()
    loss: Loss | None = None
    title: str = "finetune"
    contrast: Contrast | None = None
    growth: Growth | None = None

    @property
    def known_rows(self) -> frozenset[int]:
        """The numbers of the rows that the initial model, or a teacher, was trained on."""
        return self.data.config.known_rows

    @cached_property
    def seen(self) -> int:
        """The number of validation examples among the `known_rows`; 0 if they are few. Scores on
        them are little evidence for new texts, so they are not used to choose, compare or
        calibrate."""
        return count_known(self.data.validation.items, self.known_rows)

    @cached_property
    def seen_in_training(self) -> int:
        """The number of training examples among the `known_rows`; 0 if they are few."""
        return count_known(self.data.train.items, self.known_rows)

    def seen_note(self) -> str | None:
        """Describe how many of the validation examples are among the `known_rows`; None if they are
        few."""
        count = len(self.data.validation)
        return overlap_line(self.seen, count, START, "validation examples")

    def say_seen(self) -> None:
        """Print how many examples are among the `known_rows`."""
        if note := self.seen_note():
            logger.warning(note.removeprefix("note: "))
        elif self.seen_in_training and self.data.validation.items:
            logger.info(
                f"{START} was trained on {self.seen_in_training:,} of these training examples; "
                "the validation examples are others"
            )

    @property
    def biased(self) -> bool:
        """Whether scores on the validation examples are little evidence for new texts: the initial
        model was trained on them, or they lack old labels of a model that grows."""
        return bool(self.seen) or (self.growth is not None and not self.growth.complete)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics by which the task is judged."""
        return self.task.task_info().metrics or (self.task.primary_metric,)

    @property
    def batch_tokens(self) -> int:
        """The approximate number of tokens in a batch, to measure with."""
        lengths = [len(item.input_ids) for item in self.features[:_LOOKED_AT]]
        return self.plan.batch_size * sum(lengths) // max(1, len(lengths)) or TOKENS


def prepare(
    task: str,
    data: Path | str | DatasetSplits | TableLike,
    *,
    model: Path | str | None,
    config: DataConfig,
    options: FinetuneOptions,
    where: torch.device,
    judged: bool = True,
    begun: Mapping[str, Any] | None = None,
) -> Prepared:
    """Read data and model, and build features and batches; print the statistics.

    Args:
        task, data, model: see :func:`bertine.finetune`.
        config: how the data are read.
        options: how the model is trained.
        where: the device to train on.
        judged: whether the validation examples get features; they are read in any case.
        begun: the settings of the run that is resumed, if there is one.

    Raises:
        BertineError: what reading the model and the data raises; a label of the validation examples
            that the training examples lack; examples for another task.
    """
    # Examples, and the task that they define.
    # What is no data is said before the model is loaded.
    data = given_data(data_of_run(data, begun))
    splits = None
    model = model or (begun or {}).get("model_path")
    if model is None and task == "seq2seq":
        raise BertineError(
            "no model is named, and none that is installed writes texts; take a published one, "
            f"such as {option('model', 'hf:facebook/bart-base')}"
        )
    if model is None:
        splits = splits_of(task, data, config)
        model = model_for(splits.train.items)
    sizes = load_config(model, dropout=options.dropout)
    if not options.fresh_weights and (begun is None or KNOWN in begun):
        config = DataConfig.of(config, known_rows=rows_known_by(model))
    splits, growth = splits or splits_of(task, data, config), None
    if options.add_labels:
        growth, splits = Growth.begin(model, splits, config, options)
        if not growth.complete:  # probabilities and baselines would be those of the new labels
            alone = options.frozen is not False
            options = FinetuneOptions.of(options, frozen=alone, calibrate=False, baselines=False)
    wanted = splits.max_length if options.max_length is None else options.max_length
    max_length, apart = fitting(wanted, model, sizes), options.pairs == "apart"
    on_vectors = apart or options.frozen
    settings = vector_settings(splits, model, sizes) if on_vectors and growth is None else {}
    if options.pairs == "both-orders":
        _check_both_orders(splits, sizes, options)
        settings = {"both_orders": True}
    if apart and "pair_pooling" not in settings:
        raise BertineError(
            f"{option('pairs', 'apart')} is for pairs of texts, and the task "
            f"{splits.task_class.name!r} is over others here; leave it out"
        )
    if apart and not options.frozen and launched():
        raise BertineError(
            f"{option('pairs', 'apart')} fits the head in one process before it is trained; start "
            "it without torchrun"
        )
    built: Task[Any] = splits.make_task(max_length, **settings)
    # The model, with a head for the task.
    if growth is None:
        loaded = load_with_heads(model, built, sizes, options)
    else:
        loaded = growth.grown(model, built.num_classes, options.dropout)
        growth.before.model.to(where)
    check_freezing(loaded.model, options.freeze_layers)
    loaded.model.to(where)
    # Tokenized examples, and their batches.
    features = built.featurize(splits.train, loaded.tokenizer)
    unweighted = built
    built = unweighted.weighted_for(features)
    held = built.featurize(splits.validation, loaded.tokenizer) if judged else []
    others = {
        word: built.featurize(examples, loaded.tokenizer)
        for word, examples in (splits.others if judged else {}).items()
    }
    look = check_examples(built, splits, features, held, loaded, weighed=built is not unweighted)
    plan = TrainingPlan.of(options, sizes, len(splits.train), built)
    if judged and not options.frozen:
        plan.say(len(splits.train))
    batches = FeatureBatches(
        features,
        lambda chosen: built.collate(chosen, loaded.tokenizer.pad_token_id),
        batch_size=plan.batch_size,
        seed=options.seed,
    )
    if growth is None and judged and not options.fresh_weights:
        say_other_labels(model, loaded.task, built.task_info())
    prepared = Prepared(
        built,
        loaded,
        model,
        options,
        splits,
        features,
        held,
        others,
        plan,
        batches,
        look,
        loss=None if options.frozen else with_auxiliary_lm(built, sizes, options),
        growth=growth,
    )
    if judged:
        prepared.say_seen()
    return prepared


def _check_both_orders(splits: DatasetSplits, sizes: Config, options: FinetuneOptions) -> None:
    asked = option("pairs", "both-orders")
    if BOTH_ORDERS not in family_of(sizes.model_type).heads:
        raise BertineError(
            f"{asked} is for models that read from left to right, such as GPT-1; a model of type "
            f"{sizes.model_type} sees both texts at once, so leave it out"
        )
    if len(splits.train.text_columns) != 2 or not issubclass(splits.task_class, WholeTextTask):
        raise BertineError(
            f"{asked} is for pairs of texts, and the task {splits.task_class.name!r} is over "
            "others here; leave it out"
        )
    if options.frozen:
        raise BertineError(f"{asked} trains all weights; leave out it or {option('frozen', True)}")


def vector_settings(data: DatasetSplits, model: Path | str, sizes: Config) -> dict[str, Any]:
    """Return the settings of a task whose head can be fitted alone on the vectors of a `model` with
    the `sizes`: for pairs of texts, and for single ones if the published head on its layers cannot
    be made linear; else empty."""
    pooling = pooling_of(model)

    def is_linear(outputs: int) -> bool:
        family = family_of(sizes.model_type)
        if VECTOR_CLASSIFIER not in family.heads or can_be_linear(sizes, pooling, outputs):
            return True
        with torch.device("meta"):
            return takes_mean_layer(family.new_backbone(sizes, False))

    labels = data.settings.get("labels")
    return data.task_class.vector_settings(data.train, labels, pooling.name, is_linear)


def probe_variant(prepared: Prepared) -> Prepared:
    """Return the same run with an encoder that is not trained: its initial weights and a fresh
    head; the examples and their features are shared."""
    options, task = FinetuneOptions.of(prepared.options, frozen=True), prepared.task
    sizes = load_config(prepared.model, dropout=options.dropout)
    if settings := vector_settings(prepared.data, prepared.model, sizes):
        task = prepared.data.make_task(task.max_length, **settings).weighted_for(prepared.features)
    loaded = load_with_heads(prepared.model, task, sizes, options)
    loaded.model.to(next(prepared.loaded.model.parameters()).device)
    return replace(prepared, task=task, loaded=loaded, options=options)


def with_auxiliary_lm(built: Task[Any], config: Config, options: FinetuneOptions) -> Loss | None:
    """Return the loss of a task plus that of a language model; None: the task's loss alone.

    Raises:
        BertineError: it is asked for, and models of this type do not predict the next token, or the
            texts of a pair are encoded separately.
    """
    weight = config.task_lm_weight if options.lm_weight is None else options.lm_weight
    positions = options.lm_softmax != "tokens"
    if weight and not config.task_lm_weight:
        raise BertineError(
            f"lm_weight is {weight:g}, but a model of type {config.model_type} does not guess the "
            "next token in fine-tuning; leave it out"
        )
    if positions and not weight:
        raise BertineError(
            f"lm_softmax is {options.lm_softmax!r}, but no tokens are guessed beside the task; "
            "leave it out"
        )
    if not weight or built.head == PAIR_CLASSIFIER:
        return None
    logger.info(
        f"beside the task each token of the inputs is guessed, with weight {weight:g} "
        f"({option('lm_weight', 0)}: the task alone)"
    )
    return AuxiliaryLM(built, weight, positions)


def fitting(max_length: int, model: Path | str, config: Config) -> int:
    """Return `max_length`, or the model's number of positions if that is smaller; print a note
    then."""
    if max_length > config.longest_input:
        max_length = config.longest_input
        logger.info(f"{model}: has {max_length} positions, so max_length is {max_length}")
    return max_length


def load_with_heads(
    model: Path | str, built: Task[Any], config: Config, options: FinetuneOptions
) -> LoadedModel:
    """Return the model with the heads of `built`; existing heads are kept if they have the same
    outputs. The `options` are those on seed, dropout and fresh weights.

    Raises:
        BertineError: its vocabulary has no special tokens to put around texts and between them.
    """
    heads = built.heads(config)

    def fresh(task: TaskInfo | None) -> list[str]:
        """Return the heads to create anew: a head for other labels is useless, even if it has the
        right shape."""
        return [] if built.reuses(task) else list(heads)

    seed = options.seed
    loaded = load_model(model, heads=heads, fresh=fresh, seed=seed, dropout=options.dropout)
    if not loaded.tokenizer.template.added(2):  # as that of GPT-1
        loaded = _with_task_tokens(loaded, model, seed)
    return _with_fresh_weights(loaded, built, seed) if options.fresh_weights else loaded


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
    return replace(loaded, config=config, tokenizer=tokenizer)


def _with_fresh_weights(loaded: LoadedModel, built: Task[Any], seed: int) -> LoadedModel:
    """Return the same architecture and tokenizer, with random weights from `seed`, initialized as
    for pre-training."""
    with seeded(seed, "initial weights"):
        pooler = loaded.model.backbone.pooler is not None
        model = Model(loaded.config, built.heads(loaded.config), add_pooler=pooler)
    logger.info("fresh weights: of the model only the architecture and the vocabulary are taken")
    report = replace(
        loaded.report,
        loaded=[],
        new=[*loaded.report.loaded, *loaded.report.new],
        dropped=[*loaded.report.loaded, *loaded.report.dropped],
    )
    return replace(loaded, model=model.eval(), report=report)


def check_examples(
    task: Task[Any],
    data: DatasetSplits,
    features: Sequence[Any],
    held: Sequence[Any],
    loaded: LoadedModel,
    labelled: tuple[Examples[Any], Sequence[Any]] | None = None,
    weighed: bool = False,
) -> DataReport:
    """Check the examples of a run, and print what was read and found.

    Args:
        features, held: of the training and of the validation examples.
        labelled: the training examples that have a label, with their features; None: all have.
        weighed: whether rare labels count more.
    """
    train, validation = data.train, data.validation
    checked, own = labelled or (train, features)
    look = check_data(
        type(task),
        checked,
        validation,
        own,
        held,
        unknown=[
            UnknownText.of(part, made, loaded.tokenizer)
            for part, made in ((train, features), (validation, held))
        ],
        weighed=weighed,
    )
    log_all(loaded.report.lines())
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
    notes = task.notes(features)
    of_reading = {*train.notes, *validation.notes}
    for note in [*look.findings, *(f"{train.source}: {note}" for note in notes)]:
        (logger.info if note in of_reading else logger.warning)(note)
    return look
