"""A prepared fine-tuning run, from its first step, or the one it is resumed at, to its model
directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bertine.files import write_json, write_text
from bertine.inference.evaluate import add_metrics, evaluate_examples
from bertine.inference.losses import write_worst
from bertine.modeldir import save_model
from bertine.models.precision import resolve_precision
from bertine.runs.log import read_log
from bertine.tasks.report import MAJORITY, ClassificationReport, EvaluationReport
from bertine.training.distributed.world import World
from bertine.training.finetuning.epoch_lines import EpochLines, saved_line
from bertine.training.finetuning.frozen_head import FittedHead, fit_head
from bertine.training.finetuning.head_alone import head_alone_instead
from bertine.training.finetuning.result import SAVED, final_of, saved_of
from bertine.training.finetuning.run_baselines import BASELINES, SCORES, baselines_of_run
from bertine.training.finetuning.setup import FeaturedExamples, Prepared
from bertine.training.loop.best import Choice, clearly_better, load_best, recorded_best
from bertine.training.loop.display import Display
from bertine.training.loop.fit import FitConfig, fit
from bertine.training.loop.freezing import frozen
from bertine.training.run import Run

#: What was seen in the examples.
DATA = "data.json"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run; see :class:`~bertine.training.finetuning.learner.Learner`."""

    scores: list[dict[str, Any]]
    report: EvaluationReport | None
    elapsed: float
    final: dict[str, float]
    saved: str


def found(run: Run, world: World, *, save_best: bool) -> Outcome:
    """Read what a run that had finished before ended with, and remove its checkpoints.

    `save_best`: as given in this call; a warning says so if the run saved other weights.
    """

    def look() -> tuple[list[dict[str, Any]], float, dict[str, float], str]:
        run.say_finished(save_best)
        run.remove_checkpoints()  # it may have been killed on the way
        # Of the model that is there: not the last scores where the best one was saved.
        final = final_of(run.folder).get("metrics", {})
        return _scores(run), _elapsed(run), final, saved_of(run.folder)

    scores, elapsed, final, saved = world.alone(look)
    return Outcome(scores, None, elapsed, final, saved)


def train(
    prepared: Prepared,
    config: FitConfig,
    run: Run,
    settings: dict[str, Any],
    *,
    save_best: bool | None,
    baselines: bool,
    world: World,
    shard: bool,
) -> Outcome:
    """Train, judge the model on the validation examples after each epoch (where there are any),
    and write it as a model directory.

    Args:
        prepared: its model is trained in place.
        settings: of the run, for the reader of ``bertine.json``.
        save_best: write the weights of the best evaluation; None: where it is better than the last
            one by more than chance.
        baselines: measure the task's baselines too, before training.
        world: the processes of the run, which all call this.
        shard: see :func:`~bertine.training.loop.fit.fit`.

    Raises:
        BertineError: what `fit` raises; the model cannot be written.
    """
    task, model = prepared.task, prepared.loaded.model
    epoch, held = prepared.batches.steps_per_epoch, prepared.validation.features
    dtype = resolve_precision(config.precision, world.device)

    def write_extra_files() -> None:
        parts = (prepared.train, prepared.validation)
        extra = task.extra_files([(part.examples, part.features) for part in parts])
        write_json(run.folder / DATA, prepared.look.to_dict())
        for name, content in extra.items():
            if content:
                write_json(run.folder / name, content)

    world.alone(write_extra_files)
    beside: list[dict[str, Any]] = []
    if baselines:
        beside = world.alone(lambda: baselines_of_run(prepared, run.folder, dtype))
    majority = task.majority(prepared.train.examples)
    reports: list[EvaluationReport] = []
    heads: list[FittedHead] = []

    def score(judged: Prepared) -> EvaluationReport:
        def score_on(part: FeaturedExamples) -> EvaluationReport:
            report = evaluate_examples(
                judged.loaded.model,
                judged.task,
                part.examples,
                judged.loaded.tokenizer,
                features=part.features,
                dtype=dtype,
            )
            if isinstance(report, ClassificationReport):
                report.training_majority = majority
            return report

        report = score_on(judged.validation)
        for word, part in judged.others.items():
            add_metrics(report, word, score_on(part))
        return report

    def score_once() -> EvaluationReport:
        reports.append(score(prepared))
        return reports[-1]

    epochs = EpochLines(
        prepared.metric_names, epoch=epoch, steps=config.steps, earlier=_scores(run)
    )

    def evaluate(display: Display, step: int) -> dict[str, float]:
        scores = score_once().metrics
        display.keep("validation", epochs.latest(step, scores))
        line = epochs.add(step, scores)
        if line is not None:
            display.note(line)
        return scores

    start = prepared.start
    if start.frozen:

        def fit_frozen() -> None:
            fitted = fit_head(prepared, dtype)
            heads.append(fitted)
            scores = {} if not held else score_once().metrics
            logged = {f"eval_{name}": value for name, value in scores.items()}
            entry = {"step": config.steps, "elapsed": fitted.seconds, **logged}
            write_text(run.folder / "log.jsonl", json.dumps(entry) + "\n")

        world.alone(fit_frozen)
    else:
        with frozen(model, layers=start.freeze_layers, embeddings=start.freeze_embeddings):
            fit(
                model,
                task,
                prepared.batches.batch,
                config,
                run,
                title="finetune",
                evaluate=evaluate if held else None,
                evaluate_every=epoch,
                # Also where it is not asked for yet: it may be when the run is resumed.
                choose=Choice(prepared.metric_names[0], highest=True),
                world=world,
                shard=shard,
            )

    def save() -> tuple[list[dict[str, Any]], float, dict[str, float], str]:
        count = len(prepared.validation.examples)
        best, known = None, recorded_best(run.checkpoints) if save_best is None else None
        if save_best or (save_best is None and _best_is_clear(run, count)):
            best = load_best(run.checkpoints, model)
        if best is not None and best.step != config.steps:
            reports.clear()
        # None was made where the run was resumed from a checkpoint of its last step.
        if held and not reports:
            reports.append(score(prepared))
        kept, instead = prepared, None
        if reports and world.size == 1:
            trained = reports[-1]
            instead = head_alone_instead(
                prepared, trained, beside, score, dtype=dtype, seed=config.seed
            )
            if instead is not None:
                kept, alone, fitted = instead
                reports.append(alone)
                heads.append(fitted)
        report = reports[-1] if reports else None
        scores = _scores(run)
        facts = {**settings, "elapsed": _elapsed(run), "scores": scores}
        facts["reading"] = prepared.reading.to_facts()
        if majority is not None:
            facts[MAJORITY] = majority
        final = {} if report is None else report.to_dict()
        step = config.steps if best is None else best.step
        saved_as = "saved: the head alone, on the encoder as it was before training"
        if instead is None and not start.frozen:
            saved_as = saved_line(
                best,
                known,
                scores[-1] if scores else None,
                epoch=epoch,
                steps=config.steps,
                asked=save_best is not None,
            )
        values = {"scores": scores, "step": step, "final": final, SAVED: saved_as}
        if instead is not None:
            facts["frozen"] = True
            values["instead_of"] = trained.metrics
        if heads and heads[-1].cross_validated:
            values["cross_validated"] = heads[-1].cross_validated
        write_json(run.folder / SCORES, values | ({BASELINES: beside} if beside else {}))
        saved = kept.task.finished(kept.loaded.model, report)
        write_worst(
            run.folder,
            kept.loaded.model,
            saved,
            prepared.validation.examples,
            prepared.loaded.tokenizer,
            features=held,
            dtype=dtype,
        )
        info = saved.task_info(facts)
        save_model(run.model, kept.loaded.model, kept.loaded.tokenizer, task=info)
        run.remove_checkpoints()
        return scores, _elapsed(run), {} if report is None else dict(report.metrics), saved_as

    scores, elapsed, final, saved_as = world.alone(save)
    return Outcome(scores, reports[-1] if reports else None, elapsed, final, saved_as)


def _best_is_clear(run: Run, count: int) -> bool:
    """Tell whether the best evaluation, on `count` examples, is better than the last one by more
    than chance."""
    best, scores = recorded_best(run.checkpoints), _scores(run)
    if best is None or not scores:
        return False
    return clearly_better(best.metric, best.value, scores[-1].get(best.metric, 0.0), count)


def _scores(run: Run) -> list[dict[str, Any]]:
    """Return the evaluations in the run's log, those before a resume included."""
    evaluations = []
    for entry in read_log(run.folder / "log.jsonl"):
        scores = {k.removeprefix("eval_"): v for k, v in entry.items() if k.startswith("eval_")}
        if scores:
            evaluations.append({"step": entry["step"], **scores})
    return evaluations


def _elapsed(run: Run) -> float:
    lines = [e for e in read_log(run.folder / "log.jsonl") if "elapsed" in e]
    return float(lines[-1]["elapsed"]) if lines else 0.0
