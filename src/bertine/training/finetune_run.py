"""A prepared fine-tuning run, from its first step, or the one it is resumed at, to its model
directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bertine.console import say
from bertine.files import write_json
from bertine.inference.evaluate import add_metrics, evaluate_examples
from bertine.inference.losses import write_worst
from bertine.modeldir import save_model
from bertine.models.precision import resolve_precision
from bertine.reports.log import read_log
from bertine.tasks.base import Report
from bertine.training.best import Choice, load_best
from bertine.training.display import Display
from bertine.training.finetune_result import final_of
from bertine.training.finetune_setup import Part, Prepared
from bertine.training.fit import FitConfig, fit
from bertine.training.freezing import frozen
from bertine.training.run import Run
from bertine.training.world import World


@dataclass(frozen=True)
class Outcome:
    """What a run ended with; see :class:`~bertine.training.finetune_result.FinetuneResult`."""

    scores: list[dict[str, Any]]
    report: Report | None
    elapsed: float
    final: dict[str, float]


def found(run: Run, world: World, *, save_best: bool) -> Outcome:
    """What a run that is finished already ended with; its checkpoints are removed. `save_best` is
    what is asked for now."""

    def look() -> tuple[list[dict[str, Any]], float, dict[str, float]]:
        run.say_finished(save_best)
        run.remove_checkpoints()  # it may have been killed on the way
        # Of the model that is there: not the last scores where the best one was saved.
        return _scores(run), _elapsed(run), final_of(run.folder).get("metrics", {})

    scores, elapsed, final = world.alone(look)
    return Outcome(scores, None, elapsed, final)


def train(
    prepared: Prepared,
    config: FitConfig,
    run: Run,
    settings: dict[str, Any],
    *,
    save_best: bool,
    world: World,
    shard: bool,
) -> Outcome:
    """Train, judge the model on the validation examples after each epoch (where there are any),
    and write it as a model directory.

    Args:
        prepared: its model is trained in place.
        settings: of the run, for the reader of ``bertine.json``.
        save_best: write the weights of the best evaluation.
        world: the processes of the run, which all call this.
        shard: see :func:`~bertine.training.fit.fit`.

    Raises:
        BertineError: what `fit` raises; the model cannot be written.
    """
    task, model = prepared.task, prepared.loaded.model
    epoch, held = prepared.batches.steps_per_epoch, prepared.validation.features
    dtype = resolve_precision(config.precision, world.device)

    def write_extra_files() -> None:
        parts = (prepared.train, prepared.validation)
        extra = task.extra_files([(part.examples, part.features) for part in parts])
        for name, content in extra.items():
            if content:
                write_json(run.folder / name, content)

    world.alone(write_extra_files)
    reports: list[Report] = []

    def score_on(part: Part) -> Report:
        return evaluate_examples(
            model,
            task,
            part.examples,
            prepared.loaded.tokenizer,
            features=part.features,
            dtype=dtype,
        )

    def score() -> Report:
        report = score_on(prepared.validation)
        for word, part in prepared.others.items():
            add_metrics(report, word, score_on(part))
        return report

    def evaluate(display: Display, step: int) -> dict[str, float]:
        reports.append(score())
        scores = reports[-1].metrics
        display.note("validation: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()))
        return scores

    start = prepared.start
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

    def save() -> tuple[list[dict[str, Any]], float, dict[str, float]]:
        best = load_best(run.checkpoints, model) if save_best else None
        if best is not None:
            say(
                f"best on the validation examples: epoch {best.step // epoch}, {best.metric} "
                f"{best.value:.4f}"
            )
            if best.step != config.steps:
                reports.clear()
        # None was made where the run was resumed from a checkpoint of its last step.
        if held and not reports:
            reports.append(score())
        report = reports[-1] if reports else None
        scores = _scores(run)
        facts = {**settings, "elapsed": _elapsed(run), "scores": scores}
        told = {} if report is None else report.to_dict()
        step = config.steps if best is None else best.step
        write_json(run.folder / "scores.json", {"scores": scores, "step": step, "final": told})
        saved = task.finished(model, report)
        write_worst(
            run.folder,
            model,
            saved,
            prepared.validation.examples,
            prepared.loaded.tokenizer,
            features=held,
            dtype=dtype,
        )
        save_model(run.model, model, prepared.loaded.tokenizer, task=saved.task_info(facts))
        run.remove_checkpoints()
        return scores, _elapsed(run), {} if report is None else dict(report.metrics)

    scores, elapsed, final = world.alone(save)
    return Outcome(scores, reports[-1] if reports else None, elapsed, final)


def _scores(run: Run) -> list[dict[str, Any]]:
    """The evaluations in the run's log, those before a resume included."""
    found = []
    for entry in read_log(run.folder / "log.jsonl"):
        scores = {k.removeprefix("eval_"): v for k, v in entry.items() if k.startswith("eval_")}
        if scores:
            found.append({"step": entry["step"], **scores})
    return found


def _elapsed(run: Run) -> float:
    lines = [e for e in read_log(run.folder / "log.jsonl") if "elapsed" in e]
    return float(lines[-1]["elapsed"]) if lines else 0.0
