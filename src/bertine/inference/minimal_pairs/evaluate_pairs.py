"""Score a language model on minimal pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bertine.errors import BertineError
from bertine.inference.embedding.opened import holds_word_vectors
from bertine.inference.minimal_pairs.elmo_probability import BothWaysProbability
from bertine.inference.minimal_pairs.log_probability import (
    ForwardProbability,
    GuessedLikelihood,
    InfilledLikelihood,
    PseudoLikelihood,
    ReplacedTokens,
)
from bertine.inference.minimal_pairs.pairs import MinimalPair, MinimalPairs, read_pairs
from bertine.inference.minimal_pairs.summed import LogProbability
from bertine.interop.elmo.directory import LoadedElmo, elmo_folder, load_elmo
from bertine.intervals import wilson_interval
from bertine.modeldir import LoadedModel, load_model
from bertine.models.model import Model
from bertine.models.precision import rates_for, resolve_device, resolve_precision
from bertine.names import MaskedPieces
from bertine.options.names import option
from bertine.tasks.worst import WorstExample
from bertine.terminal.console import aligned, counted, progress, say
from bertine.terminal.shown import Shown

_Way = Callable[[LoadedModel, torch.dtype], LogProbability]
#: What a model with heads is asked, by the first that fits it.
_WAYS: tuple[tuple[Callable[[Model], bool], _Way], ...] = (
    (lambda model: "lm" in model.heads and model.config.reads_forward, ForwardProbability),
    (lambda model: "lm" in model.heads and model.config.encodes_and_decodes, InfilledLikelihood),
    (lambda model: "plm" in model.heads, GuessedLikelihood),
    (lambda model: "mlm" in model.heads, PseudoLikelihood),
    (lambda model: "rtd" in model.heads, ReplacedTokens),
)


@dataclass(repr=False)
class MinimalPairsReport(Shown):
    """The scores of :func:`evaluate_pairs`: a :class:`~bertine.tasks.report.EvaluationReport`.

    Attributes:
        metrics: ``accuracy``, the share of the pairs whose right sentence is the more probable
            one, or has the higher score (``method``). Where the files name several,
            ``paradigm_mean`` and ``phenomenon_mean`` are the means of the accuracies of each; of
            the BLiMP in the package also ``babylm_paradigm_mean``
            (:mod:`~bertine.inference.minimal_pairs.blimp`).
        source: of the pairs.
        pairs: how many there are.
        ties: pairs whose sentences are equally probable; they count as wrong.
        method: what is called probable, or what stands in its place.
        phenomena, paradigms: pairs and accuracy of each, where the files name them.
        shows_paradigms: whether :meth:`lines` lists every paradigm too.
        notes: what was mended in the files, and what the model does not know.
        worst: empty.
        right: bool [pairs], which of them are, in their order.
    """

    metrics: dict[str, float]
    source: str
    pairs: int
    ties: int
    method: str
    phenomena: dict[str, tuple[int, float]]
    paradigms: dict[str, tuple[int, float]]
    shows_paradigms: bool = False
    notes: list[str] = field(default_factory=list)
    worst: list[WorstExample] = field(default_factory=list)
    right: np.ndarray = field(default_factory=lambda: np.zeros(0, bool), compare=False)

    @property
    def collapsed(self) -> bool:
        """Not judged here: chance is one half."""
        return False

    def lines(self) -> list[str]:
        """Return the scores for people: the whole, and each phenomenon, best first."""
        accuracy = self.metrics["accuracy"]
        low, high = wilson_interval(round(accuracy * self.pairs), self.pairs)
        ties = "; no ties"
        if self.ties:
            share = self.ties / self.pairs
            ties = f"; {counted(self.ties, 'tie')} ({share:.2%}), counted as wrong"
        lines = [
            f"{counted(self.pairs, 'pair')} of {self.source}: accuracy {accuracy:.2%} "
            f"({low:.1%} to {high:.1%}; guessing gives 50%){ties}",
            self.method,
        ]
        means = [
            f"of {len(shares)} {many} {self.metrics[name]:.2%}"
            for name, many, shares in (
                ("paradigm_mean", "paradigms", self.paradigms),
                ("phenomenon_mean", "phenomena", self.phenomena),
            )
            if name in self.metrics
        ]
        if means:
            lines.append(f"mean {', '.join(means)}")
        several = len(self.phenomena) > 1
        if several:
            lines += _table("phenomenon", self.phenomena)
        if len(self.paradigms) > 1 and (self.shows_paradigms or not several):
            lines += _table("paradigm", self.paradigms)
        return [*lines, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "source": self.source,
            "pairs": self.pairs,
            "ties": self.ties,
            "method": self.method,
            **self.metrics,
            **{
                name: {key: {"pairs": n, "accuracy": share} for key, (n, share) in shares.items()}
                for name, shares in (("phenomena", self.phenomena), ("paradigms", self.paradigms))
            },
            "notes": self.notes,
        }


def _table(kind: str, shares: dict[str, tuple[int, float]]) -> list[str]:
    rows = [[kind, "pairs", "accuracy"]]
    order = sorted(shares.items(), key=lambda entry: -entry[1][1])
    rows += [[name, f"{count:,}", f"{share:.2%}"] for name, (count, share) in order]
    return aligned(rows, head=True)


def open_log_probability(
    model: Path | str,
    *,
    device: str | None = None,
    precision: str = "fp32",
    masked_pieces: MaskedPieces = "one",
) -> LogProbability:
    """Load a language model and say how probable it finds sentences, in the way that its type and
    heads give: :mod:`bertine.inference.minimal_pairs.log_probability`, and ELMo in both directions.

    Args:
        model: a model directory.
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"``: bf16 where it is measured to be clearly
            faster.
        masked_pieces: what is masked with a piece, where pieces are masked in turn.

    Raises:
        BertineError: no such model, or it gives words no probability; `masked_pieces` is given for
            a model whose pieces are not masked.
    """
    where = resolve_device(device)
    if holds_word_vectors(model):
        raise BertineError(
            f"{model}: vectors of words give a sentence no probability; give a language model"
        )
    if elmo_folder(model) is not None:
        _require_masks(model, BothWaysProbability, masked_pieces)
        elmo = load_elmo(model)
        softmax = None if elmo.softmax is None else elmo.softmax.to(where)
        return BothWaysProbability(
            LoadedElmo(elmo.model.to(where), softmax, elmo.words, elmo.source),
            _resolved(precision, elmo.model),
        )
    loaded = load_model(model)
    for line in loaded.report.lines():
        say(line)
    loaded.model.to(where)
    way = next((way for fits, way in _WAYS if fits(loaded.model)), None)
    if way is None:
        raise BertineError(
            f"{model}: has no head that gives words a probability, from left to right or behind a "
            "mask (fine-tuning drops it); use a pre-trained model that has"
        )
    _require_masks(model, way, masked_pieces)
    dtype = _resolved(precision, loaded.model)
    if way is PseudoLikelihood:
        return PseudoLikelihood(loaded, dtype, masked_pieces)
    return way(loaded, dtype)


def _resolved(precision: str, model: nn.Module) -> torch.dtype:
    """Return the type to compute `model` in, where it is; say so where that was measured."""
    rates = rates_for(precision, model)
    if rates is not None:
        say(rates.line())
    return resolve_precision(precision, next(model.parameters()).device, rates)


def _require_masks(model: Path | str, way: object, masked_pieces: MaskedPieces) -> None:
    """Refuse to hide more than a piece where pieces are not hidden in turn."""
    if masked_pieces != "one" and way is not PseudoLikelihood:
        raise BertineError(
            f"{model}: {option('masked_pieces')} is about models whose pieces are masked in turn "
            "(BERT, RoBERTa, …), which this is not; leave it out"
        )


def evaluate_pairs(
    model: Path | str,
    data: Path | str,
    *,
    device: str | None = None,
    precision: str = "auto",
    show_progress: bool = True,
) -> MinimalPairsReport:
    """Score a pre-trained model directory on minimal pairs.

    Raises:
        BertineError: what :func:`~bertine.inference.minimal_pairs.pairs.read_pairs` and
            :func:`open_log_probability` raise; a sentence is longer than the model takes.
    """
    pairs = read_pairs(data)
    return judge_pairs(
        open_log_probability(
            model, device=device, precision="fp32" if precision == "auto" else precision
        ),
        pairs,
        show_progress=show_progress,
    )


def judge_pairs(
    log_probability: LogProbability, pairs: MinimalPairs, *, show_progress: bool = True
) -> MinimalPairsReport:
    """Score pairs that have been read; see :func:`evaluate_pairs`."""
    texts = [text for pair in pairs.items for text in (pair.good, pair.bad)]
    # The same sentence is often in several pairs.
    distinct = list(dict.fromkeys(texts))
    with progress(show=show_progress) as bar:
        job = bar.add_task("evaluate", total=len(distinct))
        values = log_probability(distinct, lambda done: bar.advance(job, done))
    score = dict(zip(distinct, values.tolist(), strict=True))
    differences = np.array([score[pair.good] - score[pair.bad] for pair in pairs.items])
    right = differences > 0
    metrics = {"accuracy": float(right.mean())}
    paradigms, phenomena = (shares(pairs.items, right, n) for n in ("paradigm", "phenomenon"))
    for name, own in (("paradigm_mean", paradigms), ("phenomenon_mean", phenomena)):
        if len(own) > 1:
            metrics[name] = mean_share(own)
    return MinimalPairsReport(
        metrics,
        pairs.source,
        len(pairs),
        int((differences == 0).sum()),
        log_probability.title,
        phenomena,
        paradigms,
        notes=[*pairs.notes, *log_probability.notes()],
        right=right,
    )


def mean_share(own: dict[str, tuple[int, float]]) -> float:
    """Return the mean of accuracies, each counting as much as every other."""
    return float(np.mean([share for _, share in own.values()]))


def shares(
    pairs: Sequence[MinimalPair], right: np.ndarray, name: str
) -> dict[str, tuple[int, float]]:
    """Return pairs and accuracy by what the attribute `name` of the pairs says, in its order."""
    places: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        places.setdefault(getattr(pair, name), []).append(at)
    return {key: (len(own), float(right[own].mean())) for key, own in places.items() if key}
