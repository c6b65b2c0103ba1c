"""What the documents tell a reader to type is what the program takes.

Every ``bertine`` line in a ```bash block, and every ``$`` line in a ```console block, must parse: a
real command, real options, values of the right kind. Every ``make`` line must name a target. A
benchmark or recipe must be there, with the options that are written beside it. ```python blocks
must compile. A ```yaml block marked with a command (```yaml pretrain) must be a configuration file
for it. Relative links must lead to a file, and to a heading of it. The documents for maintainers
have short paragraphs.

A block marked ``run`` is also run, those of a document one after the other in one folder that has
the repository's ``examples``, for a tutorial its data as well. What its output is shown as must be
what is printed (:mod:`printed`): in a ```console block the lines after each command, for a
```python block the lines of the ```text block marked ``printed`` after it. ``within=20%`` after
``run`` or ``printed`` says how far numbers may be off.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bertine.cli import COMMANDS, apply_config, parse_arguments, with_name_joined
from bertine.commands.parser import Command
from bertine.core.errors import BertineError
from documents import (
    DOCUMENTS,
    ROOT,
    blocks,
    blocks_of_all,
    commands,
    relative,
    shown_commands,
    typed,
    within,
)
from printed import difference


def check_bertine(arguments: list[str]) -> None:
    """Raise unless `bertine` takes these arguments; configuration files need not exist."""
    if arguments in (["--help"], ["--version"]):
        return
    arguments = with_name_joined(arguments)
    if not arguments or arguments[0] not in COMMANDS:
        raise BertineError(f"no such command: bertine {' '.join(arguments)}")
    command, rest = command_of(arguments)
    if rest == ["--help"]:
        return
    if "--config" in rest:
        # What the file would give is not known here, so nothing is missing.
        at = rest.index("--config")
        parse_some(command, [*rest[:at], *rest[at + 2 :]])
    else:
        parse_arguments(command, rest)


def command_of(words: list[str]) -> tuple[Command, list[str]]:
    """The command that these words call, of its kind where one is named, and its arguments."""
    command, kind = COMMANDS[words[0]], words[1] if words[1:] else ""
    return (command.of_kind(kind), words[2:]) if kind in command.kinds else (command, words[1:])


def parse_some(command: Command, arguments: list[str]) -> None:
    """Raise unless these are among the arguments of a command."""
    parser = command.parser()
    for action in parser.options():
        action.required = False
        if not action.option_strings and action.nargs in (None, "+"):
            action.nargs = "*" if action.nargs == "+" else "?"
    parser.parse(arguments)


def targets() -> set[str]:
    found = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return set(found)


def test_commands_in_documents_are_real() -> None:
    wrong = []
    for path, block in blocks_of_all():
        if block.language not in ("bash", "sh", "shell", "console"):
            continue
        where = f"{relative(path)}:{block.line}"
        for arguments in commands(typed(block), "bertine"):
            try:
                check_bertine(arguments)
            except BertineError as error:
                wrong.append(f"{where}: bertine {shlex.join(arguments)}: {error}")
        for arguments in commands(typed(block), "make"):
            named = {word for word in arguments if "=" not in word and not word.startswith("-")}
            wrong += [f"{where}: make {name}" for name in named - targets()]
    assert wrong == []


def test_commands_in_sentences_are_real() -> None:
    """They may leave out what a command needs; N is any number, and … any arguments. What has
    changed may name what is gone."""
    wrong, count = [], 0
    for path in DOCUMENTS:
        if path.name == "CHANGELOG.md":
            continue
        prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for call in re.findall(r"`bertine ([a-z][^`]*)`", prose):
            words = with_name_joined(shlex.split(re.sub(r"\bN\b", "1", call.replace("…", ""))))
            count += 1
            try:
                if words[0] not in COMMANDS:
                    raise BertineError("no such command")
                if not {"--help", "--help-all"} & {*words}:
                    parse_some(*command_of(words))
            except BertineError as error:
                wrong.append(f"{relative(path)}: bertine {call}: {error}")
    assert wrong == []
    assert count > 200


def program(name: str) -> Path:
    """The file behind ``benchmarks/pretrain.py`` or ``recipes/hour``."""
    path = ROOT / name
    return path / "__main__.py" if path.is_dir() else path


def scripts(document: str) -> Iterator[tuple[str, set[str]]]:
    """Every program of the repository that a document names, with the options beside it. A
    section of its own (## `pretrain.py`) tells of its options too."""
    named = r"((?:benchmarks|recipes|tools)/\w+(?:\.py)?)(?!\.\w|[/\w])([^`\n]*)"
    for name, rest in re.findall(named, document):
        yield name, set(re.findall(r"--[a-z][a-z0-9-]*", rest))
    for name, section in re.findall(r"^## `(\w+\.py)`$(.*?)(?=^## |\Z)", document, re.M | re.S):
        rows = re.findall(r"^\| (`--[^|]*)\|", section, re.M)
        yield f"benchmarks/{name}", set(re.findall(r"--[a-z][a-z0-9-]*", " ".join(rows)))


def test_programs_in_documents_are_real() -> None:
    wrong = []
    for path in DOCUMENTS:
        for name, options in scripts(path.read_text(encoding="utf-8")):
            source = program(name).read_text(encoding="utf-8")
            unknown = {option for option in options if f'"{option}"' not in source}
            wrong += [f"{relative(path)}: {name} {option}" for option in unknown]
    assert wrong == []


def test_python_and_configurations_in_documents_are_real(tmp_path: Path) -> None:
    for path, block in blocks_of_all():
        if block.language == "python":
            compile(block.text, f"{relative(path)}:{block.line}", "exec")
        elif block.language == "yaml" and block.words and block.words[0] in COMMANDS:
            file = tmp_path / f"{path.stem}-{block.line}.yaml"
            file.write_text(block.text, encoding="utf-8")
            apply_config(file, COMMANDS[block.words[0]].parser())


def run(command: list[str], folder: Path, where: str, *, messages: bool) -> str:
    """What a command prints; `messages`: on both streams, as a terminal shows it."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        # One thread: the same numbers whatever else runs, and no waiting for busy cores.
        env={**os.environ, "PATH": search, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if messages else subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr or ''}"
    return done.stdout


def check_printed(shown: str, printed: str, tolerance: float, where: str) -> None:
    missing = difference(shown, printed, tolerance)
    assert missing is None, f"{where}: not printed: {missing}\n--- printed:\n{printed}"


#: Documents whose commands take a minute or more. The README's do too, but all begin there.
_LONG = {
    "docs/guides/twenty-labels.md",
    "docs/tutorials/fine-tune.md",
    "docs/tutorials/own-model.md",
    "docs/tutorials/questions-entities.md",
}
#: Documents with blocks to run.
_RUN = [
    pytest.param(path, marks=pytest.mark.deep if relative(path) in _LONG else pytest.mark.slow)
    for path in DOCUMENTS
    if any("run" in block.words for block in blocks(path.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("path", _RUN, ids=relative)
def test_marked_blocks_run_and_print_what_is_shown(path: Path, tmp_path: Path) -> None:
    shell = ["bash", "-euo", "pipefail", "-c"]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    if path.parent.name == "tutorials":  # their readers begin with a copy of these
        shutil.copytree(path.parent / "data", tmp_path, dirs_exist_ok=True)
    printed = ""
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{relative(path)}:{block.line}"
        if "printed" in block.words:
            check_printed(block.text, printed, within(block), where)
        elif "run" not in block.words:
            continue
        elif block.language == "console":
            for command, shown in shown_commands(block.text):
                printed = run([*shell, command], tmp_path, where, messages=True)
                check_printed(shown, printed, within(block), f"{where}: {command}")
        else:
            assert block.language in ("bash", "python"), where
            program = shell if block.language == "bash" else [sys.executable, "-c"]
            printed = run([*program, block.text], tmp_path, where, messages=False)


#: Documents for maintainers: what a reader looks up, in short paragraphs.
_SHORT = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
]
#: Words of a paragraph, of an item of a list and of a row of a table there, at most.
_MOST_WORDS = 80


def paragraphs(document: str) -> Iterator[str]:
    """Yield the paragraphs of a document, without blocks of code. Headings, items of lists and rows
    of tables are paragraphs too."""
    document = re.sub(r"^```.*?^```[ ]*$", "", document, flags=re.M | re.S)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) |\||#)", document):
        if part.strip():
            yield part.strip()


def count_words(paragraph: str) -> int:
    """Count the words that are read: of a link its label, no signs and no number of an item."""
    shown = re.sub(r"\]\([^)]*\)|^\d+\. ", "] ", paragraph)
    return sum(bool(re.search(r"\w", word)) for word in shown.split())


@pytest.mark.parametrize("path", _SHORT, ids=relative)
def test_paragraphs_for_maintainers_are_short(path: Path) -> None:
    counted = [(count_words(each), each) for each in paragraphs(path.read_text(encoding="utf-8"))]
    assert counted
    assert [(words, text[:60]) for words, text in counted if words > _MOST_WORDS] == []


def anchors(document: str) -> set[str]:
    """The anchors of a document's headings, as GitHub and MyST make them."""
    document = re.sub(r"^```.*?^```", "", document, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", document, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", text.strip().lower()).replace(" ", "-") for text in headings}


@cache
def anchors_of(path: Path) -> set[str]:
    return anchors(path.read_text(encoding="utf-8"))


def test_links_lead_somewhere() -> None:
    wrong = []
    for path in DOCUMENTS:
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            named = anchor if target.suffix == ".md" else ""
            if not target.exists() or (named and named not in anchors_of(target)):
                wrong.append(f"{relative(path)}: {link}")
    assert wrong == []


def test_the_readme_is_short_and_its_first_steps_are_run() -> None:
    document = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(document.splitlines()) <= 120
    ran = [block for block in blocks(document) if "run" in block.words]
    verbs = {call[0] for block in ran for call in commands(typed(block), "bertine")}
    assert verbs >= {"finetune", "predict"}
    assert {"console", "python"} <= {block.language for block in ran}


def shown_blocks(name: str) -> list[tuple[str, str]]:
    """The language and text of a document's blocks, those in ```bash without their comments."""
    return [
        (block.language, re.sub("#.*", "", block.text) if block.language == "bash" else block.text)
        for block in blocks((ROOT / name).read_text(encoding="utf-8"))
    ]


def test_the_chinese_documents_show_the_commands_and_output_of_the_readme() -> None:
    """Only those of README.md and of the English page are run."""
    readme = shown_blocks("README.md")
    assert shown_blocks("README.zh.md") == readme
    quickstart = shown_blocks("docs/zh/quickstart.md")
    assert [block for block in quickstart if block[0] in ("console", "python")] == readme[1:3]
    assert readme[3] in quickstart
    assert shown_blocks("docs/zh/notes.md") == shown_blocks("docs/guides/follow-the-notes.md")


# The checks themselves
