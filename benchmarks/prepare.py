"""Raw text to token store, against the speed of the tokenizer alone.

    python benchmarks/prepare.py CORPUS [--tokenizer DIR] [--megabytes 20 300] [--threads 2]

Ours is ``bertine.prepare`` as a user calls it: reading, decompressing, sentence splitting,
tokenizing, counting duplicates, writing. The tokenizer alone is ``tokenizers``' own
``encode_batch_fast`` with as many threads over the same documents, which are in memory already.
Each is measured in a process of its own, for each amount of text: by the clock, and by the time
that the cores were busy with it, which says the same on a machine where others work too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from common import (
    Turn,
    Worker,
    describe_machine,
    machine,
    megabytes,
    peak_memory,
    print_table,
    reset_peak_memory,
    save_json,
)

from bertine.tokenization.documents import Corpus
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.vocab import train_vocab


def take(corpus: list[Path], size: int, out: Path) -> int:
    """Write documents of `corpus` to `out` until they have `size` bytes; how many bytes."""
    written = 0
    with open(out, "w", encoding="utf-8") as handle:
        while written < size:
            before = written
            for document in Corpus(corpus):
                text = "\n".join(line for line in document.text.splitlines() if line.strip())
                handle.write(text + "\n\n")
                written += len(text.encode())
                if written >= size:
                    break
            if written == before:
                raise SystemExit("the corpus has no text")
    return written


def bertine_job(turn: Turn, text: Path, tokenizer: Path, out: Path) -> None:
    import bertine
    from bertine.core.console import console

    console.quiet = True
    turn.end({})
    reset_peak_memory()
    busy = time.process_time()
    report = bertine.prepare(text, tokenizer=tokenizer, out=out, processes=1)
    busy = time.process_time() - busy
    store = bertine.TokenStore.open(out)
    turn.end(
        {
            "seconds": report.seconds,
            "busy": busy,
            "peak": peak_memory(),
            "tokens": store.num_tokens,
            "bytes_per_token": report.store_bytes / store.num_tokens,
        }
    )


def tokenizers_job(turn: Turn, text: Path, tokenizer: Path) -> None:
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    documents = [document.text for document in Corpus([text])]
    turn.end({})
    began, busy = time.perf_counter(), time.process_time()
    tokens = 0
    for start in range(0, len(documents), 1000):
        part = backend.encode_batch_fast(documents[start : start + 1000], add_special_tokens=False)
        tokens += sum(len(encoding) for encoding in part)
    turn.end(
        {
            "seconds": time.perf_counter() - began,
            "busy": time.process_time() - busy,
            "tokens": tokens,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("corpus", type=Path, nargs="+", help="files or folders of text")
    parser.add_argument("--tokenizer", type=Path, help="default: one trained on 20 MB of the text")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 300])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    facts = machine(args.threads)
    print(describe_machine(facts))
    saved: dict[str, Any] = {"machine": facts, "sizes": {}}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        tokenizer = args.tokenizer
        if tokenizer is None:
            take(args.corpus, 20_000_000, home / "sample.txt")
            train_vocab(home / "sample.txt", home / "tokenizer", vocab_size=30522)
            tokenizer = home / "tokenizer"
        else:
            # As a folder that `tokenizers` reads, whatever was given.
            (home / "tokenizer").mkdir()
            Tokenizer.load(tokenizer).save(home / "tokenizer")
            tokenizer = home / "tokenizer"
        for size in args.megabytes:
            text = home / "text.txt"
            written = take(args.corpus, size * 1_000_000, text) / 1e6
            with Worker("bertine", args.threads, bertine_job, text, tokenizer, home / "s") as us:
                ours = us.turn()
            with Worker("tokenizers", args.threads, tokenizers_job, text, tokenizer) as they:
                theirs = they.turn()
            share = theirs["seconds"] / ours["seconds"]
            rows.append(
                [
                    f"{written:.0f}",
                    f"{written / ours['seconds']:.1f}",
                    f"{written / theirs['seconds']:.1f}",
                    f"{share:.0%}",
                    f"{written / ours['busy']:.1f}",
                    f"{theirs['busy'] / ours['busy']:.0%}",
                    megabytes(ours["peak"]),
                    f"{ours['bytes_per_token']:.2f}",
                    f"{ours['tokens']:,}",
                ]
            )
            print(
                f"{written:.0f} MB: {ours['seconds']:.1f} s, tokenizers {theirs['seconds']:.1f} s",
                flush=True,
            )
            saved["sizes"][size] = {"bertine": ours, "tokenizers": theirs, "share": share}
    print_table(
        [
            "MB",
            "bertine MB/s",
            "tokenizers MB/s",
            "share",
            "MB/core second",
            "share, busy",
            "peak MB",
            "bytes/token",
            "tokens",
        ],
        rows,
    )
    save_json(args.json, saved)


if __name__ == "__main__":
    main()
