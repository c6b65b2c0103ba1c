"""The curves of the demo's pre-training, all phases in one: fewer than those of a run's own page
(:mod:`bertine.reports.run_curves`), for readers who have never seen any."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.reports.log import LogRow, series
from bertine.reports.plots import Curve, curve


def training_curves(log: Sequence[LogRow], *, unigram_entropy: float | None) -> list[Curve]:
    """The curves of the demo's pre-training: MLM loss and accuracy, NSP accuracy, learning rate,
    speed. A curve whose key no line has is left out, except the first.

    Args:
        log: lines as :func:`bertine.reports.log.read_log` gives them.
        unigram_entropy: entropy of the corpus's token frequencies in nats: the loss of a model
            that knows how common every token is and nothing else. None when unknown.
    """
    curves = []
    steps, values = series(log, "mlm_loss")
    caption = "Mean cross-entropy of the masked tokens, in nats."
    if unigram_entropy is not None:
        caption += (
            " The dashed line is the entropy of the token frequencies: below it, the model uses "
            "the context."
        )
    curves.append(
        Curve(
            "MLM loss",
            caption,
            curve(
                steps,
                values,
                reference=unigram_entropy,
                reference_label=f"unigram entropy {unigram_entropy or 0:.2f}",
            ),
        )
    )
    steps, values = series(log, "mlm_accuracy")
    if values:
        svg = curve(steps, values, percent=True, from_zero=True)
        curves.append(Curve("MLM accuracy", "Masked tokens whose best guess is right.", svg))
    steps, values = series(log, "nsp_accuracy")
    if values:
        svg = curve(steps, values, percent=True, reference=0.5, reference_label="guessing 50%")
        curves.append(
            Curve("NSP accuracy", "Does the second segment follow the first, or not?", svg)
        )
    steps, values = series(log, "learning_rate")
    if values:
        svg = curve(steps, values, from_zero=True, noisy=False)
        curves.append(Curve("Learning rate", "Linear warm-up, then linear decay.", svg))
    steps, values = series(log, "tokens_per_second")
    if values:
        svg = curve(steps, values, from_zero=True)
        curves.append(Curve("Speed", "Real tokens a second, padding not counted.", svg))
    return curves
