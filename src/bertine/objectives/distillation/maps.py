"""Losses on what happens inside: a student's layers are to have the states of some of its teacher's
layers, and to look where those look.

Two ways of comparing are published. TinyBERT (Jiao et al. 2020, section 3.1; huawei-noah/
Pretrained-Language-Model, ``TinyBERT``): mean squared error of the states, embeddings among them,
and of the scores of attention before the softmax. MobileBERT (Sun et al. 2020, section 3.4;
tensorflow/models, ``projects/mobilebert``): mean squared error of normalized states, beside terms
on their mean and their variance, and the divergence of the distributions of attention. There the
means go over padding too; here only real tokens count.

Shape legend: B sequences, T tokens of the longest, H hidden size of the teacher, A attention heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.initial import init_weights
from bertine.models.model import Model
from bertine.names import MapKind
from bertine.objectives.base import Term

#: The names of the terms, in the order of logs.
HIDDEN, MEAN, VARIANCE, ATTENTION = "hidden", "hidden_mean", "hidden_variance", "attention"
#: The attribute of a student that holds its projections while it is trained; they are not saved.
PROJECTIONS = "projections"


@dataclass(frozen=True)
class MapLosses:
    """The terms on hidden maps and attention maps.

    Attributes:
        kind: how maps are compared, ``"tinybert"`` or ``"mobilebert"``.
        layers: for each layer of the student the layer of the teacher that it follows, from 0 on.
        weights: of the terms, by name; those of 0 are left out.
    """

    kind: MapKind
    layers: tuple[int, ...]
    weights: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        """The terms that there are."""
        return tuple(
            name for name in (HIDDEN, MEAN, VARIANCE, ATTENTION) if self.weights.get(name, 0.0) > 0
        )

    @property
    def reads_states(self) -> bool:
        """Whether states are compared, for which the widths must be equal or projected."""
        return any(name != ATTENTION for name in self.names)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count tokens; of scores of attention pairs of tokens."""
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
            encoded: what it made of `batch`, with the states of all layers.
            teacher: in evaluation mode.
            of_teacher: what it made of `batch`, without gradient.
            only: this layer of the student alone; None: all.
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
        tokens or, of distributions, over real tokens. What is outside of the student's window is
        no part of either distribution."""
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
    """Return for each of so many layers of a student the layer of its teacher that ends the same
    share of the way (TinyBERT, section 4.3: layer 3 m of 12 for layer m of 4)."""
    return tuple(max(0, round((number + 1) * teacher / student) - 1) for number in range(student))


def check_maps(losses: MapLosses, student: Model, teacher: Model) -> None:
    """Refuse what cannot be compared.

    Raises:
        BertineError: attention is, and the heads are not as many, or a backbone cannot tell.
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
    """Make linear layers, by name, from the width of a student to that of its teacher, with new
    weights."""
    made = nn.ModuleDict({n: nn.Linear(student.hidden_size, teacher.hidden_size) for n in names})
    init_weights(made, student.initializer_range)
    return made


def project(model: Model, name: str, states: Tensor) -> Tensor:
    """Bring the states of a student to the width of its teacher by the projection `name`, if it
    has one."""
    projections = getattr(model, PROJECTIONS, None)
    if projections is None or name not in projections:
        return states
    change = cast(Callable[[Tensor], Tensor], projections[name])
    return change(states)
