"""Reading the log of a run that may have been killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.reports.run_files import by_step, read_log, series


def test_a_killed_and_resumed_run_reads_as_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n\n{"step": 2, "loss": 2.5}\n'
        '{"step": 3, "lo'
    )
    log = by_step(read_log(path))
    assert [row["step"] for row in log] == [1, 2]
    assert series(log, "loss") == ([1.0, 2.0], [3.0, 2.5])


@pytest.mark.parametrize(
    "line",
    ["{broken", "[1]", '{"loss": 1}', '{"step": null}', "3"],
)
def test_a_line_that_is_no_log_line_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + line + '\n{"step": 2}\n')
    with pytest.raises(BertineError, match="line 2"):
        read_log(path)
    # A run that goes on says what it leaves out, and loses nothing else.
    assert read_log(path, mend=True) == [{"step": 1}, {"step": 2}]
    assert "line 2 is not a JSON object with a number 'step'; it is left out" in " ".join(
        capsys.readouterr().err.split()
    )


def test_half_a_surrogate_pair_is_shown_but_not_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "text": "\\ud800"}\n{"step": 2, "text": "\\ud83d\\ude00"}\n')
    assert [entry["step"] for entry in read_log(path)] == [1, 2]
    assert read_log(path, mend=True) == [{"step": 2, "text": "\N{GRINNING FACE}"}]
    assert "line 1 has half a surrogate pair; it is left out" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_text_with_line_ends_of_its_own_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "text": "a\u2028b\x85c"}\n{"step": 2}\n', encoding="utf-8")
    assert [entry["step"] for entry in read_log(path)] == [1, 2]
