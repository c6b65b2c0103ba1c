"""Searching among a million vectors: all of them compared, and by an index, beside NumPy and faiss.

    python benchmarks/search.py [--vectors FILE.npy --queries FILE.npy] [--rows 1000000]

Without files the vectors are drawn: in clusters of many sizes, as those of texts are, and the
queries near them. Each system runs in a process of its own, and they take turns. Time is of a
search from the vector of a query on, the file of vectors being in the system's cache; memory is
what the process holds beside that cache (``RssAnon``), at its highest, over what it held before.
Recall is the share of the ten nearest rows that are found.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Turn, Worker, describe_machine, machine, print_table, save_json

from bertine.inference.embedding.index import NearestRows, VectorIndex, index_vectors, search_all
from bertine.inference.embedding.vector_files import open_vectors

TOP = 10
#: Queries of a turn: one at a time, and all at once.
ONE, MANY = "one", "many"

Search = Callable[[np.ndarray], np.ndarray]


def anonymous_megabytes() -> float:
    """The memory of this process that is no file's."""
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1e3


class PeakMemory:
    """The highest memory while it is entered, looked at every few milliseconds."""

    def __enter__(self) -> PeakMemory:
        self.before = self.most = anonymous_megabytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.003):
            self.most = max(self.most, anonymous_megabytes())

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.most = max(self.most, anonymous_megabytes())


def ours(vectors: Path, index: Path) -> Search:
    table = open_vectors(vectors)

    def search(asked: np.ndarray) -> np.ndarray:
        nearest = NearestRows(len(asked), TOP)
        search_all(nearest, asked, table)
        return np.stack(nearest.rows)

    return search


def ours_with_index(vectors: Path, index: Path) -> Search:
    opened = VectorIndex.read(index, open_vectors(vectors), vectors)
    return lambda asked: np.stack([rows[:TOP] for rows in opened.search(asked, TOP).rows])


def in_numpy(vectors: Path, index: Path) -> Search:
    """All vectors in memory, of length 1, and one product."""
    table = np.load(vectors).astype(np.float32)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)

    def search(asked: np.ndarray) -> np.ndarray:
        best = []
        for part in np.array_split(asked, max(1, len(asked) // 100)):
            scores = part @ table.T
            rows = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
            order = np.argsort(-np.take_along_axis(scores, rows, 1), axis=1)
            best.append(np.take_along_axis(rows, order, 1))
        return np.concatenate(best)

    return search


def in_faiss(vectors: Path, index: Path) -> Search:
    """faiss's exact index, IndexFlatIP."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    table = np.load(vectors).astype(np.float32)
    faiss.normalize_L2(table)
    flat = faiss.IndexFlatIP(table.shape[1])
    flat.add(table)
    del table
    return lambda asked: np.asarray(flat.search(asked, TOP)[1])


SYSTEMS: dict[str, Callable[[Path, Path], Search]] = {
    "similar": ours,
    "similar, index": ours_with_index,
    "NumPy, in memory": in_numpy,
    "faiss, IndexFlatIP": in_faiss,
}


def work(turn: Turn, name: str, vectors: Path, index: Path, queries: Path) -> None:
    asked = np.load(queries)
    with PeakMemory() as opening:
        search = SYSTEMS[name](vectors, index)
        search(asked[:1])
    turn.end({})
    with PeakMemory() as searching:
        while True:
            start = time.perf_counter()
            for query in asked[:10]:
                search(query[None])
            one = (time.perf_counter() - start) / 10
            start = time.perf_counter()
            rows = search(asked)
            many = (time.perf_counter() - start) / len(asked)
            most = max(opening.most, searching.most, anonymous_megabytes()) - opening.before
            turn.end({ONE: one, MANY: many, "megabytes": most, "rows": rows.tolist()})


def draw(folder: Path, rows: int, dimensions: int, queries: int, seed: int) -> tuple[Path, Path]:
    """Draw vectors in clusters whose sizes fall by a power law, and queries near some of them."""
    rng = np.random.default_rng(seed)
    clusters = max(10, rows // 200)
    centres = rng.normal(size=(clusters, dimensions)).astype(np.float32)
    share = 1 / np.arange(1, clusters + 1) ** 0.7
    vectors = np.lib.format.open_memmap(
        folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(rows, dimensions)
    )
    for start in range(0, rows, 100_000):
        part = vectors[start : start + 100_000]
        chosen = rng.choice(clusters, len(part), p=share / share.sum())
        part[:] = centres[chosen] + 0.8 * rng.normal(size=part.shape)
    near = vectors[np.sort(rng.choice(rows, queries, replace=False))]
    asked = near + 0.4 * rng.normal(size=near.shape)
    vectors.flush()
    np.save(folder / "queries.npy", asked.astype(np.float32))
    return folder / "vectors.npy", folder / "queries.npy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vectors", type=Path, help="a .npy; default: drawn")
    parser.add_argument("--queries", type=Path, help="a .npy, where --vectors is given")
    parser.add_argument("--rows", type=int, default=1_000_000, help="to draw")
    parser.add_argument("--dimensions", type=int, default=384, help="to draw")
    parser.add_argument("--num-queries", type=int, default=500, help="to draw")
    parser.add_argument("--recall", type=float, default=0.95, help="of the index")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", type=Path, metavar="FILE")
    args = parser.parse_args()
    if (args.vectors is None) != (args.queries is None):
        raise SystemExit("--vectors and --queries belong together")
    torch.set_num_threads(args.threads)
    facts = machine(args.threads)
    print(describe_machine(facts))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        vectors, queries = args.vectors, args.queries
        if vectors is None:
            vectors, queries = draw(folder, args.rows, args.dimensions, args.num_queries, seed=0)
        asked = np.load(queries).astype(np.float32)
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
        np.save(folder / "asked.npy", asked)
        report = index_vectors(
            vectors, out=folder / "index", recall=args.recall, show_progress=False
        )
        print("\n".join(report.lines()[:2]))
        given = (vectors, folder / "index", folder / "asked.npy")
        workers = {
            each: stack.enter_context(Worker(each, args.threads, work, each, *given))
            for each in args.systems
        }
        results: dict[str, list[dict[str, Any]]] = {each: [] for each in workers}
        for _ in range(args.turns):
            for each, worker in workers.items():
                results[each].append(worker.turn())
        truth = np.array(results["similar"][0]["rows"]) if "similar" in results else None
    table = []
    for each, turns in results.items():
        found = np.array(turns[0].pop("rows"))
        hits = (
            float("nan")
            if truth is None
            else np.mean(
                [len(np.intersect1d(a, b)) / TOP for a, b in zip(found, truth, strict=True)]
            )
        )
        table.append(
            [
                each,
                f"{1e3 * statistics.median(turn[ONE] for turn in turns):.1f}",
                f"{1e3 * statistics.median(turn[MANY] for turn in turns):.2f}",
                f"{max(turn['megabytes'] for turn in turns):,.0f}",
                f"{100 * hits:.1f}%",
            ]
        )
        for turn in turns:
            turn.pop("rows", None)
    print_table(
        ["system", "ms, one query", f"ms a query, {len(asked)} at once", "MB", "recall"], table
    )
    if args.save:
        save_json(args.save, {"machine": facts, "results": results})


if __name__ == "__main__":
    main()
