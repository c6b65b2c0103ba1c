"""Find what goes wrong in pre-training: stalled, guessing, spikes, too short, repeated, copied.

Bounds are set so that the noise of a healthy log does not reach them; the comment on each gives the
reason. Losses are in nats, accuracies shares of 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bertine.core.loss_names import TERMS, TermTexts
from bertine.core.loss_names import guessing as guessing_of
from bertine.reports.findings import (
    FEW,
    Finding,
    LogView,
    context_floor,
    last_third,
    mean,
    noise,
    rounded,
)

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
