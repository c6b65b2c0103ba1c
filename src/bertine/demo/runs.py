"""The training runs of the demo: pre-training in phases, for as long as the time allows, and
fine-tuning with and without it."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.console import console, say
from bertine.demo import texts
from bertine.demo.budget import Plan, Work, plan
from bertine.demo.recipe import Phase, Recipe
from bertine.demo.result import Scores
from bertine.inference.predictor import evaluate
from bertine.modeldir import save_model
from bertine.models.heads import MlmHead, NspHead
from bertine.models.model import Model
from bertine.models.seeding import seeded
from bertine.presets import preset
from bertine.reports.log import read_log
from bertine.tasks.report import ClassificationReport
from bertine.text.tokenizer import Tokenizer
from bertine.training.finetune import finetune
from bertine.training.pretrain import pretrain
from bertine.training.pretrain_result import PretrainResult

#: Steps of the trial that measures the speed, and between lines of its log.
_TRIAL_STEPS, _TRIAL_LOG_EVERY = 40, 5
#: Lines that the log of pre-training is to have, about; its last figures are means over so many.
_LOG_LINES, _END_LINES = 150, 8
#: What is counted from the beginning of a phase, in its log.
_SUMS = {"step", "tokens", "elapsed"}


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


def pretrain_phases(
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
        say_lines(result.lines())
        model = result.model
    return result, whole


def end_of(pretrained: PretrainResult) -> dict[str, float]:
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


def plan_pretraining(
    out: Path, recipe: Recipe, tokenizer: Tokenizer, spent: float, seed: int
) -> Plan:
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
class Finetuned:
    """The runs of one kind: scores, and the model directory and test report of each."""

    scores: Scores
    models: list[Path]
    reports: list[ClassificationReport]


def finetune_repeatedly(
    out: Path, base: Path | None, recipe: Recipe, tokenizer: Tokenizer, repeats: int, seed: int
) -> Finetuned:
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
                save_best=False,
                seed=seed + run,
                baselines=False,
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
    return Finetuned(scores, models, reports)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def say_lines(lines: Sequence[str]) -> None:
    for line in lines:
        say(line)
