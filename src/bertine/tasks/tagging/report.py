"""The result of evaluating a tagger, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertine.records.entities import Counts
from bertine.tasks.calibration import Reliability
from bertine.tasks.report import TaskReport
from bertine.tasks.worst import worst_lines
from bertine.terminal.console import aligned, counted, visible

#: More types than that are not shown in a terminal; the most frequent ones are.
_SHOWN = 30


@dataclass(repr=False)
class TaggingReport(TaskReport):
    """The scores of a tagger on tagged sentences.

    Attributes:
        metrics: of entities precision, recall and f1 over all types together, accuracy of words;
            of plain tags accuracy, and f1 as the mean over the tags. Fractions of 1.
        types: the counts of each type of entity, or of each plain tag.
        entities: whether `types` are of entities.
        num_sentences, num_words: that were scored.
        reliability: how often entities, or plain tags, are right, by their probability; None: not
            known.
    """

    metrics: dict[str, float]
    types: dict[str, Counts]
    entities: bool
    num_sentences: int
    num_words: int
    reliability: Reliability | None = None

    facts = ("num_examples", "num_words", "metrics", "collapsed", "types", "reliability")

    @classmethod
    def of(
        cls,
        types: Mapping[str, Counts],
        *,
        entities: bool,
        right: int,
        num_words: int,
        num_sentences: int,
        reliability: Reliability | None = None,
    ) -> TaggingReport:
        """Score these counts; `right` words of `num_words` have their true tag."""
        accuracy = right / num_words if num_words else 0.0
        if entities:
            whole = sum(types.values(), Counts())
            metrics = {"precision": whole.precision, "recall": whole.recall, "f1": whole.f1}
            metrics["accuracy"] = accuracy
        else:
            f1 = sum(counts.f1 for counts in types.values()) / max(1, len(types))
            metrics = {"accuracy": accuracy, "f1": f1}
        return cls(metrics, dict(types), entities, num_sentences, num_words, reliability)

    @property
    def num_examples(self) -> int:
        """The number of sentences that were scored."""
        return self.num_sentences

    @property
    def collapsed(self) -> bool:
        """Whether nothing is found though there was something: every word is O, or all words have
        one tag."""
        used = sum(counts.predicted > 0 for counts in self.types.values())
        there = sum(counts.true > 0 for counts in self.types.values())
        return used == 0 < there if self.entities else used == 1 < there

    def lines(self) -> list[str]:
        """Return scores, how far probabilities are off, the warning of a collapse, notes, and a
        table of the types."""
        whole = sum(self.types.values(), Counts())
        size = f"{counted(self.num_sentences, 'sentence')}, {counted(self.num_words, 'word')}"
        lines = [self.headline(size, self.metrics)]
        if self.entities:
            lines.append(f"{whole.true} entities; found {whole.predicted}; correct {whole.correct}")
        if self.reliability is not None and self.reliability.bins:
            lines.append(self.reliability.line())
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
        for name, counts in self.types.items():
            if name in chosen:
                shares = (counts.precision, counts.recall, counts.f1)
                numbers = (*(f"{share:.2%}" for share in shares), counts.true, counts.predicted)
                rows.append([visible(name) or "(no type)", *map(str, numbers)])
        more = len(self.types) - len(chosen)
        return [*aligned(rows, head=True), *([f"and {more} more"] if more else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return what a program reads; only JSON types."""
        names = ("precision", "recall", "f1", "correct", "predicted", "true")
        types = {
            kind: {name: getattr(counts, name) for name in names}
            for kind, counts in self.types.items()
        }
        return super().to_dict() | {"types": types}
