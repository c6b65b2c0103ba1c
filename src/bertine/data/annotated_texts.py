"""Combine what people have annotated in texts: find the unit of the offsets, and let annotators
vote.

Tools count characters in different units, by the language they are written in: Python's code
points, the UTF-16 units of JavaScript, bytes; some count a line break of two characters as one.
Where a file has the text of its spans, the unit is the one in which they all are where the offsets
say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, pairwise
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.text import briefly

#: The prefix that the name of a label's column may have: of its probability, or of the share of
#: annotators that gave it.
PREFIX = "probability_"


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a text as in a file: its offsets (end exclusive) in the unit of the file, its
    label, and the text that it covers, if the file has it."""

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
        record: the object of the file, into which predictions can be written.
        text: the text itself, when its field is known.
    """

    line: int
    fields: dict[str, Any]
    answers: list[Answer]
    record: Any
    text: str = ""


@dataclass(frozen=True)
class Unit:
    """A unit of offsets: how many of it a character takes.

    Attributes:
        name: code points, UTF-16 units or UTF-8 bytes.
        one_break: whether ``\\r\\n`` counts as one character.
    """

    name: str = "code points"
    one_break: bool = False

    def offsets(self, text: str) -> Sequence[int]:
        """Return the offset of each character of a text, and of its end."""
        if text.isascii() and not (self.one_break and "\r\n" in text):
            return range(len(text) + 1)
        if self.name == "UTF-16 units":
            widths = [1 + (character > "\uffff") for character in text]
        elif self.name == "UTF-8 bytes":
            widths = [len(character.encode("utf-8", "surrogatepass")) for character in text]
        else:
            widths = [1] * len(text)
        if self.one_break:
            for at, pair in enumerate(pairwise(text)):
                widths[at] -= pair == ("\r", "\n")
        return list(accumulate(widths, initial=0))

    def characters(self, text: str) -> dict[int, int]:
        """Return the index of the character at each offset."""
        offsets = self.offsets(text)
        return dict(zip(reversed(offsets), range(len(text), -1, -1), strict=True))


UNITS = tuple(
    Unit(name, one_break)
    for one_break in (False, True)
    for name in ("code points", "UTF-16 units", "UTF-8 bytes")
)

#: An entity in code points: begin, end, label.
Entity = tuple[int, int, str]


def _place(text: str, span: Span, characters: dict[int, int]) -> tuple[int, int] | None:
    """Return the characters (begin, end) of a span without blanks around it; None if its offsets
    are not in the text, or if other words are there."""
    begin, end = characters.get(span.start, 0), characters.get(span.end, -1)
    words = text[begin:end].split() if 0 <= begin < end and span.start in characters else []
    if not words or (span.covered is not None and words != span.covered.split()):
        return None
    covered = text[begin:end]
    begin += len(covered) - len(covered.lstrip())
    return begin, begin + len(covered.strip())


class Combination:
    """The texts of a file, with the answers about each text combined into one.

    Args:
        source: the file, for messages.
        texts: in order; their offsets are in any unit.

    Attributes:
        unit: the unit of the offsets.
        columns: the names of the columns, ``text`` first.
        rows: a row for each text. ``entities`` has its spans in code points; ``label``, or
            ``labels`` where texts have several, the chosen ones, under the names of the questions
            if there are several questions. None: not annotated.
        notes: one line each on what was read, left out and decided.

    Raises:
        BertineError: most offsets are in no unit offsets of the text.
    """

    def __init__(self, source: str, texts: Sequence[AnnotatedText]) -> None:
        self.source, self._texts = source, texts
        self.notes: list[str] = []
        self._counts: Counter[str] = Counter()
        self._agreements: list[float] = []
        self._misplaced: list[tuple[AnnotatedText, Span]] = []
        answers = [answer for item in texts for answer in item.answers]
        questions = dict.fromkeys(name for answer in answers for name in answer.labels)
        self._has_spans = not questions or any(answer.spans for answer in answers)
        self._several = {
            name
            for name in questions
            if any(len(answer.labels.get(name, ())) > 1 for answer in answers)
        }
        self._questions = list(questions)
        self.unit = self._choose_unit()
        self.rows = [self._row(item) for item in texts]
        if len(questions) == 1 and questions.keys() - self._several:
            self._add_shares(self._questions[0])
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        for row in self.rows:
            row |= {name: None for name in self.columns if name not in row}
        self._note(sum(len(answer.spans) for answer in answers))

    def _choose_unit(self) -> Unit:
        """Return the unit in which most spans are in their place, the first one of equals. A span
        whose text the file does not have should at least not begin or end with blanks."""
        placed: Counter[Unit] = Counter()
        for item in self._texts:
            spans = [span for answer in item.answers for span in answer.spans]
            if item.text.isascii() and "\r\n" not in item.text:
                continue  # all units are the same
            for unit in UNITS if spans else ():
                characters = unit.characters(item.text)
                for span in spans:
                    place = _place(item.text, span, characters)
                    if place is not None and span.covered is None:
                        exact = characters.get(span.start), characters.get(span.end)
                        placed[unit] += place == exact
                    else:
                        placed[unit] += place is not None
        return max(UNITS, key=lambda unit: placed[unit])

    def _row(self, item: AnnotatedText) -> dict[str, Any]:
        row: dict[str, Any] = {"text": item.text}
        before = len(self._agreements)
        if item.answers and self._has_spans:
            row["entities"] = [
                {"start": begin, "end": end, "label": label}
                for begin, end, label in self._entities(item)
            ]
        for name in self._questions:
            if votes := [answer.labels[name] for answer in item.answers if name in answer.labels]:
                row[self._column(name)] = self._chosen(votes, name in self._several)
        self._counts["texts"] += bool(item.answers)
        self._counts["shared"] += len(item.answers) > 1
        self._counts["disagreed"] += min(self._agreements[before:], default=1.0) < 1
        return row | {name: value for name, value in item.fields.items() if name not in row}

    def _column(self, question: str) -> str:
        if len(self._questions) > 1:
            return question
        return "labels" if self._several else "label"

    def _entities(self, item: AnnotatedText) -> list[Entity]:
        """Return the spans that more than half of the annotators gave, in order."""
        characters = self.unit.characters(item.text)
        given: list[set[Entity]] = []
        for answer in item.answers:
            entities: set[Entity] = set()
            for span in answer.spans:
                place = _place(item.text, span, characters)
                if place is None:
                    self._misplaced.append((item, span))
                    continue
                trimmed = place != (characters[span.start], characters[span.end])
                self._counts["trimmed"] += trimmed
                entities.add((*place, span.label))
            given.append(entities)
        self._agree(
            [
                2 * len(a & b) / (len(a) + len(b)) if a | b else 1.0
                for a, b in combinations(given, 2)
            ]
        )
        votes = Counter(entity for entities in given for entity in entities)
        chosen = sorted(entity for entity, count in votes.items() if 2 * count > len(given))
        self._counts["entities"] += len(chosen)
        self._counts["outvoted"] += len(votes) - len(chosen)
        return chosen

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
        if shares:
            self._agreements.append(sum(shares) / len(shares))

    def _add_shares(self, question: str) -> None:
        """Add a column for each label with the share of annotators who gave it, if a text has
        several annotators."""
        given = [
            [label for answer in item.answers for label in answer.labels.get(question, ())]
            for item in self._texts
        ]
        if max(map(len, given), default=0) < 2:
            return
        for label in sorted({label for labels in given for label in labels}, key=str):
            for row, labels in zip(self.rows, given, strict=True):
                share = labels.count(label) / len(labels) if labels else None
                row[f"{PREFIX}{label}"] = share

    def _note(self, spans: int) -> None:
        """Write the notes, with `spans` spans in the file.

        Raises:
            BertineError: most of them are not in their place.
        """
        counts = self._counts
        if self._misplaced:
            item, span = self._misplaced[0]
            says = "no text" if span.covered is None else briefly(span.covered)
            where = f"({span.start} to {span.end}, {says}, in {briefly(item.text)})"
            what = (
                f"{len(self._misplaced)} of {plural(spans, 'span')} are not where their offsets say"
            )
            if 2 * len(self._misplaced) > spans:
                raise BertineError(
                    f"{self.source}:{item.line}: {what} {where}; is the text another one?"
                )
            self._say(f"{what} and are left out; the first is in line {item.line} {where}")
        if self.unit != UNITS[0]:
            breaks = ", and \\r\\n as one" * self.unit.one_break
            self._say(f"the offsets count {self.unit.name}{breaks}, as the texts of the spans show")
        if counts["trimmed"]:
            self._say(f"blanks around {plural(counts['trimmed'], 'span')} are left out")
        if counts["shared"]:
            share = sum(self._agreements) / len(self._agreements)
            ties = f", {counts['ties']} of them tied (the first answer counts)" * bool(
                counts["ties"]
            )
            lost = f"; {plural(counts['outvoted'], 'span')} lost" * bool(counts["outvoted"])
            most = max(len(item.answers) for item in self._texts)
            self._say(
                f"{plural(counts['shared'], 'text', 'has', 'have')} several annotators (up to "
                f"{most}), agreement {share:.0%}; the majority decides "
                f"{plural(counts['disagreed'], 'disagreement')}{ties}{lost}"
            )
        without = len(self._texts) - counts["texts"]
        if without:
            self._say(f"{without} of {plural(len(self._texts), 'text')} are not annotated")

    def _say(self, note: str) -> None:
        self.notes.append(f"{self.source}: {note}")


def choose_text(source: str, texts: Sequence[AnnotatedText], usual: Iterable[str]) -> str:
    """Find the field that is the text, and set the text of each item: the field that has the texts
    of the spans, else one of the `usual` names, else the longest.

    Raises:
        BertineError: there is no text, or one lacks it.
    """
    sizes: Counter[str] = Counter()
    covering: Counter[str] = Counter()
    for item in texts:
        covered = [span.covered for answer in item.answers for span in answer.spans if span.covered]
        for name, value in item.fields.items():
            if isinstance(value, str):
                sizes[name] += len(value)
                covering[name] += sum(part in value for part in covered)
    best = [name for name, _ in covering.most_common(1) if covering[name]]
    if not sizes:
        raise BertineError(f"{source}: has no text in any field")
    longest = sizes.most_common(1)[0][0]
    name = next(name for name in (*best, *usual, longest) if name in sizes)
    for item in texts:
        text = item.fields.get(name)
        if not isinstance(text, str):
            raise BertineError(f"{source}:{item.line}: has no text {name!r}, as the others have")
        item.text = text
    return name
