"""What ``bertine finetune`` begins and ends with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import toys
from bertine.cli import COMMANDS, main, parse_arguments
from bertine.core.task_info import TaskInfo
from bertine.hub.model_directory import TASK
from bertine.training.finetuning.learner import next_lines


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
    assert len(commands) == 4
    assert commands[1].endswith(" --input new.csv --output answered.csv")
    for line in commands:
        program, name, *rest = shlex.split(line)
        assert program == "bertine"
        parse_arguments(COMMANDS[name], rest)
        assert str(out) in rest
    assert "error" not in captured.err
    assert sum("loaded" in line for line in captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("task", "data", "suffix"),
    [
        ("text", "my/reviews.CSV", ".csv"),
        ("regression", "prices.tsv", ".tsv"),
        ("choice", "quiz.parquet", ".parquet"),
        ("multi-label", "folder", ".csv"),
        ("spans", "train-v1.1.json", ".json"),
        ("tagging", "train.txt", ".conll"),
        ("tagging", "train.jsonl", ".jsonl"),
    ],
)
def test_a_whole_file_is_answered_in_the_format_of_the_training_data(
    task: str, data: str, suffix: str, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    info = TaskInfo(task, training={"data_path": data})
    (tmp_path / "model" / TASK).write_text(json.dumps(info.to_dict()), encoding="utf-8")
    whole_file = f"--input new{suffix} --output answered{suffix}"
    assert f"  bertine predict {tmp_path} {whole_file}" in next_lines(tmp_path)
