"""Words and numbers for the terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from bertine.core.console import aligned, logger, progress, quietly, visible_list
from bertine.core.text import ESCAPED, visible


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


@pytest.mark.parametrize("width", [50, 80, 120])
def test_progress_shows_the_time_left_and_every_fact_in_a_terminal_of_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    terminal = Console(file=written, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr("bertine.core.console.console", terminal)
    facts = [f"fact{number} {number / 7:.3f}" for number in range(9)]
    with progress() as bar:
        job = bar.add_task("pretrain", total=20_000)
        bar.update(job, completed=150, facts=facts, ends=time.monotonic() + 7384.4)
    lines = written.getvalue().split("\r")[-1].splitlines()
    assert "150/20000" in written.getvalue()
    assert "left 2:03:04" in written.getvalue()
    assert all(any(fact in line for line in lines) for fact in facts)
    assert "…" not in written.getvalue()


def test_nothing_is_left_of_what_nobody_knows_the_end_of(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("bertine.core.console.console", terminal)
    with progress() as bar:
        bar.update(bar.add_task("read", total=None), completed=150)
    assert "150/?" in written.getvalue()
    assert "left" not in written.getvalue()


def test_a_command_in_a_notebooks_cell_prints_lines(tmp_path: Path) -> None:
    """The kernel asks the programs of its cells for colours, which is no terminal yet."""
    (tmp_path / "text.txt").write_text("One word after another.\n\n" * 40)
    kernel = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "JPY_PARENT_PID": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bertine", "vocab", "text.txt", "--vocab-size", "60", "--out", "v"],
        cwd=tmp_path,
        env={**os.environ, **kernel},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "counting characters" in done.stderr
    assert "\x1b" not in done.stderr


def said(monkeypatch: pytest.MonkeyPatch) -> str:
    """What a note, a warning, a bar and a note in silence leave in a terminal."""
    written = io.StringIO()
    terminal = Console(file=written, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("bertine.core.console.console", terminal)
    logger.info("a note of 100%")
    logger.warning("a warning")
    with quietly():
        logger.info("nothing")
    with progress() as bar:
        bar.update(bar.add_task("a bar", total=2), completed=1)
    return written.getvalue()


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (logging.INFO, ["a note of 100%", "warning: a warning", "a bar"]),
        (logging.WARNING, ["warning: a warning"]),
        (logging.ERROR, []),
    ],
)
def test_the_level_of_the_logger_is_what_is_printed(
    level: int, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = logger.level
    logger.setLevel(level)
    try:
        written = said(monkeypatch)
    finally:
        logger.setLevel(before)
    parts = ["a note of 100%", "warning: a warning", "a bar"]
    assert [part for part in parts if part in written] == shown
    assert "nothing" not in written


def test_logging_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable(logging.CRITICAL)
    try:
        assert said(monkeypatch) == ""
    finally:
        logging.disable(logging.NOTSET)


def test_handlers_of_the_logger_get_the_lines_in_place_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        assert said(monkeypatch) == ""
    finally:
        logger.removeHandler(handler)
    lines = [(record.levelname, record.getMessage()) for record in records]
    assert lines == [("INFO", "a note of 100%"), ("WARNING", "a warning")]


@pytest.mark.parametrize("configured", [False, True])
def test_a_fault_of_the_server_is_shown_with_its_traceback(configured: bool) -> None:
    """By the terminal, or by the handlers that a program has given the root."""
    code = (
        "import logging, bertine.core.console\n"
        f"if {configured}: logging.basicConfig(format='root: %(message)s')\n"
        "log = logging.getLogger('bertine.serving')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: log.exception('%s: a fault', '/predict\\x1b[2J')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *trace = done.stderr.splitlines()
    assert first.startswith("root: /predict" if configured else "error: /predict\\x1b[2J: a fault")
    assert trace[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1", "gbk", "utf-8"])
def test_an_encoding_without_a_character_gets_it_as_json_writes_it(encoding: str) -> None:
    text = '"é 好 → \N{GRINNING FACE} \udce9"'
    written = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=ESCAPED)
    written.write(text)
    written.flush()
    read = written.buffer.getvalue().decode(encoding)
    assert json.loads(read) == json.loads(text)
