"""``finetune``: a model directory and labelled examples in, a model directory that answers out."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from bertine.datasets.reading import Labelled, Reading
from bertine.errors import BertineError
from bertine.files import write_json
from bertine.models.products import TOKENS
from bertine.names import TaskName
from bertine.options.finetuning import FinetuneOptions
from bertine.options.verbs import takes_options
from bertine.records.known_rows import KNOWN
from bertine.runs.files import START
from bertine.tables.given import TableLike, as_data
from bertine.training.arguments import reading_of
from bertine.training.computing import Computing, computing_of_run
from bertine.training.distributed.world import World, join, together
from bertine.training.few_shot.contrast import Contrast
from bertine.training.few_shot.encoder import config_of, facts_of
from bertine.training.finetuning.frozen_head import check_frozen
from bertine.training.finetuning.glue import finetune_all
from bertine.training.finetuning.learner import Learner, Origin
from bertine.training.finetuning.plan import TrainingPlan, Wishes
from bertine.training.finetuning.run import read_outcome, train
from bertine.training.finetuning.run_baselines import kept_baselines
from bertine.training.finetuning.setup import Prepared, Start, prepare, read_or_given
from bertine.training.loop.fit import FitConfig
from bertine.training.loop.optimizers.named import check_whole
from bertine.training.loop.schedule import WARMUP_RATIO, warmup
from bertine.training.run import Run

#: Arguments that a command to run next does not repeat.
_LEFT_OUT = ("out", "resume")


@takes_options()
@together
def finetune(
    task: TaskName,
    *,
    model: Path | str,
    data: Path | str | Labelled | TableLike,
    out: Path | str,
    options: FinetuneOptions,
) -> Learner:
    """Fine-tune every weight on labelled examples (paper, sections 3.2 and A.3).

    Args:
        task: a name of :data:`bertine.tasks.TASKS`, or ``"glue"``, ``"squad"`` or ``"swag"``.
        model: the model directory to start from.
        data: a labelled file, or a folder with a training and a validation file. Where there is
            no validation file, a tenth of the training examples is held out. For GLUE the folder
            with its tasks' folders, or one of those, as gluebenchmark.com gives them out.
            For SQuAD its training file, beside which the dev file is found, or their folder.
            For SWAG the folder of its files, or one of them. Or a table in memory
            (:mod:`~bertine.tables.given`): a pandas or polars frame, an Arrow table, a
            ``datasets.Dataset``, a list of dictionaries, a dictionary of columns; a dictionary of
            such tables has the parts ``train`` and ``validation``. Or
            :class:`~bertine.datasets.reading.Labelled` examples, read already; how to read them
            (columns, format, and the options of tables, spans and tags) must then not be said.
            Where they have none for validation, nothing is evaluated.
        out: the run's folder; the model directory is ``out/model``.
        options: what the other arguments say.

    Returns:
        What the run ended with, and what is done with it next: a
        :class:`~bertine.training.finetuning.learner.Learner`.

    Raises:
        BertineError: no such task, model or file; a missing column; a label of the validation
            file that the training file lacks; `out` holds another run; a value is out of range
            (:class:`~bertine.training.loop.fit.FitConfig`).
    """
    check_whole(options, options.shard)
    if not isinstance(data, Labelled):
        data = as_data(data)
    arguments = {"task": task, "model": model, "data": data, "out": out, **options.values()}
    start, reading = Start.of(options, model=model), reading_of(options)
    if task == "glue" and (options.glue_task or "").lower() == "all":
        return finetune_all(finetune, arguments)
    return run_finetuning(finetune, arguments, options, start, reading)


def run_finetuning(
    verb: Callable[..., Any],
    arguments: Mapping[str, Any],
    options: FinetuneOptions,
    start: Start,
    reading: Reading,
    *,
    contrast: Callable[[Prepared], Contrast] | None = None,
) -> Learner:
    """Do a run of fine-tuning, or go on with it.

    Args:
        verb: that was called.
        arguments: of it, by name: among them ``task``, ``data``, ``model`` and ``out``.
        options: how to train.
        start: what the run starts from.
        reading: how the data are read.
        contrast: how the encoder is trained before its head is fitted alone; None: it is not.

    Raises:
        BertineError: see :func:`finetune`.
    """
    task, data, out = arguments["task"], arguments["data"], arguments["out"]
    model, seed = arguments["model"], options.seed
    save_best, frozen = options.save_best, options.frozen
    world = join(options.device)
    where = world.device
    world.alone(lambda: Run.check(out, options.resume))
    prepared = prepare(
        task,
        data,
        start=start,
        reading=reading,
        wishes=Wishes.of(options),
        max_length=options.max_length,
        seed=seed,
        where=where,
        begun=Run.begun(out) if options.resume else None,
    )
    if contrast is not None:
        prepared = dataclasses.replace(prepared, contrast=contrast(prepared))
    plan = prepared.plan
    if frozen:
        check_frozen(prepared.task, options, prepared.loaded.model)
    if plan.save_best and not prepared.validation.features:
        raise BertineError("without validation examples there is no best epoch to save")
    computing = finetuning_computing(out, options, prepared, world)
    config = fit_config(options, plan, prepared.batches.steps_per_epoch, where, computing)
    if prepared.contrast is not None:
        config = config_of(prepared.contrast, config)
    info = prepared.task.task_info()
    settings = {
        "task": info.dataset or task,
        "data_path": prepared.data_path,
        "model_path": str(model),
        "num_examples": len(prepared.train.examples),
        "examples_fingerprint": prepared.train.examples.fingerprint(),
        "weights_fingerprint": prepared.loaded.model.fingerprint(),
        "device": where.type,
        "labels_and_columns": dataclasses.asdict(info),
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "dropout": options.dropout,
        "save_best": False if frozen else plan.save_best,
        **config.settings(),
        **computing.facts,
    }
    settings |= options.recorded()
    if prepared.reading.known:
        settings[KNOWN] = len(prepared.reading.known)
    if prepared.contrast is not None:
        settings["contrast"] = prepared.contrast.settings()
    with Run.open(out, settings, options.resume, world=world, shard=options.shard) as run:
        if run.finished:
            outcome = read_outcome(run, world, save_best=bool(save_best))
        else:
            world.alone(lambda: _write_start(run.folder, verb, arguments, prepared))
            outcome = train(
                prepared,
                config,
                run,
                settings,
                save_best=False if frozen else plan.save_best,
                baselines=options.baselines,
                calibrated=options.calibrate,
                world=world,
                shard=options.shard,
            )
    return Learner(
        run.model,
        outcome.scores,
        outcome.report,
        outcome.elapsed,
        prepared.metric_names,
        final=outcome.final,
        baselines=kept_baselines(run.folder),
        saved=outcome.saved,
        origin=Origin(
            read=lambda: read_or_given(task, data, seed=seed, reading=prepared.reading),
            fingerprint=prepared.validation.examples.fingerprint(),
            train_fingerprint=prepared.train.examples.fingerprint(),
            device=str(where),
            precision=config.precision,  # as it was judged: answering chooses 8 bits as well
        ),
    )


def finetuning_computing(
    out: Path | str, options: FinetuneOptions, prepared: Prepared, world: World
) -> Computing:
    """Return how a run of fine-tuning in `out` computes."""
    return computing_of_run(
        out,
        options.precision,
        prepared.loaded.model,
        resume=options.resume,
        world=world,
        tokens=max(1, (prepared.batch_tokens or TOKENS) // world.size),
    )


def fit_config(
    options: FinetuneOptions,
    plan: TrainingPlan,
    epoch: int,
    where: torch.device,
    computing: Computing,
) -> FitConfig:
    """Return how the loss is minimized by a `plan`, an epoch of which has so many steps."""
    frozen = options.frozen
    rising = options.warmup_ratio
    if rising is None and plan.paper is not None:
        rising = plan.paper.warmup_ratio
    if rising is None:
        rising = WARMUP_RATIO[options.schedule]
    return FitConfig.of(
        options,
        **plan.changes(options.changed()),
        steps=1 if frozen else plan.epochs * epoch,
        learning_rate=plan.learning_rate,
        warmup_steps=0 if frozen else warmup(plan.epochs * epoch, options.warmup_steps, rising),
        precision=computing.precision,
        checkpoint_every=epoch if options.checkpoint_every is None else options.checkpoint_every,
        budget_seconds=None,
        compile=options.compile if where.type == "cuda" and options.compile else None,
    )


def _write_start(
    folder: Path, verb: Callable[..., Any], values: Mapping[str, Any], prepared: Prepared
) -> None:
    """Write ``start.json`` into the `folder` of a run: what was asked for, kept for the diagnosis
    of its report.

    Unlike ``run.json``, which has every setting as it was resolved, it has the arguments as the
    user gave them, so that a report can name the command to run next.

    Args:
        folder: of the run.
        verb: the function that was called.
        values: all its arguments, by name; those that are not the defaults are kept.
        prepared: what the run starts from.
    """
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(verb).parameters.items()
    }
    arguments = {
        name: as_json(value)
        for name, value in values.items()
        if name not in _LEFT_OUT and value != defaults.get(name)
    }
    if not isinstance(values["data"], str | Path):
        arguments.pop("data", None)  # examples in memory
    usual = Wishes(optimizer=values.get("optimizer", "adamw")).plan(
        prepared.loaded.config, len(prepared.train.examples), prepared.task
    )
    start: dict[str, Any] = {
        "arguments": arguments,
        "constant_loss": prepared.task.constant_loss(
            prepared.train.examples, prepared.train.features
        ),
        "hidden_size": prepared.loaded.config.hidden_size,
        "usual_epochs": usual.epochs,
        "usual_batch_size": usual.batch_size,
        "usual_learning_rate": usual.learning_rate,
    }
    if prepared.contrast is not None:
        start |= facts_of(prepared.contrast, prepared)
    write_json(folder / START, start)


def as_json(value: Any) -> Any:
    """Return an argument as a JSON value."""
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
