"""Every size and rate of the models, as data. What each was worth stands in docs/hour.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from bertine.core.names import PairReading


@dataclass(frozen=True)
class TaskRun:
    """How a task is fine-tuned, and the one metric it is judged by here.

    Attributes:
        name: in the table.
        metric: its name in the scores of ``bertine.finetune``.
        epochs: passes over the training set, where all weights are trained.
        arguments: of ``bertine.finetune``: the task, and what is not as :data:`FINETUNE` has it.
        learning_rate: its highest value there.
        frozen: of the pre-trained model the head alone is fitted, which has nothing random in it.
        pairs: how two texts are read, as ``bertine.finetune`` has it.
        once: it is run with one seed alone, since a run takes long.
        after_acceptability: it begins with the model that has learned :data:`ACCEPTABILITY`.
    """

    name: str
    metric: str
    epochs: int
    arguments: dict[str, Any]
    learning_rate: float = 1.5e-4
    frozen: bool = False
    pairs: PairReading = "joined"
    once: bool = False
    after_acceptability: bool = False


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


@dataclass(frozen=True)
class Recipe:
    """What a model is made of, and what it is judged by.

    Attributes:
        name: of the model.
        minutes: that it takes where nobody says.
        phases: of pre-training.
        tasks: what the model is judged by: the mean of these, times 100.
        prepare: options of ``bertine.prepare``.
        acceptability: whether a copy of the model learns acceptability at the end.
        judged_on: which sets the scores are of.
    """

    name: str
    minutes: float
    phases: tuple[Phase, ...]
    tasks: tuple[TaskRun, ...]
    prepare: dict[str, Any] = field(default_factory=dict)
    acceptability: bool = True
    judged_on: str = "dev sets"

    def of_model(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return what the model depends on, as JSON: where it differs, it is another model."""
        learned = {
            "acceptability": ACCEPTABILITY,
            "sentences_per_minute": SENTENCES_PER_MINUTE,
        }
        return {
            "config": config,
            "vocab": VOCAB,
            "prepare": self.prepare,
            "phases": [asdict(phase) for phase in self.phases],
            **(learned if self.acceptability else {}),
        }

    def of_scores(self) -> dict[str, Any]:
        """Return what the scores of a model depend on besides, as JSON."""
        tasks = [asdict(task) for task in self.tasks]
        return {"tasks": tasks, "finetune": FINETUNE, "trained": TRAINED}


def _glue(name: str) -> dict[str, Any]:
    return {"task": "glue", "glue_task": name}


#: Whether all weights are trained or the head alone was chosen on a part of the training sets
#: (docs/hour.md).
_GLUE = (
    TaskRun("CoLA", "matthews", 10, _glue("CoLA"), after_acceptability=True),
    TaskRun("SST-2", "accuracy", 2, _glue("SST-2"), learning_rate=3e-4),
    TaskRun("MRPC", "f1", 3, _glue("MRPC"), frozen=True),
    TaskRun("STS-B", "spearman", 5, _glue("STS-B"), pairs="apart"),
    TaskRun("RTE", "accuracy", 3, _glue("RTE"), frozen=True),
)

_TOPICS = {"task": "text", "text_columns": ["text"], "label_column": "category"}
_PAIRS = {"task": "text", "text_columns": ["sentence1", "sentence2"], "label_column": "label"}

#: Of the files that ``chinese_tasks.py`` writes.
_CHINESE = (
    TaskRun("topics", "accuracy", 20, _TOPICS, learning_rate=3e-4),
    TaskRun("paraphrases", "accuracy", 8, _PAIRS, learning_rate=3e-4),
    TaskRun("entities", "f1", 8, {"task": "tagging"}, learning_rate=3e-4),
    TaskRun(
        "questions", "f1", 2, {"task": "squad", "max_length": 512}, learning_rate=3e-4, once=True
    ),
)

VOCAB: dict[str, Any] = {"vocab_size": 8192}

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


_SHORT = {"max_seq_length": 64, "batch_size": 128, "learning_rate": 4e-3, **_ALL}
_LONGER = {"max_seq_length": 128, "batch_size": 64, "learning_rate": 1e-3, **_ALL}

#: Which models there are. Sentences of one document, short at first, since a step then costs less,
#: and at last longer, for texts of that length. No pairs: how two texts are compared is learned
#: with the task, from their vectors and words.
_RECIPES = (
    Recipe(
        name="bertine-en",
        minutes=60.0,
        phases=(Phase("short-sequences", 0.8, _SHORT), Phase("longer-sequences", 0.14, _LONGER)),
        tasks=_GLUE,
    ),
    Recipe(
        name="bertine-zh",
        minutes=35.0,
        phases=(Phase("short-sequences", 0.83, _SHORT), Phase("longer-sequences", 0.17, _LONGER)),
        tasks=_CHINESE,
        prepare={"language": "zh"},
        acceptability=False,
        judged_on="test sets, of CMRC 2018 the dev set",
    ),
)
RECIPES = {recipe.name: recipe for recipe in _RECIPES}

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

#: Of ``bertine.finetune``, for the pre-trained model and for random weights.
FINETUNE: dict[str, Any] = {"max_length": 128, "log_every": 100}
#: Where all weights are trained.
TRAINED: dict[str, Any] = {
    "batch_size": 32,
    "dropout": 0.1,
    # The dev set judges the runs, so it may choose neither their weights nor the head alone.
    "save_best": False,
    "frozen": False,
}
