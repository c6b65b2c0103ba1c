"""Labels that look alike."""

from __future__ import annotations

import pytest

from bertine.tasks.labels import known_labels, look_alikes, same_numbers, told_apart


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("café", "cafe\u0301", r"'cafe\u0301'"),
        ("café", "Café", "'Café'"),
        ("café", "café\u200b", r"'café\u200b'"),
        ("a b", "a\u00a0b", r"'a\u00a0b'"),
        ("a b", "a  b", "'a  b'"),
        ("A", "\uff21", r"'\uff21'"),  # a wide one
        ("❤", "❤\ufe0f", r"'❤\ufe0f'"),
        ("Хорошо", "хорошо", "'хорошо'"),
        ("\U0001d5ba", "a", "'a'"),
        ("cat", "['cat']", "'['cat']'"),
        ("cat", '"cat"', "'\"cat\"'"),
    ],
)
def test_labels_that_look_alike_are_found_and_told_apart(one: str, other: str, shown: str) -> None:
    assert look_alikes([one, "else", other]) == [[one, other]]
    assert told_apart([one, other])[1] == shown


@pytest.mark.parametrize(
    "labels",
    [
        [":)", ":("],
        ["(", ")", "''"],
        ["[", "]"],
        ["positive", "negative"],
        ["Maße", "Masse"],
        ["1", "1.0"],
        ["résumé", "resume"],
    ],
)
def test_other_labels_do_not(labels: list[str]) -> None:
    assert look_alikes(labels) == []


def test_truth_values_are_the_numbers_that_programs_take_them_for() -> None:
    assert same_numbers(["0", "1", "true"]) == [("1", "true")]
    assert same_numbers(["False", "0.0", "2"]) == [("0.0", "False")]
    assert same_numbers(["true", "false"]) == []
    assert known_labels("True", ["0", "1"]).startswith(" (did you mean '1'?)")


def test_an_unknown_label_that_looks_like_a_known_one() -> None:
    said = known_labels("cafe\u0301", ["café", "thé"])
    assert said.startswith(r" ('cafe\u0301'; did you mean 'café', which looks alike?)")
    assert known_labels("Thé", ["café", "thé"]).startswith(" (did you mean 'thé'?)")
