"""The result of looking for wrong labels: a list, and a file to correct."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.inference.files.rows import unused
from bertine.records.examples import Example, Examples
from bertine.records.table_writer import open_writer
from bertine.tables.layout import TableLayout
from bertine.tasks.answer import short
from bertine.terminal.console import aligned, counted, visible
from bertine.terminal.shown import Shown
from bertine.training.label_check.confident import LabelNoise

#: In the folder of a check: what was found, the same as a page, and all examples to be corrected.
CHECK, PAGE, CHECKED = "check-labels.json", "check-labels.html", "checked.csv"
#: Where models agree with fewer labels than that, or with no more than that beyond those that are
#: the most frequent one, they do not know the task well enough.
_WEAK, _BEYOND = 0.8, 0.02
#: Characters of a text in the JSON, and labels of a matrix there.
_TEXT, _LABELS = 400, 200
#: In the terminal.
_SHOWN, _CONFUSIONS = 10, 5


@dataclass(frozen=True)
class SuspectLabel:
    """An example whose label is probably wrong.

    Attributes:
        line: in its file.
        texts: one, or the two of a pair.
        label: that it has.
        suggested: that is more probable.
        probability, suggested_probability: of the two, by a model that has not seen it.
    """

    line: int
    texts: tuple[str, ...]
    label: str
    suggested: str
    probability: float
    suggested_probability: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "line": self.line,
            "texts": [short(text, _TEXT) for text in self.texts],
            "label": self.label,
            "suggested_label": self.suggested,
            "probability": round(self.probability, 6),
            "suggested_probability": round(self.suggested_probability, 6),
        }


@dataclass(repr=False)
class LabelCheck(Shown):
    """A check of labels.

    Attributes:
        examples: that were checked.
        labels: of them, sorted.
        noise: what the probabilities say of the labels.
        probabilities: fp64 [N, K], by models that have not seen the example.
        out: the folder.
        every: all examples, those among them that could not be checked.
        notes: what else to know.
        suspects: the examples whose label is probably wrong, the surest first.
    """

    examples: Examples[Example]
    labels: list[str]
    noise: LabelNoise
    probabilities: np.ndarray
    out: Path
    every: Examples[Example]
    notes: list[str] = field(default_factory=list)
    suspects: list[SuspectLabel] = field(init=False)

    def __post_init__(self) -> None:
        self.suspects = [self._suspect(number) for number in self.noise.suspects.tolist()]

    def _suspect(self, number: int) -> SuspectLabel:
        item, other = self.examples.items[number], int(self.noise.suggested[number])
        own = int(self.noise.given[number])
        chances = self.probabilities[number]
        return SuspectLabel(
            item.line,
            tuple(item.texts),
            self.labels[own],
            self.labels[other],
            float(chances[own]),
            float(chances[other]),
        )

    @property
    def confusions(self) -> list[tuple[str, str, int]]:
        """Labels and those that are suggested in their place, with the number of examples, the most
        frequent first."""
        counts: dict[tuple[str, str], int] = {}
        for suspect in self.suspects:
            pair = (suspect.label, suspect.suggested)
            counts[pair] = counts.get(pair, 0) + 1
        return sorted(((a, b, n) for (a, b), n in counts.items()), key=lambda each: -each[2])

    @property
    def weak(self) -> bool:
        """Whether the models do not know the task well: they agree with fewer than 80% of the
        labels, or hardly with more than have the most frequent one."""
        frequent = float(np.bincount(self.noise.given).max() / len(self.noise.given))
        return self.accuracy < max(_WEAK, frequent + _BEYOND)

    @property
    def accuracy(self) -> float:
        """How often the most probable label is the given one."""
        return float((self.probabilities.argmax(1) == self.noise.given).mean())

    def lines(self) -> list[str]:
        """Return what the command prints."""
        total = len(self.examples)
        lines = [
            f"{len(self.suspects):,} of {counted(total, 'label')} look wrong "
            f"({len(self.suspects) / total:.1%}); estimated share of wrong ones "
            f"{self.noise.share:.1%}",
            f"models trained without an example give its label to {self.accuracy:.1%} of them",
            *self.notes,
        ]
        if self.weak:
            lines.append(
                "they do not know the task well, so most of these labels may be right: read the "
                "list from the top, and do not trust the share"
            )
        rows = [
            [
                f"line {each.line}",
                visible(each.label),
                visible(each.suggested),
                f"{each.suggested_probability:.0%}",
                short(" / ".join(each.texts)),
            ]
            for each in self.suspects[:_SHOWN]
        ]
        if rows:
            lines += aligned(
                [["", "label", "suggested", "its probability", "text"], *rows], left=(0, 1, 2, 4)
            )
        lines += [
            f"given {label!r}, suggested {other!r}: {counted(number, 'time')}"
            for label, other, number in self.confusions[:_CONFUSIONS]
        ]
        return [
            *lines,
            f"correct {self._label!r} in {self.out / CHECKED}, and train on that file; page: "
            f"{self.out / PAGE}",
        ]

    @property
    def _label(self) -> str:
        return self.examples.label_column or "label"

    def write(self) -> None:
        """Write all examples, with what is suggested, as a file to correct and train on."""
        texts = list(self.examples.text_columns)
        own = [*texts, self._label]
        suggested, chance, line = (
            unused(name, own, "check_") for name in ("suggested_label", "label_probability", "line")
        )
        numbers = {id(item): number for number, item in enumerate(self.examples.items)}
        layout = TableLayout("csv", ",", True)
        with open_writer(self.out / CHECKED, layout, [*own, suggested, chance, line]) as writer:
            for item in self.every.items:
                number = numbers.get(id(item))
                row: dict[str, Any] = dict(zip(own, [*item.texts, item.label], strict=True))
                row |= {suggested: None, chance: None, line: item.line}
                if number is not None:
                    given = int(self.noise.given[number])
                    row[chance] = round(float(self.probabilities[number, given]), 4)
                    if self.noise.wrong[number]:
                        row[suggested] = self.labels[int(self.noise.suggested[number])]
                writer.write(row)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "source": self.every.source,
            "num_not_checked": len(self.every) - len(self.examples),
            "num_examples": len(self.examples),
            "labels": list(self.labels),
            "accuracy": self.accuracy,
            "estimated_share": self.noise.share,
            "notes": self.notes,
            **(
                {"confident_joint": self.noise.counts.tolist()}
                if len(self.labels) <= _LABELS
                else {}
            ),
            "suspects": [suspect.to_dict() for suspect in self.suspects],
        }
