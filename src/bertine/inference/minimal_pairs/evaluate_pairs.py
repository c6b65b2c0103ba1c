"""Read minimal pairs and score a language model on them, BLiMP included: ``blimp``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertine.core.console import aligned, log_all, plural, progress
from bertine.core.contrib import job_of_model
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_json
from bertine.core.names import MaskedPieces, option
from bertine.core.scores import wilson_interval
from bertine.data.streams import COMPRESSIONS
from bertine.data.tables import Table, TableRow
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.inference.minimal_pairs.scoring import (
    ForwardProbability,
    GuessedLikelihood,
    InfilledLikelihood,
    LogProbability,
    PseudoLikelihood,
    ReplacedTokens,
    resolved_dtype,
)
from bertine.models.heads import Model
from bertine.models.precision import resolve_device
from bertine.options.inference import BlimpOptions
from bertine.options.verbs import takes_options
from bertine.tasks.report import EvaluationReport

# Reading: JSON lines in the format of BLiMP (Warstadt et al. 2020).

#: The columns of the two sentences, and of the facts about a pair.
GOOD, BAD = "sentence_good", "sentence_bad"
PARADIGM, PHENOMENON, PAIR = "UID", "linguistics_term", "pairID"
_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """Two sentences with a small difference, one right and one wrong.

    Attributes:
        good: the right sentence.
        bad: the wrong sentence.
        paradigm: the kind of the difference; "" where the file does not say.
        phenomenon: the group of the paradigm; "" where the file does not say.
        number: its number in the paradigm; "" where the file does not say.
        where: file and line.
    """

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    number: str
    where: str


@dataclass
class MinimalPairs:
    """The pairs of a file or of a folder's files, in their order.

    Attributes:
        source: the file or folder.
        items: the pairs.
        notes: notes on what was repaired or left out.
    """

    source: str
    items: list[MinimalPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def sample(self, count: int) -> MinimalPairs:
        """Return the first `count` pairs of every paradigm."""
        seen: dict[str, int] = {}
        kept = []
        for pair in self.items:
            seen[pair.paradigm] = seen.get(pair.paradigm, 0) + 1
            if seen[pair.paradigm] <= count:
                kept.append(pair)
        return MinimalPairs(self.source, kept, list(self.notes))


def holds_pairs(data: Any) -> bool:
    """Return whether `data` is JSON lines of minimal pairs, or a folder with such a file: one with
    the columns ``sentence_good`` and ``sentence_bad``."""
    if not isinstance(data, str | Path):
        return False
    path = Path(data)
    if path.is_dir():
        return any(map(_has_pairs, _json_files(path)))
    return path.is_file() and _is_json(path) and _has_pairs(path)


def read_pairs(path: Path | str) -> MinimalPairs:
    """Read a file of minimal pairs, or all those of a folder in the order of their names. Files
    with other columns in the folder are left out and counted.

    Raises:
        BertineError: there are no pairs; a sentence is missing or empty; a table cannot be read.
    """
    folder = Path(path)
    pairs = MinimalPairs(str(path))
    if not folder.is_dir():
        _read(folder, pairs)
        return pairs
    files = _json_files(folder)
    chosen = [file for file in files if _has_pairs(file)]
    if not chosen:
        raise BertineError(
            f"{path}: has no file of minimal pairs (JSON lines with {GOOD} and {BAD})"
        )
    for file in chosen:
        _read(file, pairs)
    if others := len(files) - len(chosen):
        pairs.notes.append(f"{path}: {plural(others, 'file')} of other columns left out")
    return pairs


def _read(path: Path, pairs: MinimalPairs) -> None:
    with Table(path, wanted=(GOOD, BAD)) as table:
        for row in table:
            where = f"{table.name}:{row.line}"
            sentences = [table.text(row, column) for column in (GOOD, BAD)]
            for column, sentence in zip((GOOD, BAD), sentences, strict=True):
                if not sentence.strip():
                    raise BertineError(f"{where}: {column} is empty; a pair has two sentences")
            good, bad = sentences
            paradigm, phenomenon, number = (
                _name(row, column) for column in (PARADIGM, PHENOMENON, PAIR)
            )
            pairs.items.append(MinimalPair(good, bad, paradigm, phenomenon, number, where))
        pairs.notes += table.stats.notes(table.name)


def _name(row: TableRow, column: str) -> str:
    value = row.values.get(column)
    return value if isinstance(value, str) else ""


def _is_json(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return plain.suffix.lower() in _SUFFIXES


def _json_files(folder: Path) -> Sequence[Path]:
    with os_errors(folder, "reading it"):
        return sorted(path for path in _regular(folder.iterdir()) if _is_json(path))


def _regular(paths: Iterable[Path]) -> Iterable[Path]:
    return (path for path in paths if path.is_file() and not path.name.startswith("."))


def _has_pairs(path: Path) -> bool:
    """Check the first line only; a damaged file is reported by the function that reads it."""
    try:
        with Table(path) as table:
            return {GOOD, BAD} <= set(table.columns)
    except BertineError:
        return False


_Way = Callable[[LoadedModel, torch.dtype], LogProbability]
#: The question to a model with heads, by the first head that it has.
_WAYS: tuple[tuple[Callable[[Model], bool], _Way], ...] = (
    (lambda model: "lm" in model.heads and model.config.reads_forward, ForwardProbability),
    (lambda model: "lm" in model.heads and model.config.encodes_and_decodes, InfilledLikelihood),
    (lambda model: "plm" in model.heads, GuessedLikelihood),
    (lambda model: "mlm" in model.heads, PseudoLikelihood),
    (lambda model: "rtd" in model.heads, ReplacedTokens),
)


@dataclass(repr=False)
class MinimalPairsReport(EvaluationReport):
    """The scores of :func:`evaluate_pairs`: a :class:`~bertine.tasks.report.EvaluationReport`.

    Attributes:
        metrics: ``accuracy``, the share of the pairs whose right sentence is the more probable
            one, or has the higher score (``method``). Where the files name several,
            ``paradigm_mean`` and ``phenomenon_mean`` are the means of the accuracies of each; of
            the BLiMP in the package also ``babylm_paradigm_mean``
            (:mod:`~bertine.inference.minimal_pairs.evaluate_pairs`).
        source: the file or folder of the pairs.
        pairs: the number of pairs.
        ties: pairs whose sentences are equally probable; they count as wrong.
        method: the kind of probability or score.
        phenomena, paradigms: pairs and accuracy of each, where the files name them.
        shows_paradigms: whether :meth:`lines` lists every paradigm too.
        notes: notes on what was repaired in the files, and on unknown pieces.
        worst: empty.
        right: bool [pairs], whether each pair is judged rightly, in their order.
    """

    metrics: dict[str, float]
    pairs: int
    ties: int
    method: str
    phenomena: dict[str, tuple[int, float]]
    paradigms: dict[str, tuple[int, float]]
    shows_paradigms: bool = False
    right: np.ndarray = field(default_factory=lambda: np.zeros(0, bool), compare=False)

    json_keys = ("source", "pairs", "ties", "method", "**metrics", "**_groups", "notes")
    collapsed = False  # not checked here; chance is one half

    def lines(self) -> list[str]:
        """Return the scores as lines of text: the whole, and each phenomenon, best first."""
        accuracy = self.metrics["accuracy"]
        low, high = wilson_interval(round(accuracy * self.pairs), self.pairs)
        ties = "; no ties"
        if self.ties:
            share = self.ties / self.pairs
            ties = f"; {plural(self.ties, 'tie')} ({share:.2%}), counted as wrong"
        lines = [
            f"{plural(self.pairs, 'pair')} of {self.source}: accuracy {accuracy:.2%} "
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

    @property
    def _groups(self) -> dict[str, Any]:
        return {
            name: {key: {"pairs": n, "accuracy": share} for key, (n, share) in shares.items()}
            for name, shares in (("phenomena", self.phenomena), ("paradigms", self.paradigms))
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
    """Load a language model with the function that scores its sentences, chosen by its type and
    heads: :mod:`bertine.inference.minimal_pairs.scoring`, and those of contrib.

    Args:
        model: a model directory.
        precision: ``"fp32"``, ``"bf16"``, or ``"auto"``: bf16 where it is measured to be clearly
            faster.
        masked_pieces: the pieces that are masked together, where pieces are masked in turn.

    Raises:
        BertineError: no such model, or one without probabilities of words; `masked_pieces` is given
            for a model whose pieces are not masked.
    """
    where = resolve_device(device)
    if (own := job_of_model(model, "blimp")) is not None:
        _require_masks(model, own, masked_pieces)
        scorer: LogProbability = own(model, where, precision)
        return scorer
    loaded = load_model(model)
    log_all(loaded.report.lines())
    loaded.model.to(where)
    way = next((way for fits, way in _WAYS if fits(loaded.model)), None)
    if way is None:
        raise BertineError(
            f"{model}: has no head that gives words a probability, from left to right or behind a "
            "mask (fine-tuning drops it); use a pre-trained model that has"
        )
    _require_masks(model, way, masked_pieces)
    dtype = resolved_dtype(precision, loaded.model)
    if way is PseudoLikelihood:
        return PseudoLikelihood(loaded, dtype, masked_pieces)
    return way(loaded, dtype)


def _require_masks(model: Path | str, way: object, masked_pieces: MaskedPieces) -> None:
    """Refuse `masked_pieces` for a model whose pieces are not masked in turn."""
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
        BertineError: see :func:`~bertine.inference.minimal_pairs.evaluate_pairs.read_pairs` and
            :func:`open_log_probability`; or a sentence is too long for the model.
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
        len(pairs),
        int((differences == 0).sum()),
        log_probability.title,
        phenomena,
        paradigms,
        source=pairs.source,
        notes=[*pairs.notes, *log_probability.notes()],
        right=right,
    )


def mean_share(own: dict[str, tuple[int, float]]) -> float:
    """Compute the mean of accuracies, each with the same weight."""
    return float(np.mean([share for _, share in own.values()]))


def shares(
    pairs: Sequence[MinimalPair], right: np.ndarray, name: str
) -> dict[str, tuple[int, float]]:
    """Return the number of pairs and the accuracy for each value of the attribute `name` of the
    pairs, in their order."""
    places: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        places.setdefault(getattr(pair, name), []).append(at)
    return {key: (len(own), float(right[own].mean())) for key, own in places.items() if key}


# BLiMP: the pairs in the package.

_DATA = Path(__file__).parent / "data"
#: The phenomena of the files that the paper counts under another name.
_IN_THE_PAPER = {"s-selection": "argument_structure"}


def blimp_pairs() -> MinimalPairs:
    """Read the 67,000 pairs of BLiMP (Warstadt et al. 2020) in the package. Their phenomena are the
    12 of the paper, where the files have a thirteenth."""
    pairs = read_pairs(_DATA / "blimp.jsonl.xz")
    pairs.source = "BLiMP"
    pairs.items = [
        replace(pair, phenomenon=_IN_THE_PAPER.get(pair.phenomenon, pair.phenomenon))
        for pair in pairs.items
    ]
    return pairs


@takes_options()
def blimp(
    model: Path | str,
    *,
    data: Path | str | None = None,
    show_progress: bool = True,
    options: BlimpOptions,
) -> MinimalPairsReport:
    """Score a pre-trained model on BLiMP: how often it gives the right one of two sentences the
    higher probability. Sentences of equal probability count as wrong.

    Masked models are scored by the pseudo-log-likelihood (Salazar et al. 2020), others by the
    probability that they were trained for: :mod:`bertine.inference.minimal_pairs.scoring`.

    Args:
        model: a model directory with the head of its pre-training.
        data: minimal pairs in place of BLiMP: JSON lines with ``sentence_good`` and
            ``sentence_bad``, or a folder of such files.
        show_progress: on stderr.
        options: the options described below.

    Returns:
        The scores, by paradigm and by phenomenon. For BLiMP the metrics include
        ``babylm_paradigm_mean``, the mean over the paradigms of the part in the BabyLM challenge.

    Raises:
        BertineError: no such model, or one without probabilities of words; no such data, a pair
            that lacks a sentence, a sentence that is too long for the model; `masked_pieces` is
            given for a model whose pieces are not masked.
    """
    pairs = blimp_pairs() if data is None else read_pairs(data)
    way = open_log_probability(
        model,
        device=options.device,
        precision=options.precision,
        masked_pieces=options.masked_pieces,
    )
    report = judge_pairs(way, pairs, show_progress=show_progress)
    report.shows_paradigms = options.paradigms
    if data is None:
        _add_babylm(report, pairs.items)
    return report


def _add_babylm(report: MinimalPairsReport, pairs: list[MinimalPair]) -> None:
    """Add the score of the part in the BabyLM challenge, from the same answers."""
    left_out = read_json(_DATA / "babylm_left_out.json")
    apart = {(paradigm, str(number)) for paradigm, own in left_out.items() for number in own}
    kept = [at for at, pair in enumerate(pairs) if (pair.paradigm, pair.number) not in apart]
    part = shares([pairs[at] for at in kept], report.right[kept], "paradigm")
    report.metrics["babylm_paradigm_mean"] = mean = mean_share(part)
    report.notes.insert(
        0, f"BabyLM's part, {len(kept):,} pairs: mean of {len(part)} paradigms {mean:.2%}"
    )
