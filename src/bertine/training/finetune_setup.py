"""What a fine-tuning run starts from: the model, the labelled examples, their batches.

Finding a learning rate (:mod:`bertine.training.lr_find`) starts from the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bertine.console import say, warn
from bertine.data.batching import FeatureBatches
from bertine.errors import BertineError
from bertine.modeldir import LoadedModel, load_config, load_model
from bertine.models.config import BertConfig
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.tasks.base import Features, Task
from bertine.tasks.examples import Examples
from bertine.tasks.labelled import read_labelled
from bertine.tasks.reading import Labelled, Reading
from bertine.tasks.tagging import Tagging
from bertine.training.freezing import check_freezing


@dataclass(frozen=True)
class Start:
    """The weights that training begins with, and which of them it leaves as they are; see
    :func:`bertine.training.finetune.finetune`."""

    model: Path | str
    fresh_weights: bool = False
    dropout: float | None = None
    freeze_layers: int = 0
    freeze_embeddings: bool = False


@dataclass(frozen=True)
class Part:
    """Examples, and the features that were made of them."""

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
        batches: of the training examples.
        data_path: where they were read.
    """

    task: Task[Any]
    loaded: LoadedModel
    start: Start
    train: Part
    validation: Part
    others: dict[str, Part] = field(default_factory=dict)
    batches: FeatureBatches[Features] = field(kw_only=True)
    data_path: str = field(kw_only=True)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics by which the task is judged."""
        return self.task.task_info().metrics or (self.task.primary_metric,)


def read_or_given(
    task: str, data: Path | str | Labelled, *, seed: int, reading: Reading
) -> Labelled:
    """The examples of `data`, or those that `data` are.

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
    data: Path | str | Labelled,
    *,
    start: Start,
    reading: Reading,
    batch_size: int,
    max_length: int | None,
    seed: int,
    where: torch.device,
    judged: bool = True,
) -> Prepared:
    """Read data and model, and make features and batches of them; says what was found. The
    arguments are those of :func:`bertine.training.finetune.finetune`; without `judged` the
    validation examples are read, but no features are made of them.

    Raises:
        BertineError: what reading the model and the data raises; a label of the validation
            examples that the training examples lack; examples for another task.
    """
    config = load_config(start.model, dropout=start.dropout)
    labelled = read_or_given(task, data, seed=seed, reading=reading)
    train, validation = labelled.train, labelled.validation
    max_length = fitting(
        labelled.max_length if max_length is None else max_length, start.model, config
    )
    built = labelled.build(max_length)
    if isinstance(data, Labelled) and task != built.name:
        raise BertineError(f"the examples are for the task {built.name!r}, not for {task!r}")
    loaded = _loaded(start, built, config, seed)
    check_freezing(loaded.model, start.freeze_layers)
    loaded.model.to(where)
    features = built.featurize(train, loaded.tokenizer)
    built = built.weighted_for(features)
    held = built.featurize(validation, loaded.tokenizer) if judged else []
    others = {
        word: Part(examples, built.featurize(examples, loaded.tokenizer))
        for word, examples in (labelled.others if judged else {}).items()
    }
    _say_what(loaded, train, validation, built.notes(features))
    if not any(feature.num_truncated for feature in features) and built.name != Tagging.name:
        # Taggers tell of the sentences themselves; of the others what is cut is always said.
        say(f"no training text was cut: inputs of up to {max_length} pieces")
    batches = FeatureBatches(
        features,
        lambda chosen: built.collate(chosen, loaded.tokenizer.pad_token_id),
        batch_size=batch_size,
        seed=seed,
    )
    return Prepared(
        built,
        loaded,
        start,
        Part(train, features),
        Part(validation, held),
        others,
        batches=batches,
        data_path=train.source if isinstance(data, Labelled) else str(data),
    )


def fitting(max_length: int, model: Path | str, config: BertConfig) -> int:
    """`max_length`, or fewer pieces if the model has fewer positions, which is said."""
    if max_length > config.max_position_embeddings:
        max_length = config.max_position_embeddings
        say(f"{model}: has {max_length} positions, so max_length is {max_length}")
    return max_length


def _loaded(start: Start, built: Task[Any], config: BertConfig, seed: int) -> LoadedModel:
    """The model with the heads of `built`: those that it has, if they answer the same."""
    heads = built.heads(config)
    loaded = load_model(start.model, heads=heads, seed=seed, dropout=start.dropout)
    if loaded.task is None or not built.reuses(loaded.task):
        # A head for other labels is of no use, even where it has the right shape.
        loaded = load_model(
            start.model,
            heads=built.heads(config),
            fresh=list(heads),
            seed=seed,
            dropout=start.dropout,
        )
    return _with_fresh_weights(loaded, built, seed) if start.fresh_weights else loaded


def _with_fresh_weights(loaded: LoadedModel, built: Task[Any], seed: int) -> LoadedModel:
    """The same architecture and tokenizer, with random weights of `seed`, as pre-training begins
    with."""
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


def _say_what(
    loaded: LoadedModel,
    train: Examples[Any],
    validation: Examples[Any],
    notes: Sequence[str],
) -> None:
    for line in loaded.report.lines():
        say(line)
    columns = " + ".join(train.text_columns)
    say(
        f"{len(train)} training and {len(validation)} validation examples; "
        f"text: {columns}; label: {train.label_column}"
    )
    for note in [*train.notes, *validation.notes, *(f"{train.source}: {note}" for note in notes)]:
        warn(note)
