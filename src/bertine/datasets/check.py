"""Check labelled examples before training for problems that spoil scores and training.

The checks are counts of the labels, rare labels, the same text with two labels, repeated texts,
also between training and validation (then the score is meaningless for new texts), empty texts, and
lengths.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import Report, plural, visible_list
from bertine.core.names import option
from bertine.core.text import visible
from bertine.data.examples import Examples, text_key
from bertine.data.lines import first_numbers
from bertine.tasks.base import Features, Task
from bertine.tasks.labels import MISSING, look_alikes, same_numbers, told_apart
from bertine.tasks.unknown_text import UnknownText

#: The fewest training examples from which a label can be learned.
FEW = 10
#: The most labels, or rows, in a line.
_SHOWN = 8
#: The most labels in the line of their counts, and how many of them are the rarest of all.
_LABELS, _RARE = 10, 4
#: The share of validation examples that are also in training from which that is reported.
_LEAK = 0.005
#: The ratio of the most frequent label to the rarest from which labels are reported as uneven.
_UNEVEN = 10


@dataclass(frozen=True, repr=False)
class DataReport(Report):
    """The result of checking labelled examples.

    Attributes:
        train, validation: ``examples`` (how many), ``labels`` (how many examples have each; for
            tags how many words or entities; for numbers nothing), ``numbers`` (of a regression:
            minimum, maximum, mean, deviation), ``empty`` texts, ``duplicates`` (examples that
            repeat an earlier text), ``conflicts`` (different texts that have several labels),
            ``unlabelled`` (rows that were left out), ``lengths`` in pieces (median, 95th
            percentile, longest), ``cut`` (texts that are longer than the model's inputs) and
            ``unknown`` (the share of pieces that the vocabulary does not know, and the note on it
            if these are many), if they are known; validation also has ``in_training``.
        findings: notes for the user, one per line.
    """

    train: dict[str, Any]
    validation: dict[str, Any]
    findings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the number of examples, their labels, and the findings."""
        counts = f"{self.train.get('examples', 0):,} training examples"
        if self.validation.get("examples"):
            counts += f", {self.validation['examples']:,} validation examples"
        labels = self.label_line()
        return [counts, *([labels] if labels else []), *self.findings]

    def label_line(self) -> str:
        """Return "labels: joy 391, sadness 366, …"; of many labels the most frequent and the
        rarest; "" if there are none."""
        labels: dict[str, int] = self.train.get("labels", {})
        if not labels:
            return ""
        parts = [f"{visible(name)} {count:,}" for name, count in labels.items()]
        if len(parts) > _LABELS:
            frequent, rare = parts[: _LABELS - _RARE], parts[-_RARE:]
            between = len(parts) - _LABELS
            parts = [*frequent, f"{between} more, and the rarest: {rare[0]}", *rare[1:]]
        return f"labels: {', '.join(parts)}"


def check_data(
    task: type[Task[Any]],
    train: Examples[Any],
    validation: Examples[Any],
    train_features: Sequence[Features] = (),
    validation_features: Sequence[Features] = (),
    *,
    unknown: Sequence[UnknownText] = (),
    weighed: bool = False,
) -> DataReport:
    """Check the examples of a task.

    Args:
        task: its class.
        train, validation: labelled; validation may be empty.
        train_features, validation_features: their features, for the lengths; may be empty.
        unknown: the unknown pieces of both; may be empty.
        weighed: whether the classes have weights in training.
    """
    facts = [
        _facts(task, train, train_features),
        _facts(task, validation, validation_features),
    ]
    counts = facts[0].get("labels", {}), facts[1].get("labels", {})
    findings: list[str] = []
    for examples, counted_text, own in zip((train, validation), unknown, facts, strict=False):
        if note := counted_text.note():
            own["unknown"] = {"share": round(counted_text.share, 4), "note": note}
            findings.append(f"{examples.source}: {note}")
            break  # once is enough
    findings += names_of_labels(task, train)
    findings += _of_labels(task, *counts, weighed=weighed)
    findings += _of_texts(train, named=bool(counts[0]))
    known = {text_key(item): item for item in train.items}
    both = [item for item in validation.items if text_key(item) in known]
    facts[1]["in_training"] = len(both)
    if both and len(both) >= _LEAK * len(validation):
        same = sum(known[text_key(item)].label == item.label for item in both)
        findings.append(
            f"{plural(len(both), 'validation example', 'is', 'are')} among the training examples "
            f"too ({same} with the same label), of {len(validation):,}: the score is too high for "
            f"new texts; remove them from one of the two ({_lines(both)} of {validation.source})"
        )
    notes = [*train.notes, *validation.notes]
    return DataReport(facts[0], facts[1], [*notes, *findings])


def _facts(
    task: type[Task[Any]], examples: Examples[Any], features: Sequence[Features]
) -> dict[str, Any]:
    items = examples.items
    facts: dict[str, Any] = {"examples": len(items)}
    facts |= task.label_facts(item.label for item in items if item.label is not None)
    keys = Counter(map(text_key, items))
    facts["empty"] = sum(1 for item in items if not any(text.strip() for text in item.texts))
    facts["duplicates"] = len(items) - len(keys)
    facts["conflicts"] = len(_conflicts(items))
    facts["unlabelled"] = examples.unlabelled
    if features:
        lengths = Counter[int]()
        cut = set()
        for feature in features:
            lengths[feature.row] = max(
                lengths[feature.row], len(feature.input_ids) + feature.num_truncated
            )
            if feature.num_truncated:
                cut.add(feature.row)
        sizes = np.array(list(lengths.values()))
        facts["lengths"] = {
            "median": int(np.median(sizes)),
            "p95": int(np.percentile(sizes, 95)),
            "longest": int(sizes.max()),
        }
        facts["cut"] = len(cut)
    return facts


def _of_labels(
    task: type[Task[Any]], train: dict[str, int], validation: dict[str, int], *, weighed: bool
) -> list[str]:
    """Return notes on unusual frequencies of labels."""
    what = task.label_noun
    if not what:
        return []
    findings = []
    single = [name for name, count in train.items() if count == 1]
    few = [f"{visible(name)} ({count})" for name, count in train.items() if 1 < count < FEW]
    if single:
        findings.append(
            f"{plural(len(single), what, 'has', 'have')} one training example each: "
            f"{_some(single)}; that is too few to learn and to be judged: label more, or "
            "leave out or merge"
        )
    if few:
        more = ", …" if len(few) > _SHOWN else ""
        findings.append(
            f"{plural(len(few), what, 'has', 'have')} fewer than {FEW} training examples: "
            f"{', '.join(few[:_SHOWN])}{more}"
        )
    missing = [name for name in train if name not in validation and train[name] > 1]
    if missing and validation:
        findings.append(
            f"{plural(len(missing), what, 'has', 'have')} no validation example, so the score "
            f"says nothing of {'it' if len(missing) == 1 else 'them'}: {_some(missing)}"
        )
    most = max(train, key=lambda name: train[name], default="")
    least = min(train.values(), default=0)
    judged = task.primary_metric == "accuracy"
    if judged and train and train[most] >= _UNEVEN * max(least, 1):
        share = train[most] / sum(train.values())
        advice = "" if weighed else f", and try {option('class_weights', 'balanced')}"
        findings.append(
            f"labels are uneven: {visible(most)!r} has {share:.0%} of the training examples, "
            f"at least {_UNEVEN} times as many as the rarest label; judge by macro F1 as "
            f"well{advice}"
        )
    return findings


def names_of_labels(task: type[Task[Any]], train: Examples[Any]) -> list[str]:
    """Return notes on labels that look alike or are the same number, and on those that programs
    write for a missing one."""
    if not task.label_noun:
        return []
    lines: dict[str, list[int]] = defaultdict(list)
    for item in train.items:
        for name in task.names_in(item.label) if item.label is not None else ():
            lines[name].append(item.line)
    findings = []
    for group in look_alikes(lines):
        names = list(zip(group, told_apart(group), strict=True))[:_SHOWN]
        shown = [f"{written} ({first_numbers(lines[name][:1])})" for name, written in names]
        findings.append(
            f"{train.source}: the {task.label_noun}s {', '.join(shown)} look alike, but are told "
            f"apart; write them alike if they are the same{_where(train, group, lines)}"
        )
    for pair in same_numbers(lines):
        one, other = (f"{name!r} ({first_numbers(lines[name][:1])})" for name in pair)
        findings.append(
            f"{train.source}: the {task.label_noun}s {one} and {other} are the same number, but "
            "are told apart; write them alike if they are the same"
        )
    for name in sorted(lines.keys() & MISSING):
        findings.append(
            f"{plural(len(lines[name]), 'training example', 'has', 'have')} the "
            f"{task.label_noun} {name!r}, as programs write what is missing; leave it out if that "
            f"is meant ({first_numbers(lines[name])} of {train.source})"
        )
    return findings


def _where(train: Examples[Any], alike: Sequence[str], lines: Mapping[str, list[int]]) -> str:
    """Return the command that finds the rows of the rarest of labels that look alike; "" if they
    are not in a plain text file, or have characters that a terminal does not show."""
    rarest = min(alike, key=lambda name: (len(lines[name]), name))
    plain = Path(train.source).suffix.lower() in (".csv", ".tsv", ".txt", ".jsonl", ".conll")
    if not plain or visible(rarest) != rarest or not rarest.isprintable():
        return ""
    return f"; the rows: {shlex.join(['grep', '-nF', '--', rarest, train.source])}"


def _of_texts(train: Examples[Any], *, named: bool) -> list[str]:
    """Return notes on repeated texts, and if labels are `named` on those with two or more."""
    findings = []
    conflicts = _conflicts(train.items)
    if conflicts and named:
        rows = [item for group in conflicts for item in group]
        findings.append(
            f"{plural(len(conflicts), 'training text', 'has', 'have')} two or more labels in "
            f"different rows: mend or remove them ({_lines(rows)} of {train.source})"
        )
    repeated = _repeated(train.items)
    if repeated:
        findings.append(
            f"{plural(len(repeated), 'training example', 'repeats', 'repeat')} the text of one "
            f"before ({_lines(repeated)} of {train.source})"
        )
    return findings


def _conflicts(items: Sequence[Any]) -> list[list[Any]]:
    """Find the examples of each text that occurs with different labels."""
    groups: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for item in items:
        groups[text_key(item)].append(item)
    return [group for group in groups.values() if len({str(item.label) for item in group}) > 1]


def _repeated(items: Sequence[Any]) -> list[Any]:
    """Find the examples that repeat an earlier text."""
    first: dict[tuple[str, ...], Any] = {}
    return [item for item in items if first.setdefault(text_key(item), item) is not item]


def _some(names: Sequence[str]) -> str:
    return visible_list(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _lines(items: Sequence[Any]) -> str:
    """Return the places of examples, for a message."""
    numbers = list(dict.fromkeys(item.line for item in items))
    return first_numbers(numbers, most=_SHOWN)
