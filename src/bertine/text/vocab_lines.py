"""The text that a vocabulary is learnt from, in bounded parts, and the text it is measured on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bertine.text.corpus import Corpus
from bertine.text.wordpiece import MAX_CHARS_PER_WORD

#: Held-out text beyond this many characters is trained on after all: the figures are exact enough.
_MAX_HELD_OUT = 8_000_000

#: Longer lines are given to the trainer in parts, so that a line of 50 MB is counted as others are.
LINE_PART = 1 << 16

#: Encoded data and the like: words that nobody writes are not to shape the vocabulary.
_ENDLESS_WORD = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{MAX_CHARS_PER_WORD + 1},}}")


def training_lines(corpus: Corpus, hold_out_every: int, held_out: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each document; one of `hold_out_every` goes to `held_out` instead."""
    number = held_size = 0
    for document in corpus:
        group: list[str] = []
        for line in document.text.split("\n"):
            if not line or line.isspace():
                continue
            number += 1
            due = number % hold_out_every == 0
            if due and held_size < _MAX_HELD_OUT and len(line) <= LINE_PART:
                held_out.append(line)
                held_size += len(line)
                continue
            line = _ENDLESS_WORD.sub(" ", line)
            for begin in range(0, len(line), LINE_PART):
                group.append(line[begin : begin + LINE_PART])
        if group:
            yield group


def first_lines(corpus: Corpus) -> list[str]:
    """Return the beginning of the corpus, as much as would be held out."""
    lines: list[str] = []
    size = 0
    for document in corpus:
        for line in document.text[:_MAX_HELD_OUT].split("\n"):
            lines.append(line)
            size += len(line)
        if size >= _MAX_HELD_OUT:
            break
    return lines
