"""Tell which examples a model was trained on: what it is scored on then, or holds out when it is
trained further, says little about new texts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.core.taskinfo import TaskInfo
from bertine.data.examples import Examples, count_known, row_numbers, rows_in_facts
from bertine.datasets.own_data import HOLD_OUT
from bertine.datasets.readers import DataConfig, read_labelled
from bertine.models.family import TASK

# Read again the examples that a model was trained on, if their file is still there and unchanged.


def reload_training_examples(task: str, facts: Mapping[str, Any]) -> Examples[Any]:
    """Return the training examples of a model.

    Args:
        task: of the model, where the facts do not name it.
        facts: of its training, as ``bertine.json`` tells them.

    Raises:
        BertineError: the training examples are not available: they were given in memory, their
            file is gone or has changed since, or the model was trained elsewhere.
    """
    path, fingerprint = facts.get("data_path"), facts.get("examples_fingerprint")
    if not isinstance(path, str) or not isinstance(fingerprint, str):
        raise BertineError("the model directory does not tell what it was trained on")
    if not Path(path).exists():
        raise BertineError(f"{path}: the training data are no longer there")
    kind, _, part = str(facts.get("task", task)).partition("/")
    reading = DataConfig.from_facts(facts.get("reading") or {})
    if kind == "glue":
        reading = DataConfig.from_facts({**(facts.get("reading") or {}), "glue_task": part})
    seed = facts.get("seed")
    seed = seed if isinstance(seed, int) else 0
    reading = dataclasses.replace(reading, known=rows_in_facts(facts)[1])
    train = read_labelled(kind, path, seed=seed, reading=reading).train
    if train.fingerprint() != fingerprint:
        raise BertineError(f"{path}: the training data have changed since")
    return train


#: What is said to have seen examples, where a model is trained further.
START = "the model that training begins with"


def rows_known_by(model: Path | str) -> frozenset[int]:
    """Return the numbers of the rows that a model directory, or one that it began as, was trained
    on; none where that is not known."""
    file = locate(model) / TASK
    if not file.is_file():
        return frozenset()
    info = TaskInfo.read(file)
    return rows_known(info.name, info.training)


def rows_known(task: str, facts: Mapping[str, Any]) -> frozenset[int]:
    """Return the numbers of the rows that a model, or one that it began as, was trained on. Where
    those of its own training are not kept (an earlier Bertine, or millions), the file that it was
    trained on is read again, if it is there and unchanged.

    Args:
        task: of the model.
        facts: of its training, as ``bertine.json`` tells them.
    """
    own, before = rows_in_facts(facts)
    if not own:
        with contextlib.suppress(BertineError):
            own = row_numbers(reload_training_examples(task, facts).items)
    return own | before


def overlap_note(facts: Mapping[str, Any], examples: Examples) -> str | None:
    """Return what to say of a score on `examples` if the model, or one that it began as, was
    trained on more than a few of them; None where it was not, or where that is not known.

    The texts are compared, not the paths: a copy of the training file, a part of it, or one in
    another order is known too, and another file of its name is not taken for it.

    Args:
        facts: of the training, as ``bertine.json`` tells them.
        examples: in the order of their file.
    """
    own, before = rows_in_facts(facts)
    seen = count_known(examples.items, own | before)
    return overlap_line(seen if own else max(seen, _count_trained(facts, examples)), len(examples))


def overlap_notes(train: Sequence[Any], judged: Sequence[Any], known: frozenset[int]) -> list[str]:
    """Say how many of the examples that are learned from, and of those that are judged on, a model
    was trained on before whose rows are `known`; nothing of few."""
    lines = (
        overlap_in_training_line(count_known(train, known), len(train)),
        overlap_line(count_known(judged, known), len(judged), START, "test examples"),
    )
    return [line for line in lines if line]


def overlap_in_training_line(seen: int, count: int) -> str | None:
    """Say that the model that training begins with was trained on so many of the training examples
    before; None of none."""
    if not seen:
        return None
    return (
        f"note: {START} was trained on {seen:,} of these {count:,} training examples before, so it "
        "knows more than is learned from them here"
    )


def overlap_line(
    seen: int, count: int, whose: str = "the model", what: str = "examples"
) -> str | None:
    """Say that a model was trained on so many of those that it is scored on; None of none."""
    if not seen:
        return None
    which = f"these {count:,} {what}"
    if seen < count:
        which = f"{seen:,} of {which}"
    return f"note: {whose} was trained on {which}; its score on them says little about new texts"


def _count_trained(facts: Mapping[str, Any], examples: Examples[Any]) -> int:
    """Count those of `examples` that a model was trained on whose rows are not kept: all, or all
    but those that it held out for validation; 0 where it was trained on others, or where that is
    not known. The arguments are those of :func:`overlap_note`."""
    trained, fingerprint = facts.get("num_examples"), facts.get("examples_fingerprint")
    seed = facts.get("split_seed", facts.get("seed"))
    if not isinstance(trained, int) or not isinstance(seed, int):
        return 0
    parts = _parts(examples, trained, seed)
    fits = any(len(part) == trained and part.fingerprint() == fingerprint for part in parts)
    return trained if fits else 0


def _parts(examples: Examples, trained: int, seed: int) -> Iterator[Examples]:
    """Yield what a run on `examples` may have trained on, if it trained on so many."""
    yield examples
    if not trained < len(examples) < 2 * trained:  # about a tenth is held out, never half
        return
    for stratify in (True, False):  # by label, or, of scores, not
        try:
            yield examples.hold_out(HOLD_OUT, seed, stratify=stratify)[0]
        except BertineError:  # such examples cannot be divided so
            continue
