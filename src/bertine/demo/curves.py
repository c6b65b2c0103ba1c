"""Draw the curves of the demo's pre-training: fewer than those of a run's own page
(:mod:`bertine.reports.run_curves`), for readers who have never seen any."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.reports.plots import Curve, curve
from bertine.runs.log import LogRow, series


def training_curves(log: Sequence[LogRow], *, unigram_entropy: float | None) -> list[Curve]:
    """Draw the loss and the accuracy of pre-training on masked words; where no line has an
    accuracy, the loss alone.

    Args:
        log: lines as :func:`bertine.runs.log.read_log` gives them.
        unigram_entropy: entropy of the corpus's token frequencies in nats: the loss of a model
            that knows how common every token is and nothing else. None when unknown.
    """
    steps, values = series(log, "loss")
    caption = "Mean cross-entropy of the hidden pieces, in nats."
    if unigram_entropy is not None:
        caption += (
            " The dashed line is the entropy of the frequencies of all pieces: below it, the model "
            "uses the context."
        )
    svg = curve(
        steps,
        values,
        reference=unigram_entropy,
        reference_label=f"unigram entropy {unigram_entropy or 0:.2f}",
    )
    curves = [Curve("Loss", caption, svg)]
    steps, values = series(log, "accuracy")
    if values:
        svg = curve(steps, values, percent=True, from_zero=True)
        curves.append(Curve("Accuracy", "Hidden pieces whose best guess is right.", svg))
    return curves
