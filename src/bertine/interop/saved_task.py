"""What the weights and the ``config.json`` of a model directory say of its task, where no
``bertine.json`` does, and the heads of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.interop.config_file import CONFIG, ConfigFile
from bertine.interop.family import Family
from bertine.models.heads import PAIR_CLASSIFIER, new_head
from bertine.models.pooling import Pooling
from bertine.taskinfo import TaskInfo
from bertine.terminal.text import briefly

#: The file of our own that says what a model was trained to do.
TASK = "bertine.json"
#: What transformers calls the classifier of a text that may have many labels.
MULTI_LABEL = "multi_label_classification"
#: What it calls all kinds of them; None: it decides by the labels that it is trained with.
_PROBLEM_TYPES = (None, "single_label_classification", MULTI_LABEL, "regression")
#: What a head reads that is a vector of a text → the setting of the task that says which.
_POOLINGS = {"text": "text_pooling", "texts": "pair_pooling"}


def count_outputs(
    tensors: Mapping[str, Tensor], settings: ConfigFile, family: Family, present: Collection[str]
) -> int:
    """Count the outputs of the classifier that the file holds, where it holds one."""
    named = next((head for head in present if settings.config.heads[head].named), None)
    if named is None:
        return 0
    output = family.names.heads[named].output()
    last = tensors.get(f"{output}.weight")  # a row for each output
    return last.shape[0] if last is not None and last.dim() else len(settings.labels) or 2


def task_of(folder: Path, settings: ConfigFile, present: Set[str], outputs: int) -> TaskInfo | None:
    """Return the task of ``bertine.json``; else what config.json says of a classifier with so many
    `outputs`, or that there is a head for spans."""
    kinds = settings.config.heads
    named = any(kinds[head].named for head in present)
    if (folder / TASK).exists():
        task = TaskInfo.read(folder / TASK)
        regression = task.name == "regression"
        if named and settings.labels and task.labels != settings.labels and not regression:
            raise BertineError(
                f"{folder / TASK}: its labels are not those of id2label in {CONFIG}; "
                "one of the two files is from another model"
            )
        return task
    # As transformers calls them where nobody has; of two it writes no names.
    labels = settings.labels or tuple(f"LABEL_{number}" for number in range(outputs))
    if "classifier" in present:
        return _classifying(folder / CONFIG, settings, labels)
    if "token_classifier" in present:
        return TaskInfo(name="tagging", labels=labels)
    if "spans" in present:
        return TaskInfo(name="spans")
    return TaskInfo(name="choice") if "choice" in present else None


def _classifying(where: Path, settings: ConfigFile, labels: tuple[str, ...]) -> TaskInfo:
    """Return the task of a classifier that transformers or sentence-transformers has saved.

    Args:
        where: its ``config.json``, for messages.
        labels: of its outputs.
    """
    kind, one = settings.problem_type, len(labels) == 1
    if kind not in _PROBLEM_TYPES:
        raise BertineError(
            f"{where}: problem_type is {briefly(kind)}, but must be "
            f"{', '.join(filter(None, _PROBLEM_TYPES))}, or left out; correct it"
        )
    if kind == "regression" and not one:
        raise BertineError(
            f"{where}: problem_type is 'regression', but the classifier has {len(labels)} outputs; "
            "several numbers for a text are not computed here"
        )
    if kind == "single_label_classification" and one:
        raise BertineError(
            f"{where}: problem_type is {kind!r}, but the classifier has one output, which would be "
            "the label of every text; if it is a number, set problem_type to regression"
        )
    of_pairs: dict[str, Any] = {}
    if settings.activation is not None:
        of_pairs = {"text_columns": ("query", "text"), "settings": _after(where, settings, one)}
    if kind == MULTI_LABEL:
        return TaskInfo(name="multi-label", labels=labels, **of_pairs)
    return TaskInfo(name="regression", **of_pairs) if one else TaskInfo("text", labels, **of_pairs)


def _after(where: Path, settings: ConfigFile, one: bool) -> dict[str, Any]:
    """Return the settings of the task that do what sentence-transformers does with the outputs of a
    cross-encoder, `one` or several: by itself it makes a probability of one."""
    name = (settings.activation or "").rpartition(".")[2] or ("Sigmoid" if one else "Identity")
    if name == "Sigmoid" and one:
        return {"sigmoid": True}
    if name != "Identity":
        raise BertineError(
            f"{where}: the outputs go through {briefly(settings.activation)}, which is not "
            "computed here; only torch's Identity and, of one output, Sigmoid are"
        )
    return {}


def heads_of(
    source: Path,
    settings: ConfigFile,
    present: Collection[str],
    task: TaskInfo | None,
    outputs: int,
) -> dict[str, nn.Module]:
    """Make heads without values (on the meta device) for what the file holds."""
    heads: dict[str, nn.Module] = {}
    config = settings.config
    if outputs and settings.labels and len(settings.labels) != outputs:
        raise BertineError(
            f"{source}: the classifier has {outputs} outputs, but id2label in {CONFIG} has "
            f"{len(settings.labels)} labels"
        )
    with torch.device("meta"):
        for head in config.heads:
            if head not in present:
                continue
            options: dict[str, Any] = {}
            if setting := _POOLINGS.get(config.heads[head].reads):
                pooling = "" if task is None else task.setting(setting, "")
                if not pooling:
                    raise BertineError(
                        f"{source}: the {config.heads[head].title} needs the {setting} of a "
                        f"{TASK}; copy that file too"
                    )
                assert task is not None
                options["pooling"] = Pooling.named(pooling)
                if head == PAIR_CLASSIFIER:
                    options["shared_pieces"] = bool(task.setting("shared_pieces", False))
            try:
                count = outputs if config.heads[head].named else 1
                heads |= new_head(config, head, count, **options)
            except BertineError as error:
                raise BertineError(f"{source.parent / TASK}: {error}") from error
    return heads
