"""What a fine-tuning run starts from: the model, the labelled examples, their batches.

Finding a learning rate (:mod:`bertine.training.rate.lr_find`) starts from the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from bertine.cores.launch import launched
from bertine.data.batching import FeatureBatches
from bertine.datasets.data_look import DataLook, look_at
from bertine.datasets.labelled import read_labelled
from bertine.datasets.reading import Labelled, Reading
from bertine.errors import BertineError
from bertine.inference.baselines.frozen import pooling_of
from bertine.inference.seen_in_training import START, rows_known_by, seen_line
from bertine.modeldir import LoadedModel, load_config, load_model
from bertine.models.config import Config
from bertine.models.heads import VECTOR_CLASSIFIER
from bertine.models.mean_layer import takes_mean_layer
from bertine.models.model import Model
from bertine.models.modern.linear_head import can_be_linear
from bertine.models.seeding import seeded
from bertine.objectives.base import Loss
from bertine.objectives.beside_task import WithNextTokens
from bertine.options.finetuning import FreshWeights, LanguageModelBeside, Layers
from bertine.options.names import option
from bertine.options.optimization import DropoutRate
from bertine.records.examples import Examples, SoftExample
from bertine.records.known_rows import KNOWN, count_known
from bertine.scores import exact_rate
from bertine.tables.given import Data
from bertine.taskinfo import TaskInfo
from bertine.tasks.base import Task
from bertine.tasks.features import Features
from bertine.tasks.unknown_text import UnknownText
from bertine.terminal.console import counted, say, warn
from bertine.training.few_shot.contrast import Contrast
from bertine.training.finetuning.plan import TrainingPlan, Wishes
from bertine.training.loop.freezing import check_freezing

#: Features whose lengths say how long the others are.
_LOOKED_AT = 1000


class Start(FreshWeights, DropoutRate, Layers, LanguageModelBeside):
    """The weights that training begins with, and which of them it leaves as they are; see
    :func:`bertine.finetune`."""

    model: Path | str


@dataclass(frozen=True)
class FeaturedExamples:
    """Labelled examples, and the features that were made of them."""

    examples: Examples[Any]
    features: Sequence[Features]


@dataclass(frozen=True)
class Prepared:
    """All that a run needs before its first step.

    Attributes:
        task: that the training examples describe.
        loaded: the model with the task's heads, on its device, and its tokenizer.
        start: what it was made from.
        train: the training examples.
        validation: those that it is judged on.
        others: further ones, by the word before the names of their metrics.
        plan: epochs, batch size and rate: what the user said, and what the rule chose.
        batches: of the training examples.
        data_path: where they were read.
        look: what was seen in the training and validation examples.
        reading: how they were read; its `known` rows are those that `start`, or a teacher, was
            trained on.
        unlabelled: training examples without a label, which a teacher answers.
        loss: what is minimized; None: that of `task`.
        title: of the run, for its bar.
        contrast: how the encoder is trained before its head is fitted alone; None: not at all.
    """

    task: Task[Any]
    loaded: LoadedModel
    start: Start
    train: FeaturedExamples
    validation: FeaturedExamples
    others: dict[str, FeaturedExamples] = field(default_factory=dict)
    plan: TrainingPlan = field(kw_only=True)
    batches: FeatureBatches[Any] = field(kw_only=True)
    data_path: str = field(kw_only=True)
    look: DataLook = field(kw_only=True)
    reading: Reading = field(kw_only=True)
    unlabelled: Sequence[Any] = field(default=(), kw_only=True)
    loss: Loss | None = field(default=None, kw_only=True)
    title: str = field(default="finetune", kw_only=True)
    contrast: Contrast | None = field(default=None, kw_only=True)

    @cached_property
    def seen(self) -> int:
        """Validation examples that `start`, or a teacher, was trained on; 0 of few. Scores on them
        say little about new texts, so nothing is chosen, compared or calibrated by such."""
        return count_known(self.validation.examples.items, self.reading.known)

    @cached_property
    def seen_in_training(self) -> int:
        """Training examples that `start`, or a teacher, was trained on before; 0 of few."""
        return count_known(self.train.examples.items, self.reading.known)

    def seen_note(self) -> str | None:
        """Say how many of the validation examples `start`, or a teacher, was trained on; None of
        few."""
        count = len(self.validation.examples)
        return seen_line(self.seen, count, START, "validation examples")

    def say_seen(self) -> None:
        """Say which examples `start`, or a teacher, was trained on before."""
        if note := self.seen_note():
            warn(note.removeprefix("note: "))
        elif self.seen_in_training and self.validation.examples.items:
            say(
                f"{START} was trained on {self.seen_in_training:,} of these training examples; "
                "the validation examples are others"
            )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics by which the task is judged."""
        return self.task.task_info().metrics or (self.task.primary_metric,)

    @property
    def batch_tokens(self) -> int:
        """About how many tokens a batch has."""
        lengths = [len(each.input_ids) for each in self.train.features[:_LOOKED_AT]]
        return self.plan.batch_size * sum(lengths) // max(1, len(lengths))


def read_or_given(task: str, data: Data | Labelled, *, seed: int, reading: Reading) -> Labelled:
    """Return the examples of `data`, or those that `data` are.

    Raises:
        BertineError: it is said how to read what is read already, or that is not all labelled;
            what reading raises.
    """
    if not isinstance(data, Labelled):
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
    data: Data | Labelled,
    *,
    start: Start,
    reading: Reading,
    wishes: Wishes,
    max_length: int | None,
    seed: int,
    where: torch.device,
    judged: bool = True,
    begun: Mapping[str, Any] | None = None,
) -> Prepared:
    """Read data and model, and make features and batches of them; says what was found. The
    arguments are those of :func:`bertine.finetune`; without `judged` the
    validation examples are read, but no features are made of them; `begun` are the settings of the
    run that is gone on with, if there is one.

    Raises:
        BertineError: what reading the model and the data raises; a label of the validation
            examples that the training examples lack; examples for another task.
    """
    config = load_config(start.model, dropout=start.dropout)
    if not start.fresh_weights and (begun is None or KNOWN in begun):
        reading = dataclasses.replace(reading, known=rows_known_by(start.model))
    labelled = read_or_given(task, data, seed=seed, reading=reading)
    train, validation = labelled.train, labelled.validation
    max_length = fitting(
        labelled.max_length if max_length is None else max_length, start.model, config
    )
    built = labelled.build(max_length)
    if isinstance(data, Labelled) and task != built.name:
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
    look = look_at(
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
    say_what(loaded, train, validation, built.notes(features), look)
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
        data_path=train.source if isinstance(data, Labelled) else str(data),
        look=look,
        reading=reading,
        loss=None if start.frozen else beside_next_tokens(built, config, start),
    )
    if judged:
        prepared.say_seen()
    return prepared


def beside_next_tokens(built: Task[Any], config: Config, start: Start) -> Loss | None:
    """Return the loss of a task with a language model beside it; None: the task's alone.

    Raises:
        BertineError: it is asked for, and models of this type do not guess the next token, or the
            texts of a pair are read apart.
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
    say(
        f"beside the task each token of the inputs is guessed, with weight {weight:g} "
        f"({option('lm_weight', 0)}: the task alone)"
    )
    return WithNextTokens(built, weight, positions)


def on_vectors(task: Task[Any], start: Start, config: Config) -> Task[Any]:
    """Return the task for a head that can be fitted alone: the two texts of a pair encoded apart,
    so that their vectors and their words are compared; single texts by their vector, where the
    published head on such layers cannot be made linear; other tasks as they are."""
    if not task.reads_whole_texts:
        return task
    pooling = pooling_of(start.model)
    if task.takes_pairs:
        return dataclasses.replace(cast(Any, task), pair_pooling=pooling.name, shared_pieces=True)
    if VECTOR_CLASSIFIER not in config.heads or _takes_mean_layer(config):
        return task
    if can_be_linear(config, pooling, len(getattr(task, "labels", ())) or 1):
        return task
    return dataclasses.replace(cast(Any, task), text_pooling=pooling.name)


def _takes_mean_layer(config: Config) -> bool:
    """Tell whether models of `config` can make the mean of all states by a layer on top."""
    with torch.device("meta"):
        return takes_mean_layer(config.new_backbone(pooler=False))


def frozen_beside(prepared: Prepared, seed: int) -> Prepared:
    """Return the same run with an encoder that is not trained: the weights that it started with,
    and a fresh head; the examples and their features are shared."""
    start = dataclasses.replace(prepared.start, frozen=True)
    config = load_config(start.model, dropout=start.dropout)
    task = on_vectors(prepared.task, start, config)
    loaded = load_with_heads(start, task, config, seed)
    loaded.model.to(next(prepared.loaded.model.parameters()).device)
    return dataclasses.replace(prepared, task=task, loaded=loaded, start=start)


def say_plan(plan: TrainingPlan, num_examples: int) -> None:
    """Print how the run is trained, where the rule or a paper chose any of it."""
    if plan.paper is not None:
        say(f"as in {plan.paper.source}: {plan.paper}")
    elif plan.chosen:
        say(
            f"{counted(num_examples, 'example')}: {counted(plan.epochs, 'epoch')}, batches of "
            f"{plan.batch_size}, learning rate {exact_rate(plan.learning_rate)} "
            f"({option('paper', True)}: the paper's settings)"
        )


def fitting(max_length: int, model: Path | str, config: Config) -> int:
    """Return `max_length`, or fewer pieces if the model has fewer positions, which is said."""
    if max_length > config.longest_input:
        max_length = config.longest_input
        say(f"{model}: has {max_length} positions, so max_length is {max_length}")
    return max_length


def load_with_heads(start: Start, built: Task[Any], config: Config, seed: int) -> LoadedModel:
    """Return the model with the heads of `built`: those that it has, if they answer the same.

    Raises:
        BertineError: its vocabulary has nothing to stand around texts and between them.
    """
    heads = built.heads(config)

    def fresh(task: TaskInfo | None) -> list[str]:
        """Return the heads to make anew: one for other labels is of no use, even where it has the
        right shape."""
        reused = built.keeps_head or (task is not None and built.reuses(task))
        return [] if reused else list(heads)

    loaded = load_model(start.model, heads=heads, fresh=fresh, seed=seed, dropout=start.dropout)
    if not loaded.tokenizer.template.added(2):
        loaded = _with_task_tokens(loaded, start.model, seed)
    return _with_fresh_weights(loaded, built, seed) if start.fresh_weights else loaded


def _with_task_tokens(loaded: LoadedModel, name: Path | str, seed: int) -> LoadedModel:
    """Give a model for running text the special tokens that stand around texts and between them,
    with new word embeddings, drawn as those of a new model (openai/finetune-transformer-lm,
    ``train.py: load_params``).

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
        # Rows of the model beyond its vocabulary were never looked up.
        table[:old] = model.backbone.word_weights[:old]
    embeddings = cast(Any, model.backbone.embeddings).word_embeddings
    embeddings.weight = torch.nn.Parameter(table)
    embeddings.num_embeddings = config.vocab_size
    model.config = model.backbone.config = config
    added = " ".join(tokenizer.tokens[old:])
    say(f"{name}: added the special tokens {added} to its vocabulary, with new embeddings")
    return dataclasses.replace(loaded, config=config, tokenizer=tokenizer)


def _with_fresh_weights(loaded: LoadedModel, built: Task[Any], seed: int) -> LoadedModel:
    """Return the same architecture and tokenizer, with random weights of `seed`, as pre-training
    begins with."""
    with seeded(seed, "initial weights"):
        pooler = loaded.model.backbone.pooler is not None
        model = Model(loaded.config, built.heads(loaded.config), add_pooler=pooler)
    say("fresh weights: of the model only the architecture and the vocabulary are taken")
    report = dataclasses.replace(
        loaded.report,
        loaded=[],
        new=[*loaded.report.loaded, *loaded.report.new],
        dropped=[*loaded.report.loaded, *loaded.report.dropped],
    )
    return dataclasses.replace(loaded, model=model.eval(), report=report)


def say_what(
    loaded: LoadedModel,
    train: Examples[Any],
    validation: Examples[Any],
    notes: Sequence[str],
    look: DataLook,
) -> None:
    for line in loaded.report.lines():
        say(line)
    columns = " + ".join(train.text_columns)
    label = train.label_column or "none"
    if train.items and isinstance(train.items[0], SoftExample):
        label = f"probabilities of {counted(len(train.class_names), 'label')}"
    say(
        f"{len(train)} training and {len(validation)} validation examples; "
        f"text: {columns}; label: {label}"
    )
    if line := look.label_line():
        say(line)
    for note in [*look.findings, *(f"{train.source}: {note}" for note in notes)]:
        warn(note)
