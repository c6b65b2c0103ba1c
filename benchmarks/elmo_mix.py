"""ELMo's mix of layers against single layers, on entities, with an ELMo that is trained first.

    python benchmarks/elmo_mix.py --corpus wiki.jsonl.zst --data WNUT17 --out FOLDER

The first `--words` words of the corpus train the ELMo, which stays the same for all seeds; a seed
is that of the taggers. Everything is kept in the folder, and a run that was stopped goes on where
it was: the same command again. The last epoch counts, on the dev and the test file.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from common import print_table, save_json

import bertine
from bertine.contrib.feature_based.features import TABLE
from bertine.core.files import write_text
from bertine.tokenization.documents import Corpus


def write_sample(args: argparse.Namespace) -> Path:
    """Write the first words of the corpus, unless they are there."""
    path: Path = args.out / f"words-{args.words}.jsonl"
    if not path.exists():
        lines, count = [], 0
        for document in Corpus(args.corpus, text_column=args.text_column):
            lines.append(json.dumps({"text": document.text}))
            count += len(document.text.split())
            if count >= args.words:
                break
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "\n".join(lines) + "\n")
    return path


def train_elmo(args: argparse.Namespace) -> Path:
    """Train the ELMo, or go on with it; return its run."""
    run: Path = args.out / "elmo"
    result = bertine.pretrain_elmo(
        write_sample(args),
        model=args.model,
        out=run,
        steps=args.steps,
        vocab_size=args.vocab_size,
        softmax="sampled" if args.negatives else "full",
        negatives=args.negatives or 1,
        resume=(run / "run.json").exists(),
        checkpoint_every=200,
        log_every=100,
    )
    print("\n".join(result.lines()), flush=True)
    return run


def tagged(run: Path, seed: int, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Train the taggers of a seed, or take those that are done; return the rows of the table."""
    out = args.out / f"seed-{seed}"
    report = bertine.feature_based(
        run,
        data=args.data,
        out=out,
        rows=args.rows,
        epochs=args.epochs,
        lstm_size=args.lstm_size,
        lstm_layers=args.lstm_layers,
        dropout=args.dropout,
        precision="fp32",  # units this few are no quicker in bf16
        learning_rate=args.learning_rate,
        crf=args.crf,
        layer_penalty=args.layer_penalty,
        seed=seed,
        resume=(out / TABLE).exists(),
    )
    print(f"seed {seed}", *report.lines(), sep="\n", flush=True)
    return report.rows


def main() -> None:
    parser = argparse.ArgumentParser(description="ELMo's mix of layers against single layers.")
    parser.add_argument("--corpus", nargs="+", type=Path, required=True)
    parser.add_argument("--text-column")
    parser.add_argument("--data", type=Path, required=True, help="tagged words, with a dev file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", type=int, default=5_000_000, help="of the corpus, at most")
    parser.add_argument("--model", default="elmo-tiny")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--vocab-size", type=int, default=20_000)
    parser.add_argument("--negatives", type=int, default=1024, help="0: the full softmax")
    parser.add_argument(
        "--rows", nargs="+", default=["embeddings", "second-to-last", "last", "mix"]
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lstm-size", type=int, default=128)
    parser.add_argument("--lstm-layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--learning-rate", type=float, default=5e-3)
    parser.add_argument("--crf", action="store_true")
    parser.add_argument("--layer-penalty", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    args = parser.parse_args()
    run = train_elmo(args)
    seeds = {seed: tagged(run, seed, args) for seed in range(args.seeds)}
    table = []
    for name in args.rows:
        cells = [name]
        for part in ("validation", "test"):
            scores = [100 * rows[name][part]["f1"] for rows in seeds.values() if part in rows[name]]
            if scores:
                spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
                cells.append(f"{statistics.mean(scores):.2f} ± {spread:.2f}")
        table.append(cells)
    print_table(["row", "dev f1", "test f1"][: len(table[0])], table)
    save_json(args.json, {"seeds": seeds})


if __name__ == "__main__":
    main()
