"""Progress and results in a notebook, whose kernel is made up here."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bertine.core.console import clock, in_notebook, progress, quietly
from bertine.training.display import Display


class FakeKernel:
    """What a notebook would show: the outputs of a cell, each in its last state."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.changes = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.outputs.append(data)
        at = len(self.outputs) - 1

        def update(data: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.outputs[at] = data
            self.changes += 1

        return SimpleNamespace(update=update)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=kernel.display))
    return kernel


def test_a_terminal_with_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=SimpleNamespace))
    assert not in_notebook()


def test_training_is_one_bar_that_changes_in_its_place(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertine.core.console._EVERY", 0.0)
    with Display("fine-tune", 40) as display:
        for step in range(1, 41):
            display.update(step, {"loss": f"{1 / step:.3f}", "file": "<b>&"})
    assert len(kernel.outputs) == 1
    assert kernel.changes >= 40
    shown = kernel.outputs[0]["text/html"]
    assert 'value="40" max="40"' in shown
    assert "100% (40 of 40)" in shown
    assert "loss 0.025  file &lt;b&gt;&amp;" in shown
    assert "100% (40 of 40)" in kernel.outputs[0]["text/plain"]
    assert "<b>" not in shown
    assert "script" not in shown


def test_a_bar_shows_its_end_however_quick_its_steps_were(kernel: FakeKernel) -> None:
    with progress() as bar:
        job = bar.add_task("embed", total=1000)
        for _ in range(1000):
            bar.advance(job)
    assert len(kernel.outputs) == 1
    assert kernel.changes < 100
    assert "1,000 of 1,000" in kernel.outputs[0]["text/plain"]


def test_who_wants_no_progress_gets_none(kernel: FakeKernel) -> None:
    with quietly(), progress() as bar:
        bar.advance(bar.add_task("embed", total=1))
    with progress(show=False) as bar:
        bar.advance(bar.add_task("embed", total=1))
    assert kernel.outputs == []


def test_notes_in_a_notebook_are_plain_lines_even_where_colours_are_asked_for() -> None:
    """Kernels set FORCE_COLOR, and show stderr as an alarm."""
    code = (
        "import sys, types\n"
        "shell = types.SimpleNamespace(kernel=1)\n"
        "sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: shell)\n"
        "from bertine.core.console import logger\n"
        "logger.info('a note'), logger.warning('careful')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FORCE_COLOR": "1"},
    )
    assert done.stdout == "a note\nwarning: careful\n"
    assert done.stderr == ""


def test_times_are_written_like_a_clock() -> None:
    assert [clock(seconds) for seconds in (0.4, 75, 3725.4, 100_000)] == [
        "0:00:00",
        "0:01:15",
        "1:02:05",
        "27:46:40",
    ]


def test_a_bar_whose_end_is_unknown_has_no_share(kernel: FakeKernel) -> None:
    with progress() as bar:
        bar.update(bar.add_task("reading", total=None), completed=3)
    assert "%" not in kernel.outputs[0]["text/plain"]
    assert "value=" not in kernel.outputs[0]["text/html"]
