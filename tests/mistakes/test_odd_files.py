"""Readable but odd inputs give what their clean twins give, or an error of ours, or say otherwise.

`odd_files.py` draws them; here are some of its cases, and in `make test-deep` 5,000."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertine.core.console import logger
from bertine.core.errors import BertineError
from mistakes.odd_files import Answer, Case, dimensions, run, run_cases


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


def _refused() -> Answer:
    raise BertineError("a.csv: is odd")


def _breaks() -> Answer:
    raise KeyError("text")


def _warns() -> Answer:
    logger.warning("a.csv: is read otherwise")
    return Answer([2])


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda: Answer([1]), "same"),
        (lambda: Answer([1], ["a note"]), "same"),
        (lambda: Answer([2], ["a note"]), "said"),
        (_warns, "said"),
        (lambda: Answer([2]), "SILENT"),
        (lambda: Answer([2], ["a.csv: 3 blank lines were skipped"]), "SILENT"),
        (lambda: Answer([1, 2]), "SILENT"),
        (_refused, "refused"),
        (_breaks, "TRACEBACK"),
    ],
)
def test_how_a_case_ends(read: Any, outcome: str) -> None:
    assert run(Case({"kind": "x"}, read, [1])).outcome == outcome
