"""Write the predictions for the GLUE leaderboard: its eleven files, zipped."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertine.core.console import Report, logger, plural
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.names import AnswerPrecision
from bertine.core.task_info import TaskInfo
from bertine.datasets.glue import GLUE, GlueTask, find_glue_test, glue_task_of, read_glue_test
from bertine.hub.model_directory import TASK, model_folder
from bertine.hub.weights import is_model_directory
from bertine.inference.predictor import Predictor
from bertine.options.verbs import check_types
from bertine.tasks.base import truncation_note
from bertine.tasks.unknown_text import UnknownText


@dataclass(repr=False)
class GlueSubmission(Report):
    """The files that :func:`glue_submission` wrote.

    Attributes:
        path: the zip file.
        files: the number of predictions of each file in it.
        missing: those of the eleven files that are not in it.
        notes: notes, e.g. on texts that were cut.
    """

    path: Path
    files: dict[str, int]
    missing: list[str]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [f"{name}: {plural(count, 'prediction')}" for name, count in self.files.items()]
        lines.extend(self.notes)
        if self.missing:
            lines.append(f"the leaderboard wants eleven files; missing: {', '.join(self.missing)}")
        return [*lines, f"submission: {self.path}"]


@check_types
def glue_submission(
    models: Sequence[Path | str] | Path | str,
    *,
    data: Path | str,
    out: Path | str,
    device: str | None = None,
    precision: AnswerPrecision = "auto",
) -> GlueSubmission:
    """Predict GLUE's test files and zip the answers in the format of the leaderboard: one file for
    each test set, with the header ``index<TAB>prediction`` and the label texts of the training
    files. A model for MNLI answers MNLI-m, MNLI-mm and, where its file exists, AX.

    Args:
        models: models by ``finetune glue``, or a folder with a run for each task, as ``--all``
            writes it.
        data: the folder with the tasks' folders, or the folder of the one task.
        out: the zip file, written completely or not at all.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"`` (as each model was trained), ``"fp32"`` or ``"bf16"``.

    Raises:
        BertineError: no model, a model that is not for GLUE, two models for one task; a test file
            that is missing, or has a row that cannot be read (each row needs a prediction).
    """
    chosen = _models([models] if isinstance(models, str | Path) else models)
    # All files are checked before the first model runs.
    tests: dict[str, list[tuple[str, Path, GlueTask]]] = {}
    for name in chosen:
        kinds = [GLUE[name], *([GLUE["AX"]] if name == "MNLI" else [])]
        tests[name] = [
            (written, path, kind)
            for kind in kinds
            for written, path in find_glue_test(data, kind, required=kind.name == name).items()
        ]
    _check_each_has_its_own(tests)
    texts: dict[str, str] = {}
    result = GlueSubmission(Path(out), {}, [])
    for name, folder in chosen.items():
        predictor = Predictor.for_scores(folder, device, precision)
        for written, path, kind in tests[name]:
            logger.info(f"{written}: {path} by {folder}")
            texts[written], count = _predicted(predictor, path, kind, written, result.notes)
            result.files[written] = count
    wanted = [written for kind in GLUE.values() for written in kind.test]
    result.missing = [written for written in wanted if written not in texts]
    with atomic_file(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for written in wanted:
            if written in texts:
                # A fixed date: the same predictions give the same bytes.
                entry = zipfile.ZipInfo(written, date_time=(1980, 1, 1, 0, 0, 0))
                archive.writestr(entry, texts[written], zipfile.ZIP_DEFLATED)
    return result


def _check_each_has_its_own(tests: dict[str, list[tuple[str, Path, GlueTask]]]) -> None:
    """Refuse one test file for two tasks: `data` is then the folder of one of them."""
    files: dict[Path, str] = {}
    for files_of_task in tests.values():
        for written, path, _ in files_of_task:
            if path in files:
                raise BertineError(
                    f"{path}: is it the test file for {files[path]} or for {written}? Name the "
                    "folder that holds the tasks' folders, or the model of the one task"
                )
            files[path] = written


def _predicted(
    predictor: Predictor, path: Path, task: GlueTask, written: str, notes: list[str]
) -> tuple[str, int]:
    """Return the text of the file `written` for the test file `path`, and its number of rows."""
    indices, examples = read_glue_test(path, task)
    predictions, features = predictor.run(examples)
    lines = ["index\tprediction"]
    clipped = 0
    for index, prediction in zip(indices, predictions, strict=True):
        if task.score_range:
            low, high = task.score_range
            score = min(max(prediction.score, low), high)
            clipped += score != prediction.score
            lines.append(f"{index}\t{score:.3f}")
        else:
            lines.append(f"{index}\t{prediction.label}")
    notes.extend(examples.notes)
    unknown = UnknownText.of(examples, features, predictor.tokenizer)
    for note in (truncation_note(features, predictor.task.max_length), unknown.note()):
        if note:
            notes.append(f"{path}: {note}")
    if clipped and task.score_range:
        low, high = task.score_range
        notes.append(f"{written}: {clipped} scores were clipped to {low:g} … {high:g}")
    return "\n".join(lines) + "\n", len(indices)


def _models(paths: Sequence[Path | str]) -> dict[str, Path]:
    """Return the model directories by the name of their GLUE task, in GLUE's order."""
    folders: list[Path] = []
    for path in map(Path, paths):
        runs = [] if is_model_directory(path) or (path / "run.json").exists() else _runs(path)
        folders.extend(runs or [model_folder(path)])
    models: dict[str, Path] = {}
    for folder in folders:
        info = TaskInfo.read(folder / TASK) if (folder / TASK).exists() else None
        task = glue_task_of(info.dataset if info else None)
        if task is None:
            raise BertineError(
                f"{folder}: was not fine-tuned on a task of GLUE; use 'bertine finetune glue'"
            )
        if task.name in models:
            raise BertineError(f"{models[task.name]} and {folder} are both for {task.name}")
        models[task.name] = folder
    return {name: models[name] for name in GLUE if name in models}


def _runs(path: Path) -> list[Path]:
    """Return the model directories of the runs in the folder `path`; an unfinished run is an
    error."""
    if not path.is_dir():
        return []
    return [model_folder(run) for run in sorted(path.iterdir()) if (run / "run.json").exists()]
