"""What the models of the package are worth: the table of their cards.

    python benchmarks/box.py --data FOLDER --resume FILE
    python benchmarks/box.py --data FOLDER --resume FILE --systems bertine-zh tf-idf --language zh

Every system learns from the same examples and is judged on the same held-out file, over some
seeds; `--systems` are names or folders of models, and tf-idf, which stands for what needs no model.
Whether the layers of a task of GLUE are trained, for how long, and the rate of CoLA are as in
``recipes/hour``, which chose them on held-out parts; other rates are the defaults. The tasks:
vectors as they are (STS-B), five tasks of GLUE, 1,000 labels and 16 a class of emotion, all labels
and 10 a class of BANKING77 (a tenth is held out, the same one for every seed), answers in text
(SQuAD 1.1), names in text (WNUT-17), minimal pairs (BLiMP); in Chinese topics (SIB-200, all labels,
and 8 a class with the layers as they are), paraphrases, entities and questions. Every result is
kept in FILE as soon as it is there; several processes may share it.

``--speed FILE`` measures instead how fast the systems give vectors of its lines in 8 bits: in
turns, after one that does not count; the ratio is to the last system.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from common import describe_machine, machine, print_table
from sides.results import Results

import bertine
from bertine.core.console import quietly
from bertine.core.names import TaskName
from bertine.core.rng import generator
from bertine.data.examples import read_examples
from bertine.datasets.readers import read_labelled
from bertine.inference.baselines.measure import measure_baselines
from bertine.options.data import DataConfig

BASELINE = "tf-idf"
#: Where all weights are trained: nothing is chosen on the set that judges.
TRAINED: dict[str, Any] = {
    "batch_size": 32,
    "dropout": 0.1,
    "save_best": False,
    "frozen": False,
}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: of the task.
        metric: in the scores of ``bertine.finetune``.
        arguments: of ``bertine.finetune``.
        files: the training file and the one that judges, below the folder of all data; empty: as
            the task's own folder has them.
        size, each: examples that are drawn from the training file, in all or of each class; 0: all.
        way: "finetune", "few-shot" (``bertine.few_shot``), "vectors", "blimp".
        language: "en" or "zh".
        after_acceptability: whether a copy of the model learns before to tell sentences of a text
            from damaged ones (``recipes/hour``).
    """

    name: str
    metric: str
    arguments: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, str] = ("", "")
    size: int = 0
    each: bool = False
    way: str = "finetune"
    language: str = "en"
    after_acceptability: bool = False


def _glue(name: str, metric: str, **arguments: Any) -> Row:
    task = {"task": "glue", "glue_task": name, **arguments}
    return Row(f"{name}, {metric}", metric, task, after_acceptability=name == "CoLA")


_TWEETS = {"task": "text", "text_columns": "text", "label_column": "label_name"}
_TOPICS = {"task": "text", "text_columns": "text", "label_column": "category"}
_EMOTION, _BANKING = ("emotion/train.txt", "emotion/val.txt"), ("banking77/train.csv",) * 2
_PAIRS = {"task": "text", "text_columns": ["sentence1", "sentence2"], "label_column": "label"}
ROWS = (
    Row("STS-B, vectors as they are", "spearman", files=("", "glue/STS-B/dev.tsv"), way="vectors"),
    _glue("CoLA", "matthews", epochs=10, learning_rate=1.5e-4),
    _glue("SST-2", "accuracy", epochs=2),
    _glue("MRPC", "f1", frozen=True),
    _glue("STS-B", "spearman", epochs=5, pairs="apart"),
    _glue("RTE", "accuracy", frozen=True),
    Row("emotion, 1,000 labels", "accuracy", {**_TWEETS, "epochs": 10}, _EMOTION, 1000),
    Row("emotion, 16 a class", "accuracy", _TWEETS, _EMOTION, 16, True, "few-shot"),
    Row("BANKING77, all labels", "accuracy", {**_TOPICS, "epochs": 10}, _BANKING),
    Row("BANKING77, 10 a class", "accuracy", _TOPICS, _BANKING, 10, True, "few-shot"),
    Row(
        "SQuAD 1.1",
        "f1",
        {"task": "squad", "max_length": 256},
        ("squad/train-v1.1.json", "squad/dev-v1.1.json"),
    ),
    Row("WNUT-17", "f1", {"task": "tagging", "epochs": 4}, ("wnut17", "")),
    Row("BLiMP", "accuracy", way="blimp"),
    Row("topics", "accuracy", {**_TOPICS, "epochs": 10}, ("topics", ""), language="zh"),
    Row(
        "topics, 8 a class, frozen",
        "accuracy",
        {**_TOPICS, "frozen": True},
        ("topics/train.tsv", "topics/dev.tsv"),
        8,
        True,
        language="zh",
    ),
    Row("paraphrases", "accuracy", {**_PAIRS, "epochs": 8}, ("paraphrases", ""), language="zh"),
    Row("entities", "f1", {"task": "tagging", "epochs": 5}, ("entities", ""), language="zh"),
    Row(
        "questions",
        "f1",
        {"task": "squad", "max_length": 512, "doc_stride": 256, "epochs": 2, "batch_size": 16},
        ("questions/train-v1.1.json", "questions/dev-v1.1.json"),
        language="zh",
    ),
)
#: Of the measurement of speed: texts, turns that count, and texts alone in a turn.
TEXTS, TURNS, SINGLE = 1500, 7, 100
#: The rows whose mean is that of five tasks of GLUE.
GLUE = tuple(row.name for row in ROWS if row.arguments.get("task") == "glue")


def draw(row: Row, data: Path, seed: int, out: Path) -> Path:
    """Write the examples of a seed, and return what ``bertine.finetune`` takes: a folder with a
    training and a validation file."""
    config = DataConfig(
        text_columns=row.arguments["text_columns"], label_column=row.arguments["label_column"]
    )
    train, held = (read_examples(data / file, config).items for file in row.files)
    if row.files[0] == row.files[1]:
        order = generator(0, "held out").permutation(len(train)).tolist()
        by_class: dict[str, list[int]] = {}
        for at in order:
            by_class.setdefault(str(train[at].label), []).append(at)
        chosen = {at for ones in by_class.values() for at in ones[: max(1, len(ones) // 10)]}
        held = [train[at] for at in sorted(chosen)]
        train = [item for at, item in enumerate(train) if at not in chosen]
    counts: dict[str, int] = {}
    rows = []
    for at in generator(seed, "labels drawn").permutation(len(train)).tolist():
        label = str(train[at].label)
        counts[label] = counts.get(label, 0) + 1
        if not row.each or counts[label] <= row.size:
            rows.append(train[at])
    rows = rows if row.each or not row.size else rows[: row.size]
    for name, items in (("train.csv", rows), ("dev.csv", held)):
        with open(out / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([config.text_columns, config.label_column])
            writer.writerows([item.texts[0], item.label] for item in items)
    return out


def after_acceptability(system: str, corpus: Path, kept: Path) -> str:
    """Return a copy of `system` that has learned acceptability as in ``recipes/hour``; made once,
    in the folder `kept`."""
    recipe = importlib.import_module("recipe")
    out, source = kept / f"acceptability-{Path(system).name}", kept / "acceptability"
    source.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:  # of several processes one makes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = source / "train.csv"
        if not file.exists():
            write = importlib.import_module("acceptability").write_acceptability
            sentences = 60 * recipe.SENTENCES_PER_MINUTE  # those of an hour
            write([corpus / "wiki.jsonl.zst", corpus / "books.jsonl.zst"], file, sentences, 0)
        if not (out / "model").exists():
            columns = {"text_columns": "sentence", "label_column": "label"}
            options: dict[str, Any] = {**columns, **recipe.ACCEPTABILITY}
            bertine.finetune("text", model=system, data=source, out=out, resume=True, **options)
    return str(out / "model")


def score(
    row: Row, system: str, data: Path, seed: int, folder: Path, raw: Path, kept: Path
) -> float | None:
    """Return the score of a system, times 100; None: it has none for this row.

    Args:
        data: the folder of the tasks.
        folder: for the run; it is removed.
        raw: the folder of all data, with the corpus.
        kept: for what is made once.
    """
    if row.after_acceptability and system != BASELINE:
        system = after_acceptability(system, raw / "corpus", kept)
    arguments = dict(row.arguments)
    if row.way == "vectors":
        return None if system == BASELINE else _of_vectors(system, data / row.files[1])
    if row.way == "blimp":
        try:
            return 100 * float(bertine.blimp(system).metrics["accuracy"])
        except bertine.BertineError:
            return None  # it has no head for masked words
    task: TaskName = arguments.pop("task")
    if row.size or row.files[0] == row.files[1] != "":
        source = draw(row, data, seed, folder)
    elif task == "glue":
        source = data / "glue"
    else:
        source = data / row.files[0]
    if system == BASELINE:
        return _of_baseline(task, source, arguments, row.metric)
    if row.way == "few-shot":
        train = source / "train.csv"
        made = bertine.few_shot(
            model=system, data=train, out=folder / "run", seed=seed, **arguments
        )
        return 100 * float(made.validate(source / "dev.csv").metrics[row.metric])
    trained = {} if arguments.get("frozen") else TRAINED
    learner = bertine.finetune(
        task,
        model=system,
        data=source,
        out=folder / "run",
        seed=seed,
        baselines=False,
        **{**trained, **arguments},
    )
    return 100 * learner.metrics[row.metric]


def _of_vectors(system: str, file: Path) -> float:
    """Return Spearman's correlation of the cosines of STS-B's pairs with their scores."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "pairs.csv"
        with open(file, encoding="utf-8") as lines, open(table, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["sentence1", "sentence2", "score"])
            next(lines)
            writer.writerows(line.rstrip("\n").split("\t")[7:10] for line in lines)
        return 100 * float(bertine.evaluate(system, table).metrics["spearman"])


def _of_baseline(task: TaskName, source: Path, given: dict[str, Any], metric: str) -> float:
    names = ("glue_task", "text_columns", "label_column")
    labelled = read_labelled(
        task, source, DataConfig(**{name: given[name] for name in names if name in given})
    )
    measured = measure_baselines(
        labelled.make_task(given.get("max_length", 128)),
        labelled.train,
        {"": labelled.validation},
    )
    return 100 * max(float(baseline.metrics[metric]) for baseline in measured)


def alike(row: Row, system: str) -> bool:
    """Whether every seed gives the same."""
    drawn = row.size > 0
    return row.way in ("vectors", "blimp") or (
        not drawn and (system == BASELINE or bool(row.arguments.get("frozen")))
    )


def spread(values: Sequence[float]) -> str:
    """Describe scores by their mean and its 95% interval over the seeds."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.1f}"
    if len(values) == 1:
        return mean
    # Student's t for 1 to 9 degrees of freedom.
    student = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)[min(len(values) - 2, 8)]
    return f"{mean} ± {student * statistics.stdev(values) / len(values) ** 0.5:.1f}"


def show_speeds(systems: Sequence[str], file: Path) -> None:
    """Print the texts a second of each system, and the time of a single text, medians of turns."""
    texts = file.read_text(encoding="utf-8").splitlines()[:TEXTS]
    with quietly():
        loaded = [bertine.Embedder.load(system, precision="int8") for system in systems]
    rates: list[list[float]] = [[] for _ in loaded]
    singles: list[list[float]] = [[] for _ in loaded]
    for _ in range(1 + TURNS):
        for embedder, rate, single in zip(loaded, rates, singles, strict=True):
            began = time.perf_counter()
            embedder(texts)
            rate.append(len(texts) / (time.perf_counter() - began))
            for text in texts[:SINGLE]:
                began = time.perf_counter()
                embedder([text])
                single.append(1000 * (time.perf_counter() - began))
    fast = [statistics.median(rate[1:]) for rate in rates]
    rows = [
        [Path(system).name, f"{one:,.0f}", f"{one / fast[-1]:.2f}", f"{statistics.median(ms):.2f}"]
        for system, one, ms in zip(systems, fast, (row[SINGLE:] for row in singles), strict=True)
    ]
    print(f"{len(texts):,} texts of {statistics.fmean(map(len, texts)):.0f} characters")
    print_table(["", "texts a second", "ratio", "a single text, ms"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the tasks' folders")
    parser.add_argument("--resume", type=Path, help="file of the results")
    parser.add_argument("--speed", metavar="FILE", type=Path, help="texts, one a line")
    parser.add_argument("--systems", nargs="+", default=["bertine-en", "minilm", BASELINE])
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--tasks", nargs="+", help="beginnings of their names")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.speed is not None:
        print(describe_machine(machine(given.threads)))
        return show_speeds([one for one in given.systems if one != BASELINE], given.speed)
    if given.data is None or given.resume is None:
        parser.error("--data and --resume are needed, or --speed")
    results, seeds = Results(given.resume), range(given.seeds)
    kept = given.resume.with_suffix(".copies")
    wanted = tuple(given.tasks or ("",))
    rows = [row for row in ROWS if row.language == given.language and row.name.startswith(wanted)]
    data = given.data
    sys.path.append(str(Path(__file__).parents[1] / "recipes" / "hour"))
    if given.language == "zh":
        chinese_tasks = importlib.import_module("chinese_tasks")
        data = given.resume.with_suffix(".tasks")
        if not data.exists():
            chinese_tasks.write_tasks(given.data / "zh", data)
    for seed in seeds:
        for row in rows:
            for system in given.systems:
                key = {"row": row.name, "system": system, "seed": seed}
                if (seed and alike(row, system)) or not results.claim(key):
                    continue
                began = time.monotonic()
                with quietly(), tempfile.TemporaryDirectory() as folder:
                    value = score(row, system, data, seed, Path(folder), given.data, kept)
                if value is not None:
                    results.add({**key, "score": value, "seconds": time.monotonic() - began})
                    print(f"{row.name}, {system}, seed {seed}: {value:.1f}", flush=True)
    print(describe_machine(machine(given.threads)))
    table = []
    scores = {row.name: results.scores({"row": row.name}, seeds) for row in rows}
    for name, found in scores.items():
        table.append([name, *(spread(found.get(system, [])) for system in given.systems)])
    if set(GLUE) <= scores.keys():
        table.append(["GLUE, mean of the five", *(_mean(scores, one) for one in given.systems)])
    print_table(["", *given.systems], table)


def _mean(scores: dict[str, dict[str, list[float]]], system: str) -> str:
    """Describe the mean over GLUE's tasks, seed by seed."""
    columns = [scores[name].get(system, []) for name in GLUE]
    count = max(map(len, columns))
    every = [values * count if len(values) == 1 else values for values in columns]
    if min(map(len, every)) < count or not count:
        return ""
    return spread([statistics.fmean(seed) for seed in zip(*every, strict=True)])


if __name__ == "__main__":
    main()
