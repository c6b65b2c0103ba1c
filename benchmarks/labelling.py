"""How many labels `bertine suggest` needs for the accuracy of random ones.

    python benchmarks/labelling.py --data FOLDER --keep FOLDER --resume FILE

The labels are the true ones. Vectors are computed once and kept in `--keep`. After each batch of
labels the same head is fitted to them, whoever chose them, and judged on texts of its own. No texts
are set apart here. Where small-text is installed, its strategies choose from the same vectors and
the same head; until two classes have labels they draw at random, as its examples do.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from common import describe_machine, machine, minilm, print_table
from sides.results import Results

import bertine
from bertine.core.rng import generator
from bertine.labelling.chooser import Chooser, Head, fit_head

#: Texts to judge by, where the data have none.
_TESTED = 2_000
#: Strategies of small-text 1.4.1, and their settings.
STRATEGIES: dict[str, dict[str, Any]] = {
    "BreakingTies": {},
    "LeastConfidence": {},
    "EmbeddingKMeans": {},
    "GreedyCoreset": {"distance_metric": "cosine"},
}


class Task(NamedTuple):
    """Files below the folder of the data, their columns, the labels of a draw, the model of the
    vectors, and what the classes are called where their labels are numbers."""

    train: str
    test: str
    text: str
    label: str
    separator: str
    labels: int
    model: str = ""
    names: tuple[str, ...] = ()


TASKS = {
    "emotion": Task("emotion/train.txt", "emotion/val.txt", "text", "label_name", ";", 500),
    "BANKING77": Task("banking77/train.csv", "", "text", "category", ",", 800),
    "CLINC150": Task("clinc150/train.csv", "clinc150/val.csv", "text", "label", ",", 1_500),
    "SST-2": Task(
        "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", "sentence", "label", "\t", 300,
        names=("negative", "positive"),
    ),
    "topics": Task(
        "zh/single-sib200/train.tsv", "zh/single-sib200/test.tsv", "text", "category", "\t", 300,
        "bertine-zh",
    ),
}  # fmt: skip


class Data(NamedTuple):
    """Vectors of length 1 and classes of the texts to label and of those to judge by, and the
    vectors of the classes' names."""

    known: np.ndarray
    kinds: np.ndarray
    unseen: np.ndarray
    right: np.ndarray
    names: np.ndarray


def read(path: Path, task: Task) -> list[tuple[str, str]]:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if task.separator == "," else csv.QUOTE_NONE
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter=task.separator, quoting=quoting)
        return [(row[task.text], row[task.label]) for row in rows]


def vectors_of(name: str, data: Path, keep: Path, most: int) -> Data:
    """Return the vectors of a task, computed once."""
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
        names = task.names or [kind.replace("_", " ") for kind in kinds]
        keep.mkdir(parents=True, exist_ok=True)
        np.savez(file, *parts, embedder.embed(list(names)))
    with np.load(file) as kept:
        return Data(*(kept[f"arr_{at}"] for at in range(5)))


def by_rule(data: Data, seed: int, steps: list[int]) -> Iterator[list[int]]:
    apart = np.zeros(len(data.known), dtype=bool)
    choice = Chooser(data.known, apart, len(data.names), data.names, seed=seed)
    for step in steps:
        asked = [question.row for question in choice.ask(step)]
        for row in asked:
            choice.label(row, int(data.kinds[row]))
        yield asked


def at_random(data: Data, seed: int, steps: list[int]) -> Iterator[list[int]]:
    shuffled = iter(generator(seed, "random").permutation(len(data.known)).tolist())
    for step in steps:
        yield [next(shuffled) for _ in range(step)]


class _Model:
    """What small-text's strategies ask of a classifier, for texts that are their vectors."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def predict_proba(self, vectors: np.ndarray) -> np.ndarray:
        return self._head.probabilities(vectors)

    def embed(self, vectors: np.ndarray, pbar: Any = None) -> np.ndarray:
        return vectors


def by_small_text(name: str, data: Data, seed: int, steps: list[int]) -> Iterator[list[int]]:
    import small_text

    np.random.seed(seed)  # it draws from the global state
    strategy = getattr(small_text, name)(**STRATEGIES[name])
    vectors = _centred(data)[0]
    drawn = at_random(data, seed, [len(vectors)])
    shuffled = next(drawn)
    rows: list[int] = []
    for step in steps:
        kinds = data.kinds[rows]
        if len(np.unique(kinds)) < 2:
            asked = shuffled[len(rows) : len(rows) + step]
        else:
            free = np.setdiff1d(np.arange(len(vectors)), rows)
            model = _Model(fit_head(vectors[rows], kinds, len(data.names)))
            more = {"pbar": None} if name == "EmbeddingKMeans" else {}
            asked = strategy.query(model, vectors, free, np.array(rows), kinds, n=step, **more)
        rows += [int(row) for row in asked]
        yield rows[-step:]


def _centred(data: Data) -> list[np.ndarray]:
    middle = data.known.mean(0)
    moved = (part - middle for part in (data.known, data.unseen))
    return [part / np.linalg.norm(part, axis=1, keepdims=True) for part in moved]


def curve(name: str, data: Data, most: int, seed: int) -> list[tuple[int, float]]:
    """Return the accuracy on the test texts by the number of labels that `name` has chosen."""
    steps: list[int] = []
    while sum(steps) < most:
        steps.append(min(most - sum(steps), max(4, sum(steps) // 8)))
    ways = {"random": at_random, "rule": by_rule}
    chosen = (
        ways[name](data, seed, steps) if name in ways else by_small_text(name, data, seed, steps)
    )
    known, new = _centred(data)
    rows: list[int] = []
    points = []
    for asked in chosen:
        rows += asked
        head = fit_head(known[rows], data.kinds[rows], len(data.names))
        points.append((len(rows), float((head.classes(new) == data.right).mean())))
    return points


def _labels_for(accuracy: float, curve: np.ndarray) -> float:
    """Return the number of labels at which a curve, with lines between its points, first has an
    accuracy; infinity: it never has."""
    enough = np.flatnonzero(curve[:, 1] >= accuracy)
    if not len(enough):
        return float("inf")
    (less, below), (more, above) = curve[max(0, enough[0] - 1)], curve[enough[0]]
    return float(less + (more - less) * (accuracy - below) / (above - below or 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="folder of the vectors")
    parser.add_argument("--resume", type=Path, required=True, help="what is done, a line each")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--ways", nargs="+", choices=list(STRATEGIES), help="of small-text")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--texts", type=int, default=4_000, help="texts to label, at most")
    args = parser.parse_args()
    results = Results(args.resume)
    there = importlib.util.find_spec("small_text") is not None
    others = (list(STRATEGIES) if args.ways is None else args.ways) if there else []
    rows = []
    for task in args.tasks:
        data = vectors_of(task, args.data, args.keep, args.texts)
        means = {}
        for name in ("random", "rule", *others):
            every = []
            for seed in range(args.draws):
                key = {"task": task, "texts": args.texts, "way": name, "seed": seed}
                if results.claim(key):
                    points = curve(name, data, TASKS[task].labels, seed)
                    results.add({**key, "points": points})
                every += [done["points"]] if (done := results.find(key)) else []
            means[name] = np.array(every).mean(0)
        drawn, rule = means["random"], means["rule"]
        # With fewer than two labels of a class it is chance which classes have any.
        behind = 100 * float((drawn - rule)[drawn[:, 0] >= 2 * len(data.names), 1].max())
        for at in np.linspace(len(drawn) // 3, len(drawn) - 1, 4).astype(int).tolist():
            count, accuracy = drawn[at]
            needed = _labels_for(accuracy, rule) / count
            scores = [f"{100 * mean[at, 1]:.1f}" for mean in means.values()]
            rows.append([task, f"{count:.0f}", *scores, f"{needed:.2f} N", f"{behind:.1f}"])
    print(describe_machine(machine(1)))
    head = ["", "N labels", "random", "rule", *others, "the rule needs", "most behind random"]
    print_table(head, rows)


if __name__ == "__main__":
    main()
