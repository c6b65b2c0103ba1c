"""What a BiLSTM over states learns: tags of words, or what a task asks of texts.

Shape legend: B sequences of words, W words of the longest, S layers, H width of a layer, K tags or
outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.inference.word_states import KnownStates
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.models.precision import autocast
from bertine.models.recurrent.bilstm import BiLstmClassifier, BiLstmTagger
from bertine.models.recurrent.crf import LinearChainCrf
from bertine.options.feature_based import BilstmRecipe
from bertine.records.entities import may_follow
from bertine.records.examples import Examples
from bertine.records.sentences import Sentence, Sentences
from bertine.tasks.base import Task
from bertine.tasks.features import Features
from bertine.tasks.report import EvaluationReport
from bertine.tasks.tagging.tagged_text import Tags
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.texts.whole_text import WholeTextTask
from bertine.training.feature_based.sources import WordSource


@dataclass(frozen=True)
class ExampleStates:
    """Labelled examples, and the states of the words of their texts.

    Attributes:
        examples: N of them.
        states: of N · `width` sequences of words, those of an example side by side.
        targets: N: of tags int64 [W], of texts what the task makes of the label.
        width: texts of an example.
    """

    examples: Examples[Any]
    states: KnownStates
    targets: list[Any]
    width: int = 1

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def lengths(self) -> list[int]:
        """The number of words of each example."""
        starts = self.states.starts
        return np.diff(starts[:: self.width]).tolist()


@dataclass(frozen=True)
class DeviceAndType:
    """What a row is computed on, and in: bf16 (by autocast) or fp32."""

    device: torch.device
    dtype: torch.dtype


Module = TypeVar("Module", BiLstmTagger, BiLstmClassifier)


class Problem(ABC, Generic[Module]):
    """What is learned, and how its answers are judged.

    Attributes:
        task: the task of fine-tuning.
        metric: the name of its main metric.
    """

    task: Task[Any]
    metric: str

    def targets(self, examples: Examples[Any]) -> list[Any]:
        """Return the target of each example.

        Raises:
            BertineError: a label that the training examples do not have.
        """
        raise NotImplementedError

    @abstractmethod
    def sentences(self, examples: Examples[Any], source: WordSource) -> Sentences:
        """Return the words of the texts of `examples`, one after the other."""

    @abstractmethod
    def module(self, recipe: BilstmRecipe, hidden: int, layers: int, **options: Any) -> Module:
        """Make what is trained.

        Args:
            hidden: H.
            layers: S.
            options: those of :class:`~bertine.models.recurrent.bilstm.BiLstmStates` that the row
                says.
        """

    @abstractmethod
    def trained_on(self, part: ExampleStates) -> list[int]:
        """Return the numbers of the examples that can be learned from."""

    @abstractmethod
    def loss(
        self,
        module: Module,
        part: ExampleStates,
        layers: Sequence[Tensor],
        chosen: Sequence[int],
        how: DeviceAndType,
    ) -> Tensor:
        """Compute the mean loss of the examples `chosen`, of `layers` [words, H]."""

    @abstractmethod
    def answers(
        self, module: Module, part: ExampleStates, layers: Sequence[Tensor], how: DeviceAndType
    ) -> list[Any]:
        """Answer all examples."""

    def report(self, answers: list[Any], examples: Examples[Any]) -> EvaluationReport:
        """Judge answers as those of a fine-tuned model are judged."""
        return self.task.judge(answers, examples)

    @abstractmethod
    def answer_row(self, example: Any, answer: Any) -> dict[str, Any]:
        """Return an answer and its example as JSON values."""


class TaggingProblem(Problem[BiLstmTagger]):
    """A tag for each word; by logits alone, or as a chain (`crf`)."""

    def __init__(self, task: Tagging, *, crf: bool) -> None:
        self.task, self._tagging, self._crf = task, task, crf
        self.metric = "f1" if task.has_entities else "accuracy"

    def targets(self, examples: Examples[Any]) -> list[Any]:
        """Return the ids of the tags of each sentence, int64 [W]."""
        sentences = cast(Sentences, examples)
        return [
            np.array(
                [
                    self._tagging.label_id(tag, sentences.where(item, place), word)
                    for place, (tag, word) in enumerate(
                        zip(item.tags or (), item.words, strict=True)
                    )
                ],
                dtype=np.int64,
            )
            for item in sentences.items
        ]

    def sentences(self, examples: Examples[Any], source: WordSource) -> Sentences:
        """Return the sentences themselves."""
        return cast(Sentences, examples)

    def module(
        self, recipe: BilstmRecipe, hidden: int, layers: int, **options: Any
    ) -> BiLstmTagger:
        labels = self._tagging.labels
        crf = None
        if self._crf:
            allowed = torch.tensor([[may_follow(a, b) for b in labels] for a in labels])
            crf = LinearChainCrf(allowed, torch.tensor([may_follow(None, b) for b in labels]))
        return BiLstmTagger(hidden, layers, len(labels), crf=crf, **_sizes(recipe), **options)

    def trained_on(self, part: ExampleStates) -> list[int]:
        return [index for index, tags in enumerate(part.targets) if len(tags)]

    def loss(
        self,
        module: BiLstmTagger,
        part: ExampleStates,
        layers: Sequence[Tensor],
        chosen: Sequence[int],
        how: DeviceAndType,
    ) -> Tensor:
        """Compute the loss of a word: cross-entropy, or its share of that of the chain."""
        logits, counts = _outputs(module, part.states, layers, chosen, how)
        if module.crf is None:
            rows = [logits[at, :count] for at, count in enumerate(counts)]
            labels = np.concatenate([part.targets[index] for index in chosen])
            return F.cross_entropy(torch.cat(rows), torch.from_numpy(labels).to(how.device))
        tags = np.zeros(logits.shape[:2], dtype=np.int64)
        for row, index in enumerate(chosen):
            tags[row, : counts[row]] = part.targets[index]
        lengths = torch.tensor(counts, device=how.device)
        losses = module.crf.losses(logits, torch.from_numpy(tags).to(how.device), lengths)
        return losses.sum() / sum(counts)

    def answers(
        self,
        module: BiLstmTagger,
        part: ExampleStates,
        layers: Sequence[Tensor],
        how: DeviceAndType,
    ) -> list[Any]:
        """Return the most probable tags; of a chain those that keep the rules of IOB2."""
        lengths = [len(tags) for tags in part.targets]
        order = [int(place) for place in np.argsort(lengths, kind="stable") if lengths[place]]
        guesses: dict[int, Tags] = {}
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            logits, counts = _outputs(module, part.states, layers, chosen, how)
            if module.crf is None:
                table = logits.argmax(-1).cpu()
                best = [table[place, :count].tolist() for place, count in enumerate(counts)]
            else:
                best = module.crf.best(logits, torch.tensor(counts, device=how.device))
            for index, ids in zip(chosen, best, strict=True):
                tags = tuple(self._tagging.labels[i] for i in ids)
                guesses[index] = Tags(tags, (1.0,) * len(tags))
        nothing = Tags((), ())
        return [guesses.get(index, nothing) for index in range(len(part))]

    def report(self, answers: list[Any], examples: Examples[Any]) -> EvaluationReport:
        return self._tagging.report(answers, [item.tags or () for item in examples.items])

    def answer_row(self, example: Any, answer: Any) -> dict[str, Any]:
        """Return words, their tags, and the tags that were found."""
        return {
            "line": example.line,
            "words": list(example.words),
            "tags": list(example.tags),
            "answer": list(answer.tags),
        }


class TextProblem(Problem[BiLstmClassifier]):
    """A label, several of them or a number for a text or a pair of texts, with the loss of
    fine-tuning.

    Args:
        task: what is asked.
        max_length: words of a text; longer ones are cut, which the notes of the examples count.
    """

    def __init__(self, task: WholeTextTask[Any], *, max_length: int) -> None:
        self.task, self._text, self._max_length = task, task, max_length
        self.metric = task.metric_names[0]

    def targets(self, examples: Examples[Any]) -> list[Any]:
        return [self._text.target_of(item, examples.source) for item in examples.items]

    def sentences(self, examples: Examples[Any], source: WordSource) -> Sentences:
        """Cut texts into words, the texts of a pair one after the other."""
        items, cut = [], 0
        for example in examples.items:
            for text in example.texts:
                words = source.words(text)
                cut += len(words) > self._max_length
                items.append(Sentence(tuple(words[: self._max_length]), None, example.line))
        if cut:
            examples.note(
                f"{examples.source}: {cut:,} of {len(items):,} texts were cut at "
                f"{self._max_length} words"
            )
        return Sentences(examples.source, examples.text_columns, None, items)

    @property
    def width(self) -> int:
        """Texts of an example."""
        return len(self._text.text_columns)

    def module(
        self, recipe: BilstmRecipe, hidden: int, layers: int, **options: Any
    ) -> BiLstmClassifier:
        outputs = 1 if self._text.single_output else len(self._text.labels)
        sizes = _sizes(recipe)
        return BiLstmClassifier(hidden, layers, outputs, width=self.width, **sizes, **options)

    def trained_on(self, part: ExampleStates) -> list[int]:
        return list(range(len(part)))

    def loss(
        self,
        module: BiLstmClassifier,
        part: ExampleStates,
        layers: Sequence[Tensor],
        chosen: Sequence[int],
        how: DeviceAndType,
    ) -> Tensor:
        """Compute the task's own loss of an example."""
        outputs = self._outputs(module, part, layers, chosen, how)
        batch = _batch_of(len(chosen))
        batch.targets["labels"] = self._text.targets([part.targets[at] for at in chosen])
        given = cast(Model, _GivenOutputs(outputs))
        term = self._text.terms_of(given, _NOTHING, batch.to(how.device))[self._text.head]
        return term.total / term.count

    def answers(
        self,
        module: BiLstmClassifier,
        part: ExampleStates,
        layers: Sequence[Tensor],
        how: DeviceAndType,
    ) -> list[Any]:
        order = np.argsort(part.lengths, kind="stable").tolist()
        found: dict[int, np.ndarray] = {}
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            outputs = self._outputs(module, part, layers, chosen, how)
            given = cast(Model, _GivenOutputs(outputs))
            rows = self._text.outputs_of(given, _NOTHING, _batch_of(len(chosen)))
            found |= zip(chosen, rows.float().cpu().numpy(), strict=True)
        none, types = np.zeros(0, np.int32), np.zeros(0, np.int8)
        features = [Features(none, types, row) for row in range(len(part))]
        return self._text.decode([found[row] for row in range(len(part))], features)

    def answer_row(self, example: Any, answer: Any) -> dict[str, Any]:
        """Return the label, and the answer with its probabilities."""
        return {"line": example.line, "label": example.label, **answer.to_json(True)}

    def _outputs(
        self,
        module: BiLstmClassifier,
        part: ExampleStates,
        layers: Sequence[Tensor],
        chosen: Sequence[int],
        how: DeviceAndType,
    ) -> Tensor:
        sequences = [at * self.width + text for at in chosen for text in range(self.width)]
        return _outputs(module, part.states, layers, sequences, how)[0]


class _GivenOutputs:
    """Outputs in the place of a model that would compute them, so that a task's loss and answers
    are its own."""

    def __init__(self, outputs: Tensor) -> None:
        self._outputs = outputs

    def read(self, head: str, encoded: Encoded, **how: Any) -> Tensor:
        """Return the outputs."""
        return self._outputs


#: What a model that computes nothing has encoded.
_NOTHING = cast(Encoded, None)


def _batch_of(count: int) -> Batch:
    """Return a batch of so many sequences of one token: what a task counts its targets by."""
    zeros = torch.zeros(count, 1, dtype=torch.int64)
    return Batch(zeros, torch.ones(count, 1, dtype=torch.bool), zeros)


def _sizes(recipe: BilstmRecipe) -> dict[str, Any]:
    return {
        "lstm_size": recipe.lstm_size,
        "lstm_layers": recipe.lstm_layers,
        "dropout": recipe.dropout,
    }


def _outputs(
    module: nn.Module,
    states: KnownStates,
    layers: Sequence[Tensor],
    chosen: Sequence[int],
    how: DeviceAndType,
) -> tuple[Tensor, list[int]]:
    """Return what `module` computes of the sequences `chosen`, in fp32, and their numbers of words;
    one without words is read as a word of zeros."""
    starts = states.starts
    sizes = [int(starts[index + 1] - starts[index]) for index in chosen]
    counts = [max(1, size) for size in sizes]
    x = torch.zeros(len(chosen), max(counts), len(layers), layers[0].shape[1])
    for row, (index, size) in enumerate(zip(chosen, sizes, strict=True)):
        begin = int(starts[index])
        for number, layer in enumerate(layers):
            x[row, :size, number] = layer[begin : begin + size].float()
    with autocast(how.dtype, how.device):
        outputs: Tensor = module(x.to(how.device), torch.tensor(counts))
    return outputs.float(), counts
