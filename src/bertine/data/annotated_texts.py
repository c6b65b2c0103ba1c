"""Combine what people have annotated in texts: find the unit of the offsets, and let annotators
vote.

Tools count characters in different units, by the language they are written in: Python's code
points, the UTF-16 units of JavaScript; some count a line break of two characters as one.
Where a file has the text of its spans, the unit is the one in which they are where the offsets say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.text import briefly

#: The prefix that the name of a label's column may have: of its probability, or of the share of
#: annotators that gave it.
PREFIX = "probability_"
#: Usual names of the field that is the text, tried in this order.
_USUAL = ("text", "sentence", "content", "document", "data", "body", "message")


class Unit(NamedTuple):
    """A unit of offsets: "code points" or "UTF-16 units", and whether ``\\r\\n`` counts as
    one."""

    name: str
    one_break: bool = False

    def offsets(self, text: str) -> Sequence[int]:
        """Return the offset of each character of a text, and of its end."""
        if text.isascii() and not self.one_break:
            return range(len(text) + 1)
        wide = self.name == "UTF-16 units"
        widths = [1 + (wide and character > "\uffff") for character in text]
        if self.one_break:
            for at, pair in enumerate(pairwise(text)):
                widths[at] -= pair == ("\r", "\n")
        return list(accumulate(widths, initial=0))


UNITS = tuple(
    Unit(name, one_break) for one_break in (False, True) for name in ("code points", "UTF-16 units")
)


class Span(NamedTuple):
    """A span as in a file: its offsets (end exclusive) in the unit of the file, its label, and the
    text that it covers, if the file has it."""

    start: int
    end: int
    label: str
    covered: str | None = None


@dataclass(slots=True)
class Answer:
    """The answer of one annotator about a text: spans, and the chosen labels by the name of the
    question."""

    spans: list[Span] = field(default_factory=list)
    labels: dict[str, list[str | float]] = field(default_factory=dict)


@dataclass(slots=True)
class AnnotatedText:
    """A text with its answers.

    Attributes:
        line: the line of the file, or the number of the text in it.
        fields: all that the file has besides the answers, by name; one is the text.
        answers: one for each annotator; none: the text is not annotated.
        record: the object of the file.
        text: the text itself, when its field is known.
    """

    line: int
    fields: dict[str, Any]
    answers: list[Answer]
    record: Any
    text: str = ""


class Annotations:
    """The annotated texts of a file, as rows: the answers about each text are combined into one.

    Args:
        source: the file, for messages.
        tool: the tool that wrote it.
        texts: in order, with offsets in any unit.
        unit: the unit that the tool uses.

    Attributes:
        unit: the unit of the offsets.
        columns: the names of the columns, ``text`` first.
        rows: a row for each text. ``entities`` has its spans in code points; ``label``, or
            ``labels`` where texts have several, the chosen ones, under the names of the questions
            if there are several questions. None: not annotated.
        notes: one line each on what was read, left out and decided.
        controls: the names and the type of what asks for ``spans`` or ``labels``, if the tool has
            names for them.
        suffix: that of the file of the tool that can be written.
        is_folder: whether a folder is written: of texts and their annotations.

    Raises:
        BertineError: there is no text, or one lacks it; or most spans are not where their offsets
            say.
    """

    def __init__(
        self, source: str, tool: str, texts: Sequence[AnnotatedText], unit: str = UNITS[0].name
    ) -> None:
        self.source, self.tool, self.texts = source, tool, texts
        self.controls: dict[str, dict[str, str]] = {}
        self.suffix = ".json" if tool == "label-studio" else Path(source).suffix.lower()
        self.is_folder = tool == "brat" and self.suffix != ".ann"
        self.suffix = "" if self.is_folder else self.suffix
        self._counts: Counter[str] = Counter()
        self._agreements: list[float] = []
        self._misplaced: list[tuple[AnnotatedText, Span]] = []
        name = self._choose_text()
        answers = [answer for item in texts for answer in item.answers]
        self.questions = list(dict.fromkeys(name for one in answers for name in one.labels))
        self._several = {
            name for one in answers for name, labels in one.labels.items() if len(labels) > 1
        }
        self._has_spans = not self.questions or any(answer.spans for answer in answers)
        self.unit = self._choose_unit(sorted(UNITS, key=lambda item: item.name != unit))
        self.rows = [self._row(item) for item in texts]
        if len(self.questions) == 1 and not self._several:
            self._add_shares(self.questions[0])
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        self.rows = [{name: row.get(name) for name in self.columns} for row in self.rows]
        named = f" ({name})" * (name != "text")
        spans = sum(len(answer.spans) for answer in answers)
        self.notes = [f"{source}: {note}" for note in self._notes(named, spans, unit)]

    def _choose_text(self) -> str:
        """Choose the field that is the text: the one that has the texts of the spans, else one of
        the usual names, else the longest."""
        sizes: Counter[str] = Counter()
        covering: Counter[str] = Counter()
        for item in self.texts:
            covered = [span.covered for one in item.answers for span in one.spans if span.covered]
            for name, value in item.fields.items():
                if isinstance(value, str):
                    sizes[name] += len(value)
                    covering[name] += sum(part in value for part in covered)
        if not sizes:
            raise BertineError(f"{self.source}: has no text")
        best = [name for name, count in covering.most_common(1) if count]
        longest = max(sizes, key=lambda name: sizes[name])
        name = next(name for name in (*best, *_USUAL, longest) if name in sizes)
        for item in self.texts:
            text = item.fields.get(name)
            if not isinstance(text, str):
                where = f"{self.source}:{item.line}"
                raise BertineError(f"{where}: has no text {name!r}, as the others have")
            self._counts["nul"] += text.count("\0")
            item.text = text.replace("\0", " ")
        return name

    def _choose_unit(self, units: Sequence[Unit]) -> Unit:
        """Return the unit in which most spans are in their place; the first one unless another is
        clearly better. Without its text, a span should not begin or end with blanks, which counts
        less."""
        placed: Counter[Unit] = Counter()
        for item in self.texts:
            spans = [span for answer in item.answers for span in answer.spans]
            if item.text.isascii() and "\r\n" not in item.text:
                continue  # all units are the same
            for unit in units if spans else ():
                for span, place in zip(spans, _places(item.text, spans, unit), strict=True):
                    part = item.text[slice(*place)] if place else " "
                    placed[unit] += 3 * bool(place) if span.covered else part == part.strip()
        best = max(units, key=lambda unit: placed[unit])
        return best if placed[best] > placed[units[0]] + 2 else units[0]

    def _row(self, item: AnnotatedText) -> dict[str, Any]:
        row: dict[str, Any] = {"text": item.text}
        before = len(self._agreements)
        if item.answers and self._has_spans:
            row["entities"] = self._entities(item)
        for name in self.questions:
            if votes := [answer.labels[name] for answer in item.answers if name in answer.labels]:
                column = name
                if len(self.questions) == 1:
                    column = "labels" if self._several else "label"
                row[column] = self._chosen(votes, name in self._several)
        self._counts["shared"] += len(item.answers) > 1
        self._counts["disagreements"] += min(self._agreements[before:], default=1.0) < 1
        return row | {name: value for name, value in item.fields.items() if name not in row}

    def _entities(self, item: AnnotatedText) -> list[dict[str, Any]]:
        """Return the spans that more than half of the annotators gave, in order."""
        given: list[set[tuple[int, int, str]]] = []
        for answer in item.answers:
            pairs = zip(answer.spans, _places(item.text, answer.spans, self.unit), strict=True)
            placed = [(span, place) for span, place in pairs if place is not None]
            self._misplaced += [(item, span) for span in answer.spans if span not in dict(placed)]
            given.append({(*place, span.label) for span, place in placed})
        pairs_of = combinations(given, 2)
        self._agree([2 * len(a & b) / (len(a) + len(b)) if a | b else 1.0 for a, b in pairs_of])
        votes = Counter(entity for entities in given for entity in entities)
        chosen = sorted(entity for entity, count in votes.items() if 2 * count > len(given))
        self._counts["entities"] += len(chosen)
        self._counts["outvoted"] += len(votes) - len(chosen)
        return [{"start": begin, "end": end, "label": label} for begin, end, label in chosen]

    def _chosen(self, votes: list[list[str | float]], several: bool) -> Any:
        """Return the labels that more than half of the annotators gave, or the one label that most
        gave; of equals the one given first."""
        self._agree([float(set(a) == set(b)) for a, b in combinations(votes, 2)])
        counts = Counter(label for labels in votes for label in dict.fromkeys(labels))
        if several:
            return [label for label, count in counts.items() if 2 * count > len(votes)]
        most = counts.most_common(2)
        self._counts["ties"] += len(most) > 1 and most[0][1] == most[1][1]
        return most[0][0] if most else None

    def _agree(self, shares: list[float]) -> None:
        self._agreements += [sum(shares) / len(shares)] if shares else []

    def _add_shares(self, question: str) -> None:
        """Add the share of the annotators of each label, if a text has several annotators."""
        given = [
            [label for answer in item.answers for label in answer.labels.get(question, ())]
            for item in self.texts
        ]
        if max(map(len, given)) < 2:
            return
        for label in sorted({label for labels in given for label in labels}, key=str):
            for row, labels in zip(self.rows, given, strict=True):
                share = labels.count(label) / len(labels) if labels else None
                row[f"{PREFIX}{label}"] = share

    def _notes(self, named: str, spans: int, unit: str) -> list[str]:
        counts = self._counts
        what = f", {plural(counts['entities'], 'entity')}" * self._has_spans
        what += ", labels" * bool(self.questions)
        what += f" of {', '.join(self.questions)}" * (self.questions not in ([], ["label"]))
        notes = [f"read as {self.tool}: {plural(len(self.texts), 'text')}{named}{what}"]
        if self.tool == "entities" and not named:  # nothing was guessed
            notes = []
        if self.unit.name != unit or self.unit.one_break:
            breaks = ", and \\r\\n as one" * self.unit.one_break
            notes.append(f"offsets count {self.unit.name}{breaks}, as its spans show")
        if counts["nul"]:
            notes.append(f"{plural(counts['nul'], 'zero character')} in texts read as spaces")
        if counts["shared"]:
            most = max(len(item.answers) for item in self.texts)
            share = sum(self._agreements) / max(1, len(self._agreements))
            lost = f"; {plural(counts['outvoted'], 'span')} lost" * bool(counts["outvoted"])
            ties = f"; {counts['ties']} tied, where the first answer counts" * bool(counts["ties"])
            notes.append(
                f"{plural(counts['shared'], 'text', 'has', 'have')} several annotators (up to "
                f"{most}), agreement {share:.0%}; the majority decides "
                f"{plural(counts['disagreements'], 'disagreement')}{lost}{ties}"
            )
        if self._misplaced:
            item, span = self._misplaced[0]
            says = "" if span.covered is None else f" ({briefly(span.covered)})"
            note = (
                f"{len(self._misplaced)} of "
                f"{plural(spans, 'span', 'is not where its', 'are not where their')} offsets say; "
                f"the first: {span.start} to {span.end}{says} in {briefly(item.text)}"
            )
            if 2 * len(self._misplaced) > spans:
                raise BertineError(f"{self.source}:{item.line}: {note}; is it another text?")
            notes.append(f"{note} (line {item.line}); they are left out")
        return notes


def _places(text: str, spans: Sequence[Span], unit: Unit) -> list[tuple[int, int] | None]:
    """Return the characters (begin, end) of spans; None if the offsets are not in the text, or if
    other words are there."""
    offsets = unit.offsets(text)
    characters = dict(zip(reversed(offsets), range(len(text), -1, -1), strict=True))
    places: list[tuple[int, int] | None] = []
    for span in spans:
        begin, end = characters.get(span.start, -1), characters.get(span.end, -1)
        words = text[begin:end].split() if 0 <= begin < end else []
        same = words and (span.covered is None or words == span.covered.split())
        places.append((begin, end) if same else None)
    return places
