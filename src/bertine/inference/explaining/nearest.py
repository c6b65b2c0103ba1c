"""Find the labelled examples that are nearest to a text, by the vectors that a model's head reads.

The vectors of the examples are computed once and kept next to the weights, in a file whose name is
a hash of all that they depend on: weights, tokenizer, task, precision and examples. They are mapped
from the file, not loaded, so memory does not grow with their number.

Shape legend: N examples, D numbers of a vector.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertine.core.console import plural, progress
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file, os_errors
from bertine.core.foreign_files import open_array
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.scores import COARSE_ROUNDING, ROUNDING
from bertine.core.text import cut
from bertine.corpora.batch import Batch
from bertine.data.entities import Sentence
from bertine.data.examples import Examples
from bertine.datasets.readers import read_evaluation
from bertine.inference.compute import run_batch, run_features
from bertine.inference.embedding.index import NearestRows
from bertine.inference.explaining.explainer import NearExample
from bertine.inference.explaining.target import check_explainable
from bertine.inference.predictor import Pipeline, Predictor
from bertine.inference.ranking import label_text
from bertine.inference.train_overlap import reload_training_examples
from bertine.models.heads import PairHead, VectorHead, texts_apart
from bertine.models.pooling import Pooling
from bertine.options.inference import NearExamples
from bertine.tasks.base import Features, Task, by_example

# Head vectors: the input of a fine-tuned model's head; two examples with the same vector get the
# same answer.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size, D numbers of a vector.

_MEAN = Pooling()


class _HeadInputs:
    """A task for running features whose outputs are the inputs of the head."""

    def __init__(self, task: Task[Any]) -> None:
        self._task = task

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        return self._task.collate(features, pad_id)

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Return the inputs of the head, fp32 [B, D]; for a head that reads every token, the mean
        over the real ones."""
        head = model.heads[self._task.head]
        if isinstance(head, PairHead):
            texts = texts_apart(batch)
            return head.features(model.encode(texts), texts).float()
        encoded = self._task.encode(model, batch)
        if isinstance(head, VectorHead):
            return head.vectors(encoded, batch)
        reads = model.family.heads[self._task.head].reads
        if reads == "pooled" and encoded.pooler_output is not None:
            return encoded.pooler_output.float()
        if reads == "first":
            return encoded.first_token.float()
        mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        return _MEAN(encoded, mask)


def head_vectors(
    answering: Pipeline, features: Sequence[Features], *, one_batch: bool = False
) -> np.ndarray:
    """Compute the vector of each example: the input of the head, averaged over the example's
    windows or choices, of length 1.

    Args:
        answering: the model with its task.
        features: the features of N examples.
        one_batch: whether they are one batch already.

    Returns:
        fp32 [N, D].
    """
    run = run_batch if one_batch else run_features
    vectors = run(
        answering.computing,
        _HeadInputs(answering.task),
        features,
        pad_id=answering.tokenizer.pad_token_id,
        dtype=answering.dtype,
    )
    means = [np.mean(parts, axis=0, dtype=np.float64) for parts, _ in by_example(vectors, features)]
    table = np.stack(means)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return table.astype(np.float32)


#: Examples that are computed at once, vectors that are compared at once, and characters of a text
#: that are shown.
_CHUNK, _ROWS, _TEXT = 1024, 1 << 14, 200
#: Examples, and their tokens, whose vectors are computed where only a sample is searched.
_SOME, _TOKENS = 1000, 1 << 16
#: The rounding of a distance in terms of a cosine's.
_DISTANCE = 4
_NAME = "nearest-{}.npy"


class NearestExamples:
    """The labelled examples of a model, searched for the ones nearest to a text.

    Args:
        answering: the model with its task.
        examples: the labelled examples.
        vectors: their vectors, fp32 [N, D], of length 1.
        count: the number of examples for each text.
    """

    def __init__(
        self, answering: Pipeline, examples: Examples[Any], vectors: np.ndarray, count: int
    ) -> None:
        self.answering, self.examples = answering, examples
        self.vectors, self.count = vectors, count

    @property
    def origin(self) -> list[Any]:
        """Return everything but the model that the results depend on, as JSON values."""
        return [self.count, self.examples.fingerprint()]

    @classmethod
    def of(
        cls,
        predictor: Predictor,
        count: int,
        examples: Path | str | None = None,
        *,
        show_progress: bool = False,
    ) -> NearestExamples:
        """Read the examples, and compute their vectors or read the stored ones.

        Args:
            predictor: the model.
            count: the number of examples for each text.
            examples: a labelled file with the columns of the model's training; None: the training
                examples, if their file is still there and unchanged.
            show_progress: on stderr.

        Raises:
            BertineError: the examples cannot be read, or have no labels; the training examples are
                not available.
        """
        task = predictor.task
        check_explainable(task)
        if examples is None:
            try:
                result = reload_training_examples(task.name, predictor.training)
            except BertineError as error:
                hint = option("examples", "FILE")
                raise BertineError(f"{error}; name a labelled file: {hint}") from error
        else:
            result = next(iter(read_evaluation(task, examples).values()))
        if not len(result):
            raise BertineError(f"{result.source}: there are no labelled examples")
        return cls(predictor, result, _vectors(predictor, result, show_progress), count)

    @classmethod
    def among_some(
        cls,
        answering: Pipeline,
        examples: Examples[Any],
        features: Sequence[Features],
        count: int,
    ) -> NearestExamples:
        """Compute the vectors of some of the labelled `examples`, from their `features`: 1,000
        drawn at random, or as many as have 65,536 tokens, at least one.

        Raises:
            BertineError: none has a label.
        """
        own: dict[int, list[Features]] = {}
        for feature in features:
            if examples.items[feature.row].label is not None:
                own.setdefault(feature.row, []).append(feature)
        if not own:
            raise BertineError(f"{examples.source}: there are no labelled examples")
        rows = list(own)
        chosen: list[Any] = []
        kept: list[Features] = []
        tokens = 0
        for at in generator(0, "nearest examples").permutation(len(rows))[:_SOME].tolist():
            parts = own[rows[at]]
            tokens += sum(len(part.input_ids) for part in parts)
            if chosen and tokens > _TOKENS:
                break
            kept += [replace(part, row=len(chosen)) for part in parts]
            chosen.append(examples.items[rows[at]])
        part = copy(examples)
        part.items = chosen
        return cls(answering, part, head_vectors(answering, kept), count)

    def to(self, text: Any) -> tuple[NearExample, ...]:
        """Find the examples nearest to a text, or to texts that belong together, best first; of
        equals the first. An example with the same texts counts too: the model was trained on it."""
        prepared = self.answering.prepare(self.answering.task.examples_of([text]))
        return self.to_features(prepared.features)

    def to_features(self, features: Sequence[Features]) -> tuple[NearExample, ...]:
        """Find the examples nearest to the one with these `features`, like :meth:`to`."""
        return self.nearest(head_vectors(self.answering, features)[0])

    def nearest(self, vector: np.ndarray) -> tuple[NearExample, ...]:
        """Find the examples nearest to a vector, fp32 [D], of length 1.

        Raises:
            BertineError: its dimensions differ, as with another number of choices.
        """
        if len(vector) != self.vectors.shape[1]:
            raise BertineError(
                f"{self.examples.source}: its examples have another number of choices, so none is "
                f"near; leave out {option('nearest_examples', self.count)}"
            )
        rounding = ROUNDING if self.answering.dtype == torch.float32 else COARSE_ROUNDING
        # By distance: heads make vectors so similar that cosines near 1 differ by rounding only. A
        # distance does not average over the numbers, as a cosine does.
        best = NearestRows(1, self.count, _DISTANCE * rounding)
        for start in range(0, len(self.vectors), _ROWS):
            apart = np.asarray(self.vectors[start : start + _ROWS]) - vector
            best.add(-np.linalg.norm(apart, axis=1)[None])
        return tuple(
            self._near(row, 1 - distance**2 / 2)
            for row, distance in zip(best.rows[0].tolist(), best.scores[0].tolist(), strict=True)
        )

    def _near(self, row: int, score: float) -> NearExample:
        item: Any = self.examples.items[row]
        texts = (" ".join(item.words),) if isinstance(item, Sentence) else item.texts
        source = self.examples.source if item.line else ""
        shown = tuple(cut(text, _TEXT) for text in texts)
        return NearExample(label_text(item), score, shown, source, item.line)


def _vectors(predictor: Predictor, examples: Examples[Any], show: bool) -> np.ndarray:
    """Return the vectors of the examples, fp32 [N, D], from the file next to the weights; where it
    is missing, compute and write them there if possible."""
    folder = predictor.folder
    name = _NAME.format(_key(predictor, examples))
    kept = None if folder is None else folder / name
    if kept is not None and (result := _read(kept, len(examples))) is not None:
        return result
    if kept is not None and os.access(kept.parent, os.W_OK):
        with atomic_file(kept) as path:
            _write(path, predictor, examples, show)
        for other in kept.parent.glob(_NAME.format("*")):
            if other != kept:
                other.unlink(missing_ok=True)
        result = _read(kept, len(examples))
        if result is not None:
            return result
        # Another process, with other examples, has removed it in the meantime.
    # A temporary file: it is removed when no process reads it any more.
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        _write(path, predictor, examples, show)
        return open_array(path)


def _key(predictor: Predictor, examples: Examples[Any]) -> str:
    facts = {**predictor.fingerprint(), "examples": examples.fingerprint()}
    for decided in ("abstain_below", "abstain_unfamiliar", "costs", "least_probability"):
        facts.pop(decided, None)  # the vectors do not depend on these settings
    facts["task"] = {name: value for name, value in facts["task"].items() if name != "training"}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _read(path: Path, count: int) -> np.ndarray | None:
    """Return the vectors in a file; None where it is missing, or holds something else."""
    if not path.exists():
        return None
    try:
        table = open_array(path)
    except BertineError:
        return None
    fits = table.ndim == 2 and len(table) == count and table.dtype == np.float32
    return table if fits else None


def _write(path: Path, predictor: Predictor, examples: Examples[Any], show: bool) -> None:
    """Compute the vectors, some at a time, and write them as a ``.npy``."""
    width: int | None = None
    with (
        os_errors(path, "writing the vectors of the examples"),
        open(path, "wb") as file,
        progress(show=show) as bar,
    ):
        job = bar.add_task("vectors of the examples", total=len(examples))
        for part in _parts(examples):
            vectors = head_vectors(predictor, predictor.prepare(part).features)
            if len(vectors) != len(part):
                raise BertineError(
                    f"{examples.source}: {plural(len(part) - len(vectors), 'example')} without "
                    "text; leave them out"
                )
            if width is None:
                width = vectors.shape[1]
                facts = {"descr": "<f4", "fortran_order": False, "shape": (len(examples), width)}
                np.lib.format.write_array_header_1_0(file, facts)
            # Not through a memory map: on a full disk that would end the process.
            file.write(np.ascontiguousarray(vectors, "<f4").tobytes())
            bar.advance(job, len(vectors))


def _parts(examples: Examples[Any]) -> Iterator[Examples[Any]]:
    """Divide examples into parts."""
    items: Sequence[Any] = examples.items
    for start in range(0, len(items), _CHUNK):
        part = copy(examples)
        part.items = list(items[start : start + _CHUNK])
        yield part


def nearest_of(predictor: Predictor, options: NearExamples, show: bool) -> NearestExamples | None:
    """Return the search for the nearest examples according to `options`; None where none are
    requested.

    Raises:
        BertineError: a file of examples is named, but no examples are requested; the examples
            cannot be read.
    """
    if options.nearest_examples:
        return NearestExamples.of(
            predictor, options.nearest_examples, options.examples, show_progress=show
        )
    if options.examples is not None:
        raise BertineError(
            f"{option('examples')} is the file in which the nearest ones are looked for; say how "
            f"many: {option('nearest_examples', 3)}"
        )
    return None
