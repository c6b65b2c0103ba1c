"""Train a BiLSTM on frozen states: tags of words, or the labels of texts.

Shape legend: B sequences of words, W words of the longest, S layers, H width of a layer, K tags or
outputs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from bertine.contrib.feature_based.bilstm import BiLstmClassifier, BiLstmTagger, LinearChainCrf
from bertine.contrib.feature_based.features import MIX_ROWS, KnownStates, WordSource, row_of
from bertine.contrib.options import BilstmRecipe
from bertine.contrib.word2vec.vectors import WordVectors
from bertine.core.console import progress
from bertine.corpora.batch import Batch, grouped_by_length
from bertine.data.entities import Sentence, Sentences, may_follow
from bertine.data.examples import Examples
from bertine.inference.baselines.texts import TextTask, frozen_vectors, pair_features
from bertine.models.encoder import Encoded
from bertine.models.heads import Model
from bertine.models.precision import autocast, torch_seed
from bertine.tasks.base import Features, Task
from bertine.tasks.report import EvaluationReport
from bertine.tasks.tagged_words import Tags
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import WholeTextTask


@dataclass(frozen=True)
class ExampleStates:
    """Labelled examples, with the states of the words of their texts.

    Attributes:
        examples: N of them.
        states: of N · `width` sequences of words, those of an example next to each other.
        targets: N targets: for tags int64 [W], for texts the task's form of the label.
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
    """The device of a row's computation, and its dtype: bf16 (by autocast) or fp32."""

    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True)
class Reading:
    """What a module reads: examples, the tensors [words, H] of the layers, and how it computes."""

    part: ExampleStates
    layers: Sequence[Tensor]
    how: DeviceAndType


Module = TypeVar("Module", BiLstmTagger, BiLstmClassifier)


class Problem(ABC, Generic[Module]):
    """A problem to learn, with its loss and its evaluation.

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
        """Create the module to train.

        Args:
            hidden: H.
            layers: S.
            options: of :class:`~bertine.contrib.feature_based.bilstm.BiLstmStates`, as the row
                requires.
        """

    @abstractmethod
    def trained_on(self, part: ExampleStates) -> list[int]:
        """Return the indices of the examples that can be learned from."""

    @abstractmethod
    def loss(self, module: Module, read: Reading, chosen: Sequence[int]) -> Tensor:
        """Compute the mean loss of the examples `chosen`."""

    @abstractmethod
    def answers(self, module: Module, read: Reading) -> list[Any]:
        """Answer all examples."""

    def report(self, answers: list[Any], examples: Examples[Any]) -> EvaluationReport:
        """Evaluate answers in the same way as those of a fine-tuned model."""
        return self.task.judge(answers, examples)

    @abstractmethod
    def answer_row(self, example: Any, answer: Any) -> dict[str, Any]:
        """Return an answer and its example as JSON values."""


class TaggingProblem(Problem[BiLstmTagger]):
    """Tagging: a tag for each word, from logits alone, or as a chain (`crf`)."""

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
        """Return the sentences as they are."""
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

    def loss(self, module: BiLstmTagger, read: Reading, chosen: Sequence[int]) -> Tensor:
        """Compute the loss of a word: cross-entropy, or its share of the loss of the chain."""
        logits, counts = _outputs(module, read, chosen)
        part, device = read.part, read.how.device
        if module.crf is None:
            rows = [logits[at, :count] for at, count in enumerate(counts)]
            labels = np.concatenate([part.targets[index] for index in chosen])
            return F.cross_entropy(torch.cat(rows), torch.from_numpy(labels).to(device))
        tags = np.zeros(logits.shape[:2], dtype=np.int64)
        for row, index in enumerate(chosen):
            tags[row, : counts[row]] = part.targets[index]
        lengths = torch.tensor(counts, device=device)
        losses = module.crf.losses(logits, torch.from_numpy(tags).to(device), lengths)
        return losses.sum() / sum(counts)

    def answers(self, module: BiLstmTagger, read: Reading) -> list[Any]:
        """Return the most probable tags; with a chain those that follow the rules of IOB2."""
        lengths = [len(tags) for tags in read.part.targets]
        order = [int(place) for place in np.argsort(lengths, kind="stable") if lengths[place]]
        guesses: dict[int, Tags] = {}
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            logits, counts = _outputs(module, read, chosen)
            if module.crf is None:
                table = logits.argmax(-1).cpu()
                best = [table[place, :count].tolist() for place, count in enumerate(counts)]
            else:
                best = module.crf.best(logits, torch.tensor(counts, device=logits.device))
            for index, ids in zip(chosen, best, strict=True):
                tags = tuple(self._tagging.labels[i] for i in ids)
                guesses[index] = Tags(tags, (1.0,) * len(tags))
        nothing = Tags((), ())
        return [guesses.get(index, nothing) for index in range(len(read.part))]

    def report(self, answers: list[Any], examples: Examples[Any]) -> EvaluationReport:
        return self._tagging.report(answers, [item.tags or () for item in examples.items])

    def answer_row(self, example: Any, answer: Any) -> dict[str, Any]:
        """Return words, their tags, and the predicted tags."""
        return {
            "line": example.line,
            "words": list(example.words),
            "tags": list(example.tags),
            "answer": list(answer.tags),
        }


class TextProblem(Problem[BiLstmClassifier]):
    """A label, several labels or a number for a text or a pair of texts, with the loss of
    fine-tuning.

    Args:
        task: the task.
        max_length: words of a text; longer ones are cut, which the notes of the examples count.
    """

    def __init__(self, task: WholeTextTask[Any], *, max_length: int) -> None:
        self.task, self._text, self._max_length = task, task, max_length
        self.metric = task.metric_names[0]

    def targets(self, examples: Examples[Any]) -> list[Any]:
        return [self._text.target_of(item, examples.source) for item in examples.items]

    def sentences(self, examples: Examples[Any], source: WordSource) -> Sentences:
        """Split texts into words, the texts of a pair one after the other."""
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
        """The number of texts of an example."""
        return len(self._text.text_columns)

    def module(
        self, recipe: BilstmRecipe, hidden: int, layers: int, **options: Any
    ) -> BiLstmClassifier:
        outputs = len(self._text.labels) or 1
        sizes = _sizes(recipe)
        return BiLstmClassifier(hidden, layers, outputs, width=self.width, **sizes, **options)

    def trained_on(self, part: ExampleStates) -> list[int]:
        return list(range(len(part)))

    def loss(self, module: BiLstmClassifier, read: Reading, chosen: Sequence[int]) -> Tensor:
        """Compute the task's own loss of an example."""
        outputs = self._outputs(module, read, chosen)
        batch = _batch_of(len(chosen))
        batch.targets["labels"] = self._text.targets([read.part.targets[at] for at in chosen])
        given = cast(Model, _GivenOutputs(outputs))
        term = self._text.terms_of(given, _NOTHING, batch.to(read.how.device))[self._text.head]
        return term.total / term.count

    def answers(self, module: BiLstmClassifier, read: Reading) -> list[Any]:
        order = np.argsort(read.part.lengths, kind="stable").tolist()
        result: dict[int, np.ndarray] = {}
        for start in range(0, len(order), 64):
            chosen = order[start : start + 64]
            outputs = self._outputs(module, read, chosen)
            given = cast(Model, _GivenOutputs(outputs))
            rows = self._text.outputs(given, _batch_of(len(chosen)), _NOTHING)
            result |= zip(chosen, rows.float().cpu().numpy(), strict=True)
        none, types = np.zeros(0, np.int32), np.zeros(0, np.int8)
        features = [Features(none, types, row) for row in range(len(order))]
        return self._text.decode([result[row] for row in range(len(order))], features)

    def answer_row(self, example: Any, answer: Any) -> dict[str, Any]:
        """Return the label, and the answer with its probabilities."""
        return {"line": example.line, "label": example.label, **answer.to_json(True)}

    def _outputs(self, module: BiLstmClassifier, read: Reading, chosen: Sequence[int]) -> Tensor:
        sequences = [at * self.width + text for at in chosen for text in range(self.width)]
        return _outputs(module, read, sequences)[0]


class _GivenOutputs:
    """Given outputs in place of a model, so that a task can compute its loss and answers from
    them."""

    def __init__(self, outputs: Tensor) -> None:
        self._outputs = outputs

    def read(self, head: str, encoded: Encoded, **how: Any) -> Tensor:
        """Return the outputs."""
        return self._outputs


#: The encoding of a model that computes nothing.
_NOTHING = cast(Encoded, object())


def _batch_of(count: int) -> Batch:
    """Return a batch of `count` sequences of one token, for tasks that count their targets."""
    zeros = torch.zeros(count, 1, dtype=torch.int64)
    return Batch(zeros, torch.ones(count, 1, dtype=torch.bool), zeros)


def _sizes(recipe: BilstmRecipe) -> dict[str, Any]:
    return {
        "lstm_size": recipe.lstm_size,
        "lstm_layers": recipe.lstm_layers,
        "dropout": recipe.dropout,
    }


def _outputs(module: nn.Module, read: Reading, chosen: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Return the outputs of `module` for the sequences `chosen`, in fp32, and their numbers of
    words; a sequence without words is read as a word of zeros."""
    starts, layers, how = read.part.states.starts, read.layers, read.how
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


# Training: fit a BiLSTM to the states of a frozen model, and score it.


def train_row(
    name: str,
    layers: list[int],
    sets: dict[str, ExampleStates],
    problem: Problem[Any],
    recipe: BilstmRecipe,
    how: DeviceAndType,
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Train a BiLSTM on the states of some layers, and score it.

    Args:
        name: of the row.
        sets: "train", "validation" and others, which are scored too.
        recipe: sizes and training options; its `layer_penalty` is resolved.

    Returns:
        The row of the table, and the answers for each set that was scored.
    """
    began = time.monotonic()
    read = {word: Reading(part, part.states.layers(layers), how) for word, part in sets.items()}
    train = sets["train"]
    lengths, full = train.lengths, problem.trained_on(train)
    row = row_of(name)
    # The generators of other GPUs are not used by this row.
    with torch.random.fork_rng([how.device] if how.device.type == "cuda" else []):
        torch.manual_seed(torch_seed(recipe.seed, "feature-based weights", name))
        module = problem.module(
            recipe,
            read["train"].layers[0].shape[1],
            len(layers),
            concatenate=row.concatenate,
            mix_output=row.mix_output,
            mix_input=row.mix_input,
        ).to(how.device)
        optimizer = torch.optim.Adam(module.parameters(), lr=recipe.learning_rate, fused=True)
        steps = recipe.epochs * -(-len(full) // recipe.batch_size)
        step = 0
        best = -float("inf")
        report: EvaluationReport | None = None
        answers: dict[str, list[Any]] = {}
        with progress() as bar:
            job = bar.add_task(name, total=steps)
            for epoch in range(recipe.epochs):
                module.train()
                sizes = [lengths[index] for index in full]
                for batch in grouped_by_length(sizes, recipe.batch_size, recipe.seed, epoch):
                    torch.manual_seed(torch_seed(recipe.seed, "feature-based dropout", name, step))
                    for group in optimizer.param_groups:
                        group["lr"] = recipe.learning_rate * (1 - step / steps)
                    chosen = [full[at] for at in batch]
                    loss = problem.loss(module, read["train"], chosen)
                    penalty = module.penalty() if recipe.layer_penalty else None
                    if penalty is not None:
                        loss = loss + recipe.layer_penalty * penalty
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    if recipe.max_grad_norm > 0:
                        torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.max_grad_norm)
                    optimizer.step()
                    step += 1
                    bar.advance(job)
                report, answers["validation"] = _score(module, read["validation"], problem)
                metric = report.metrics[problem.metric]
                best = max(best, metric)
                bar.update(job, facts=[f"{problem.metric} {metric:.4f}"])
        assert report is not None
        result: dict[str, Any] = {"validation": report.metrics, "best": best, "layers": layers}
        if name in MIX_ROWS:
            result["layer_weights"] = module.layer_weights()
        for word in [word for word in sets if word not in ("train", "validation")]:
            scored, answers[word] = _score(module, read[word], problem)
            result[word] = scored.metrics
    result["seconds"] = time.monotonic() - began
    return result, answers


def _score(
    module: nn.Module, read: Reading, problem: Problem[Any]
) -> tuple[EvaluationReport, list[Any]]:
    """Return the evaluation of the answers, and the answers."""
    module.eval()
    with torch.inference_mode():
        answers = problem.answers(module, read)
    return problem.report(answers, read.part.examples), answers


# Baseline: the mean of the vectors of a text's words, and logistic regression, without order or
# context.


class MeanVectors:
    """The mean of the vectors of a text's words; for pairs u, v, |u - v|, u · v and the cosine."""

    def __init__(self, vectors: WordVectors) -> None:
        self._vectors = vectors

    def matrix(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Compute the features fp32 [N, D], for pairs [N, 4 D + 1]; zeros if no word has a
        vector."""
        columns = [self._vectors.embed([row[at] for row in texts]) for at in range(len(texts[0]))]
        return columns[0] if len(columns) == 1 else pair_features(*columns)


def bag_of_vectors_row(
    vectors: WordVectors, problem: TextProblem, sets: dict[str, Examples[Any]]
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Fit logistic regression (for numbers ridge regression) to the training examples, with the
    penalty that is best in cross-validation, and score it.

    Returns:
        The row of the table, and the answers for each set that was scored.
    """
    began = time.monotonic()
    task = cast(TextTask, problem.task)
    with threadpool_limits(1):
        answered = frozen_vectors(task, sets["train"], MeanVectors(vectors))
        answers = {word: answered(part) for word, part in sets.items() if word != "train"}
    row: dict[str, Any] = {
        word: problem.report(given, sets[word]).metrics for word, given in answers.items()
    }
    row["best"] = row["validation"][problem.metric]
    row["seconds"] = time.monotonic() - began
    return row, answers
