"""Rows that a model was trained on are known again, and are not held out."""

from __future__ import annotations

import pytest

from bertine.data.entities import Sentence, Sentences
from bertine.data.examples import (
    ROWS,
    Example,
    Examples,
    count_known,
    row_number,
    row_numbers,
    rows_as_facts,
    rows_in_facts,
)
from bertine.data.squad import Gold, Question, SpanExamples

ITEMS = [Example((f"text {n}", f"other {n}"), "ab"[n % 2], n) for n in range(40)]
KNOWN = row_numbers(ITEMS)


@pytest.mark.parametrize(
    ("items", "known"),
    [
        pytest.param(ITEMS, 40, id="the same"),
        pytest.param(ITEMS[::-1], 40, id="another order"),
        pytest.param(ITEMS[3:9], 6, id="a part"),
        pytest.param([*ITEMS, *(Example((f"new {n}", "x")) for n in range(60))], 40, id="more"),
        pytest.param([Example(item.texts[::-1]) for item in ITEMS], 40, id="sides swapped"),
        pytest.param(
            [Example((a.upper(), f"  {b}\t")) for a, b in (item.texts for item in ITEMS)],
            40,
            id="case and blanks",
        ),
        pytest.param([Example(item.texts, "c") for item in ITEMS], 40, id="other labels"),
        pytest.param([Example((item.texts[0],)) for item in ITEMS], 0, id="one text of the two"),
        pytest.param([*ITEMS[:2], *(Example((f"{n}",)) for n in range(50))], 0, id="a few"),
        pytest.param([], 0, id="none"),
    ],
)
def test_rows_are_known_again(items: list[Example], known: int) -> None:
    assert count_known(items, KNOWN) == known
    assert count_known(items, frozenset()) == 0


def test_a_model_directory_keeps_its_rows_and_those_before() -> None:
    before = row_numbers([Example(("an earlier one",))])
    facts = {ROWS: rows_as_facts(KNOWN, before)}
    assert rows_in_facts(facts) == (KNOWN, before)
    damaged = ({}, {ROWS: None}, {ROWS: {"own": "%"}}, {ROWS: {"own": 3}}, {ROWS: {"own": "AAA="}})
    assert {rows_in_facts(facts) for facts in damaged} == {(frozenset(), frozenset())}


def _spans() -> SpanExamples:
    items = [Question((f"q{n}", f"context {n // 4}"), Gold(("a",)), n) for n in range(80)]
    return SpanExamples("file", ("question", "context"), "answer", items)


def _sentences() -> Sentences:
    items = [Sentence((f"w{n}", "x"), ("O", "O"), 2 * n) for n in range(80)]
    return Sentences("file", ("word",), "tag", items)


@pytest.mark.parametrize(
    "examples", [Examples("file", ("a", "b"), "label", ITEMS), _spans(), _sentences()]
)
def test_known_rows_are_not_held_out(examples: Examples) -> None:
    some = list(examples.items)
    wanted = len(examples.hold_out(0.1, 0)[1])
    half = row_numbers(some[: len(some) // 2])
    train, held = examples.hold_out(0.1, 0, known=half)
    assert (len(held), len(train)) == (wanted, len(some) - wanted)
    assert not any(row_number(item) in half for item in held.items)
    # Where all are known, or all but too few, they are held out as usual, which is then said.
    for known in (row_numbers(some), row_numbers(some[: len(some) - 1])):
        assert examples.hold_out(0.1, 0, known=known)[1].items == examples.hold_out(0.1, 0)[1].items
    labels = {str(item.label) for item in some}
    assert {str(item.label) for item in train.items} == labels


def test_known_sentences_are_held_out_where_the_others_cannot_be() -> None:
    """The only one that is not known has a tag that is nowhere else."""
    items = [Sentence((f"w{n}",), ("B-X" if n == 3 else "O",), n) for n in range(10)]
    known = row_numbers(item for item in items if item.line != 3)
    examples = Sentences("file", ("word",), "tag", items)
    assert examples.hold_out(0.1, 0, known=known)[1].items == examples.hold_out(0.1, 0)[1].items
