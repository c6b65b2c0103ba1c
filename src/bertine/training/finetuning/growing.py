"""Add labels to a fine-tuned classifier of texts, and measure what its old labels lose.

The rows of the head for the old labels stay as they are, with their numbers, and rows for the new
ones follow. Training then changes all of them, and a model that sees no old examples forgets its
old labels. So old examples are learned again, if they are there; if they are not, the model also
learns its own former answers to the new texts (learning without forgetting: Li and Hoiem 2016,
arXiv 1606.09282). The measurements are in ``docs/results.md``, "A model grows".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.console import logger, plural
from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.task_info import TASK, TaskInfo
from bertine.corpora.batch import Batch
from bertine.data.examples import row_number, row_numbers
from bertine.data.in_memory import as_data
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_labelled
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.inference.predictor import Pipeline
from bertine.models.encoder import Encoded
from bertine.models.heads import Model
from bertine.objectives.distillation import SOFT, divergences
from bertine.objectives.losses import Loss, LossDefaults, Term
from bertine.options.data import DataConfig
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks.base import Features, Task
from bertine.tasks.classification import TextClassification, in_order

#: The key of a run's settings, and of the facts of its model, for the files of old examples.
OLD_DATA = "old_data"
#: The temperature at which answers are compared with the old ones, and the weight of that.
_TEMPERATURE, _WEIGHT = 2.0, 1.0
#: The penalty on the rows of new labels that are fitted alone.
_PENALTY = 0.3
#: Old examples of a label that are learned again: so many for one of a new label on average, and
#: at least so many.
_OLD_FOR_ONE, _LEAST_OLD = 2, 20


def growing_options(
    task: str, model: Path | str | None, options: FinetuneOptions, config: DataConfig
) -> FinetuneOptions:
    """Return the options of a run: where labels are added to a model whose head was fitted alone,
    it is fitted alone again.

    Raises:
        BertineError: it is another task than one label of a text; an option asks for a new head,
            or reads other labels than words; there are old data, and no labels are added.
    """
    asked = option("add_labels", True)
    if not options.add_labels:
        if options.old_data is not None:
            raise BertineError(f"{option('old_data')} is for {asked}; give both, or leave it out")
        return options
    if task != TextClassification.name:
        raise BertineError(f"{asked} is for the task 'text', not for {task!r}; leave it out")
    if model is None:
        raise BertineError(f"{asked} needs a model that has labels; name it with {option('model')}")
    others = {
        "fresh_weights": options.fresh_weights,
        "pairs": options.pairs != "joined",
        "label_names": config.label_names is not None,
        "probability_columns": bool(config.probability_columns),
        "annotators": config.annotators == "soft",
    }
    for name in [name for name, given in others.items() if given]:
        raise BertineError(
            f"{asked} keeps the model's own head and the names of its labels, so that {name} does "
            "not go with it; leave one of the two out"
        )
    file = locate(model) / TASK
    alone = file.is_file() and TaskInfo.read(file).training.get("frozen") is True
    return FinetuneOptions.of(options, frozen=True) if alone and options.frozen is None else options


def say_other_labels(model: Path | str, info: TaskInfo | None, task: Task[Any]) -> None:
    """Say that a classifier with other labels gets a new head, and how its own is kept."""
    if info is not None and info.name == task.name == "text" and not task.reuses(info):
        logger.info(
            f"{model}: has other labels, so that its head begins anew; "
            f"{option('add_labels', True)} keeps its labels and adds those of the data"
        )


@dataclass(frozen=True)
class Growth:
    """A classifier that gets more labels.

    Attributes:
        before: the classifier as it was.
        task: its task, with its old labels.
        old_data: the files of old examples; empty: there are none.
        complete: whether there are training examples of every old label.
    """

    before: LoadedModel
    task: TextClassification
    old_data: tuple[str, ...]
    complete: bool

    @classmethod
    def begin(
        cls, model: Path | str, new: DatasetSplits, config: DataConfig, options: FinetuneOptions
    ) -> tuple[Growth, DatasetSplits]:
        """Read the model and old examples; return it, and the examples of old and new labels.

        Args:
            model: its directory.
            new: the examples that the user gives.
            config: how they were read; its `known_rows` are those that the model was trained on.
            options: how the model is trained.

        Raises:
            BertineError: it is no fine-tuned classifier of as many texts; its head was fitted
                alone, and is to be trained; the old data that the user gives cannot be read.
        """
        before, asked = load_model(model), option("add_labels", True)
        info = before.task
        if info is None or info.name != TextClassification.name:
            what = "was not fine-tuned" if info is None else f"has the task {info.name!r}"
            raise BertineError(
                f"{model}: {what}, so that it has no labels to keep; leave out {asked}"
            )
        task = TextClassification.from_info(info, before.config)
        if len(task.text_columns) != len(new.train.text_columns):
            raise BertineError(
                f"{new.train.source}: has {plural(len(new.train.text_columns), 'text column')}, "
                f"but {model} reads {len(task.text_columns)}; name as many"
            )
        if info.training.get("frozen") and not options.frozen:
            raise BertineError(
                f"{model}: its head was fitted alone, and so it grows; leave out "
                f"{option('frozen', False)}"
            )
        old = _old_examples(info.training, config, options)
        added = {item.label for item in new.train.items} - {*task.labels}
        count = sum(item.label in added for item in new.train.items)
        mean = count / len(added) if added else len(new.train)
        most = max(_LEAST_OLD, round(_OLD_FOR_ONE * mean))
        examples = _merged(new, old, most, options.seed)
        lacking = {*task.labels} - {item.label for item in examples.train.items}
        growth = cls(before, task, tuple(splits.path for splits in old), not lacking)
        kept = (
            f"the model keeps its {plural(len(task.labels), 'label')} and gets {len(added):,} more"
        )
        if old:
            again = len(examples.train) - len(new.train)
            kept += f"; learned again: {again:,} old examples of {', '.join(growth.old_data)}"
        logger.info(kept)
        if lacking:
            logger.warning(
                f"no examples of {plural(len(lacking), 'old label')}, which the model may forget; "
                f"{option('old_data')} names a file of them"
            )
        names = ("pair_pooling", "shared_pieces", "text_pooling", "both_orders", "long_text")
        settings = {
            **new.settings,
            **{name: getattr(task, name) for name in names},
            "labels": [*task.labels, *in_order(added, new.train.class_names)],
        }
        return growth, replace(examples, settings=settings, max_length=task.max_length)

    def grown(self, model: Path | str, labels: int, dropout: float | None) -> LoadedModel:
        """Return the model with a head for `labels` labels: the old rows, then rows of 0, with the
        mean of the old biases."""
        loaded = load_model(model, dropout=dropout)
        head: Any = loaded.model.heads[self.task.head]
        old, count = head.out, len(self.task.labels)
        head.out = nn.Linear(old.in_features, labels, old.bias is not None)
        with torch.no_grad():
            for own, its in zip(head.out.parameters(), old.parameters(), strict=True):
                own.zero_()[:count] = its
                if own.ndim == 1:
                    own[count:] = its.mean()
        return loaded

    def loss(self, inner: Loss, task: Task[Any]) -> KeepingAnswers:
        """Return the loss `inner` of `task`, which also keeps the old answers."""
        return KeepingAnswers(inner, task, self.before.model, len(self.task.labels))

    def fit_new_rows(self, grown: Pipeline, features: Sequence[Features]) -> None:
        """Fit the rows of the head for the new labels to examples, in place. The encoder and the
        old rows stay, and a penalty on the new ones keeps them from taking old texts.

        Args:
            grown: the model with its new head.
            features: of the training examples.
        """
        head: Any = cast(Model, grown.computing).heads[self.task.head]
        out, head.out = head.out, nn.Identity()
        states = torch.from_numpy(np.stack(grown.compute(features))).float()
        head.out = out.cpu()
        labels = torch.tensor([feature.label for feature in features])
        count = len(self.task.labels)
        with torch.no_grad():
            old, scale = out(states)[:, :count], 1 / states.std()
        inputs = torch.cat([states * scale, torch.ones(len(states), 1)], 1)
        rows = torch.zeros(len(out.weight) - count, inputs.shape[1], requires_grad=True)
        optimizer = torch.optim.LBFGS([rows], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            scores = torch.cat([old, inputs @ rows.T], 1)
            value = F.cross_entropy(scores, labels) + _PENALTY * rows.square().sum(1).mean()
            value.backward()
            return value

        optimizer.step(loss)
        with torch.no_grad():
            out.weight[count:] = rows[:, :-1] * scale
            out.bias[count:] = rows[:, -1]

    def measured(
        self, grown: Pipeline, held: Sequence[Features], outputs: Sequence[np.ndarray]
    ) -> tuple[dict[str, float], str]:
        """Measure the accuracy on held-out examples of the old labels, of the model as it was and
        as it is now, and that on those of the new ones.

        Args:
            grown: the model as it is now.
            held: the features of the held-out examples.
            outputs: of the model as it is now, for them.

        Returns:
            The metrics, and a line for the report.
        """
        count, metrics = len(self.task.labels), dict[str, float]()
        old = [number for number, feature in enumerate(held) if feature.label < count]
        new = [number for number, feature in enumerate(held) if feature.label >= count]
        line = (
            f"what the {plural(count, 'old label')} lost is not measured: no held-out text has one"
        )
        if old:
            features = [held[number] for number in old]
            before = replace(grown, computing=self.before.model, task=self.task)
            was, texts = _accuracy(self.task, before.compute(features), features)
            now, _ = _accuracy(grown.task, [outputs[number] for number in old], features)
            metrics |= {"old_labels_accuracy_before": was, "old_labels_accuracy": now}
            line = (
                f"old labels ({count}): {was:.1%} before, {now:.1%} now, of {texts} held-out texts"
            )
        if new:
            features = [held[number] for number in new]
            now, texts = _accuracy(grown.task, [outputs[number] for number in new], features)
            metrics["new_labels_accuracy"] = now
            added = len(grown.task.labels) - count
            line += f"; new labels ({added}): {now:.1%} of {texts}"
        return metrics, line


def _accuracy(
    task: Task[Any], outputs: Sequence[np.ndarray], features: Sequence[Features]
) -> tuple[float, int]:
    """Return the share of right answers, and the number of texts."""
    truth = {feature.row: feature.label for feature in features}
    answers = task.decode(outputs, features)
    right = sum(
        task.ids[answer.label] == label
        for answer, label in zip(answers, truth.values(), strict=True)
    )
    return right / len(truth), len(truth)


def _old_examples(
    facts: Mapping[str, Any], config: DataConfig, options: FinetuneOptions
) -> list[DatasetSplits]:
    """Read the old examples: those that the user names, or those of the training with these
    `facts`, as far as they can be read. Rows that the model was not trained on are held out."""
    if options.old_data is not None:
        return [read_labelled(TextClassification.name, as_data(options.old_data), config)]
    kind, _, part = str(facts.get("task")).partition("/")
    reading = DataConfig.from_facts(
        facts.get("reading") or {},
        glue_task=part if kind == "glue" else None,
        seed=config.seed,
        known_rows=config.known_rows,
    )
    read = []
    for path in (facts.get("data_path"), *facts.get(OLD_DATA, ())):
        if isinstance(path, str) and Path(path).exists():
            try:
                read.append(read_labelled(kind, path, reading))
            except BertineError as error:
                logger.warning(f"old examples are not used: {error}")
    return read


def _merged(
    new: DatasetSplits, old: Sequence[DatasetSplits], most: int, seed: int
) -> DatasetSplits:
    """Add old examples to new ones, at most `most` of a label to learn from. Rows that the new ones
    have too, perhaps with another label, are left out."""
    taken = row_numbers([*new.train.items, *new.validation.items])
    train, held = (
        [item for part in parts for item in part.items if row_number(item) not in taken]
        for parts in ([one.train for one in old], [one.validation for one in old])
    )
    order = generator(seed, "old examples").permutation(len(train)).tolist()
    kept, chosen = Counter[str](), list[Any]()
    for item in (train[number] for number in order):
        kept[item.label] += 1
        if kept[item.label] <= most:
            chosen.append(item)
    return replace(
        new,
        train=replace(new.train, items=[*new.train.items, *chosen]),
        validation=replace(new.validation, items=[*new.validation.items, *held]),
    )


@dataclass
class KeepingAnswers(LossDefaults):
    """The loss of a task, and how far the answers are from those of the model as it was, on the
    same texts, among its labels.

    Attributes:
        inner: that loss.
        task: the task, with old and new labels, the old ones first.
        before: the model as it was.
        labels: the number of its labels.
    """

    inner: Loss
    task: Task[Any]
    before: Model
    labels: int

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of the task, and the sequences."""
        return self.inner.counts(batch) | {SOFT: batch.num_sequences}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone as the task does."""
        return self.inner.encode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the task's terms, and the divergence from the old answers."""
        terms = self.inner.terms_of(model, encoded, batch)
        with torch.no_grad():
            wanted = self.task.outputs(self.before, batch)
        ours = self.task.outputs(model, batch, encoded)[:, : self.labels]
        total = divergences(ours, wanted, _TEMPERATURE).sum()
        return terms | {SOFT: Term(total, batch.num_sequences, weight=_WEIGHT)}
