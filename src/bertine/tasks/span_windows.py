"""Divide a question's context into windows that fit the model, and find its characters again.

A context longer than the model's inputs is read in overlapping windows (Devlin et al. 2018, section
4.2; google-research/bert, ``run_squad.py``). A piece then occurs in several windows, and only the
one with the most context around it may begin an answer with it.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import row_at
from bertine.data.examples import Examples
from bertine.data.squad import Gold, Question, SpanExamples, Unaligned
from bertine.tasks.base import Features, cut_at
from bertine.tokenization.base import Template
from bertine.tokenization.tokenizer import Tokenizer

#: Questions that the tokenizer gets at once: enough to keep its threads busy.
_TOKENIZE = 4096
#: The least room of an input besides the longest question; whether a vocabulary's special tokens
#: fit is checked when questions are encoded.
LEAST_BESIDE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFeatures(Features):
    """A pair of the question and a window of the context.

    Attributes:
        context: all of it.
        first: place in the sequence of the window's first piece.
        offsets: int32 [m, 2], characters (begin, end) in the context of the window's pieces.
        max_context: bool [m], true at pieces that no other window shows with more context.
        span: the target: places in the sequence of the answer's first and last piece; twice
            `nowhere` if the window does not hold it or there is none; None if it is unknown.
        on_pieces: if the gold answer begins or ends inside a piece (only in the first window): the
            answer, and the text of the pieces that are trained on.
        windows: the number of windows of the context.
        nowhere: the place of the token that represents the whole sequence.
        answer_pieces: of the gold answer (only in the first window); None if there is none, or it
            is unknown.
    """

    context: str
    first: int
    offsets: np.ndarray
    max_context: np.ndarray
    span: tuple[int, int] | None
    on_pieces: tuple[str, str] | None
    windows: int
    nowhere: int = 0
    answer_pieces: int | None = None

    @property
    def holds_answer(self) -> bool:
        """Whether the answer is known and lies in this window."""
        return self.span is not None and self.span != (self.nowhere, self.nowhere)


def windows(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return (begin, length) of the windows over `pieces`, each of at most `room`, `stride` apart.

    The last one reaches the end. A `stride` above `room` would leave out pieces, and counts as
    `room`. Without pieces there is one empty window, so that every question has a feature.
    """
    bounds = []
    begin = 0
    while True:
        length = min(room, pieces - begin)
        bounds.append((begin, length))
        if begin + length >= pieces:
            return bounds
        begin += min(room, stride)


def widest_view(spans: Sequence[tuple[int, int]], pieces: int) -> np.ndarray:
    """Find for each piece the window with the most context around it, by number: int64 [pieces].

    That is the one whose shorter side is longest, with a small bonus for longer windows (a
    hundredth of the length), as in the published code; ties go to the first.
    """
    best = np.full(pieces, -np.inf)
    owner = np.zeros(pieces, dtype=np.int64)
    for number, (begin, length) in enumerate(spans):
        places = np.arange(length)
        view = np.minimum(places, length - 1 - places) + 0.01 * length
        better = view > best[begin : begin + length]
        best[begin : begin + length][better] = view[better]
        owner[begin : begin + length][better] = number
    return owner


def pieces_of(offsets: np.ndarray, begin: int, end: int) -> tuple[int, int] | None:
    """Find the first and the last piece that hold one of the characters `begin` to `end`
    (exclusive).

    If none does (the tokenizer leaves out control characters), return the next piece, or the last;
    None if there are no pieces.

    Args:
        offsets: [m, 2], characters of each piece, in order.
    """
    if not len(offsets):
        return None
    first = int(np.searchsorted(offsets[:, 1], begin, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    if first > last:
        first = last = min(first, len(offsets) - 1)
    return first, last


def check_room_beside(max_length: int, max_question_length: int, least: int) -> None:
    """Refuse a `max_length` with less than `least` room besides the longest question.

    Raises:
        BertineError: there is less.
    """
    if max_length < max_question_length + least:
        raise BertineError(
            f"max_length {max_length} leaves no room for the context beside a question of up to "
            f"{max_question_length} pieces; lower {option('max_question_length')}, or raise "
            f"{option('max_length')}"
        )


def encode_spans(
    examples: Examples[Question],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    max_question_length: int,
    doc_stride: int,
) -> list[SpanFeatures]:
    """Turn questions and contexts into features, the windows of a question in order.

    A question longer than `max_question_length` pieces is cut, which the ``num_truncated`` of its
    first window counts. Each context is tokenized once, even if there are many questions on it.

    Raises:
        BertineError: an example is not a question and a context; `max_length` has no room for a
            piece of the context.
            for a piece of the context.
    """
    check_room_beside(max_length, max_question_length, tokenizer.template.added(2) + 1)
    features: list[SpanFeatures] = []
    known: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for start in range(0, len(examples), _TOKENIZE):
        part = examples.items[start : start + _TOKENIZE]
        for example in part:
            if len(example.texts) != 2:
                raise BertineError(
                    f"{row_at(examples.source, example.line)}: "
                    f"{plural(len(example.texts), 'text')}, "
                    "but the model takes 2, a question and its context"
                )
        new = [text for text in dict.fromkeys(e.texts[1] for e in part) if text not in known]
        for text, (pieces, spans) in zip(new, tokenizer.encode_offsets(new), strict=True):
            ids = np.asarray(pieces, dtype=np.int32)
            offsets = np.asarray(spans, dtype=np.int32).reshape(-1, 2)
            known[text] = ids, _with_marks(text, offsets)
        questions = tokenizer.encode_plain([example.texts[0] for example in part])
        for number, (example, question) in enumerate(zip(part, questions, strict=True)):
            features.extend(
                _windows_of(
                    example,
                    start + number,
                    np.asarray(question[:max_question_length], dtype=np.int32),
                    max(0, len(question) - max_question_length),
                    *known[example.texts[1]],
                    max_length=max_length,
                    doc_stride=doc_stride,
                    template=tokenizer.template,
                )
            )
    return features


def _windows_of(
    example: Question,
    row: int,
    question: np.ndarray,
    num_truncated: int,
    ids: np.ndarray,
    offsets: np.ndarray,
    *,
    max_length: int,
    doc_stride: int,
    template: Template,
) -> Iterator[SpanFeatures]:
    """Yield the features of one question; `question` and `ids` are without special tokens."""
    context, gold = example.texts[1], example.label
    _, first = template.two.starts([len(question), len(ids)])
    spans = windows(len(ids), max_length - template.added(2) - len(question), doc_stride)
    owner = widest_view(spans, len(ids))
    target, on_pieces = _target(context, offsets, gold)
    for number, (begin, length) in enumerate(spans):
        inside = target is not None and begin <= target[0] and target[1] < begin + length
        known = gold is not None and (gold.span is not None or not gold.answers)
        input_ids, segments = template.wrap(question, ids[begin : begin + length])
        nowhere = len(input_ids) - 1 if template.sums_up_at_end else 0
        span = (nowhere, nowhere) if known else None
        if target is not None and inside:
            span = (first + target[0] - begin, first + target[1] - begin)
        yield SpanFeatures(
            input_ids,
            segments,
            row,
            num_truncated=0 if number else num_truncated,
            context=context,
            first=first,
            offsets=offsets[begin : begin + length],
            max_context=owner[begin : begin + length] == number,
            span=span,
            on_pieces=None if number else on_pieces,
            windows=len(spans),
            nowhere=nowhere,
            answer_pieces=None if number or target is None else target[1] - target[0] + 1,
        )


def _target(
    context: str, offsets: np.ndarray, gold: Gold | None
) -> tuple[tuple[int, int] | None, tuple[str, str] | None]:
    """Find the pieces of the answer, and, if they are not exactly its text, the two texts."""
    if gold is None or gold.span is None:
        return None, None
    begin, end = gold.span
    target = pieces_of(offsets, begin, end)
    pieces_text = "" if target is None else context[offsets[target[0], 0] : offsets[target[1], 1]]
    answer = context[begin:end]
    return target, None if pieces_text == answer.strip() else (answer, pieces_text)


def _with_marks(text: str, offsets: np.ndarray) -> np.ndarray:
    """Return the offsets, with the marks that normalization removed (category Mn, which the
    published tokenizer strips: accents, vowel signs of Hindi and Thai) assigned to the letter
    before them, so that an answer does not end between an e and its accent."""
    if text.isascii():
        return offsets
    for piece in range(len(offsets)):
        end = int(offsets[piece, 1])
        while 0 < end < len(text) and _is_mark(text[end]):
            end += 1
        offsets[piece, 1] = end
    return offsets


def _is_mark(character: str) -> bool:
    # Not all marks have a combining class in Unicode: that of many vowel signs is 0.
    return unicodedata.category(character) == "Mn" or unicodedata.combining(character) > 0


def unaligned_answers(examples: Examples, features: Sequence[Features]) -> list[dict[str, Any]]:
    """List the gold answers of `examples` that are not at their place, those that begin or end
    inside a piece, and those that no window holds completely, as JSON values. Empty for other
    tasks."""
    if not isinstance(examples, SpanExamples):
        return []
    answers = [{"source": examples.source, **asdict(answer)} for answer in examples.unaligned]
    for row, windows in by_row(cast(Sequence[SpanFeatures], features)):
        inside = windows[0].on_pieces
        reasons = [f"in the pieces {inside[1]!r}"] if inside else []
        reasons += ["whole in no window"] if whole_nowhere(windows) else []
        example = examples.items[row]
        for what in reasons:
            assert example.label is not None
            assert example.label.span is not None
            begin, end = example.label.span
            answer = Unaligned(
                example.id, example.texts[0], example.texts[1][begin:end], begin, what
            )
            answers.append({"source": examples.source, **asdict(answer)})
    return answers


def whole_nowhere(windows: Sequence[SpanFeatures]) -> bool:
    """Return whether no window holds a question's gold answer completely, so that each is trained
    to answer that there is none."""
    return bool(windows[0].answer_pieces) and not any(window.holds_answer for window in windows)


def by_row(features: Sequence[SpanFeatures]) -> list[tuple[int, list[SpanFeatures]]]:
    """Group the windows of each question."""
    grouped = itertools.groupby(features, key=lambda feature: feature.row)
    return [(row, list(windows)) for row, windows in grouped]


def span_notes(
    features: Sequence[SpanFeatures],
    *,
    max_length: int,
    doc_stride: int,
    max_question_length: int,
    max_answer_length: int,
) -> list[str]:
    """Return notes on the windows of questions for the user; the other arguments are those of
    :class:`bertine.tasks.spans.SpanExtraction` and its limits."""
    questions = [windows for _, windows in by_row(features)]
    firsts = [windows[0] for windows in questions]
    total = len(firsts)
    several = sum(feature.windows > 1 for feature in firsts)
    inside = [feature.on_pieces for feature in firsts if feature.on_pieces]
    shown = ", ".join(f"{gold[:40]!r} in {pieces[:40]!r}" for gold, pieces in inside[:5])
    shown += ", …" if len(inside) > 5 else ""
    nowhere = sum(map(whole_nowhere, questions))
    long = sum((feature.answer_pieces or 0) > max_answer_length for feature in firsts)
    cut = [feature.num_truncated for feature in firsts if feature.num_truncated]
    notes = [
        (
            several,
            f"contexts are longer than an input of {max_length} pieces and are read in windows at "
            f"most {doc_stride} apart: {len(features)} inputs in all",
        ),
        (len(cut), cut_at(max_question_length, sum(cut), "questions")),
        (
            len(inside),
            "gold answers begin or end inside a piece, and the whole piece is the target "
            f"({shown})",
        ),
        (
            nowhere,
            "gold answers are whole in no window, which is trained as if there were none; "
            f"fine-tune with a lower {option('doc_stride')} or a higher max_length",
        ),
        (
            long,
            f"gold answers have more than {max_answer_length} pieces, the most that an answer may "
            f"have; fine-tune with a higher {option('max_answer_length')}",
        ),
    ]
    return [f"{count} of {total} {note}" for count, note in notes if count]
