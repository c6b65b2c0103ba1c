"""``bertine demo``: from raw text to a model that answers, by the verbs that a user would call.

OUT/
  demo.json              what was done, and every figure
  report.html            the same for people
  model/                 the fine-tuned model that did best on the validation passages
  tokenizer/  store/     vocabulary; token store
  untrained/             the model before any training
  pretraining/           the runs of ``pretrain``, one for each sequence length
  passages/              train.csv, validation.csv, test.csv
  finetuning/            the runs of ``finetune``, with and without pre-training
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bertine
from bertine.argument_types import check_types
from bertine.console import console, say
from bertine.data.prepare import prepare
from bertine.demo import texts
from bertine.demo.examples import Answered, Filled, Masked, answer, fill, masked_from_books
from bertine.demo.page import demo_page
from bertine.demo.recipe import FAST, FULL, MASKED
from bertine.demo.result import DemoResult
from bertine.demo.runs import (
    end_of,
    finetune_repeatedly,
    plan_pretraining,
    pretrain_phases,
    say_lines,
)
from bertine.errors import BertineError
from bertine.files import atomic_dir, write_json
from bertine.option_names import option
from bertine.reports.html import render_report
from bertine.text.tokenizer import Tokenizer
from bertine.text.vocab import train_vocab

MARK = "demo.json"
#: What a demo makes, and so may replace.
_MADE = (
    *("report.html", "model", "tokenizer", "store", "untrained", "trial"),
    *("pretraining", "passages", "finetuning"),
)
#: Examples of each kind that the terminal shows; the report has all.
_SHOWN = 5


@dataclass
class _Stages:
    """Names the stages as they come, and times them."""

    total: int
    began: float = dataclasses.field(default_factory=time.monotonic)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        number = len(self.seconds) + 1
        console.print()
        console.print(f"{number}/{self.total}  {what}", style="bold", markup=False)
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began


@check_types
def run_demo(
    out: Path | str = Path("bertine-demo"),
    *,
    fast: bool = False,
    minutes: float | None = None,
    seed: int = 0,
) -> DemoResult:
    """Vocabulary, token store, pre-training, fine-tuning, answers and a report, on bundled books.

    Args:
        out: folder for all of it. What an earlier demo left there is replaced.
        fast: every stage, too short to learn much.
        minutes: for the whole demo; None: the recipe's. Pre-training is made as long as the
            machine's speed allows, up to the recipe's number of steps.
        seed: random seed.

    Raises:
        BertineError: `out` is a file, or holds something other than a demo.
    """
    recipe = FAST if fast else FULL
    if minutes is not None:
        recipe = dataclasses.replace(recipe, budget_seconds=60 * minutes)
    out = Path(out)
    _clear(out)
    write_json(out / MARK, {"bertine": bertine.__version__, "finished": False})
    stages, facts = _Stages(5), texts.facts()
    with texts.pretraining_corpus() as corpus:
        with stages.stage("vocabulary", "Vocabulary: the pieces that the text is made of"):
            say(
                f"{facts.documents} documents of {len(facts.titles('pre-training'))} "
                f"public-domain books, {facts.words:,} words, no labels"
            )
            vocabulary = train_vocab(corpus, out / "tokenizer", vocab_size=recipe.vocab_size)
            say_lines(vocabulary.lines())
        with stages.stage("store", "Token store: the text as numbers, ready for training"):
            store = prepare(corpus, tokenizer=out / "tokenizer", out=out / "store")
            say_lines(store.lines())
    tokenizer = Tokenizer.load(out / "tokenizer")
    with stages.stage("pre-training", "Pre-training: guess hidden words; does B follow A?"):
        texts.write_labelled(out / "passages", train_per_author=recipe.train_per_author)
        planned = plan_pretraining(out, recipe, tokenizer, stages.spent, seed)
        say_lines(planned.lines())
        say(f"the line to beat is the unigram entropy, {store.unigram_entropy:.3f} nats")
        pretrained, log = pretrain_phases(out, recipe, tokenizer, planned.steps, seed)
    with stages.stage("fine-tuning", "Fine-tuning: who wrote a passage?"):
        say(
            f"{len(facts.authors)} authors, {recipe.train_per_author} labelled passages of each; "
            f"{facts.passages['validation']:,} validation and {facts.passages['test']:,} test "
            "passages, all from different books"
        )
        with_it = finetune_repeatedly(
            out, pretrained.model, recipe, tokenizer, planned.repeats, seed
        )
        without = finetune_repeatedly(out, None, recipe, tokenizer, planned.repeats, seed)
        kept = with_it.scores.best
        tested = with_it.reports[kept]
        with atomic_dir(out / "model") as folder:
            shutil.copytree(with_it.models[kept], folder, dirs_exist_ok=True)
    with stages.stage("answers", "Answers: masks filled, passages judged, and the report"):
        masked = [
            *(Masked(text) for text in MASKED),
            *masked_from_books(tokenizer, len(MASKED), seed),
        ]
        filled = fill(pretrained.model, masked)
        answered = answer(out / "model", per_author=2)
        _say_examples(filled, answered)
    end, means = log[-1], end_of(pretrained)
    result = DemoResult(
        out=out,
        recipe=recipe,
        plan=planned,
        seed=seed,
        unigram_entropy=pretrained.unigram_entropy,
        mlm_loss=means["mlm_loss"],
        mlm_accuracy=means["mlm_accuracy"],
        nsp_accuracy=means["nsp_accuracy"],
        tokens=end["tokens"],
        tokens_per_second=end["tokens"] / max(end["elapsed"], 1e-9),
        majority=tested.majority_share,
        pretrained=with_it.scores,
        untrained=without.scores,
        seconds=stages.seconds,
    )
    page = demo_page(
        result,
        facts=facts,
        vocabulary=vocabulary,
        store=store,
        log=log,
        tested=tested,
        filled=filled,
        answered=answered,
    )
    render_report(result.report, page)
    write_json(
        out / MARK,
        {
            "bertine": bertine.__version__,
            "finished": True,
            "seed": seed,
            "recipe": dataclasses.asdict(recipe),
            "plan": dataclasses.asdict(planned),
            **result.to_dict(),
        },
    )
    console.print()
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
        made = out / name
        if made.is_dir():
            shutil.rmtree(made)
        else:
            made.unlink(missing_ok=True)


def _say_examples(filled: Sequence[Filled], answered: Sequence[Answered]) -> None:
    say("masks, filled by the pre-trained model:")
    for sentence in filled[:_SHOWN]:
        say("  " + sentence.line().replace("\n", "\n  "))
    say("test passages, judged by the fine-tuned model:")
    for passage in answered[:_SHOWN]:
        say("  " + passage.line().replace("\n", "\n  "))
