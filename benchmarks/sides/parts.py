"""Parts of the tasks' files, in their own formats: for short runs, and to measure speed on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from bertine.core.rng import generator
from sides.settings import Task


def part_of(task: Task, data: Path, out: Path, train: int, held: int) -> Path:
    """A folder with `train` examples of the training file of `data`, and `held` of the other.

    They are drawn at random, always the same ones, and every label comes at least once, so there
    may be a few more. Their order stays.
    """
    out.mkdir(parents=True)
    for name, count in ((task.train, train), (task.held, held)):
        text = (data / name).read_text(encoding="utf-8")
        (out / name).write_text(_part(task, text, count), encoding="utf-8")
    return out


def _part(task: Task, text: str, count: int) -> str:
    if task.kind == "spans":
        return _questions(text, count)
    if task.kind == "tagging":
        return _sentences(text, count)
    if task.kind == "choice":
        head, *rows = csv.reader(io.StringIO(text))
        chosen = _chosen([{row[-1]} for row in rows], count)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([head, *(rows[at] for at in chosen)])
        return out.getvalue()
    lines = text.removesuffix("\n").split("\n")
    header = 0 if task.name == "CoLA" else 1
    # Of GLUE's tasks the labels are known and need not occur.
    labels = [
        {line.rpartition(";")[2]} if task.verb == "text" else set() for line in lines[header:]
    ]
    chosen = _chosen(labels, count)
    return "\n".join([*lines[:header], *(lines[header + at] for at in chosen)]) + "\n"


def _questions(text: str, count: int) -> str:
    content = json.loads(text)
    questions = [
        question
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    labels = [{str(question.get("is_impossible", False))} for question in questions]
    kept = {questions[at]["id"] for at in _chosen(labels, count)}
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [q for q in paragraph["qas"] if q["id"] in kept]
        article["paragraphs"] = [p for p in article["paragraphs"] if p["qas"]]
    content["data"] = [article for article in content["data"] if article["paragraphs"]]
    return json.dumps(content, ensure_ascii=False)


def _sentences(text: str, count: int) -> str:
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    blocks = [block for block in blocks if block]
    # Their types: a word's B- and I- make one label with another's.
    labels = [{line.rpartition("\t")[2].partition("-")[2] for line in block} for block in blocks]
    chosen = _chosen(labels, count)
    return "\n\n".join("\n".join(blocks[at]) for at in chosen) + "\n"


def _chosen(labels: Sequence[set[str]], count: int) -> list[int]:
    """About `count` numbers of examples, in their order, with every label among them."""
    order = generator(0, "part", len(labels)).permutation(len(labels)).tolist()
    seen: set[str] = set()
    first = []
    for at in order:
        if not labels[at] <= seen:
            first.append(at)
            seen |= labels[at]
    known = set(first)
    others = [at for at in order if at not in known]
    return sorted([*first, *others[: max(0, count - len(first))]])
