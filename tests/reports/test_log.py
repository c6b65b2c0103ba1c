"""Reading the log of a run that may have been killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertine.errors import BertineError
from bertine.reports.log import read_log, series


def test_a_killed_and_resumed_run_reads_as_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n\n{"step": 2, "loss": 2.5}\n'
        '{"step": 3, "lo'
    )
    log = read_log(path)
    assert [row["step"] for row in log] == [1, 2]
    assert series(log, "loss") == ([1.0, 2.0], [3.0, 2.5])


def test_an_empty_log_is_empty(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    assert read_log(tmp_path / "log.jsonl") == []


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"loss": 1}', '{"step": null}', "3"])
def test_a_line_that_is_no_log_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + line + "\n")
    with pytest.raises(BertineError, match="line 2"):
        read_log(path)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match=r"no\.jsonl"):
        read_log(tmp_path / "no.jsonl")
