"""Labels of many types, in tables of many kinds, in files and in memory.

Each case is read twice: to train on, and to judge a model that was trained on the clean twin.
Labels may be called otherwise than in the twin (1.0 for 1) as long as each is one of its own; for
the model such a label is unknown, which is refused.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from bertine.data.examples import Examples, read_examples
from bertine.datasets.check import check_data
from bertine.datasets.own_data import read_for
from bertine.tasks.classification import TextClassification
from mistakes.odd.containers import CONTAINERS
from mistakes.odd.fitted import draw_fitted
from mistakes.odd.label_sets import draw_several
from mistakes.odd.label_types import GONE, NATURAL, OWN, STRAY, TYPES, alike_or_renamed
from mistakes.odd_files import Answer, Case


def draw(draw: Random, folder: Path) -> Case:
    which = draw.random()
    if which < 0.35:
        return draw_several(draw, folder)
    return draw_fitted(draw) if which < 0.5 else _one(draw, folder)


def _one(draw: Random, folder: Path) -> Case:
    """Draw a table with one label in each row."""
    kind = draw.choice([*TYPES] if draw.random() < 0.6 else NATURAL)
    names, values = TYPES[kind]
    container = draw.choice([*CONTAINERS])
    rows = draw.choice((6, 12, 60))
    texts = [f"the text {number}" for number in range(rows)]
    chosen = [number % len(names) for number in range(rows)]
    labels: list[Any] = [values[at] for at in chosen]
    stray = draw.choice([*STRAY]) if kind in NATURAL and draw.random() < 0.8 else ""
    odd_rows = [n for n in range(rows) if n % draw.choice((3, 5, 6)) == 1] if stray else []
    for number in odd_rows:
        labels[number] = STRAY[stray](labels[number], names[chosen[number]])
    meant = [names[at] for at in chosen]
    for number in odd_rows:
        meant[number] = OWN.get(stray, meant[number])
    gone = set(odd_rows) if stray in GONE else set()
    clean = [(texts[n], meant[n]) for n in range(rows) if n not in gone]
    choices = {
        "kind": kind if not stray else f"some {stray}",
        "labels": kind,
        "stray": stray,
        "container": container,
        "rows": str(rows),
    }

    def read() -> Answer:
        source = CONTAINERS[container](folder, {"text": texts, "label": labels})
        examples = read_examples(source)
        notes = [*check_data(TextClassification, examples, Examples("", (), None)).findings]
        task = TextClassification.from_examples(examples)
        notes += examples.notes
        trained = [(item.texts[0], item.label) for item in examples.items]
        known = tuple(sorted({label for _, label in clean}))
        judge = TextClassification(known, ("text",), "label", 16)
        judged: Any
        try:
            again = read_for(judge, source)
            judged = [(item.texts[0], item.label) for item in again.items]
            for item in again.items:
                judge.target(item.label, again.source, item.line)
            notes += again.notes
        except Exception as error:
            if type(error).__name__ != "BertineError":
                raise
            judged = None
        assert len(task.labels) > 1
        return Answer((trained, judged), notes)

    return Case(choices, read, clean, alike_or_renamed)
