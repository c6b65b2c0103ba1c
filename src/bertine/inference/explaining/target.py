"""Choose the answer to explain and its score, and attribute that score to the words of the text.

For a label, a choice, the start and end of a span, a tag and a filled mask the score is the
log-odds, log(p / (1 - p)): unlike the probability it does not hide differences near 0 and 1, and
unlike the logit it does not change when the scores of all answers change alike. For a regression it
is the score itself.

Shape legend: S variants of a text, T tokens of an input, K labels, V pieces of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.names import LEAVE_ONE_OUT as LEAVE_ONE_OUT
from bertine.core.names import option
from bertine.corpora.batch import Batch
from bertine.data.entities import OUTSIDE, split_tag
from bertine.inference.explaining.words import ExplainedText, NoWords
from bertine.models.encoder import Encoded, Inputs, TextInputs
from bertine.models.heads import Model
from bertine.models.precision import finite
from bertine.tasks.base import Features, Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.labels import known_labels
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.span_scores import window_spans
from bertine.tasks.span_windows import SpanFeatures
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import Tokenizer

LOG_ODDS = "log-odds"
SCORE = "score"

#: Maps the outputs of S variants, for each input that counts, to their scores, [S].
Scorer = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class ExplainedAnswer:
    """An answer that is explained.

    Attributes:
        name: the label, the number, the column of the choice, the span's text, the types of the
            entities, the piece for the mask; "" where a question has no answer.
        probability: its probability; None where there is no single one (numbers, tags, spans).
        unit: the unit of the score: ``"log-odds"`` or ``"score"``.
        inputs: the indices of the text's inputs from which the score is read.
        in_place: whether the score is read at certain tokens, so that no token may be removed.
        score: maps the outputs for these inputs, [S, ...] each, to the score of each variant, [S].
    """

    name: str
    probability: float | None
    unit: str
    inputs: tuple[int, ...]
    in_place: bool
    score: Scorer


def outputs_of(task: Task[Any] | None, model: Model, batch: Batch) -> Tensor:
    """Compute the outputs that :func:`decide` needs for each sequence of a batch: the task's
    outputs; for a model that fills masks the logits of the first mask, fp32 [S, V]."""
    if task is not None:
        return task.outputs(model, batch).float()
    at = batch.targets["masks"]
    places = torch.arange(len(at), device=at.device) * batch.input_ids.shape[1] + at
    return model.read("mlm", model.encode(batch), places=places).float()


@dataclass(frozen=True)
class _Asked:
    """All inputs of a decision: a text, the outputs for its inputs, the label and the word that are
    asked about, and the tokenizer."""

    tokenizer: Tokenizer
    text: ExplainedText
    outputs: Sequence[np.ndarray]
    label: str | None
    word: str | None = None

    @property
    def mean(self) -> np.ndarray:
        """The mean of the outputs over the windows of the text, fp64 [K]."""
        mean: np.ndarray = np.stack(self.outputs).astype(np.float64).mean(0)
        return mean

    def number_of(self, names: Sequence[str], best: int, what: str = "label") -> int:
        """Return the index of the requested label among `names`, else `best`.

        Raises:
            BertineError: there is no such label.
        """
        if self.label is None:
            return best
        if self.label not in names:
            hint = known_labels(self.label, tuple(names))
            raise BertineError(f"unknown {what} {self.label!r}{hint}")
        return names.index(self.label)

    def refuse_label(self, task: Task[Any] | None) -> None:
        """Refuse a label for a model that has no labels."""
        if self.label is not None:
            kind = "fills masks" if task is None else f"is for {task.name!r}"
            raise BertineError(
                f"this model {kind}, so it has no labels; leave out {option('label')}"
            )

    def whole(
        self, name: str, probability: float | None, score: Scorer, unit: str = LOG_ODDS
    ) -> ExplainedAnswer:
        """Return an answer that is read from all inputs."""
        inputs = tuple(range(len(self.text.inputs)))
        return ExplainedAnswer(name, probability, unit, inputs, False, score)


def decide(
    task: Task[Any] | None,
    tokenizer: Tokenizer,
    text: ExplainedText,
    outputs: Sequence[np.ndarray],
    label: str | None = None,
    word: str | None = None,
) -> ExplainedAnswer:
    """Choose the answer for `text`: the requested one, or the answer of the model.

    Args:
        task: the task of the model; None: filling masks.
        outputs: the outputs for each input of the text.
        label: a label of a classification or of many labels, a choice (its column), the type of the
            entities or the tag; None: the answer of the model.
        word: for a tagger, the word whose tag is explained, at its first place in the text; None:
            the tags of all entities.

    Raises:
        BertineError: there is no such label or word, or the answer contains no such entity; a word
            is given for a model that is not a tagger.
    """
    if word is not None and _decide.dispatch(type(task)) is not _tags:
        kind = "fills masks" if task is None else f"is for {task.name!r}"
        raise BertineError(
            f"this model {kind}, so no word has an answer of its own; leave out {option('word')}"
        )
    return _decide(task, _Asked(tokenizer, text, outputs, label, word))


def check_explainable(task: Task[Any] | None) -> None:
    """Refuse a task whose answers cannot be explained.

    Raises:
        BertineError: no function for the task is registered below.
    """
    if task is not None and _decide.dispatch(type(task)) is _decide.dispatch(object):
        raise BertineError(f"answers of the task {task.name!r} cannot be explained")


@singledispatch
def _decide(task: Any, asked: _Asked) -> ExplainedAnswer:
    raise NotImplementedError


@_decide.register
def _(task: TextClassification, asked: _Asked) -> ExplainedAnswer:
    probabilities = _softmax(asked.mean)
    best = int(np.argmax(probabilities))
    if task.costs is not None:  # the answered label may be another one
        best = int(task.costs.decide(np.asarray(probabilities, np.float64)[None])[0][0])
    k = asked.number_of(task.labels, best)
    return asked.whole(task.labels[k], probabilities[k], lambda o: _odds(_mean(o), k))


@_decide.register
def _(task: MultiLabel, asked: _Asked) -> ExplainedAnswer:
    k = asked.number_of(task.labels, int(asked.mean.argmax()))
    probability = float(1 / (1 + np.exp(-asked.mean[k])))
    return asked.whole(task.labels[k], probability, lambda o: _mean(o)[:, k])


@_decide.register
def _(task: TextRegression, asked: _Asked) -> ExplainedAnswer:
    asked.refuse_label(task)
    value, unit = task.score(float(np.mean(asked.outputs))), LOG_ODDS if task.sigmoid else SCORE
    return asked.whole(f"{value:.4g}", None, lambda o: _mean(o) * task.scale + task.center, unit)


@_decide.register
def _(task: None, asked: _Asked) -> ExplainedAnswer:
    """Choose the answer of a model that fills masks."""
    asked.refuse_label(task)
    pieces = asked.tokenizer.vocab_size
    logits = asked.outputs[0][:pieces].astype(np.float64)
    k = int(logits.argmax())
    probability = float(1 / np.exp(logits - logits[k]).sum())
    name = asked.tokenizer.id_to_token(k)
    return ExplainedAnswer(
        name, probability, LOG_ODDS, (0,), True, lambda o: _odds(o[0][:, :pieces], k)
    )


def _softmax(scores: np.ndarray) -> list[float]:
    powers = np.exp(scores - scores.max())
    shares: list[float] = [float(power / powers.sum()) for power in powers]
    return shares


def _mean(outputs: Sequence[Tensor]) -> Tensor:
    """Compute the mean over the windows of a text."""
    return torch.stack(list(outputs)).mean(0)


def _odds(logits: Tensor, k: int) -> Tensor:
    """Compute the log-odds of the answer `k`; logits [S, K] → [S]."""
    others = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
    others[k] = False
    return logits[:, k] - logits[:, others].logsumexp(-1)


@_decide.register
def _choice(task: MultipleChoice, asked: _Asked) -> ExplainedAnswer:
    scores = np.array([float(output) for output in asked.outputs], np.float64)
    names = [task.label_of(number) for number in range(len(scores))]
    k = asked.number_of(names, int(scores.argmax()), "choice")
    return asked.whole(names[k], _softmax(scores)[k], lambda o: _odds(torch.stack(list(o), -1), k))


@_decide.register
def _span(task: SpanExtraction, asked: _Asked) -> ExplainedAnswer:
    """Choose the best span of all windows, or "no answer"."""
    asked.refuse_label(task)
    text = asked.text
    best: tuple[float, int, int, int] | None = None
    null: tuple[float, int] | None = None
    for number, (output, feature) in enumerate(zip(asked.outputs, text.inputs, strict=True)):
        assert isinstance(feature, SpanFeatures)
        logits = output[: len(feature.input_ids)].astype(np.float64)
        if null is None or logits[0].sum() < null[0]:
            null = float(logits[0].sum()), number
        for score, first, last in window_spans(logits, feature, task.limits.max_answer_length, 1):
            if best is None or score > best[0]:
                best = score, number, first, last
    assert null is not None
    odds = np.inf if best is None else null[0] - best[0]
    if best is None or (task.unanswerable and odds > (task.null_threshold or 0.0)):
        name, number, start, end = "", null[1], 0, 0
    else:
        _, number, first, last = best
        feature = text.inputs[number]
        assert isinstance(feature, SpanFeatures)
        name = feature.context[int(feature.offsets[first, 0]) : int(feature.offsets[last, 1])]
        start, end = feature.first + first, feature.first + last

    length = len(text.inputs[number].input_ids)

    def score_of(outputs: Sequence[Tensor]) -> Tensor:
        logits = outputs[0][:, :length]  # outputs at padding have no meaning
        return _odds(logits[:, :, 0], start) + _odds(logits[:, :, 1], end)

    return ExplainedAnswer(name, None, LOG_ODDS, (number,), True, score_of)


@_decide.register
def _tags(task: Tagging, asked: _Asked) -> ExplainedAnswer:
    """Choose the tags of the entities, all together or of one type; without entities the tags of
    all words."""
    first_pieces, label = asked.text.first_pieces, asked.label
    assert first_pieces is not None
    logits = asked.outputs[0][first_pieces]
    tags = [task.labels[k] for k in logits.argmax(-1).tolist()]
    if asked.word is not None:
        return _tag_of_word(task, asked, first_pieces, logits)
    if label is not None:
        kinds = sorted({split_tag(tag)[1] or tag for tag in task.labels} | set(task.labels))
        asked.number_of(kinds, 0, "tag")
        chosen = [at for at, tag in enumerate(tags) if label in (tag, split_tag(tag)[1])]
        if not chosen:
            there = ", ".join(dict.fromkeys(tags))
            raise NoWords(f"no word has the tag {label!r}; there is {there}")
    else:
        chosen = [at for at, tag in enumerate(tags) if tag != OUTSIDE] or list(range(len(tags)))
    pairs = [(int(first_pieces[at]), task.labels.index(tags[at])) for at in chosen]

    def score(outputs: Sequence[Tensor]) -> Tensor:
        odds = [_odds(outputs[0][:, position], k) for position, k in pairs]
        return torch.stack(odds).sum(0)

    name = label or ", ".join(dict.fromkeys(split_tag(tags[at])[1] or tags[at] for at in chosen))
    return ExplainedAnswer(name, None, LOG_ODDS, (0,), True, score)


def _tag_of_word(
    task: Tagging, asked: _Asked, first_pieces: np.ndarray, logits: np.ndarray
) -> ExplainedAnswer:
    """Choose the tag of one word, or the requested tag."""
    words = [word.text for word in asked.text.words]
    if asked.word not in words:
        raise NoWords(
            f"no word of the text is {asked.word!r}{known_labels(asked.word or '', tuple(words))}"
        )
    at = words.index(asked.word)
    k = asked.number_of(task.labels, int(logits[at].argmax()), "tag")
    position = int(first_pieces[at])
    probability = _softmax(logits[at].astype(np.float64))[k]
    return ExplainedAnswer(
        task.labels[k], probability, LOG_ODDS, (0,), True, lambda o: _odds(o[0][:, position], k)
    )


# Attribution: two methods of computing the contribution of each word.
#
# ``leave-one-out`` (Li et al. 2016, arXiv 1612.08220) computes the score without each word, all in
# a few batches: the loss of score is the word's contribution. It is what most people mean by the
# question, but where two words say the same, removing either changes little.
#
# ``integrated-gradients`` (Sundararajan et al. 2017, arXiv 1703.01365) moves from a text of only
# [MASK] to the text itself, and sums the contribution of each word on the way: the gradient of the
# score with respect to the word's embeddings times their displacement. The contributions add up to
# the difference between the scores of the two texts, except for the error of the numerical
# integral, which is measured and kept small.
#
# Both are generators of units of work, each of about one small batch, so that a server can compute
# other things between them.
#
# Shape legend: S points or variants, T tokens of an input, H hidden size.

INTEGRATED_GRADIENTS = "integrated-gradients"
#: The methods; the first is the default. benchmarks/explanations.py compares them.
METHODS = (LEAVE_ONE_OUT, INTEGRATED_GRADIENTS)

#: Numbers of intervals of the integral, tried in turn until the sum is right to the tolerance: an
#: amount in the unit of the score, or a share of the difference of the scores.
INTERVALS = (16, 32, 64, 128, 256)
TOLERANCE, TOLERANCE_SHARE = 0.1, 0.05
#: Tokens of a unit of work.
_UNIT_TOKENS = 256


@dataclass(frozen=True)
class Forward:
    """A unit of work: one input to compute as usual. Its result is the output, fp32."""

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
        text, answer: the text and the answer that is explained.
        points: the points [S], from 0 (all masked) to 1 (the text).
        weights: the weights [S] of the points in the integral.
    """

    text: ExplainedText
    answer: ExplainedAnswer
    points: np.ndarray
    weights: np.ndarray

    @property
    def tokens(self) -> int:
        # The backward pass takes twice as long as the forward pass.
        return 3 * len(self.points) * _tokens(self.text, self.answer)


Unit = Forward | Gradients


@dataclass(frozen=True)
class Attribution:
    """The contributions of the words of a text.

    Attributes:
        contributions: fp64 [words], in the unit of the score; 0 for words in no input that counts.
        score: the score of the text.
        baseline: the score with every word masked; None: not computed.
        error: the distance of the sum of the contributions from ``score - baseline``; None without
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
    """Compute the loss of score without each word. Its pieces are removed from the inputs, as if it
    had not been written; where the score is read at certain places, they become [MASK] instead.

    Args:
        text, answer: the text and the answer that is explained.
        outputs: the outputs for each input of `text`.
        mask: the id of [MASK].
    """
    units: list[Unit] = []
    where: list[tuple[int, int]] = []  # the word and the input of each unit
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
        # The trapezoidal rule keeps its points when intervals are halved. The path is far from
        # smooth where the answer changes, and rules of higher order are less accurate there.
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
        # All variants are one text: there is no padding.
        whole = TextInputs(inputs.input_ids, None, inputs.token_type_ids)
        return self._model.encode(whole, all_states=all_states, word_vectors=self._vectors)


def compute_gradients(
    model: Model, task: Task[Any] | None, unit: Gradients, mask: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Compute the result of a unit without changing `model`, which threads may share."""
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
    """Return the place of the first [MASK] of each sequence, for a model that fills masks."""
    return {} if task is not None else {"masks": (ids == mask).int().argmax(-1)}
