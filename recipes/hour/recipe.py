"""Every size and rate of the hour, as data. What each was worth stands in docs/hour.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GlueRun:
    """How a task is fine-tuned, and the one metric it is judged by here.

    Attributes:
        metric: its name in the scores of ``bertine.finetune``.
        epochs: passes over the training set, where all weights are trained.
        frozen: of the pre-trained model the head alone is fitted, which has nothing random in it.
    """

    task: str
    metric: str
    epochs: int
    frozen: bool = False


#: What the model is judged by: the mean of these, times 100. Whether all weights are trained or the
#: head alone was chosen on a part of the training sets (docs/hour.md).
TASKS = (
    GlueRun("CoLA", "matthews", 10),
    GlueRun("SST-2", "accuracy", 3),
    GlueRun("MRPC", "f1", 3, frozen=True),
    GlueRun("STS-B", "spearman", 10, frozen=True),
    GlueRun("RTE", "accuracy", 3, frozen=True),
)

VOCAB: dict[str, Any] = {"vocab_size": 8192}


@dataclass(frozen=True)
class Phase:
    """A pre-training run with a schedule of its own, going on from the model of the one before.

    Attributes:
        share: of the time that vocabulary and preparation leave.
        options: of ``bertine.pretrain``.
    """

    name: str
    share: float
    options: dict[str, Any]


_ALL: dict[str, Any] = {
    "objective": "mlm-nsp",
    "masked_lm_prob": 0.2,
    "optimizer": "muon",
    "warmup_ratio": 0.03,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    "log_every": 50,
}

#: Pairs from the first step, for the pooled output and for texts in two parts: of sentences, from
#: which a model learns sooner than from long segments how two texts are compared, and at last of
#: long segments, for the positions that sentences do not reach. With weights that are random alone
#: a model did not come to know words from pairs, half of them of two documents, in the 5 and 11
#: million tokens that it was given, and running text had to come first; with heads that begin near
#: those of trained models it begins to after 1.7 million.
PHASES = (
    Phase(
        "sentence-pairs",
        0.88,
        {
            "initialization": "mimetic",
            "input_format": "sentence-pair",
            "max_seq_length": 64,
            "batch_size": 128,
            "learning_rate": 4e-3,
            **_ALL,
        },
    ),
    Phase(
        "segment-pairs",
        0.12,
        {
            "input_format": "segment-pair",
            "max_seq_length": 128,
            "batch_size": 64,
            "learning_rate": 1e-3,
            **_ALL,
        },
    ),
)

#: Of ``bertine.finetune``, for both models.
FINETUNE: dict[str, Any] = {"max_length": 128, "log_every": 100}
#: Where all weights are trained.
TRAINED: dict[str, Any] = {
    "batch_size": 32,
    "learning_rate": 1.5e-4,
    "dropout": 0.1,
    # The dev set judges the runs, so it may choose neither their weights nor the head alone.
    "save_best": False,
    "frozen": False,
}
