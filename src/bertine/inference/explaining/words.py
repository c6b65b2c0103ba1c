"""Split a text into words as a model reads it, with the inputs and the place of each token.

Shape legend: T tokens of an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.data.entities import split_words
from bertine.data.examples import Example, Examples
from bertine.tasks.base import Features, Task, parts_of
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagging import Tagging
from bertine.tokenization.tokenizer import Encoding, Tokenizer


class NoWords(BertineError):
    """The error for a text without a word that could be explained."""


#: The place of a token: the number of its text, and its start and end in characters there. A
#: special token has the number -1.
Place = tuple[int, int, int]
_NOWHERE: Place = (-1, 0, 0)


@dataclass(frozen=True, slots=True)
class TextWord:
    """A word of a text.

    Attributes:
        text: as it is written.
        part: the number of its text, from 0: 1 for the second text of a pair, the context of a
            question, the first choice.
        start, end: its characters in that text, end exclusive.
    """

    text: str
    part: int
    start: int
    end: int


@dataclass(frozen=True)
class ExplainedText:
    """A text, or several that belong together, as a model reads it.

    Attributes:
        parts: the texts.
        words: the words that the model reads, in their order, without those that were cut off.
        inputs: the sequences that are computed: one, or one for each window or choice.
        word_of: int32 [T] for each input, the number of each token's word; -1 for special tokens
            and a mask to fill.
        pieces_cut: pieces that the model does not read, because the text is too long.
        first_pieces: for a tagger, int64 [words]: the token that predicts each word's tag.
    """

    parts: tuple[str, ...]
    words: tuple[TextWord, ...]
    inputs: tuple[Features, ...]
    word_of: tuple[np.ndarray, ...]
    pieces_cut: int
    first_pieces: np.ndarray | None = None


@dataclass(frozen=True)
class GivenText:
    """A text to read, or several that belong together.

    Attributes:
        tokenizer: the tokenizer of the model.
        parts: the texts that belong together, in the order of the task's columns.
        max_tokens: maximum tokens of an input; the rest is cut off as the task does.
        all_windows: read all windows of a long text; else only the first.
    """

    tokenizer: Tokenizer
    parts: tuple[str, ...]
    max_tokens: int
    all_windows: bool


@singledispatch
def read_text(task: Task[Any] | None, given: GivenText) -> ExplainedText:
    """Tokenize a text as `task` does, and record the place of each token. Here one text or a pair
    is read, or a text with a mask to fill.

    Args:
        task: the task of the model; None: filling masks.
        given: the text.

    Raises:
        BertineError: the number of texts does not fit the task, or they have no word.
    """
    tokenizer, parts, max_tokens = given.tokenizer, given.parts, given.max_tokens
    _check_parts(("text",) if task is None else task.text_columns, parts)
    mode = "head" if task is None else task.long_text
    pair = parts[1] if len(parts) == 2 else None
    encoding = tokenizer.encode(parts[0], pair, max_length=max_tokens if mode == "head" else None)
    places, size = _places(encoding), len(encoding.input_ids)
    kept = [np.arange(size)]
    if mode != "head":
        kept = parts_of(np.arange(size), max_tokens, mode, tokenizer.template.one)
    kept = kept if given.all_windows else kept[:1]
    inputs = [
        _features(
            [encoding.input_ids[at] for at in part], [encoding.token_type_ids[at] for at in part]
        )
        for part in kept
    ]
    cut = encoding.num_truncated + size - len(np.unique(np.concatenate(kept)))
    return _explained(tokenizer, parts, inputs, [[places[at] for at in part] for part in kept], cut)


def _check_parts(columns: Sequence[str], parts: tuple[str, ...]) -> None:
    if len(parts) != len(columns):
        takes = "one text" if len(columns) == 1 else f"two texts ({', '.join(columns)})"
        raise BertineError(f"this model takes {takes}; {len(parts)} given")


def _explained(
    tokenizer: Tokenizer,
    parts: tuple[str, ...],
    inputs: Sequence[Features],
    places: Sequence[Sequence[Place]],
    cut: int,
) -> ExplainedText:
    """Return a text with its `inputs`, the `places` of their tokens and the pieces `cut` off."""
    mask = -1 if tokenizer.mask_token_id is None else tokenizer.mask_token_id
    words, word_of = _words(parts, inputs, places, mask)
    return ExplainedText(parts, words, tuple(inputs), tuple(word_of), cut)


def _places(encoding: Encoding, parts: tuple[int, int] = (0, 1)) -> list[Place]:
    return [
        _NOWHERE if special else (parts[kind], *offsets)
        for kind, offsets, special in zip(
            encoding.token_type_ids, encoding.offsets, encoding.special_tokens_mask, strict=True
        )
    ]


def _features(ids: Sequence[int], types: Sequence[int], cut: int = 0) -> Features:
    return Features(np.asarray(ids, np.int32), np.asarray(types, np.int8), row=0, num_truncated=cut)


@read_text.register
def _(task: MultipleChoice, given: GivenText) -> ExplainedText:
    """Read an input for each choice; the context that all choices share is a part of its own."""
    tokenizer, parts, prompts = given.tokenizer, given.parts, len(task.prompt_columns)
    if len(parts) < prompts + 2:
        raise BertineError(
            f"{plural(len(parts), 'text')} given, but the model takes {prompts + 2} or more: "
            f"{', '.join(task.prompt_columns)}, then the choices"
        )
    choices = list(parts[prompts:])
    while choices and not choices[-1].strip():
        choices.pop()
    if len(choices) < 2 or not all(choice.strip() for choice in choices):
        raise BertineError("a choice is empty; give at least two, the empty ones left out")
    start = parts[1] + " " if prompts == 2 and parts[1] else ""
    inputs: list[Features] = []
    places: list[list[Place]] = []
    for number, choice in enumerate(choices, prompts):
        encoding = tokenizer.encode(parts[0], start + choice, max_length=given.max_tokens)
        shift = len(start)
        inputs.append(
            _features(encoding.input_ids, encoding.token_type_ids, encoding.num_truncated)
        )
        places.append(
            [
                place
                if place[0] != 1
                else (1, place[1], place[2])
                if place[1] < shift
                else (number, place[1] - shift, place[2] - shift)
                for place in _places(encoding)
            ]
        )
    return _explained(tokenizer, parts, inputs, places, sum(item.num_truncated for item in inputs))


@read_text.register
def _(task: SpanExtraction, given: GivenText) -> ExplainedText:
    """Read an input of the question and each window of its context."""
    tokenizer, parts = given.tokenizer, given.parts
    _check_parts(task.text_columns, parts)
    examples: Examples[Any] = Examples("input", task.text_columns, None, [Example(parts)])
    features = task.featurize(examples, tokenizer)
    cut = sum(feature.num_truncated for feature in features)
    if not given.all_windows:
        end = int(features[0].offsets[-1, 1]) if len(features[0].offsets) else 0
        cut += len(tokenizer.encode_plain([parts[1][end:]])[0])
        features = features[:1]
    ((_, question),) = tokenizer.encode_offsets(parts[:1])
    before = [(0, start, end) for start, end in question[: task.limits.max_question_length]]
    places = [
        tokenizer.template.two.lay(
            [before, [(1, int(start), int(end)) for start, end in feature.offsets]], _NOWHERE
        )
        for feature in features
    ]
    return _explained(tokenizer, parts, features, places, cut)


@read_text.register
def _(task: Tagging, given: GivenText) -> ExplainedText:
    """Read a sentence whose words are tokenized one by one; as many words as fit into one input."""
    tokenizer, parts = given.tokenizer, given.parts
    _check_parts(("text",), parts)
    spans = split_words(parts[0])
    flat, counts = tokenizer.encode_words([parts[0][start:end] for start, end in spans])
    pieces = np.split(flat, np.cumsum(counts)[:-1])
    frame = tokenizer.template.one
    begin = len(frame.before)
    ids: list[int] = []
    word_of: list[int] = []
    first: list[int] = []
    words: list[TextWord] = []
    room, cut = given.max_tokens - frame.added(), 0
    for (start, end), ids_of_word in zip(spans, pieces, strict=False):
        piece = ids_of_word.tolist()
        if cut or len(piece) > room:
            cut += len(piece)
        elif piece:
            first.append(begin + len(ids))
            ids += piece
            word_of += [len(words)] * len(piece)
            words.append(TextWord(parts[0][start:end], 0, start, end))
            room -= len(piece)
    if not words:
        raise NoWords("there is no word to explain; give a text")
    return ExplainedText(
        parts,
        tuple(words),
        (_features(frame.join([ids]), frame.segments([len(ids)]).tolist()),),
        (np.array(frame.lay([word_of], -1), np.int32),),
        cut,
        np.array(first),
    )


def _words(
    parts: tuple[str, ...],
    inputs: Sequence[Features],
    places: Sequence[Sequence[Place]],
    mask: int,
) -> tuple[tuple[TextWord, ...], list[np.ndarray]]:
    """Return the words of the texts that an input contains at least in part, and the word of each
    token.

    A token that covers several words joins them into one, such as a mask, whose text is read as
    three words.
    """
    fixed = [
        np.array([place[0] < 0 for place in row]) | (item.input_ids == mask)
        for item, row in zip(inputs, places, strict=True)
    ]
    number_of: dict[tuple[int, int], int] = {}
    words: list[TextWord] = []
    for part, text in enumerate(parts):
        tokens = sorted(
            {
                (start, end)
                for row, kept in zip(places, fixed, strict=True)
                for (where, start, end), is_fixed in zip(row, kept, strict=True)
                if where == part and end > start and not is_fixed
            }
        )
        for start, end, members in _grouped(split_words(text), tokens):
            for member in members:
                number_of[part, member] = len(words)
            words.append(TextWord(text[start:end], part, start, end))
    if not words:
        raise NoWords("there is no word to explain; give a text")
    word_of = [
        np.array(
            [
                -1 if is_fixed else number_of.get((where, start), -1)
                for (where, start, _), is_fixed in zip(row, kept, strict=True)
            ],
            np.int32,
        )
        for row, kept in zip(places, fixed, strict=True)
    ]
    return tuple(words), word_of


def _grouped(
    spans: Sequence[tuple[int, int]], tokens: Sequence[tuple[int, int]]
) -> list[tuple[int, int, list[int]]]:
    """Return begin and end of each word that has tokens, and the places of these, all in their
    order."""
    groups: list[tuple[int, int, list[int]]] = []
    at, reach = 0, -1
    for start, end in tokens:
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        if start < reach and groups:  # of the same word, or of one that a token has joined to it
            first, last, members = groups.pop()
            members.append(start)
        else:
            first, last = spans[at] if at < len(spans) else (start, end)
            members = [start]
        for span in spans[at:]:
            if span[0] >= max(end, last):
                break
            last = max(last, span[1])
        last = max(last, end)
        groups.append((min(first, start), last, members))
        reach = last
    return groups
