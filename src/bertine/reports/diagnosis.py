"""Diagnose training runs: list what went wrong, in all runs and by kind of run.

:func:`diagnose` lists the findings of a run with their figures and what to try. A healthy run has
none: the bounds are set so that the noise of a healthy log does not reach them, and the comment on
each gives the reason. Losses are in nats, accuracies shares of 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bertine.core.loss_names import main_term, terms_among
from bertine.reports.findings import (
    Finding,
    LogView,
    Severity,
    mean,
    noise,
)
from bertine.reports.finetuning_checks import finetuning_findings, with_command
from bertine.reports.finetuning_evidence import Evidence
from bertine.reports.pretraining_checks import copies, epochs, falling, guessing, spikes, stalled
from bertine.reports.run_files import LogRow, pretraining_names

# Bounds of the checks of all runs: diverged, overfitted, a short warm-up, a falling speed.

#: The rise of the loss above its lowest level: in nats, as a share of the total fall, and in
#: standard errors; all three must be exceeded. Means of a tenth of a healthy log differ by less
#: than 0.1 nats upward; a loss that is 0.3 nats up has lost a quarter of its perplexity.
_RISE, _RISE_SHARE, _RISE_ERRORS = 0.3, 0.1, 5.0
#: The rise of the held-out loss above its minimum while the training loss falls: in nats, and as a
#: share.
_OVERFIT, _OVERFIT_SHARE = 0.05, 0.02
#: Tokens per second at the end, as a share of those at the beginning: below that, by this many
#: standard errors and with quarters that do not overlap, something slows the machine down.
_SLOWER, _SLOWER_ERRORS = 0.8, 3.0


def diagnose(log: Iterable[LogRow], facts: Mapping[str, Any]) -> list[Finding]:
    """List the findings of a run, the gravest first, each command once; nothing for a healthy run.

    Args:
        log: the lines of ``log.jsonl``, those of one step together or apart, in order; keys may be
            missing, and findings that need them are then left out.
        facts: of the run, any of them missing: the settings in its ``run.json`` (``steps``,
            ``warmup_steps``, ``learning_rate``, ``batch_size``, ``max_seq_length``, ``num_tokens``,
            ``mask_split``, ``unigram_entropy`` in nats, ``task``), and ``phase_starts``: the steps
            after which another sequence length began; ``duplicate_share``: share of the documents
            that are copies of others; for fine-tuning the facts that
            :meth:`bertine.reports.run_files.RunFolder.facts` adds: ``final``, the report on the
            saved model, ``constant_loss``, ``baselines``, ``data``; ``python``: whether a Python
            program has started the run, so that calls are named in place of commands.
    """
    rows = list(log)
    facts = dict(facts)
    if "unigram_entropy" not in facts:
        carried = [row["unigram_entropy"] for row in rows if "unigram_entropy" in row]
        facts |= {"unigram_entropy": carried[-1]} if carried else {}
    pretraining = "task" not in facts and (
        "unigram_entropy" in facts or any(terms_among(row) for row in rows)
    )
    if pretraining:
        rows = list(pretraining_names(rows, main_term(facts.get("objective"))))
        view = LogView(rows, facts, pretraining=True)
        findings = [*_not_finite(view)] or [*_diverged(view)]
        for check in (stalled, guessing, spikes):
            findings += check(view)
        if not findings:
            findings += falling(view)
        for check in (epochs, copies, _overfitting, _warmup, _slower):
            findings += check(view)
    else:
        view = Evidence(rows, facts)
        findings = [*_not_finite(view), *finetuning_findings(view), *_warmup(view), *_slower(view)]
        findings = [with_command(finding, view) for finding in findings]
    order: list[Severity] = ["fault", "warning", "advice"]
    findings = _each_command_once(
        sorted(findings, key=lambda finding: order.index(finding.severity))
    )
    return [finding.for_python() for finding in findings] if facts.get("python") else findings


def _each_command_once(findings: Iterable[Finding]) -> list[Finding]:
    """Remove a command from findings if an earlier one has it."""
    kept: list[Finding] = []
    for finding in findings:
        known = finding.command and finding.command in {item.command for item in kept}
        kept.append(replace(finding, command="", call="") if known else finding)
    return kept


def _not_finite(view: LogView) -> Iterator[Finding]:
    """Find the first loss or gradient that is not finite."""
    for row in view.log:
        for key, value in row.items():
            watched = key.endswith(("loss", "grad_norm")) and isinstance(value, float)
            if watched and not math.isfinite(value):
                yield Finding(
                    "not-finite",
                    "fault",
                    f"{key} is {value} at step {row['step']:,}: the run is lost from there on; "
                    "resume from an earlier checkpoint or start again with a lower learning rate "
                    "or --precision fp32",
                )
                return


def _diverged(view: LogView) -> Iterator[Finding]:
    """Detect a loss that is well above its lowest level in this phase."""
    for key, name in view.watched_losses.items():
        yield from _rise(view, key, name)


def _rise(view: LogView, key: str, name: str) -> Iterator[Finding]:
    """Detect a rise of the loss `key`, called `name`."""
    steps, loss = view.points(key, view.begin)
    window = max(5, len(loss) // 10)
    if len(loss) < 2 * window:
        return
    levels = np.convolve(loss, np.ones(window) / window, "valid")
    best = int(levels.argmin())
    low, now = float(levels[best]), float(levels[-1])
    error = noise(loss) * math.sqrt(2 / window)
    bound = max(_RISE, _RISE_SHARE * (float(levels[0]) - low), _RISE_ERRORS * error)
    if now - low <= bound:
        return
    lowest = int(steps[min(best + window // 2, len(steps) - 1)])
    # The lowest level often lasts long: the rise begins at its end.
    end = int(np.flatnonzero(levels <= low + bound / 4)[-1]) + window - 1
    rates = dict(zip(*(values.tolist() for values in view.points("learning_rate")), strict=True))
    rate = rates.get(float(lowest))
    peak = max(rates.values(), default=0.0)
    rising = rate is not None and rate < 0.95 * peak and lowest <= view.warm
    text = (
        f"the {name} rose from {low:.2f} about step {int(steps[end]):,} to {now:.2f} "
        f"at step {view.last_step:,}: training diverges. "
    )
    if rising:
        text += (
            f"It was lowest while the learning rate was still rising, at {rate:.2g} of "
            f"{peak:.2g}: use a rate of about {rate:.2g}"
        )
    else:
        text += f"Halve the learning rate{f' ({peak:.2g})' if peak else ''}"
    _, norms = view.points("grad_norm", view.begin)
    if len(norms) >= 2 * window:
        before, after = float(np.median(norms[:-window])), float(np.median(norms[-window:]))
        if after > 3 * before:
            text += f" (the gradient norm went from {before:.2g} to {after:.2g})"
    if not view.fact("warmup_steps"):
        text += ", warm it up over the first 1% to 10% of the steps"
    text += ", and go on from a checkpoint before the rise or start again"
    yield Finding("diverged", "fault", text)


def _overfitting(view: LogView) -> Iterator[Finding]:
    """Detect a held-out loss that rises while the training loss falls."""
    for key, name in view.watched_losses.items():
        yield from _held_out_rise(view, key, name if len(view.watched_losses) > 1 else "loss")


def _held_out_rise(view: LogView, key: str, name: str) -> Iterator[Finding]:
    """Detect that the loss `key`, called `name`, rises on held-out text and falls in training."""
    steps, held = view.points(f"eval_{key}", view.begin)
    if len(held) < 3:
        return
    best = int(held.argmin())
    low, now = float(held[best]), float(held[-1])
    bound = max(_OVERFIT, _OVERFIT_SHARE * low)
    # One evaluation above the minimum may be chance; with fixed masks two are not.
    if best >= len(held) - 2 or now - low <= bound or held[-2] - low <= bound / 2:
        return
    logged, loss = view.points(key, view.begin)
    reach = max(1, len(loss) // 20)
    here = int(np.searchsorted(logged, steps[best]))
    then = loss[max(0, here - reach) : here + reach]
    if not len(then) or mean(loss[-reach:]) >= mean(then):
        return
    yield Finding(
        "overfitting",
        "warning",
        f"the held-out {name} was lowest at step {int(steps[best]):,} ({low:.3f}) and is "
        f"{now:.3f} at step {int(steps[-1]):,}, while the training loss fell from "
        f"{mean(then):.3f} to {mean(loss[-reach:]):.3f}: it learns its text by heart. Stop "
        "earlier, use more text, more dropout, or a smaller model",
    )


def _warmup(view: LogView) -> Iterator[Finding]:
    """Detect a learning rate that hardly reached its peak."""
    wanted, peak = view.fact("steps"), view.fact("learning_rate")
    warm = view.fact("warmup_steps")
    if wanted is None or warm is None or not peak or view.last_step < wanted:
        return
    # A warm-up of more than half of the steps is never intended; published recipes take 1% to 10%.
    if warm <= wanted / 2:
        return
    _, rates = view.points("learning_rate")
    reached = float(rates.max()) if len(rates) else min(1.0, wanted / max(warm, 1)) * peak
    yield Finding(
        "warm-up",
        "warning",
        f"warm-up took {warm:,.0f} of {wanted:,.0f} steps: the learning rate reached "
        f"{reached:.2g} of {peak:.2g} and was at its height for little or nothing; warm up "
        "over 1% to 10% of the steps (--warmup-ratio 0.05)",
    )


def _slower(view: LogView) -> Iterator[Finding]:
    """Detect a falling speed."""
    steps, speed = view.points("tokens_per_second", view.begin)
    # The first line includes the time in which memory is first touched and kernels are chosen.
    steps, speed = steps[1:], speed[1:]
    size = len(speed) // 5
    if size < 3:
        return
    first, last = speed[:size], speed[-size:]
    before, after = float(np.median(first)), float(np.median(last))
    if first.min() <= 0 or last.min() <= 0:
        return
    # Relative scatter of a line, and of the median of a fifth (1.25 times that of the mean).
    scatter = float(np.hypot(np.log(first).std(), np.log(last).std()))
    error = 1.25 * scatter / math.sqrt(size)
    if math.log(after / before) + _SLOWER_ERRORS * error >= math.log(_SLOWER):
        return
    if np.quantile(last, 0.75) >= np.quantile(first, 0.25):
        return
    yield Finding(
        "slower",
        "warning",
        f"{before:,.0f} tokens a second until step {int(steps[size - 1]):,}, but {after:,.0f} "
        f"from step {int(steps[-size]):,} on: something else uses the machine, it throttles, "
        "or memory is running out",
    )
