"""Every size and rate of the hour, as data. What each was worth stands in docs/results.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GlueRun:
    """How a task is fine-tuned, and the one metric it is judged by here.

    Attributes:
        metric: its name in the scores of ``bertine.finetune``.
        epochs: passes over the training set.
    """

    task: str
    metric: str
    epochs: int


#: What the model is judged by: the mean of these, times 100.
TASKS = (
    GlueRun("CoLA", "matthews", 3),
    GlueRun("SST-2", "accuracy", 1),
    GlueRun("MRPC", "f1", 3),
    GlueRun("STS-B", "spearman", 3),
    GlueRun("RTE", "accuracy", 3),
)

VOCAB: dict[str, Any] = {"vocab_size": 8192}

#: Of ``bertine.pretrain``; the time is what vocabulary and preparation leave of the hour.
PRETRAIN: dict[str, Any] = {
    "objective": "mlm-nsp",
    "max_seq_length": 64,
    "long_seq_length": 128,
    "long_share": 0.3,
    "batch_size": 32,
    "learning_rate": 1.5e-3,
    "warmup_ratio": 0.06,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    "log_every": 50,
}

#: Of ``bertine.finetune``, for both models.
FINETUNE: dict[str, Any] = {
    "batch_size": 32,
    "learning_rate": 3e-4,
    "max_length": 128,
    "dropout": 0.1,
    "log_every": 100,
}
