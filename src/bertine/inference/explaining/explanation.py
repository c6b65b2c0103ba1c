"""An explanation as people and programs read it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from bertine.inference.explaining.explained_answer import LOG_ODDS
from bertine.inference.explaining.near_example import NearExample
from bertine.scores import ranking
from bertine.terminal.console import aligned, counted, visible

#: Words that :meth:`Explanation.lines` shows, and the longest bar, in characters.
_SHOWN, _BAR = 10, 24
#: Log-odds that make a full bar at the least, so that small effects have short bars; and below
#: which the effects of all words are said to be small.
_FULL, _SMALL = 1.0, 0.2
#: Colours of words for and against the answer, legible on light and dark grounds.
_FOR, _AGAINST = "36, 97, 138", "176, 74, 32"


@dataclass(frozen=True, slots=True)
class WordContribution:
    """A word of the text and what it contributes to the answer.

    Attributes:
        word: as it is written.
        part: the number of the text it stands in, from 0 on: 1 for the second text of a pair.
        start, end: its characters in that text, end exclusive.
        contribution: to the score; above 0 the word speaks for the answer, below 0 against it.
    """

    word: str
    part: int
    start: int
    end: int
    contribution: float

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "word": self.word,
            "part": self.part,
            "start": self.start,
            "end": self.end,
            "contribution": round(self.contribution, 6),
        }


@dataclass(frozen=True)
class Explanation:
    """The contributions of a text's words to an answer.

    Attributes:
        texts: the text, or those that belong together.
        answer: what is explained: a label, a number, the column of a choice, the text of a span,
            the types of the entities, the piece for a mask.
        probability: of the answer; None where there is no single one.
        words: in their order.
        method: ``"integrated-gradients"`` or ``"leave-one-out"``.
        unit: of the score: ``"log-odds"`` of the answer, or a regression's ``"score"``.
        score: of the text.
        baseline: of the text with every word masked; None with ``"leave-one-out"``.
        error: the sum of the contributions less ``score - baseline``; None without a baseline.
        pieces_cut: pieces that the model does not read, because the text is too long.
        nearest: the labelled examples nearest to the text, best first; empty where nobody asked.
    """

    texts: tuple[str, ...]
    answer: str
    probability: float | None
    words: tuple[WordContribution, ...]
    method: str
    unit: str
    score: float
    baseline: float | None
    error: float | None
    pieces_cut: int
    nearest: tuple[NearExample, ...] = ()

    def strongest(self, count: int | None = None) -> list[WordContribution]:
        """Return the `count` words that contribute most, for or against, the strongest first; None:
        all. Of equal ones the first of the text comes first."""
        order = ranking([abs(word.contribution) for word in self.words], count)
        return [self.words[at] for at in order]

    def _full(self) -> float:
        """Return the contribution that has a full bar, or the full colour."""
        most = max((abs(word.contribution) for word in self.words), default=0.0)
        return max(most, _FULL) if self.unit == LOG_ODDS else most

    def lines(self) -> list[str]:
        """Return what a person reads in the terminal: the answer, and a bar for each of its ten
        strongest words. Of log-odds a full bar is 1.0 or, where a word has more, the strongest
        word."""
        sure = "" if self.probability is None else f" ({self.probability:.1%})"
        what = "the log-odds" if self.unit == LOG_ODDS else "the score"
        answer = visible(self.answer) or "no answer"
        lines = [f"{answer}{sure}: what each word adds to {what} ({self.method})"]
        shown = self.strongest(_SHOWN)
        most = self._full()
        rows = []
        for word in shown:
            value = word.contribution
            length = round(_BAR * abs(value) / most) if most else 0
            bar = ("+" if value > 0 else "-") * length
            rows.append(("", visible(word.word), f"{value:+.2f}", "", bar))
        lines += aligned(rows, left=(0, 1, 4))
        strongest = abs(shown[0].contribution)
        if self.unit == LOG_ODDS and strongest < _SMALL:
            lines.append(
                f"  all effects are small: no word changes the log-odds by more than "
                f"{strongest:.2f}"
            )
        rest = len(self.words) - len(shown)
        if rest:
            weakest = abs(shown[-1].contribution)
            lines.append(f"  {counted(rest, 'more word')} within +-{weakest:.2f}")
        if self.pieces_cut:
            lines.append(f"  {counted(self.pieces_cut, 'piece')} at the end of the text not read")
        if self.nearest:
            lines.append("nearest examples: similarity, label, text")
            near = [("", *example.cells()) for example in self.nearest]
            lines += aligned(near, left=(0, 2, 3))
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return what a program reads; only JSON types."""

        def rounded(value: float | None) -> float | None:
            return None if value is None else round(value, 6)

        return {
            "answer": self.answer,
            "probability": rounded(self.probability),
            "method": self.method,
            "unit": self.unit,
            "score": rounded(self.score),
            "baseline": rounded(self.baseline),
            "error": rounded(self.error),
            "words": [word.to_dict() for word in self.words],
            "pieces_cut": self.pieces_cut,
            **({"nearest": [each.to_dict() for each in self.nearest]} if self.nearest else {}),
        }

    def _repr_html_(self) -> str:
        """Return the texts with coloured words, for notebooks: blue speaks for the answer, orange
        against it."""
        sure = "" if self.probability is None else f" ({self.probability:.1%})"
        head = f"<b>{html.escape(self.answer) or 'no answer'}</b>{sure}"
        most = self._full() or 1.0
        paragraphs = []
        for part, text in enumerate(self.texts):
            pieces, at = [], 0
            for word in self.words:
                if word.part != part:
                    continue
                colour = _FOR if word.contribution > 0 else _AGAINST
                depth = 0.6 * abs(word.contribution) / most
                pieces.append(html.escape(text[at : word.start]))
                pieces.append(
                    f'<span style="background: rgba({colour}, {depth:.2f}); border-radius: .2em" '
                    f'title="{word.contribution:+.3f}">{html.escape(word.word)}</span>'
                )
                at = word.end
            pieces.append(html.escape(text[at:]))
            paragraphs.append(f'<p style="white-space: pre-wrap">{"".join(pieces)}</p>')
        note = "blue speaks for the answer, orange against it"
        return f"<div><p>{head}: {note}</p>{''.join(paragraphs)}{self._nearest_html()}</div>"

    def _nearest_html(self) -> str:
        """Return the nearest examples as a table."""
        if not self.nearest:
            return ""
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in each.cells()) + "</tr>"
            for each in self.nearest
        )
        return f"<p>nearest examples</p><table>{rows}</table>"
