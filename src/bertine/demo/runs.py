"""Do the training runs of the demo: pre-training for as long as the time allows, and learning the
subjects from a few labels with each of the models."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.demo import texts
from bertine.demo.recipe import LAYERS, DemoRecipe
from bertine.demo.scores import DemoScores
from bertine.files import write_text
from bertine.inference.baselines.texts import ngrams
from bertine.inference.predictor import Predictor
from bertine.modeldir import save_model
from bertine.models.bert import BertConfig
from bertine.models.mimetic import mimic_trained_attention
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.objectives import objective
from bertine.records.examples import Example, Examples
from bertine.runs.log import LogRow, pretraining_names, read_log
from bertine.tasks.texts.classification import Prediction, TextClassification
from bertine.terminal.console import console, say
from bertine.text.tokenizer import Tokenizer
from bertine.training.finetuning.finetune import finetune
from bertine.training.pretraining.pretrain import pretrain
from bertine.training.pretraining.result import PretrainResult

#: The last figures of pre-training are means over so many lines of its log.
_END_LINES = 8


@dataclass(frozen=True)
class LearnedSubjects:
    """A model that was shown the labelled passages: its scores, the answers of its first training
    to the test passages, and the model directory of that training."""

    scores: DemoScores
    answers: list[Prediction]
    model: Path


@dataclass(frozen=True)
class DemoRuns:
    """The runs of a demo.

    Attributes:
        out: the demo's folder.
        recipe: the sizes and rates.
        seed: of all that is random.
    """

    out: Path
    recipe: DemoRecipe
    seed: int

    def write_labelled(self) -> None:
        """Write ``test.csv``, the licence of the passages and, for each draw, ``draw-N/train.csv``
        with the labelled passages that a model is shown and ``draw-N/validation.csv``, which is the
        same for all."""
        folder = self.out / "passages"
        for number in range(self.recipe.draws):
            draw = folder / f"draw-{number + 1}"
            draw.mkdir(parents=True, exist_ok=True)
            texts.write_csv(draw / "train.csv", texts.draw(number, self.recipe.labels))
            texts.write_csv(draw / "validation.csv", texts.passages("validation"))
        texts.write_csv(folder / "test.csv", texts.passages("test"))
        write_text(folder / "LICENSE.md", texts.licence())

    def untrained_model(self, tokenizer: Tokenizer) -> Path:
        """Write a model directory with the weights that pre-training begins with: random but for
        attention that is arranged as in trained models."""
        config = BertConfig(
            **LAYERS,
            vocab_size=tokenizer.vocab_size,
            pad_token_id=tokenizer.pad_token_id,
            initializer_range=self.recipe.initializer_range,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        with seeded(self.seed, "demo weights"):
            model = Model(config, objective(self.recipe.pretraining["objective"]).heads(config))
            mimic_trained_attention(model.backbone)
        save_model(self.out / "untrained", model, tokenizer)
        return self.out / "untrained"

    def pretrain(self, model: Path, seconds: float) -> tuple[PretrainResult, list[LogRow]]:
        """Pre-train `model` on the store for so many seconds; return the log, too, with the names
        of terms."""
        result = pretrain(
            self.out / "store",
            model=model,
            out=self.out / "pretraining",
            hours=seconds / 3600,
            seed=self.seed,
            checkpoint_every=None,
            **self.recipe.pretraining,
        )
        return result, pretraining_names(read_log(self.out / "pretraining" / "log.jsonl"))

    def learn_subjects(self, name: str, model: Path | str, *, kind: str) -> LearnedSubjects:
        """Show `model` each draw of labelled passages, have it answer the test passages, and say
        how many it gets right.

        Its layers stay as they are and a linear head is fitted (``finetune(frozen=True)``): it
        takes less than a second, and what differs between models is what they know already.

        Args:
            name: of the model, for people.
            kind: name of the folder of its runs.
        """
        folder = self.out / "finetuning" / kind
        passages = [passage.text for passage in texts.passages("test")]
        answers: list[list[Prediction]] = []
        for number in range(1, self.recipe.draws + 1):
            with quiet():
                tuned = finetune(
                    "text",
                    model=model,
                    data=self.out / "passages" / f"draw-{number}",
                    out=folder / f"draw-{number}",
                    label_column="subject",
                    frozen=True,
                    seed=self.seed,
                    baselines=False,
                )
                predictor = Predictor.load(tuned.model)
            answers.append(list(predictor.predict(passages)))
        return LearnedSubjects(_scores(name, answers), answers[0], folder / "draw-1" / "model")

    def count_words(self) -> DemoScores:
        """Score logistic regression on tf-idf of words and characters, which reads nothing but
        the labelled passages, and say how many it gets right."""
        test = _examples("test", texts.passages("test"))
        task = TextClassification(texts.subjects())
        answers = []
        for number in range(self.recipe.draws):
            train = _examples("train", texts.draw(number, self.recipe.labels))
            answers.append(ngrams(task, train)(test))
        return _scores("tf-idf", answers)


def end_of(log: Sequence[LogRow]) -> dict[str, float]:
    """Read off a log how pre-training ended: loss and accuracy, means over the last lines."""
    keys = ("mlm_loss", "mlm_accuracy")
    return {key: statistics.fmean(line[key] for line in log[-_END_LINES:]) for key in keys}


def _examples(source: str, passages: list[texts.Passage]) -> Examples[Example]:
    items = [Example((passage.text,), passage.subject) for passage in passages]
    return Examples(source, ("text",), "subject", items)


def _scores(name: str, answers: list[list[Any]]) -> DemoScores:
    """Compare the answers of each training with the subjects, and say how many are right."""
    test = texts.passages("test")
    right = [
        [answer.label == passage.subject for answer, passage in zip(run, test, strict=True)]
        for run in answers
    ]
    scores = DemoScores(name, [passage.article for passage in test], right)
    say(scores.line(1 / len(texts.subjects())))
    return scores


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Say nothing for a while: what runs print is not what the demo is about."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before
