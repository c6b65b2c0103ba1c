"""Encoding texts with bertine against other runtimes: texts a second, and one text's latency.

    python benchmarks/inference.py [--shapes minilm base] [--systems NAME ...] [--texts N]
    python benchmarks/inference.py --shapes minilm --data FILE --texts 5000 --turns 0

Every system gets the same texts and the same weights and returns the mean of the last hidden states
of each text, or with ``--output`` what ranking pairs or tagging words reads of them; tokenizing is
counted, loading and converting are not. Lengths are log-normal, 35 tokens in the mean, at most 128.
The systems take turns; each makes batches of 32 of like length, but ``transformers fp32``, which
takes texts as they come. MiniLM has its real weights, those of bert-base and of any other preset by
its name are random.

Vectors are compared with those of ``transformers fp32`` over all texts: the lowest cosine, those
below which 1% and 5% are, and the median. Made-up texts say little about that; give real ones with
``--data``.

What is not installed is left out, and said so; ``make setup`` installs some of it, the rest is the
extra ``bench`` (``pip install '.[bench]'`` in a clone). Runtimes may lie in a folder of their own:
``PYTHONPATH=FOLDER``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import (
    Turn,
    Worker,
    describe_machine,
    machine,
    megabytes,
    peak_memory,
    print_table,
    save_json,
)
from model_folders import NAMES, SHAPES, model_folder, texts_of
from runtimes import CALIBRATION, LONGEST, OUTPUTS, REFERENCE, SYSTEMS, Text, length_of

from bertine.families.presets import PRESETS
from bertine.hub.model_directory import load_model
from bertine.inference.embedding.vectors import Cosines
from bertine.inference.rows import open_texts
from bertine.options.inference import PlainTexts

#: Tokens of the texts whose latency is measured.
ALONE = (8, 16, 64)


def read_texts(path: Path, column: str | None, number: int) -> list[str]:
    """The first texts of a table."""
    with open_texts(path, PlainTexts(text_column=column)) as (table, name):
        return [table.text(row, name) for row in itertools.islice(table, number)]


def job(
    turn: Turn, name: str, folder: Path, work: Path, texts: list[Text], output: str, cpu: bool
) -> None:
    """A system in its process: the first turn is its preparation."""
    clock = time.process_time if cpu else time.perf_counter
    _, make, arguments = SYSTEMS[name]
    try:
        began = clock()
        embed = make(folder, work, torch.get_num_threads(), OUTPUTS[output], *arguments)
        loaded = clock() - began
        compared = embed(texts)
    except Exception as error:  # a rival's failure is a line of the table, not the end of it
        turn.end({"failed": f"{type(error).__name__}: {str(error).strip()[:200]}"})
        return
    longest = max(texts, key=length_of)
    words = (longest if isinstance(longest, str) else " ".join(longest)).split()
    alone = {tokens: [" ".join(words[: tokens - 2])] for tokens in ALONE}
    for text in alone.values():
        embed(text)
    turn.end({"embeddings": compared, "load": loaded})
    while True:
        began = clock()
        embed(texts)
        seconds = clock() - began
        latency = {}
        for tokens, text in alone.items():
            times = []
            for _ in range(30):
                began = clock()
                embed(text)
                times.append(clock() - began)
            latency[tokens] = statistics.median(times)
        turn.end({"seconds": seconds, "latency": latency, "peak": peak_memory()})


def measure(shape: str, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """One shape: all systems in turns."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        work = Path(scratch)
        folder = model_folder(shape, work)
        if options.data is None:
            texts = texts_of(load_model(folder).tokenizer, options.texts, LONGEST)
        else:
            texts = read_texts(options.data, options.text_column, options.texts)
        (work / CALIBRATION).write_text(json.dumps(texts[:300]), encoding="utf-8")
        inputs: list[Text] = [*texts]
        if options.output == "pairs":  # a question, and passages that may answer it
            question = " ".join(" ".join(texts).split()[:10])
            inputs = [(question, f"{one} {other}") for one, other in itertools.pairwise(texts)]
        workers: dict[str, Worker] = {}
        result: dict[str, Any] = {}
        for name in names:
            worker = stack.enter_context(
                Worker(
                    name,
                    options.threads,
                    job,
                    *(name, folder, work, inputs, options.output, options.cpu_time),
                )
            )
            if "failed" in worker.prepared:
                print(f"  {name}: left out, it failed ({worker.prepared['failed']})", flush=True)
            else:
                workers[name] = worker
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for _ in range(options.turns):
            for name, worker in workers.items():
                turns[name].append(worker.turn())
        truth = workers[REFERENCE].prepared["embeddings"] if REFERENCE in workers else None
        for name, worker in workers.items():
            rates = [len(inputs) / turn["seconds"] for turn in turns[name]]
            ours = worker.prepared["embeddings"]
            result[name] = {
                "texts_per_second": max(rates, default=None),
                "rates": rates,
                "latency_ms": {
                    tokens: min((1e3 * turn["latency"][tokens] for turn in turns[name]), default=0)
                    for tokens in ALONE
                },
                "load_seconds": worker.prepared["load"],
                "peak": turns[name][-1]["peak"] if turns[name] else None,
            } | ({} if truth is None else compared(ours, truth))
    return result


def compared(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """How far embeddings [N, H] are from the reference's: the largest difference, the cosines,
    and the share of texts whose nearest other text is the same."""

    def unit(x: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))

    a, b = unit(ours), unit(theirs)

    def nearest(x: np.ndarray) -> np.ndarray:
        return np.asarray((x @ x.T - 2 * np.eye(len(x))).argmax(1))

    return {
        "difference": float(np.abs(ours - theirs).max()),
        "cosines": dataclasses.asdict(Cosines.between(ours, theirs)),
        "same_nearest": float((nearest(a) == nearest(b)).mean()),
    }


def show(shape: str, result: dict[str, Any]) -> None:
    timed = all(value["rates"] for value in result.values())
    if not timed:
        show_cosines(shape, result)
        return
    peers = [value for name, value in result.items() if not name.startswith("bertine")]
    best = max((peer["texts_per_second"] for peer in peers), default=None)
    quick = {
        tokens: min((peer["latency_ms"][tokens] for peer in peers), default=0) for tokens in ALONE
    }
    rows = []
    for name, value in result.items():
        rate = value["texts_per_second"]
        alone = [value["latency_ms"][tokens] for tokens in ALONE]
        rows.append(
            [
                name,
                f"{rate:.1f}",
                "" if best is None else f"{rate / best:.2f}x",
                " / ".join(f"{latency:.2f}" for latency in alone),
                " / ".join(
                    f"{best_one / latency:.2f}x"
                    for best_one, latency in zip(quick.values(), alone, strict=True)
                ),
                f"{value['difference']:.4f}" if "difference" in value else "",
                f"{value['cosines']['lowest']:.4f}" if "cosines" in value else "",
                f"{value['same_nearest']:.0%}" if "same_nearest" in value else "",
                f"{value['load_seconds']:.1f}",
                megabytes(value["peak"]),
            ]
        )
    print(f"\n{shape}: ratios are to the best of the others")
    print_table(
        [
            *("system", "texts/s", "ratio", " / ".join(map(str, ALONE)) + " tokens, ms", "ratios"),
            *("max diff", "min cos", "same nearest", "load, s", "peak, MB"),
        ],
        rows,
    )

    show_cosines(shape, result)


def show_cosines(shape: str, result: dict[str, Any]) -> None:
    """A table of how close each system's vectors are to the reference's."""
    known = {name: value for name, value in result.items() if "cosines" in value}
    if not known:
        return
    count = next(iter(known.values()))["cosines"]["count"]
    print(f"\n{shape}: cosines to {REFERENCE} over {count:,} texts")
    print_table(
        ["system", "lowest", "1% below", "5% below", "median", "same nearest"],
        [
            [
                name,
                *(
                    f"{value['cosines'][key]:.4f}"
                    for key in ("lowest", "percent_1", "percent_5", "median")
                ),
                f"{value['same_nearest']:.1%}",
            ]
            for name, value in known.items()
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=NAMES,
        metavar="NAME",
        default=["minilm", "base"],
        help=f"{', '.join(SHAPES)}, or a preset: {', '.join(PRESETS)}",
    )
    parser.add_argument("--systems", nargs="+", choices=tuple(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument(
        "--output",
        choices=tuple(OUTPUTS),
        default="vectors",
        help="the mean of each text's states, the first state of pairs that are ranked, or nine "
        "numbers for each token",
    )
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--data", type=Path, help="a table with texts, in place of made-up ones")
    parser.add_argument("--text-column", help="of --data")
    parser.add_argument("--turns", type=int, default=3, help="0: only compare the vectors")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure processor time, not wall time: for --threads 1 on a machine that others use",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    facts = machine(options.threads)
    print(describe_machine(facts))
    names = []
    for name in options.systems:
        package = SYSTEMS[name][0]
        if importlib.util.find_spec(package) is None:
            print(
                f"{name}: left out, {package} is not installed (pip install '.[bench]' in a clone)"
            )
        else:
            names.append(name)
    results: dict[str, Any] = {}
    for shape in options.shapes:
        results[shape] = measure(shape, names, options)
        show(shape, results[shape])
    save_json(options.json, {"machine": facts, "cpu_time": options.cpu_time, "shapes": results})


if __name__ == "__main__":
    main()
