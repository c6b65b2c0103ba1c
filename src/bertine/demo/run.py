"""Run ``bertine demo``: show what pre-training is worth, and how it is done.

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
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.bundled import bundled_folder
from bertine.data.preparation.prepare import prepare
from bertine.demo import texts
from bertine.demo.examples import (
    FilledSentence,
    MaskedSentence,
    fill,
    first_answers,
    masked_from_articles,
)
from bertine.demo.page import demo_page
from bertine.demo.recipe import BUNDLED_MODEL, BUNDLED_TIME, FAST, FULL, LAYERS, MASKED
from bertine.demo.result import DemoResult, spoken_time
from bertine.demo.runs import DemoRuns, end_of, quiet
from bertine.errors import BertineError
from bertine.files import atomic_dir, write_json
from bertine.options.names import option
from bertine.options.types import check_types
from bertine.terminal.console import human_time, say
from bertine.text.tokenizer import Tokenizer
from bertine.text.vocab import train_vocab
from bertine.version import __version__

MARK = "demo.json"
#: What a demo makes, and so may replace; and what one of earlier versions made.
_MADE = (
    *("report.html", "model", "tokenizer", "store", "untrained", "trial"),
    *("pretraining", "passages", "finetuning"),
)
#: Examples of each kind that the terminal shows; the report has all.
_SHOWN = 6
#: Set aside for what comes after pre-training: so many seconds, and so many times what the first
#: stage took, since two more models learn the subjects then.
_AFTER, _AFTER_EACH = 14.0, 2.0


@dataclass
class _Stages:
    """The stages of a demo, named as they come, and timed."""

    total: int
    began: float = dataclasses.field(default_factory=time.monotonic)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        """Print what a stage is about, and time the block."""
        number = len(self.seconds) + 1
        say(f"\n{number}/{self.total}  {what}")
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
    """Show the bundled model a few labels, pre-train another one, compare, and write a report.

    Args:
        out: folder for all of it. What an earlier demo left there is replaced.
        fast: every stage, too short to learn much.
        minutes: for the whole demo; None: the recipe's. Pre-training gets what the other stages
            leave of it, and at least the recipe's `least_seconds`.
        seed: random seed.

    Raises:
        BertineError: `out` is a file, or holds something other than a demo.
    """
    recipe = FAST if fast else FULL
    if minutes is not None:
        recipe = dataclasses.replace(recipe, budget_seconds=60 * minutes)
    out = Path(out)
    _clear(out)
    write_json(out / MARK, {"bertine": __version__, "finished": False})
    stages, runs = _Stages(5), DemoRuns(out, recipe, seed)
    counts, model = texts.count_texts(), bundled_folder(BUNDLED_MODEL)
    with stages.stage(
        "labels", f"A few labels for {BUNDLED_MODEL}, which has read for {BUNDLED_TIME}"
    ):
        labelled = recipe.labels * len(counts.subjects)
        say(
            f"what is a passage about? {labelled} labelled passages are all it is shown, "
            f"{recipe.labels} of each subject: {'; '.join(counts.subjects)}"
        )
        runs.write_labelled()
        name = f"{BUNDLED_MODEL}, {BUNDLED_TIME}"
        bundled = runs.learn_subjects(name, model, kind="bundled")
        with atomic_dir(out / "model") as folder:
            shutil.copytree(bundled.model, folder, dirs_exist_ok=True)
        for answer in first_answers(bundled.answers, 2)[:_SHOWN]:
            say("  " + answer.line().replace("\n", "\n  "))
    with (
        texts.articles_corpus() as corpus,
        stages.stage("text", "Text for a new model: a vocabulary, and the text as numbers"),
    ):
        say(f"{counts.articles:,} articles of Wikipedia, {counts.words:,} words, no labels")
        vocabulary = train_vocab(corpus, out / "tokenizer", vocab_size=recipe.vocab_size)
        with quiet():
            store = prepare(corpus, tokenizer=out / "tokenizer", out=out / "store")
        say(
            f"{vocabulary.size:,} pieces of words; the text is "
            f"{store.manifest['num_tokens']:,} of them"
        )
    tokenizer = Tokenizer.load(out / "tokenizer")
    after = _AFTER + _AFTER_EACH * stages.seconds["labels"]
    left = max(recipe.least_seconds, recipe.budget_seconds - stages.spent - after)
    with stages.stage("pre-training", "Pre-training: a new model guesses hidden words"):
        say(
            f"{LAYERS['num_hidden_layers']} layers of {LAYERS['hidden_size']}; it begins with "
            f"random weights and reads for {human_time(left)}"
        )
        start = runs.untrained_model(tokenizer)
        pretrained, log = runs.pretrain(start, left)
        end, means = log[-1], end_of(log)
        say(f"by now it guesses {means['mlm_accuracy']:.0%} of the hidden words right")
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
    say("")
    return result


def _clear(out: Path) -> None:
    """Make `out`, without what an earlier demo made in it."""
    if out.exists() and not out.is_dir():
        raise BertineError(f"{out}: is a file; choose another folder with {option('out')}")
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise BertineError(
            f"{out}: is not empty and was not made by 'bertine demo'; choose another folder "
            f"with {option('out')}"
        )
    for name in _MADE:
        if (out / name).is_dir():
            shutil.rmtree(out / name)
        else:
            (out / name).unlink(missing_ok=True)


def _say_masks(bundled: Sequence[FilledSentence], new: Sequence[FilledSentence]) -> None:
    for old, other in list(zip(bundled, new, strict=True))[:_SHOWN]:
        say(old.masked.text)
        say(f"    {BUNDLED_MODEL}: {old.line()}")
        say(f"    new model: {other.line()}")
