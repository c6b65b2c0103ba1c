"""Every command and every Python block of every page is run, or a list says why it is not.

The ```bash, ```console and ```python blocks of a page are run in their order, in a folder of the
page's own: what a page says that the reader has is put there when it is first named
(:mod:`page_files`). Commands are those of the page but for their size: :data:`LESS` in place of
hours and epochs. Blocks marked ``run``, and the same ones in another language, are run as they
stand by :mod:`test_readme`, which also parses every command; those marked ``served`` by
:mod:`test_vector_databases`. What is no program of ours (``cp``,
``curl``) is not looked at.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.cli import main, with_name_joined
from bertine.core.console import logger
from documents import DOCUMENTS, ROOT, blocks_of_all, commands, relative, typed
from page_files import FILES, LABELS, OF_PAGES, PARTS, TEXTS

SHELLS = ("bash", "sh", "shell", "console")
#: What is parsed alone, by what it begins with, and why.
EXCUSED = {
    "bertine serve": "runs until it is stopped; tests/serving starts it",
    "bertine label": "waits for a person; tests/labelling has one",
    "bertine drift": "needs a record of the training; tests/labelling has models with one",
    "bertine blimp bertine-en$": "takes minutes; tests/inference/minimal_pairs has smaller ones",
    "make": "takes minutes; its targets are compared with the Makefile",
    "python": "takes minutes to hours",
    "torchrun": "needs eight GPUs",
    "bertine prepare /shared/texts": "needs a cluster of Ray",
    "bertine paper bert-5": "takes hours; tests/contrib/papers makes small tables",
    "bertine index-vectors": "needs 10,000 vectors; tests/inference/test_vector_index has them",
    "bertine similar .* --index": "needs that index",
    "bertine search glue": "a search of toys that cannot be learned chooses nothing; texts are run",
    "import numpy as np\n\ntexts = open": "asks a service for vectors",
    "import pandas": "needs pandas, which is not installed",
}
#: How many there are: run as they stand, run with less, on an earlier page too, and excused.
COUNTS = {"as shown": 103, "run": 268, "again": 75, "excused": 60}
#: Options that say how long a command takes, and what stands in their place.
LONG = (
    "--hours",
    "--steps",
    "--epochs",
    "--batch-size",
    "--max-seq-length",
    "--processes",
    "--restarts",
)
LESS = {
    "pretrain": ["--steps", "2", "--batch-size", "4", "--max-seq-length", "32"],
    "pretrain-elmo": ["--epochs", "1", "--batch-size", "4"],
    "distill": ["--epochs", "1"],
    "learning-curve": ["--repeats", "1", "--methods", "frozen"],
    "check-labels": ["--epochs", "1", "--folds", "2"],
    "feature-based": ["--epochs", "1", "--lstm-size", "8"],
    "search": ["--epochs", "12", "--restarts", "1", "--learning-rates", "2e-2"],
    "finetune": ["--epochs", "1"],
    "finetune-similarity": ["--epochs", "1"],
}
OUTPUTS = ("--out", "--output")


@dataclass(frozen=True)
class Step:
    """A command, or a block of Python.

    Attributes:
        page, line: where its block begins.
        text: as it is written.
        words: of a command.
        fate: one of :data:`COUNTS`.
        piped: the file that is sorted into it.
    """

    page: str
    line: int
    text: str
    words: tuple[str, ...]
    fate: str
    piped: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@cache
def steps() -> list[Step]:
    """Those of all pages."""
    found = [(path, block, typed(block)) for path, block in blocks_of_all()]
    shown = {script for _, block, script in found if {"run", "served"} & {*block.words}}
    first = dict[str, Path]()  # the page where a command stands first
    listed = []
    for path, block, script in found:
        written = [*_written(block.language, script)]
        before = path not in [first.setdefault(text, path) for text, _, _ in written]
        for text, words, piped in written:
            if script in shown:
                fate = "as shown"
            elif any(re.match(begin, text) for begin in EXCUSED):
                fate = "excused"
            else:
                fate = "again" if before else "run"
            listed.append(Step(relative(path), block.line, text, words, fate, piped))
    return listed


def _written(language: str, script: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The text of each command or block, its words, and the file that is sorted into it."""
    if language == "python":
        yield script, (), ""
    elif language in SHELLS:
        for line in script.replace("\\\n", " ").splitlines():
            piped = re.search(r"sort (\S+) \|", line)
            for program in ("bertine", "make", "python"):
                for words in commands(line, program):
                    launched = "torchrun " if "torchrun" in line else ""
                    text = f"{launched}{program} {shlex.join(words)}"
                    yield text, tuple(words), piped[1] if piped else ""


def test_everything_is_run_or_excused() -> None:
    assert Counter(step.fate for step in steps()) == COUNTS
    idle = [begin for begin in EXCUSED if not any(re.match(begin, step.text) for step in steps())]
    assert idle == []


class Reader:
    """One who types the commands of a page, in the folder where the process is."""

    def __init__(self, page: str) -> None:
        self.files = FILES | OF_PAGES.get(page, {})
        self.names: dict[str, Any] = {"bertine": bertine, "texts": TEXTS, "labels": LABELS}

    def provide(self, *names: str) -> None:
        """Put there what is named and not there yet."""
        for name in names:
            first = name.partition("/")[0]
            if first in self.files and not Path(first).exists():
                self.files[first](Path(first))

    def command(self, words: list[str]) -> None:
        # A published model or data set is a folder here: there is no hub.
        words = [PARTS.get(word, re.sub(r"^hf:(.*/)?", "", word)) for word in words]
        name, *rest = with_name_joined(words)
        kept, inputs = list[str](), list[str]()
        for option, word in zip(["", *rest], rest, strict=False):
            if option in OUTPUTS:
                _remove(Path(word))
            else:
                inputs.append(word)
            if word not in LONG and option not in LONG:
                kept.append(word)
        self.provide("minilm", *inputs)  # a small one, also where no model is named
        less = [] if {"--frozen", "--add-labels"} & {*kept} else LESS.get(name, [])
        if name == "distill" and "--steps" in rest:  # on a store
            less = LESS["pretrain"]
        assert main([name, *kept, *less]) == 0

    def python(self, text: str) -> None:
        text = re.sub(r'"hf:(.*/)?', '"', text)
        made = re.findall(r'\bout="([^"]+)"', text)
        for name in made:
            _remove(Path(name))
        self.provide(*{*re.findall(r'"([^"\n]+)"', text)} - {*made})
        less = re.sub(r"\bsteps=[\d_]+", "steps=2, batch_size=4, max_seq_length=32", text)
        less = re.sub(r"\bcv=\d", "cv=2", less).replace('("run")', '("run", epochs=1)')
        less = re.sub(r'\bout="reviews-\w+"', r"\g<0>, epochs=1", less)
        exec(compile(less, "page", "exec"), self.names)


def _remove(path: Path) -> None:
    """Make room for what is written in another way than before."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


@pytest.fixture
def _own_log() -> Iterator[None]:
    """Leave the logger as it was: a page says how to make it quiet."""
    level, handlers = logger.level, logger.handlers[:]
    yield
    logger.setLevel(level)
    for handler in {*logger.handlers} - {*handlers}:
        logger.removeHandler(handler)
        handler.close()


_PAGES = sorted({step.page for step in steps() if step.fate == "run"})


@pytest.mark.slow
@pytest.mark.usefixtures("_own_log")
@pytest.mark.parametrize("page", _PAGES)
def test_a_page_does_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(__file__).parents[1] / "examples", "examples")
    reader = Reader(page)
    wrong = []
    for step in steps():
        if step.page != page or step.fate != "run":
            continue
        with toys.one_thread(), monkeypatch.context() as patched:
            try:
                if step.piped:
                    reader.provide(step.piped)
                    patched.setattr(sys, "stdin", open(step.piped, encoding="utf-8"))  # noqa: SIM115
                reader.command([*step.words]) if step.words else reader.python(step.text)
            except Exception as error:
                said = capsys.readouterr().err.splitlines()
                wrong.append(f"{step}\n    {error!r:.300} {said[-1:]}")
    assert not wrong, "\n".join(wrong)


#: A benchmark with its arguments, in a sentence or in a list with remarks.
_BENCHMARK = re.compile(r"benchmarks/(\w+)\.py ((?:(?! {3})[^`\n])*)")


def benchmarks() -> list[tuple[str, str]]:
    """The benchmarks that pages call with options: their names and arguments."""
    texts = (path.read_text(encoding="utf-8") for path in DOCUMENTS)
    calls = {match.groups() for text in texts for match in _BENCHMARK.finditer(text)}
    return sorted((name, given) for name, given in calls if "--" in given)


class _Taken(Exception):
    """What is raised in place of the work, once the arguments are read."""


@pytest.mark.parametrize(("name", "arguments"), benchmarks())
def test_a_benchmark_takes_what_a_page_gives_it(
    name: str, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names in capitals stand for anything, and what must be given may be left out there."""

    def read(parser: argparse.ArgumentParser, *_: Any) -> None:
        for action in parser._actions:
            action.required = False
            if not action.option_strings and action.nargs is None:
                action.nargs = "?"
            if any(word.isupper() for word in words):
                action.choices = None
        assert parser.parse_known_args(words)[1] == []
        raise _Taken

    words = [word.strip("[]") for word in shlex.split(arguments) if word != "…"]
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", read)
    with pytest.raises(_Taken):
        runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"), run_name="__main__")
