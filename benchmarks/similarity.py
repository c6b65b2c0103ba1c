"""Vectors trained on pairs: `bertine finetune similarity` beside sentence-transformers' own losses.

    python benchmarks/similarity.py --sts STS-B --out FOLDER --seeds 3
    python benchmarks/similarity.py --text wiki.jsonl.zst --sts STS-B --out FOLDER --ways texts
    python benchmarks/similarity.py --text wiki.jsonl.zst --out FOLDER --ways memory

Both sides start from the same model (MiniLM; --model), have the same rows, epochs, batch size,
rate, schedule and longest text, and a child process with the same number of threads. Seconds are
those of loading, reading and training; imports, and evaluation on the way, are not in them.

scores: the training pairs of --sts with their scores (CoSENT; theirs CoSENTLoss).
texts: sentences of --text alone, each its own match under another dropout (ranking; theirs
MultipleNegativesRankingLoss).
memory: neighbouring sentences of --text as pairs, so many as --rows says, and --steps updates.

Judged by Spearman's correlation of the cosines with the scores of STS-B's dev file, or of SICK's
test file. Theirs needs the packages datasets and accelerate.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from common import describe_machine, machine, minilm, peak_memory, print_table

import bertine
from bertine.core.files import atomic_file, sha256_file
from bertine.core.names import PairKind
from bertine.tokenization.documents import Corpus
from bertine.tokenization.sentences import iter_sentences

WAYS = ("scores", "texts", "memory")
SYSTEMS = ("bertine", "bertine, fp32", "sentence-transformers", "sentence-transformers, bf16")
#: What both sides are trained with, but for what the arguments say.
LONGEST = 128
WARM_UP = 0.1
_CORPUS_SENTENCE = range(30, 300)
#: Files of training and judging, and the columns of the two sentences and their score.
_STS = {
    ("train.tsv", "dev.tsv"): ("sentence1", "sentence2", "score"),
    ("SICK_train.txt", "SICK_test_annotated.txt"): (
        "sentence_A",
        "sentence_B",
        "relatedness_score",
    ),
}


def train_ours(job: dict[str, Any], folder: Path) -> Path:
    """Train `bertine finetune similarity`; return the model directory."""
    kinds: dict[str, PairKind] = {"scores": "scores", "texts": "texts", "memory": "pairs"}
    kind = kinds[job["way"]]
    result = bertine.finetune_similarity(
        model=job["model"],
        data=job["rows"],
        out=folder / "run",
        kind=kind,
        epochs=None if job["steps"] else job["epochs"],
        steps=job["steps"],
        batch_size=job["batch_size"],
        learning_rate=job["learning_rate"],
        warmup_ratio=WARM_UP,
        schedule="linear",
        max_length=LONGEST,
        seed=job["seed"],
        precision="fp32" if job["system"].endswith("fp32") else "auto",
        held_out_pairs=0,
    )
    return result.model


def train_theirs(job: dict[str, Any], folder: Path) -> Path:
    """Train a SentenceTransformer by its trainer; return the model directory."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )

    from datasets import load_dataset

    model = SentenceTransformer(job["model"], device="cpu")
    model.max_seq_length = LONGEST
    rows = load_dataset("csv", data_files=job["rows"], cache_dir=str(folder / "cache"))["train"]
    if job["way"] == "scores":
        loss: Any = losses.CoSENTLoss(model)
        rows = rows.select_columns(["sentence1", "sentence2", "score"])
    else:
        loss = losses.MultipleNegativesRankingLoss(model)
    if job["way"] == "texts":
        rows = rows.map(lambda row: {"anchor": row["text"], "positive": row["text"]})
        rows = rows.select_columns(["anchor", "positive"])
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "run"),
        num_train_epochs=job["epochs"],
        max_steps=job["steps"] or -1,
        per_device_train_batch_size=job["batch_size"],
        learning_rate=job["learning_rate"],
        warmup_ratio=WARM_UP,
        seed=job["seed"],
        bf16=job["system"].endswith("bf16"),
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss).train()
    out = folder / "trained"
    model.save_pretrained(str(out))
    return out


#: Imported before the clock runs.
OURS = ("bertine.training.similarity.run",)
THEIRS = ("sentence_transformers", "datasets", "accelerate")


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Train one side and judge it, in a child process."""
    ours = job["system"].startswith("bertine")
    for name in OURS if ours else THEIRS:
        importlib.import_module(name)
    torch.set_num_threads(job["threads"])
    before = peak_memory()
    with tempfile.TemporaryDirectory() as place:
        began, began_cpu = time.perf_counter(), time.process_time()
        model = (train_ours if ours else train_theirs)(job, Path(place))
        result = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - began_cpu,
            "imported": before,
            "memory": peak_memory(),
        }
        if job["judged"]:
            score = bertine.evaluate(model, data=job["judged"], precision="fp32")
            result["spearman"] = 100 * score.metrics["spearman"]
    return result


def run_child(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    env = {**os.environ, "OMP_NUM_THREADS": str(job["threads"]), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"{job['system']}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def sentences(text: Sequence[Path]) -> Iterator[tuple[int, str]]:
    """Yield the sentences of ordinary length, with the number of their document."""
    for number, document in enumerate(Corpus(list(text))):
        for sentence in iter_sentences(document.text):
            if len(sentence) in _CORPUS_SENTENCE:
                yield number, sentence


def write_table(path: Path, header: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    with atomic_file(path) as new, open(new, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def read_sts(folder: Path, *, judged: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield the two sentences and the score of each row of a folder of GLUE's STS-B, or of SICK."""
    known = [(files, columns) for files, columns in _STS.items() if (folder / files[0]).exists()]
    if not known:
        raise SystemExit(f"{folder}: has no {' and no '.join(files[0] for files in _STS)}")
    files, columns = known[0]
    lines = (folder / files[judged]).read_text(encoding="utf-8").splitlines()
    names = lines[0].split("\t")
    places = [names.index(name) for name in columns]
    for line in lines[1:]:
        cells = line.split("\t")
        yield cells[places[0]], cells[places[1]], cells[places[2]]


def write_rows(args: argparse.Namespace, way: str, rows: int) -> Path:
    """Write the training rows of a way; return the file."""
    path: Path = args.out / f"{way}-{rows}.csv"
    if way == "scores":
        given = islice(read_sts(args.sts), rows)
        write_table(path, ["sentence1", "sentence2", "score"], given)
    elif way == "texts":
        write_table(path, ["text"], islice(((s,) for _, s in sentences(args.text)), rows))
    else:
        both = pairwise(sentences(args.text))
        pairs = ((a, b) for (one, a), (two, b) in both if one == two)
        write_table(path, ["query", "match"], islice(pairs, rows))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--sts", type=Path, help="folder of GLUE's STS-B, or of SICK")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="a corpus")
    parser.add_argument("--out", type=Path, help="folder of the rows and the results")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=["scores"])
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--model", default=None, help="to start from (not given: MiniLM)")
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000], help="at most")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="updates, in place of epochs")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(work(json.loads(args.job))))
        return
    if args.out is None or (args.sts is None and "scores" in args.ways):
        parser.error("--out is needed, and --sts for the way 'scores'")
    if not args.text and {"texts", "memory"} & {*args.ways}:
        parser.error("the ways 'texts' and 'memory' need --text")
    print(describe_machine(machine(args.threads)), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    judged = ""
    if args.sts:
        judged = str(args.out / "judged.csv")
        header = ["sentence1", "sentence2", "score"]
        write_table(Path(judged), header, read_sts(args.sts, judged=True))
        before = bertine.evaluate(args.model or minilm(), data=judged, precision="fp32")
        print(f"before training: Spearman {100 * before.metrics['spearman']:.1f}", flush=True)
    judges = sha256_file(Path(judged))[:16] if judged else ""
    kept = args.out / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    shared = {
        "model": str(args.model or minilm()),
        "judged": judged,
        **{
            name: getattr(args, name)
            for name in ("epochs", "steps", "batch_size", "learning_rate", "threads")
        },
    }
    for way in args.ways:
        for rows in args.rows:
            file = write_rows(args, way, rows)
            content = sha256_file(file)[:16]
            lines: dict[str, list[dict[str, Any]]] = {}
            for seed in range(args.seeds):
                for system in args.systems:
                    job = {"way": way, "rows": str(file), "system": system, "seed": seed, **shared}
                    key = json.dumps({**job, "rows": content, "judged": judges})
                    if key not in results:
                        results[key] = run_child(job)
                        kept.write_text(json.dumps(results, indent=1))
                        print(system, results[key], flush=True)
                    lines.setdefault(system, []).append(results[key])
            print(f"\n{way}, {rows:,} rows at most")
            print_table(
                ["", "Spearman", "sd", "seconds", "theirs / own", "MB"],
                [table_row(name, own, lines) for name, own in lines.items()],
            )


def table_row(
    name: str, own: Sequence[dict[str, Any]], lines: dict[str, list[dict[str, Any]]]
) -> list[str]:
    scores = [each["spearman"] for each in own if "spearman" in each]
    seconds = statistics.fmean(each["seconds"] for each in own)
    peer = lines.get("sentence-transformers")
    theirs = statistics.fmean(each["seconds"] for each in peer) if peer else None
    return [
        name,
        f"{statistics.fmean(scores):.1f}" if scores else "",
        f"{statistics.stdev(scores):.1f}" if len(scores) > 1 else "",
        f"{seconds:.1f}",
        "" if theirs is None else f"{theirs / seconds:.1f}",
        f"{max(each['memory'] or 0 for each in own) / 1e6:.0f}",
    ]


if __name__ == "__main__":
    main()
