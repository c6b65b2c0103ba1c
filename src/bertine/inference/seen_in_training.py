"""Tell whether the examples that a model is scored on are those that it was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bertine.datasets.own_data import HOLD_OUT
from bertine.errors import BertineError
from bertine.records.examples import Examples


def seen_note(facts: Mapping[str, Any], examples: Examples) -> str | None:
    """Return what to say of a score on `examples` if the model was trained on all of them, or on
    all but those that it held out for validation; None where it was not, or where that is not
    known.

    The texts and labels are compared, not the paths: a copy of the training file is known too, and
    another file of its name is not taken for it.

    Args:
        facts: of the training, as ``bertine.json`` tells them.
        examples: in the order of their file.
    """
    part = trained_part(facts, examples)
    if part is None:
        return None
    which = f"these {len(examples):,} examples"
    if len(part) < len(examples):
        which = f"{len(part):,} of {which}"
    return f"note: the model was trained on {which}; its score on them says little about new texts"


def trained_part(facts: Mapping[str, Any], examples: Examples[Any]) -> Examples[Any] | None:
    """Return those of `examples` that a model was trained on: all, or all but those that it held
    out for validation; None where it was trained on others, or where that is not known. The
    arguments are those of :func:`seen_note`."""
    trained, fingerprint = facts.get("num_examples"), facts.get("examples_fingerprint")
    seed = facts.get("split_seed", facts.get("seed"))
    if not isinstance(trained, int) or not isinstance(seed, int):
        return None
    for part in _parts(examples, trained, seed):
        if len(part) == trained and part.fingerprint() == fingerprint:
            return part
    return None


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
