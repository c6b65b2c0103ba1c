"""Use the result of fine-tuning: validate it, inspect its errors, predict, save."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bertine.core.console import Shown, human_time, logger
from bertine.core.cpu import is_main
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object
from bertine.core.names import Precision, ScheduleName, implementation, option
from bertine.core.task_info import TaskInfo
from bertine.data.in_memory import Data, TableLike
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import splits_of
from bertine.hub.model_directory import TASK
from bertine.inference.evaluate import evaluate, evaluate_sets, worst_examples
from bertine.inference.predictor import Predictor
from bertine.inference.rows import Text
from bertine.options.data import DEFAULTS, DataConfig
from bertine.reports.curves import Curves, finetuning_curves
from bertine.reports.diagnosis import diagnose
from bertine.reports.findings import Finding
from bertine.reports.run_files import RunFolder
from bertine.reports.run_page import REPORT, report
from bertine.tasks import TASKS
from bertine.tasks.answer import WorstExample, WorstExamples
from bertine.tasks.metrics import official_score
from bertine.tasks.report import (
    BaselineScore,
    ClassificationReport,
    EvaluationReport,
    baseline_lines,
)
from bertine.training.computing import with_options_of

# The folder of a finished run: its scores, its page, and the commands to run next.

#: The key of ``scores.json`` for the description of the weights that are saved.
SAVED = "saved"
#: The key for the number of validation examples that the initial model had been trained on.
SEEN = "seen"
#: What trains on, which needs this module.
_FINETUNE = "bertine.training.finetuning.finetune:finetune"
#: The name of the folder of a further fit, in that of the first run.
_FIT = re.compile(r"fit-(\d+)")
#: Arguments of the run before that a fit does not take over; those about data are settled too.
_NOT_AGAIN = {
    *DEFAULTS.values(),
    *("task", "model", "data", "epochs", "learning_rate", "schedule", "warmup_steps"),
    *("warmup_ratio", "frozen", "baselines", "fresh_weights", "add_labels", "old_data"),
}
#: Suffixes of files whose rows name their own fields, for all tasks.
_ROWS = (".jsonl", ".json", ".parquet", ".xlsx")


def final_of(folder: Path) -> dict[str, Any]:
    """Return the evaluation of the model of the finished run in `folder`, from its ``scores.json``:
    its ``metrics``, whether it ``collapsed`` to one answer; empty if there were no validation
    examples. A run that is already finished is not evaluated again."""
    file = folder / "scores.json"
    final = read_json_object(file, lenient=True).get("final")
    if not isinstance(final, dict) or not isinstance(final.get("metrics", {}), dict):
        raise BertineError(f"{file}: damaged; remove the folder and train again")
    return final


def saved_of(folder: Path) -> str:
    """Describe which weights the model of the finished run in `folder` has; "" for runs of earlier
    versions of Bertine, which did not record it."""
    return str(read_json_object(folder / "scores.json", lenient=True).get(SAVED, ""))


def seen_of(folder: Path) -> int:
    """Return how many of the validation examples the initial model of the finished run in `folder`
    had been trained on."""
    return int(read_json_object(folder / "scores.json", lenient=True).get(SEEN, 0))


def write_page(folder: Path) -> None:
    """Write ``report.html`` into the folder of a finished run. A page that cannot be written causes
    only a warning, because the model exists. Only the first of several processes writes."""
    if not is_main():
        return
    try:
        report(folder)
    except BertineError as error:
        logger.warning(f"no report was written: {error}")


def next_lines(out: Path | str, *, python: bool = False) -> list[str]:
    """List the next steps after a finished run: its page, and commands, or with `python` calls of
    its ``learner``; empty if `out` is not the folder of a single run."""
    folder = Path(out)
    if not (folder / "model" / TASK).is_file():
        return []
    info = TaskInfo.read(folder / "model" / TASK)
    name = shlex.quote(str(out))
    page = [f"report: {folder / REPORT}"] if (folder / REPORT).is_file() else []
    if python:
        first, *more = shlex.split(_example(info))
        return [
            *page,
            "next:",
            f"  learner.predict([{(first, *more) if more else first!r}])",
            '  learner.validate("FILE")',
            "  learner.top_losses()",
            f"  learner = bertine.open_learner({str(run_of(folder))!r})  # in another process",
        ]
    return [
        *page,
        "next:",
        f"  bertine predict {name} {_example(info)}",
        f"  bertine predict {name} --input new{_suffix(info)} --output answered{_suffix(info)}",
        f"  bertine evaluate {name} --data FILE",
        f"  bertine serve {name}",
    ]


def run_of(folder: Path) -> Path:
    """Return the folder of the first run of a learner: that in which `folder` is one of its fits,
    else `folder` itself."""
    is_fit = _FIT.fullmatch(folder.name) and (folder.parent / "run.json").is_file()
    return folder.parent if is_fit else folder


def _suffix(info: TaskInfo) -> str:
    """Return the suffix of a file to answer: that of the training data, if it identifies the
    format."""
    suffix = Path(str(info.training.get("data_path", ""))).suffix.lower()
    known = (".csv", ".tsv", *_ROWS)
    if TASKS[info.name].reader == "words":
        known = (".conll", ".csv", *_ROWS)
    return suffix if suffix in known else known[0]


def _example(info: TaskInfo) -> str:
    """Return example texts for the command line in the form that the task takes."""
    pair = len(info.text_columns) > 1
    return TASKS[info.name].example or ('"a text" "its second text"' if pair else '"a text"')


#: The number of findings shown at the end of the command; the report has all.
_SHOWN = 3


@dataclass(frozen=True)
class Provenance:
    """The origin of a run: how to read its examples again, and where its model computes.

    Attributes:
        task, data, config: how the run read its examples; `data` None: they were in memory.
        fingerprint: of the validation examples; "": it is not known.
        train_fingerprint: of the training examples.
        device: a PyTorch device name; None: the GPU if there is one.
        precision: ``"auto"``, ``"fp32"`` or ``"bf16"``.
    """

    task: str
    data: Data | DatasetSplits | None
    config: DataConfig
    fingerprint: str
    train_fingerprint: str
    device: str | None
    precision: Precision


@dataclass(repr=False)
class Learner(Shown):
    """The result of a fine-tuning run: validate it, inspect its errors, train on, predict, save.

    A learner is light: the model is loaded from its directory, and the validation examples are read
    again, at their first use. It is therefore the same whether the run has just ended, was resumed,
    was already finished, or is opened by another process (:func:`bertine.open_learner`).

    Attributes:
        model: the model directory; for all of GLUE, the folder with a run for each task.
        scores: the metrics on the validation examples after each epoch, with ``step``.
        report: the evaluation of the model in `model`; None if the run was already finished, and in
            all processes but the first.
        elapsed: seconds of training, evaluation not counted.
        metric_names: the metrics by which the task is judged.
        runs: for all of GLUE, the learner of each task by its name.
        final: the metrics of the model in `model` on the validation examples; empty for all of
            GLUE.
        baselines: the scores of the task's baselines on the same examples.
        saved: which weights the model has, in words, such as "saved: the last epoch (12)".
        origin: None for all of GLUE: each task's learner is in `runs`.
    """

    model: Path
    scores: list[dict[str, Any]]
    report: EvaluationReport | None
    elapsed: float
    metric_names: tuple[str, ...] = ()
    runs: Mapping[str, Learner] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)
    baselines: tuple[BaselineScore, ...] = ()
    saved: str = ""
    origin: Provenance | None = field(default=None, repr=False, compare=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the final model on the validation examples."""
        return dict(self.final if self.report is None else self.report.metrics)

    @property
    def score(self) -> float:
        """The mean of the metrics by which the task is judged: for a task of GLUE, its score; for
        all of GLUE, the average over the tasks."""
        return official_score(self.metrics, self.metric_names)

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        return self._lines(self._findings())

    def shown_lines(self) -> list[str]:
        """Return :meth:`lines`, and the next steps, as Python calls and not as commands."""
        steps = [] if self.runs else next_lines(self.model.parent, python=True)
        return [*self._lines(self.findings), *steps]

    def _lines(self, findings: Sequence[Finding]) -> list[str]:
        lines = self.report.lines() if self.report is not None else []
        if self.report is None and self.final:  # the run was already finished
            scores = ", ".join(f"{name} {value:.4f}" for name, value in self.final.items())
            lines.append(f"on the validation examples: {scores}")
        if len(self.metric_names) > 1 and self.metrics:
            lines.append(f"score: {self.score:.4f}, the mean of {' and '.join(self.metric_names)}")
        return [
            *lines,
            *baseline_lines(self.metrics, self.metric_names, self.baselines),
            *(str(finding) for finding in findings[:_SHOWN]),
            f"trained in {human_time(self.elapsed)}",
            *([self.saved] if self.saved else []),
            f"model: {self.model}",
        ]

    def next_lines(self) -> list[str]:
        """Return the path of the page, and the commands to run next; empty for all of GLUE."""
        return [] if self.runs else next_lines(self.model.parent)

    @property
    def findings(self) -> list[Finding]:
        """The diagnosis of the run, most serious finding first; empty if there are none. Each
        finding has the next call in ``command``."""
        return [finding.for_python() for finding in self._findings()]

    def _findings(self) -> list[Finding]:
        folder = self.model.parent
        if self.runs or not (folder / "run.json").is_file():
            return []
        files = RunFolder.read(folder)
        return diagnose(files.log, files.facts())

    @cached_property
    def predictor(self) -> Predictor:
        """The model, ready to predict: ``learner.predictor.save("my-model")`` stores a copy.

        Raises:
            BertineError: the learner is that of all of GLUE; the model directory no longer exists.
        """
        origin = self._one()
        return Predictor.load(self.model, origin.device, origin.precision)

    def fit(
        self,
        epochs: int,
        learning_rate: float,
        *,
        schedule: ScheduleName = "linear",
        resume: bool = False,
        **options: Any,
    ) -> Learner:
        """Train on from where the weights stand, on the same training examples.

        A fit is a run of its own, with model, log and page, in the folder of the first run:
        ``fit-2``, then ``fit-3`` and so on. What takes the first run's folder takes the model of
        the last fit, and this learner is that of the last fit too. The optimizer begins anew, and
        so does a head that cannot be trained on: that of a regression, whose weights hold the scale
        of the scores, and one that was fitted alone, with the encoder as it was before that.

        Args:
            epochs, learning_rate, schedule: as for :func:`bertine.finetune`.
            resume: go on with this fit if it was stopped; if it is finished, open it.
            options: further options of training, as for ``finetune``: ``batch_size``,
                ``warmup_ratio``, ``patience``, ``freeze_layers`` and others. What is not given is
                as in the run before, but for the warm-up, the seed, which is the next one,
                ``frozen``, and ``baselines``, which are those of the first run.

        Returns:
            This learner.

        Raises:
            BertineError: the learner is that of all of GLUE, of ``distill`` or of ``few_shot``;
                there is such a fit already, and `resume` is False; what ``finetune`` raises.
        """
        origin, folder = self._one(), self.model.parent
        start = RunFolder.read(folder).start
        before = start.get("arguments", {})
        if "verb" in start:
            raise BertineError(f"{folder}: is of {start['verb']}; fit goes on with finetune's runs")
        first = run_of(folder)
        number = 2 if first == folder else int(folder.name.removeprefix("fit-")) + 1
        out = first / f"fit-{number}"
        if (out / "run.json").exists() and not resume:
            raise BertineError(
                f"{out}: holds this fit already; {option('resume', True)} goes on with it, "
                f"bertine.open_learner({str(first)!r}) after it, and without its folder it is done "
                "again"
            )
        model: Path | str = self.model
        if TaskInfo.read(self.model / TASK).training.get("frozen"):
            model = RunFolder.read(folder).settings["model_path"]
            logger.info(
                f"{self.model}: is a head fitted alone, on the encoder as it was; the encoder is "
                "trained now, with a new head"
            )
        kept = {name: value for name, value in before.items() if name not in _NOT_AGAIN}
        kept |= {"baselines": False, "seed": int(before.get("seed", 0)) + 1, "schedule": schedule}
        fitted = implementation(_FINETUNE)(
            origin.task,
            model=model,
            data=replace(self._labelled, again=True),
            out=out,
            epochs=epochs,
            learning_rate=learning_rate,
            resume=resume,
            **{**kept, **options},
        )
        self.__dict__ = vars(fitted)
        return self

    def plot(self) -> Curves:
        """Return the curves of the run, after a fit those of the fit: losses, scores, rates; a
        notebook draws them. They are also on the run's page, ``report.html``."""
        files = RunFolder.read(self.model.parent)
        return Curves(finetuning_curves(files.log, files.facts()), files.path / REPORT)

    def predict(self, texts: Sequence[Text]) -> list[Any]:
        """Return answers for texts; see :meth:`Predictor.predict`."""
        return self.predictor.predict(texts)

    @with_options_of(evaluate, but=frozenset({"model", "device", "precision", "show_progress"}))
    def validate(
        self,
        data: Path | str | TableLike | None = None,
        *,
        class_names: Sequence[str] | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Evaluate the model on labelled examples, and return the report.

        Args:
            class_names: the labels in the order in which the tables have them; of labels that are
                numbers their names, that of 0 first.
            data: a file or a folder, as for :func:`~bertine.evaluate`; None: the validation
                examples of the run. If these were used for a choice (of a rate, an epoch), evaluate
                on other examples.
            options: how `data` is read, as for `evaluate`.

        Raises:
            BertineError: the learner is that of all of GLUE; the examples of the run have changed
                since; options for reading are given without `data`; `class_names` are not the
                labels, or the task has none; what `evaluate` raises.
        """
        if class_names is not None:
            report = self.validate(data, **options)
            if not isinstance(report, ClassificationReport):
                raise BertineError("class_names are for tasks with one label; leave them out")
            return report.named(class_names)
        if data is not None:
            return evaluate(self.predictor, data, show_progress=False, **options)
        usual = inspect.signature(evaluate).parameters
        for name, value in options.items():
            if value != usual[name].default:
                raise BertineError(
                    f"{name} is given, but no data; the run's own are read as in training"
                )
        return self._validation_report

    def top_losses(self, n: int = 10, data: str = "validation") -> list[WorstExample]:
        """List the `n` worst predicted examples, highest loss first. They show what the model has
        not learned, and often have wrong labels.

        Args:
            n: how many.
            data: ``"validation"`` or ``"train"``: which examples of the run. A model that has
                memorized its training examples, including wrong labels, finds few wrong labels
                there.

        Returns:
            Each has ``place`` (file and line), ``texts``, ``label``, ``answer``, ``loss`` and, for
            tasks with one label, ``label_probability``.

        Raises:
            BertineError: the learner is that of all of GLUE; the examples of the run have changed
                since; `n` is below 1; `data` is something else.
        """
        if n < 1:
            raise BertineError(f"n is {n}, but must be at least 1")
        if data not in ("validation", "train"):
            raise BertineError(f"data is {data!r}, but must be 'validation' or 'train'")
        labelled = self._labelled
        examples = labelled.train if data == "train" else labelled.validation
        if data == "train" and examples.fingerprint() != self._one().train_fingerprint:
            raise BertineError(
                f"{examples.source}: the training examples have changed since the run; list them "
                "with bertine.evaluate(model, data, worst=n).worst"
            )
        return WorstExamples(worst_examples(self.predictor, examples, n)[0])

    def _one(self) -> Provenance:
        if self.origin is None:
            names = ", ".join(self.runs)
            raise BertineError(
                f"{self.model}: holds a run for each task of GLUE; take the learner of one, "
                f"runs[NAME] ({names})"
            )
        return self.origin

    @cached_property
    def _labelled(self) -> DatasetSplits:
        origin = self._one()
        if origin.data is None:
            raise BertineError(
                "the examples of the run were in memory; give them: "
                f"bertine.open_learner({str(run_of(self.model.parent))!r}, data=…)"
            )
        labelled = splits_of(origin.task, origin.data, origin.config)
        if origin.fingerprint not in ("", labelled.validation.fingerprint()):
            raise BertineError(
                f"{labelled.validation.source}: the validation examples have changed since the "
                "run; give the data to judge on"
            )
        return labelled

    @cached_property
    def _validation_report(self) -> EvaluationReport:
        if self.report is not None:
            return self.report
        if not len(self._labelled.validation):
            raise BertineError("the run had no validation examples; give the data to judge on")
        sets = {"": self._labelled.validation, **self._labelled.others}
        return evaluate_sets(self.predictor, sets, show_progress=False)
