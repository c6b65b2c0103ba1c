"""Do the training runs of the demo: pre-training for as long as the time allows, and learning the
subjects from a few labels with each of the models."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.bundled import bundled_folder
from bertine.demo import texts
from bertine.demo.recipe import BUNDLED_MODEL, DemoRecipe
from bertine.demo.scores import DemoScores
from bertine.files import write_text
from bertine.inference.baselines.texts import ngrams
from bertine.inference.predictor import Predictor
from bertine.modeldir import load_config, save_model
from bertine.models.mimetic import mimic_trained_attention
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.objectives import objective
from bertine.records.examples import Example, Examples
from bertine.runs.log import LogRow, pretraining_names, read_log
from bertine.tasks.texts.classification import Prediction, TextClassification
from bertine.terminal.console import console
from bertine.text.tokenizer import Tokenizer
from bertine.training.finetuning.finetune import finetune
from bertine.training.pretraining.pretrain import pretrain
from bertine.training.pretraining.result import PretrainResult

#: The last figures of pre-training are means over so many lines of its log.
_END_LINES = 8


def write_labelled(folder: Path, recipe: DemoRecipe) -> None:
    """Write ``test.csv``, the licence of the passages and, for each draw, ``draw-N/train.csv`` with
    the labelled passages that a model is shown and ``draw-N/validation.csv``, which is the same for
    all."""
    for number in range(recipe.draws):
        draw = folder / f"draw-{number + 1}"
        draw.mkdir(parents=True, exist_ok=True)
        texts.write_csv(draw / "train.csv", texts.draw(number, recipe.labels))
        texts.write_csv(draw / "validation.csv", texts.passages("validation"))
    texts.write_csv(folder / "test.csv", texts.passages("test"))
    write_text(folder / "LICENSE.md", texts.licence())


def untrained_model(out: Path, recipe: DemoRecipe, tokenizer: Tokenizer, seed: int) -> Path:
    """Write a model directory with the weights that pre-training begins with: the layers of the
    bundled model, random but for attention that is arranged as in trained models."""
    config = load_config(bundled_folder(BUNDLED_MODEL), dropout=0.0).replace(
        vocab_size=tokenizer.vocab_size,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=recipe.initializer_range,
    )
    with seeded(seed, "demo weights"):
        model = Model(config, objective(recipe.pretraining["objective"]).heads(config))
        mimic_trained_attention(model.backbone)
    save_model(out / "untrained", model, tokenizer)
    return out / "untrained"


def pretrain_for(
    out: Path, model: Path, recipe: DemoRecipe, seconds: float, seed: int
) -> PretrainResult:
    """Pre-train `model` on the store for so many seconds."""
    return pretrain(
        out / "store",
        model=model,
        out=out / "pretraining",
        hours=seconds / 3600,
        seed=seed,
        checkpoint_every=None,
        **recipe.pretraining,
    )


def end_of(log: Sequence[LogRow]) -> dict[str, float]:
    """Read off a log how pre-training ended: loss and accuracy, means over the last lines."""
    keys = ("mlm_loss", "mlm_accuracy")
    return {key: statistics.fmean(line[key] for line in log[-_END_LINES:]) for key in keys}


@dataclass(frozen=True)
class LearnedSubjects:
    """A model that was shown the labelled passages: its scores, the answers of its first training
    to the test passages, and the model directory of that training."""

    scores: DemoScores
    answers: list[Prediction]
    model: Path


def learn_subjects(
    out: Path, name: str, model: Path | str, recipe: DemoRecipe, seed: int, *, kind: str
) -> LearnedSubjects:
    """Show `model` each draw of labelled passages, and have it answer the test passages.

    Its layers stay as they are and a linear head is fitted (``finetune(frozen=True)``): it takes
    less than a second, and what differs between models is what they know already.

    Args:
        name: of the model, for people.
        kind: name of the folder of its runs.
    """
    folder = out / "finetuning" / kind
    test = texts.passages("test")
    answers: list[list[Prediction]] = []
    for number in range(1, recipe.draws + 1):
        with quiet():
            tuned = finetune(
                "text",
                model=model,
                data=out / "passages" / f"draw-{number}",
                out=folder / f"draw-{number}",
                label_column="subject",
                frozen=True,
                seed=seed,
                baselines=False,
            )
            predictor = Predictor.load(tuned.model)
        answers.append(list(predictor.predict([passage.text for passage in test])))
    return LearnedSubjects(_scores(name, answers), answers[0], folder / "draw-1" / "model")


def count_words(recipe: DemoRecipe) -> DemoScores:
    """Score logistic regression on tf-idf of words and characters, which reads nothing but
    the labelled passages."""
    test = _examples("test", texts.passages("test"))
    task = TextClassification(texts.count_texts().subjects)
    answers = []
    for number in range(recipe.draws):
        train = _examples("train", texts.draw(number, recipe.labels))
        answers.append(ngrams(task, train)(test))
    return _scores("tf-idf", answers)


def _examples(source: str, passages: list[texts.Passage]) -> Examples[Example]:
    items = [Example((passage.text,), passage.subject) for passage in passages]
    return Examples(source, ("text",), "subject", items)


def _scores(name: str, answers: list[list[Any]]) -> DemoScores:
    test = texts.passages("test")
    right = [
        [answer.label == passage.subject for answer, passage in zip(run, test, strict=True)]
        for run in answers
    ]
    return DemoScores(name, [passage.article for passage in test], right)


def pretraining_log(out: Path) -> Sequence[LogRow]:
    """Read the log of pre-training, with the names of terms."""
    return pretraining_names(read_log(out / "pretraining" / "log.jsonl"))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Say nothing for a while: what runs print is not what the demo is about."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before
