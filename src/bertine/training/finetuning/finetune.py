"""Fine-tune a model on labelled examples: ``finetune``, all of GLUE, and ``few_shot``."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bertine.core.console import aligned, logger, plural
from bertine.core.cpu import launched
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.core.model_folders import last_fit, recorded_model
from bertine.core.names import TaskName, in_python, option
from bertine.core.task_info import TaskInfo
from bertine.core.text import briefly
from bertine.data.examples import KNOWN, Examples, rows_in_facts
from bertine.data.in_memory import TableLike
from bertine.data.published import data_of_run, recorded_data
from bertine.datasets.glue import AVERAGED, GLUE, glue_tasks_in
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import given_data
from bertine.hub.model_directory import TASK
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.declare import declared, shared_values
from bertine.options.finetuning import FewShotOptions, FinetuneOptions
from bertine.options.verbs import check_types, takes_options
from bertine.reports.run_files import START, RunFolder
from bertine.tasks import TASKS
from bertine.tasks.report import EvaluationReport
from bertine.training.computing import computing_of_run
from bertine.training.contrastive import plan_contrast
from bertine.training.defaults import Contrast, usual_plan
from bertine.training.distributed import all_ranks, join
from bertine.training.finetuning.growing import OLD_DATA, growing_options
from bertine.training.finetuning.learner import Learner, Provenance, final_of, write_page
from bertine.training.finetuning.linear_probe import check_frozen
from bertine.training.finetuning.run import ended, kept_baselines, read_learner, train
from bertine.training.finetuning.setup import Prepared, prepare
from bertine.training.optimizers import check_whole
from bertine.training.run_folder import Run

# All of GLUE: one fine-tuning run for each task, and a table with the average.

#: The file with the table, in the folder of the runs.
TABLE = "glue.json"


@dataclass(repr=False)
class GlueReport(EvaluationReport):
    """The scores of the tasks of GLUE on their dev sets.

    Attributes:
        tasks: for each task its official metrics by name.
        notes: which of the leaderboard's tasks are missing.
        source: the folder of the data.
        collapsed: whether the run of any task gave the same answer to all examples.
        worst: empty; each task's run has its own.
    """

    tasks: dict[str, dict[str, float]]
    collapsed: bool = False

    json_keys = ("source", "tasks", "scores=metrics", "notes", "collapsed")

    @property
    def metrics(self) -> dict[str, float]:
        """The score of each task, the mean of its official metrics, and their average; and
        ``paper_average``, that of table 1 of Devlin et al. 2018: the mean of its columns, with MNLI
        twice and without WNLI."""
        scores = {
            name: sum(metrics.values()) / len(metrics) for name, metrics in self.tasks.items()
        }
        scores["average"] = sum(scores.values()) / len(scores)
        columns = self._paper_columns()
        return scores | ({"paper_average": sum(columns) / len(columns)} if columns else {})

    def _paper_columns(self) -> list[float]:
        return [
            value
            for name, metrics in self.tasks.items()
            for metric, value in metrics.items()
            if metric in GLUE[name].columns_in_paper
        ]

    def lines(self) -> list[str]:
        """Return a row for each task (its score and its metrics, times 100, and what it asks), the
        average with the tasks that it covers, and that of the paper of BERT."""
        said = {
            name: ", ".join(f"{metric} {100 * value:.2f}" for metric, value in metrics.items())
            + f" ({GLUE[name].asks})"
            for name, metrics in self.tasks.items()
        }
        said["average"] = (
            f"of {plural(len(self.tasks), 'task')}, on dev sets, times 100; where a task has two "
            "metrics, their mean"
        )
        said["paper_average"] = (
            f"of {plural(len(self._paper_columns()), 'column')}, as in BERT's paper: without WNLI, "
            "with both of MNLI, with F1 or Spearman's correlation where a task has two metrics"
        )
        rows = [(name, f"{100 * score:.2f}", said[name]) for name, score in self.metrics.items()]
        return aligned(rows, left=(0, 2)) + self.notes


def finetune_all(finetune: Callable[..., Learner], arguments: dict[str, Any]) -> Learner:
    """Fine-tune on each task in the data, and write the table to ``out/glue.json``.

    Args:
        finetune: the verb, called once a task.
        arguments: of the verb, for all of GLUE.

    Raises:
        BertineError: what `finetune` raises; the data has no task; `out` is a run's folder, or
            holds a run of one of the tasks already and `resume` is not set.
    """
    if launched():
        raise BertineError("all of GLUE runs in one process; with torchrun name one task")
    if not isinstance(arguments["data"], str | Path):
        raise BertineError("all of GLUE is read from its folder; give that as data, not examples")
    data, out = Path(arguments["data"]), Path(arguments["out"])
    tasks = glue_tasks_in(data)
    if (out / "run.json").exists():
        raise BertineError(f"{out}: holds a run; choose another folder for the runs of GLUE")
    for task in tasks:
        Run.check(out / task.name, arguments["resume"])
    results: dict[str, Learner] = {}
    for number, task in enumerate(tasks, 1):
        logger.info(f"{task.name} ({number} of {len(tasks)})")
        results[task.name] = finetune(
            **{**arguments, "glue_task": task.name, "out": out / task.name, "baselines": False}
        )
    scores = {
        name: {metric: result.metrics[metric] for metric in result.metric_names}
        for name, result in results.items()
    }
    missing = [name for name in AVERAGED if name not in scores]
    notes = (
        [f"not the leaderboard's average, which is over nine tasks: {', '.join(missing)} missing"]
        if missing
        else []
    )
    collapsed = [
        name for name, result in results.items() if final_of(result.model.parent).get("collapsed")
    ]
    for name in collapsed:
        notes.append(f"{name}: collapsed to one answer; train it again with another seed")
    report = GlueReport(scores, bool(collapsed), source=str(data), notes=notes)
    write_json(out / TABLE, report.to_dict())
    elapsed = sum(result.elapsed for result in results.values())
    return Learner(out, [], report, elapsed, ("average",), results)


# ``finetune``: one fine-tuning run.


@takes_options()
@all_ranks
def finetune(
    task: TaskName,
    *,
    model: Path | str | None = None,
    data: Path | str | DatasetSplits | TableLike,
    out: Path | str,
    options: FinetuneOptions,
) -> Learner:
    """Fine-tune all weights on labelled examples (paper, sections 3.2 and A.3).

    Args:
        task: a name of :data:`bertine.tasks.TASKS`, or ``"glue"``, ``"squad"`` or ``"swag"``.
        model: the model directory to start from, or the name of a model; None: the best one that is
            installed for the language of the texts; of a run that is resumed, its own.
        data: a labelled file, or a folder with a training and a validation file. If there is no
            validation file, a tenth of the training examples is held out. For GLUE the folder with
            its tasks' folders, or one of those, in the layout of gluebenchmark.com. For SQuAD its
            training file, with the dev file in the same folder, or this folder. For SWAG the folder
            of its files, or one of them. Or a table in memory (:mod:`~bertine.data.in_memory`): a
            pandas or polars frame, an Arrow table, a ``datasets.Dataset``, a list of dictionaries,
            a dictionary of columns; a dictionary of such tables has the parts ``train`` and
            ``validation``. Or :class:`~bertine.datasets.readers.DatasetSplits`, which were read
            before; options for reading (columns, format, and the options of tables, spans and tags)
            must then not be given. If they have no validation examples, nothing is evaluated.
        out: the run's folder; the model directory is ``out/model``.
        options: the values of the other arguments.

    Returns:
        The result of the run, with methods to use it: a
        :class:`~bertine.training.finetuning.learner.Learner`.

    Raises:
        BertineError: no such task, model or file; a missing column; a label of the validation file
            that the training file lacks; `out` holds another run; a value is out of range
            (:class:`~bertine.training.fit.FitConfig`).
    """
    check_whole(options, options.shard)
    # Flat, as the user gave them: for the record of the run, and for the runs of all of GLUE.
    arguments = {"task": task, "model": model, "data": data, "out": out, **options.values()}
    if task == "glue" and (options.glue_task or "").lower() == "all":
        return finetune_all(finetune, arguments)
    return run_finetuning(finetune, arguments, options, DataConfig.of(options, DEFAULTS))


def run_finetuning(
    verb: Callable[..., Any],
    arguments: Mapping[str, Any],
    options: FinetuneOptions,
    config: DataConfig,
    *,
    contrast: Callable[[Prepared], Contrast] | None = None,
) -> Learner:
    """Do a run of fine-tuning, or resume it.

    Args:
        verb: the verb that was called.
        arguments: its arguments, by name: among them ``task``, ``data``, ``model`` and ``out``.
        options: how to train.
        config: how the data are read.
        contrast: how the encoder is trained before its head is fitted alone; None: it is not.

    Raises:
        BertineError: see :func:`finetune`.
    """
    task, out = arguments["task"], arguments["out"]
    options = growing_options(task, arguments["model"], options, config)
    world = join(options.device)
    world.alone(lambda: Run.check(out, options.resume))
    prepared = prepare(
        task,
        arguments["data"],
        model=Run.model_of(out, arguments["model"], options.resume),
        config=config,
        options=options,
        where=world.device,
        begun=Run.begun(out) if options.resume else None,
    )
    if contrast is not None:
        prepared = replace(prepared, contrast=contrast(prepared))
    plan, data = prepared.plan, prepared.data
    if options.frozen:
        check_frozen(prepared.task, options, prepared.loaded.model)
    if plan.save_best and not prepared.held:
        raise BertineError("without validation examples there is no best epoch to save")
    computing = computing_of_run(
        out,
        options.precision,
        options.resume,
        prepared.loaded.model,
        world,
        prepared.batch_tokens,
    )
    fit_config = plan.config(
        options,
        prepared.batches.steps_per_epoch,
        world.device,
        computing.precision,
        prepared.contrast,
    )
    info = prepared.task.task_info()
    settings = {
        "task": info.dataset or task,
        **recorded_data(data.train.source if data.source is None else data.source),
        **recorded_model(prepared.model),
        "num_examples": len(data.train),
        "examples_fingerprint": data.train.fingerprint(),
        "weights_fingerprint": prepared.loaded.model.fingerprint(),
        "device": world.device.type,
        "labels_and_columns": asdict(info),
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "dropout": options.dropout,
        "save_best": plan.save_best,
        **fit_config.settings(),
        **computing.facts,
    }
    settings |= options.recorded()
    if prepared.growth is not None:
        settings[OLD_DATA] = list(prepared.growth.old_data)
    if prepared.known_rows:
        settings[KNOWN] = len(prepared.known_rows)
    if prepared.contrast is not None:
        settings["contrast"] = prepared.contrast.settings()
    with Run.open(out, settings, options.resume, world=world, shard=options.shard) as run:
        if run.finished:
            learner = read_learner(prepared, fit_config, run, world)
        else:
            started = {**arguments, "model": prepared.model}
            world.alone(lambda: _write_start(run.folder, verb, started, prepared))
            learner = train(prepared, fit_config, run, settings, world)
    write_page(learner.model.parent)
    return learner


@check_types
def open_learner(
    folder: Path | str, *, data: Path | str | TableLike | None = None, device: str | None = None
) -> Learner:
    """Open the learner of a finished run again, after the last of its fits: in another process, or
    days later.

    Args:
        folder: of the run of ``finetune`` or ``few_shot``.
        data: the data of the run, if they were in memory or are elsewhere now; None: those of the
            run.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.

    Raises:
        BertineError: it is not the folder of such a run, or the run is not finished.
    """
    first = RunFolder.read(folder)
    last = RunFolder.read(last_fit(first.path))
    given, verb = first.start.get("arguments"), first.start.get("verb", "finetune")
    if given is None or verb not in ("finetune", "few-shot"):
        raise BertineError(
            f"{folder}: is no run of finetune or few-shot; bertine.Predictor.load opens a model"
        )
    if not first.finished:
        raise BertineError(f"{folder}: is not finished; {option('resume', True)} goes on with it")
    group = FewShotOptions if verb == "few-shot" else FinetuneOptions
    known = {entry.name for entry in declared(group)}
    options = group(**{name: value for name, value in given.items() if name in known})
    model = last.path / "model"
    began, info = TaskInfo.read(first.path / "model" / TASK), TaskInfo.read(model / TASK)
    rows = rows_in_facts(began.training)[1]
    config = DataConfig.of(options, DataConfig(whole=verb == "few-shot"), known_rows=rows)
    data = given.get("data") if data is None else data
    return Learner(
        model,
        report=None,
        metric_names=info.metrics or (TASKS[info.name].primary_metric,),
        baselines=kept_baselines(last.path),
        origin=Provenance(
            task=given.get("task", "text"),
            data=None if data is None else given_data(data_of_run(data, first.settings)),
            config=config,
            fingerprint=began.training.get("evaluation", {}).get("fingerprint", ""),
            train_fingerprint=first.settings.get("examples_fingerprint", ""),
            device=device,
            precision=last.settings.get("precision", "auto"),
        ),
        **ended(last.path),
    )


#: Arguments that are not repeated in the commands to run next.
_LEFT_OUT = ("out", "resume")


def _write_start(
    folder: Path, verb: Callable[..., Any], values: Mapping[str, Any], prepared: Prepared
) -> None:
    """Write ``start.json`` into the `folder` of a run: the given arguments, kept for the diagnosis
    in its report.

    ``run.json`` has every setting as it was resolved; this file has the arguments as the user gave
    them, so that a report can name the command to run next.

    Args:
        folder: of the run.
        verb: the function that was called.
        values: all its arguments, by name; those that differ from the defaults are kept.
        prepared: the preparation of the run.
    """
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(verb).parameters.items()
    }
    arguments = {
        name: as_json(value)
        for name, value in values.items()
        if name not in _LEFT_OUT
        # Neither examples in memory nor tables, whose comparison may give one of their kind.
        if (isinstance(value, str | Path) if name == "data" else value != defaults.get(name))
    }
    config, count = prepared.loaded.config, len(prepared.data.train)
    start: dict[str, Any] = {
        "arguments": arguments,
        "constant_loss": prepared.task.constant(prepared.data.train, prepared.features)[1],
        **usual_plan(config, count, prepared.task, values.get("optimizer", "adamw")),
    }
    if in_python():
        start["python"] = True
    if prepared.contrast is not None:
        start |= prepared.contrast.usual(config, len(prepared.features))
    write_json(folder / START, start)


def as_json(value: Any) -> Any:
    """Convert an argument to a JSON value."""
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


# ``few_shot``: train a model on a few labels of each class.

#: Options of contrastive training here; they have no effect where only a head is fitted.
_OWN = frozenset({"learning_rate", "batch_size", "steps", "task", "trained_weights"})
#: The smallest number of examples that each label must have.
_LEAST = 2


@takes_options()
def few_shot(
    *,
    model: Path | str | None = None,
    data: Path | str | DatasetSplits | TableLike,
    out: Path | str,
    options: FewShotOptions,
) -> Learner:
    """Train on a few labelled texts: first the encoder, contrastively, then a linear head on its
    vectors.

    The encoder is trained so that texts with the same label have vectors close to each other, by a
    contrastive loss over all pairs of a batch (the idea of SetFit: Tunstall et al. 2022, arXiv
    2209.11055).

    Args:
        model: the model directory to start from, preferably one trained for sentence vectors, or
            the name of a model; None: as for `finetune`.
        data: labelled texts, or pairs of texts, as for :func:`bertine.finetune`. If there is no
            validation file, nothing is held out, and the model is not evaluated.
        out: the run's folder; the model directory is ``out/model``.
        options: the values of the other arguments.

    Returns:
        What :func:`bertine.finetune` returns.

    Raises:
        BertineError: a label with one example; what ``finetune`` raises.
    """
    if launched():
        raise BertineError("few-shot trains in one process; start it without torchrun")
    of_finetune = FinetuneOptions(**shared_values(FinetuneOptions, options, but=_OWN), frozen=True)
    config = DataConfig.of(of_finetune, DataConfig(whole=True))
    arguments = {"model": model, "data": data, "out": out, **options.values()}

    def contrast(prepared: Prepared) -> Contrast:
        _check_counts(prepared.data.train, prepared.task)
        return plan_contrast(prepared, options)

    return run_finetuning(few_shot, arguments, of_finetune, config, contrast=contrast)


def _check_counts(examples: Examples[Any], task: Any) -> None:
    """Refuse labels with too few examples to make a pair.

    Raises:
        BertineError: there are such labels.
    """
    counts = Counter(name for item in examples.items for name in task.names_in(item.label))
    few = sorted(label for label in task.labels if counts[label] < _LEAST)
    if few:
        raise BertineError(
            f"{examples.source}: the label {briefly(few[0])} has "
            f"{plural(counts[few[0]], 'example')}, but few-shot compares examples of a label and "
            f"needs {_LEAST} of each"
            + (f" ({len(few)} labels have fewer)" if len(few) > 1 else "")
            + "; label more of them, or leave it out"
        )
