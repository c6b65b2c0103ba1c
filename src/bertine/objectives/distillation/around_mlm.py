"""A teacher around a language model: DistilBERT's triple loss (Sanh et al. 2019, section 3).

What the paper leaves open is as in its code (transformers, ``research_projects/distillation``,
``distiller.py``): a temperature of 2; soft targets over all real tokens, not the masked ones alone;
the cosine of the last states of all real tokens, special ones among them.

Shape legend: B sequences, T tokens of the longest, P places, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.names import SoftTokens
from bertine.objectives.base import Loss, LossDefaults, Term
from bertine.objectives.distillation.maps import MapLosses, project
from bertine.objectives.distillation.soft_targets import sum_divergence
from bertine.options.names import option

#: The names of the terms beside those of the objective.
SOFT, COSINE = "soft", "cosine"
#: The target that says which stage of progressive distillation a batch is for: int64 [B], the
#: number of the layer that is trained; -1: all of them.
STAGE = "stage"


@dataclass
class DistilledMlm(LossDefaults):
    """An objective of masked words, with what a teacher makes of the same batches around it.

    The teacher computes in evaluation mode, without gradient, in the numbers that the student
    computes in.

    Attributes:
        inner: the objective, one that masks tokens.
        teacher: with an MLM head and at least the student's vocabulary, on the student's device.
        soft_weight: of the soft targets; 0: none.
        mlm_weight: that the terms of `inner` are multiplied with.
        cosine_weight: of the cosine of the last states; 0: none.
        temperature: of the soft targets.
        soft_tokens: which tokens have soft targets: ``"all"`` real ones or the ``"masked"`` ones.
        maps: the terms on hidden and attention maps; None: none.
        frozen: parts of the student, by the names of their weights, that are never trained.
    """

    inner: Loss
    teacher: Model
    soft_weight: float = 5.0
    mlm_weight: float = 2.0
    cosine_weight: float = 1.0
    temperature: float = 2.0
    soft_tokens: SoftTokens = "all"
    maps: MapLosses | None = None
    frozen: frozenset[str] = field(default_factory=frozenset)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of the objective, the tokens with soft targets, those with states to
        compare."""
        counts = dict(self.inner.counts(batch))
        if stage_of(batch) is None:
            if self.soft_weight:
                counts[SOFT] = self._places(batch).numel()
            if self.cosine_weight:
                counts[COSINE] = batch.num_tokens
        if self.maps is not None:
            counts |= self.maps.counts(batch)
        return counts

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model`; before that, let the stage of the batch, if it has one,
        decide which layers are trained."""
        if STAGE in batch.targets:
            train_stage(model, stage_of(batch), self.frozen)
        return model.encode(batch, all_states=self.maps is not None)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the terms of the objective, and those of the teacher. In the stages of
        progressive distillation those of single layers alone have a weight; of the objective one
        sees how it fares."""
        stage = stage_of(batch)
        with torch.no_grad():
            of_teacher = self.teacher.encode(batch, all_states=self.maps is not None)
        terms: dict[str, Term] = {}
        if stage is None:
            for name, term in self.inner.terms_of(model, encoded, batch).items():
                terms[name] = replace(term, weight=self.mlm_weight * term.weight)
            if self.soft_weight:
                terms[SOFT] = self._soft(model, encoded, of_teacher, batch)
            if self.cosine_weight:
                terms[COSINE] = self._cosine(model, encoded, of_teacher, batch)
        else:
            with torch.no_grad():
                own = self.inner.terms_of(model, encoded, batch)
            terms |= {name: replace(term, weight=0.0) for name, term in own.items()}
        if self.maps is not None:
            terms |= self.maps.terms_of(model, encoded, self.teacher, of_teacher, batch, stage)
        return terms

    def _places(self, batch: Batch) -> Tensor:
        """Return the tokens with soft targets, int64 [P] among the B * T."""
        if self.soft_tokens == "masked":
            return batch.targets["mlm_positions"]
        return batch.attention_mask.reshape(-1).nonzero()[:, 0]

    def _soft(self, model: Model, encoded: Encoded, of_teacher: Encoded, batch: Batch) -> Term:
        """Compute the divergence from what the teacher expects at each place."""
        places = self._places(batch)
        logits = model.read("mlm", encoded, places=places)
        width = logits.shape[1]

        def wanted(rows: slice) -> Tensor:
            return self.teacher.read("mlm", of_teacher, places=places[rows])[:, :width]

        total, agreed = sum_divergence(logits, wanted, self.temperature)
        return Term(total, places.numel(), agreed, weight=self.soft_weight)

    def _cosine(self, model: Model, encoded: Encoded, of_teacher: Encoded, batch: Batch) -> Term:
        """Compute 1 - cos of the last states of both, summed over the real tokens."""
        mask = batch.attention_mask.bool()
        ours = project(model, COSINE, encoded.last_hidden_state)[mask].float()
        theirs = of_teacher.last_hidden_state[mask].float()
        total = (1.0 - F.cosine_similarity(ours, theirs, dim=-1)).sum()
        return Term(total, len(ours), weight=self.cosine_weight)


@dataclass(frozen=True)
class StagedBatches:
    """The batches of progressive distillation: each says which layer it is for
    (Sun et al. 2020, section 3.4: layer by layer, then all of them).

    Attributes:
        plain: the batch of a step.
        steps: of each stage.
        stages: how many there are, one for each layer of the student; all later steps train all.
    """

    plain: Callable[[int], Batch]
    steps: int
    stages: int

    def __call__(self, step: int) -> Batch:
        batch = self.plain(step)
        stage = min(step // self.steps, self.stages)
        number = stage if stage < self.stages else -1
        batch.targets[STAGE] = torch.full((batch.num_sequences,), number, dtype=torch.int64)
        return batch


def check_stages(progressive_steps: int, stages: int, steps: int) -> None:
    """Refuse a run that ends before all of a model is trained.

    Raises:
        BertineError: the stages of single layers take all of its steps.
    """
    if progressive_steps * stages >= steps:
        raise BertineError(
            f"{option('progressive_steps', progressive_steps)}, once for each layer, takes "
            f"{progressive_steps * stages:,} steps, but the run has {steps:,}, and the head is "
            "trained after them; give fewer of them, or train longer"
        )


def stage_of(batch: Batch) -> int | None:
    """Return the layer that alone is trained; None: all are."""
    if STAGE not in batch.targets:
        return None
    number = int(batch.targets[STAGE][0])
    return None if number < 0 else number


def train_stage(model: Model, stage: int | None, frozen: frozenset[str]) -> None:
    """Let one layer of `model` be trained, the first one with the embeddings before it, and with
    what is projected; None: all of the model. What is `frozen`, by the names of weights, never is.
    """
    prefix = "" if stage is None else f"backbone.layers.{model.config.passes[stage]}."
    for name, parameter in model.named_parameters():
        chosen = stage is None or name.startswith((prefix, "projections."))
        chosen |= stage == 0 and name.startswith("backbone.embeddings.")
        parameter.requires_grad_(chosen and name not in frozen)


def teacher_of(model: Model) -> Model:
    """Return `model` as a teacher: in evaluation mode, without gradients."""
    return model.eval().requires_grad_(False)
