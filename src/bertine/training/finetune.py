"""``finetune``: a model directory and labelled examples in, a model directory that answers out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.console import human_time, say, warn
from bertine.data.batching import FeatureBatches
from bertine.errors import BertineError
from bertine.files import write_json
from bertine.inference.evaluate import evaluate_examples
from bertine.modeldir import LoadedModel, load_config, load_model, save_model
from bertine.models.precision import precision_name, resolve_device, resolve_precision
from bertine.tasks import task_class
from bertine.tasks.base import Features, Report, Task, truncation_note
from bertine.tasks.examples import Examples, find_splits, read_examples
from bertine.training.best import Choice, load_best
from bertine.training.display import Display
from bertine.training.fit import FitConfig, fit
from bertine.training.run import Run
from bertine.training.tracking import read_log

#: Held out of the training file where the data has no validation file.
_HOLD_OUT = 0.1


@dataclass(frozen=True)
class FinetuneResult:
    """What a fine-tuning run ended with.

    Attributes:
        model: the model directory.
        scores: the metrics on the validation examples after each epoch, with ``step``.
        report: the evaluation of the model in `model`; None when a finished run was found.
        elapsed: seconds of training, evaluation not counted.
    """

    model: Path
    scores: list[dict[str, Any]]
    report: Report | None
    elapsed: float

    def lines(self) -> list[str]:
        """What the command prints at the end."""
        lines = self.report.lines() if self.report is not None else []
        return [
            *lines,
            f"trained in {human_time(self.elapsed)}",
            f"model: {self.model}",
        ]


def finetune(
    task: str,
    *,
    model: Path | str,
    data: Path | str,
    out: Path | str,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    epochs: int = 3,
    batch_size: int = 32,
    max_length: int = 128,
    learning_rate: float = 5e-5,
    warmup_steps: int | None = None,
    warmup_ratio: float = 0.1,
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-6,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    dropout: float | None = None,
    device: str | None = None,
    precision: str = "auto",
    seed: int = 0,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 2,
    save_best: bool = False,
    log_every: int = 10,
    tensorboard: bool = False,
    resume: bool = False,
) -> FinetuneResult:
    """Fine-tune every weight on labelled examples (paper, sections 3.2 and A.3).

    Args:
        task: a name of :data:`bertine.tasks.TASKS`.
        model: the model directory to start from.
        data: a labelled file, or a folder with a training and a validation file. Where there is
            no validation file, a tenth of the training examples is held out.
        out: the run's folder; the model directory is ``out/model``.
        text_columns: one, or two for pairs; None: found by the usual names.
        label_column: None: found by the usual names.
        format: csv, tsv or jsonl; None: told as :class:`~bertine.tasks.tables.Table` does.
        quotes: whether ``"`` quotes cells; None: as usual for the format.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        epochs: passes over the training examples.
        max_length: pieces of an input; longer ones are cut, and counted.
        dropout: on hidden states and attention, in place of the model's own rates.
        device: as PyTorch calls it; None: the GPU if there is one.
        checkpoint_every: steps; None: one after each epoch. They are removed when the model
            directory has been written.
        save_best: the model directory gets the weights of the epoch with the best score on the
            validation examples (the task's ``primary_metric``), not the last ones. The examples
            have then been used to choose: judge the model on others.

    The others are described at :class:`~bertine.training.fit.FitConfig`.

    Raises:
        BertineError: no such task, model or file; a missing column; a label of the validation
            file that the training file lacks; `out` holds another run.
    """
    kind = task_class(task)
    where = resolve_device(device)
    Run.check(out, resume)
    config = load_config(model, dropout=dropout)
    reading: dict[str, Any] = {"format": format, "quotes": quotes, "strict": strict}
    train, validation = _read(data, text_columns, label_column, seed, reading)
    if max_length > config.max_position_embeddings:
        max_length = config.max_position_embeddings
        say(f"{model}: has {max_length} positions, so max_length is {max_length}")
    built: Task[Any] = kind.from_examples(train, max_length=max_length)
    heads = built.heads(config)
    loaded = load_model(model, heads=heads, seed=seed, dropout=dropout)
    if loaded.task is None or loaded.task.labels != built.task_info().labels:
        # A head for other labels is of no use, even where it has the right shape.
        loaded = load_model(
            model, heads=built.heads(config), fresh=list(heads), seed=seed, dropout=dropout
        )
    loaded.model.to(where)
    features = built.featurize(train, loaded.tokenizer)
    held = built.featurize(validation, loaded.tokenizer)
    _say_what(loaded, train, validation, features, built)

    batches = FeatureBatches(
        features,
        lambda chosen: built.collate(chosen, loaded.tokenizer.pad_token_id),
        batch_size=batch_size,
        seed=seed,
    )
    steps = epochs * batches.steps_per_epoch
    fit_config = FitConfig(
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=round(warmup_ratio * steps) if warmup_steps is None else warmup_steps,
        weight_decay=weight_decay,
        adam_beta1=adam_beta1,
        adam_beta2=adam_beta2,
        adam_epsilon=adam_epsilon,
        bias_correction=bias_correction,
        max_grad_norm=max_grad_norm,
        max_tokens_per_micro_batch=max_tokens_per_micro_batch,
        precision=precision_name(precision, where),
        seed=seed,
        log_every=log_every,
        checkpoint_every=batches.steps_per_epoch if checkpoint_every is None else checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        tensorboard=tensorboard,
    )
    settings = {
        "task": task,
        "data_path": str(data),
        "model_path": str(model),
        "num_examples": len(train),
        "examples_fingerprint": train.fingerprint(),
        "weights_fingerprint": loaded.model.fingerprint(),
        "device": where.type,
        "labels_and_columns": dataclasses.asdict(built.task_info()),
        "epochs": epochs,
        "batch_size": batch_size,
        "dropout": dropout,
        "save_best": save_best,
        **dataclasses.asdict(fit_config),
    }
    run = Run.open(out, settings, resume)
    if run.finished:
        say(f"{run.folder}: the run was finished already")
        return FinetuneResult(run.model, _scores(run), None, _elapsed(run))

    reports: list[Report] = []

    def score() -> Report:
        return evaluate_examples(
            loaded.model,
            built,
            validation,
            loaded.tokenizer,
            features=held,
            dtype=resolve_precision(precision, where),
        )

    def evaluate(display: Display, step: int) -> dict[str, float]:
        reports.append(score())
        scores = reports[-1].metrics
        display.note("validation: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()))
        return scores

    fit(
        loaded.model,
        built,
        batches.batch,
        fit_config,
        run,
        title="finetune",
        evaluate=evaluate,
        evaluate_every=batches.steps_per_epoch,
        choose=Choice(built.primary_metric, highest=True) if save_best else None,
    )
    best = load_best(run.checkpoints, loaded.model) if save_best else None
    if best is not None:
        epoch = best.step // batches.steps_per_epoch
        say(f"best on the validation examples: epoch {epoch}, {best.metric} {best.value:.4f}")
        if best.step != steps:
            reports.clear()
    # None was made where the run was resumed from a checkpoint of its last step.
    report = reports[-1] if reports else score()
    scores = _scores(run)
    facts = {**settings, "elapsed": _elapsed(run), "scores": scores}
    write_json(run.folder / "scores.json", {"scores": scores, "final": report.to_dict()})
    save_model(run.model, loaded.model, loaded.tokenizer, task=built.task_info(facts))
    run.remove_checkpoints()
    return FinetuneResult(run.model, scores, report, _elapsed(run))


def _read(
    data: Path | str,
    text_columns: Sequence[str] | str | None,
    label_column: str | None,
    seed: int,
    reading: dict[str, Any],
) -> tuple[Examples, Examples]:
    """The training and the validation examples; `reading` goes to :func:`read_examples`."""
    splits = find_splits(data)
    if splits.train is None:
        raise BertineError(f"{data}: has no training file (train.csv, .tsv, .jsonl or .txt)")
    train = read_examples(
        splits.train, text_columns=text_columns, label_column=label_column, **reading
    )
    if splits.validation is None:
        return train.hold_out(_HOLD_OUT, seed)
    validation = read_examples(
        splits.validation,
        text_columns=train.text_columns,
        label_column=train.label_column,
        **reading,
    )
    return train, validation


def _say_what(
    loaded: LoadedModel,
    train: Examples,
    validation: Examples,
    features: Sequence[Features],
    task: Task[Any],
) -> None:
    for line in loaded.report.lines():
        say(line)
    columns = " + ".join(train.text_columns)
    say(
        f"{len(train)} training and {len(validation)} validation examples; "
        f"text: {columns}; label: {train.label_column}"
    )
    for note in [*train.notes, *validation.notes]:
        warn(note)
    cut = truncation_note(features, task.max_length)
    if cut:
        warn(f"{train.source}: {cut}")


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
