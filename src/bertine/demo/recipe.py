"""Hold the demo's recipe: every size and rate of ``bertine demo`` in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

#: The layers of the new model.
LAYERS: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
#: The model in the package that is shown beside it, and how long that has read.
BUNDLED_MODEL = "bertine-en"
BUNDLED_TIME = "an hour"


@dataclass(frozen=True)
class DemoRecipe:
    """The sizes and rates of a demo.

    Attributes:
        budget_seconds: for the whole demo. Pre-training gets what the other stages leave of it.
        least_seconds: of pre-training, whatever the budget: with less there is nothing to see.
        labels: labelled passages of each subject that a model is shown.
        draws: times that this is done, each with other passages; scores are means over them.
        vocab_size: pieces of the vocabulary.
        initializer_range: of the random weights that pre-training begins with; its attention is
            arranged as in trained models (:mod:`bertine.models.mimetic`).
        pretraining: options of ``bertine.pretrain``.
    """

    budget_seconds: float
    least_seconds: float
    labels: int
    draws: int
    vocab_size: int
    initializer_range: float
    pretraining: dict[str, Any]


#: In so short a time what counts is how many words are guessed, so 40% are hidden and not 15%, and
#: no time goes to other tasks (docs/results.md, "The demo").
_PRETRAINING: dict[str, Any] = {
    "objective": "mlm",
    "input_format": "doc-sentences",
    "masked_lm_prob": 0.4,
    "max_seq_length": 64,
    "batch_size": 32,
    "learning_rate": 1.5e-3,
    "warmup_ratio": 0.05,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
}

#: What ``bertine demo`` does.
FULL = DemoRecipe(
    budget_seconds=270.0,
    least_seconds=60.0,
    labels=5,
    draws=4,
    vocab_size=4000,
    initializer_range=0.06,
    pretraining=_PRETRAINING,
)

#: What ``bertine demo --fast`` does: every stage, too short to learn much.
FAST = replace(FULL, budget_seconds=45.0, least_seconds=8.0, draws=2, vocab_size=2000)

#: Sentences that the pre-trained models are asked to complete, at {}.
MASKED = (
    "He opened the {} and went out.",
    "She was born in New {}.",
    "The band released its first {} in 1994.",
    "They were married and had three {}.",
    "The town has a {} of about 5,000 people.",
    "Paris is the capital of {}.",
)
