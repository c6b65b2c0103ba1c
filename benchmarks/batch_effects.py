"""How far a vector moves with the texts beside it in a batch, and what it costs that it does not.

    python benchmarks/batch_effects.py --data FILE [--model MODEL] [--texts 400]

Each text is computed by itself, as ``--batch-invariant`` does, twice; then in ``--rounds`` random
divisions into batches of 2 to 64 texts, with what is padded and packed there. For each precision:
whether the two first results have equal bits, the share of vectors that differ at all in a batch,
how far they are away as a share of their length (median and greatest), and texts a second in
batches of like length and one by one, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from common import describe_machine, machine, minilm, print_table, save_json

from bertine.core.errors import BertineError
from bertine.core.names import AnswerPrecision
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.rows import open_texts
from bertine.options.inference import PlainTexts

PRECISIONS = tuple(name for name in get_args(AnswerPrecision) if name != "auto")


def read(path: Path, column: str | None, count: int) -> list[str]:
    with open_texts(path, PlainTexts(text_column=column)) as (table, name):
        texts = [table.text(row, name) for row in table]
    chosen = np.random.default_rng(0).permutation(len(texts))[:count]
    return [texts[at] for at in sorted(chosen.tolist())]


def measure(
    model: Path, texts: list[str], precision: AnswerPrecision, rounds: int, threads: int
) -> dict[str, Any]:
    alone = Embedder.load(model, precision=precision, threads=threads, batch_invariant=True)
    together = Embedder.load(model, precision=precision, threads=threads)
    features = alone.features(texts)
    together.run(features[:8])  # packs the weights
    alone.run(features[:8])
    paces: dict[str, list[float]] = {"together": [], "alone": []}
    expected = again = np.empty(0)
    for _ in range(rounds):
        for name, embedder in (("together", together), ("alone", alone)):
            begun = time.perf_counter()
            vectors = embedder.run(features)
            paces[name].append(len(texts) / (time.perf_counter() - begun))
            if name == "alone":
                again, expected = (vectors if not expected.size else expected), vectors
    lengths = np.linalg.norm(expected, axis=1)
    distances = []
    draw = np.random.default_rng(1)
    for _ in range(rounds):
        order, begin = draw.permutation(len(texts)), 0
        while begin < len(order):
            rows = order[begin : begin + int(draw.integers(2, 65))]
            begin += len(rows)
            found = together.run_batch([features[row] for row in rows])
            distances.append(np.linalg.norm(found - expected[rows], axis=1) / lengths[rows])
    moved = np.concatenate(distances)
    return {
        "equal": bool(np.array_equal(expected, again)),
        "share": float((moved > 0).mean()),
        "median": float(np.median(moved)),
        "greatest": float(moved.max()),
        **{name: statistics.median(pace) for name, pace in paces.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="texts")
    parser.add_argument("--text-column")
    parser.add_argument("--model", type=Path, help="a model directory; default: all-MiniLM-L6-v2")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    facts = machine(args.threads)
    print(describe_machine(facts))
    texts = read(args.data, args.text_column, args.texts)
    results: dict[str, Any] = {}
    for precision in args.precisions:
        try:
            results[precision] = measure(
                args.model or minilm(), texts, precision, args.rounds, args.threads
            )
        except BertineError as error:
            print(f"{precision}: {error}")
    print_table(
        ["precision", "alone equal", "differ", "median", "greatest", "texts/s", "alone"],
        [
            [
                name,
                "yes" if each["equal"] else "no",
                f"{100 * each['share']:.0f}%",
                f"{each['median']:.1e}",
                f"{each['greatest']:.1e}",
                f"{each['together']:,.0f}",
                f"{each['alone']:,.0f}",
            ]
            for name, each in results.items()
        ],
    )
    save_json(args.save, {"machine": facts, "results": results})


if __name__ == "__main__":
    main()
