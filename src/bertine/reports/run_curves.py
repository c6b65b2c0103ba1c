"""The curves of a training run, for its page: pre-training and fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertine.reports.plots import Curve, curve
from bertine.reports.scores import is_share, score_name
from bertine.runs.log import LogRow, series
from bertine.terms import TERMS, TermTexts

#: What the accuracy in fine-tuning is a share of, by the task; of others: examples.
_RIGHT = {
    "tagging": "Words with the right tag",
    "spans": "Windows of which both ends of the answer are found",
}


def pretraining_curves(log: Sequence[LogRow], facts: Mapping[str, Any]) -> list[Curve]:
    """Draw the loss and the accuracy of each term, with the held-out one over it where there is
    one, and the curves of :func:`machine_curves`.

    Args:
        log: lines of ``log.jsonl`` (:func:`bertine.runs.log.pretraining_names`); a curve whose
            key no line has is left out.
        facts: of the run; ``unigram_entropy`` in nats is drawn as a line.
    """
    drawn = _Drawn(log)
    for name, term in TERMS.items():
        _draw_term(drawn, name, term, facts.get("unigram_entropy"))
    drawn.add(
        "Loss",
        "loss",
        "What is minimized: the sum of the losses of all objectives, in nats.",
        only_if=lambda: len(drawn.terms()) > 1,
    )
    return drawn.curves + machine_curves(log, facts)


def _draw_term(drawn: _Drawn, name: str, term: TermTexts, entropy: float | None) -> None:
    """Draw the loss and the accuracy of a term, with what is to be compared with them."""
    caption, reference, label = term.loss, None, ""
    if term.words and entropy is not None:
        caption += (
            " The dashed line is the entropy of the token frequencies: well below it, the model "
            "uses the context."
        )
        reference, label = entropy, f"unigram entropy {entropy:.2f}"
    chance: dict[str, Any] = {"from_zero": True}
    if term.choices is not None:
        caption += " The dashed line is guessing."
        reference = math.log(term.choices)
        label = f"guessing {reference:.2f}"
        share = 1 / term.choices
        chance = {"reference": share, "reference_label": f"guessing {share:.0%}"}
    drawn.add(
        f"{term.title} loss", f"{name}_loss", caption, reference=reference, reference_label=label
    )
    drawn.add(f"{term.title} accuracy", f"{name}_accuracy", term.accuracy, percent=True, **chance)


def finetuning_curves(log: Sequence[LogRow], facts: Mapping[str, Any]) -> list[Curve]:
    """Loss and accuracy in training with those on the validation examples over them, where they are
    of the same things, the other validation scores, and the curves of :func:`machine_curves`."""
    info = facts.get("labels_and_columns")
    task = info.get("name") if isinstance(info, Mapping) else facts.get("task")
    drawn = _Drawn(log, "validation")
    regression = any("eval_mean_squared_error" in row for row in log)
    caption = (
        "Mean squared error of the standardized score of an example; always answering the mean: 1."
        if regression
        else "Mean loss of an example, in nats."
    )
    weighted = [name for name in ("class_weights", "focal_gamma") if facts.get(name)]
    if weighted:
        caption += f" In training it is weighted ({', '.join(weighted)}), in validation not: "
        caption += "the two are not to be compared."
    drawn.add("Loss", "loss", caption, from_zero=True)
    known = {"eval_loss", "eval_accuracy"} if series(log, "accuracy")[1] else {"eval_loss"}
    if task == "multi-label":
        # Of decisions, where that of validation is of examples with all of them right.
        known -= {"eval_accuracy"}
        caption = "Decisions in training, one for each label of an example, that are right."
        drawn.add("Right decisions", "accuracy", caption, percent=True, over=False)
    else:
        caption = f"{_RIGHT.get(str(task), 'Examples answered right')}."
        drawn.add("Accuracy", "accuracy", caption, percent=True)
    keys = dict.fromkeys(key for row in log for key in row if key.startswith("eval_"))
    for key in keys:
        if key not in known:
            name = score_name(key.removeprefix("eval_"))
            caption = "On the validation examples."
            if task == "multi-label" and key == "eval_accuracy":
                caption = "Validation examples of which all labels are right."
            drawn.add(
                name[:1].upper() + name[1:],
                key,
                caption,
                noisy=False,
                percent=is_share(key),
            )
    return drawn.curves + machine_curves(log, facts)


def machine_curves(log: Sequence[LogRow], facts: Mapping[str, Any]) -> list[Curve]:
    """Learning rate, gradient norm, tokens per second, share of the machine's ceiling."""
    clip = facts.get("max_grad_norm") or None
    drawn = _Drawn(log)
    schedule = facts.get("schedule")
    warmup = facts.get("warmup_steps")
    told = f"Schedule: {schedule}" if schedule else "As scheduled"
    if isinstance(warmup, int):
        told += f", {warmup:,} step{'' if warmup == 1 else 's'} of warm-up"
    drawn.add(
        "Learning rate",
        "learning_rate",
        f"{told}.",
        from_zero=True,
        noisy=False,
    )
    drawn.add(
        "Gradient norm",
        "grad_norm",
        "Before clipping, of the step that is logged, on a logarithmic axis."
        + (f" Gradients above {clip:g} are scaled down to it." if clip else ""),
        reference=clip,
        reference_label=f"clipped to {clip or 0:g}",
        log_scale=True,
    )
    drawn.add(
        "Speed",
        "tokens_per_second",
        "Real tokens a second, padding not counted.",
        from_zero=True,
    )
    drawn.add(
        "Share of the ceiling",
        "share_of_ceiling",
        "Useful arithmetic a second, as a share of the rate at which this machine does the "
        "model's matrix products alone.",
        percent=True,
        from_zero=True,
    )
    return drawn.curves


class _Drawn:
    """Curves of a log; what the log does not have is left out."""

    def __init__(self, log: Sequence[LogRow], held_out: str = "held-out") -> None:
        self.log, self.held_out = log, held_out
        self.curves: list[Curve] = []

    def terms(self) -> list[str]:
        """List the terms that have a loss in the log of training."""
        return [name for name in TERMS if series(self.log, f"{name}_loss")[1]]

    def add(
        self,
        title: str,
        key: str,
        caption: str,
        *,
        only_if: Callable[[], bool] = lambda: True,
        over: bool = True,
        **options: Any,
    ) -> None:
        """Draw `key`, and ``eval_`` + `key` over it if `over`; `options` are those of
        :func:`bertine.reports.plots.curve`."""
        steps, values = series(self.log, key)
        overlay: tuple[list[float], list[float]] = ([], [])
        if over:
            overlay = series(self.log, f"eval_{key}")
        if not only_if() or not (values or overlay[1]):
            return
        if not values:
            steps, values = overlay
            overlay = ([], [])
            options["noisy"] = False
            caption += f" On the {self.held_out} text."
        svg = curve(
            steps,
            values,
            overlay=overlay if overlay[1] else None,
            names=("training", self.held_out),
            **options,
        )
        self.curves.append(Curve(title, caption, svg))
