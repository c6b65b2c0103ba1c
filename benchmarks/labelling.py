"""How many labels `bertine suggest` needs for the accuracy of random ones.

    python benchmarks/labelling.py --data FOLDER --keep FOLDER --resume FILE

The labels are the true ones. Vectors are computed once and kept in `--keep`; a head is fitted to
the labels of each draw and judged on texts of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from common import minilm, print_table

import bertine
from bertine.core.rng import generator
from bertine.labelling.chooser import Chooser, fit_head

#: Labels of a draw at most, and texts to judge by where the data have none.
_TESTED = 2_000


class Task(NamedTuple):
    """Files below the folder of the data, their columns, and the labels of a draw."""

    train: str
    test: str
    text: str
    label: str
    separator: str
    labels: int
    model: str = ""


TASKS = {
    "emotion": Task("emotion/train.txt", "emotion/val.txt", "text", "label_name", ";", 500),
    "BANKING77": Task("banking77/train.csv", "", "text", "category", ",", 800),
    "CLINC150": Task("clinc150/train.csv", "clinc150/val.csv", "text", "label", ",", 1_500),
    "SST-2": Task("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", "sentence", "label", "\t", 300),
    "topics": Task(
        "zh/single-sib200/train.tsv", "zh/single-sib200/test.tsv", "text", "category", "\t", 300,
        "bertine-zh",
    ),
}  # fmt: skip
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def read(path: Path, task: Task) -> list[tuple[str, str]]:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if task.separator == "," else csv.QUOTE_NONE
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter=task.separator, quoting=quoting)
        return [(row[task.text], row[task.label]) for row in rows]


def vectors_of(name: str, data: Path, keep: Path, most: int) -> Data:
    """Return the vectors and classes of the texts to label and of those to judge by."""
    file, task = keep / f"{name}-{most}.npz", TASKS[name]
    if not file.exists():
        train = read(data / task.train, task)
        train = [train[at] for at in generator(0, "texts").permutation(len(train)).tolist()]
        test = read(data / task.test, task) if task.test else train[:_TESTED]
        train = train[0 if task.test else _TESTED :][:most]
        kinds = sorted({label for _, label in train})
        embedder = bertine.Embedder.load(task.model or minilm(), threads=1)
        parts = []
        for rows in (train, test):
            parts += [
                embedder.embed([text for text, _ in rows]),
                np.array([kinds.index(label) for _, label in rows]),
            ]
        keep.mkdir(parents=True, exist_ok=True)
        np.savez(file, *parts)
    with np.load(file) as kept:
        return kept["arr_0"], kept["arr_1"], kept["arr_2"], kept["arr_3"]


def curve(data: Data, most: int, seed: int, *, rule: bool) -> list[tuple[int, float]]:
    """Return the accuracy on the test texts by the number of labels."""
    vectors, kinds, unseen, right = data
    classes = int(kinds.max()) + 1
    choice = Chooser(vectors, np.zeros(len(vectors), dtype=bool), classes, seed=seed)
    shuffled = generator(seed, "random").permutation(len(vectors)).tolist()
    middle = vectors.mean(0)
    known, new = (part - middle for part in (vectors, unseen))
    known, new = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (known, new))
    rows: list[int] = []
    points = []
    while len(rows) < most:
        step = min(most - len(rows), max(4, len(rows) // 8))
        if rule:
            asked = [question.row for question in choice.ask(step)]
            for row in asked:
                choice.label(row, int(kinds[row]))
        else:
            asked = shuffled[len(rows) : len(rows) + step]
        rows += asked
        head = fit_head(known[rows], kinds[rows], classes)
        points.append((len(rows), float((head.classes(new) == right).mean())))
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="folder of the vectors")
    parser.add_argument("--resume", type=Path, required=True, help="what is done, a line each")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--texts", type=int, default=10_000, help="texts to label, at most")
    args = parser.parse_args()
    lines = args.resume.read_text(encoding="utf-8").splitlines() if args.resume.exists() else []
    done = {tuple(item["key"]): item["points"] for item in map(json.loads, lines)}
    rows = []
    for name in args.tasks:
        data = vectors_of(name, args.data, args.keep, args.texts)
        means = []
        for rule in (False, True):
            for seed in range(args.draws):
                key = (name, args.texts, rule, seed)
                if key not in done:
                    done[key] = curve(data, TASKS[name].labels, seed, rule=rule)
                    with open(args.resume, "a", encoding="utf-8") as file:
                        file.write(json.dumps({"key": key, "points": done[key]}) + "\n")
            every = [done[(name, args.texts, rule, seed)] for seed in range(args.draws)]
            means.append(np.array(every).mean(0))
        drawn, chosen = means
        for at in np.linspace(len(drawn) // 3, len(drawn) - 1, 4).astype(int).tolist():
            count, accuracy = drawn[at]
            enough = np.flatnonzero(chosen[:, 1] >= accuracy)
            needed = f"{chosen[enough[0], 0] / count:.2f} N" if len(enough) else "more"
            by_rule = f"{100 * chosen[at, 1]:.1f}"
            rows.append([name, f"{count:.0f}", f"{100 * accuracy:.1f}", by_rule, needed])
    print_table(["", "N labels", "random", "rule", "needed by the rule"], rows)


if __name__ == "__main__":
    main()
