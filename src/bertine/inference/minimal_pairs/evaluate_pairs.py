"""Score a language model on minimal pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

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
from bertine.modeldir import load_model
from bertine.models.model import Model
from bertine.models.precision import resolve_device, resolve_precision
from bertine.tasks.worst import WorstExample
from bertine.terminal.console import aligned, counted, progress, say
from bertine.terminal.shown import Shown

#: What a model with heads is asked, by the first that fits it.
_WAYS: tuple[tuple[Callable[[Model], bool], Callable[..., LogProbability]], ...] = (
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
            one, or has the higher score (``method``).
        source: of the pairs.
        pairs: how many there are.
        ties: pairs whose sentences are equally probable; they count as wrong.
        method: what is called probable, or what stands in its place.
        phenomena, paradigms: pairs and accuracy of each, where the files name them.
        notes: what was mended in the files, and what the model does not know.
        worst: empty.
    """

    metrics: dict[str, float]
    source: str
    pairs: int
    ties: int
    method: str
    phenomena: dict[str, tuple[int, float]]
    paradigms: dict[str, tuple[int, float]]
    notes: list[str] = field(default_factory=list)
    worst: list[WorstExample] = field(default_factory=list)

    @property
    def collapsed(self) -> bool:
        """Not judged here: chance is one half."""
        return False

    def lines(self) -> list[str]:
        """Return the scores for people: the whole, and each phenomenon, best first."""
        accuracy = self.metrics["accuracy"]
        low, high = wilson_interval(round(accuracy * self.pairs), self.pairs)
        ties = f"; {counted(self.ties, 'tie')}, counted as wrong" if self.ties else ""
        lines = [
            f"{counted(self.pairs, 'pair')} of {self.source}: accuracy {accuracy:.2%} "
            f"({low:.1%} to {high:.1%}; guessing gives 50%){ties}",
            self.method,
        ]
        shown = self.phenomena if len(self.phenomena) > 1 else self.paradigms
        if len(shown) > 1:
            kind = "phenomenon" if shown is self.phenomena else "paradigm"
            rows = [[kind, "pairs", "accuracy"]]
            order = sorted(shown.items(), key=lambda entry: -entry[1][1])
            rows += [[name, f"{count:,}", f"{share:.2%}"] for name, (count, share) in order]
            lines += aligned(rows, head=True)
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


def open_log_probability(
    model: Path | str, *, device: str | None = None, precision: str = "auto"
) -> LogProbability:
    """Load a language model and say how probable it finds sentences, in the way that its type and
    heads give: :mod:`bertine.inference.minimal_pairs.log_probability`, and ELMo in both directions.

    Args:
        model: a model directory.
        precision: ``"auto"`` is fp32: the two sentences of a pair may be nearly as probable.

    Raises:
        BertineError: no such model, or it gives words no probability.
    """
    where = resolve_device(device)
    dtype = resolve_precision("fp32" if precision == "auto" else precision, where)
    if holds_word_vectors(model):
        raise BertineError(
            f"{model}: vectors of words give a sentence no probability; give a language model"
        )
    if elmo_folder(model) is not None:
        elmo = load_elmo(model)
        softmax = None if elmo.softmax is None else elmo.softmax.to(where)
        return BothWaysProbability(
            LoadedElmo(elmo.model.to(where), softmax, elmo.words, elmo.source), dtype
        )
    loaded = load_model(model)
    for line in loaded.report.lines():
        say(line)
    loaded.model.to(where)
    for fits, way in _WAYS:
        if fits(loaded.model):
            return way(loaded, dtype)
    raise BertineError(
        f"{model}: has no head that gives words a probability, from left to right or behind a mask "
        "(fine-tuning drops it); use a pre-trained model that has"
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
        open_log_probability(model, device=device, precision=precision),
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
    return MinimalPairsReport(
        {"accuracy": float(right.mean())},
        pairs.source,
        len(pairs),
        int((differences == 0).sum()),
        log_probability.title,
        _shares(pairs.items, right, "phenomenon"),
        _shares(pairs.items, right, "paradigm"),
        [*pairs.notes, *log_probability.notes()],
    )


def _shares(
    pairs: Sequence[MinimalPair], right: np.ndarray, name: str
) -> dict[str, tuple[int, float]]:
    """Return pairs and accuracy by what the attribute `name` of the pairs says, in its order."""
    places: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        places.setdefault(getattr(pair, name), []).append(at)
    return {key: (len(own), float(right[own].mean())) for key, own in places.items() if key}
