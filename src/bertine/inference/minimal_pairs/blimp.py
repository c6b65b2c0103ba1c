"""Score a language model on BLiMP, which is in the package, or on other minimal pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bertine.files import read_json
from bertine.inference.minimal_pairs.evaluate_pairs import (
    MinimalPairsReport,
    judge_pairs,
    mean_share,
    open_log_probability,
    shares,
)
from bertine.inference.minimal_pairs.pairs import MinimalPair, MinimalPairs, read_pairs
from bertine.options.answering import BlimpOptions
from bertine.options.verbs import takes_options

_DATA = Path(__file__).parent / "data"
#: A phenomenon of the files → the one that the paper counts its paradigms to.
_IN_THE_PAPER = {"s-selection": "argument_structure"}


def blimp_pairs() -> MinimalPairs:
    """Read the 67,000 pairs of BLiMP (Warstadt et al. 2020), which are in the package. Their
    phenomena are the 12 of the paper, where the files have a thirteenth."""
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
    """Score a pre-trained model on BLiMP: how often it finds the right one of two sentences more
    probable than the wrong one. Sentences that are equally probable count as wrong.

    Masked models are asked for the pseudo-log-likelihood (Salazar et al. 2020), others for what
    they were trained to give: :mod:`bertine.inference.minimal_pairs.log_probability`.

    Args:
        model: a model directory with the head of its pre-training.
        data: minimal pairs to take in place of BLiMP: JSON lines with ``sentence_good`` and
            ``sentence_bad``, or a folder of such files.
        show_progress: on stderr.
        options: what the other arguments say.

    Returns:
        The scores, by paradigm and by phenomenon. Of BLiMP their metrics have the mean over the
        paradigms of the part that the BabyLM challenge scores too, ``babylm_paradigm_mean``.

    Raises:
        BertineError: no such model, or it gives words no probability; no such data, a pair that
            lacks a sentence, a sentence that is longer than the model takes; `masked_pieces` is
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
    """Score the part that the BabyLM challenge takes, out of the same answers."""
    left_out = read_json(_DATA / "babylm_left_out.json")
    apart = {(paradigm, str(number)) for paradigm, own in left_out.items() for number in own}
    kept = [at for at, pair in enumerate(pairs) if (pair.paradigm, pair.number) not in apart]
    part = shares([pairs[at] for at in kept], report.right[kept], "paradigm")
    report.metrics["babylm_paradigm_mean"] = mean = mean_share(part)
    report.notes.insert(
        0, f"BabyLM's part, {len(kept):,} pairs: mean of {len(part)} paradigms {mean:.2%}"
    )
