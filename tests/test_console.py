"""Words and numbers for the terminal."""

from __future__ import annotations

from bertine.console import aligned, counted, visible, visible_list


def test_one_thing_and_more() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert counted(1, "NUL byte", "was", "were") == "1 NUL byte was"
    assert counted(2, "NUL byte", "was", "were") == "2 NUL bytes were"


def test_control_characters_are_escaped_and_letters_are_not() -> None:
    assert visible("a\tb\r\n\x1b[1m") == "a\\tb\\r\\n\\x1b[1m"
    assert visible("naïve \\ 名 \u200d") == "naïve \\ 名 \u200d"
    assert visible_list(["a\n", "b"]) == "a\\n, b"


def test_columns_stand_below_each_other_where_characters_are_wide() -> None:
    rows = [("label", "f1"), ("人名", "100.00%"), ("place", "5.00%")]
    assert aligned(rows) == ["label       f1", "人名   100.00%", "place    5.00%"]
    assert aligned([("9.1%", "中", "x"), ("10.0%", "in", "y z")], left=(1, 2)) == [
        " 9.1%  中  x",
        "10.0%  in  y z",
    ]
