"""Entities in tags: what conlleval counts, schemes read, detected and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.data.entities import (
    Counts,
    Entity,
    Scheme,
    detect,
    encode,
    entities,
    misfits,
    span_counts,
    tag_counts,
    to_iob2,
)

# The scorer of the CoNLL tasks, restated from its rules as a machine that reads line by line, in
# the order in which it does: nothing of it is shared with the code under test.

#: Pairs of prefixes (of a word and the next) between which a chunk of one type ends, or begins.
ENDS = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
BEGINS = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}


@dataclass
class Conlleval:
    """Counts after the lines read so far."""

    correct: Counter[str] = field(default_factory=Counter)
    found_true: Counter[str] = field(default_factory=Counter)
    found_guessed: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    right: int = 0
    inside: bool = False
    last: tuple[str, str] = ("O", "")
    last_guess: tuple[str, str] = ("O", "")

    @staticmethod
    def ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
        changed = before[0] != "O" and before[1] != now[1]
        return (before[0], now[0]) in ENDS or changed

    @staticmethod
    def begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
        changed = now[0] != "O" and before[1] != now[1]
        return (before[0], now[0]) in BEGINS or changed

    @staticmethod
    def parsed(tag: str) -> tuple[str, str]:
        prefix, _, kind = tag.partition("-")
        return prefix, kind

    def line(self, tag: str, guess: str, boundary: bool = False) -> None:
        now, guessed = self.parsed(tag), self.parsed(guess)
        if self.inside:
            true_ends, guess_ends = self.ends(self.last, now), self.ends(self.last_guess, guessed)
            if true_ends and guess_ends and self.last[1] == self.last_guess[1]:
                self.inside = False
                self.correct[self.last[1]] += 1
            elif true_ends != guess_ends or now[1] != guessed[1]:
                self.inside = False
        true_begins = self.begins(self.last, now)
        guess_begins = self.begins(self.last_guess, guessed)
        if true_begins and guess_begins and now[1] == guessed[1]:
            self.inside = True
        self.found_true[now[1]] += true_begins
        self.found_guessed[guessed[1]] += guess_begins
        if not boundary:
            self.tokens += 1
            self.right += now == guessed
        self.last, self.last_guess = now, guessed


def conlleval(truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]) -> Conlleval:
    state = Conlleval()
    for tags, given_tags in zip(truth, guesses, strict=True):
        for tag, guess in zip(tags, given_tags, strict=True):
            state.line(tag, guess)
        state.line("O", "O", boundary=True)
    return state


TAGS = ["O", "B-a", "I-a", "B-b", "I-b", "B-b-c", "I-b-c"]
UNTYPED = ["O", "B", "I"]


@st.composite
def pairs_of_tags(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences of random tags, and others of the same lengths: nearly all are malformed. Half of
    the guesses are right, so that something is correct."""
    tags = draw(st.sampled_from([TAGS, UNTYPED, TAGS + UNTYPED]))
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    truth = [draw(st.lists(st.sampled_from(tags), min_size=n, max_size=n)) for n in lengths]
    guesses = [
        [draw(st.one_of(st.just(tag), st.sampled_from(tags))) for tag in sentence]
        for sentence in truth
    ]
    return truth, guesses


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(pairs_of_tags())
def test_counts_are_those_of_conlleval(both: tuple[list[list[str]], list[list[str]]]) -> None:
    truth, guesses = both
    expected = conlleval(truth, guesses)
    counts = span_counts(map(entities, truth), map(entities, guesses))
    assert {kind: n.correct for kind, n in counts.items() if n.correct} == +expected.correct
    assert {kind: n.true for kind, n in counts.items() if n.true} == +expected.found_true
    assert {kind: n.predicted for kind, n in counts.items() if n.predicted} == (
        +expected.found_guessed
    )


def test_scores_by_hand() -> None:
    # The example in the documentation of the CoNLL-2000 task has this shape: one right, one with
    # a wrong end, one of the wrong type, one missed.
    truth = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-ORG", "O", "B-LOC", "I-LOC"]]
    guess = [["B-PER", "I-PER", "O", "B-ORG", "O", "O", "O", "B-LOC", "O"]]
    counts = span_counts(map(entities, truth), map(entities, guess))
    assert counts["PER"] == Counts(1, 1, 1)
    assert counts["LOC"] == Counts(0, 1, 2)
    assert counts["ORG"] == Counts(0, 1, 1)
    whole = sum(counts.values(), Counts())
    assert (whole.precision, whole.recall) == (pytest.approx(1 / 3), pytest.approx(1 / 4))
    assert whole.f1 == pytest.approx(2 / 7)


def test_scores_of_nothing_are_zero() -> None:
    empty = Counts()
    assert (empty.precision, empty.recall, empty.f1) == (0.0, 0.0, 0.0)
    assert Counts(0, 0, 3).f1 == Counts(0, 3, 0).f1 == 0.0


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        (["I-a", "I-a", "B-a", "O"], [(0, 2, "a"), (2, 3, "a")]),
        (["O", "I-a", "I-b", "I-b"], [(1, 2, "a"), (2, 4, "b")]),
        (["B-a", "I-b"], [(0, 1, "a"), (1, 2, "b")]),
        (["B-a", "E-a", "I-a", "E-a"], [(0, 2, "a"), (2, 4, "a")]),
        (["B-creative-work", "I-creative-work"], [(0, 2, "creative-work")]),
        ([], []),
    ],
)
def test_entities_of_tags(tags: list[str], found: list[tuple[int, int, str]]) -> None:
    assert entities(tags) == [Entity(*each) for each in found]


@st.composite
def sentences_of_entities(draw: st.DrawFn) -> tuple[list[Entity], int]:
    """Entities that do not overlap (some touch), and a length that holds them."""
    found, at = [], 0
    for _ in range(draw(st.integers(0, 5))):
        begin = at + draw(st.integers(0, 2))
        at = begin + draw(st.integers(1, 3))
        found.append(Entity(begin, at, draw(st.sampled_from(["a", "b", "c-d"]))))
    return found, at + draw(st.integers(0, 2))


@settings(deadline=None)
@given(sentences_of_entities(), st.sampled_from(["IOB1", "IOB2", "IOBES"]))
def test_every_scheme_keeps_the_entities(
    sentence: tuple[list[Entity], int], scheme: Scheme
) -> None:
    found, length = sentence
    tags = encode(found, length, scheme)
    assert entities(tags) == found
    assert misfits(tags, scheme) == 0
    read, known, wrong = to_iob2([tags], scheme, "train.conll")
    assert (known, wrong) == (scheme, 0)
    assert read == [encode(found, length, "IOB2")]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(sentences_of_entities(), min_size=1), st.sampled_from(["IOB1", "IOB2", "IOBES"]))
def test_a_detected_scheme_fits(sentences: list[tuple[list[Entity], int]], scheme: Scheme) -> None:
    """What was written in a scheme is read without a misfit; in short samples of one scheme
    another may fit as well, with the same entities."""
    tags = [encode(found, length, scheme) for found, length in sentences]
    read, _, wrong = to_iob2(tags, None, "train.conll")
    assert wrong == 0
    assert read == [encode(found, length, "IOB2") for found, length in sentences]


@pytest.mark.parametrize(
    ("tags", "scheme", "wrong"),
    [
        (["O", "B-a", "I-a", "O", "B-b"], "IOB2", 0),
        (["O", "I-a", "I-a", "B-a", "O"], "IOB1", 0),
        (["O", "B-a", "L-a", "O", "U-b"], "IOBES", 0),  # BILOU
        (["NN", "VB", "O"], "plain", 0),
        (["LS", "UH", "NN"], "plain", 0),
    ],
)
def test_schemes_are_detected(tags: list[str], scheme: str, wrong: int) -> None:
    assert detect([tags]) == (scheme, wrong)


def test_bilou_is_read() -> None:
    tags = [["B-a", "I-a", "L-a", "U-b", "O"]]
    read, scheme, wrong = to_iob2(tags, None, "train.conll")
    assert (read, scheme, wrong) == ([["B-a", "I-a", "I-a", "B-b", "O"]], "IOBES", 0)


def test_a_named_scheme_is_held() -> None:
    tags = [["O", "I-a", "I-a"]]
    assert to_iob2(tags, "IOB2", "x")[1:] == ("IOB2", 1)
    assert to_iob2(tags, "plain", "x") == ([["O", "I-a", "I-a"]], "plain", 0)
    with pytest.raises(BertineError, match=r"train\.conll: the tag 'NN' is not one of IOB2"):
        to_iob2([["O", "NN"]], "IOB2", "train.conll")
    with pytest.raises(BertineError, match="unknown tag scheme 'BIO'; known: IOB1, IOB2"):
        to_iob2(tags, "BIO", "train.conll")


def test_plain_tags_are_counted_by_word() -> None:
    counts = tag_counts([["N", "V", "N"]], [["N", "N", "N"]])
    assert counts == {"N": Counts(2, 3, 2), "V": Counts(0, 0, 1)}
