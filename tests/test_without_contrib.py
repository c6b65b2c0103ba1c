"""The core works without contrib: its tests pass on a copy of the source without that folder."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bertine

TESTS = Path(__file__).parent
#: Folders of tests of the whole program, as are the files next to them.
WHOLE = {"contrib", "fixtures", "golden", "mistakes"}
ROOMS = sorted(
    path.name for path in TESTS.iterdir() if [*path.rglob("test_*.py")] and path.name not in WHOLE
)
#: Rooms whose tests are run in the slow tier; those of the others are for use by hand.
SAMPLE = {"core", "options", "hub", "objectives", "datasets"}


def test_no_test_of_the_core_imports_contrib() -> None:
    wrong = []
    for room in ROOMS:
        for file in (TESTS / room).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "contrib" in text else ():
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                if any(f"{name}.".startswith(("bertine.contrib.", "contrib.")) for name in modules):
                    wrong.append(f"{file}:{node.lineno}")
    assert wrong == []


@pytest.fixture
def run(once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[..., str]:
    """Run Python with a copy of the source without contrib; return what is printed."""

    def copy(folder: Path) -> None:
        left_out = shutil.ignore_patterns("contrib", "__pycache__")
        shutil.copytree(Path(bertine.__file__).parent, folder / "bertine", ignore=left_out)
        assert not (folder / "bertine" / "contrib").exists()
        assert (folder / "bertine" / "core" / "contrib.py").exists()

    source = once("without-contrib", copy)
    # The tests there are not those of a worker here.
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    environment |= {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}

    def python(*arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=TESTS.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout + done.stderr

    return python


@pytest.mark.slow
def test_names_of_contrib_are_unknown(run: Callable[..., str]) -> None:
    where = run("-c", "import bertine; print(bertine.__file__); assert 'paper' not in dir(bertine)")
    assert not Path(where.strip()).is_relative_to(TESTS.parent)
    assert "has no attribute 'paper'" in run("-c", "import bertine; bertine.paper", status=1)
    told = run("-m", "bertine", "paper", status=2)
    assert told == "bertine: error: unknown command 'paper'; see 'bertine --help'\n"
    assert "begin:" not in run("-m", "bertine", "--help")


@pytest.mark.parametrize(
    "room",
    [
        *(pytest.param(room, marks=pytest.mark.slow) for room in sorted(SAMPLE)),
        *(pytest.param(room, marks=pytest.mark.deep) for room in ROOMS if room not in SAMPLE),
    ],
)
def test_the_tests_of_the_core_pass(run: Callable[..., str], room: str) -> None:
    arguments = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    assert " passed" in run("-m", "pytest", *arguments, str(TESTS / room))
