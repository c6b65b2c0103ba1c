"""Labels that were changed on purpose, and which of them `bertine check-labels` finds, beside
cleanlab's answer to the same probabilities.

    python benchmarks/label_errors.py --data FOLDER --out FOLDER --model MODEL

Of emotion so many training examples are drawn, and 5% of their labels changed to another one. The
labels of the data set itself are not all right either, so a precision of 1 cannot be reached.
Needs the package cleanlab for its column.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import time
from pathlib import Path

import numpy as np
import torch
from common import describe_machine, machine, minilm, print_table

import bertine
from bertine.core.console import quietly
from bertine.core.rng import generator
from bertine.data.examples import read_examples

#: Share of the labels that are changed.
_CHANGED = 0.05


def write_changed(source: Path, size: int, seed: int, file: Path) -> np.ndarray:
    """Write `size` examples to `file`, and return which have a changed label, bool [N]."""
    items = read_examples(source).items
    draw = generator(seed, "label errors")
    chosen = [items[at] for at in draw.permutation(len(items))[:size].tolist()]
    labels = sorted({str(item.label) for item in chosen})
    changed = draw.random(len(chosen)) < _CHANGED
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["text", "label"])
        for item, other in zip(chosen, changed.tolist(), strict=True):
            label = str(item.label)
            if other:
                rest = [name for name in labels if name != label]
                label = rest[int(draw.integers(len(rest)))]
            writer.writerow([item.texts[0], label])
    return np.asarray(changed)


def row(name: str, found: np.ndarray, order: np.ndarray, changed: np.ndarray) -> list[str]:
    """Return precision and recall of what is `found`, bool [N], and the precision of the first
    examples of `order` that are as many as were changed."""
    right = int((found & changed).sum())
    first = order[: int(changed.sum())]
    return [
        name,
        str(int(found.sum())),
        f"{100 * right / max(1, int(found.sum())):.1f}",
        f"{100 * right / max(1, int(changed.sum())):.1f}",
        f"{100 * float(changed[first].mean()):.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="a folder with emotion in it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=None, help="MiniLM where nothing is said")
    parser.add_argument("--size", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--frozen", action="store_true")
    args = parser.parse_args()
    print(describe_machine(machine(torch.get_num_threads())), flush=True)
    file = args.out / f"changed-{args.size}-{args.seed}.csv"
    changed = write_changed(args.data / "emotion/train.txt", args.size, args.seed, file)
    began = time.monotonic()
    with quietly():
        found = bertine.check_labels(
            file,
            model=args.model or minilm(),
            out=args.out / f"check-{args.size}-{args.seed}{'-frozen' if args.frozen else ''}",
            processes=args.processes,
            frozen=args.frozen,
            resume=True,
        )
    print(f"{time.monotonic() - began:.0f} s; accuracy {100 * found.accuracy:.1f}", flush=True)
    if len(found.examples) != len(changed):
        raise SystemExit("a label occurs once; draw more examples")
    noise = found.noise
    order = np.argsort(noise.log_odds, kind="stable")
    rows = [row("check-labels", noise.wrong, order, changed)]
    if importlib.util.find_spec("cleanlab") is not None:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        theirs = find_label_issues(noise.given, found.probabilities)
        scores = get_label_quality_scores(noise.given, found.probabilities)
        rows.append(row("cleanlab", np.asarray(theirs), np.argsort(scores), changed))
    head = ["", "found", "precision", "recall", f"of the first {int(changed.sum())}"]
    print_table(head, rows)


if __name__ == "__main__":
    main()
