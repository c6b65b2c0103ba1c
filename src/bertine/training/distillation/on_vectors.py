"""Distil a model for sentence vectors: train a small one on what a teacher's vectors say of texts.

The student learns the direction of each vector (Reimers and Gurevych 2020, arXiv 2004.09813, with
the cosine in place of the squared error); how alike the texts of a batch are to each other, as a
distribution over these; and the masked words of some of the texts.

The teacher's vectors are computed or copied once, in parts of fp16, into the folder of the run.
They are read from disk, so that memory does not grow with the number of texts.

Shape legend: B texts of a batch, D numbers of a student's vector, E numbers of a teacher's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.console import logger, plural, progress
from bertine.core.contrib import kind_of_model
from bertine.core.errors import BertineError
from bertine.core.files import atomic_file, os_errors, scratch_dir
from bertine.core.model_folders import locate, recorded_model
from bertine.core.names import PairKind, option
from bertine.core.rng import generator
from bertine.corpora.batch import Batch
from bertine.corpora.collators import mask_tokens
from bertine.data.examples import find_splits
from bertine.data.in_memory import Data
from bertine.data.parquet import count_rows, is_parquet
from bertine.data.published import data_of_run
from bertine.data.tables import Table, TableRow
from bertine.data.text_pairs import PairRows
from bertine.hub.model_directory import LoadedModel, load_config, load_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.evaluate_vectors import SimilarityReport
from bertine.inference.embedding.vector_files import (
    VectorMetadata,
    open_vectors,
    vector_column,
    vectors_of,
)
from bertine.inference.embedding.vectors import unit
from bertine.models.config import Config
from bertine.models.config_file import SentenceModules, read_sentence_modules
from bertine.models.encoder import Encoded
from bertine.models.heads import Model, new_head
from bertine.models.layers import init_weights
from bertine.models.pooling import Pooling
from bertine.models.precision import seeded
from bertine.objectives.distillation import COSINE, PROJECTIONS, divergences, project
from bertine.objectives.losses import LossDefaults, Mlm, Term
from bertine.options.distillation import DistillOptions
from bertine.options.training import USUAL_RATE
from bertine.options.vectors import SimilarityOptions
from bertine.tasks.base import pad_features
from bertine.tasks.metrics import regression_scores
from bertine.training.defaults import rate_for
from bertine.training.distillation.student import StudentPlan, make_student
from bertine.training.distillation.teacher_on_task import as_loaded, plan_for
from bertine.training.distillation.teachers import part_of
from bertine.training.fit import fit
from bertine.training.pretraining.pretrain import has_weights
from bertine.training.run_folder import Run
from bertine.training.similarity.data import PairFile, PairSampler
from bertine.training.similarity.fitting import (
    Evaluator,
    SimilarityResult,
    training_rows,
    validation_rows,
)
from bertine.training.similarity.objective import PairLoss
from bertine.training.similarity.run import SimilarityRun, embedder_to_train

# Loss: the angle to the teacher's vector, the relations within a batch, and masked words.

#: The names of the terms, besides the cosine's, and of the targets.
_RELATIONS, _VECTORS, _MASKED = "relations", "vectors", "masked"
#: The share of the texts of a batch in which words are masked, and whether the vectors of these
#: texts are learned as well.
_MASKED_SHARE, _MASKED_HAVE_VECTORS = 0.5, True
#: The temperature of the softmax over cosines, and the logit of a text with itself.
_TEMPERATURE, _ITSELF = 0.05, -1e4


@dataclass(frozen=True)
class VectorObjective(LossDefaults):
    """The loss of a student's vectors beside its teacher's.

    Attributes:
        pooling: from the tokens of a text to its vector.
        relation_weight: of the divergence of the student's relations from the teacher's; 0: none.
        mlm_weight: of the masked words; 0: none.
        mean: fp32 [E], of the teacher's unit vectors. It is subtracted on both sides: the vectors
            of some teachers share a large part (that of E5's has a length of 0.9), which says
            nothing of a text, and behind which the rest would hardly count.
    """

    pooling: Pooling
    relation_weight: float = 0.0
    mlm_weight: float = 0.0
    mean: Tensor = field(default_factory=lambda: torch.zeros(1))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the texts whose vectors are compared, and the masked words."""
        counts = {COSINE: int(_compared(batch).sum())}
        if self.relation_weight:
            counts[_RELATIONS] = counts[COSINE]
        return counts | (Mlm().counts(batch) if self.mlm_weight else {})

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone, with the states that the pooling reads."""
        return model.encode(batch, all_states=self.pooling.needs_all_layers)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute 1 - cos of both vectors of each text, less the mean; the divergence of its
        relations to the texts computed with it; and the cross-entropy of the masked words."""
        mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        compared = _compared(batch)
        vectors = self.pooling(encoded, mask)[compared]
        theirs = F.normalize(batch.targets[_VECTORS][compared], dim=-1)
        ours = F.normalize(project(model, COSINE, vectors).float(), dim=-1)
        mean = self.mean.to(ours.device)
        total = (1.0 - F.cosine_similarity(ours - mean, theirs - mean, dim=-1)).sum()
        terms = {COSINE: Term(total, len(ours))}
        if self.relation_weight:
            with torch.autocast(vectors.device.type, enabled=False):
                ours = F.normalize(vectors.float(), dim=-1)
                total = divergences(_relations(ours), _relations(theirs), 1.0).sum()
            terms[_RELATIONS] = Term(total, len(ours), weight=self.relation_weight)
        if self.mlm_weight:
            (term,) = Mlm().terms_of(model, encoded, batch).values()
            terms["mlm"] = replace(term, weight=self.mlm_weight)
        return terms


def _compared(batch: Batch) -> Tensor:
    """Return which texts of a batch have vectors to learn, bool [B]."""
    masked = batch.targets[_MASKED]
    return torch.ones_like(masked) if _MASKED_HAVE_VECTORS else ~masked


def _relations(vectors: Tensor) -> Tensor:
    """Return the logits of each text over the others, fp32 [B, B], from unit vectors."""
    logits = vectors @ vectors.T / _TEMPERATURE
    return logits.masked_fill(torch.eye(len(logits), dtype=torch.bool).to(logits.device), _ITSELF)


# The teacher's vectors: computed by a model, or read from a file.


class VectorTeacher:
    """A model whose vectors are learned.

    Attributes:
        name: for messages.
        width: E.
        fingerprint: of everything that its vectors depend on.
    """

    name: str
    width: int
    fingerprint: str

    def __init__(self, embedder: Embedder) -> None:
        self.embedder, self.name, self.width = embedder, embedder.name, embedder.dimensions
        facts = {**VectorMetadata.of(embedder, "fp16").to_dict(), "model": "", "precision": ""}
        self.fingerprint = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def check(self, source: str, total: int) -> None:
        """Accept any table: a model computes the vectors of its rows."""

    def of(
        self, rows: Sequence[int], texts: Sequence[str], advance: Callable[[int], None]
    ) -> np.ndarray:
        """Return the vectors [N, E] of N texts.

        Args:
            rows: their numbers in the table, from 0, ascending from call to call.
            texts: the texts.
            advance: called with the number of texts that are done.
        """
        return self.embedder.run(self.embedder.features(texts), advance)

    def close(self) -> None:
        """Free the memory of the model."""
        vars(self).pop("embedder", None)


class VectorFile(VectorTeacher):
    """A file of vectors that any program has made, a row for each row of the table of texts."""

    def __init__(self, path: Path) -> None:
        self.name, self._at = str(path), 0
        self._table = open_vectors(path) if path.suffix.lower() == ".npy" else None
        if self._table is not None:
            self._rows, self.width = self._table.shape
        else:
            with Table(path) as table:
                first = next(iter(table), None)
                column = None if first is None else vector_column(table.columns, first)
                self._rows = count_rows(path) if is_parquet(path) else 1 + sum(1 for _ in table)
            if first is None or column is None:
                raise BertineError(
                    f"{path}: has no column of vectors, as 'bertine embed' writes them (vector); "
                    "give a .npy, .parquet or .jsonl of vectors"
                )
            self.width, self._column = len(first.values[column]), column
            self._reading = self._read(path)
        with os_errors(path, "reading it"), open(path, "rb") as file:
            self.fingerprint = hashlib.file_digest(file, "sha256").hexdigest()

    def check(self, source: str, total: int) -> None:
        """Refuse another number of rows."""
        if self._rows != total:
            raise BertineError(
                f"{self.name}: has vectors of {plural(self._rows, 'row')}, but {source} has "
                f"{plural(total, 'row')}; give a vector for each, in the same order"
            )

    def of(
        self, rows: Sequence[int], texts: Sequence[str], advance: Callable[[int], None]
    ) -> np.ndarray:
        """Return the vectors of these rows; a table is read on from the last one."""
        advance(len(rows))
        if self._table is not None:
            return self._table[list(rows)]
        vectors = []
        for number in rows:
            row = next(islice(self._reading, number - self._at, None))
            vectors.append(vectors_of(self.name, [row], self._column, self.width, "as in row 1"))
            self._at = number + 1
        return np.concatenate(vectors)

    def _read(self, path: Path) -> Iterator[TableRow]:
        with Table(path) as table:
            yield from table


#: The texts of a part, which is computed and written as a whole.
_PART = 10_000


@dataclass(frozen=True)
class StoredVectors:
    """The teacher's vectors in the folder of a run, in files of :data:`_PART` texts each."""

    folder: Path
    parts: list[np.ndarray] = field(default_factory=list)

    def make(self, teacher: VectorTeacher, rows: PairRows, count: int) -> None:
        """Write the vectors of the `count` texts of `rows`, after those of an earlier try.

        Raises:
            BertineError: a vector has no direction; the disk is full.
        """
        files = [self.folder / f"{at:06}.npy" for at in range(-(-count // _PART))]
        done = next((at for at, file in enumerate(files) if not file.exists()), len(files))
        # Rows that are left out have a number, too.
        numbered = ((rows.read + rows.left_out - 1, row.texts[0]) for row in rows)
        with progress() as bar:
            job = bar.add_task("ask the teacher", total=count, completed=min(count, done * _PART))
            if done < len(files):
                next(islice(numbered, done * _PART, done * _PART), None)
            for file in files[done:]:
                numbers, texts = zip(*islice(numbered, _PART), strict=True)
                vectors = teacher.of(numbers, texts, lambda count: bar.advance(job, count))
                part = _halved(vectors, numbers, teacher.name)
                with atomic_file(file) as path, open(path, "wb") as out:
                    np.save(out, part)
        self.parts[:] = [np.load(file, mmap_mode="r") for file in files]

    def mean(self) -> Tensor:
        """Return the mean of the unit vectors, fp32 [E]."""
        sums = [unit(part).sum(0, dtype=np.float64) for part in self.parts]
        return torch.from_numpy((sum(sums) / sum(map(len, self.parts))).astype(np.float32))

    def __call__(self, rows: Sequence[int]) -> np.ndarray:
        """Return the vectors of some rows, fp32 [N, E]."""
        vectors = [self.parts[row // _PART][row % _PART] for row in rows]
        return np.stack(vectors).astype(np.float32)


def _halved(vectors: np.ndarray, rows: Sequence[int], name: str) -> np.ndarray:
    """Return vectors in fp16; those that do not fit into it are scaled, as directions alone count.

    Raises:
        BertineError: one is not finite, or 0.
    """
    vectors = vectors.astype(np.float32)
    largest = np.abs(vectors).max(axis=1)
    wrong = np.flatnonzero(~(np.isfinite(largest) & (largest > 0)))
    if len(wrong):
        raise BertineError(
            f"{name}: the vector of row {rows[wrong[0]] + 1} is 0, infinite or NaN, so it says "
            "nothing of its text; leave that row out in both files"
        )
    odd = (largest < 1e-2) | (largest > 6e4)
    vectors[odd] = unit(vectors[odd])
    return vectors.astype(np.float16)


# The run: that of ``finetune similarity``, with another loss and another judge.

#: The texts that each held-out one is compared with.
_COMPARED = 8
#: Texts of a batch, and the rate as a multiple of that of fine-tuning.
_BATCH, _RATE = 128, 2.5


@dataclass(eq=False)
class VectorRun(SimilarityRun):
    """A run that learns the vectors of a `teacher`."""

    row: ClassVar[str] = "text"
    judging: ClassVar[tuple[PairKind, ...]] = ("texts",)
    title: ClassVar[str] = "distill"

    teacher: VectorTeacher
    masked_lm_prob: float
    objective: VectorObjective
    facts: dict[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.vectors = StoredVectors(self.folder / "checkpoints" / "teacher")
        model = self.embedder.model
        self._beginning = {name: value.clone() for name, value in model.state_dict().items()}

    def read(self, rows: PairRows, scratch: Path) -> PairFile:
        """Tokenize the rows, and compare their number with the teacher's."""
        self._texts, self._file = rows, super().read(rows, scratch)
        self.teacher.check(str(rows.source), rows.read + rows.left_out)
        return self._file

    def _prepare(self, run: Run) -> None:
        """Compute the teacher's vectors; an interrupted run keeps those that are complete."""
        try:
            self.vectors.make(self.teacher, self._texts, len(self._file))
            self.teacher.close()
            self.objective = replace(self.objective, mean=self.vectors.mean())
        except BertineError:
            if run.checkpoint is None:
                run.discard()
            raise

    def _judge_of(self, file: PairFile, held: list[int]) -> Evaluator:
        count = len(held)
        firsts = np.repeat(np.arange(count), _COMPARED)
        draws = generator(self.options.seed, "held-out texts to compare")
        seconds = (firsts + draws.integers(1, count, size=len(firsts))) % count

        def score(embedder: Embedder) -> SimilarityReport:
            ours = unit(embedder.run([texts[0] for texts in file.read(held)]))
            theirs = unit(self.vectors(held))
            truth, cosines = ((v[firsts] * v[seconds]).sum(1).tolist() for v in (theirs, ours))
            metrics = {"spearman": regression_scores(truth, cosines)["spearman"]}
            if ours.shape == theirs.shape:
                metrics["cosine"] = float((ours * theirs).sum(1).mean())
            return SimilarityReport(num_examples=count, metrics=metrics)

        return Evaluator(score, "spearman")

    def _fit(self, draws: PairSampler, **training: Any) -> None:
        fit(self.embedder.model, self.objective, self._batches(draws), **training)

    def _batches(self, draws: PairSampler) -> Callable[[int], Batch]:
        """Return the function from a step to its batch, which depends on the step alone."""
        tokenizer, longest = self.embedder.tokenizer, self.embedder.max_length

        def batch(step: int) -> Batch:
            rows = draws.rows(step)
            features = [texts[0] for texts in self._file.read(rows)]
            made = pad_features(features, tokenizer.pad_token_id, longest)
            made.rows = []
            made.targets[_VECTORS] = torch.from_numpy(self.vectors(rows))
            made.targets[_MASKED] = torch.zeros(len(rows), dtype=torch.bool)
            if self.objective.mlm_weight:
                self._mask(made, step)
            return made

        return batch

    def _mask(self, batch: Batch, step: int) -> None:
        """Mask words in some texts of a batch, in place."""
        tokenizer = self.embedder.tokenizer
        ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        ordinary[list(tokenizer.special_ids)] = False
        draws = generator(self.options.seed, "masked words", step)
        count = batch.num_sequences
        chosen = np.sort(draws.permutation(count)[: int(count * _MASKED_SHARE)])
        ids, real = batch.input_ids.numpy(), batch.attention_mask.numpy()[chosen]
        masked = mask_tokens(
            ids[chosen],
            real.sum(1),
            real & ordinary[ids[chosen]],
            draws,
            mask_token_id=tokenizer.require_mask("learning masked words"),
            random_ids=np.flatnonzero(ordinary),
            masked_lm_prob=self.masked_lm_prob,
            max_predictions_per_seq=None,
        )
        ids[chosen] = masked.input_ids
        row, column = np.divmod(masked.positions, ids.shape[1])
        places = chosen[row] * ids.shape[1] + column
        batch.targets[_MASKED][torch.from_numpy(chosen)] = True
        batch.targets["mlm_positions"] = torch.from_numpy(places)
        batch.targets["mlm_labels"] = torch.from_numpy(masked.labels)

    def _take_start(self) -> None:
        self.embedder.model.load_state_dict(self._beginning)

    def _loss_settings(self) -> dict[str, Any]:
        objective = self.objective
        return {
            "loss": _VECTORS,
            "relation_weight": objective.relation_weight,
            "mlm_weight": objective.mlm_weight,
            "masked_lm_prob": self.masked_lm_prob if objective.mlm_weight else None,
            "teacher_fingerprint": self.teacher.fingerprint,
            **self.facts,
        }


# ``distill vectors``.


def distill_on_vectors(data: Data, out: Path | str, options: DistillOptions) -> SimilarityResult:
    """Train a student on its teacher's vectors of texts; see :func:`bertine.distill`.

    Raises:
        BertineError: there is neither a teacher nor a file of vectors, or both; there is no
            student; the file does not fit the texts; what ``finetune_similarity`` raises.
    """
    Run.check(out, options.resume)
    if (options.teacher is None) == (options.vectors is None):
        raise BertineError(
            f"give one of {option('teacher')}, a model, and {option('vectors')}, a file of another "
            "model's vectors of the texts"
        )
    if options.steps is not None and options.epochs is not None:
        raise BertineError(f"give {option('steps')} or {option('epochs')}, not both")
    if options.validation is not None and options.held_out_texts:
        raise BertineError(
            f"{option('held_out_texts', options.held_out_texts)} is for a run without "
            f"{option('validation')}"
        )
    data = data_of_run(data, Run.begun(out) if options.resume else None)
    train = find_splits(data).train
    if train is None:
        raise BertineError(f"{data}: has no training file")
    tuning = part_of(
        SimilarityOptions,
        options,
        kind="texts",
        held_out_pairs=options.held_out_texts,
        batch_size=options.batch_size or _BATCH,
    )
    rows = training_rows(train, tuning)
    columns = rows.open_columns()
    judged = None
    if options.validation is not None:
        judging = SimilarityOptions.of(tuning, kind=None, text_columns=None)
        judged = validation_rows(None, options.validation, judging)
    teacher = (
        VectorTeacher(Embedder.opened(options.teacher, device=options.device))
        if options.teacher is not None
        else VectorFile(Path(str(options.vectors)))
    )
    origin, plan = _plan(options)
    embedder, modules = _student(origin, plan, tuning, options)
    model, rate = embedder.model, tuning.learning_rate
    if embedder.dimensions != teacher.width:
        with seeded(options.seed, "projections"):
            made = nn.ModuleDict({COSINE: nn.Linear(embedder.dimensions, teacher.width)})
            init_weights(made, model.config.initializer_range)
        model.add_module(PROJECTIONS, made.to(next(model.parameters()).device))
    if rate is None:
        rate = float(f"{rate_for(model.config) * _RATE * USUAL_RATE[options.optimizer]:.1g}")
    weight = options.mlm_weight or 0.0
    work = VectorRun(
        Path(out),
        SimilarityOptions.of(tuning, learning_rate=rate),
        embedder,
        modules,
        columns,
        PairLoss(),
        Path(locate(origin)),
        teacher,
        options.masked_lm_prob,
        VectorObjective(embedder.pooling, options.relation_weight, weight),
        {
            "layers": None if plan.layers is None else list(plan.layers),
            **recorded_model(options.teacher or teacher.name, "teacher"),
        },
    )
    with scratch_dir(out) as scratch, work.read(rows, scratch) as file:
        return work.train(file, scratch, judged, str(options.student or origin), data)


def _plan(options: DistillOptions) -> tuple[Path | str, StudentPlan]:
    """Return the model directory that the student's vocabulary is from, and the plan of it."""
    teacher, student = options.teacher, options.student
    if teacher is None or kind_of_model(teacher) is not None:
        if student is None or not has_weights(student):
            raise BertineError(
                f"{teacher or options.vectors}: has no layers to begin as; name a model directory "
                f"to train with {option('student')} ({option('layers')} takes some of its layers "
                "alone)"
            )
        return student, plan_for(None, options)
    modules = read_sentence_modules(locate(teacher))
    plan = plan_for(load_config(modules.transformer if modules else teacher), options)
    return (teacher if plan.folder is None else plan.folder), plan


def _student(
    origin: Path | str, plan: StudentPlan, tuning: SimilarityOptions, options: DistillOptions
) -> tuple[Embedder, SentenceModules | None]:
    """Load or build the student; it makes vectors as the directory `origin` says."""

    def heads(config: Config) -> dict[str, nn.Module]:
        return new_head(config, "mlm") if options.mlm_weight else {}

    def load(folder: Path) -> LoadedModel:
        seed, dropout = options.seed, options.dropout
        logger.info(plan.line(load_config(folder)))
        if plan.folder is not None:
            own = heads(load_config(folder))
            return load_model(folder, heads=own, seed=seed, dropout=dropout)
        loaded = load_model(folder)
        model, taken = make_student(
            plan,
            loaded.model,
            heads,
            seed=seed,
            dropout=dropout,
            token_types=options.token_types,
        )
        return as_loaded(model, taken, loaded.tokenizer)

    embedder, modules = embedder_to_train(origin, tuning, load)
    if options.mlm_weight:
        embedder.tokenizer.require_mask(f"{origin}: {option('mlm_weight', options.mlm_weight)}")
    return embedder, modules
