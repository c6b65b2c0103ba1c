"""Find out what an answer owes to each word, in two ways.

``leave-one-out`` (Li et al. 2016, arXiv 1612.08220) computes the score without each word, all in a
few batches: what the score loses is the word's contribution. It is what most people mean by the
question, but where two words say the same, neither is missed.

``integrated-gradients`` (Sundararajan et al. 2017, arXiv 1703.01365) goes from a text of nothing
but [MASK] to the text itself, and adds up what each word contributes on the way: the gradient of
the score with respect to the word's embeddings times the way that these go. The contributions add
up to the difference between the scores of the two texts, but for an error of the numerical
integral, which is found and kept small.

Both are generators of units of work, each of about one small batch, so that a server can compute
other things between them.

Shape legend: S points or variants, T tokens of an input, H hidden size.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.inference.explaining.explained_answer import ExplainedAnswer, outputs_of
from bertine.inference.explaining.explained_text import ExplainedText
from bertine.models.encoded import Encoded, Inputs, TextInputs
from bertine.models.model import Model
from bertine.models.precision import finite
from bertine.tasks.base import Task
from bertine.tasks.features import Features

INTEGRATED_GRADIENTS = "integrated-gradients"
LEAVE_ONE_OUT: Final = "leave-one-out"
#: The first where none is named: benchmarks/explanations.py compares them.
METHODS = (LEAVE_ONE_OUT, INTEGRATED_GRADIENTS)

#: Intervals of the integral, halved until the sum is right to the tolerance: so much in the unit of
#: the score, or this share of the difference of the scores.
INTERVALS = (16, 32, 64, 128, 256)
TOLERANCE, TOLERANCE_SHARE = 0.1, 0.05
#: Tokens of a unit of work.
_UNIT_TOKENS = 256


@dataclass(frozen=True)
class Forward:
    """A unit of work: one input to compute as usual. Its result: the output, fp32."""

    features: Features

    @property
    def tokens(self) -> int:
        return len(self.features.input_ids)


@dataclass(frozen=True)
class Gradients:
    """A unit of work: points on the way from the masked text to the text.

    Its result: their weighted contributions, one for each token of the inputs that count, fp64
    [T] each; and the scores at the points, [S].

    Attributes:
        text, answer: what is explained.
        points: [S], from 0 (all masked) to 1 (the text).
        weights: [S], of the points in the integral.
    """

    text: ExplainedText
    answer: ExplainedAnswer
    points: np.ndarray
    weights: np.ndarray

    @property
    def tokens(self) -> int:
        # The way back takes twice as long as the way there.
        return 3 * len(self.points) * _tokens(self.text, self.answer)


Unit = Forward | Gradients


@dataclass(frozen=True)
class Attribution:
    """The contributions of the words of a text.

    Attributes:
        contributions: fp64 [words], in the unit of the score; 0 of words in no input that counts.
        score: of the text.
        baseline: the score with every word masked; None: not computed.
        error: how far the sum of the contributions is from ``score - baseline``; None without
            a baseline.
    """

    contributions: np.ndarray
    score: float
    baseline: float | None = None
    error: float | None = None


Steps = Generator[list[Unit], Sequence[Any], Attribution]


def _tokens(text: ExplainedText, answer: ExplainedAnswer) -> int:
    return sum(len(text.inputs[number].input_ids) for number in answer.inputs)


def leave_one_out(
    text: ExplainedText, answer: ExplainedAnswer, outputs: Sequence[np.ndarray], mask: int
) -> Steps:
    """Compute what the score loses without each word. Its pieces are taken out of the inputs, as if
    it had not been written; where the score is read at certain places, they become [MASK] instead.

    Args:
        text, answer: what is explained.
        outputs: of each input of `text`.
        mask: the id of [MASK].
    """
    units: list[Unit] = []
    where: list[tuple[int, int]] = []  # the word and the input, of each unit
    for word in range(len(text.words)):
        for number in answer.inputs:
            inside = text.word_of[number] == word
            if inside.any():
                units.append(Forward(_without(text.inputs[number], inside, answer, mask)))
                where.append((word, number))
    results = yield units
    results_of = dict(zip(where, results, strict=True))

    def score(word: int | None) -> float:
        chosen = [
            outputs[n] if word is None else results_of.get((word, n), outputs[n])
            for n in answer.inputs
        ]
        tensors = [torch.from_numpy(np.asarray(output))[None].double() for output in chosen]
        return float(answer.score(tensors))

    whole = score(None)
    touched = {word for word, _ in where}
    lost = [whole - score(word) if word in touched else 0.0 for word in range(len(text.words))]
    return Attribution(np.array(lost), whole)


def _without(
    features: Features, inside: np.ndarray, answer: ExplainedAnswer, mask: int
) -> Features:
    ids, types = features.input_ids, features.token_type_ids
    if answer.in_place:
        return _features(np.where(inside, mask, ids), types)
    return _features(ids[~inside], types[~inside])


def _features(ids: np.ndarray, types: np.ndarray) -> Features:
    return Features(ids.astype(np.int32), types, row=0)


def integrated_gradients(text: ExplainedText, answer: ExplainedAnswer) -> Steps:
    """Compute the share of each word in the difference between the score of the text and that of
    the text with every word masked."""
    at_once = max(1, _UNIT_TOKENS // _tokens(text, answer))
    contributions = np.zeros(len(text.words))
    scores: list[float] = []
    difference = error = 0.0
    for count in INTERVALS:
        # The trapezoidal rule, whose points stay when intervals are halved: the way is far from
        # smooth where the answer turns, and rules of higher order are further off.
        if count == INTERVALS[0]:
            points = np.linspace(0.0, 1.0, count + 1)
            weights = np.full(count + 1, 1 / count)
            weights[[0, -1]] /= 2
        else:
            points = (np.arange(count // 2) + 0.5) / (count // 2)
            weights = np.full(count // 2, 1 / count)
            contributions /= 2
        units: list[Unit] = [
            Gradients(text, answer, points[at : at + at_once], weights[at : at + at_once])
            for at in range(0, len(points), at_once)
        ]
        for tokens, scores_at in (yield units):
            scores += scores_at.tolist() if count == INTERVALS[0] else []
            for number, values in zip(answer.inputs, tokens, strict=True):
                owner = text.word_of[number]
                np.add.at(contributions, owner[owner >= 0], values[owner >= 0])
        difference = scores[-1] - scores[0]
        error = float(contributions.sum() - difference)
        if abs(error) <= max(TOLERANCE, TOLERANCE_SHARE * abs(difference)):
            break
    return Attribution(contributions, scores[-1], scores[0], error)


class _FromVectors(Model):
    """A model that reads vectors in place of its word embeddings."""

    def __init__(self, model: Model, vectors: Tensor) -> None:
        nn.Module.__init__(self)
        self.config, self.heads, self.backbone = model.config, model.heads, model.backbone
        self._model, self._vectors = model, vectors

    def encode(
        self,
        inputs: Inputs,
        *,
        all_states: bool = False,
        word_vectors: Tensor | None = None,
        target: Inputs | None = None,
    ) -> Encoded:
        # One text many times: there is no padding.
        whole = TextInputs(inputs.input_ids, None, inputs.token_type_ids)
        return self._model.encode(whole, all_states=all_states, word_vectors=self._vectors)


def compute_gradients(
    model: Model, task: Task[Any] | None, unit: Gradients, mask: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Compute the result of a unit; change nothing in `model`, whose threads may share it."""
    device = next(model.parameters()).device
    table = model.backbone.word_weights.detach()
    points = torch.tensor(unit.points, dtype=torch.float32, device=device)
    text, answer = unit.text, unit.answer
    vectors: list[Tensor] = []
    ways: list[Tensor] = []
    outputs: list[Tensor] = []
    with torch.inference_mode(False), torch.enable_grad():
        for number in answer.inputs:
            features = text.inputs[number]
            ids = torch.tensor(features.input_ids, dtype=torch.int64, device=device)
            owned = torch.tensor(text.word_of[number] >= 0, device=device)
            start, end = table[torch.where(owned, mask, ids)], table[ids]
            way = end - start  # [T, H]
            x = (start + points[:, None, None] * way).requires_grad_()
            size = len(points)
            batch = Batch(
                ids.expand(size, -1),
                torch.ones(size, len(ids), dtype=torch.bool, device=device),
                torch.tensor(features.token_type_ids, dtype=torch.int64, device=device).expand(
                    size, -1
                ),
                mask_targets(task, ids[None].expand(size, -1), mask),
                rows=[0] * size,
            )
            outputs.append(outputs_of(task, _FromVectors(model, x), batch))
            vectors.append(x)
            ways.append(way)
        scores = finite(answer.score(outputs))
        weights = torch.tensor(unit.weights, dtype=torch.float32, device=device)
        gradients = torch.autograd.grad((scores * weights).sum(), vectors)
    shares = [
        (gradient.sum(0).double() * way.double()).sum(-1).cpu().numpy()
        for gradient, way in zip(gradients, ways, strict=True)
    ]
    return shares, scores.detach().double().cpu().numpy()


def mask_targets(task: Task[Any] | None, ids: Tensor, mask: int) -> dict[str, Tensor]:
    """Return where the first [MASK] of each sequence stands, for a model that fills masks."""
    return {} if task is not None else {"masks": (ids == mask).int().argmax(-1)}
