"""Every size and rate of the hour, as data. What each was worth stands in docs/hour.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bertine.names import PairReading


@dataclass(frozen=True)
class GlueRun:
    """How a task is fine-tuned, and the one metric it is judged by here.

    Attributes:
        metric: its name in the scores of ``bertine.finetune``.
        epochs: passes over the training set, where all weights are trained.
        frozen: of the pre-trained model the head alone is fitted, which has nothing random in it.
        pairs: how two texts are read, as ``bertine.finetune`` has it.
    """

    task: str
    metric: str
    epochs: int
    frozen: bool = False
    pairs: PairReading = "joined"


#: What the model is judged by: the mean of these, times 100. Whether all weights are trained or the
#: head alone was chosen on a part of the training sets (docs/hour.md).
TASKS = (
    GlueRun("CoLA", "matthews", 10),
    GlueRun("SST-2", "accuracy", 3),
    GlueRun("MRPC", "f1", 3, frozen=True),
    GlueRun("STS-B", "spearman", 5, pairs="apart"),
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
    "objective": "mlm",
    "input_format": "doc-sentences",
    "masked_lm_prob": 0.3,
    "optimizer": "muon",
    "warmup_ratio": 0.03,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    # A whole batch at once: two threads then compute longer between their meetings.
    "max_tokens_per_micro_batch": 16_384,
    "log_every": 50,
}

#: Sentences of one document, short at first, since a step then costs less, and at last longer, for
#: texts of that length. No pairs: how two texts are compared is learned with the task, from their
#: vectors and words.
PHASES = (
    Phase(
        "short-sequences",
        0.85,
        {"max_seq_length": 64, "batch_size": 128, "learning_rate": 4e-3, **_ALL},
    ),
    Phase(
        "longer-sequences",
        0.15,
        {"max_seq_length": 128, "batch_size": 64, "learning_rate": 1e-3, **_ALL},
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
