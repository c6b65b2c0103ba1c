"""Run ``bertine demo``: pre-train a model, fine-tune three, compare, and write a report.

OUT/
  demo.json              what was done, and every figure
  report.html            the same for people
  model/                 bertine-en, which has learned the subjects
  passages/              test.csv; draw-N/train.csv and validation.csv
  tokenizer/  store/     vocabulary; token store
  untrained/             the model before pre-training
  pretraining/           the run of ``pretrain``
  finetuning/            the runs of ``finetune``: bundled, pretrained, untrained
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.contrib.demo import texts
from bertine.contrib.demo.result import (
    DemoResult,
    FilledSentence,
    MaskedSentence,
    demo_page,
    fill,
    first_answers,
    masked_from_articles,
    spoken_time,
)
from bertine.contrib.demo.texts import (
    BUNDLED_MODEL,
    FAST,
    FULL,
    LAYERS,
    MASKED,
    TEACHER,
    DemoRecipe,
    DemoScores,
)
from bertine.core.console import console, human_time, logger
from bertine.core.files import atomic_dir, write_json, write_text
from bertine.core.model_folders import bundled_folder
from bertine.core.names import __version__
from bertine.corpora.prepare import prepare
from bertine.data.examples import Example, Examples
from bertine.families.bert import BertConfig, mimic_trained_attention
from bertine.hub.model_directory import save_model
from bertine.inference.baselines.texts import ngrams
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.models.precision import seeded
from bertine.objectives import objective
from bertine.options.verbs import check_types
from bertine.reports.run_files import LogRow, pretraining_names, read_log
from bertine.tasks.classification import Prediction, TextClassification
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.vocab import train_vocab
from bertine.training.finetuning.finetune import finetune
from bertine.training.job_folder import JobFolder
from bertine.training.pretraining.pretrain import pretrain
from bertine.training.pretraining.result import PretrainResult

# Training runs: pre-training for as long as the time allows, and learning the subjects from a few
# labels with each of the models.

#: The last figures of pre-training are means over this number of lines of its log.
_END_LINES = 8


@dataclass(frozen=True)
class LearnedSubjects:
    """The result of training on the labelled passages: the scores, the answers of the first
    training to the test passages, and the model directory of that training."""

    scores: DemoScores
    answers: list[Prediction]
    model: Path


@dataclass(frozen=True)
class DemoRuns:
    """The training runs of a demo.

    Attributes:
        out: the demo's folder.
        recipe: the sizes and rates of the demo.
        seed: the random seed.
    """

    out: Path
    recipe: DemoRecipe
    seed: int

    def write_labelled(self) -> None:
        """Write the labelled passages: ``test.csv``, the licence and, for each draw,
        ``draw-N/train.csv`` with the training passages and ``draw-N/validation.csv``, which is the
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
        """Write a model directory with the initial weights of pre-training: random, except that
        attention is arranged as in trained models."""
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
        """Pre-train `model` on the store for `seconds` seconds; return also the log, with the names
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
        """Train `model` on each draw of labelled passages, answer the test passages, and report the
        accuracy.

        Its layers are frozen and a linear head is fitted (``finetune(frozen=True)``): it takes less
        than a second, and models differ only by their pre-training.

        Args:
            name: the name of the model, for people.
            kind: the name of the folder of its runs.
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
        """Fit logistic regression on tf-idf of words and characters, on the labelled passages
        alone, and report the accuracy."""
        test = _examples("test", texts.passages("test"))
        task = TextClassification(texts.subjects())
        answers = []
        for number in range(self.recipe.draws):
            train = _examples("train", texts.draw(number, self.recipe.labels))
            answers.append(ngrams(task, train)(test))
        return _scores("tf-idf", answers)


def end_of(log: Sequence[LogRow]) -> dict[str, float]:
    """Return the loss and accuracy at the end of pre-training, means over the last lines of a
    log."""
    keys = ("mlm_loss", "mlm_accuracy")
    return {key: statistics.fmean(line[key] for line in log[-_END_LINES:]) for key in keys}


def _examples(source: str, passages: list[texts.Passage]) -> Examples[Example]:
    items = [Example((passage.text,), passage.subject) for passage in passages]
    return Examples(source, ("text",), "subject", items)


def _scores(name: str, answers: list[list[Any]]) -> DemoScores:
    """Compare the answers of each training with the subjects, and report the accuracy."""
    test = texts.passages("test")
    right = [
        [answer.label == passage.subject for answer, passage in zip(run, test, strict=True)]
        for run in answers
    ]
    scores = DemoScores(name, [passage.article for passage in test], right)
    logger.info(scores.line(1 / len(texts.subjects())))
    return scores


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the output of the runs, which is not the topic of the demo."""
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


MARK = "demo.json"
#: A demo replaces the files of an earlier one; "trial" was made by an earlier version.
_JOB = JobFolder(
    "demo",
    MARK,
    replaces=(
        *("report.html", "model", "tokenizer", "store", "untrained", "trial"),
        *("pretraining", "passages", "finetuning"),
    ),
)
#: Examples of each kind that the terminal shows; the report has all.
_SHOWN = 6
#: Time reserved for the stages after pre-training: a number of seconds, and a multiple of the first
#: stage's time, since two more models learn the subjects then.
_AFTER, _AFTER_EACH = 14.0, 2.0


@dataclass
class _Stages:
    """The stages of a demo, announced as they begin, and timed."""

    total: int
    began: float = dataclasses.field(default_factory=time.monotonic)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        """Print the description of a stage, and time the block."""
        number = len(self.seconds) + 1
        logger.info(f"\n{number}/{self.total}  {what}")
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    @property
    def spent(self) -> float:
        """The seconds since the demo began."""
        return time.monotonic() - self.began


@check_types
def run_demo(
    out: Path | str = Path("bertine-demo"),
    *,
    fast: bool = False,
    minutes: float | None = None,
    seed: int = 0,
) -> DemoResult:
    """Train the bundled model on a few labels, pre-train another one, compare, and write a report.

    Args:
        out: the folder for all files. Those of an earlier demo are replaced.
        fast: run every stage, too short to learn much.
        minutes: the time of the whole demo; None: the recipe's. Pre-training gets the rest after
            the other stages, and at least the recipe's `least_seconds`.
        seed: random seed.

    Raises:
        BertineError: `out` is a file, or holds something other than a demo.
    """
    recipe = FAST if fast else FULL
    if minutes is not None:
        recipe = dataclasses.replace(recipe, budget_seconds=60 * minutes)
    more = {"bertine": __version__, "finished": False}
    with _JOB.open(out, {"seed": seed}, resume=True, more=more):
        return _run(Path(out), recipe, seed)


def _run(out: Path, recipe: DemoRecipe, seed: int) -> DemoResult:
    stages, runs = _Stages(5), DemoRuns(out, recipe, seed)
    counts, model = texts.count_texts(), bundled_folder(BUNDLED_MODEL)
    with stages.stage("labels", f"A few labels for {BUNDLED_MODEL}, a student of {TEACHER}"):
        labelled = recipe.labels * len(counts.subjects)
        logger.info(
            f"what is a passage about? {labelled} labelled passages are all it is shown, "
            f"{recipe.labels} of each subject: {'; '.join(counts.subjects)}"
        )
        runs.write_labelled()
        bundled = runs.learn_subjects(BUNDLED_MODEL, model, kind="bundled")
        with atomic_dir(out / "model") as folder:
            shutil.copytree(bundled.model, folder, dirs_exist_ok=True)
        for answer in first_answers(bundled.answers, 2)[:_SHOWN]:
            logger.info("  " + answer.line().replace("\n", "\n  "))
    with (
        texts.articles_corpus() as corpus,
        stages.stage("text", "Text for a new model: a vocabulary, and the text as numbers"),
    ):
        logger.info(f"{counts.articles:,} articles of Wikipedia, {counts.words:,} words, no labels")
        vocabulary = train_vocab(corpus, out / "tokenizer", vocab_size=recipe.vocab_size)
        with quiet():
            store = prepare(corpus, tokenizer=out / "tokenizer", out=out / "store")
        logger.info(
            f"{vocabulary.size:,} pieces of words; the text is "
            f"{store.manifest['num_tokens']:,} of them"
        )
    tokenizer = Tokenizer.load(out / "tokenizer")
    after = _AFTER + _AFTER_EACH * stages.seconds["labels"]
    left = max(recipe.least_seconds, recipe.budget_seconds - stages.spent - after)
    with stages.stage("pre-training", "Pre-training: a new model guesses hidden words"):
        logger.info(
            f"{LAYERS['num_hidden_layers']} layers of {LAYERS['hidden_size']}; it begins with "
            f"random weights and reads for {human_time(left)}"
        )
        start = runs.untrained_model(tokenizer)
        pretrained, log = runs.pretrain(start, left)
        end, means = log[-1], end_of(log)
        logger.info(f"by now it guesses {means['mlm_accuracy']:.0%} of the hidden words right")
    with stages.stage("comparison", "The same labels for each: how much does pre-training help?"):
        untrained = runs.learn_subjects("random weights", start, kind="untrained")
        name = f"new model, {spoken_time(end['elapsed'])}"
        new = runs.learn_subjects(name, pretrained.model, kind="pretrained")
        tf_idf = runs.count_words()
    with stages.stage("answers", "Hidden words, and the report"):
        tokenizers = [tokenizer, Tokenizer.load(model)]
        masked = [
            *(MaskedSentence(text.format(tokenizer.mask_text)) for text in MASKED),
            *masked_from_articles(tokenizers, len(MASKED), seed),
        ]
        filled = fill(model, masked), fill(pretrained.model, masked)
        _say_masks(*filled)
        result = DemoResult(
            out=out,
            recipe=recipe,
            seed=seed,
            subjects=counts.subjects,
            bundled=bundled.scores,
            pretrained=new.scores,
            untrained=untrained.scores,
            tf_idf=tf_idf,
            unigram_entropy=pretrained.unigram_entropy,
            mlm_loss=means["mlm_loss"],
            mlm_accuracy=means["mlm_accuracy"],
            tokens=end["tokens"],
            reading_seconds=end["elapsed"],
            seconds=stages.seconds,
        )
    page = demo_page(
        result,
        counts=counts,
        vocabulary=vocabulary,
        store=store,
        log=log,
        answers=[first_answers(learned.answers, 2) for learned in (untrained, new, bundled)],
        filled=filled,
    )
    page.write(result.report)
    write_json(
        out / MARK,
        {
            "bertine": __version__,
            "finished": True,
            "seed": seed,
            "recipe": dataclasses.asdict(recipe),
            **result.to_dict(),
        },
    )
    logger.info("")
    return result


def _say_masks(bundled: Sequence[FilledSentence], new: Sequence[FilledSentence]) -> None:
    for old, other in list(zip(bundled, new, strict=True))[:_SHOWN]:
        logger.info(old.masked.text)
        logger.info(f"    {BUNDLED_MODEL}: {old.line()}")
        logger.info(f"    new model: {other.line()}")
