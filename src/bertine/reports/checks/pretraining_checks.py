"""Find what can go wrong in pre-training: stalled, guessing, too short, too little or doubled text.

Every bound says why it is where it is. Losses are in nats, accuracies shares of 1.
"""

from __future__ import annotations

import math

import numpy as np

from bertine.reports.checks.log_view import (
    FEW,
    Finding,
    Seen,
    context_floor,
    last_third,
    mean,
    noise,
    rounded,
)
from bertine.terms import TERMS, TermTexts

#: A mean within so many nats of a level is at that level: the mean of a few thousand masked
#: tokens is that exact, and a model that learns from context passes it within a few lines.
AT_LEVEL = 0.05
#: A loss that falls by more than this from the first to the second half of the last third is on
#: its way, not stalled. On the long plateaus that small batches make it creeps at half of that.
_ON_ITS_WAY = 0.1
#: The paper's rate is 1e-4; small models take ten times that, and beyond it few runs are stable.
_HIGH_RATE = 1e-3
#: An accuracy that is no more than this above guessing counts as guessing, once so many sequences
#: have been seen that the standard error (at most 0.5 / sqrt(2500) = 0.01) is half of that.
_GUESSING, _GUESSED = 0.02, 2500
#: A gradient norm is a spike at so many times the median around it. Healthy norms scatter by a
#: factor of two; under a lognormal scatter of 30% ten times the median is 7 deviations away.
_SPIKE = 10.0
#: Nats that twice the steps would bring, from the slope over the second half of the log: 0.3 take
#: a quarter off the perplexity. A well-trained BERT gains about 0.1 from its last doubling.
_FALLING = 0.3
#: The slope must be above that by so many standard errors. A healthy slope is half of it at most,
#: so that noise would have to be four standard errors and more.
_ERRORS = 2.0
#: Share of documents that are copies of others: from here on it is worth dropping them, from the
#: second bound on the corpus is mostly copies.
_COPIES, _MOSTLY_COPIES = 0.2, 0.5
#: BERT saw its corpus about 40 times (paper, appendix A.2); beyond that, repeated text brings next
#: to nothing (Muennighoff et al. 2023, arXiv 2305.16264, section 6).
_EPOCHS = 40


def stalled(seen: Seen) -> list[Finding]:
    third, entropy, floor = (
        last_third(seen, seen.loss_key),
        seen.fact("unigram_entropy"),
        context_floor(seen),
    )
    if third is None or entropy is None or floor is None:
        return []
    if not floor:
        return []  # every chosen token is left in place: to copy it is all that there is to learn
    steps, loss = third
    level, half = mean(loss), len(loss) // 2
    if level < floor - AT_LEVEL or mean(loss[:half]) - mean(loss[half:]) > _ON_ITS_WAY:
        return []
    told = f"{seen.loss_name} {level:.2f} from step {int(steps[0]):,} to {int(steps[-1]):,}"
    if level > entropy + AT_LEVEL:
        return [
            Finding(
                "above-unigram-entropy",
                "warning",
                f"{told} is {level - entropy:.2f} nats above the unigram entropy {entropy:.2f} "
                "and does not fall: the model does not even know how frequent each piece is. "
                f"{_rate_advice(seen)}; with text of another kind than the vocabulary's or the "
                "model's own, look at it with 'bertine inspect'",
            )
        ]
    if level > entropy - AT_LEVEL:
        where = f"is at the unigram entropy {entropy:.2f}: it knows how frequent each piece is"
    else:
        where = (
            f"(unigram entropy {entropy:.2f}) is what frequencies and repeating the pieces left "
            f"in place give (from {floor:.2f} on)"
        )
    shorter = ""
    length = seen.fact("max_seq_length")
    if length is not None and length > 64:
        shorter = f"begin with sequences shorter than {length:.0f} (--max-seq-length 32 or 64); "
    return [
        Finding(
            "stalled",
            "warning",
            f"{told} {where}, but uses no context yet. Small batches stay here for their first "
            "thousands of steps (often 1,000 to 10,000) and then leave suddenly. If it lasts: "
            f"{shorter}{_rate_advice(seen)}; use larger batches; train longer",
        )
    ]


def _rate_advice(seen: Seen) -> str:
    """More rate helps to leave a plateau, up to where training is no longer stable."""
    rate = seen.fact("learning_rate")
    if rate is None:
        return "raise the learning rate"
    if rate < _HIGH_RATE:
        return f"raise the learning rate ({rate:.2g}) two to five times"
    return f"try half and twice the learning rate ({rate:.2g})"


def guessing(seen: Seen) -> list[Finding]:
    """Find terms beside the main one, with few choices, at chance although the loss of the main
    one has left the frequencies."""
    return [
        finding
        for name, term in TERMS.items()
        if name != seen.main and term.choices is not None
        for finding in _guessing(seen, name, term, 1 / term.choices)
    ]


def _guessing(seen: Seen, name: str, term: TermTexts, chance: float) -> list[Finding]:
    third, floor = last_third(seen, f"{name}_accuracy"), context_floor(seen)
    main, batch = last_third(seen, seen.loss_key), seen.fact("batch_size")
    if third is None or main is None or floor is None or batch is None:
        return []
    steps, accuracy = third
    count = batch * (steps[-1] - steps[0]) * len(steps) / max(1, len(steps) - 1)
    level, loss = mean(accuracy), mean(main[1])
    if count < _GUESSED or level >= chance + _GUESSING or loss > floor - AT_LEVEL:
        return []
    return [
        Finding(
            f"{name}-at-chance",
            "warning",
            f"{term.title} accuracy {level:.1%} over the last {rounded(count)} {term.targets} "
            f"(from step {int(steps[0]):,} on) is guessing, while the {seen.loss_name} has come "
            f"down to {loss:.2f}. {term.title} starts later than {seen.term.title}: train longer. "
            "If it lasts: check that documents are "
            "running text and not one sentence each ('bertine inspect STORE'), use sequences of "
            f"64 tokens or more, or train with {seen.term.title} alone",
        )
    ]


def spikes(seen: Seen) -> list[Finding]:
    """Gradient norms far above their neighbours'. Pre-training only: late in fine-tuning most
    examples are right, and the few that are not make large gradients in small ones."""
    steps, norms = seen.points("grad_norm", seen.warm)
    if len(norms) < 2 * FEW:
        return []
    reach = max(5, len(norms) // 20)
    around = np.array(
        [np.median(norms[max(0, i - reach) : i + reach + 1]) for i in range(len(norms))]
    )
    spikes = norms > _SPIKE * around
    if not spikes.any():
        return []
    worst = int((norms / np.maximum(around, 1e-30)).argmax())
    count = int(spikes.sum())
    return [
        Finding(
            "gradient-spikes",
            "warning",
            f"the gradient norm is {norms[worst]:.3g} at step {int(steps[worst]):,}, "
            f"{norms[worst] / around[worst]:.0f} times that of its neighbours; "
            f"{count} of {len(norms)} logged steps are like that. Lower the learning rate, clip "
            "lower (--max-grad-norm), or use --adam-beta2 0.98",
        )
    ]


def falling(seen: Seen) -> list[Finding]:
    """The run ended while much was still to be had."""
    wanted, floor = seen.fact("steps"), context_floor(seen)
    if wanted is None or seen.last_step < wanted or floor is None:
        return []
    steps, loss = seen.points(seen.loss_key, max(seen.warm, seen.begin))
    late = steps > seen.begin + (seen.last_step - seen.begin) / 2
    steps, loss = steps[late], loss[late]
    if len(loss) < 2 * FEW:
        return []
    doublings = np.log2(steps)
    slope = float(np.polyfit(doublings, loss, 1)[0])
    error = noise(loss) / (float(doublings.std()) * math.sqrt(len(loss)))
    if -slope - _ERRORS * error < _FALLING:
        return []
    return [
        Finding(
            "still-falling",
            "advice",
            f"the {seen.loss_name} was still falling at the end, over the second half by "
            f"{-slope:.2f} nats for a doubling of the steps (to {mean(loss[-3:]):.2f}): train "
            f"longer, about {2 * int(wanted):,} steps",
        )
    ]


def epochs(seen: Seen) -> list[Finding]:
    # By tokens, as sequences of different lengths make epochs of different sizes.
    tokens, (_, total) = seen.fact("num_tokens"), seen.points("tokens")
    if not tokens or not len(total):
        return []
    epochs = float(total[-1]) / tokens
    if epochs <= _EPOCHS:
        return []
    return [
        Finding(
            "many-epochs",
            "warning",
            f"the text was seen {epochs:,.0f} times ({rounded(tokens)} tokens in the store): "
            f"beyond {_EPOCHS} times, repeated text brings next to nothing; use more text, a "
            "smaller model or fewer steps, and watch the loss on held-out text",
        )
    ]


def copies(seen: Seen) -> list[Finding]:
    share = seen.fact("duplicate_share")
    if share is None or share < _COPIES:
        return []
    mostly = share >= _MOSTLY_COPIES
    return [
        Finding(
            "duplicates",
            "warning",
            f"{share:.0%} of the documents are copies of others, or nearly"
            + (": the corpus is mostly duplicates" if mostly else "")
            + "; the model learns them by heart and the loss looks better than it is. Prepare the "
            "store again without them (--drop-duplicates, --near-duplicates drop)",
        )
    ]
