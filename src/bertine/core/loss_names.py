"""Define the names and meanings of the loss terms of pre-training, for logs, pages and checks.

A log names a term's loss ``mlm_loss`` and its accuracy ``mlm_accuracy``; if the loss has one term,
``loss`` and ``accuracy``. Imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TermTexts:
    """The texts that describe one term of a loss and its numbers.

    Attributes:
        title: its name for people, e.g. "MLM".
        loss: what its loss measures, as a sentence.
        targets: the name of the targets, in the plural.
        accuracy: what its accuracy is a share of, as a sentence; empty if it has none.
        right: the same in a few words.
        words: whether the targets are words: then the baseline is the entropy of their frequencies,
            and e to the loss is a perplexity.
        copied: whether some of the words stay in the input and are to be copied (``mask_split``).
        choices: number of possible answers of each target; None: the size of the vocabulary.
        rarer: if there are two answers and one is rarer, its name: logs have the share of targets
            with it (``rtd_replaced``), and the share of those for which it is predicted
            (``rtd_detected``). A model that guesses predicts the other answer for all targets.
        head: the head that computes it, if its name differs.
    """

    title: str
    loss: str
    targets: str
    accuracy: str = ""
    right: str = ""
    words: bool = False
    copied: bool = False
    choices: int | None = None
    rarer: str | None = None
    head: str | None = None


#: Every term of the objectives in :data:`bertine.core.names.OBJECTIVES`, followed by those that a
#: teacher adds (:mod:`bertine.objectives.distillation`).
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
        targets="states",
    ),
    "hidden": TermTexts(
        title="Hidden maps",
        loss="Mean squared difference of the states from the teacher's, the sum over the layers.",
        targets="states",
    ),
    "hidden_mean": TermTexts(
        title="Means of states",
        loss="Mean squared difference of the means of states, the sum over the layers.",
        targets="states",
    ),
    "hidden_variance": TermTexts(
        title="Variances of states",
        loss="Mean difference of the variances of states, the sum over the layers.",
        targets="states",
    ),
    "attention": TermTexts(
        title="Attention maps",
        loss="How far the heads are from looking where the teacher's do, the sum over the layers.",
        targets="scores of attention",
    ),
}
#: The terms that a teacher adds.
OF_TEACHERS = ("soft", "cosine", "hidden", "hidden_mean", "hidden_variance", "attention")
#: The terms of each objective; the first one judges the model.
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
#: The score that chooses models, if it is not the loss of the first term. A detector's own loss
#: falls when its generator gets worse, and the generator's loss says nothing about the detector;
#: training minimizes their weighted sum.
_CHOOSING = {"rtd": "loss"}


def main_term(objective: object) -> str:
    """Return the term that judges runs of an objective; "mlm" if the objective's name is unknown,
    as in old runs."""
    return _terms(objective)[0]


def word_term(objective: object) -> str:
    """Return the term of an objective whose loss is watched in training: the first one whose
    targets are words, because the entropy of their frequencies is a baseline for its loss; the main
    term if no targets are words."""
    words = (name for name in _terms(objective) if TERMS[name].words)
    return next(words, main_term(objective))


def _terms(objective: object) -> tuple[str, ...]:
    return OBJECTIVE_TERMS.get(str(objective), ("mlm",))


def choosing_score(objective: object) -> str:
    """Return the held-out score that chooses models of an objective: the lowest is best."""
    return _CHOOSING.get(str(objective), f"{main_term(objective)}_loss")


def guessing(term: TermTexts, rarer: float | None = None) -> tuple[float, float] | None:
    """Return the loss in nats and the accuracy of guessing by frequencies alone; None if the term
    does not define them, as for words.

    Args:
        term: a term with few possible answers.
        rarer: the share of the targets that have the rarer answer (:attr:`TermTexts.rarer`).
    """
    if term.choices is not None:
        return math.log(term.choices), 1 / term.choices
    if term.rarer is None or rarer is None:
        return None
    shares = [share for share in (rarer, 1 - rarer) if share > 0]
    return -sum(share * math.log(share) for share in shares), max(shares)


def rarer_answers(name: str, scores: Mapping[str, float]) -> tuple[float, float, float] | None:
    """Return, for a term with a rarer answer, the share of targets that have it, the share of these
    that was detected, and the accuracy of guessing; None if the `scores` lack them."""
    share = scores.get(f"{name}_{TERMS[name].rarer}")
    by_frequency = guessing(TERMS[name], share)
    if share is None or by_frequency is None:
        return None
    return share, scores.get(f"{name}_detected", 0.0) / max(share, 1e-12), by_frequency[1]


def terms_among(keys: Collection[str]) -> list[str]:
    """List the terms that have a loss among the keys of a log or the names of scores."""
    return [name for name in TERMS if f"{name}_loss" in keys and name not in OF_TEACHERS]
