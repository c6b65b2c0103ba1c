"""Find the examples that a model was trained on, and report how many of them it is scored on.

A score on these, or on examples held out when a model is trained further, says little about new
texts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.model_folders import locate
from bertine.core.task_info import TaskInfo
from bertine.data.examples import HOLD_OUT, Examples, count_known, row_numbers, rows_in_facts
from bertine.datasets.readers import read_labelled
from bertine.models.family import TASK
from bertine.options.data import DataConfig

# Training examples: read again, if their file still exists unchanged.


def reload_training_examples(task: str, facts: Mapping[str, Any]) -> Examples[Any]:
    """Return the training examples of a model.

    Args:
        task: the task of the model, where the facts do not name it.
        facts: the facts of its training in ``bertine.json``.

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
    seed = facts.get("seed")
    config = DataConfig.from_facts(
        facts.get("reading") or {},
        glue_task=part if kind == "glue" else None,
        seed=seed if isinstance(seed, int) else 0,
        known_rows=rows_in_facts(facts)[1],
    )
    train = read_labelled(kind, path, config).train
    if train.fingerprint() != fingerprint:
        raise BertineError(f"{path}: the training data have changed since")
    return train


#: The name, in notes, of the model that has seen examples, where a model is trained further.
START = "the model that training begins with"


def rows_known_by(model: Path | str) -> frozenset[int]:
    """Return the numbers of the rows that a model directory, or a model it was initialized from,
    was trained on; none where they are not known."""
    file = locate(model) / TASK
    if not file.is_file():
        return frozenset()
    info = TaskInfo.read(file)
    return rows_known(info.name, info.training)


def rows_known(task: str, facts: Mapping[str, Any]) -> frozenset[int]:
    """Return the numbers of the rows that a model, or a model it was initialized from, was trained
    on. Where those of its own training are not stored (an earlier Bertine, or millions), the
    training file is read again, if it still exists unchanged.

    Args:
        task: the task of the model.
        facts: the facts of its training in ``bertine.json``.
    """
    own, before = rows_in_facts(facts)
    if not own:
        with contextlib.suppress(BertineError):
            own = row_numbers(reload_training_examples(task, facts).items)
    return own | before


def overlap_note(facts: Mapping[str, Any], examples: Examples) -> str | None:
    """Return the note on a score on `examples` if the model, or a model it was initialized from,
    was trained on more than a few of them; None where it was not, or where that is not known.

    The texts are compared, not the paths: a copy of the training file, a part of it, or the same
    rows in another order are recognized too, and another file of the same name is not.

    Args:
        facts: the facts of the training in ``bertine.json``.
        examples: the examples in the order of their file.
    """
    own, before = rows_in_facts(facts)
    seen = count_known(examples.items, own | before)
    return overlap_line(seen if own else max(seen, _count_trained(facts, examples)), len(examples))


def overlap_notes(train: Sequence[Any], judged: Sequence[Any], known: frozenset[int]) -> list[str]:
    """Return notes on how many of the training and of the evaluation examples are among the rows
    `known`, which a model was trained on before; nothing for few."""
    lines = (
        overlap_in_training_line(count_known(train, known), len(train)),
        overlap_line(count_known(judged, known), len(judged), START, "test examples"),
    )
    return [line for line in lines if line]


def overlap_in_training_line(seen: int, count: int) -> str | None:
    """Return the note that the initial model was trained on `seen` of the `count` training
    examples before; None for none."""
    if not seen:
        return None
    return (
        f"note: {START} was trained on {seen:,} of these {count:,} training examples before, so it "
        "knows more than is learned from them here"
    )


def overlap_line(
    seen: int, count: int, whose: str = "the model", what: str = "examples"
) -> str | None:
    """Return the note that a model was trained on `seen` of the `count` examples that it is scored
    on; None for none."""
    if not seen:
        return None
    which = f"these {count:,} {what}"
    if seen < count:
        which = f"{seen:,} of {which}"
    return f"note: {whose} was trained on {which}; its score on them says little about new texts"


def _count_trained(facts: Mapping[str, Any], examples: Examples[Any]) -> int:
    """Count those of `examples` that a model was trained on, if its rows are not stored: all, or
    all but those that it held out for validation; 0 where it was trained on others, or where that
    is not known. The arguments are those of :func:`overlap_note`."""
    trained, fingerprint = facts.get("num_examples"), facts.get("examples_fingerprint")
    seed = facts.get("split_seed", facts.get("seed"))
    if not isinstance(trained, int) or not isinstance(seed, int):
        return 0
    parts = _parts(examples, trained, seed)
    fits = any(len(part) == trained and part.fingerprint() == fingerprint for part in parts)
    return trained if fits else 0


def _parts(examples: Examples, trained: int, seed: int) -> Iterator[Examples]:
    """Yield the possible training parts of a run on `examples`, if it trained on `trained` of
    them."""
    yield examples
    if not trained < len(examples) < 2 * trained:  # about a tenth is held out, never half
        return
    for stratify in (True, False):  # divided by label; for scores, at random
        try:
            yield examples.hold_out(HOLD_OUT, seed, stratify=stratify)[0]
        except BertineError:  # such examples cannot be divided by label
            continue
