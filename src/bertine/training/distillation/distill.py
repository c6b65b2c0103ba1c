"""Distil a large model into a smaller one: ``distill``, and distillation on a token store.

On a token store a language model learns from a larger one (Sanh et al. 2019).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertine.core.console import Shown, human_count, log_all, logger
from bertine.core.contrib import registered
from bertine.core.errors import BertineError
from bertine.core.model_folders import recorded_model
from bertine.core.names import DistillKind, InputFormat, implementation, option
from bertine.core.text import listing
from bertine.corpora.batch import Batch
from bertine.corpora.collators import TokenMasking, rarer_first
from bertine.corpora.store import TokenStore, is_store
from bertine.data.in_memory import TableLike, as_data
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.models.heads import Model
from bertine.objectives import check_family, check_format, objective
from bertine.objectives.distillation import (
    COSINE,
    HIDDEN,
    DistilledMlm,
    MapLosses,
    StagedBatches,
    check_maps,
    check_stages,
    teacher_of,
)
from bertine.objectives.losses import Loss, Objective
from bertine.options.distillation import DistillOptions, LmOptions
from bertine.options.pretraining import PretrainOptions
from bertine.options.verbs import takes_options
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.distillation.on_task import distill_on_task
from bertine.training.distillation.on_vectors import distill_on_vectors
from bertine.training.distillation.student import (
    StudentPlan,
    add_projections,
    make_student,
    plan_student,
)
from bertine.training.distillation.teacher_on_task import Distilled
from bertine.training.distillation.teachers import (
    map_losses,
    maps_facts,
    part_of,
    warn_ignored_options,
)
from bertine.training.distributed import DistContext, all_ranks, join
from bertine.training.pretraining.pretrain import check_options
from bertine.training.pretraining.result import PretrainResult
from bertine.training.pretraining.run import PretrainSetup, train_on_store
from bertine.training.run_folder import Run
from bertine.training.similarity.fitting import SimilarityResult

#: The default format of the sequences: the published code cuts running text.
_FORMAT: InputFormat = "full-sentences"


def distill_on_store(
    store: Path | str, out: Path | str, options: DistillOptions, world: DistContext
) -> PretrainResult:
    """Train a student on a token store together with its teacher; see :func:`bertine.distill`.

    Raises:
        BertineError: there is no teacher, it has no MLM head or another vocabulary than the store
            or the student; things are to be compared that cannot be; what pre-training raises.
    """
    began = time.monotonic()
    world.alone(lambda: Run.check(out, options.resume))
    if options.teacher is None:
        raise BertineError(
            f"{store}: is a token store, on which a student learns from a model; name it with "
            f"{option('teacher')}"
        )
    inner = objective(options.objective)
    pretraining = part_of(PretrainOptions, options)
    check_options(pretraining, inner)
    if options.progressive_steps is not None:
        world.require_one(option("progressive_steps"))
    loaded = _loaded_teacher(options.teacher)
    plan = plan_student(
        loaded.config, options.student, options.layers, fresh_weights=options.fresh_weights
    )
    check_family(inner, plan.config)
    if "mlm" not in inner.heads(plan.config):
        raise BertineError(
            f"objective {inner.name} guesses no masked words with the student's own head, so there "
            f"is nothing to put soft targets beside; use {option('objective', 'mlm')}"
        )
    input_format = options.input_format or (
        _FORMAT if _FORMAT in inner.formats else inner.formats[0]
    )
    check_format(inner, input_format)
    distillation = _StoreDistillation(options, loaded, plan, inner)

    def begin(opened: TokenStore, tokenizer: Tokenizer) -> PretrainSetup:
        distillation.check(opened, tokenizer)
        odds = None
        if options.mask_smoothing:
            odds = rarer_first(opened.unigram_counts, options.mask_smoothing)
        return PretrainSetup(
            inner,
            input_format,
            partial(TokenMasking, odds=odds),
            distillation.student,
            str(options.student or options.teacher),
            fresh=plan.layers is None and plan.folder is None,
            loss=distillation.loss,
            batches=distillation.batches if options.progressive_steps else None,
            facts=distillation.facts(),
            title="distill",
        )

    return train_on_store(store, out, pretraining, begin, world=world, began=began)


def _loaded_teacher(folder: Path | str) -> LoadedModel:
    loaded = load_model(folder)
    if "mlm" not in loaded.model.heads:
        raise BertineError(
            f"{folder}: has no MLM head, so it holds no words likely that a student could learn "
            "from; give a pre-trained model (a fine-tuned one teaches on texts of its task)"
        )
    teacher_of(loaded.model)
    return loaded


@dataclass
class _StoreDistillation:
    """The teacher, the plan of the student, and the terms of the loss of a distillation on a
    store."""

    options: DistillOptions
    loaded_teacher: LoadedModel
    plan: StudentPlan
    inner: Objective
    mlm_weight: float = 0.0
    cosine_weight: float = 0.0
    maps: MapLosses | None = None

    def __post_init__(self) -> None:
        options, ours, theirs = self.options, self.plan.config, self.loaded_teacher.config
        if ours.vocab_size > theirs.vocab_size:
            raise BertineError(
                f"{options.student}: has a vocabulary of {ours.vocab_size}, but the teacher "
                f"{options.teacher} one of {theirs.vocab_size}; both must have the same"
            )
        asked = options.mlm_weight
        self.mlm_weight = LmOptions().mlm_weight if asked is None else asked
        self.cosine_weight = options.cosine_weight
        same = ours.hidden_size == theirs.hidden_size
        if self.cosine_weight and not same and not options.cosine_projection:
            logger.info(
                f"the cosine of the last states is left out: the student's have "
                f"{ours.hidden_size} numbers, the teacher's {theirs.hidden_size} "
                f"({option('cosine_projection', True)} learns a layer between them)"
            )
            self.cosine_weight = 0.0
        self.maps = map_losses(options, self.plan, theirs)
        warn_ignored_options(options, self.plan, theirs, self._unused(same))
        weights = (options.soft_weight, self.mlm_weight, self.cosine_weight)
        if not any(weights) and self.maps is None:
            raise BertineError("all weights are 0, so there is nothing to learn")

    def _unused(self, same_width: bool) -> dict[str, str]:
        """Return the options on soft targets and the cosine that have no effect, by name, with the
        reason."""
        reasons = {}
        if not self.options.soft_weight:
            why = f"{option('soft_weight', 0)} leaves out the soft targets"
            reasons = dict.fromkeys(("temperature", "soft_tokens"), why)
        if not self.options.cosine_weight:
            reasons["cosine_projection"] = f"{option('cosine_weight', 0)} leaves out the cosine"
        elif same_width:
            reasons["cosine_projection"] = "student and teacher have the same width"
        return reasons

    def check(self, store: TokenStore, tokenizer: Tokenizer) -> None:
        """Refuse a store of another vocabulary than the teacher's.

        Raises:
            BertineError: it has one.
        """
        if self.loaded_teacher.tokenizer.fingerprint != tokenizer.fingerprint:
            raise BertineError(
                f"{self.options.teacher}: the teacher's vocabulary is not that of the store "
                f"{store.path}; prepare the store with "
                f"{option('tokenizer', str(self.options.teacher))}"
            )

    def student(self) -> Model:
        """Build the student, with the projections that its loss terms need."""
        options, plan, teacher = self.options, self.plan, self.loaded_teacher.model
        logger.info(plan.line(self.loaded_teacher.config))
        if plan.folder is not None:
            heads = self.inner.heads(plan.config.with_dropout(options.dropout))
            loaded = load_model(
                plan.folder, heads=heads, seed=options.seed, dropout=options.dropout
            )
            if loaded.tokenizer.fingerprint != self.loaded_teacher.tokenizer.fingerprint:
                raise BertineError(
                    f"{plan.folder}: the student's vocabulary is not that of the teacher "
                    f"{options.teacher}; both must have the same"
                )
            log_all(loaded.report.lines())
            built = loaded.model
        else:
            built, _ = make_student(
                plan,
                teacher,
                self.inner.heads,
                seed=options.seed,
                dropout=options.dropout,
                token_types=options.token_types,
            )
        if self.maps is not None:
            check_maps(self.maps, built, teacher)
        names = [COSINE] if self.cosine_weight else []
        names += [HIDDEN] if self.maps is not None and self.maps.reads_states else []
        add_projections(built, teacher, names, options.seed)
        for name in self._frozen(built):
            built.get_parameter(name).requires_grad_(False)
        return built

    def _frozen(self, model: Model) -> frozenset[str]:
        """Return the names of the weights that are not trained."""
        parts = ["position_embeddings"] if self.options.freeze_positions else []
        parts += ["token_type_embeddings"] if self.options.freeze_token_types else []
        names = {f"backbone.embeddings.{part}.weight" for part in parts}
        missing = names - {name for name, _ in model.named_parameters()}
        if missing:
            part = sorted(missing)[0].split(".")[2].replace("_", " ")
            raise BertineError(f"the student has no {part}, so they cannot be frozen")
        return frozenset(names)

    def loss(self, model: Model, where: torch.device) -> Loss:
        """Return the loss; the teacher is moved to the student's device."""
        options = self.options
        return DistilledMlm(
            self.inner,
            self.loaded_teacher.model.to(where),
            soft_weight=options.soft_weight,
            mlm_weight=self.mlm_weight,
            cosine_weight=self.cosine_weight,
            temperature=options.temperature,
            soft_tokens=options.soft_tokens,
            maps=self.maps,
            frozen=self._frozen(model),
        )

    def batches(self, plain: Callable[[int], Batch], steps: int) -> Callable[[int], Batch]:
        """Return the batches of a run of `steps` steps, each with the stage that it belongs to.

        Raises:
            BertineError: the stages take all of the steps.
        """
        item, layers = self.options.progressive_steps, self.plan.config.num_hidden_layers
        assert item is not None
        check_stages(item, layers, steps)
        return StagedBatches(plain, item, layers)

    def facts(self) -> dict[str, Any]:
        """Return the facts about the teacher and the distillation for the run's settings."""
        options = self.options
        teacher = self.loaded_teacher.model
        logger.info(
            f"teacher: {self.loaded_teacher.config.title}, {human_count(teacher.num_parameters())} "
            f"parameters; it is not in the checkpoints, and must be there to resume"
        )
        return {
            **recorded_model(str(options.teacher), "teacher"),
            "teacher_fingerprint": teacher.fingerprint(),
            "mask_smoothing": options.mask_smoothing,
            "distillation": {
                "soft_weight": options.soft_weight,
                "mlm_weight": self.mlm_weight,
                "cosine_weight": self.cosine_weight,
                "temperature": options.temperature,
                "soft_tokens": options.soft_tokens,
                "layers": None if self.plan.layers is None else list(self.plan.layers),
                "freeze_positions": options.freeze_positions,
                "freeze_token_types": options.freeze_token_types,
                "progressive_steps": options.progressive_steps,
                **({} if self.maps is None else maps_facts(self.maps)),
            },
        }


# ``distill``: train a small model to give nearly the same outputs as a large one.


@takes_options()
@all_ranks
def distill(
    data: Path | str | TableLike | None = None,
    *,
    out: Path | str,
    kind: DistillKind | None = None,
    options: DistillOptions,
) -> PretrainResult | Distilled | SimilarityResult | Shown:
    """Train a small model (the student) to reproduce the outputs of a large one (the teacher).

    On a token store the student learns a language from a pre-trained teacher, and can be fine-tuned
    afterwards: soft targets, masked tokens, and the cosine of the last states (Sanh et al. 2019,
    DistilBERT). On texts of a task it learns that task from a fine-tuned teacher, or from a file of
    another model's answers; if texts have labels, these are used too. With the kind "vectors" it
    learns to give texts the vectors that its teacher, or a file, has for them. With `static` the
    result is a table with one vector for each piece of the vocabulary (model2vec of Minish Lab);
    the mean of a text's vectors replaces the teacher's vector.

    Args:
        data: a token store (``prepare``); or the texts of a task, with labels or without, as
            ``finetune`` takes them: a file, a folder with training and validation files, a table in
            memory. For vectors a table of texts; for a table of static vectors any texts, or None.
        out: the run's folder; the model directory is ``out/model``. For a table of static vectors
            the model directory itself.
        kind: what is learned: a language on a token store (lm), a task on its texts (task), a
            teacher's vectors of texts (vectors), or a table of static vectors; None: by the data,
            and `static`.
        options: the values of the other arguments.

    Returns:
        For a store a :class:`~bertine.training.pretraining.result.PretrainResult`; for a task a
        :class:`~bertine.training.distillation.teacher_on_task.Distilled`; for vectors a
        :class:`~bertine.training.similarity.fitting.SimilarityResult`; for a table of vectors a
        :class:`~bertine.contrib.static_vectors.distill.StaticResult`.

    Raises:
        BertineError: an option of the other kind of data is given; teacher and student do not fit
            together; what ``pretrain`` and ``finetune`` raise.
    """
    if kind is not None and kind not in options.kinds:
        raise BertineError(f"unknown kind {kind!r}; choose {listing([*options.kinds])}")
    others, changed = registered("DISTILL"), options.changed()
    switched = (other for other in others if getattr(options, other))
    chosen: str | None = kind or next(switched, None)
    if chosen is not None:
        options.refuse_others(chosen, changed, f"this is {chosen}")
    if chosen is not None and chosen in others:
        result: Shown = implementation(others[chosen]["distill"])(data, out, options)
        return result
    if data is None:
        hints = [f", or give {option(other)}, which needs the teacher alone" for other in others]
        raise BertineError(
            f"nothing to learn from; name a token store or texts of a task{''.join(hints)}"
        )
    world = join(options.device)
    student, teacher = (
        Run.model_of(out, getattr(options, part), options.resume, recorded)
        for part, recorded in (("student", "model"), ("teacher", "teacher"))
    )
    options = DistillOptions.of(options, student=student, teacher=teacher)
    data = as_data(data)
    store = Path(data) if isinstance(data, str | Path) and is_store(Path(data)) else None
    if kind is not None and (store is None) == (kind == "lm"):
        if isinstance(data, str | Path) and not Path(data).exists():
            raise BertineError(f"{data}: no such file or folder")
        raise BertineError(
            f"{data}: is a token store; the kind lm learns from it"
            if store is not None
            else f"{data}: is no token store; the kind task learns from texts"
        )
    if kind == "vectors":
        world.require_one("the kind vectors")
        return distill_on_vectors(data, out, options)
    if store is not None:
        options.refuse_others("lm", changed, f"this is lm: {data} is a token store")
        return distill_on_store(store, out, options, world)
    options.refuse_others("task", changed, f"this is task: {data} is no token store")
    return distill_on_task(data, out, options, world)
