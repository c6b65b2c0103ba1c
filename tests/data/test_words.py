"""Words of plain text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertine.data.entities import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada Lovelace, of London.", ["Ada", "Lovelace", ",", "of", "London", "."]),
        ('He said: "No..."', ["He", "said", ":", '"', "No", "...", '"']),
        ("Obama's U.S. trip", ["Obama", "'s", "U.S", ".", "trip"]),
        ("state-of-the-art don't", ["state-of-the-art", "don't"]),
        ("@paulwalk #photo http://t.co/x", ["@paulwalk", "#photo", "http://t.co/x"]),
        ("@ # 's", ["@", "#", "'", "s"]),
        ("(US$5)", ["(", "US$5", ")"]),
        ("在北京 Peking見", ["在", "北", "京", "Peking", "見"]),
        ("नमस्ते दुनिया।", ["नमस्ते", "दुनिया", "।"]),
        (" \t\n ", []),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [text[begin:end] for begin, end in split_words(text)] == words


@pytest.mark.slow
@given(st.text())
def test_words_are_in_order_and_hold_all_but_white_space(text: str) -> None:
    at = 0
    for begin, end in split_words(text):
        assert at <= begin < end
        assert not text[at:begin].strip()
        assert text[begin:end].strip() == text[begin:end]
        at = end
    assert not text[at:].strip()
