"""Distil a model on the texts of a task: train a small model to answer as a large one does."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors.numpy import save_file

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file, read_json_object, write_json
from bertine.core.foreign_files import open_tensors
from bertine.core.model_folders import recorded_model
from bertine.core.names import option
from bertine.corpora.batch import FeatureBatches
from bertine.data.examples import KNOWN, count_known
from bertine.data.in_memory import Data
from bertine.datasets.transfer_set import TransferSet, read_transfer_set
from bertine.inference.train_overlap import rows_known_by
from bertine.objectives.distillation import MapLosses, check_stages, teacher_of
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.distillation import DistillOptions
from bertine.options.finetuning import FinetuneOptions
from bertine.reports.run_files import START
from bertine.tasks.distilled import DistilledFeature, DistilledTask, collate_distilled
from bertine.training.computing import Computing, computing_of_run
from bertine.training.defaults import TrainingPlan, usual_plan
from bertine.training.distillation.student import StudentPlan
from bertine.training.distillation.teacher_on_task import (
    Distilled,
    StagedFeatures,
    TeacherComparison,
    compare,
    config_of,
    labelled_by,
    load_student,
    open_teacher,
    plan_for,
    seen_by_teacher,
    task_maps,
    why_teacher_judges,
    with_labels,
)
from bertine.training.distillation.teachers import (
    FileTeacher,
    ModelTeacher,
    StudentInputs,
    Teacher,
    maps_facts,
    part_of,
    warn_ignored_options,
)
from bertine.training.distributed import DistContext
from bertine.training.finetuning.finetune import as_json
from bertine.training.finetuning.learner import write_page
from bertine.training.finetuning.run import SCORES, read_learner, train
from bertine.training.finetuning.setup import Prepared, check_examples, fitting
from bertine.training.run_folder import Run

# Answers: the teacher's outputs are computed once and kept in the run's folder, so that a resumed
# run learns from exactly the same ones, even with another number of cores.

#: The file of the answers in a run's folder.
TEACHER_PARTS = "teacher.safetensors"


def cached_answers(
    folder: Path, fingerprint: str, count: int, compute: Callable[[], list[np.ndarray]]
) -> list[np.ndarray]:
    """Return the answers in the `folder` of a run; compute and write them if they are missing.

    Args:
        fingerprint: of the teacher and the examples.
        count: the number of answers.
        compute: computes them: fp32 arrays of the same shape, except for the first size of those
            with two or more.

    Raises:
        BertineError: the file is damaged, or contains other answers.
    """
    file = folder / TEACHER_PARTS
    if file.is_file():
        return _read(file, fingerprint, count)
    answers = compute()
    _write(file, fingerprint, answers)
    return answers


def _write(file: Path, fingerprint: str, answers: Sequence[np.ndarray]) -> None:
    sizes = np.array([len(a) if a.ndim > 1 else 1 for a in answers], dtype=np.int64)
    inner = answers[0].shape[1:] if answers[0].ndim > 1 else answers[0].shape
    flat = np.concatenate([np.asarray(a, np.float32).reshape(-1) for a in answers])
    tensors = {
        "outputs": flat,
        "sizes": sizes,
        "shape": np.array(inner, dtype=np.int64).reshape(-1),
        "by_token": np.array([answers[0].ndim > 1], dtype=np.int64),
    }
    with atomic_file(file) as path:
        save_file(tensors, path, metadata={"fingerprint": fingerprint})


def _read(file: Path, fingerprint: str, count: int) -> list[np.ndarray]:
    advice = "remove it to ask the teacher again"
    with open_tensors(file, "np", advice) as content:
        known = (content.metadata() or {}).get("fingerprint")
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        sizes, inner = tensors["sizes"].tolist(), tuple(tensors["shape"].tolist())
        by_token, width = bool(tensors["by_token"][0]), math.prod(inner)
        if known != fingerprint or len(sizes) != count or min(sizes) < 1:
            raise BertineError(f"{file}: is of another teacher or other examples; {advice}")
        parts = np.split(tensors["outputs"], np.cumsum(sizes)[:-1] * width)
        return [
            part.reshape((size, *inner) if by_token else inner)
            for part, size in zip(parts, sizes, strict=True)
        ]


#: The key of ``scores.json`` for the teacher.
TEACHER = "teacher"


def distill_on_task(
    data: Data, out: Path | str, options: DistillOptions, world: DistContext
) -> Distilled:
    """Train a student on texts of its teacher's task; see :func:`bertine.distill`.

    Raises:
        BertineError: there is neither a teacher nor a file of probabilities, or both; they and the
            texts do not fit together; what reading and training raise.
    """
    world.alone(lambda: Run.check(out, options.resume))
    distillation = _TaskDistillation.begin(data, out, options, world)
    prepared, config = distillation.prepared, distillation.config
    settings = distillation.settings()
    with Run.open(out, settings, options.resume, world=world) as run:
        if run.finished:
            learner = read_learner(prepared, config, run, world)
        else:
            world.alone(lambda: write_json(run.folder / START, distillation.start()))
            prepared = distillation.with_answers(run.folder)
            learner = train(prepared, config, run, settings, world)
        # A run may have been killed just before this.
        comparison = TeacherComparison.read(world.alone(lambda: distillation.comparison(run)))
    write_page(learner.model.parent)
    return Distilled(**vars(learner), teacher=comparison)


@dataclass
class _TaskDistillation:
    """The preparation of a run of :func:`distill_on_task`.

    Attributes:
        teacher: of the student.
        data: the examples; those for validation have labels, which may be the teacher's answers.
        features: of the training examples, for the student.
        label_weight: of the labels; 0 if no training example has one.
        judged_by_teacher, seen: see
            :class:`~bertine.training.distillation.teacher_on_task.TeacherComparison`.
        maps: the terms on hidden and attention maps.
        prepared: for fine-tuning, from the examples with labels; the batches are added by
            :meth:`with_answers`.
        on_disk: whether the examples are those of a file.
        split_seed: the seed of the held-out split, if the user does not give one.
    """

    options: DistillOptions
    tuning: FinetuneOptions
    computing: Computing
    world: DistContext
    teacher: Teacher
    plan: StudentPlan
    data: TransferSet
    data_path: str
    prepared: Prepared
    features: Sequence[Any]
    label_weight: float
    judged_by_teacher: bool
    seen: int
    maps: MapLosses | None
    weights_fingerprint: str
    on_disk: bool
    split_seed: int

    @classmethod
    def begin(
        cls, data: Data, out: Path | str, options: DistillOptions, world: DistContext
    ) -> _TaskDistillation:
        """Read teacher, student and examples; print a description of them."""
        where = world.device
        if options.progressive_steps is not None:
            world.require_one(option("progressive_steps"))
        tuning = part_of(FinetuneOptions, options, baselines=False, frozen=False)
        config = DataConfig.of(tuning, DEFAULTS)
        teacher = open_teacher(data, options, config)
        logger.info(teacher.line())
        plan = plan_for(config_of(teacher), options)
        seed = options.seed
        if isinstance(teacher, ModelTeacher):
            # Examples that were held out when the teacher was trained are held out again.
            seed = teacher.split_seed(seed)
        known = teacher.known
        if plan.folder is not None:
            known |= rows_known_by(plan.folder)
        begun = Run.begun(out) if options.resume else None
        rows = known if begun is None or KNOWN in begun else frozenset()
        config = DataConfig.of(config, known_rows=rows, seed=seed)
        read = read_transfer_set(teacher.task, data, config)
        if isinstance(teacher, FileTeacher):
            teacher = teacher.fit(read)
        label_weight = options.label_weight
        num_labelled = sum(item.label is not None for item in read.train.items)
        judged_by_teacher = bool(read.validation.items) and read.validation.items[0].label is None
        if judged_by_teacher:
            read = labelled_by(teacher, read)
        if not num_labelled:
            if label_weight == 1:
                raise BertineError(
                    f"{option('label_weight', 1)} learns from labels alone, but no training "
                    "example has one; leave it out"
                )
            label_weight = 0.0
        elif num_labelled < len(read.train):
            alone = "are learned from the teacher alone" if label_weight < 1 else "are not used"
            logger.info(
                f"{len(read.train) - num_labelled:,} of {len(read.train):,} training examples have "
                f"no label, and {alone}"
            )
        student = options.student if plan.folder is None else plan.folder
        wished = teacher.task.max_length if options.max_length is None else options.max_length
        length = fitting(wished, str(student or options.teacher), plan.config)
        task = teacher.task.as_student(read.train, length)
        loaded = load_student(plan, teacher, task, options)
        loaded.model.to(where)
        logger.info(plan.line(config_of(teacher)))
        features = task.featurize(read.train, loaded.tokenizer)
        held = task.featurize(read.validation, loaded.tokenizer)
        others = {
            word: task.featurize(examples, loaded.tokenizer)
            for word, examples in read.others.items()
        }
        maps = task_maps(options, plan, teacher, task, loaded)
        reasons = {}
        if not num_labelled:
            reasons["label_weight"] = "no training example has a label"
        if task.numeric:
            reasons["temperature"] = "scores are compared as they are"
        elif label_weight == 1:
            reasons["temperature"] = f"{option('label_weight', 1)} learns from labels alone"
        warn_ignored_options(options, plan, config_of(teacher), reasons)
        labelled, own = with_labels(read.train, features)
        look = check_examples(task, read, features, held, loaded, (labelled, own))
        tuned = TrainingPlan.of(tuning, loaded.config, len(read.train), task)
        seen = 0 if judged_by_teacher else count_known(read.validation.items, known)
        if seen:
            logger.warning(seen_by_teacher(seen, len(read.validation)))
        if judged_by_teacher:
            logger.info(why_teacher_judges(read, num_labelled))
        tuned.say(len(read.train))
        if tuned.save_best and not held:
            raise BertineError("without validation examples there is no best epoch to save")
        prepared = Prepared(
            task,
            loaded,
            str(student or options.teacher),
            # The teacher's answers are no labels, so calibration by them would be wrong.
            FinetuneOptions.of(tuning, calibrate=tuning.calibrate and not judged_by_teacher),
            dataclasses.replace(read, train=labelled),
            own,
            held,
            others,
            tuned,
            FeatureBatches(
                features,
                lambda chosen: task.collate(chosen, loaded.tokenizer.pad_token_id),
                batch_size=tuned.batch_size,
                seed=options.seed,
            ),
            look,
            unlabelled=[item for item in read.train.items if item.label is None],
        )
        return cls(
            options,
            tuning,
            computing_of_run(
                out, tuning.precision, tuning.resume, loaded.model, world, prepared.batch_tokens
            ),
            world,
            teacher,
            plan,
            read,
            str(data),
            prepared,
            features,
            label_weight,
            judged_by_teacher,
            seen,
            maps,
            loaded.model.fingerprint(),
            isinstance(data, str | Path),
            seed,
        )

    @cached_property
    def config(self) -> Any:
        """The settings of the training loop."""
        epoch, device = self.prepared.batches.steps_per_epoch, self.world.device
        return self.prepared.plan.config(self.tuning, epoch, device, self.computing.precision)

    def settings(self) -> dict[str, Any]:
        """Return the settings of the run."""
        prepared, options = self.prepared, self.options
        info = prepared.task.task_info()
        facts = {
            "temperature": options.temperature,
            "label_weight": self.label_weight,
            "layers": None if self.plan.layers is None else list(self.plan.layers),
            "progressive_steps": options.progressive_steps,
            **({} if self.maps is None else maps_facts(self.maps)),
        }
        settings = {
            "task": info.dataset or info.name,
            "data_path": self.data_path,
            **recorded_model(options.student or self.teacher.name, sizes=True),
            **recorded_model(self.teacher.name, "teacher"),
            "teacher_fingerprint": self.teacher.fingerprint,
            "num_examples": len(self.data.train),
            "num_labelled": len(prepared.data.train),
            "examples_fingerprint": self.data.train.fingerprint(),
            "weights_fingerprint": self.weights_fingerprint,
            "device": self.world.device.type,
            "labels_and_columns": dataclasses.asdict(info),
            "epochs": prepared.plan.epochs,
            "batch_size": prepared.plan.batch_size,
            "dropout": options.dropout,
            "save_best": prepared.plan.save_best,
            "distillation": facts,
            **self.config.settings(),
            **self.computing.facts,
        }
        if prepared.known_rows:
            settings[KNOWN] = len(prepared.known_rows)
        if self.data.held_out and self.split_seed != options.seed:
            settings["split_seed"] = self.split_seed
        return settings | self.tuning.recorded()

    def start(self) -> dict[str, Any]:
        """Return the content of ``start.json``: the arguments as they were given."""
        prepared = self.prepared
        arguments = {
            name: as_json(value)
            for name, value in self.options.changed().items()
            if name not in ("resume",)
        }
        return {
            "verb": "distill",
            "arguments": {**({"data": self.data_path} if self.on_disk else {}), **arguments},
            "constant_loss": None,
            **usual_plan(prepared.loaded.config, len(self.data.train), prepared.task),
        }

    def with_answers(self, folder: Path) -> Prepared:
        """Compute the teacher's answers, or read them from the `folder` of the run; return the run
        with its batches and its loss."""
        prepared, options, train = self.prepared, self.options, self.data.train
        tokenizer = prepared.loaded.tokenizer
        what = hashlib.sha256(self.teacher.fingerprint.encode())
        what.update(train.fingerprint().encode())
        inputs = StudentInputs(prepared.task, train, self.features, prepared.loaded)
        what.update(f"{prepared.task.max_length} {tokenizer.fingerprint}".encode())

        def answers() -> list[Any]:
            return cached_answers(
                folder, what.hexdigest(), len(self.features), lambda: self.teacher.outputs(inputs)
            )

        if self.world.size > 1:  # the first one computes, all of them read
            self.world.alone(lambda: len(answers()))
        outputs = answers()
        task = prepared.task.as_student(train, prepared.task.max_length, outputs)
        items = train.items
        answered = [
            DistilledFeature(
                task.with_some_target(feature), output, items[feature.row].label is not None
            )
            for feature, output in zip(self.features, outputs, strict=True)
        ]
        kind = FeatureBatches[Any]
        batches = kind(
            answered,
            collate_distilled(task, tokenizer.pad_token_id),
            batch_size=prepared.plan.batch_size,
            seed=options.seed,
        )
        if options.progressive_steps is not None:
            layers = self.plan.config.num_hidden_layers
            steps = prepared.plan.epochs * batches.steps_per_epoch
            check_stages(options.progressive_steps, layers, steps)
            batches = StagedFeatures(batches, options.progressive_steps, layers)
        teacher = None
        if self.maps is not None:
            teacher = teacher_of(cast(ModelTeacher, self.teacher).model).to(self.world.device)
        loss = DistilledTask(task, self.label_weight, options.temperature, self.maps, teacher)
        self.prepared = dataclasses.replace(
            prepared, task=task, batches=batches, loss=loss, title="distill"
        )
        return self.prepared

    def comparison(self, run: Run) -> dict[str, Any]:
        """Return the teacher's part of ``scores.json``; if it is missing, judge the teacher,
        measure both, and write it."""
        file = run.folder / SCORES
        known = read_json_object(file, lenient=True)
        if TEACHER not in known:
            known[TEACHER] = compare(
                self.teacher,
                run.model,
                self.data,
                judged_by_teacher=self.judged_by_teacher,
                seen=self.seen,
                labelled=len(self.prepared.data.train),
                device=self.options.device,
                precision=self.options.precision,
            ).to_dict()
            write_json(file, known)
        values: dict[str, Any] = known[TEACHER]
        return values
