"""Readable but odd inputs give what their clean twins give, or an error of ours, or say otherwise.

`odd_files.py` draws them; here are some of its cases, and in `make test-deep` 5,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from mistakes.odd_files import dimensions, run_cases


@pytest.mark.takes(2)
@pytest.mark.parametrize(
    ("dimension", "cases"),
    [("tables", 80), ("labels", 120), ("tags", 60), ("configs", 20), ("tokenizers", 40)],
)
def test_some_cases(dimension: str, cases: int, tmp_path: Path) -> None:
    assert run_cases(47, range(cases), tmp_path, dimension, show=9).bad == {}


@pytest.mark.deep
def test_thousands_of_cases(tmp_path: Path) -> None:
    tally = run_cases(0, range(5000), tmp_path, show=2)
    print("\n".join(tally.lines()))
    assert tally.bad == {}
    for dimension in dimensions():  # and what is refused is not nearly all
        ends = {o: n for (d, _, o), n in tally.counts.items() if d == dimension}
        same = sum(n for (d, _, o), n in tally.counts.items() if (d, o) == (dimension, "same"))
        assert same > 0.2 * sum(n for (d, _, _), n in tally.counts.items() if d == dimension), ends
