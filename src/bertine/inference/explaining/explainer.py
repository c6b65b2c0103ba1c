"""Explain the answers of a loaded model, in small units of work: :class:`Explainer`."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bertine.core.console import Report, aligned, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.scores import ranking
from bertine.core.strict_json import Jsonable
from bertine.core.text import visible
from bertine.corpora.batch import Batch
from bertine.inference.compute import Computing, Engine, run_batch, run_features
from bertine.inference.explaining.target import (
    INTEGRATED_GRADIENTS,
    LEAVE_ONE_OUT,
    LOG_ODDS,
    METHODS,
    Attribution,
    Forward,
    Gradients,
    Unit,
    check_explainable,
    compute_gradients,
    decide,
    integrated_gradients,
    leave_one_out,
    mask_targets,
    outputs_of,
)
from bertine.inference.explaining.words import GivenText, read_text
from bertine.models.heads import BOTH_ORDERS, PAIR_CLASSIFIER, Model
from bertine.models.precision import using_threads
from bertine.tasks.base import Features, Task, pad_features
from bertine.tokenization.tokenizer import Tokenizer

# Nearest examples: labelled examples near to a text, for people and programs.


@dataclass(frozen=True, slots=True)
class NearExample(Jsonable):
    """A labelled example that is near to a text.

    Attributes:
        label: its label as text.
        similarity: the cosine of its vector and that of the text, at most 1.
        texts: the texts of the example, each at most 200 characters.
        file: the file of the example; "" where it was not read from one.
        line: its line in the file, from 1; 0 where it is not known.
    """

    label: str
    similarity: float
    texts: tuple[str, ...]
    file: str
    line: int

    json_digits = 6

    def cells(self) -> tuple[str, str, str]:
        """Return similarity, label and texts for a terminal."""
        text = visible(" / ".join(self.texts))
        return f"{self.similarity:.2f}", visible(self.label), text


# Explanations: their contents for people and programs.

#: The number of words that :meth:`Explanation.lines` shows, and the longest bar in characters.
_SHOWN, _BAR = 10, 24
#: The smallest full bar in log-odds, so that small effects have short bars; and the contribution
#: below which the effects of all words are called small.
_FULL, _SMALL = 1.0, 0.2
#: Colours of words for and against the answer, legible on light and dark backgrounds.
_FOR, _AGAINST = "36, 97, 138", "176, 74, 32"


@dataclass(frozen=True, slots=True)
class WordContribution(Jsonable):
    """A word of the text and what it contributes to the answer.

    Attributes:
        word: as it is written.
        part: the number of its text, from 0: 1 for the second text of a pair.
        start, end: its characters in that text, end exclusive.
        contribution: to the score; above 0 the word speaks for the answer, below 0 against it.
    """

    word: str
    part: int
    start: int
    end: int
    contribution: float

    json_digits = 6


@dataclass(frozen=True, repr=False)
class Explanation(Report):
    """The contributions of a text's words to an answer, for people and programs.

    Attributes:
        texts: the text, or those that belong together.
        answer: the answer that is explained: a label, a number, the column of a choice, the text of
            a span, the types of the entities, the piece for a mask.
        probability: of the answer; None where there is no single one.
        words: the contributions of the words, in the order of the text.
        method: ``"integrated-gradients"`` or ``"leave-one-out"``.
        unit: of the score: ``"log-odds"`` of the answer, or a regression's ``"score"``.
        score: the score of the text.
        baseline: the score of the text with every word masked; None with ``"leave-one-out"``.
        error: the sum of the contributions minus ``score - baseline``; None without a baseline.
        pieces_cut: pieces that the model does not read, because the text is too long.
        nearest: the labelled examples nearest to the text, best first; empty where they were not
            requested.
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

    json_keys = (
        *("answer", "probability", "method", "unit", "score", "baseline", "error", "words"),
        *("pieces_cut", "nearest?"),
    )
    json_digits = 6

    def strongest(self, count: int | None = None) -> list[WordContribution]:
        """Return the `count` words with the largest contributions, for or against, the strongest
        first; None: all. Of equal ones the first of the text comes first."""
        order = ranking([abs(word.contribution) for word in self.words], count)
        return [self.words[at] for at in order]

    def _full(self) -> float:
        """Return the contribution that has a full bar, or the full colour."""
        most = max((abs(word.contribution) for word in self.words), default=0.0)
        return max(most, _FULL) if self.unit == LOG_ODDS else most

    def lines(self) -> list[str]:
        """Return the explanation for a terminal: the answer, and a bar for each of its ten
        strongest words. For log-odds a full bar is 1.0, or the strongest word if that has more."""
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
            lines.append(f"  {plural(rest, 'more word')} within +-{weakest:.2f}")
        if self.pieces_cut:
            lines.append(f"  {plural(self.pieces_cut, 'piece')} at the end of the text not read")
        if self.nearest:
            lines.append("nearest examples: similarity, label, text")
            near = [("", *example.cells()) for example in self.nearest]
            lines += aligned(near, left=(0, 2, 3))
        return lines

    def _repr_html_(self) -> str:
        """Return the text with coloured words as HTML for notebooks: blue words speak for the
        answer, orange ones against it."""
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
        """Return the nearest examples as an HTML table."""
        if not self.nearest:
            return ""
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in item.cells()) + "</tr>"
            for item in self.nearest
        )
        return f"<p>nearest examples</p><table>{rows}</table>"


class Explainer:
    """A model that computes how much each word contributes to an answer. It keeps no state between
    calls, so threads may share it.

    Args:
        model: the model in evaluation mode; it computes the gradients.
        tokenizer: the tokenizer of the model.
        task: the task of the model; None: filling masks.
        computing: what computes outputs, an engine for example; None: `model`.
        dtype: the type in which outputs are computed; gradients are in fp32.
        max_tokens: maximum tokens of an input; None: the limit of the task.
        all_windows: read all windows of a long text; else only the first.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        task: Task[Any] | None,
        *,
        computing: Computing | None = None,
        dtype: torch.dtype = torch.float32,
        max_tokens: int | None = None,
        all_windows: bool = True,
    ) -> None:
        self.model, self.tokenizer, self.task = model, tokenizer, task
        self.computing: Computing = model if computing is None else computing
        self.dtype, self.all_windows = dtype, all_windows
        longest = model.config.longest_input if task is None else task.max_length
        self.max_tokens = longest if max_tokens is None else min(max_tokens, longest)
        # The token that hides a word: the mask, or padding where the vocabulary has no mask.
        mask = tokenizer.mask_token_id
        self._hidden = tokenizer.pad_token_id if mask is None else mask
        self._runner = _Outputs(task, self.max_tokens, self._hidden)

    @property
    def answers(self) -> bool:
        """Whether there is an answer to explain; generated texts are not explained."""
        try:
            self.check(LEAVE_ONE_OUT)
        except BertineError:
            return False
        return True

    def check(self, method: str) -> None:
        """Refuse an unknown method, or one that this model does not support.

        Raises:
            BertineError: the method is unknown or not supported.
        """
        if method not in METHODS:
            raise BertineError(f"method is {method!r}, but must be one of {', '.join(METHODS)}")
        several = any(head in self.model.heads for head in (PAIR_CLASSIFIER, BOTH_ORDERS))
        if method == INTEGRATED_GRADIENTS and several:
            raise BertineError(
                "this model reads the two texts apart, or in both orders, which integrated "
                f"gradients are not made for; leave out {option('method')}"
            )
        check_explainable(self.task)
        if self.task is None and "mlm" not in self.model.heads:
            raise BertineError("this model gives vectors only: there is no answer to explain")

    def explain(
        self,
        parts: Sequence[str],
        *,
        method: str = LEAVE_ONE_OUT,
        label: str | None = None,
        word: str | None = None,
    ) -> Explanation:
        """Explain the answer for a text, or for several texts that belong together.

        Args:
            parts: the texts, in the order of the task's columns.
            method: ``"leave-one-out"`` or ``"integrated-gradients"``.
            label: the label to explain in place of the answer; None: the answer.
            word: for a tagger: the word whose tag is explained; None: the tags of all entities.

        Raises:
            BertineError: an unknown method, label or word; not as many texts as the model takes; a
                text without words.
        """
        steps = self.steps(parts, method=method, label=label, word=word)
        try:
            units = next(steps)
            while True:
                units = steps.send(self.compute(units))
        except StopIteration as done:
            explanation: Explanation = done.value
            return explanation

    def steps(
        self,
        parts: Sequence[str],
        *,
        method: str = LEAVE_ONE_OUT,
        label: str | None = None,
        word: str | None = None,
    ) -> Generator[list[Unit], Sequence[Any], Explanation]:
        """Explain like :meth:`explain`, but let the caller compute: yield units of work, receive
        the results of :meth:`compute` for them, and return the explanation."""
        self.check(method)
        if self.task is None:
            self._check_mask(parts)
        given = GivenText(self.tokenizer, tuple(parts), self.max_tokens, self.all_windows)
        text = read_text(self.task, given)
        outputs = yield [Forward(features) for features in text.inputs]
        answer = decide(self.task, self.tokenizer, text, outputs, label, word)
        if method == INTEGRATED_GRADIENTS:
            attribution: Attribution = yield from integrated_gradients(text, answer)
        else:
            attribution = yield from leave_one_out(text, answer, outputs, self._hidden)
        read = {number for n in answer.inputs for number in text.word_of[n].tolist()}
        words = tuple(
            WordContribution(word.text, word.part, word.start, word.end, float(value))
            for number, (word, value) in enumerate(
                zip(text.words, attribution.contributions, strict=True)
            )
            if number in read
        )
        return Explanation(
            text.parts,
            answer.name,
            answer.probability,
            words,
            method,
            answer.unit,
            attribution.score,
            attribution.baseline,
            attribution.error,
            text.pieces_cut,
        )

    def compute(self, units: Sequence[Unit], *, one_batch: bool = False) -> list[Any]:
        """Compute the result of each unit, in their order; with `one_batch` they are not
        divided."""
        results: dict[int, Any] = {}
        inputs = [(at, unit) for at, unit in enumerate(units) if isinstance(unit, Forward)]
        if inputs:
            run = run_batch if one_batch else run_features
            outputs = run(
                self.computing,
                self._runner,
                [unit.features for _, unit in inputs],
                pad_id=self.tokenizer.pad_token_id,
                dtype=self.dtype,
            )
            results |= {at: output for (at, _), output in zip(inputs, outputs, strict=True)}
        threads = (
            using_threads(self.computing.threads)
            if isinstance(self.computing, Engine)
            else contextlib.nullcontext()
        )
        with threads:
            for at, unit in enumerate(units):
                if isinstance(unit, Gradients):
                    results[at] = compute_gradients(self.model, self.task, unit, self._hidden)
        return [results[at] for at in range(len(units))]

    def _check_mask(self, parts: Sequence[str]) -> None:
        tokenizer = self.tokenizer
        mask = tokenizer.require_mask("filling masks")
        if mask not in tokenizer.encode(parts[0], max_length=self.max_tokens).input_ids:
            raise BertineError(f"the text has no {tokenizer.mask_text}; {tokenizer.mask_hint}")


class _Outputs:
    """The part of a task that running features needs."""

    def __init__(self, task: Task[Any] | None, max_length: int, mask: int) -> None:
        self._task, self._max_length, self._mask = task, max_length, mask

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        batch = pad_features(features, pad_id, self._max_length)
        batch.targets = mask_targets(self._task, batch.input_ids, self._mask)
        return batch

    def outputs(self, model: Any, batch: Batch) -> torch.Tensor:
        return outputs_of(self._task, model, batch)
