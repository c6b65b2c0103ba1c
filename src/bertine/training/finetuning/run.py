"""Train a prepared fine-tuning run, choose the weights to save, and write its model directory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from bertine.core.console import human_time, logger
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object, write_json, write_text
from bertine.core.scores import clearly_better, score_name, score_text
from bertine.data.examples import ROWS, row_numbers, rows_as_facts
from bertine.hub.model_directory import only_here, save_model
from bertine.inference.baselines.measure import measure_baselines
from bertine.inference.baselines.texts import FrozenEncoder, pooling_of
from bertine.inference.compute import run_features
from bertine.inference.evaluate import add_metrics, evaluate_examples, write_worst
from bertine.inference.explaining.explain import TOKENS, write_explained
from bertine.inference.explaining.explainer import Explainer
from bertine.inference.predictor import Pipeline
from bertine.models.heads import PAIR_CLASSIFIER
from bertine.models.precision import resolve_precision
from bertine.options.data import DEFAULTS
from bertine.reports.run_files import DATA, read_log
from bertine.tasks.base import Task
from bertine.tasks.calibration import (
    Calibration,
    Conformal,
    Decisions,
    calibrate,
    divided_by_others,
)
from bertine.tasks.drift import Reader, Reference
from bertine.tasks.familiarity import Familiarity, WithVectors
from bertine.tasks.report import (
    HEAD_ALONE,
    MAJORITY,
    BaselineScore,
    ClassificationReport,
    EvaluationReport,
)
from bertine.tasks.span_windows import unaligned_answers
from bertine.training.checkpoint import Best, Choice, checkpoints, load_best, recorded_best
from bertine.training.contrastive import strengths_after, train_encoder
from bertine.training.display import Display
from bertine.training.distributed import DistContext
from bertine.training.finetuning.learner import (
    SAVED,
    SEEN,
    Learner,
    Provenance,
    final_of,
    saved_of,
)
from bertine.training.finetuning.linear_probe import LinearProbe, fit_linear_probe, probe_fallback
from bertine.training.finetuning.setup import Prepared
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run
from bertine.training.step import frozen

# Evaluations: print them during a fine-tuning run, and describe which one is saved.
#
# All scores of all epochs are in the log and on the run's page. In the terminal an epoch has a line
# if it is the best so far or the last one; the progress line shows the latest score.


class EpochLines:
    """The evaluations of a run, collected one by one.

    Args:
        judged: the metrics by which the task is judged; the first decides which is the best.
        epoch: steps of an epoch.
        steps: of the whole run.
        earlier: the evaluations before the run was resumed, each with its ``step``.
    """

    def __init__(
        self,
        judged: Sequence[str],
        *,
        epoch: int,
        steps: int,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._judged, self._epoch, self._steps = tuple(judged), epoch, steps
        self._choice = Choice(judged[0], highest=True)
        self._best: Best | None = None
        for scores in earlier:
            self._best = self._choice.better(self._best, int(scores["step"]), scores)

    def add(self, step: int, scores: Mapping[str, float]) -> str | None:
        """Add the evaluation after `step` steps.

        Returns:
            Its line, if it is the best so far or that of the last epoch; else None.
        """
        self._best = self._choice.better(self._best, step, scores)
        is_best = self._best is not None and self._best.step == step
        if not is_best and step < self._steps:
            return None
        number = f"{epoch_of(step, self._epoch)} of {epoch_of(self._steps, self._epoch)}"
        names = [*self._judged, *(["loss"] if "loss" not in self._judged else [])]
        shown = ", ".join(_scored(name, scores[name], scores) for name in names if name in scores)
        if step < self._steps:
            shown += " (the best so far)"
        elif self._best is not None and not is_best:
            best = score_text(self._best.metric, self._best.value)
            shown += f" (the best was epoch {epoch_of(self._best.step, self._epoch)} with {best})"
        return f"validation after epoch {number}: {shown}"

    def latest(self, step: int, scores: Mapping[str, float]) -> str:
        """Return the first score after `step` steps, for the progress line: "accuracy 74% (epoch
        3)"."""
        name = self._judged[0]
        if name not in scores:
            return "-"
        return f"{_scored(name, scores[name], scores)} (epoch {epoch_of(step, self._epoch)})"


def epoch_of(step: int, epoch: int) -> int:
    """Return the number of the epoch (counted from 1) that `step` ends or is in."""
    return -(-step // epoch)


def saved_line(
    taken: Best | None,
    best: Best | None,
    last: Mapping[str, Any] | None,
    *,
    epoch: int,
    steps: int,
    asked: bool,
) -> str:
    """Describe which epoch's weights are saved.

    Args:
        taken: the evaluation whose weights are saved; None: those of the last step.
        best: the best evaluation; None: there was none.
        last: the last evaluation, with its ``step``; None: there was none.
        epoch: steps of an epoch.
        steps: of the whole run, for one without evaluations.
        asked: whether the user has chosen between the best and the last epoch.
    """
    ended = steps if last is None else int(last["step"])
    if taken is None or taken.step == ended:
        line = f"saved: the last epoch ({epoch_of(ended, epoch)})"
        if taken is not None:
            return f"{line}, the best on the validation examples"
        higher = best is not None and (last is None or best.value != last.get(best.metric))
        if not asked and best is not None and best.step != ended and higher:
            line += f"; epoch {epoch_of(best.step, epoch)} was better by no more than chance"
        return line
    scores = score_text(taken.metric, taken.value)
    if last is not None and taken.metric in last:
        scores = (
            f"{score_name(taken.metric)} {scores}, after the last "
            f"{score_text(taken.metric, last[taken.metric])}"
        )
    why = "the best" if asked else "better than the last by more than chance"
    return (
        f"saved: epoch {epoch_of(taken.step, epoch)} of {epoch_of(ended, epoch)}, {why} on the "
        f"validation examples ({scores})"
    )


def _scored(name: str, value: float, others: Mapping[str, float]) -> str:
    """Return a score after its name, in the form that distinguishes it from the others in
    `others`."""
    return f"{score_name(name, others)} {score_text(name, value)}"


# Baselines: measured once, before training, and kept in the folder of the run.

#: The file of a run's scores; the baselines are stored under this key.
SCORES = "scores.json"
BASELINES = "baselines"


def baselines_of_run(prepared: Prepared, folder: Path, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return the baselines of a run, before it trains or resumes, as JSON values.

    They are fitted on the training examples, and judged on the validation examples, if there are
    any. For a run that was stopped, measured ones are read from its `folder`.

    Args:
        prepared: its model still has the weights that the run started from.
        folder: of the run; ``scores.json`` in it holds the baselines during the run.
        dtype: of the computation of the model's vectors.
    """
    file = folder / SCORES
    if file.is_file():
        return [score.to_dict() for score in kept_baselines(folder)]
    if not prepared.held:
        return []
    loaded = prepared.loaded
    encoder = None
    if not prepared.options.fresh_weights:  # the vectors of random weights carry no information
        pooling, longest = pooling_of(prepared.model), prepared.task.max_length
        encoder = FrozenEncoder(loaded.model, loaded.tokenizer, longest, pooling, dtype)
    sets = {"": prepared.data.validation}
    sets |= {word: prepared.data.others[word] for word in prepared.others}
    measured = measure_baselines(prepared.task, prepared.data.train, sets, encoder)
    if measured:
        logger.info(_measured_line(measured, prepared.metric_names))
    values = [score.to_dict() for score in measured]
    write_json(file, {BASELINES: values})
    return values


def _measured_line(measured: Sequence[BaselineScore], names: Sequence[str]) -> str:
    """Return the baselines by the metrics of the task: "baselines (accuracy): majority 38.00%,
    …"."""

    def scores(score: BaselineScore) -> str:
        return " and ".join(score_text(name, score.metrics[name]) for name in names)

    shown = ", ".join(f"{score.name} {scores(score)}" for score in measured)
    seconds = sum(score.seconds for score in measured)
    return f"baselines ({' and '.join(map(score_name, names))}): {shown}; {human_time(seconds)}"


def kept_baselines(folder: Path) -> tuple[BaselineScore, ...]:
    """Return the baselines in the ``scores.json`` of the run in `folder`; an empty tuple if it has
    none.

    Raises:
        BertineError: the file is damaged.
    """
    file = folder / SCORES
    if not file.is_file():
        return ()
    try:
        values = read_json_object(file, lenient=True).get(BASELINES, [])
        return tuple(BaselineScore.from_dict(value) for value in values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BertineError(f"{file}: damaged ({error!r}); remove it or train again") from error


# The run: train, or read what a finished run has written.


def read_learner(prepared: Prepared, config: FitConfig, run: Run, world: DistContext) -> Learner:
    """Read the results of a run that had finished before, and remove its checkpoints; print a
    warning if it saved other weights than are asked for now."""

    def read() -> dict[str, Any]:
        run.say_finished(bool(prepared.options.save_best))
        run.remove_checkpoints()  # the run may have been killed before it removed them
        return ended(run.folder)

    return _learner(prepared, config, run, world, None, world.alone(read))


def ended(folder: Path) -> dict[str, Any]:
    """Return fields of the result of the finished run in `folder`, as JSON values."""
    # The scores of the saved model, which are not the last ones if the best model was saved.
    final, saved = final_of(folder).get("metrics", {}), saved_of(folder)
    elapsed = _elapsed(folder)
    return {"scores": _scores(folder), "elapsed": elapsed, "final": final, "saved": saved}


def _learner(
    prepared: Prepared,
    config: FitConfig,
    run: Run,
    world: DistContext,
    report: EvaluationReport | None,
    others: Mapping[str, Any],
) -> Learner:
    """Return the result of a run; `others` are some of its fields."""
    data = prepared.data
    in_memory = data.source is None or prepared.growth is not None
    return Learner(
        run.model,
        report=report,
        metric_names=prepared.metric_names,
        baselines=kept_baselines(run.folder),
        origin=Provenance(
            task=data.task or data.task_class.name,
            data=data if in_memory else data.source,
            config=DEFAULTS if in_memory else data.config,
            fingerprint=data.validation.fingerprint(),
            train_fingerprint=data.train.fingerprint(),
            device=str(world.device),
            precision=config.precision,  # as in the evaluation: inference might choose 8 bits
        ),
        **others,
    )


def train(
    prepared: Prepared,
    config: FitConfig,
    run: Run,
    settings: dict[str, Any],
    world: DistContext,
) -> Learner:
    """Train, evaluate on the validation examples after each epoch (if there are any), and write a
    model directory.

    Args:
        prepared: its model is trained in place.
        settings: of the run, recorded in ``bertine.json``.
        world: the processes of the run, which all call this.

    Raises:
        BertineError: what `fit` raises; the model cannot be written.
    """
    world.alone(lambda: _write_data_files(prepared, run.folder))
    dtype = resolve_precision(config.precision, world.device)
    baselines: list[dict[str, Any]] = []
    if prepared.options.baselines:
        baselines = world.alone(lambda: baselines_of_run(prepared, run.folder, dtype))
    finetuning = _Finetuning(prepared, config, run, world, dtype, baselines)
    if prepared.options.frozen:
        world.alone(finetuning.fit_head_alone)
    else:
        finetuning.fit()
    world.alone(lambda: finetuning.save(settings))
    result = world.alone(lambda: ended(run.folder))
    return _learner(prepared, config, run, world, finetuning.report, result)


def _write_data_files(prepared: Prepared, folder: Path) -> None:
    """Write the statistics of the examples into the `folder` of a run."""
    write_json(folder / DATA, prepared.look.to_dict())
    data = prepared.data
    answers = unaligned_answers(data.train, prepared.features)
    answers += unaligned_answers(data.validation, prepared.held)
    if answers:
        write_json(folder / "not_aligned.json", answers)


@dataclass(eq=False)
class _Finetuning:
    """A run of :func:`train`, from its first step (or the step where it is resumed) to its end.

    Attributes:
        report: the latest evaluation on the validation examples; in the first process only.
        head: the result of fitting the head, if the latest evaluation is that of a head fitted
            alone.
    """

    prepared: Prepared
    config: FitConfig
    run: Run
    world: DistContext
    dtype: torch.dtype
    baselines: list[dict[str, Any]]

    def __post_init__(self) -> None:
        prepared = self.prepared
        self.steps_per_epoch = prepared.batches.steps_per_epoch
        self.held = prepared.held
        train = prepared.data.train
        # With a teacher's answers in place of labels, there is no most frequent label.
        some = any(item.label is not None for item in train.items)
        constant = prepared.task.constant(train, prepared.features) if some else (None,)
        self.majority = constant[0]
        self.report: EvaluationReport | None = None
        self.head: LinearProbe | None = None
        self.lines = EpochLines(
            prepared.metric_names,
            epoch=self.steps_per_epoch,
            steps=self.config.steps,
            earlier=_scores(self.run.folder),
        )

    def fit(self) -> None:
        """Train all weights except those that are frozen. A head that compares texts is initialized
        by fitting it alone."""
        prepared, options = self.prepared, self.prepared.options
        model = prepared.loaded.model
        begun = prepared.growth or checkpoints(self.run.checkpoints)
        if PAIR_CLASSIFIER in model.heads and not begun:
            fit_linear_probe(prepared, self.dtype)
        with frozen(model, layers=options.freeze_layers, embeddings=options.freeze_embeddings):
            fit(
                model,
                prepared.loss or prepared.task,  # a task is a loss too
                prepared.batches.batch,
                self.config,
                self.run,
                title=prepared.title,
                evaluate=self._evaluate if self.held else None,
                evaluate_every=self.steps_per_epoch,
                # Also if it is not needed now: it may be when the run is resumed.
                choose=Choice(prepared.metric_names[0], highest=True),
                world=self.world,
                shard=options.shard,
            )

    def fit_head_alone(self) -> None:
        """Fit the head on the unchanged encoder, and write the only line of the log; or train the
        encoder first, if that is the plan."""
        prepared, before = self.prepared, []
        if prepared.growth is not None and not prepared.growth.complete:
            begun, growth, features = time.perf_counter(), prepared.growth, prepared.features
            growth.fit_new_rows(prepared.loaded.model, prepared.task, features, self.dtype)
            self.head = LinearProbe(time.perf_counter() - begun, {}, 0)
        elif prepared.contrast is None:
            self.head = fit_linear_probe(prepared, self.dtype)
        else:
            train_encoder(prepared, self.config, self.run)
            strengths = strengths_after(prepared.task)
            self.head = fit_linear_probe(prepared, self.dtype, strengths, evenly=True)
            before = read_log(self.run.folder / "log.jsonl")
            # If the run was stopped after this, the log ends with the head's line, which has no
            # loss.
            while before and "loss" not in before[-1]:
                before.pop()
        elapsed = float(before[-1]["elapsed"]) if before else 0.0
        entry = {"step": self.config.steps, "elapsed": elapsed + self.head.seconds}
        if self.held:
            self.report = self._judge(self.prepared)
            entry |= {f"eval_{name}": value for name, value in self.report.metrics.items()}
        lines = [json.dumps(line) + "\n" for line in (*before, entry)]
        write_text(self.run.folder / "log.jsonl", "".join(lines))

    def save(self, settings: dict[str, Any]) -> None:
        """Write the scores, the worst examples and the model directory, and remove the checkpoints;
        see :func:`train`."""
        prepared, run = self.prepared, self.run
        step, saved_as = self._take_weights(prepared.plan.save_best)
        trained, kept = self.report, self._better_of_both()
        if kept.contrast is not None:
            saved_as = "saved: a head fitted on the encoder after contrastive training"
        elif kept.options.frozen:
            saved_as = "saved: the head alone, on the encoder as it was before training"
        task = kept.task.finished(kept.loaded.model, self.report)
        outputs = self._validation_outputs(kept, task)
        decisions = kept.task.decisions(outputs, self.held) if outputs else None
        calibration = None
        if prepared.options.calibrate:
            calibration = self._calibrate(kept, outputs, decisions)
        if prepared.growth is not None and isinstance(self.report, ClassificationReport):
            prepared.growth.measure(self.report, self.held, self.dtype)
        report, scores, elapsed = self.report, _scores(run.folder), _elapsed(run.folder)
        facts = {**settings, "elapsed": elapsed, "scores": scores}
        facts["reading"] = prepared.data.config.to_facts()
        rows = row_numbers([*prepared.data.train.items, *prepared.unlabelled])
        facts[ROWS] = rows_as_facts(rows, prepared.known_rows)
        facts["environment"] = run.environment
        look = prepared.look
        facts["data"] = {"train": counts_of(look.train), "validation": counts_of(look.validation)}
        if report is not None:
            count = len(prepared.data.validation)
            facts["evaluation"] = {"num_examples": count, "metrics": dict(report.metrics)}
            facts["evaluation"]["fingerprint"] = prepared.data.validation.fingerprint()
            if prepared.seen:
                facts["evaluation"]["seen"] = prepared.seen
        if self.majority is not None:
            facts[MAJORITY] = self.majority
        final = {} if report is None else report.to_dict()
        values = {"scores": scores, "step": step, "final": final, SAVED: saved_as}
        if prepared.seen:
            values[SEEN] = prepared.seen
        if kept is not prepared and trained is not None:
            facts["frozen"] = True
            facts["elapsed"] = 0.0 if self.head is None else self.head.seconds
            values["instead_of"] = trained.metrics
        if self.head is not None and self.head.cross_validated:
            values["cross_validated"] = self.head.cross_validated
        if self.baselines:
            values[BASELINES] = self.baselines
        if calibration is not None:
            facts["calibration"] = values["calibration"] = calibration.to_dict()
        if calibration is not None and decisions is not None:
            decisions = divided_by_others(decisions)
            # After the scores are divided, the threshold is chosen again.
            task = kept.task.finished(kept.loaded.model, self.report)
        if "coverage" in kept.task.rules and not prepared.biased:
            conformal = Conformal.of(decisions)
            facts |= {} if conformal is None else {"conformal": conformal.to_dict()}
        facts |= self._record(kept, task)
        write_json(run.folder / SCORES, values)
        examples = prepared.data.validation
        worst = write_worst(run.folder, task, examples, self.held, outputs)
        explainer = Explainer(
            kept.loaded.model,
            kept.loaded.tokenizer,
            task,
            dtype=self.dtype,
            max_tokens=TOKENS,
            all_windows=False,
        )
        answering = Pipeline(kept.loaded.model, task, kept.loaded.tokenizer, self.dtype)
        trained_on = prepared.data.train, prepared.features
        write_explained(run.folder, explainer, answering, worst, self.held, trained_on)
        save_model(run.model, kept.loaded.model, kept.loaded.tokenizer, task=task.task_info(facts))
        if reason := only_here(kept.loaded.model):
            logger.info(f"saved for Bertine alone: {reason}")
        run.remove_checkpoints()

    def _evaluate(self, display: Display, step: int) -> dict[str, float]:
        """Evaluate the model after an epoch, for `fit`, and show its scores."""
        self.report = self._judge(self.prepared)
        scores = self.report.metrics
        display.keep("validation", self.lines.latest(step, scores))
        line = self.lines.add(step, scores)
        if line is not None:
            display.note(line)
        return scores

    def _judge(
        self, judged: Prepared, outputs: Sequence[np.ndarray] | None = None
    ) -> EvaluationReport:
        """Evaluate a model on the validation examples, and add the metrics on the further examples;
        `outputs` are those for the validation examples, if they are known."""
        loaded = judged.loaded
        pipeline = Pipeline(loaded.model, judged.task, loaded.tokenizer, self.dtype)
        report, *others = (
            evaluate_examples(
                pipeline,
                judged.data.others[word] if word else judged.data.validation,
                features=features,
                outputs=None if word else outputs,
            )
            for word, features in {"": judged.held, **judged.others}.items()
        )
        if isinstance(report, ClassificationReport):
            report.training_majority = self.majority
        for word, other in zip(judged.others, others, strict=True):
            add_metrics(report, word, other)
        note = judged.seen_note()
        if note and judged.title != "distill":  # whose note names the teacher
            report.notes.insert(0, note)
        return report

    def _take_weights(self, save_best: bool | None) -> tuple[int, str]:
        """Load the weights that are to be saved (the last or the best), with their evaluation;
        return their step, and a description."""
        checkpoints, steps = self.run.checkpoints, self.config.steps
        chosen = save_best is None and not self.prepared.biased
        known = recorded_best(checkpoints) if chosen else None
        scores = _scores(self.run.folder)
        last = scores[-1] if scores else None
        best = None
        if save_best or self._clearly_better(known, last):
            best = load_best(checkpoints, self.prepared.loaded.model)
        if best is not None and best.step != steps:
            self.report = None
        # There is none if the run was resumed from a checkpoint of its last step.
        if self.held and self.report is None:
            self.report = self._judge(self.prepared)
        line = saved_line(
            best,
            known,
            last,
            epoch=self.steps_per_epoch,
            steps=steps,
            asked=save_best is not None,
        )
        return steps if best is None else best.step, line

    def _clearly_better(self, best: Best | None, last: Mapping[str, Any] | None) -> bool:
        """Return whether the evaluation `best` is better than the `last` one by more than
        chance."""
        if best is None or last is None:
            return False
        count = len(self.prepared.data.validation)
        return clearly_better(best.metric, best.value, last.get(best.metric, 0.0), count)

    def _better_of_both(self) -> Prepared:
        """Return the model to save: the trained model, or the head alone if that is better."""
        if self.prepared.seen:
            self._may_win(lambda _: False)
            return self.prepared
        if self.report is None or self.world.size > 1:
            return self.prepared
        instead = probe_fallback(
            self.prepared,
            self.report,
            self.baselines,
            self._judge,
            dtype=self.dtype,
        )
        if instead is None:
            return self.prepared
        if not instead.better:
            self._may_win(lambda name: name != HEAD_ALONE)
            return self.prepared
        self.report, self.head = instead.report, instead.fitted
        return instead.prepared

    def _may_win(self, allowed: Callable[[str], bool]) -> None:
        """Record which baselines may be reported as better than the model."""
        for baseline in self.baselines:
            baseline["may_win"] &= allowed(baseline["name"])

    def _validation_outputs(self, kept: Prepared, task: Task[Any]) -> list[np.ndarray]:
        """Compute the outputs of the saved model for the validation examples."""
        if not self.held:
            return []
        loaded = kept.loaded
        return Pipeline(loaded.model, task, loaded.tokenizer, self.dtype).compute(self.held)

    def _record(self, kept: Prepared, task: Task[Any]) -> dict[str, Any]:
        """Record what the texts of the saved model are like and how right it is on those that are
        held out, to compare new ones with; nothing if its task cannot tell."""
        alone = "familiarity" in task.rules and len(task.text_columns) == 1
        if not alone or kept.biased or not self.held:
            return {}
        tokenizer, labels = kept.loaded.tokenizer, task.labels
        run = partial(
            run_features,
            kept.loaded.model,
            WithVectors(task),
            pad_id=tokenizer.pad_token_id,
            dtype=self.dtype,
        )
        familiarity = Familiarity.fit(run, self.prepared.features, self.held, len(labels))
        if familiarity is None:
            return {}
        reader = Reader(familiarity, labels, tokenizer.template.added())
        examples = self.prepared.data.validation
        held = Reference.fit(run, lambda some: task.featurize(some, tokenizer), reader, examples)
        facts = {"familiarity": familiarity.to_dict()}
        return facts | ({} if held is None else {"drift": held.to_dict()})

    def _calibrate(
        self, kept: Prepared, outputs: list[np.ndarray], decisions: Decisions | None
    ) -> Calibration | None:
        """Fit a temperature to the outputs for the validation examples, divide the head and the
        outputs by it, and evaluate the model again; return None if that is no better, or not
        possible."""
        if kept.seen:
            logger.info("not calibrated: the model has seen the validation examples")
            return None
        calibration = calibrate(decisions)
        if calibration is None:
            return None
        logger.info(calibration.line())
        if not calibration.helps:
            return None
        out = cast(torch.nn.Linear, kept.loaded.model.heads[kept.task.head].out)
        with torch.no_grad():
            for weights in out.parameters():
                weights.div_(calibration.temperature)
        outputs[:] = [output / calibration.temperature for output in outputs]
        self.report = self._judge(kept, outputs)
        return calibration


def counts_of(look: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of examples, by kind."""
    return {name: value for name, value in look.items() if isinstance(value, int)}


def _scores(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations in the log of a run, those before a resume included."""
    evaluations = []
    for entry in read_log(folder / "log.jsonl"):
        scores = {k.removeprefix("eval_"): v for k, v in entry.items() if k.startswith("eval_")}
        if scores:
            evaluations.append({"step": entry["step"], **scores})
    return evaluations


def _elapsed(folder: Path) -> float:
    """Return the seconds of training in the log of a run."""
    lines = [e for e in read_log(folder / "log.jsonl") if "elapsed" in e]
    return float(lines[-1]["elapsed"]) if lines else 0.0
