"""Tagged sentences of the toy language: an animal or a dish, with what it does, is an entity."""

from __future__ import annotations

import json
from pathlib import Path

import toys
from bertine.core.rng import generator


def tagged(topic: str, adjective: str) -> tuple[list[str], list[str]]:
    """Words and tags (IOB2) of one sentence."""
    words = toys.sentence(topic, adjective).split()
    kind = "animal" if list(toys.TOPICS).index(topic) < 4 else "dish"
    return words, ["O", "O", f"B-{kind}", f"I-{kind}", *["O"] * (len(words) - 4)]


def sentences(count: int, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    draw = generator(seed, "toy tags")
    topics = list(toys.TOPICS)
    return [
        tagged(topics[draw.integers(8)], toys.ADJECTIVES[draw.integers(4)]) for _ in range(count)
    ]


def write_columns(path: Path, count: int = 96, seed: int = 0, documents: bool = False) -> Path:
    """A column file: the word, its length, its tag; with `documents` of four sentences each."""
    lines = []
    for number, (words, tags) in enumerate(sentences(count, seed)):
        if documents and number % 4 == 0:
            lines += ["-DOCSTART- -X- O", ""]
        lines += [f"{word} {len(word)} {tag}" for word, tag in zip(words, tags, strict=True)]
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_json(path: Path, count: int = 96, seed: int = 0) -> Path:
    rows = [{"words": words, "tags": tags} for words, tags in sentences(count, seed)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
