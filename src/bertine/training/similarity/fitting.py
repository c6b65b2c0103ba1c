"""Fit an embedder to pairs of texts, and evaluate it on rows of a file or on held-out pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertine.core.console import Report, human_time, log_all, logger, plural, quietly
from bertine.core.errors import BertineError
from bertine.core.names import PairKind
from bertine.corpora.batch import Batch
from bertine.data.examples import as_columns
from bertine.data.in_memory import Source, TableLike, as_data
from bertine.data.text_pairs import KINDS, PairRows
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.evaluate_vectors import (
    JUDGED,
    SimilarityReport,
    evaluated_part,
    score_order,
    score_rows,
    score_search,
)
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.vectors import SimilarityOptions
from bertine.tasks.base import Features
from bertine.training.checkpoint import Choice
from bertine.training.display import Display
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run
from bertine.training.similarity.data import PairFile
from bertine.training.similarity.objective import Pair, PairLoss, PairObjective, pair_batch

# The result of training for similarity.


@dataclass(repr=False)
class SimilarityResult(Report):
    """The result of training a model for sentence vectors.

    Attributes:
        model: its directory.
        kind: of the training rows.
        rows: the number of training rows.
        steps: the step of the weights that are saved.
        before, after: the scores on the validation rows before training and of the saved model;
            empty if there are no such rows.
        metric: the score that decided which evaluation is the best.
        seconds: of training.
        kept_start: whether the weights before training are saved, because no evaluation was better.
        notes: further notes.
        shortened: `metric` of the saved model for the first numbers of a vector, by the lengths
            that were trained.
    """

    model: Path
    kind: str
    rows: int
    steps: int
    before: dict[str, float]
    after: dict[str, float]
    metric: str
    seconds: float
    kept_start: bool = False
    notes: list[str] = field(default_factory=list)
    shortened: dict[int, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the lines to print in the terminal."""
        lines = [
            f"{plural(self.rows, 'row')}, {plural(self.steps, 'step')} in "
            f"{human_time(self.seconds)}"
        ]
        for name, value in self.after.items():
            mark = " (by which the best was chosen)" if name == self.metric else ""
            lines.append(f"{name} {value:.4f}, before training {self.before[name]:.4f}{mark}")
        lines += [
            f"{self.metric} {value:.4f} with the first {plural(length, 'number')} of a vector"
            for length, value in self.shortened.items()
        ]
        if self.kept_start:
            lines.append(
                f"training did not make {self.metric} higher, so the weights of before training "
                "are saved; a lower learning rate, or more rows, may help"
            )
        return [*lines, *self.notes, f"model: {self.model}"]


#: The number of rows that are embedded at once.
_CHUNK = 1024


@dataclass(frozen=True)
class Evaluator:
    """The evaluation of a model during training.

    Attributes:
        score: computes the scores.
        metric: the score that decides, the higher the better.
        fingerprint: of the file; empty for held-out pairs.
    """

    score: Callable[[Embedder], SimilarityReport]
    metric: str
    fingerprint: str = ""

    @classmethod
    def of_rows(cls, rows: PairRows) -> Evaluator:
        """Create an evaluator on the rows of a file.

        Raises:
            BertineError: no row has both texts, and the score if there are scores.
        """
        fingerprint = rows.fingerprint()
        log_all(rows.notes(), logger.warning)
        if rows.read == 0:
            raise BertineError(f"{rows.source}: has no row to judge by")

        def score(embedder: Embedder) -> SimilarityReport:
            with quietly():
                return score_rows(embedder, rows, show_progress=False)

        return cls(score, _metric(rows.open_columns().kind), fingerprint)

    @classmethod
    def of_held_out(cls, file: PairFile, rows: list[int], kind: PairKind) -> Evaluator:
        """Create an evaluator on some rows of the training file, which is open."""
        scored = score_order if kind == "scores" else score_search
        return cls(lambda embedder: scored(embedder, _chunks(file, rows)), _metric(kind))


def _metric(kind: PairKind) -> str:
    return "spearman" if kind == "scores" else "ndcg@10"


def _chunks(
    file: PairFile, rows: list[int]
) -> Iterator[tuple[list[Features], list[Features], list[float]]]:
    """Yield some rows of a file as first texts, second texts and scores."""
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        texts = list(file.read(part))
        scores = file.records(part)["score"].tolist()
        yield [result[0] for result in texts], [result[1] for result in texts], scores


def training_rows(source: Source, options: SimilarityOptions) -> PairRows:
    """Read the rows of a file according to the options."""
    config = DataConfig.of(options, DEFAULTS)
    return PairRows(source, config, options.kind, options.negative_columns)


def validation_rows(
    own: Source | None, given: Path | str | TableLike | None, options: SimilarityOptions
) -> PairRows | None:
    """Return the validation rows; None: a part of the training rows is held out.

    Args:
        own: the validation file of the folder of data, read as the training file is.
        given: by the user; its columns may have other names.

    Raises:
        BertineError: no such file; it has no pairs.
    """
    if given is None:
        if own is None:
            return None
        rows = training_rows(own, options)
        if rows.open_columns().kind not in JUDGED:
            logger.warning(f"{own}: has no pairs, on which vectors are judged; it is left out")
            return None
        return rows
    source = evaluated_part(as_data(given))
    names = {*training_rows(source, options).names()}
    columns = {
        name: value if {*as_columns(value)} <= names else None
        for name in ("text_columns", "label_column", "negative_columns")
        for value in [getattr(options, name)]
    }
    kind = options.kind if options.kind in JUDGED else None
    rows = training_rows(source, SimilarityOptions.of(options, **columns, kind=kind))
    kind = rows.open_columns().kind
    if kind not in JUDGED:
        raise BertineError(
            f"{rows.source}: vectors are judged on pairs of texts, with a score or without; these "
            f"are {KINDS[kind]}"
        )
    return rows


# Training: fit the encoder of an embedder to pairs of texts that are drawn step by step.

#: A function from a step (counted from 0) to its pairs; it must be pure.
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
    """Train the model of `embedder` in place to minimize `loss` on the vectors of pairs.

    Args:
        embedder: defines how texts are cut and pooled; it must not have computed vectors yet,
            because its inference model is built from the weights at the first use
            (:func:`with_model`).
        draw: the pairs of a step, with texts from :meth:`Embedder.features`.
        loss: the loss to minimize.
        config: steps, rate and the rest. `max_tokens_per_micro_batch` is the number of tokens at
            once, padding counted; a step of more texts is computed in parts, in memory that does
            not grow with their number (:mod:`~bertine.training.similarity.objective`).
        run: the run that gets the log and the checkpoints; it has the checkpoint to resume from.
        title: of the display.
        evaluate, evaluate_every, choose: as for :func:`~bertine.training.fit.fit`.

    Returns:
        The entries of evaluations, with their steps.

    Raises:
        BertineError: a length of vectors that the model does not have; pairs without scores for a
            loss that needs them; what `fit` raises.
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
    """Refuse lengths that exceed the vectors of a model.

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
    """Return an embedder that computes with the current weights, with vectors of `dimensions`
    numbers; None: the number of the given embedder."""
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
