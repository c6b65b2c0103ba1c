"""Names of pieces, for people: how a table, a page or an answer shows a piece of a word.

A piece that goes on with the word before it has ``##`` in front of its characters, as in BERT's
vocabularies, whatever its own vocabulary has there: ``un`` and ``##even`` are one word, of which
RoBERTa's vocabulary has ``Ġun`` and ``even``. These names are what answers and files hold
(:attr:`bertine.Tokenizer.names`), so that reports can join pieces without the vocabulary they are
from.
"""

from __future__ import annotations

from collections.abc import Iterable

_MARK = "##"


def marked(characters: str) -> str:
    """Return the name of a piece with these characters that goes on with a word."""
    return _MARK + characters


def goes_on(name: str) -> bool:
    """Tell whether a piece goes on with the word before it."""
    return len(name) > len(_MARK) and name.startswith(_MARK)


def bare(name: str) -> str:
    """Return the characters of a piece."""
    return name[len(_MARK) :] if goes_on(name) else name


def run_together(names: Iterable[str]) -> str:
    """Join pieces into words, with a space between two words."""
    return "".join(bare(name) if goes_on(name) else f" {name}" for name in names).removeprefix(" ")
