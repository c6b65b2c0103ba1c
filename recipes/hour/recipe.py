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
        learning_rate: its highest value there.
        frozen: of the pre-trained model the head alone is fitted, which has nothing random in it.
        pairs: how two texts are read, as ``bertine.finetune`` has it.
        after_acceptability: it begins with the model that has learned :data:`ACCEPTABILITY`.
    """

    task: str
    metric: str
    epochs: int
    learning_rate: float = 1.5e-4
    frozen: bool = False
    pairs: PairReading = "joined"
    after_acceptability: bool = False


#: What the model is judged by: the mean of these, times 100. Whether all weights are trained or the
#: head alone was chosen on a part of the training sets (docs/hour.md).
TASKS = (
    GlueRun("CoLA", "matthews", 10, after_acceptability=True),
    GlueRun("SST-2", "accuracy", 2, learning_rate=3e-4),
    GlueRun("MRPC", "f1", 3, frozen=True),
    GlueRun("STS-B", "spearman", 5, pairs="apart"),
    GlueRun("RTE", "accuracy", 3, frozen=True),
)

VOCAB: dict[str, Any] = {"vocab_size": 8192}


@dataclass(frozen=True)
class Phase:
    """A pre-training run with a schedule of its own, going on from the model of the one before.

    Attributes:
        share: of the time that vocabulary and preparation leave; what all leave of it is for
            acceptability.
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
        0.8,
        {"max_seq_length": 64, "batch_size": 128, "learning_rate": 4e-3, **_ALL},
    ),
    Phase(
        "longer-sequences",
        0.14,
        {"max_seq_length": 128, "batch_size": 64, "learning_rate": 1e-3, **_ALL},
    ),
)

#: The task made of raw text between pre-training and CoLA (``acceptability.py``): how it is
#: learned, and from how many sentences, for which the shares of the phases leave the time.
ACCEPTABILITY: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 64,
    "learning_rate": 5e-4,
    "dropout": 0.1,
    "max_length": 64,
    "frozen": False,
    "baselines": False,
    "log_every": 100,
    "seed": 0,
}
SENTENCES_PER_MINUTE = 600

#: Of ``bertine.finetune``, for both models.
FINETUNE: dict[str, Any] = {"max_length": 128, "log_every": 100}
#: Where all weights are trained.
TRAINED: dict[str, Any] = {
    "batch_size": 32,
    "dropout": 0.1,
    # The dev set judges the runs, so it may choose neither their weights nor the head alone.
    "save_best": False,
    "frozen": False,
}
