"""One version of Bertine against another: how many times as fast the new one is, work by work.

    python benchmarks/versions.py OLD NEW [--only WORK ...] [--rounds 10] [--at-least 0.97]
    python benchmarks/versions.py OLD NEW --cpu-time --threads 1    where other programs compute too

OLD and NEW are folders that hold ``bertine/``, such as the ``src`` of two git worktrees. Of each
there is a process that is loaded once and then waits; the two take turns (old, new, old, new, …),
so that whatever else the machine does slows both down, and each turn of the old version makes a
pair with the turn of the new one that follows it. Both read the same files, which are made of the
bundled texts, and use nothing but the public verbs and the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import describe_machine, machine, minilm, print_table, save_json
from contention import STRANGERS, strangers_seconds
from versions_peers import Measure, Peer, Turn, opened

from bertine.contrib.demo import texts
from bertine.tokenization.documents import Corpus

#: Fewer pairs have no 95% interval of their median.
FEWEST = 6
#: Seconds to wait until the threads of the last turn sleep.
SETTLE = 0.05


class Pair(NamedTuple):
    """A turn of each; `others`: cores that other programs used meanwhile."""

    old: Turn
    new: Turn
    others: float


class Work(NamedTuple):
    """What is measured: its unit in the table, and whether that is a time."""

    unit: str
    of_time: bool


WORKS = {
    "pretrain-mini": Work("ms a step", True),
    "pretrain-base": Work("ms a step", True),
    "finetune": Work("ms", True),
    "predict": Work("texts/s", False),
    "embed": Work("texts/s", False),
    "one-text": Work("ms", True),
    "serve": Work("answers/s", False),
    "prepare": Work("MB/s", False),
    "import": Work("ms", True),
    "help": Work("ms", True),
}
#: Measured only where it is named.
NAMED_ONLY = "pretrain-base"


def write_inputs(folder: Path, model: Path) -> None:
    """Write what both versions read: a corpus, a labelled file, a file of texts, a base model."""
    (folder / "base").symlink_to(model.resolve())
    found = {split: texts.passages(split) for split in texts.SPLITS}
    every = [passage for split in texts.SPLITS for passage in found[split]]
    texts.write_csv(folder / "labelled.csv", found["train"] + found["validation"])
    texts.write_csv(folder / "texts.csv", every)
    only_texts = json.dumps([passage.text for passage in every])
    (folder / "texts.json").write_text(only_texts, encoding="utf-8")
    with texts.articles_corpus() as path, open(folder / "corpus.txt", "w", encoding="utf-8") as out:
        for document in Corpus([path]):
            lines = [line for line in document.text.splitlines() if line.strip()]
            out.write("\n".join(lines) + "\n\n")


def take_turns(old: Measure, new: Measure, given: argparse.Namespace) -> list[Pair]:
    """Let both work in turns; of all pairs those count that other programs disturbed least."""

    def turn(measure: Measure) -> tuple[Turn, float]:
        time.sleep(SETTLE)
        began, before = time.perf_counter(), strangers_seconds()
        found = measure(given.seconds)
        return found, (strangers_seconds() - before) / (time.perf_counter() - began)

    pairs: list[Pair] = []
    for at in range(given.rounds + given.again):
        if at >= given.rounds and counted(pairs, given.rounds)[-1].others <= STRANGERS:
            break
        (first, one), (second, two) = turn(old), turn(new)
        pairs.append(Pair(first, second, max(0.0, one, two)))
    return counted(pairs, given.rounds)


def counted(pairs: Sequence[Pair], rounds: int) -> list[Pair]:
    """So many pairs, the least disturbed ones first."""
    return sorted(pairs, key=lambda pair: pair.others)[:rounds]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Compute the 95% interval of the median from the ranks of `values` (the sign test): nothing is
    assumed of how they scatter. Of fewer than six values it is their range, and less sure."""
    count, ordered = len(values), sorted(values)
    rank, below = 0, 0.0  # the chance that at most `rank` values lie below the true median
    while (below := below + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[count - 1 - rank]


def compare(work: str, peers: Sequence[Peer], given: argparse.Namespace) -> dict[str, Any]:
    """Measure a work of both; speeds and ratios."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        old, new = (stack.enter_context(opened(peer, work, given.threads)) for peer in peers)
        pairs = take_turns(old.measure, new.measure, given)
    ratios = {
        name: [pair.new.speed(processor) / pair.old.speed(processor) for pair in pairs]
        for name, processor in (("clock", False), ("processor", True))
    }
    judged, other = ("processor", "clock") if given.cpu_time else ("clock", "processor")
    result: dict[str, Any] = {
        "speed": {
            "old": statistics.median(pair.old.speed(given.cpu_time) for pair in pairs),
            "new": statistics.median(pair.new.speed(given.cpu_time) for pair in pairs),
        },
        "ratio": statistics.median(ratios[judged]),
        "interval": median_interval(ratios[judged]),
        f"ratio_by_{other}": statistics.median(ratios[other]),
        "ratio_of_best": max(p.new.best for p in pairs) / max(p.old.best for p in pairs),
        "others": statistics.fmean(pair.others for pair in pairs),
        "precision": [old.precision, new.precision],
        "seconds": time.monotonic() - began,
        "pairs": [
            {
                "others": pair.others,
                **{
                    name: {"pieces": turn.pieces, "processor": turn.processor}
                    for name, turn in (("old", pair.old), ("new", pair.new))
                },
            }
            for pair in pairs
        ],
    }
    print(f"{work}: {result['ratio']:.3f} ({result['seconds']:.0f} s)", flush=True)
    return result


def row(name: str, result: dict[str, Any], other: str) -> list[str]:
    """A line of the table; `other` is the way of timing that does not judge."""
    work = WORKS[name]
    figures = [result["speed"][peer] for peer in ("old", "new")]
    shown = [1000 / figure if work.of_time else figure for figure in figures]
    return [
        f"{name}, {work.unit}",
        *(f"{figure:,.1f}" for figure in shown),
        f"{result['ratio']:.3f}",
        "{:.3f} to {:.3f}".format(*result["interval"]),
        f"{result[f'ratio_by_{other}']:.3f}",
        f"{result['ratio_of_best']:.3f}",
        f"{result['others']:.2f}",
    ]


def show(works: dict[str, Any], rounds: int, cpu_time: bool) -> None:
    """Print the table, and whether other programs used the cores."""
    print("\nold, new, new/old: in processor time" if cpu_time else "")
    other = "clock" if cpu_time else "processor"
    headers = ["work", "old", "new", "new/old", "95% interval", f"by {other}", "of the best"]
    rows = [row(name, result, other) for name, result in works.items()]
    print_table([*headers, "others"], rows)
    if rounds < FEWEST:
        print(f"fewer than {FEWEST} pairs: the interval is their range")
    for name, result in works.items():
        first, second = result["precision"]
        if first != second:
            print(f"{name}: old computed in {first}, new in {second}, which each had chosen itself")
    disturbed = [
        f"{name} {sum(pair['others'] > STRANGERS for pair in result['pairs'])} of {rounds}"
        for name, result in works.items()
        if any(pair["others"] > STRANGERS for pair in result["pairs"])
    ]
    print(
        f"pairs in which other programs used more than {STRANGERS} cores: "
        + (", ".join(disturbed) or "none")
    )


def check(works: dict[str, Any], least: float) -> None:
    """End with status 1 if a ratio is below `least`."""
    below = [
        f"{name} {result['ratio']:.3f}"
        + (", but 1 lies in its interval" if result["interval"][1] >= 1 else "")
        for name, result in works.items()
        if result["ratio"] < least
    ]
    if below:
        raise SystemExit(f"slower than {least:g} of the old speed: " + "; ".join(below))


def sources(given: str) -> Path:
    """Read a folder of sources from the command line."""
    path = Path(given).absolute()
    if not (path / "bertine" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{given} holds no bertine/")
    return path


def positive(given: str) -> int:
    """Read a number of at least 1 from the command line."""
    if (number := int(given)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("old", type=sources, metavar="OLD", help="a folder that holds bertine/")
    parser.add_argument("new", type=sources, metavar="NEW", help="another one")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=WORKS,
        metavar="WORK",
        help=f"{', '.join(WORKS)}; default: all but {NAMED_ONLY}",
    )
    parser.add_argument("--rounds", type=positive, default=10, help="pairs of turns that count")
    parser.add_argument(
        "--again", type=int, default=3, metavar="N", help="more pairs, at most, for disturbed ones"
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="of a turn, at least")
    parser.add_argument("--threads", type=positive, help="default: what PyTorch takes")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="processor time in place of wall time, for --threads 1 beside other work",
    )
    parser.add_argument("--model", type=Path, help="the base model; default all-MiniLM-L6-v2")
    parser.add_argument(
        "--at-least", type=float, metavar="R", help="exit status 1 where a ratio is below"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    given = parser.parse_args()
    # Ended by `timeout`, say, it takes its processes and its folder along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    facts = machine(given.threads or torch.get_num_threads())
    print(describe_machine(facts))
    print(f"old: {given.old}\nnew: {given.new}", flush=True)
    works: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bertine-versions-") as temporary:
        folder = Path(temporary)
        write_inputs(folder, given.model or minilm())
        peers = [Peer(name, getattr(given, name), folder / name) for name in ("old", "new")]
        for peer in peers:
            peer.folder.mkdir()
        for work in given.only or [name for name in WORKS if name != NAMED_ONLY]:
            works[work] = compare(work, peers, given)
    show(works, given.rounds, given.cpu_time)
    trees = {"old": str(given.old), "new": str(given.new)}
    save_json(
        given.json, {"machine": facts, "sources": trees, "cpu_time": given.cpu_time, "works": works}
    )
    if given.at_least is not None:
        check(works, given.at_least)


if __name__ == "__main__":
    main()
