"""Tags of entities in the spellings that people use."""

from __future__ import annotations

from collections import Counter

import pytest

from bertine.data.entities import detect, spelling_of, strange_tags, to_iob2


@pytest.mark.parametrize(
    ("written", "letters", "usual"),
    [
        ("B-a I-a O", "IOBES", "B-a I-a O"),
        ("B-a M-a E-a S-b O", "BMES", "B-a I-a E-a S-b O"),
        ("B-a M-a E-a W-b O", "BMEWO", "B-a I-a E-a S-b O"),
        ("B-a I-a L-a U-b O", "BILOU", "B-a I-a E-a S-b O"),
        ("B_PER I_PER O", "IOBES", "B-PER I-PER O"),
        ("B_a M_a E_a O", "BMES", "B-a I-a E-a O"),
        ("b_per i_per O", "IOBES", "B-per I-per O"),
        ("PER-B PER-I O", "IOBES", "B-PER I-PER O"),
        ("creative-work_B creative-work_I O", "IOBES", "B-creative-work I-creative-work O"),
        ("B:a I:a O", "IOBES", "B-a I-a O"),
        ("b i o", "IOBES", "B I O"),
        ("B-a I-a 0", "IOBES", "B-a I-a O"),
        ("B-a I-a _", "IOBES", "B-a I-a O"),
    ],
)
def test_tags_of_entities_are_known_however_they_are_written(
    written: str, letters: str, usual: str
) -> None:
    spelling = spelling_of(written.split())
    assert spelling is not None
    assert spelling.letters == letters
    assert [spelling.tags[tag] for tag in written.split()] == usual.split()


@pytest.mark.parametrize(
    "written",
    [
        "NN VB O",
        "U L O",
        "I I- O",
        "s o",
        "n v o",
        "B_a I-a O",
        "1 2 O",
    ],
)
def test_other_tags_are_plain(written: str) -> None:
    assert spelling_of(written.split()) is None
    assert detect([written.split()]) == ("plain", 0)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("B-a M-a E-a O", ""),
        ("B_a I_a O", "'B_a' for B-a"),
        ("b-a i-a o", "'b-a' for B-a"),
        ("a-B a-I O", "'a-B' for B-a"),
        ("B-a I-a 0", "'0' for O"),
    ],
)
def test_an_unusual_spelling_is_said(written: str, said: str) -> None:
    spelling = spelling_of(written.split())
    assert spelling is not None
    assert spelling.unusual == said


def test_bmes_is_read_as_its_entities() -> None:
    tags = [["B-a", "M-a", "E-a", "S-b", "O"]]
    read = [["B-a", "I-a", "I-a", "B-b", "O"]]
    assert to_iob2(tags, None, "x") == (read, "IOBES", 0)
    assert to_iob2(tags, "IOBES", "x") == (read, "IOBES", 0)


@pytest.mark.parametrize(
    ("counts", "strange"),
    [
        ({"B-a": 5, "b-a": 1, "O": 9}, {"b-a"}),
        ({"B_a": 5, "I_a": 3, "I-a": 1, "O": 9}, {"I-a"}),
        ({"B-a": 5, "L-a": 1, "E-a": 1}, {"L-a"}),
        ({"NN": 5, "VB": 3, "O": 1}, set()),
        ({"W-P": 10, "VB": 5000, "NN": 1000}, set()),
    ],
)
def test_what_keeps_tags_from_being_entities_is_named(
    counts: dict[str, int], strange: set[str]
) -> None:
    assert strange_tags(Counter(counts)) == strange
