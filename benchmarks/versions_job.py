"""What ``versions.py`` measures, each in a process of its own: one work by one tree of Bertine.

    PYTHONPATH=TREE python -P benchmarks/versions_job.py WORK FOLDER THREADS

Only the public verbs are used, since all else may differ between two trees. When the process is
warm it says ``ready`` and the precision that was chosen, then works for at least as many seconds as
each line of standard input says, and answers with its pieces of work, each as units and seconds,
and with the processor's seconds of all. FOLDER belongs to the tree: its stores and models are made
by its own code. The inputs of both trees lie in FOLDER's parent.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import bertine

#: One or more pieces of work: of each how many units it was, and how many seconds they took.
Piece = Callable[[], list[tuple[float, float]]]

#: Of a pre-training run by its model: steps that are not timed, then steps that are.
PRETRAIN_STEPS = {"bert-mini": (3, 9), "bert-base": (1, 3)}
#: As the command line names what a predictor computes in.
PRECISIONS = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.int8": "int8"}
#: Texts that are asked about one by one in a piece.
SINGLE_TEXTS = 20
#: More steps than any run here has: nothing is written or evaluated on the way.
NEVER = 1_000_000


def timed(units: float, work: Callable[[], object]) -> list[tuple[float, float]]:
    """Do `work`, which is so many units, as one piece."""
    began = time.perf_counter()
    work()
    return [(units, time.perf_counter() - began)]


class Inputs:
    """The files that both trees read, and what this tree makes of them when it is first asked.

    Attributes:
        precision: in which a model answers, if one was loaded.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads, shared = folder, threads, folder.parent
        self.base, self.corpus = shared / "base", shared / "corpus.txt"
        self.labelled, self.table = shared / "labelled.csv", shared / "texts.csv"
        self.texts: list[str] = json.loads((shared / "texts.json").read_text(encoding="utf-8"))
        self.precision = ""

    def store(self) -> Path:
        """Prepare the corpus, if that has not been done."""
        path = self.folder / "store"
        if not path.exists():
            bertine.prepare(self.corpus, tokenizer=self.base, out=path, processes=1)
        return path

    def model(self) -> Path:
        """Fit a classifier's head on the labelled texts, if that has not been done."""
        run = self.folder / "classifier"
        if not run.exists():
            finetune(self, run, frozen=True)
        return run / "model"

    def predictor(self) -> bertine.Predictor:
        """Load the classifier."""
        loaded = bertine.Predictor.load(self.model(), threads=self.threads)
        self.precision = PRECISIONS[str(loaded.dtype)]
        return loaded


def finetune(inputs: Inputs, out: Path, **options: Any) -> None:
    """Fine-tune the base model on the labelled texts."""
    bertine.finetune(
        "text",
        model=inputs.base,
        data=inputs.labelled,
        out=out,
        text_columns="text",
        label_column="subject",
        baselines=False,
        **options,
    )


def pretraining(inputs: Inputs, model: str) -> Piece:
    """Pre-train for some steps; the seconds are those of the steps, from the run's log."""
    store, out = inputs.store(), inputs.folder / "pretraining"
    before, counted = PRETRAIN_STEPS[model]

    def piece() -> list[tuple[float, float]]:
        shutil.rmtree(out, ignore_errors=True)
        bertine.pretrain(
            store,
            model=model,
            out=out,
            steps=before + counted,
            batch_size=32,
            max_seq_length=128,
            checkpoint_every=None,
            evaluate_every=NEVER,
            log_every=1,
        )
        lines = (out / "log.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if "elapsed" in row]
        elapsed = {row["step"]: row["elapsed"] for row in rows}
        steps = range(before + 1, before + counted + 1)
        return [(1, elapsed[step] - elapsed[step - 1]) for step in steps]

    return piece


def pretrain_mini(inputs: Inputs) -> Piece:
    return pretraining(inputs, "bert-mini")


def pretrain_base(inputs: Inputs) -> Piece:
    return pretraining(inputs, "bert-base")


def finetuning(inputs: Inputs) -> Piece:
    """Fine-tune all layers for two epochs, from the files to the saved model."""
    out = inputs.folder / "finetuning"
    options = {"epochs": 2, "batch_size": 32, "max_length": 128, "learning_rate": 5e-5}

    def work() -> None:
        finetune(inputs, out, frozen=False, save_best=False, checkpoint_every=NEVER, **options)

    def piece() -> list[tuple[float, float]]:
        shutil.rmtree(out, ignore_errors=True)
        return timed(1, work)

    return piece


def predict(inputs: Inputs) -> Piece:
    """Answer a file with a model that is loaded."""
    predictor = inputs.predictor()
    out = inputs.folder / "answers.csv"

    def work() -> None:
        bertine.predict(predictor, inputs.table, out, show_progress=False)

    return lambda: timed(len(inputs.texts), work)


def embed(inputs: Inputs) -> Piece:
    """Turn a file into vectors with a model that is loaded."""
    embedder = bertine.Embedder.load(inputs.base, threads=inputs.threads)
    inputs.precision = embedder.precision
    out = inputs.folder / "vectors.npy"

    def work() -> None:
        bertine.embed(embedder, inputs.table, out, text_column="text", show_progress=False)

    return lambda: timed(len(inputs.texts), work)


def one_text(inputs: Inputs) -> Piece:
    """Answer texts one by one with a model that is loaded."""
    predictor = inputs.predictor()
    texts = cycle(inputs.texts)

    def work() -> None:
        for _ in range(SINGLE_TEXTS):
            predictor.predict(next(texts))

    return lambda: timed(SINGLE_TEXTS, work)


def prepare(inputs: Inputs) -> Piece:
    """Turn the corpus into a token store; the units are MB of text."""
    out, size = inputs.folder / "prepared", inputs.corpus.stat().st_size / 1e6

    def work() -> None:
        bertine.prepare(inputs.corpus, tokenizer=inputs.base, out=out, processes=1)

    return lambda: timed(size, work)


def classifier(inputs: Inputs) -> Piece:
    """Make the model that the server is started with; there is nothing to measure."""
    inputs.predictor()
    return list


WORKS: dict[str, Callable[[Inputs], Piece]] = {
    "pretrain-mini": pretrain_mini,
    "pretrain-base": pretrain_base,
    "finetune": finetuning,
    "predict": predict,
    "embed": embed,
    "one-text": one_text,
    "prepare": prepare,
    "classifier": classifier,
}


def main() -> None:
    work, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    expected = os.environ["PYTHONPATH"]
    found = Path(bertine.__file__).parents[1]
    if not found.samefile(expected):
        raise SystemExit(f"Bertine was found in {found}, not in {expected}")
    # What the verbs print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    inputs = Inputs(folder, threads)
    piece = WORKS[work](inputs)
    if not work.startswith("pretrain"):  # whose first steps are left out each time
        piece()
    print("ready", inputs.precision, file=answers, flush=True)
    for line in sys.stdin:
        pieces: list[tuple[float, float]] = []
        used = time.process_time()
        while sum(seconds for _, seconds in pieces) < float(line):
            pieces += piece()
        print(json.dumps([pieces, time.process_time() - used]), file=answers, flush=True)


if __name__ == "__main__":
    main()
