"""Training word2vec's vectors: ours against gensim's, words a second on one thread, in turns.

    pip install gensim
    python benchmarks/word2vec.py CORPUS --words 2000000

Both get the same words, already split and in memory, and the same settings; the vocabulary is
counted before the clock starts. A turn is one pass over the text with fresh vectors.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import Timing, Turn, Worker, describe_machine, machine, print_table, save_json

from bertine.contrib.options import WordVectorModel, WordVectorRecipe
from bertine.contrib.word2vec.train import BREAK, Weights, train_vectors
from bertine.contrib.word2vec.vectors import words_of
from bertine.tokenization.documents import Corpus

#: The text that is given to gensim at once: it reads no more of a sentence.
_LONGEST = 10_000


def read_documents(args: argparse.Namespace) -> tuple[list[list[str]], Counter[str]]:
    """Read documents up to so many words, with their rare words left out, and count them."""
    documents, count = [], 0
    for document in Corpus(args.corpus, text_column=args.text_column):
        documents.append(words_of(document.text, lowercase=True)[: args.words - count])
        count += len(documents[-1])
        if count >= args.words:
            break
    counts = Counter(itertools.chain.from_iterable(documents))
    kept = {word for word, number in counts.items() if number >= 5}
    documents = [[word for word in document if word in kept] for document in documents]
    return documents, Counter(itertools.chain.from_iterable(documents))


def work(turn: Turn, ours: bool, method: WordVectorModel, args: argparse.Namespace) -> None:
    """A turn is a pass over the text; its message has seconds and words."""
    documents, counts = read_documents(args)
    words = sum(counts.values())
    while True:
        run = _ours if ours else _gensim
        seconds = run(documents, counts, method, args.dimensions)
        turn.end({"seconds": seconds, "words": words})


def _ours(
    documents: list[list[str]], counts: Counter[str], method: WordVectorModel, dimensions: int
) -> float:
    ids = {word: number for number, (word, _) in enumerate(counts.most_common())}
    text = [number for one in documents for number in (*map(ids.__getitem__, one), BREAK)]
    recipe = WordVectorRecipe(method=method, dimensions=dimensions, epochs=1)
    array = np.array(text, dtype=np.int32)
    seen = np.array([count for _, count in counts.most_common()])
    began = time.perf_counter()
    weights = Weights(len(ids), dimensions, seed=1)
    for _ in train_vectors(array, seen, recipe, 1, weights):
        pass
    return time.perf_counter() - began


def _gensim(
    documents: list[list[str]], counts: Counter[str], method: WordVectorModel, dimensions: int
) -> float:
    from gensim.models import Word2Vec

    sentences = [
        one[at : at + _LONGEST] for one in documents for at in range(0, len(one), _LONGEST)
    ]
    model: Any = Word2Vec(
        vector_size=dimensions,
        sg=int(method == "skip-gram"),
        alpha=0.025 if method == "skip-gram" else 0.05,
        window=5,
        min_count=1,
        negative=5,
        sample=1e-3,
        workers=1,
        seed=1,
    )
    model.build_vocab_from_freq(dict(counts))
    began = time.perf_counter()
    model.train(
        sentences,
        total_examples=len(sentences),
        total_words=sum(counts.values()),
        epochs=1,
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="word2vec's training, ours and gensim's.")
    parser.add_argument("corpus", nargs="+", type=Path)
    parser.add_argument("--text-column")
    parser.add_argument("--words", type=int, default=2_000_000, help="of the corpus, at most")
    parser.add_argument("--dimensions", type=int, default=100)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every time to this file")
    args = parser.parse_args()
    facts = machine(1)
    print(describe_machine(facts), flush=True)
    rows, results = [], {}
    methods: tuple[WordVectorModel, ...] = ("skip-gram", "cbow")
    for method in methods:
        seconds: dict[str, list[float]] = {"bertine": [], "gensim": []}
        with (
            Worker("bertine", 1, work, True, method, args) as ours,
            Worker("gensim", 1, work, False, method, args) as theirs,
        ):
            for _ in range(args.passes):
                for worker in (ours, theirs):
                    message = worker.turn()
                    seconds[worker.name].append(message["seconds"])
        words = message["words"]
        times = {name: Timing(each) for name, each in seconds.items()}
        for name, timing in times.items():
            ratio = timing.median / times["bertine"].median
            rates = [f"{words / each / 1e3:.0f}" for each in (timing.best, timing.median)]
            shown = "" if name == "bertine" else f"{ratio:.2f}x"
            rows.append([method, name, *rates, f"{timing.spread:.0%}", shown])
        results[method] = {name: timing.to_dict() for name, timing in times.items()}
    print_table(["method", "system", "thousand words/s", "median", "spread", "theirs / ours"], rows)
    save_json(args.json, {"machine": facts, "words": words, "systems": results})


if __name__ == "__main__":
    main()
