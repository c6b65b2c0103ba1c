"""How near `bertine drift` comes to the true accuracy on shifted texts, and false alarms without.

    python benchmarks/drift.py --data FOLDER --keep FOLDER --resume FILE

The models are trained once and kept in `--keep`. The texts of a pool that no model was trained on
are shifted in length, topic, typing errors and balance of classes; of some tasks there are texts
of another source. The estimate sees no label of them.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from common import minilm, print_table
from sides.results import Results

import bertine
from bertine.core.rng import generator

#: A text and its label.
Row = tuple[str, str]
#: The most texts of a set, and of a pool.
_SET, _POOL = 1_500, 5_000
#: Draws without a shift of each of these tasks, with so many texts to compare with and new ones.
_DRAWS, _DRAWN, _UNSHIFTED = 5, 500, ("emotion", "BANKING77", "CLINC150", "SST-2")
#: Clusters of topics; how much more often texts of one are drawn.
_TOPICS, _MORE = 6, 8.0
#: CoLA's sources whose sentences the model learns and is judged by at fine-tuning.
_COLA = ("ks08", "bc01", "c_13", "ad03", "sks13", "cj99", "gj04", "m_02", "rhl07")


@dataclass(frozen=True)
class Task:
    """A task: rows to train on and to hold out, whether the head alone is trained, and its sets."""

    train: int
    held: int
    frozen: bool
    shifts: tuple[str, ...]
    model: str = ""
    epochs: int | None = None


TASKS = {
    "emotion": Task(9_000, 1_000, False, ("shortest", "topic", "typing", "balance")),
    "BANKING77": Task(4_000, 1_000, True, ("shortest", "topic", "typing", "balance")),
    "CLINC150": Task(4_500, 1_500, True, ("longest", "topic", "typing", "balance")),
    "SST-2": Task(3_000, 1_000, False, ("longest", "topic", "typing", "balance", "source")),
    "CoLA": Task(3_500, 800, False, ("source", "BLiMP"), epochs=2),
    "topics": Task(500, 200, True, ("typing",), "bertine-zh"),
}


def table(path: Path, text: str, label: str, separator: str) -> list[Row]:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter=separator, quoting=quoting)
        return [(row[text], row[label]) for row in rows]


def cola(data: Path) -> tuple[list[Row], dict[str, list[Row]]]:
    rows = []
    for part in ("train", "dev"):
        with open(data / "glue" / "CoLA" / f"{part}.tsv", encoding="utf-8", newline="") as file:
            rows += list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    with lzma.open(data / "blimp" / "blimp.jsonl.xz", "rt", encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file][::67]
    own = [(row[3], row[1]) for row in rows if row[0] in _COLA]
    others = [(row[3], row[1]) for row in rows if row[0] not in _COLA]
    texts = [(pair["sentence_good"], "1") for pair in pairs]
    texts += [(pair["sentence_bad"], "0") for pair in pairs]
    return own, {"source": shuffled(others), "BLiMP": shuffled(texts)}


def rows_of(name: str, data: Path) -> tuple[list[Row], list[Row], dict[str, list[Row]]]:
    """Return rows to train on and to hold out from, further rows of the pool, and other sources."""
    if name == "CoLA":
        own, others = cola(data)
        return own, [], others
    if name == "SST-2":
        first, second = (
            table(data / "glue" / name / f"{part}.tsv", "sentence", "label", "\t")
            for part in ("train", "dev")
        )
        return first, [], {"source": second}
    if name == "BANKING77":
        return table(data / "banking77" / "train.csv", "text", "category", ","), [], {}
    if name == "topics":
        parts = [
            table(data / "zh" / "single-sib200" / f"{part}.tsv", "text", "category", "\t")
            for part in ("train", "dev", "test")
        ]
        return parts[0], parts[1] + parts[2], {}
    folder, suffix, label, by = {
        "emotion": ("emotion", "txt", "label_name", ";"),
        "CLINC150": ("clinc150", "csv", "label", ","),
    }[name]
    first, second = (
        table(data / folder / f"{part}.{suffix}", "text", label, by) for part in ("train", "val")
    )
    return first, second, {}


def shuffled(rows: list[Row]) -> list[Row]:
    return [rows[at] for at in generator(0, "rows").permutation(len(rows)).tolist()]


def mistyped(text: str, draw: np.random.Generator, share: float = 0.05) -> str:
    """Leave out, double, swap or replace characters by the next key of a row of keys, or by the
    next character of Unicode."""
    keys = "qwertyuiop asdfghjkl zxcvbnm "
    out: list[str] = []
    for sign in text:
        kind = int(draw.integers(4)) if draw.random() < share and not sign.isspace() else -1
        at = keys.find(sign.lower())
        other = keys[at + 1] if at >= 0 else chr(ord(sign) + 1)
        if kind == 3 and out:
            out.insert(-1, sign)
        else:
            out.append({0: "", 1: sign * 2, 2: other}.get(kind, sign))
    return "".join(out)


def topics(vectors: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return a cluster of each text, by k-means."""
    vectors = vectors - vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    middles = vectors[draw.choice(len(vectors), _TOPICS, replace=False)]
    for _ in range(20):
        nearest = (vectors @ middles.T).argmax(1)
        middles = np.stack([vectors[nearest == at].mean(0) for at in range(_TOPICS)])
        middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    return np.asarray(nearest)


def shifted(pool: list[Row], shift: str, right: Callable[[], np.ndarray], model: str) -> list[Row]:
    """Return a shifted set; `right` tells which answers to the pool are right."""
    draw = generator(0, "shift", shift)
    lengths = np.array([len(text) for text, _ in pool])
    order = np.argsort(lengths, kind="stable")
    if shift in ("shortest", "longest"):
        quarter = len(pool) // 4
        return [pool[at] for at in (order[:quarter] if shift == "shortest" else order[-quarter:])]
    if shift == "typing":
        return [(mistyped(text, draw), label) for text, label in pool[:_SET]]
    if shift == "balance":
        labels = sorted({label for _, label in pool})
        chances = dict(zip(labels, draw.dirichlet(np.ones(len(labels))), strict=True))
        weights = np.array([chances[label] for _, label in pool]) + 1e-9
    else:  # the topic that the model knows least
        embedder = bertine.Embedder.load(model, threads=1)
        cluster = topics(embedder.embed([text for text, _ in pool]), draw)
        marks = [right()[cluster == at].mean() for at in range(_TOPICS)]
        weights = np.where(cluster == int(np.argmin(marks)), _MORE, 1.0)
    size = min(_SET, len(pool) // 3)
    chosen = draw.choice(len(pool), size, replace=False, p=weights / weights.sum())
    return [pool[at] for at in chosen.tolist()]


def trained(name: str, data: Path, keep: Path) -> tuple[Path, list[Row], dict[str, list[Row]]]:
    """Return the model of a task, the pool of texts that it has not seen, and other sources."""
    task = TASKS[name]
    rows, more, sources = rows_of(name, data)
    rows = shuffled(rows)
    out, folder = keep / name, keep / f"{name}-data"
    end = task.train + task.held
    folder.mkdir(parents=True, exist_ok=True)
    for part, some in (("train", rows[: task.train]), ("dev", rows[task.train : end])):
        lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in some]
        (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    if not (out / "report.html").exists():
        bertine.finetune(
            "text",
            model=task.model or minilm(),
            data=folder,
            out=out,
            frozen=task.frozen,
            epochs=task.epochs,
            baselines=False,
            resume=out.exists(),
        )
    pool = rows[end:] + more
    return out / "model", shuffled(pool)[:_POOL], sources


def judged(rows: list[Row], predictor: bertine.Predictor) -> np.ndarray:
    """Return whether the model's answer to each text is right."""
    answers = predictor.predict([text for text, _ in rows])
    pairs = zip(answers, rows, strict=True)
    return np.array([answer.label == label for answer, (_, label) in pairs])


def measured(
    rows: list[Row], predictor: bertine.Predictor, held: list[Row] | None = None
) -> dict[str, float | bool]:
    """Return the estimate for texts without their labels, and the true accuracy. `held` are rows to
    compare with; None: those that the fine-tuning has held out."""
    known = [{"text": text, "label": label} for text, label in held or ()]
    texts = [{"text": text} for text, _ in rows]
    report = bertine.drift(predictor, texts, reference=known or None, show_progress=False)
    low, high = report.interval
    return {
        "texts": len(rows),
        "before": report.accuracy_before,
        "true": float(judged(rows, predictor).mean()),
        "estimate": report.accuracy,
        "low": low,
        "high": high,
        "fallen": report.fallen,
        "unfamiliar": report.more_unfamiliar,
        "labels": bool(report.changed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="folder of the models")
    parser.add_argument("--resume", type=Path, required=True, help="what is done, a line each")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    results, done = Results(args.resume), dict[tuple[str, str], dict[str, float]]()
    for name in args.tasks:
        draws = [f"draw {number}" for number in range(_DRAWS if name in _UNSHIFTED else 0)]
        shifts = (*TASKS[name].shifts, *draws)
        missing = [one for one in shifts if results.claim({"task": name, "shift": one})]
        known = ((one, results.find({"task": name, "shift": one})) for one in shifts)
        done |= {(name, one): values for one, values in known if values is not None}
        if not missing:
            continue
        model, pool, sources = trained(name, args.data, args.keep)
        predictor = bertine.Predictor.load(model, threads=1)
        right = functools.cache(lambda pool=pool, of=predictor: judged(pool, of))
        for shift in missing:
            held = None
            if shift in draws:
                order = generator(0, shift).permutation(len(pool)).tolist()
                rows = [pool[at] for at in order[:_DRAWN]]
                held = [pool[at] for at in order[_DRAWN : 2 * _DRAWN]]
            elif shift in sources:
                rows = sources[shift][:_POOL]
            else:
                rows = shifted(pool, shift, right, TASKS[name].model or str(minilm()))
            values = done[(name, shift)] = measured(rows, predictor, held)
            results.add({"task": name, "shift": shift, **values})
    show(done)


def show(done: dict[tuple[str, str], dict[str, float]]) -> None:
    rows, near, inside, unchanged, wrong = [], 0, 0, 0.0, 0.0
    drawn = [values for (_, shift), values in done.items() if shift.startswith("draw ")]
    sets = {key: values for key, values in done.items() if not key[1].startswith("draw ")}
    for (name, shift), values in sorted(
        sets.items(), key=lambda item: list(TASKS).index(item[0][0])
    ):
        error = values["estimate"] - values["true"]
        near += abs(error) <= 0.025
        inside += values["low"] <= values["true"] <= values["high"]
        unchanged += abs(values["before"] - values["true"]) / len(sets)
        wrong += abs(error) / len(sets)
        numbers = [values[key] for key in ("before", "true", "estimate", "low", "high")] + [error]
        cells = [f"{100 * number:.1f}" for number in numbers]
        rows.append([f"{name}, {shift}", f"{values['texts']:,}", *cells])
    print_table(["", "texts", "held out", "true", "estimate", "from", "to", "error"], rows)
    print(f"within 2.5 points: {near} of {len(sets)}; inside the interval: {inside}")
    print(f"mean error {100 * wrong:.1f} points; of the held-out accuracy {100 * unchanged:.1f}")
    held = sum(draw["low"] <= draw["true"] <= draw["high"] for draw in drawn)
    close = sum(abs(draw["estimate"] - draw["true"]) <= 0.025 for draw in drawn)
    print(f"without shift: {held} of {len(drawn)} inside the interval, {close} within 2.5 points")
    for kind in ("fallen", "unfamiliar", "labels"):
        print(f"without shift, alarm of {kind}: {sum(v[kind] for v in drawn)} of {len(drawn)}")


if __name__ == "__main__":
    main()
