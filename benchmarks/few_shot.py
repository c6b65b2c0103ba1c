"""A few labels of each class: `bertine few-shot` beside SetFit, model2vec, tf-idf, the head alone.

    python benchmarks/few_shot.py --data emotion/train.txt --test emotion/val.txt --out FOLDER \
        --labels 8 16 --draws 2

Every system learns from the same draw, in a child process of its own with the same number of
threads, and answers the same test texts. Seconds are those of loading the model and training it;
imports are not counted. Memory is the largest resident set of the child, imports counted.

SetFit (needs the packages setfit, sentence-transformers and datasets) trains with its defaults and
20 iterations, the number of its paper, so that the number of its pairs grows with the number of
labels, not with its square. model2vec has a static model that it distils once from MiniLM, and
scikit-learn's logistic regression on its vectors, as tf-idf has. `--model` puts another model in
the place of MiniLM. Of Chinese, tf-idf counts characters and pairs of them.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from common import describe_machine, machine, minilm, peak_memory, print_table

import bertine
from bertine.core.rng import generator
from bertine.data.examples import Example, read_examples
from bertine.options.data import DataConfig

SYSTEMS = ("few-shot", "few-shot-en", "head", "setfit", "model2vec", "tf-idf")
#: Texts and labels.
Rows = list[tuple[str, str]]


def draw(items: Sequence[Example], size: int, seed: int, *, each: bool) -> Rows:
    """Draw `size` labels of `each` class, or in all."""
    order = generator(seed, "few labels").permutation(len(items)).tolist()
    if not each:
        return [(items[at].texts[0], str(items[at].label)) for at in order[:size]]
    rows: Rows = []
    counts: dict[str, int] = {}
    for at in order:
        label = str(items[at].label)
        if counts.get(label, 0) < size:
            counts[label] = counts.get(label, 0) + 1
            rows.append((items[at].texts[0], label))
    return rows


def write_rows(path: Path, rows: Rows) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)


def read_rows(path: str) -> Rows:
    with open(path, encoding="utf-8", newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]


def train_ours(job: dict[str, Any], folder: Path) -> Callable[[list[str]], list[str]]:
    """Train `bertine few-shot`, or the head alone."""
    table = {"data": job["train"], "text_columns": "text", "label_column": "label"}
    given: dict[str, Any] = {"model": job["model"], "out": folder / "run", "seed": job["seed"]}
    if job["system"] == "head":
        data = Path(job["train"])
        (folder / "data").mkdir()
        # The test examples in place of those that would be held out; they are not looked at.
        write_rows(folder / "data/train.csv", read_rows(str(data)))
        write_rows(folder / "data/dev.csv", read_rows(job["test"])[:1])
        table["data"] = str(folder / "data")
        learner = bertine.finetune("text", frozen=True, baselines=False, **given, **table)
    else:
        learner = bertine.few_shot(**given, **table)
    return lambda texts: [answer.label for answer in learner.predict(texts)]


def train_setfit(job: dict[str, Any], folder: Path) -> Callable[[list[str]], list[str]]:
    """Train SetFit."""
    from setfit import SetFitModel, Trainer, TrainingArguments

    from datasets import Dataset

    rows = read_rows(job["train"])
    model = SetFitModel.from_pretrained(job["model"])
    arguments = TrainingArguments(
        num_iterations=20,
        seed=job["seed"],
        output_dir=str(folder / "run"),
        save_strategy="no",
        report_to="none",
    )
    data = Dataset.from_dict({"text": [a for a, _ in rows], "label": [b for _, b in rows]})
    Trainer(model=model, args=arguments, train_dataset=data).train()
    return lambda texts: [str(label) for label in model.predict(texts)]


def train_linear(job: dict[str, Any], folder: Path) -> Callable[[list[str]], list[str]]:
    """Fit scikit-learn's logistic regression on tf-idf, or on static vectors."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    rows = read_rows(job["train"])
    texts, labels = [a for a, _ in rows], [b for _, b in rows]
    vectors: Callable[[list[str]], Any]
    if job["system"] == "model2vec":
        from model2vec import StaticModel

        vectors = StaticModel.from_pretrained(job["static"]).encode
    else:
        chinese = sum("\u4e00" <= letter <= "\u9fff" for text in texts for letter in text)
        letters = chinese * 2 > sum(map(len, texts))
        words = {"analyzer": "char", "ngram_range": (1, 2)} if letters else {}
        vectors = TfidfVectorizer(**words).fit(texts).transform
    head = LogisticRegression(max_iter=1000).fit(vectors(texts), labels)
    return lambda wanted: [str(label) for label in head.predict(vectors(wanted))]


TRAIN = {"setfit": train_setfit, "model2vec": train_linear, "tf-idf": train_linear}
#: Imported before the clock runs.
PACKAGES = {
    "setfit": ("setfit", "datasets"),
    "model2vec": ("model2vec", "sklearn.linear_model"),
    "tf-idf": ("sklearn.feature_extraction.text", "sklearn.linear_model"),
}
OURS = ("bertine.training.finetuning.finetune", "bertine.inference.predictor")


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Train one system and judge it, in a child process."""
    for name in PACKAGES.get(job["system"], OURS):
        importlib.import_module(name)
    torch.set_num_threads(job["threads"])
    test = read_rows(job["test"])
    with tempfile.TemporaryDirectory() as folder:
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = TRAIN.get(job["system"], train_ours)(job, Path(folder))
        trained, trained_cpu = time.perf_counter(), time.process_time()
        # What training alone took, before answering.
        peak = peak_memory()
        answers = answer([text for text, _ in test])
        answered = time.perf_counter()
    right = sum(given == label for given, (_, label) in zip(answers, test, strict=True))
    return {
        "accuracy": right / len(test),
        "seconds": trained - began,
        "cpu_seconds": trained_cpu - began_cpu,
        "answering": answered - trained,
        "memory": peak,
    }


def distil_static(model: Path, out: Path) -> float:
    """Distil a static model from MiniLM with model2vec; return the seconds."""
    from model2vec.distill import distill

    began = time.perf_counter()
    distill(model_name=str(model)).save_pretrained(str(out))
    return time.perf_counter() - began


def run_child(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    threads = str(job["threads"])
    env = {**os.environ, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"{job['system']}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def table_row(name: str, results: Sequence[dict[str, Any]], beside: float | None) -> list[str]:
    accuracies = [100 * each["accuracy"] for each in results]
    seconds = statistics.fmean(each["seconds"] for each in results)
    return [
        name,
        f"{statistics.fmean(accuracies):.1f}",
        f"{statistics.stdev(accuracies):.1f}" if len(accuracies) > 1 else "",
        f"{seconds:.1f}",
        "" if beside is None else f"{beside / seconds:.1f}",
        f"{statistics.fmean(each['answering'] for each in results):.1f}",
        f"{max(each['memory'] or 0 for each in results) / 1e6:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="labelled texts to draw from")
    parser.add_argument("--test", type=Path, help="labelled texts to judge on")
    parser.add_argument("--label-column", help="where its name does not say so")
    parser.add_argument("--model", type=Path, help="a directory, in place of MiniLM's")
    parser.add_argument("--out", type=Path, help="folder of the draws and the results")
    parser.add_argument("--labels", type=int, nargs="*", default=[8, 16, 64], help="a class")
    parser.add_argument("--in-all", type=int, nargs="*", default=[], help="labels in all")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--first-draw", type=int, default=0)
    parser.add_argument("--most-tested", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    args = parser.parse_args()
    if args.job:
        print(json.dumps(work(json.loads(args.job))))
        return
    print(describe_machine(machine(args.threads)), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    train, test = (
        read_examples(path, DataConfig(label_column=args.label_column)).items
        for path in (args.data, args.test)
    )
    base = args.model or minilm()
    rows = [(item.texts[0], str(item.label)) for item in test]
    chosen = generator(0, "test texts").permutation(len(rows))[: args.most_tested].tolist()
    write_rows(args.out / "test.csv", [rows[at] for at in chosen])
    of = f", {args.model.name}" if args.model else ""
    static = args.out / f"static{of.replace(', ', '-')}"
    if "model2vec" in args.systems and not static.exists():
        print(f"model2vec's distillation: {distil_static(base, static):.0f} s", flush=True)
    kept = args.out / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    sizes = [(n, True) for n in args.labels] + [(n, False) for n in args.in_all]
    for size, each in sizes:
        title = f"{size} labels a class" if each else f"{size} labels in all"
        for number in range(args.first_draw, args.first_draw + args.draws):
            file = args.out / f"{size}-{'each' if each else 'all'}-{number}.csv"
            write_rows(file, draw(train, size, number, each=each))
            for system in args.systems:
                key = f"{title}, {system}, {number}{of}"
                if key in results:
                    continue
                results[key] = run_child(
                    {
                        "system": system,
                        "train": str(file),
                        "test": str(args.out / "test.csv"),
                        "model": "bertine-en" if system == "few-shot-en" else str(base),
                        "static": str(static),
                        "seed": number,
                        "threads": args.threads,
                    }
                )
                kept.write_text(json.dumps(results, indent=1))
                print(key, results[key], flush=True)
        print(f"\n{title}, {len(chosen)} test texts")
        lines = {
            system: [
                results[f"{title}, {system}, {number}{of}"]
                for number in range(args.first_draw, args.first_draw + args.draws)
            ]
            for system in args.systems
        }
        peer = lines.get("setfit")
        beside = statistics.fmean(each["seconds"] for each in peer) if peer else None
        columns = ["", "accuracy", "sd", "train s", "SetFit's / own", "answer s", "MB"]
        print_table(columns, [table_row(name, own, beside) for name, own in lines.items()])


if __name__ == "__main__":
    main()
