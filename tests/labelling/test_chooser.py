"""The choice of texts to label, on vectors in clusters."""

from __future__ import annotations

import numpy as np

from bertine.core.rng import generator
from bertine.labelling.chooser import Chooser, set_apart

CLASSES = 4


def clusters(count: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors fp32 [N, 16] around a middle for each class, the classes, and the middles."""
    draw = generator(0, "clusters")
    middles = draw.normal(size=(CLASSES, 16)).astype(np.float32)
    kinds = draw.integers(0, CLASSES, count)
    noise = draw.normal(size=(count, 16)).astype(np.float32)
    return middles[kinds] + 0.5 * noise, kinds, middles


def chooser(names: bool = False) -> tuple[Chooser, np.ndarray]:
    vectors, kinds, middles = clusters()
    apart = set_apart([str(row) for row in range(len(vectors))])
    return Chooser(vectors, apart, CLASSES, middles if names else None), kinds


def answer(choice: Chooser, kinds: np.ndarray, count: int) -> list[int]:
    rows = [question.row for question in choice.ask(count)]
    for row in rows:
        choice.label(row, int(kinds[row]))
    return rows


def test_the_first_texts_are_the_middles_of_clusters() -> None:
    choice, kinds = chooser()
    rows = [question.row for question in choice.ask(8) if question.reason == "rule"]
    assert {*kinds[rows].tolist()} == {*range(CLASSES)}


def test_names_find_every_class_at_once() -> None:
    choice, kinds = chooser(names=True)
    rows = [question.row for question in choice.ask(20) if question.reason == "name"]
    assert sorted(kinds[rows].tolist()) == [*range(CLASSES)]


def test_every_text_is_asked_once_and_those_set_apart_are_never_learned_from() -> None:
    choice, kinds = chooser()
    rows = [row for _ in range(7) for row in answer(choice, kinds, 100)]
    assert sorted(rows) == [*range(600)]
    assert not choice.apart[choice.learned].any()
    assert choice.apart[choice.judges].all()


def test_the_accuracy_is_that_of_texts_that_were_not_learned_from() -> None:
    choice, kinds = chooser()
    answer(choice, kinds, 100)
    choice.refit()
    accuracy = choice.accuracy()
    assert accuracy is not None
    share, low, high = accuracy
    assert low <= share <= high
    assert share > 0.9
    assert choice.comparison is not None
    assert choice.comparison.judges == len(choice.judges) == 20


def test_it_goes_on_at_random_where_random_labels_teach_more() -> None:
    choice, kinds = chooser()
    answer(choice, kinds, 200)
    # What the rule has chosen teaches nothing: its labels are those of one class but one.
    learned = choice.learned
    choice.labels[learned] = 0
    choice.labels[learned[0]] = 1
    choice.refit()
    assert choice.comparison is not None
    assert choice.comparison.random_wins
    assert "goes on at random" in choice.comparison.line()
    assert {question.reason for question in choice.ask(20)} == {"random", "judge"}
