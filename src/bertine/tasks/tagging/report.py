"""The result of evaluating a tagger, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bertine.records.entities import Counts
from bertine.tasks.worst import WorstExample, worst_lines
from bertine.terminal.console import aligned, counted, visible
from bertine.terminal.shown import Shown

#: More types than that are not shown in a terminal; the most frequent ones are.
_SHOWN = 30


@dataclass(repr=False)
class TaggingReport(Shown):
    """Scores of a tagger on tagged sentences.

    Attributes:
        metrics: of entities precision, recall and f1 over all types together, accuracy of words;
            of plain tags accuracy, and f1 as the mean over the tags. Fractions of 1.
        types: the counts of each type of entity, or of each plain tag.
        entities: whether `types` are of entities.
        num_sentences, num_words: that were scored.
        notes: what else to know, e.g. how many sentences were read in windows.
        source: the file of the sentences.
        worst: the examples predicted worst, where they were asked for.
    """

    metrics: dict[str, float]
    types: dict[str, Counts]
    entities: bool
    num_sentences: int
    num_words: int
    notes: list[str] = field(default_factory=list)
    source: str = ""
    worst: list[WorstExample] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        types: Mapping[str, Counts],
        *,
        entities: bool,
        right: int,
        num_words: int,
        num_sentences: int,
    ) -> TaggingReport:
        """The report of these counts; `right` words of `num_words` have their true tag."""
        accuracy = right / num_words if num_words else 0.0
        if entities:
            whole = sum(types.values(), Counts())
            metrics = {
                "precision": whole.precision,
                "recall": whole.recall,
                "f1": whole.f1,
                "accuracy": accuracy,
            }
        else:
            each = [counts.f1 for counts in types.values()]
            metrics = {"accuracy": accuracy, "f1": sum(each) / len(each) if each else 0.0}
        return cls(metrics, dict(types), entities, num_sentences, num_words)

    @property
    def collapsed(self) -> bool:
        """Whether nothing is found though there was something: every word is O, or all words have
        one tag."""
        used = sum(counts.predicted > 0 for counts in self.types.values())
        there = sum(counts.true > 0 for counts in self.types.values())
        return used == 0 < there if self.entities else used == 1 < there

    def lines(self) -> list[str]:
        """Scores, the warning of a collapse, notes, and a table of the types."""
        scores = ", ".join(f"{name} {value:.2%}" for name, value in self.metrics.items())
        origin = f" of {self.source}" if self.source else ""
        whole = sum(self.types.values(), Counts())
        size = f"{counted(self.num_sentences, 'sentence')}, {counted(self.num_words, 'word')}"
        lines = [f"{size}{origin}: {scores}"]
        if self.entities:
            lines.append(f"{whole.true} entities; found {whole.predicted}; correct {whole.correct}")
        if self.collapsed:
            what = "no entity is found" if self.entities else "every word gets the same tag"
            lines.append(
                f"collapsed: {what}; train again with another seed, another learning rate or more "
                "epochs"
            )
        return lines + self.notes + self._table() + worst_lines(self.worst)

    def _table(self) -> list[str]:
        chosen = sorted(self.types, key=lambda name: -self.types[name].true)[:_SHOWN]
        rows = [["type" if self.entities else "tag", "precision", "recall", "f1", "true", "found"]]
        for name in self.types:
            if name in chosen:
                counts = self.types[name]
                rows.append(
                    [
                        visible(name) or "(no type)",
                        f"{counts.precision:.2%}",
                        f"{counts.recall:.2%}",
                        f"{counts.f1:.2%}",
                        str(counts.true),
                        str(counts.predicted),
                    ]
                )
        more = len(self.types) - len(chosen)
        return [*aligned(rows, head=True), *([f"and {more} more"] if more else [])]

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "num_examples": self.num_sentences,
            "num_words": self.num_words,
            "metrics": self.metrics,
            "collapsed": self.collapsed,
            "types": {
                name: {
                    "precision": counts.precision,
                    "recall": counts.recall,
                    "f1": counts.f1,
                    "correct": counts.correct,
                    "predicted": counts.predicted,
                    "true": counts.true,
                }
                for name, counts in self.types.items()
            },
            "notes": self.notes,
        }
