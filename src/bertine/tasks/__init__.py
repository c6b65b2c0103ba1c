"""Look up fine-tuning tasks by the names in the command line and ``bertine.json``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from bertine.core.errors import BertineError
from bertine.core.task_info import TaskInfo
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import PAIR_ANSWERS, SentencePairs, TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.seq2seq import TextToText
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression

if TYPE_CHECKING:
    from bertine.models.heads import Model

_KINDS = (
    TextClassification,
    TextRegression,
    MultiLabel,
    MultipleChoice,
    SpanExtraction,
    Tagging,
    TextToText,
)
#: Every task. A new one is one file, and its class above.
TASKS: dict[str, type[Task[Any]]] = {kind.name: kind for kind in _KINDS}

#: Public data sets for these tasks, which ``finetune`` also accepts.
DATA_SETS = ("glue", "squad", "swag")


def task_class(name: str) -> type[Task[Any]]:
    """Return the class of the task called `name`.

    Raises:
        BertineError: there is no such task.
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, [*TASKS, *DATA_SETS], n=1)
        known = ", ".join([*TASKS, *DATA_SETS])
        hint = f"did you mean {near[0]!r}?" if near else f"known: {known}"
        raise BertineError(f"unknown task {name!r}; {hint}")
    return TASKS[name]


def task_of_model(info: TaskInfo | None, model: Model) -> Task[Any] | None:
    """Return the task that a model answers for: that which it was fine-tuned for, or, if it was
    only pre-trained, that of its head for pairs; None if there is neither.

    Args:
        info: of its directory; None: it has none.
        model: with the heads of the directory.
    """
    if info is not None and info.name in TASKS:
        return TASKS[info.name].from_info(info, model.config)
    info = info or TaskInfo(SentencePairs.name)
    if info.name == SentencePairs.name:
        for head, labels in PAIR_ANSWERS.items():
            if head in model.heads:
                return SentencePairs.from_info(info, model.config, labels=labels)
    return None
