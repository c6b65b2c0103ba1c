"""The log of a run: whole lines, cut back on resume; TensorBoard files by option."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.reports.run_files import read_log
from bertine.training.display import Tracker
from bertine.training.fit import FitConfig


def write(folder: Path, steps: range, resume_step: int = 0, note: str = "") -> None:
    tracker = Tracker(folder, resume_step=resume_step)
    for step in steps:
        tracker.log({"step": step, "loss": step / 10, "note": note})
    tracker.close()


def steps(folder: Path) -> list[tuple[int, str]]:
    return [(entry["step"], entry["note"]) for entry in read_log(folder / "log.jsonl")]


def test_lines_are_there_while_the_run_goes_on(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    assert read_log(tmp_path / "log.jsonl") == []
    tracker.log({"step": 1, "loss": 0.1 + 0.2, "text": "é"})
    assert read_log(tmp_path / "log.jsonl") == [{"step": 1, "loss": 0.1 + 0.2, "text": "é"}]
    tracker.sync()
    tracker.close()


def test_lines_after_the_checkpoint_are_cut_away(tmp_path: Path) -> None:
    write(tmp_path, range(1, 6), note="first")
    write(tmp_path, range(4, 6), resume_step=3, note="again")
    assert steps(tmp_path) == [
        *((step, "first") for step in (1, 2, 3)),
        *((step, "again") for step in (4, 5)),
    ]
    write(tmp_path, range(1, 2), note="anew")
    assert steps(tmp_path) == [(1, "anew")]


@pytest.mark.parametrize("cut", range(1, 34))
def test_a_half_written_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    """Wherever it is cut; and the next line does not stick to it."""
    write(tmp_path, range(1, 4))
    file = tmp_path / "log.jsonl"
    raw = file.read_bytes()
    last = len(raw.splitlines(keepends=True)[-1])
    assert cut < last
    file.write_bytes(raw[:-cut])
    # All that is missing after one byte is the line's end.
    whole = 3 if cut == 1 else 2
    assert [step for step, _ in steps(tmp_path)] == [1, 2, 3][:whole]
    write(tmp_path, range(4, 5), resume_step=3)
    assert [step for step, _ in steps(tmp_path)] == [*[1, 2, 3][:whole], 4]
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_tensorboard_files(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker = Tracker(tmp_path, tensorboard=True)
    tracker.log({"step": 10, "loss": 2.5, "epoch": 1, "phase": "warm-up"})
    tracker.log({"step": 20, "loss": 1.25})
    tracker.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "epoch"}
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(10, 2.5), (20, 1.25)]
    # What a resumed run does over again is not shown twice.
    tracker = Tracker(tmp_path, resume_step=10, tensorboard=True)
    tracker.log({"step": 20, "loss": 1.5})
    tracker.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(10, 2.5), (20, 1.5)]


def test_tensorboard_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    # Before the run's folder is made.
    with pytest.raises(BertineError, match="pip install tensorboard"):
        FitConfig(steps=1, learning_rate=1e-3, tensorboard=True)
    with pytest.raises(BertineError, match="pip install tensorboard"):
        Tracker(tmp_path, tensorboard=True)
