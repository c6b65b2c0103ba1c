"""Add labels to a fine-tuned classifier of texts, and measure what its old labels lose.

The rows of the head for the old labels stay as they are, with their numbers, and rows for the new
ones follow. Training then changes all weights, and a model that sees no old examples forgets its
old labels. So some old examples are learned again, if they are there; if they are not, only the new
rows are fitted (:meth:`Growth.fit_new_rows`). The measurements are in ``docs/results.md``, "Labels
added to a model".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

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
from bertine.core.text import listing
from bertine.data.examples import row_number, row_numbers
from bertine.data.in_memory import as_data
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_labelled
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.inference.predictor import Pipeline
from bertine.models.heads import Model
from bertine.options.data import DataConfig
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks.base import Features, Task
from bertine.tasks.classification import TextClassification, in_order
from bertine.tasks.report import ClassificationReport

#: The key of a run's settings, and of the facts of its model, for the files of old examples.
OLD_DATA = "old_data"
#: The penalties on rows that are fitted alone, and the share of the examples that are right with
#: the first one that is taken.
_PENALTIES, _RIGHT = tuple(10 ** (power / 8) for power in range(20, -17, -1)), 0.8
#: Old examples of a label that are learned again: so many for a new example, divided by the number
#: of new labels, and at least so many.
_OLD_FOR_ONE, _LEAST_OLD = 2, 20


def growing_options(
    task: str, model: Path | str | None, options: FinetuneOptions, config: DataConfig
) -> FinetuneOptions:
    """Return the options of a run: where labels are added to a model whose head was fitted alone,
    it is fitted alone again.

    Raises:
        BertineError: it is another task than one label of a text; an option asks for a new head,
            or reads other labels than words; there are old data, and no labels are added; such a
            head is to be trained.
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
    given = options.changed() | config.changed()
    for name in given.keys() & {"fresh_weights", "pairs", "label_names", "probability_columns"}:
        raise BertineError(
            f"{asked} keeps the model's own head and the names of its labels, so that {name} does "
            "not go with it; leave one of the two out"
        )
    file = locate(model) / TASK
    if not file.is_file() or not TaskInfo.read(file).training.get("frozen"):
        return options
    if options.frozen is False:
        raise BertineError(
            f"{model}: its head was fitted alone, which stays so; omit {option('frozen', False)}"
        )
    return FinetuneOptions.of(options, frozen=True)


def say_other_labels(model: Path | str, was: TaskInfo | None, now: TaskInfo) -> None:
    """Say that a classifier with other labels gets a new head, and how its own is kept."""
    if was is None or was.labels == now.labels:
        return
    if was.name == now.name == TextClassification.name:
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
            BertineError: it is no fine-tuned classifier of as many texts; or old examples cannot be
                read.
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
            many = plural(len(task.text_columns), "text column")
            raise BertineError(f"{new.train.source}: {model} reads {many}; name as many")
        old = _old_examples(info.training, config, options)
        added = {item.label for item in new.train.items} - {*task.labels}
        if not added:
            raise BertineError(f"{new.train.source}: {model} has all its labels; leave out {asked}")
        most = max(_LEAST_OLD, _OLD_FOR_ONE * len(new.train) // len(added))
        examples = _merged(new, old, most, options.seed)
        lacking = {*task.labels} - {item.label for item in examples.train.items}
        growth = cls(before, task, tuple(splits.path for splits in old), not lacking)
        again = len(examples.train) - len(new.train)
        logger.info(
            f"the model keeps its {plural(len(task.labels), 'label')} and gets {len(added):,} more"
            + (f"; learned again: {again:,} examples of {listing(growth.old_data)}" if old else "")
        )
        if lacking:
            what = "" if options.frozen is False else ": only the rows of the new ones are fitted"
            logger.warning(
                f"no examples of {plural(len(lacking), 'old label')}, which the model may forget"
                f"{what}; {option('old_data')} names a file of them"
            )
        labels = [*task.labels, *in_order(added, new.train.class_names)]
        settings = {**new.settings, **task.task_info().settings, "labels": labels}
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

    def fit_new_rows(
        self, model: Model, task: Task[Any], features: Sequence[Features], dtype: torch.dtype
    ) -> None:
        """Fit the rows of the head for the new labels to examples, in place; the encoder and the
        old rows stay. So that the new rows take few old texts, the penalty on them is the strongest
        with which most of the examples get their label.

        Args:
            model, task: with all labels.
            features: of the training examples.
            dtype: to compute states in.
        """
        head: Any = model.heads[task.head]
        out, head.out, count = head.out, nn.Identity(), len(self.task.labels)
        states = Pipeline(model, task, self.before.tokenizer, dtype).compute(features)
        head.out, inputs = out, torch.from_numpy(np.stack(states)).float()
        scale = 1 / inputs.std()
        labels = torch.tensor([feature.label for feature in features])
        old = out(inputs.to(out.weight.device)).detach()[:, :count].cpu()
        inputs = F.pad(inputs * scale, (0, 1), value=float(out.bias is not None))
        rows = torch.zeros(len(task.labels) - count, inputs.shape[1], requires_grad=True)

        def scores() -> Tensor:
            return torch.cat([old, inputs @ rows.T], 1)

        def step(optimizer: torch.optim.Optimizer, penalty: float) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(scores(), labels) + penalty * rows.square().sum(1).mean()
            loss.backward()
            return loss

        for penalty in _PENALTIES:
            optimizer = torch.optim.LBFGS([rows], max_iter=50, line_search_fn="strong_wolfe")
            optimizer.step(partial(step, optimizer, penalty))
            if (scores().argmax(1) == labels).float().mean() >= _RIGHT:
                break
        with torch.no_grad():
            out.weight[count:] = rows[:, :-1] * scale
            if out.bias is not None:
                out.bias[count:] = rows[:, -1]

    def measure(
        self, report: ClassificationReport, held: Sequence[Features], dtype: torch.dtype
    ) -> None:
        """Add to the report of the model as it is now, on the examples of `held`, its accuracy on
        the old labels, that of the model as it was, and that on the new labels."""
        count = len(self.task.labels)
        pairs = [*Counter(report.counts).elements()]
        old, new = ([pair for pair in pairs if (pair[0] < count) is side] for side in (True, False))
        line = "what the old labels lost is not measured: no held-out text has one"
        if old:
            before = Pipeline(self.before.model, self.task, self.before.tokenizer, dtype)
            features = [feature for feature in held if feature.label < count]
            truth = {feature.row: feature.label for feature in features}.values()
            answers = self.task.decode(before.compute(features), features)
            given = [self.task.ids[answer.label] for answer in answers]
            was, now = _accuracy([*zip(truth, given, strict=True)]), _accuracy(old)
            report.metrics |= {"old_labels_accuracy_before": was, "old_labels_accuracy": now}
            line = f"old labels ({count}): {was:.1%} before, {now:.1%} now"
            line += f", of {plural(len(old), 'held-out text')}"
        if new:
            report.metrics["new_labels_accuracy"] = now = _accuracy(new)
            line += f"; new labels ({len(report.labels) - count}): {now:.1%} of {len(new)}"
        report.notes.insert(0, line)


def _accuracy(pairs: Sequence[tuple[int, int]]) -> float:
    """Return the share of equal numbers among pairs of a label and an answer."""
    return sum(label == answer for label, answer in pairs) / len(pairs)


def _old_examples(
    facts: Mapping[str, Any], config: DataConfig, options: FinetuneOptions
) -> list[DatasetSplits]:
    """Read the old examples: those that the user names, or those of the training with these
    `facts`, as far as they are still there. Rows that the model was not trained on are held out."""
    task = TextClassification.name
    if options.old_data is not None:
        return [read_labelled(task, as_data(options.old_data), config)]
    given = facts.get("reading") or {}
    reading = DataConfig.from_facts(given, seed=config.seed, known_rows=config.known_rows)
    paths = [facts.get("data_path"), *facts.get(OLD_DATA, ())] if facts.get("task") == task else []
    old = []
    for path in [path for path in paths if isinstance(path, str) and Path(path).exists()]:
        try:
            old.append(read_labelled(task, path, reading))
        except BertineError as error:
            logger.warning(f"old examples left out: {error}; {option('old_data')} names others")
    return old


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
