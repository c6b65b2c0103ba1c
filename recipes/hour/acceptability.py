"""A task made of raw text: which sentences stand in a text, and which were damaged by rule?

It asks for what CoLA asks for, and costs no labels: words are moved, left out, put in, put in the
place of others of their kind, or given another ending. A model learns it between pre-training and
CoLA (another task in between: Phang et al. 2018, arXiv 1811.01088; telling real sentences from fake
ones before CoLA: Warstadt et al. 2019, arXiv 1805.12471).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.files import write_text
from bertine.core.rng import generator
from bertine.tokenization.documents import Corpus
from bertine.tokenization.sentences import split_sentences

#: Words that often stand where another one of their row could.
_KINDS = (
    "in on at by for with from to of about into under over after before between against",
    "a the an this these those that some any every each all no many much",
    "he him his himself",
    "she her hers herself",
    "they them their themselves",
    "i me my myself",
    "we us our ourselves",
    "it its itself",
    "who whom which what whose that where when why how",
    "is are be been being was were am",
    "has have had having",
    "do does did done doing",
    "can could will would shall should may might must",
    "and but or because although if that while than as",
    "not never ever only also even too either neither",
)
_LIKE: dict[str, list[str]] = {}
for _row in map(str.split, _KINDS):
    for _word in _row:
        _LIKE.setdefault(_word, []).extend(other for other in _row if other != _word)
_FUNCTION_WORDS = tuple(_LIKE)
#: Words of a sentence.
_FEWEST, _MOST = 4, 16
#: What does not belong to plain sentences.
_ODD = re.compile(r'[0-9"“”\[\]():;_*]')
#: Characters of a document that are looked at, from a place that is drawn on: no document gives
#: more than a small part of all sentences.
_WINDOW = 200_000
#: How often a sentence is tried to be damaged: some ways need a word that it may not have.
_TRIES = 20


def write_acceptability(corpus: Sequence[Path], file: Path, sentences: int, seed: int) -> int:
    """Write ``sentence,label`` rows: sentences of the corpus, each followed by a damaged copy, the
    labels 1 and 0.

    Args:
        corpus: files and folders of English text.
        file: csv.
        sentences: of the corpus, at most.
        seed: of what is drawn.

    Returns:
        The number of rows.

    Raises:
        BertineError: the text has no plain sentence.
    """
    draw = generator(seed, "acceptability")
    found = list(_plain_sentences(corpus, draw))
    chosen = draw.permutation(len(found))[:sentences]
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["sentence", "label"])
    rows = 0
    for at in chosen.tolist():
        damaged = damage(found[at], draw)
        if damaged is not None:
            writer.writerows([(found[at], 1), (damaged, 0)])
            rows += 2
    if not rows:
        raise BertineError(
            f"{corpus[0]}: has no plain sentence of {_FEWEST} to {_MOST} words, of which the task "
            "of acceptability could be made; give running English text"
        )
    write_text(file, table.getvalue())
    return rows


def _plain_sentences(corpus: Sequence[Path], draw: np.random.Generator) -> Iterator[str]:
    for document in (each.text for each in Corpus(list(corpus))):
        start = int(draw.integers(max(1, len(document) - _WINDOW)))
        # The first and the last may be cut.
        for sentence in split_sentences(document[start : start + _WINDOW])[1:-1]:
            whole = sentence[0].isupper() and sentence[-1] in ".!?"
            if whole and _FEWEST <= len(sentence.split()) <= _MOST and not _ODD.search(sentence):
                yield sentence


def damage(sentence: str, draw: np.random.Generator) -> str | None:
    """Return the sentence damaged in one way that is drawn; None: none was found to do anything."""
    for _ in range(_TRIES):
        words, end, way = sentence[:-1].split(), sentence[-1], draw.random()
        at = int(draw.integers(len(words)))
        known = [place for place, word in enumerate(words) if word.lower() in _LIKE]
        if way < 0.15:
            words[at : at + 2] = words[at : at + 2][::-1]
        elif way < 0.25:
            words.insert(int(draw.integers(len(words))), words.pop(at))
        elif way < 0.4:
            place = known[int(draw.integers(len(known)))] if known and draw.random() < 0.7 else at
            del words[place]
        elif way < 0.65 and known:
            place = known[int(draw.integers(len(known)))]
            words[place] = str(draw.choice(_LIKE[words[place].lower()]))
        elif way < 0.88:
            words[at] = _with_other_ending(words[at], draw)
        else:
            words.insert(at, str(draw.choice(_FUNCTION_WORDS)))
        damaged = " ".join(words) + end
        if damaged.lower() != sentence.lower():
            return damaged
    return None


def _with_other_ending(word: str, draw: np.random.Generator) -> str:
    """Return a word of content with another ending; others as they are."""
    stem = word.rstrip(".,!?")
    if len(stem) < 3 or not stem.isalpha() or stem.lower() in _LIKE:
        return word
    for ending, others in (("ing", ("", "ed", "s")), ("ed", ("", "ing", "s"))):
        if stem.endswith(ending):
            return stem.removesuffix(ending) + str(draw.choice(others)) + word[len(stem) :]
    if stem.endswith("s") and not stem.endswith("ss"):
        return stem[:-1] + word[len(stem) :]
    return stem + str(draw.choice(("s", "s", "ed", "ing"))) + word[len(stem) :]
