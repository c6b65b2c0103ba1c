"""Draw the curves of a training run for its page: of pre-training and of fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from bertine.core.console import Shown, plural
from bertine.core.loss_names import OF_TEACHERS, TERMS, TermTexts, guessing
from bertine.core.scores import is_share, score_name
from bertine.reports.html import Figure
from bertine.reports.plots import curve
from bertine.reports.run_files import LogRow, series, task_loss

#: The name of the term on labels where it is the only one of a distilled task.
_LABELS = "labels"
#: The unit of the accuracy in fine-tuning, by the task; examples for other tasks.
_RIGHT = {
    "tagging": "Words with the right tag",
    "spans": "Windows of which both ends of the answer are found",
}


@dataclass(repr=False)
class Curves(Shown):
    """The curves of a run, which a notebook draws.

    Attributes:
        figures: each with its picture, in SVG.
        page: the page of the run, which has the same.
    """

    figures: Sequence[Figure]
    page: Path

    def lines(self) -> list[str]:
        """Name the curves and the page that has them."""
        return [*(f"{figure.title}: {figure.caption}" for figure in self.figures), str(self.page)]

    def _repr_html_(self) -> str:
        """Return the pictures in a row, as HTML."""
        shown = (
            f'<figure style="display: inline-block; width: 22em; margin: 0.5em">{figure.markup}'
            f"<figcaption>{escape(figure.title)}</figcaption></figure>"
            for figure in self.figures
        )
        return f"<div>{''.join(shown)}</div>"


def pretraining_curves(log: Sequence[LogRow], facts: Mapping[str, Any]) -> list[Figure]:
    """Draw the loss and the accuracy of each term, with the held-out curve over it where there is
    one, and the curves of :func:`machine_curves`.

    Args:
        log: lines of ``log.jsonl`` (:func:`bertine.reports.run_files.pretraining_names`); a curve
            whose key no line has is left out.
        facts: the facts of the run; ``unigram_entropy`` in nats is drawn as a line.
    """
    figures = []
    for name in TERMS:
        figures += term_curves(log, name, facts.get("unigram_entropy"))
    if sum(bool(series(log, f"{name}_loss")[1]) for name in TERMS) > 1:
        caption = "What is minimized: the sum of these losses, each with its weight."
        # Held-out text has no teacher.
        held_out = "" if "distillation" in facts else "held-out"
        figures += _curve(log, "Loss", "loss", caption, held_out=held_out)
    return figures + machine_curves(log, facts)


def term_curves(log: Sequence[LogRow], name: str, entropy: float | None) -> list[Figure]:
    """Draw the loss and the accuracy of the term `name`, with their reference values.

    Args:
        entropy: the entropy of the frequencies of the store's tokens, in nats; None: it is not
            known.
    """
    term = TERMS[name]
    caption, reference, label = term.loss, None, ""
    if term.words and entropy is not None:
        caption += (
            " The dashed line is the entropy of the token frequencies: well below it, the model "
            "uses the context."
        )
        reference, label = entropy, f"unigram entropy {entropy:.2f}"
    chance: dict[str, Any] = {"from_zero": True}
    # If a share changes during training, the accuracy of guessing at the end.
    shares = series(log, f"{name}_{term.rarer}")[1] if term.rarer else []
    by_frequency = guessing(term, shares[-1] if shares else None)
    if by_frequency is not None:
        caption += " The dashed line is guessing."
        reference, share = by_frequency
        label = f"guessing {reference:.2f}"
        chance = {"reference": share, "reference_label": f"guessing {share:.0%}"}
    line: dict[str, Any] = {"reference": reference, "reference_label": label}
    return [
        *_curve(log, f"{term.title} loss", f"{name}_loss", caption, **line),
        *_curve(
            log, f"{term.title} accuracy", f"{name}_accuracy", term.accuracy, percent=True, **chance
        ),
        *_rarer(log, name, term),
    ]


def _rarer(log: Sequence[LogRow], name: str, term: TermTexts) -> list[Figure]:
    """Draw the number of targets with the rarer answer, and the share of these that is detected."""
    if term.rarer is None:
        return []
    key, detected = f"{name}_{term.rarer}", f"{name}_detected"
    caption = f"Share of the {term.targets} that are {term.rarer}."
    figures = _curve(log, f"{term.title}: {term.rarer}", key, caption, percent=True, from_zero=True)
    of_all = dict(zip(*series(log, key), strict=True))
    shares = [
        {"step": step, detected: number / of_all[step]}
        for step, number in zip(*series(log, detected), strict=True)
        if of_all.get(step, 0.0) > 0.0
    ]
    caption = f"Share of the {term.rarer} {term.targets} that the model says are {term.rarer}."
    return figures + _curve(
        shares, f"{term.title}: detected", detected, caption, percent=True, from_zero=True
    )


def finetuning_curves(log: Sequence[LogRow], facts: Mapping[str, Any]) -> list[Figure]:
    """Draw loss and accuracy in training, with those on the validation examples over them where
    both measure the same, the other validation scores, and the curves of :func:`machine_curves`.
    For a distilled task loss and accuracy are those on the labels, and the loss of all terms and
    the terms of the teacher are drawn as well."""
    info = facts.get("labels_and_columns")
    task = info.get("name") if isinstance(info, Mapping) else facts.get("task")
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
    figures: list[Figure] = []
    title, before = "Loss", ""
    distillation = facts.get("distillation")
    options: dict[str, Any] = {"from_zero": True, "held_out": ""}
    if (own := task_loss(log)) != "loss":
        title, before = "Loss of the task", own.removesuffix("loss")
        minimized = "What is minimized: the loss of the task and that of the next token of its "
        minimized += "inputs, with its weight."
        figures += _curve(log, "Loss of both", "loss", minimized, **options)
        words = "Mean cross-entropy of each token of an input given those before it, in nats."
        figures += _curve(log, "LM loss", "lm_loss", words, **options)
    if isinstance(distillation, Mapping):
        log = _with_terms(log, _LABELS if distillation.get("label_weight") else "soft")
        terms = _terms_in(log)
        before = next((f"{name}_" for name in terms if name not in TERMS), "")
        title = "Loss on labels"
        caption = caption.replace("an example", "an example with a label", 1)
        if len(terms) > 1:
            minimized = "What is minimized: the losses on labels, on the teacher's answers and on "
            minimized += "its layers, as far as there are any, each with its weight."
            figures += _curve(log, "Loss of all terms", "loss", minimized, **options)
    of_loss, right = f"{before}loss", f"{before}accuracy"
    validation: dict[str, Any] = {"held_out": "validation"}
    known = set[str]()
    if before or distillation is None:
        over = {**validation, "judged": "eval_loss"}
        figures += _curve(log, title, of_loss, caption, from_zero=True, **over)
        known = {"eval_loss"}
    if known and series(log, right)[1]:
        known |= {"eval_accuracy"}
    if task == "multi-label":
        # In training, of single decisions; in validation, of examples whose decisions are all
        # right.
        known -= {"eval_accuracy"}
        caption = "Decisions in training, one for each label of an example, that are right."
        figures += _curve(log, "Right decisions", right, caption, percent=True, held_out="")
    elif "eval_accuracy" in known:
        caption = f"{_RIGHT.get(str(task), 'Examples answered right')}."
        over = {**validation, "judged": "eval_accuracy"}
        figures += _curve(log, "Accuracy", right, caption, percent=True, **over)
    keys = dict.fromkeys(key for row in log for key in row if key.startswith("eval_"))
    for key in keys:
        if key not in known:
            name = score_name(key.removeprefix("eval_"))
            caption = "On the validation examples."
            if task == "multi-label" and key == "eval_accuracy":
                caption = "Validation examples of which all labels are right."
            title = name[:1].upper() + name[1:]
            figures += _curve(log, title, key, caption, noisy=False, percent=is_share(key))
    for name in OF_TEACHERS:
        figures += term_curves(log, name, None)
    return figures + machine_curves(log, facts)


def _terms_in(log: Sequence[LogRow]) -> list[str]:
    """Return the terms with a loss of their own in the log of a distilled task: that on labels,
    named like the head, and the teacher's."""
    keys = (key for row in log for key in row if key.endswith("_loss"))
    return [*dict.fromkeys(k.removesuffix("_loss") for k in keys if not k.startswith("eval_"))]


def _with_terms(log: Sequence[LogRow], single: str) -> Sequence[LogRow]:
    """Return the log of a distilled task with the numbers of its `single` term under that name,
    where it has only one."""
    if _terms_in(log):
        return log
    names = ("loss", "accuracy")
    return [
        {**row, **{f"{single}_{name}": row[name] for name in names if name in row}} for row in log
    ]


def machine_curves(log: Sequence[LogRow], facts: Mapping[str, Any]) -> list[Figure]:
    """Draw learning rate, gradient norm, tokens per second and share of the machine's peak."""
    clip = facts.get("max_grad_norm") or None
    warmup = facts.get("warmup_steps")
    schedule = f"Schedule: {facts['schedule']}" if facts.get("schedule") else "As scheduled"
    if isinstance(warmup, int):
        schedule += f", {plural(warmup, 'step')} of warm-up"
    rate = _curve(
        log, "Learning rate", "learning_rate", f"{schedule}.", from_zero=True, noisy=False
    )
    norm = _curve(
        log,
        "Gradient norm",
        "grad_norm",
        "Before clipping, of the step that is logged, on a logarithmic axis."
        + (f" Gradients above {clip:g} are scaled down to it." if clip else ""),
        reference=clip,
        reference_label=f"clipped to {clip or 0:g}",
        log_scale=True,
    )
    speed = _curve(
        log,
        "Speed",
        "tokens_per_second",
        "Real tokens a second, padding not counted.",
        from_zero=True,
    )
    share = _curve(
        log,
        "Share of the ceiling",
        "share_of_ceiling",
        "Useful arithmetic a second, as a share of the rate at which this machine does the "
        "model's matrix products alone.",
        percent=True,
        from_zero=True,
    )
    return rate + norm + speed + share


def _curve(
    log: Sequence[LogRow],
    title: str,
    key: str,
    caption: str,
    *,
    held_out: str = "held-out",
    judged: str = "",
    **options: Any,
) -> list[Figure]:
    """Draw `key`, with ``eval_`` + `key` over it; nothing where the log has neither.

    Args:
        held_out: the name of the text or the examples of the evaluation; "": the two are not
            compared.
        judged: the key of the evaluation, where it is not ``eval_`` + `key`.
        options: the options of :func:`bertine.reports.plots.curve`.
    """
    steps, values = series(log, key)
    overlay = series(log, judged or f"eval_{key}") if held_out else ([], [])
    if not values and overlay[1]:
        (steps, values), overlay = overlay, ([], [])
        options["noisy"] = False
        caption += f" On the {held_out} text."
    if not values:
        return []
    names = ("training", held_out)
    svg = curve(steps, values, overlay=overlay if overlay[1] else None, names=names, **options)
    return [Figure(title, svg, f"{title} by step", caption)]
