"""The documents: their blocks, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [
        *(ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name / "README.md" for name in ("benchmarks", "examples", "recipes")),
    ]
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its first word, the words after it, its text, the line it begins at."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int


def blocks(document: str) -> Iterator[Block]:
    fence = re.compile(r"^```([^\n`]+)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(document):
        language, *words = match[1].split()
        yield Block(language, tuple(words), match[2], document.count("\n", 0, match.start()) + 1)


def blocks_of_all() -> Iterator[tuple[Path, Block]]:
    """The blocks of every document."""
    for path in DOCUMENTS:
        yield from ((path, block) for block in blocks(path.read_text(encoding="utf-8")))


def typed(block: Block) -> str:
    """The shell script in a block; of a ```console block the lines after ``$`` alone."""
    if block.language != "console":
        return block.text
    return "".join(f"{command}\n" for command, _ in shown_commands(block.text))


def shown_commands(console: str) -> list[tuple[str, str]]:
    """The commands of a ```console block, each with the output that is shown below it."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    found = [re.match(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", part, re.DOTALL) for part in parts]
    return [(match[1], match[2]) for match in found if match]


def within(block: Block) -> float:
    """How far the numbers of a block may be off, as a share: ``within=20%`` in its first line."""
    shares = [word.removeprefix("within=") for word in block.words if word.startswith("within=")]
    return float(shares[0].rstrip("%")) / 100 if shares else 0.0


def commands(script: str, program: str) -> Iterator[list[str]]:
    """The arguments of every call of `program` in a shell script, also in pipes and lists."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;()<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;()"):
                yield from _call(words, program)
                words = []
            else:
                words.append(word)


def _call(words: list[str], program: str) -> Iterator[list[str]]:
    while words and re.fullmatch(r"\w+=.*", words[0]):  # VARIABLE=value before the program
        words = words[1:]
    if words and words[0] == "torchrun" and program in words:  # torchrun … -m bertine …
        words = words[words.index(program) :]
    if words and Path(words[0]).name == program:
        end = next((i for i, word in enumerate(words) if set(word) <= set("<>")), len(words))
        yield words[1:end]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))
