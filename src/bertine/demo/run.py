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
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bertine
from bertine.console import console, say
from bertine.data.prepare import prepare
from bertine.demo import texts
from bertine.demo.budget import Plan, Work, plan
from bertine.demo.examples import Answered, Filled, Masked, answer, fill, masked_from_books
from bertine.demo.page import demo_page
from bertine.demo.recipe import FAST, FULL, MASKED, Phase, Recipe
from bertine.demo.result import DemoResult, Scores
from bertine.errors import BertineError
from bertine.files import atomic_dir, write_json
from bertine.inference.predictor import evaluate
from bertine.modeldir import save_model
from bertine.models.heads import MlmHead, NspHead
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.presets import preset
from bertine.reports.html import render_report
from bertine.reports.log import read_log
from bertine.tasks.report import ClassificationReport
from bertine.text.tokenizer import Tokenizer
from bertine.text.vocab import train_vocab
from bertine.training.finetune import finetune
from bertine.training.pretrain import pretrain
from bertine.training.pretrain_result import PretrainResult

MARK = "demo.json"
#: What a demo makes, and so may replace.
_MADE = (
    *("report.html", "model", "tokenizer", "store", "untrained", "trial"),
    *("pretraining", "passages", "finetuning"),
)
#: Steps of the trial that measures the speed, and between lines of its log.
_TRIAL_STEPS, _TRIAL_LOG_EVERY = 40, 5
#: Lines that the log of pre-training is to have, about; its last figures are means over so many.
_LOG_LINES, _END_LINES = 150, 8
#: What is counted from the beginning of a phase, in its log.
_SUMS = {"step", "tokens", "elapsed"}
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
        seed: of all that is random.

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
            _say_lines(vocabulary.lines())
        with stages.stage("store", "Token store: the text as numbers, ready for training"):
            store = prepare(corpus, tokenizer=out / "tokenizer", out=out / "store")
            _say_lines(store.lines())
    tokenizer = Tokenizer.load(out / "tokenizer")
    with stages.stage("pre-training", "Pre-training: guess hidden words; does B follow A?"):
        texts.write_labelled(out / "passages", train_per_author=recipe.train_per_author)
        planned = _plan(out, recipe, tokenizer, stages.spent, seed)
        _say_lines(planned.lines())
        say(f"the line to beat is the unigram entropy, {store.unigram_entropy:.3f} nats")
        pretrained, log = _pretrain(out, recipe, tokenizer, planned.steps, seed)
    with stages.stage("fine-tuning", "Fine-tuning: who wrote a passage?"):
        say(
            f"{len(facts.authors)} authors, {recipe.train_per_author} labelled passages of each; "
            f"{facts.passages['validation']:,} validation and {facts.passages['test']:,} test "
            "passages, all from different books"
        )
        with_it = _finetune(out, pretrained.model, recipe, tokenizer, planned.repeats, seed)
        without = _finetune(out, None, recipe, tokenizer, planned.repeats, seed)
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
    end, means = log[-1], _end(pretrained)
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
        raise BertineError(f"{out}: is a file; choose another folder with --out")
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise BertineError(
            f"{out}: is not empty and was not made by 'bertine demo'; choose another folder "
            "with --out"
        )
    for name in _MADE:
        made = out / name
        if made.is_dir():
            shutil.rmtree(made)
        else:
            made.unlink(missing_ok=True)


def _untrained(out: Path, recipe: Recipe, tokenizer: Tokenizer, seed: int) -> Path:
    """A model directory with the random weights of `seed`, for both ways to begin with."""
    folder = out / "untrained" / f"seed-{seed}"
    if not folder.exists():
        config = preset(
            recipe.model,
            vocab_size=tokenizer.vocab_size,
            pad_token_id=tokenizer.pad_token_id,
            hidden_dropout_prob=recipe.dropout,
            attention_probs_dropout_prob=recipe.dropout,
            initializer_range=recipe.initializer_range,
        )
        with seeded(seed, "demo weights"):
            model = Model(config, {"mlm": MlmHead(config), "nsp": NspHead(config)})
        save_model(folder, model, tokenizer)
    return folder


def _pretrain(
    out: Path, recipe: Recipe, tokenizer: Tokenizer, steps: int, seed: int
) -> tuple[PretrainResult, list[dict[str, Any]]]:
    """All phases, each going on from the model of the one before.

    Returns the result of the last one, and the log of them all, counted through.
    """
    model = _untrained(out, recipe, tokenizer, seed)
    whole: list[dict[str, Any]] = []
    for number, phase in enumerate(recipe.phases, 1):
        folder = out / "pretraining" / f"length-{phase.max_seq_length}"
        say(f"phase {number} of {len(recipe.phases)}: sequences of {phase.max_seq_length} tokens")
        result = _run_phase(
            out,
            folder,
            phase,
            recipe,
            model,
            steps=max(1, round(phase.share * steps)),
            log_every=max(_TRIAL_LOG_EVERY, steps // _LOG_LINES),
            seed=seed,
        )
        begin = whole[-1] if whole else {"step": 0, "tokens": 0, "elapsed": 0.0}
        for line in read_log(folder / "log.jsonl"):
            whole.append(line | {key: line[key] + begin[key] for key in begin.keys() & _SUMS})
        _say_lines(result.lines())
        model = result.model
    return result, whole


def _end(pretrained: PretrainResult) -> dict[str, float]:
    """The figures at the end of pre-training: means over the last lines of the last phase, for
    one line holds too few pairs to tell an NSP accuracy."""
    lines = read_log(pretrained.model.parent / "log.jsonl")[-_END_LINES:]
    return {
        key: statistics.fmean(line[key] for line in lines)
        for key in ("mlm_loss", "mlm_accuracy", "nsp_accuracy")
    }


def _run_phase(
    out: Path,
    folder: Path,
    phase: Phase,
    recipe: Recipe,
    model: Path,
    *,
    steps: int,
    log_every: int,
    seed: int,
) -> PretrainResult:
    return pretrain(
        out / "store",
        model=model,
        out=folder,
        steps=steps,
        batch_size=phase.batch_size,
        max_seq_length=phase.max_seq_length,
        learning_rate=phase.learning_rate,
        warmup_ratio=recipe.warmup_ratio,
        adam_beta2=recipe.adam_beta2,
        seed=seed,
        checkpoint_every=None,
        log_every=log_every,
    )


def _plan(out: Path, recipe: Recipe, tokenizer: Tokenizer, spent: float, seed: int) -> Plan:
    """Measure the speed with the first steps of pre-training, then fit the recipe to the time."""
    started = time.monotonic()
    with _quiet():
        start = _untrained(out, recipe, tokenizer, seed)
        trial = _run_phase(
            out,
            out / "trial",
            recipe.phases[0],
            recipe,
            start,
            steps=_TRIAL_STEPS,
            log_every=_TRIAL_LOG_EVERY,
            seed=seed,
        )
    # The first line of the log holds the warm-up of the machine.
    log = read_log(out / "trial" / "log.jsonl")[1:]
    shutil.rmtree(out / "trial")
    texts_of = {
        split: tokenizer.encode_batch(
            [
                passage.text
                for passage in texts.passages(
                    split, per_author=recipe.train_per_author if split == "train" else None
                )
            ],
            max_length=recipe.max_length,
        )
        for split in texts.SPLITS
    }
    tokens = {
        split: sum(len(encoding.input_ids) for encoding in encoded)
        for split, encoded in texts_of.items()
    }
    return plan(
        Work(
            tokens_per_step=trial.final["tokens"] / _TRIAL_STEPS,
            trained_tokens=recipe.epochs * tokens["train"],
            evaluated_tokens=recipe.epochs * tokens["validation"] + tokens["test"],
        ),
        tokens_per_second=statistics.median(line["tokens_per_second"] for line in log),
        budget_seconds=recipe.budget_seconds,
        spent_seconds=spent + time.monotonic() - started,
        steps=recipe.steps,
        least_steps=recipe.least_steps,
        repeats=recipe.repeats,
    )


@dataclass(frozen=True)
class _Finetuned:
    """The runs of one kind: scores, and the model directory and test report of each."""

    scores: Scores
    models: list[Path]
    reports: list[ClassificationReport]


def _finetune(
    out: Path, base: Path | None, recipe: Recipe, tokenizer: Tokenizer, repeats: int, seed: int
) -> _Finetuned:
    """Fine-tune with seeds `seed`, `seed` + 1, …: the pre-trained model `base`, or (None) each
    time another untrained one. Score on the test passages."""
    kind = "without" if base is None else "with"
    name = f"{kind} pre-training"
    validation, models, reports = [], [], []
    for run in range(repeats):
        start = base or _untrained(out, recipe, tokenizer, seed + run)
        # The first run shows what a user sees; the others would only repeat it.
        with _quiet() if run else contextlib.nullcontext():
            tuned = finetune(
                "text",
                model=start,
                data=out / "passages",
                out=out / "finetuning" / f"{kind}-pretraining-{run + 1}",
                label_column="author",
                epochs=recipe.epochs,
                batch_size=recipe.finetune_batch_size,
                max_length=recipe.max_length,
                dropout=recipe.finetune_dropout,
                learning_rate=(
                    recipe.scratch_learning_rate if base is None else recipe.finetune_learning_rate
                ),
                seed=seed + run,
            )
            report = evaluate(tuned.model, out / "passages" / "test.csv", show_progress=False)
        assert isinstance(report, ClassificationReport)
        validation.append(float(tuned.scores[-1]["accuracy"]))
        models.append(tuned.model)
        reports.append(report)
        say(
            f"{name}, run {run + 1} of {repeats}: right on {validation[-1]:.1%} of the validation "
            f"passages, {report.metrics['accuracy']:.1%} of the test passages"
        )
    scores = Scores(
        name, validation, [r.metrics["accuracy"] for r in reports], reports[0].num_examples
    )
    return _Finetuned(scores, models, reports)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def _say_lines(lines: Sequence[str]) -> None:
    for line in lines:
        say(line)


def _say_examples(filled: Sequence[Filled], answered: Sequence[Answered]) -> None:
    say("masks, filled by the pre-trained model:")
    for sentence in filled[:_SHOWN]:
        say("  " + sentence.line().replace("\n", "\n  "))
    say("test passages, judged by the fine-tuned model:")
    for passage in answered[:_SHOWN]:
        say("  " + passage.line().replace("\n", "\n  "))
