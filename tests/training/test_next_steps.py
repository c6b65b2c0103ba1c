"""What ``bertine finetune`` begins and ends with."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import toys
from bertine.cli import main, parse_arguments
from bertine.commands import COMMANDS


def test_a_run_ends_with_its_page_and_commands_that_parse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = toys.write_model(tmp_path / "m")
    toys.write_labelled(tmp_path / "train.csv")
    out = tmp_path / "my run"
    given = ["--model", str(model), "--data", str(tmp_path / "train.csv"), "--out", str(out)]
    assert main(["finetune", "text", *given, "--epochs", "1"]) == 0
    captured = capsys.readouterr()
    assert "<html" in (out / "report.html").read_text()
    assert f"report: {out / 'report.html'}" in captured.out
    commands = captured.out.partition("next:\n")[2].splitlines()
    assert len(commands) == 3
    for line in commands:
        program, name, *rest = shlex.split(line)
        assert program == "bertine"
        parse_arguments(COMMANDS[name], rest)
        assert str(out) in rest
    assert "error" not in captured.err
    assert sum("loaded" in line for line in captured.err.splitlines()) == 1
