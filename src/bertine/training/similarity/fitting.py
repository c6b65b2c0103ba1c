"""Train the encoder of an embedder on pairs of texts that are drawn step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from bertine.training.loop.best import Choice
from bertine.training.loop.display import Display
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.run import Run
from bertine.training.similarity.objective import Pair, PairLoss, PairObjective, pair_batch

#: A step, counted from 0 → its pairs; a pure function.
DrawPairs = Callable[[int], Sequence[Pair]]


def train_on_pairs(
    embedder: Embedder,
    draw: DrawPairs,
    *,
    loss: PairLoss,
    config: FitConfig,
    run: Run,
    title: str = "train",
    evaluate: Callable[[Display, int], dict[str, float]] | None = None,
    evaluate_every: int | None = None,
    choose: Choice | None = None,
) -> list[dict[str, Any]]:
    """Train the model of `embedder` in place, so that the vectors of pairs are as `loss` wants
    them.

    Args:
        embedder: says how texts are cut and pooled; it must not have computed vectors yet, for what
            it computes them with is made of the weights at the first time (:func:`with_model`).
        draw: the pairs of a step, texts as :meth:`Embedder.features` gives them.
        loss: what is minimized.
        config: steps, rate and the rest. Of `max_tokens_per_micro_batch` tokens at once, padding
            counted, a step of more texts is computed in parts, in memory that does not grow with
            their number (:mod:`~bertine.training.similarity.encoding`).
        run: where the log and the checkpoints go; says what to resume from.
        title: of the display.
        evaluate, evaluate_every, choose: as :func:`~bertine.training.loop.fit.fit` takes them.

    Returns:
        The entries of evaluations, with their steps.

    Raises:
        BertineError: a length of vectors that the model has not; pairs without scores for a loss
            that learns them; what `fit` raises.
    """
    check_lengths(loss.lengths, embedder.dimensions)
    pad_id = embedder.tokenizer.pad_token_id

    def batch(step: int) -> Batch:
        pairs = draw(step)
        loss.check(pairs)
        return pair_batch(pairs, pad_id, embedder.max_length)

    return fit(
        embedder.model,
        PairObjective(loss, embedder.pooling, config.max_tokens_per_micro_batch),
        batch,
        config,
        run,
        title=title,
        evaluate=evaluate,
        evaluate_every=evaluate_every,
        choose=choose,
    )


def check_lengths(lengths: Sequence[int], dimensions: int) -> None:
    """Refuse lengths of vectors that a model has not.

    Raises:
        BertineError: one is longer than its vectors, or below 1.
    """
    for length in lengths:
        if not 1 <= length <= dimensions:
            raise BertineError(
                f"vectors of {length} numbers are asked for, but the model's have {dimensions}"
            )


def with_model(
    embedder: Embedder, precision: str = "fp32", *, dimensions: int | None = None
) -> Embedder:
    """Return an embedder that computes with the weights as they are now; of vectors so many
    `dimensions`, None: all that it keeps."""
    pooling = embedder.pooling
    again = Embedder(
        embedder.model,
        embedder.tokenizer,
        pooling if dimensions is None else replace(pooling, dimensions=dimensions),
        max_length=embedder.max_length,
        prompt=embedder.prompt,
        precision=precision,
    )
    again.name = embedder.name
    return again
