"""Train a student on a teacher: soft targets, hidden states and attention maps.

Shape legend: B sequences, T tokens of the longest, H hidden size of the teacher, A attention heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.names import MapKind, SoftTokens, option
from bertine.corpora.batch import Batch
from bertine.models.config import Config
from bertine.models.encoder import Encoded
from bertine.models.heads import Model
from bertine.models.layers import init_weights
from bertine.objectives.losses import Loss, LossDefaults, Term

# Soft targets: a teacher's probabilities at a temperature (Hinton et al. 2015, section 2).
#
# The loss is the divergence of the student's distribution from the teacher's, times the square of
# the temperature, so that gradients do not shrink at higher temperatures. It equals their
# cross-entropy minus the teacher's entropy, which has no gradient, and is 0 where both agree.
#
# Shape legend: P targets, V classes.


class _SumDivergence(torch.autograd.Function):
    """The sum of the divergences of many rows over many classes; the gradient reuses the memory of
    the student's logits, and the teacher's are computed a block of rows at a time."""

    #: Logits of a block of rows, about: 64 MB in fp32. A tied decoder is read once per block, so
    #: smaller ones would cost time.
    BLOCK = 1 << 24

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, wanted: Callable[[slice], Tensor], temperature: float
    ) -> tuple[Tensor, Tensor]:
        total = logits.new_zeros((), dtype=torch.float32)
        agreed = torch.zeros((), dtype=torch.int64, device=logits.device)
        size = max(1, _SumDivergence.BLOCK // logits.shape[1])
        for start in range(0, logits.shape[0], size):
            rows = slice(start, start + size)
            theirs, ours = wanted(rows).float(), logits[rows].float()
            agreed += (theirs.argmax(-1) == ours.argmax(-1)).sum()
            log_theirs = torch.log_softmax(theirs / temperature, -1)
            log_ours = torch.log_softmax(ours / temperature, -1)
            probs = log_theirs.exp()
            total += (probs * (log_theirs - log_ours)).sum() * temperature**2
            logits[rows] = log_ours.exp_().sub_(probs).mul_(temperature)
        # Detached, not the input itself: autograd is to keep a separate tensor.
        ctx.save_for_backward(logits.detach())
        ctx.mark_non_differentiable(agreed)
        return total, agreed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        if grad.device.type != "cpu":
            return grad * grads[0], None, None
        # A number, not a bf16 tensor: 1 / count would be rounded to eight bits.
        return grad.mul_(float(grads[0])), None, None


def sum_divergence(
    logits: Tensor, wanted: Callable[[slice], Tensor], temperature: float
) -> tuple[Tensor, Tensor]:
    """Sum over P the divergence of a student from its teacher, over a large vocabulary.

    Args:
        logits: of the student, float [P, V]; overwritten with the gradient.
        wanted: (some of the rows) → the teacher's logits for them [p, V], without gradient.
        temperature: the divisor of both sides' logits.

    Returns:
        The sum, times the square of the temperature, in nats (fp32 scalar, differentiable), and the
        number of targets with the same best prediction on both sides (int64 scalar).
    """
    total, agreed = _SumDivergence.apply(logits, wanted, temperature)
    return total, agreed


def divergences(logits: Tensor, log_wanted: Tensor, temperature: float) -> Tensor:
    """Return the divergence of each row over few classes, times the square of the temperature.

    Args:
        logits: of the student, [P, V]; -inf for impossible classes.
        log_wanted: fp32 [P, V], the logarithms of the teacher's probabilities, at temperature 1
            and up to a constant for each row: logits, or logarithms of probabilities; -inf for
            impossible classes.
        temperature: see :func:`sum_divergence`.

    Returns:
        fp32 [P], in nats.
    """
    theirs = torch.log_softmax(log_wanted.float() / temperature, -1)
    ours = F.log_softmax(logits.float() / temperature, -1)
    # Classes with the teacher's probability 0 contribute 0, whatever their logarithms.
    possible = theirs > float("-inf")
    gaps = torch.where(possible, theirs.masked_fill(~possible, 0.0) - ours, 0.0)
    return (theirs.exp() * gaps).sum(-1) * temperature**2


def binary_divergences(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Return the divergence of each yes-or-no decision, times the square of the temperature: fp32,
    in the shape of both.

    Args:
        logits: of the student, before the sigmoid.
        wanted: the teacher's logits.
    """
    theirs, ours = wanted.float() / temperature, logits.float() / temperature
    probs = theirs.sigmoid()
    cross = F.binary_cross_entropy_with_logits(ours, probs, reduction="none")
    own = F.binary_cross_entropy_with_logits(theirs, probs, reduction="none")
    return (cross - own) * temperature**2


# Maps: losses on hidden states and attention, by which a student's layers learn from some of the
# teacher's layers.
#
# There are two published ways. TinyBERT (Jiao et al. 2020, section 3.1; huawei-noah/
# Pretrained-Language-Model, ``TinyBERT``): the mean squared error of the states, including the
# embeddings, and of the attention scores before the softmax. MobileBERT (Sun et al. 2020, section
# 3.4; tensorflow/models, ``projects/mobilebert``): the mean squared error of normalized states,
# terms on their mean and their variance, and the divergence of the attention distributions. The
# published means include padding; here only real tokens count.

#: The names of the terms, in the order of logs.
HIDDEN, MEAN, VARIANCE, ATTENTION = "hidden", "hidden_mean", "hidden_variance", "attention"
#: The attribute of a student with its projections during training; they are not saved.
PROJECTIONS = "projections"


@dataclass(frozen=True)
class MapLosses:
    """The terms on hidden states and attention maps.

    Attributes:
        kind: how maps are compared, ``"tinybert"`` or ``"mobilebert"``.
        layers: for each layer of the student the teacher's layer that it learns from, from 0 on.
        weights: of the terms, by name; those of 0 are left out.
    """

    kind: MapKind
    layers: tuple[int, ...]
    weights: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms in use."""
        return tuple(
            name for name in (HIDDEN, MEAN, VARIANCE, ATTENTION) if self.weights.get(name, 0.0) > 0
        )

    @property
    def reads_states(self) -> bool:
        """Whether states are compared, which needs equal or projected widths."""
        return any(name != ATTENTION for name in self.names)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the tokens, and for attention scores the pairs of tokens."""
        lengths = batch.attention_mask.sum(1)
        tokens, pairs = int(lengths.sum()), int((lengths * lengths).sum())
        scores = self.kind == "tinybert"
        return {name: pairs if name == ATTENTION and scores else tokens for name in self.names}

    def terms_of(
        self,
        model: Model,
        encoded: Encoded,
        teacher: Model,
        of_teacher: Encoded,
        batch: Batch,
        only: int | None = None,
    ) -> dict[str, Term]:
        """Compute the terms, each the sum over the layers.

        Args:
            model: the student, with its projections where widths differ.
            encoded: the student's output for `batch`, with the states of all layers.
            teacher: in evaluation mode.
            of_teacher: its output for `batch`, without gradient.
            only: the only layer of the student to compare; None: all.
        """
        ours, theirs = encoded.hidden_states, of_teacher.hidden_states
        assert ours is not None
        assert theirs is not None
        numbers = range(len(self.layers)) if only is None else [only]
        totals: dict[str, list[Tensor]] = {name: [] for name in self.names}
        mask = batch.attention_mask.bool()
        if self.reads_states:
            pairs = [(number + 1, self.layers[number] + 1) for number in numbers]
            if self.kind == "tinybert" and only in (None, 0):
                pairs.insert(0, (0, 0))
            for student, layer in pairs:
                state = project(model, HIDDEN, ours[student])[mask].float()
                for name, value in self._of_states(state, theirs[layer][mask].float()):
                    totals[name].append(value)
        if ATTENTION in totals:
            for number in numbers:
                types = batch.token_type_ids
                scores = model.backbone.attention_scores(number, ours[number], types)
                with torch.no_grad():
                    layer = self.layers[number]
                    wanted = teacher.backbone.attention_scores(layer, theirs[layer], types)
                totals[ATTENTION].append(self._of_attention(scores, wanted, mask))
        counts = self.counts(batch)
        return {
            name: Term(torch.stack(values).sum(), counts[name], weight=self.weights[name])
            for name, values in totals.items()
        }

    def _of_states(self, state: Tensor, wanted: Tensor) -> list[tuple[str, Tensor]]:
        """Compare the states of real tokens [N, H], summed over N."""
        terms: list[tuple[str, Tensor]] = []
        names = self.names
        if HIDDEN in names:
            pair = (state, wanted)
            if self.kind == "mobilebert":  # a norm without weights
                pair = (
                    F.layer_norm(state, state.shape[-1:]),
                    F.layer_norm(wanted, wanted.shape[-1:]),
                )
            terms.append((HIDDEN, (pair[0] - pair[1]).square().mean(-1).sum()))
        if MEAN in names:
            terms.append((MEAN, (state.mean(-1) - wanted.mean(-1)).square().sum()))
        if VARIANCE in names:
            gap = state.var(-1, correction=0) - wanted.var(-1, correction=0)
            terms.append((VARIANCE, gap.abs().sum()))
        return terms

    def _of_attention(self, scores: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
        """Compare the scores of heads [B, A, T, T], the mean over heads, summed over pairs of real
        tokens or, for distributions, over real tokens. Places outside the student's window belong
        to neither distribution."""
        scores, wanted = scores.float(), wanted.float()
        heads = scores.shape[1]
        if self.kind == "tinybert":
            real = mask[:, None, :, None] & mask[:, None, None, :]
            seen = real & scores.isfinite() & wanted.isfinite()  # within both windows
            return torch.where(seen, scores - wanted, 0.0).square().sum() / heads
        hidden = ~(mask[:, None, None, :] & scores.isfinite())
        low = torch.finfo(torch.float32).min
        ours = scores.masked_fill(hidden, low).log_softmax(-1)
        theirs = wanted.masked_fill(hidden | ~wanted.isfinite(), low).log_softmax(-1)
        gaps = (theirs.exp() * (theirs - ours)).masked_fill(hidden, 0.0).sum(-1)
        return gaps.masked_fill(~mask[:, None, :], 0.0).sum() / heads


def uniform_map(student: int, teacher: int) -> tuple[int, ...]:
    """Return for each of `student` layers the teacher's layer at the same relative depth (TinyBERT,
    section 4.3: layer 3 m of 12 for layer m of 4)."""
    return tuple(max(0, round((number + 1) * teacher / student) - 1) for number in range(student))


def check_maps(losses: MapLosses, student: Model, teacher: Model) -> None:
    """Refuse models that cannot be compared.

    Raises:
        BertineError: attention is compared, and the numbers of heads differ, or a backbone does
            not give its scores.
    """
    if ATTENTION not in losses.names:
        return
    ours, theirs = student.config.num_attention_heads, teacher.config.num_attention_heads
    if ours != theirs:
        raise BertineError(
            f"attention maps cannot be compared: the student has {ours} heads a layer, the "
            f"teacher {theirs}"
        )
    for model, whose in ((student, "student"), (teacher, "teacher")):
        if not model.backbone.shows_attention:
            raise BertineError(
                f"attention maps cannot be had of {model.config.title}, which the {whose} is"
            )


def new_projections(names: Sequence[str], student: Config, teacher: Config) -> nn.ModuleDict:
    """Return linear layers, by name, from the width of a student to that of its teacher, with new
    weights."""
    made = nn.ModuleDict({n: nn.Linear(student.hidden_size, teacher.hidden_size) for n in names})
    init_weights(made, student.initializer_range)
    return made


def project(model: Model, name: str, states: Tensor) -> Tensor:
    """Map the states of a student to the width of its teacher by the projection `name`, if there is
    one."""
    projections = getattr(model, PROJECTIONS, None)
    if projections is None or name not in projections:
        return states
    change = cast(Callable[[Tensor], Tensor], projections[name])
    return change(states)


# DistilBERT's loss: a language model's own loss, soft targets and a cosine (Sanh et al. 2019,
# section 3, "triple loss").
#
# Details that the paper leaves open follow its code (transformers,
# ``research_projects/distillation``, ``distiller.py``): a temperature of 2; soft targets over all
# real tokens, not only the masked ones; the cosine of the last states of all real tokens, including
# special ones.
#
# Shape legend: B sequences, T tokens of the longest, P places, V vocabulary size.

#: The names of the terms in addition to the objective's.
SOFT, COSINE = "soft", "cosine"
#: The target with the stage of progressive distillation of a batch: int64 [B], the number of the
#: layer that is trained; -1: all of them.
STAGE = "stage"


@dataclass
class DistilledMlm(LossDefaults):
    """An objective of masked words, with terms on a teacher's output for the same batches.

    The teacher computes in evaluation mode, without gradient, in the student's number type.

    Attributes:
        inner: the objective, one that masks tokens.
        teacher: with an MLM head and at least the student's vocabulary, on the student's device.
        soft_weight: of the soft targets; 0: none.
        mlm_weight: the factor of the terms of `inner`.
        cosine_weight: of the cosine of the last states; 0: none.
        temperature: of the soft targets.
        soft_tokens: the tokens with soft targets: ``"all"`` real ones or the ``"masked"`` ones.
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
        """Count the targets of the objective, the tokens with soft targets, and those whose states
        are compared."""
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
        """Run the backbone of `model`, after choosing the layers to train by the batch's stage, if
        it has one."""
        if STAGE in batch.targets:
            train_stage(model, stage_of(batch), self.frozen)
        return model.encode(batch, all_states=self.maps is not None)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the terms of the objective, and those of the teacher. In the stages of
        progressive distillation only those of single layers have a weight; the objective's are
        computed for the log."""
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
        """Return the tokens with soft targets, int64 [P], indices into the B * T."""
        if self.soft_tokens == "masked":
            return batch.targets["mlm_positions"]
        return batch.attention_mask.reshape(-1).nonzero()[:, 0]

    def _soft(self, model: Model, encoded: Encoded, of_teacher: Encoded, batch: Batch) -> Term:
        """Compute the divergence from the teacher's prediction at each place."""
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
    """The batches of progressive distillation, each with its stage (Sun et al. 2020, section 3.4:
    layer by layer, then all of them).

    Attributes:
        plain: the batch of a step.
        steps: of each stage.
        stages: their number, one for each layer of the student; all later steps train all.
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
    """Refuse a run that ends before the whole model is trained.

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
    """Return the only layer that is trained; None: all are."""
    if STAGE not in batch.targets:
        return None
    number = int(batch.targets[STAGE][0])
    return None if number < 0 else number


def train_stage(model: Model, stage: int | None, frozen: frozenset[str]) -> None:
    """Make one layer of `model` trainable, with its projections, and for the first layer the
    embeddings; None: all of the model. The parts in `frozen`, by the names of weights, never are.
    """
    prefix = "" if stage is None else f"backbone.layers.{model.config.passes[stage]}."
    for name, parameter in model.named_parameters():
        chosen = stage is None or name.startswith((prefix, "projections."))
        chosen |= stage == 0 and name.startswith("backbone.embeddings.")
        parameter.requires_grad_(chosen and name not in frozen)


def teacher_of(model: Model) -> Model:
    """Return `model` as a teacher: in evaluation mode, without gradients."""
    return model.eval().requires_grad_(False)
