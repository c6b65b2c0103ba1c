"""A server under mixed load on loopback: its memory by the minute, and what a small client waits
while a greedy one asks for as much as it may.

``bertine serve`` runs in a process of its own. For the memory, clients of every kind ask it at the
same time, each again as soon as it is answered: one text, hundreds of texts, long texts, vectors
(one, and 2,048 at OpenAI's path), explanations, attention, mistakes, and clients that leave before
their answer. For the fairness, a small client asks for one text at a time, first alone, then beside
a greedy one that keeps several requests under way: of 256 texts, or of another kind (``--kinds``).

    python benchmarks/mixed_load.py --model DIR              memory for five minutes, fairness
    python benchmarks/mixed_load.py --model DIR --minutes 0  fairness alone
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from serve import percentile, resident, server, texts_of

Ask = Callable[[str, Any], Awaitable[int]]


async def ask(port: int, path: str, body: Any, leave_after: float | None = None) -> int:
    """The status of one request on a connection of its own; 0: the client left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        await writer.drain()
        if leave_after is not None:
            await asyncio.sleep(leave_after)
            return 0
        answer = await reader.read()
        return int(answer.split(b" ", 2)[1])
    finally:
        writer.close()


async def mixed(port: int, pid: int, texts: list[str], seconds: float) -> list[tuple[int, int]]:
    """(seconds, MB) about every half minute of the load; every answer must be as its kind wants."""
    until, began = time.monotonic() + seconds, time.monotonic()
    draw, codes = random.Random(0), Counter[tuple[str, int]]()
    pick = lambda count: [draw.choice(texts) for _ in range(count)]  # noqa: E731
    long = lambda: " ".join(pick(20))[:15_000]  # noqa: E731
    kinds: dict[str, tuple[set[int], Callable[[], Awaitable[int]]]] = {
        "one text": ({200, 429, 504}, lambda: ask(port, "/predict", {"texts": pick(1)})),
        "many": (
            {200, 429, 504},
            lambda: ask(port, "/predict", {"texts": pick(draw.randint(2, 256))}),
        ),
        "long": (
            {200, 429, 504},
            lambda: ask(port, "/predict", {"texts": [long() for _ in range(4)]}),
        ),
        "vector": ({200, 429, 504}, lambda: ask(port, "/embed", {"texts": pick(1)})),
        "2,048 vectors": (
            {200, 429, 504},
            lambda: ask(port, "/v1/embeddings", {"input": pick(2048), "model": "model"}),
        ),
        "explain": ({200, 429, 504}, lambda: ask(port, "/explain", {"text": pick(1)[0][:1000]})),
        "attention": (
            {200, 429, 504},
            lambda: ask(port, "/attention", {"text": pick(1)[0][:1000]}),
        ),
        "mistake": ({422}, lambda: ask(port, "/predict", {"text": pick(200)})),
        "leaves": ({0}, lambda: ask(port, "/predict", {"texts": pick(200)}, leave_after=0.05)),
    }

    async def client(kind: str) -> None:
        fine, once = kinds[kind]
        while time.monotonic() < until:
            status = await once()
            codes[kind, status] += 1
            if status not in fine:
                raise SystemExit(f"{kind}: answered with {status}")
            await asyncio.sleep(1.0 if kind in ("leaves", "mistake", "2,048 vectors") else 0)

    curve: list[tuple[int, int]] = []

    async def watch() -> None:
        while time.monotonic() < until:
            curve.append((round(time.monotonic() - began), resident(pid) >> 20))
            await asyncio.sleep(min(30.0, max(1.0, seconds / 10)))

    counts = {"one text": 8, "vector": 4}
    await asyncio.gather(watch(), *(client(k) for k in kinds for _ in range(counts.get(k, 1))))
    for (kind, status), count in sorted(codes.items()):
        print(f"  {kind}: {count} x {status or 'left'}")
    return [*curve, (round(time.monotonic() - began), resident(pid) >> 20)]


def greedy_requests(texts: list[str]) -> dict[str, tuple[str, Any, int]]:
    """What a greedy client asks for, by kind: the path, the body, how many texts that are."""
    long = " ".join(texts)[:15_000]
    some = " ".join(texts[:5])[:1000]
    return {
        "texts": ("/predict", {"texts": texts[:256]}, 256),
        "long texts": ("/predict", {"texts": [long] * 16}, 16),
        "vectors": ("/v1/embeddings", {"input": (texts * 2)[:1000], "model": "model"}, 1000),
        "long vectors": ("/embed", {"texts": [long] * 64}, 64),
        "explain": ("/explain", {"text": some}, 1),
        "gradients": ("/explain", {"text": some, "method": "integrated-gradients"}, 1),
        "attention": ("/attention", {"text": some}, 1),
    }


async def small_client(
    port: int, texts: list[str], seconds: float, greedy: int, kind: str
) -> tuple[list[float], int]:
    """Milliseconds of each of the small client's requests, and texts answered to the greedy one
    with so many requests of a kind under way."""
    until, done = time.monotonic() + seconds, 0
    path, body, count = greedy_requests(texts)[kind]

    async def take_all() -> None:
        nonlocal done
        while time.monotonic() < until:
            if await ask(port, path, body) == 200:
                done += count
            else:
                await asyncio.sleep(0.2)

    waits: list[float] = []

    async def ask_one() -> None:
        at = 0
        while time.monotonic() < until:
            began = time.monotonic()
            status = await ask(port, "/predict", {"texts": [texts[at % len(texts)]]})
            if status != 200:
                raise SystemExit(f"the small client was answered with {status}")
            waits.append(1000 * (time.monotonic() - began))
            at += 1

    await asyncio.gather(ask_one(), *(take_all() for _ in range(greedy)))
    return waits, done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a directory with a classifier")
    parser.add_argument("--minutes", type=float, default=5.0, help="of mixed load")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load for fairness")
    parser.add_argument("--greedy", type=int, nargs="+", default=[0, 1, 3, 6], help="requests")
    parser.add_argument("--kinds", nargs="+", default=["texts"], help="of the greedy requests")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    texts = texts_of(500, 35.0, 128)
    named = f"model={args.model}"
    with server(Path(named), args.threads, ()) as (port, pid):
        if args.minutes:
            print(f"mixed load, {args.minutes:g} min")
            for second, megabytes in asyncio.run(mixed(port, pid, texts, 60 * args.minutes)):
                print(f"  {second:4} s  {megabytes} MB")
        for kind, greedy in itertools.product(args.kinds, args.greedy):
            waits, done = asyncio.run(small_client(port, texts, args.seconds, greedy, kind))
            print(
                f"greedy requests {greedy} ({kind}): small client "
                f"p50 {statistics.median(waits):.0f} ms, p99 {percentile(waits, 0.99):.0f} ms, "
                f"{len(waits)} answers; greedy client "
                f"{done / args.seconds:.3g} texts/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
