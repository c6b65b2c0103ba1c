"""Diagnose training runs: stalled, diverged, overfitted, too short, repeated or duplicated text.

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

from bertine.core.loss_names import TERMS, TermTexts, main_term, terms_among
from bertine.core.loss_names import guessing as guessing_of
from bertine.reports.findings import (
    FEW,
    Finding,
    LogView,
    Severity,
    context_floor,
    last_third,
    mean,
    noise,
    rounded,
)
from bertine.reports.finetuning_checks import finetuning_findings, with_command
from bertine.reports.finetuning_evidence import Evidence
from bertine.reports.run_files import LogRow, pretraining_names

#: A mean within this many nats of a level counts as at that level: the mean of a few thousand
#: masked tokens is that exact, and a model that learns from context passes it within a few lines.
AT_LEVEL = 0.05
#: A loss that falls by more than this from the first to the second half of the last third is still
#: falling, not stalled. On the long plateaus that small batches cause it falls at half of that
#: rate.
_ON_ITS_WAY = 0.1
#: The paper's rate is 1e-4; small models take ten times that, and beyond it few runs are stable.
_HIGH_RATE = 1e-3
#: An accuracy that exceeds guessing by no more than this counts as guessing, once enough sequences
#: have been seen that the standard error (at most 0.5 / sqrt(2500) = 0.01) is half of that.
_GUESSING, _GUESSED = 0.02, 2500
#: A model that guesses detects less than this share of the targets with the rarer of two answers:
#: none of them seems likely enough. A model that has begun to learn detects some at once.
_DETECTED = 0.02
#: A gradient norm is a spike at this multiple of the median around it. Healthy norms scatter by a
#: factor of two; under a lognormal scatter of 30% ten times the median is 7 deviations away.
_SPIKE = 10.0
#: Nats that twice the steps would gain, from the slope over the second half of the log: 0.3 lower
#: the perplexity by a quarter. A well-trained BERT gains about 0.1 from its last doubling.
_FALLING = 0.3
#: The slope must exceed that by this many standard errors. A healthy slope is half of it at most,
#: so that noise would have to be four standard errors and more.
_ERRORS = 2.0
#: Share of documents that are copies of others: from the first bound on it is worth dropping them,
#: from the second one on the corpus is mostly copies.
_COPIES, _MOSTLY_COPIES = 0.2, 0.5
#: BERT saw its corpus about 40 times (paper, appendix A.2); beyond that, repeated text gains next
#: to nothing (Muennighoff et al. 2023, arXiv 2305.16264, section 6).
_EPOCHS = 40


def stalled(view: LogView) -> Iterator[Finding]:
    """Detect a loss that shows no use of context, or not even of frequencies."""
    third = last_third(view, view.loss_key)
    entropy, floor = view.fact("unigram_entropy"), context_floor(view)
    # With a floor of 0 every chosen token is left in place, and copying is all there is to learn.
    if third is None or entropy is None or not floor:
        return
    steps, loss = third
    level, half = mean(loss), len(loss) // 2
    if level < floor - AT_LEVEL or mean(loss[:half]) - mean(loss[half:]) > _ON_ITS_WAY:
        return
    level_text = f"{view.loss_name} {level:.2f} from step {int(steps[0]):,} to {int(steps[-1]):,}"
    if level > entropy + AT_LEVEL:
        yield Finding(
            "above-unigram-entropy",
            "warning",
            f"{level_text} is {level - entropy:.2f} nats above the unigram entropy {entropy:.2f} "
            "and does not fall: the model does not even know how frequent each piece is. "
            f"{_rate_advice(view)}; with text of another kind than the vocabulary's or the "
            "model's own, look at it with 'bertine inspect'",
        )
        return
    if level > entropy - AT_LEVEL:
        where = f"is at the unigram entropy {entropy:.2f}: it knows how frequent each piece is"
    else:
        where = (
            f"(unigram entropy {entropy:.2f}) is what frequencies and repeating the pieces left "
            f"in place give (from {floor:.2f} on)"
        )
    shorter = ""
    length = view.fact("max_seq_length")
    if length is not None and length > 64:
        shorter = f"begin with sequences shorter than {length:.0f} (--max-seq-length 32 or 64); "
    yield Finding(
        "stalled",
        "warning",
        f"{level_text} {where}, but uses no context yet. Small batches stay here for their first "
        "thousands of steps (often 1,000 to 10,000) and then leave suddenly. If it lasts: "
        f"{shorter}{_rate_advice(view)}; use larger batches; train longer",
    )


def _rate_advice(view: LogView) -> str:
    """Advise on the rate: a higher one helps to leave a plateau, as long as training is stable."""
    rate = view.fact("learning_rate")
    if rate is None:
        return "raise the learning rate"
    if rate < _HIGH_RATE:
        return f"raise the learning rate ({rate:.2g}) two to five times"
    return f"try half and twice the learning rate ({rate:.2g})"


def guessing(view: LogView) -> Iterator[Finding]:
    """Find terms with few choices, other than the watched one, at chance although the watched loss
    is below the frequencies."""
    for name, term in TERMS.items():
        if name != view.watched and term.choices is not None:
            yield from _guessing(view, name, term, 1 / term.choices)
        if term.rarer is not None:
            yield from _guessing_shares(view, name, term)


def _guessing(view: LogView, name: str, term: TermTexts, chance: float) -> Iterator[Finding]:
    """Detect an accuracy at chance, for a term with few choices."""
    third, floor = last_third(view, f"{name}_accuracy"), context_floor(view)
    main, batch = last_third(view, view.loss_key), view.fact("batch_size")
    if third is None or main is None or floor is None or batch is None:
        return
    steps, accuracy = third
    count = batch * (steps[-1] - steps[0]) * len(steps) / max(1, len(steps) - 1)
    level, loss = mean(accuracy), mean(main[1])
    if count < _GUESSED or level >= chance + _GUESSING or loss > floor - AT_LEVEL:
        return
    yield Finding(
        f"{name}-at-chance",
        "warning",
        f"{term.title} accuracy {level:.1%} over the last {rounded(count)} {term.targets} "
        f"(from step {int(steps[0]):,} on) is guessing, while the {view.loss_name} has come "
        f"down to {loss:.2f}. {term.title} starts later than {view.term.title}: train longer. "
        "If it lasts: check that documents are "
        "running text and not one sentence each ('bertine inspect STORE'), use sequences of "
        f"64 tokens or more, or train with {view.term.title} alone",
    )


def _guessing_shares(view: LogView, name: str, term: TermTexts) -> Iterator[Finding]:
    """Detect that almost none of the targets with a term's rarer answer are detected. The loss
    alone does not show it: it falls a little below that of a model that knows their share once the
    model knows where there are none (special tokens are never replaced)."""
    third, shares = last_third(view, f"{name}_detected"), last_third(view, f"{name}_{term.rarer}")
    main, losses = last_third(view, view.loss_key), last_third(view, f"{name}_loss")
    floor = context_floor(view)
    if third is None or shares is None or main is None or losses is None or floor is None:
        return
    steps, detected = third
    share, loss = mean(shares[1]), mean(main[1])
    by_share = guessing_of(term, share)
    recall = mean(detected) / max(share, 1e-12)
    if by_share is None or recall >= _DETECTED or loss > floor - AT_LEVEL:
        return
    yield Finding(
        f"{name}-at-chance",
        "warning",
        f"from step {int(steps[0]):,} on {recall:.1%} of the {term.rarer} {term.targets} were "
        f"detected, which are {share:.1%} of all ({term.title} loss {mean(losses[1]):.3f}; knowing "
        f"their share alone gives {by_share[0]:.3f}), while the {view.loss_name} has come down to "
        f"{loss:.2f}. {term.title} starts later than {view.term.title}: train longer. If it "
        f"lasts: {_rate_advice(view)}, or take a smaller generator (--generator-size), whose "
        "words are easier to detect",
    )


def spikes(view: LogView) -> Iterator[Finding]:
    """Find gradient norms far above their neighbours. For pre-training only: late in fine-tuning
    most examples are right, and the few that are not cause large gradients among small ones."""
    steps, norms = view.points("grad_norm", view.warm)
    if len(norms) < 2 * FEW:
        return
    reach = max(5, len(norms) // 20)
    around = np.array(
        [np.median(norms[max(0, i - reach) : i + reach + 1]) for i in range(len(norms))]
    )
    spikes = norms > _SPIKE * around
    if not spikes.any():
        return
    worst = int((norms / np.maximum(around, 1e-30)).argmax())
    count = int(spikes.sum())
    yield Finding(
        "gradient-spikes",
        "warning",
        f"the gradient norm is {norms[worst]:.3g} at step {int(steps[worst]):,}, "
        f"{norms[worst] / around[worst]:.0f} times that of its neighbours; "
        f"{count} of {len(norms)} logged steps are like that. Lower the learning rate, clip "
        "lower (--max-grad-norm), or use --adam-beta2 0.98",
    )


def falling(view: LogView) -> Iterator[Finding]:
    """Detect that the run ended while the loss was still falling clearly."""
    wanted, floor = view.fact("steps"), context_floor(view)
    if wanted is None or view.last_step < wanted or floor is None:
        return
    steps, loss = view.points(view.loss_key, max(view.warm, view.begin))
    late = steps > view.begin + (view.last_step - view.begin) / 2
    steps, loss = steps[late], loss[late]
    if len(loss) < 2 * FEW:
        return
    doublings = np.log2(steps)
    slope = float(np.polyfit(doublings, loss, 1)[0])
    error = noise(loss) / (float(doublings.std()) * math.sqrt(len(loss)))
    if -slope - _ERRORS * error < _FALLING:
        return
    yield Finding(
        "still-falling",
        "advice",
        f"the {view.loss_name} was still falling at the end, over the second half by "
        f"{-slope:.2f} nats for a doubling of the steps (to {mean(loss[-3:]):.2f}): train "
        f"longer, about {2 * int(wanted):,} steps",
    )


def epochs(view: LogView) -> Iterator[Finding]:
    """Detect text that was seen too often."""
    # By tokens, as sequences of different lengths give epochs of different sizes.
    tokens, (_, total) = view.fact("num_tokens"), view.points("tokens")
    if not tokens or not len(total):
        return
    epochs = float(total[-1]) / tokens
    if epochs <= _EPOCHS:
        return
    yield Finding(
        "many-epochs",
        "warning",
        f"the text was seen {epochs:,.0f} times ({rounded(tokens)} tokens in the store): "
        f"beyond {_EPOCHS} times, repeated text brings next to nothing; use more text, a "
        "smaller model or fewer steps, and watch the loss on held-out text",
    )


def copies(view: LogView) -> Iterator[Finding]:
    """Detect many documents that are copies of others."""
    share = view.fact("duplicate_share")
    if share is None or share < _COPIES:
        return
    mostly = share >= _MOSTLY_COPIES
    yield Finding(
        "duplicates",
        "warning",
        f"{share:.0%} of the documents are copies of others, or nearly"
        + (": the corpus is mostly duplicates" if mostly else "")
        + "; the model learns them by heart and the loss looks better than it is. Prepare the "
        "store again without them (--drop-duplicates, --near-duplicates drop)",
    )


# All runs: diverged, overfitted, a short warm-up, a falling speed.

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
            saved model, ``constant_loss``, ``baselines``, ``data``.
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
    return _each_command_once(sorted(findings, key=lambda finding: order.index(finding.severity)))


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
