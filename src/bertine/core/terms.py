"""Say what the terms of the losses of pre-training are called and mean, for logs, pages and checks.

A term's loss stands in a log as ``mlm_loss``, its accuracy as ``mlm_accuracy``; of a loss of one
term as ``loss`` and ``accuracy``. Imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TermTexts:
    """Name one term of a loss, and say what its numbers mean.

    Attributes:
        title: its name for people, e.g. "MLM".
        loss: what its loss is, as a sentence.
        accuracy: what its accuracy is the share of, as a sentence.
        right: the same in a few words.
        targets: what is counted, in the plural.
        words: whether the targets are words, so that the entropy of their frequencies is the line
            to beat, and e to the loss a perplexity.
        copied: whether some of the words are left in place, to be copied (``mask_split``).
        choices: among how many answers each target is one; None: as many as there are words.
        rarer: where there are two answers of which one is rarer, its name: logs have the share of
            the targets that have it (``rtd_replaced``) and of those that have it and get it
            (``rtd_detected``). A model that guesses gives all targets the other answer.
        head: the head that computes it, where that has another name.
    """

    title: str
    loss: str
    accuracy: str
    right: str
    targets: str
    words: bool = False
    copied: bool = False
    choices: int | None = None
    rarer: str | None = None
    head: str | None = None


#: Every term of the objectives in :data:`bertine.core.names.OBJECTIVES`, and, behind them, those
#: that a teacher adds (:mod:`bertine.objectives.distillation`).
TERMS = {
    "mlm": TermTexts(
        title="MLM",
        loss="Mean cross-entropy of the masked tokens, in nats.",
        accuracy="Masked tokens whose best guess is right.",
        right="masked tokens guessed right",
        targets="masked tokens",
        words=True,
        copied=True,
    ),
    "nsp": TermTexts(
        title="NSP",
        loss="Mean cross-entropy of next-sentence prediction, in nats.",
        accuracy="Does the second segment follow the first, or not?",
        right="next sentences predicted correctly",
        targets="pairs",
        choices=2,
    ),
    "sop": TermTexts(
        title="SOP",
        loss="Mean cross-entropy of sentence-order prediction, in nats.",
        accuracy="Do the two segments stand in the order of the text, or swapped?",
        right="sentence orders predicted correctly",
        targets="pairs",
        choices=2,
    ),
    "neighbours": TermTexts(
        title="Neighbours",
        loss="Mean cross-entropy of telling which of the texts in a batch stands beside a text, by "
        "the cosines of their vectors, in nats.",
        accuracy="Of all texts in the batch, is the one with the most similar vector the one that "
        "stands beside it?",
        right="neighbouring texts recognized",
        targets="texts",
    ),
    "rtd": TermTexts(
        title="RTD",
        loss="Mean cross-entropy of replaced-token detection over all tokens, in nats.",
        accuracy="Is the token that of the text, or did the generator put it there?",
        right="tokens classified correctly",
        targets="tokens",
        rarer="replaced",
    ),
    "clm": TermTexts(
        title="LM",
        loss="Mean cross-entropy of each token given those before it, in nats.",
        accuracy="Tokens whose best guess is right.",
        right="next tokens guessed right",
        targets="tokens",
        words=True,
        head="lm",
    ),
    "denoising": TermTexts(
        title="Denoising",
        loss="Mean cross-entropy of each token of the original text given the corrupted one and "
        "the tokens before it, in nats.",
        accuracy="Tokens whose best guess is right.",
        right="tokens of the original guessed right",
        targets="tokens",
        words=True,
        head="lm",
    ),
    "plm": TermTexts(
        title="Permutation LM",
        loss="Mean cross-entropy of the guessed tokens, each given those known before it, in nats.",
        accuracy="Guessed tokens whose best guess is right.",
        right="tokens guessed right",
        targets="guessed tokens",
        words=True,
    ),
    "generator": TermTexts(
        title="Generator MLM",
        loss="Mean cross-entropy of the generator at the tokens that are hidden from it, in nats.",
        accuracy="Hidden tokens of which the generator's best guess is right.",
        right="hidden tokens guessed right by the generator",
        targets="hidden tokens",
        words=True,
        copied=True,
    ),
    "soft": TermTexts(
        title="Soft targets",
        loss="Mean divergence of the student's probabilities from the teacher's, both at the "
        "temperature, times its square; 0 where they agree.",
        accuracy="Where the best guess of the student is that of its teacher.",
        right="best guesses that are the teacher's",
        targets="soft targets",
    ),
    "cosine": TermTexts(
        title="Cosine",
        loss="Mean of 1 - cos between the last states of student and teacher.",
        accuracy="",
        right="",
        targets="states",
    ),
    "hidden": TermTexts(
        title="Hidden maps",
        loss="Mean squared difference of the states from the teacher's, the sum over the layers.",
        accuracy="",
        right="",
        targets="states",
    ),
    "hidden_mean": TermTexts(
        title="Means of states",
        loss="Mean squared difference of the means of states, the sum over the layers.",
        accuracy="",
        right="",
        targets="states",
    ),
    "hidden_variance": TermTexts(
        title="Variances of states",
        loss="Mean difference of the variances of states, the sum over the layers.",
        accuracy="",
        right="",
        targets="states",
    ),
    "attention": TermTexts(
        title="Attention maps",
        loss="How far the heads are from looking where the teacher's do, the sum over the layers.",
        accuracy="",
        right="",
        targets="scores of attention",
    ),
}
#: Those of them that a teacher adds.
OF_TEACHERS = ("soft", "cosine", "hidden", "hidden_mean", "hidden_variance", "attention")
#: The terms of each objective, that by which the model is judged first.
OBJECTIVE_TERMS = {
    "mlm-nsp": ("mlm", "nsp"),
    "mlm": ("mlm",),
    "mlm-sop": ("mlm", "sop"),
    "mlm-neighbours": ("mlm", "neighbours"),
    "rtd": ("rtd", "generator"),
    "clm": ("clm",),
    "denoising": ("denoising",),
    "plm": ("plm",),
}
#: The score by which models are chosen, where it is not the loss of the first term. A detector's
#: own loss falls when its generator gets worse, and the generator's says nothing of the detector;
#: their weighted sum is what is minimized.
_CHOOSING = {"rtd": "loss"}


def main_term(objective: object) -> str:
    """Return the term by which runs of an objective are judged; "mlm" where the name of the
    objective is not known, as in old runs."""
    return _terms(objective)[0]


def word_term(objective: object) -> str:
    """Return the term of an objective whose loss is watched while it trains: the first one whose
    targets are words, since the entropy of their frequencies says what its loss means; the main
    term where no words are guessed."""
    words = (name for name in _terms(objective) if TERMS[name].words)
    return next(words, main_term(objective))


def _terms(objective: object) -> tuple[str, ...]:
    return OBJECTIVE_TERMS.get(str(objective), ("mlm",))


def choosing_score(objective: object) -> str:
    """Return the held-out score by which models of an objective are chosen: the lowest is best."""
    return _CHOOSING.get(str(objective), f"{main_term(objective)}_loss")


def guessing(term: TermTexts, rarer: float | None = None) -> tuple[float, float] | None:
    """Return the loss in nats and the accuracy of a model that guesses by frequencies alone; None
    where the term does not say, as of words.

    Args:
        term: with few answers.
        rarer: the share of the targets that have the rarer answer (:attr:`TermTexts.rarer`).
    """
    if term.choices is not None:
        return math.log(term.choices), 1 / term.choices
    if term.rarer is None or rarer is None:
        return None
    shares = [share for share in (rarer, 1 - rarer) if share > 0]
    return -sum(share * math.log(share) for share in shares), max(shares)


def rarer_answers(name: str, scores: Mapping[str, float]) -> tuple[float, float, float] | None:
    """Return of a term with a rarer answer the share of the targets that have it, which share of
    these was detected, and the accuracy of guessing; None where the `scores` do not say."""
    share = scores.get(f"{name}_{TERMS[name].rarer}")
    by_frequency = guessing(TERMS[name], share)
    if share is None or by_frequency is None:
        return None
    return share, scores.get(f"{name}_detected", 0.0) / max(share, 1e-12), by_frequency[1]


def terms_among(keys: Collection[str]) -> list[str]:
    """List the terms of objectives that have a loss among the keys of a log or the names of
    scores."""
    return [name for name in TERMS if f"{name}_loss" in keys and name not in OF_TEACHERS]
