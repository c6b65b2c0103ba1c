"""The gradients of one training step, computed in parts: by this process, or by it and others."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bertine.core.console import logger, plural
from bertine.core.errors import BertineError
from bertine.core.process import keep_freed_memory
from bertine.core.spin_count import adapt_spin_count
from bertine.corpora.batch import Batch, check_batch, split
from bertine.families.gpt import RecurrentLayer
from bertine.models import losses
from bertine.models.dropout import stream
from bertine.models.heads import GuessesWords, Model
from bertine.models.precision import autocast
from bertine.models.torch_private import allow_recompilations
from bertine.objectives.losses import Loss, Term
from bertine.training.distributed import DistContext
from bertine.training.optim import row_gradients
from bertine.training.parallel import DataParallel, send

# torch.compile for training on a GPU: of the parts that come again, not of the whole.
#
# All encoder layers share one piece of compiled code, made twice at most for each way they are
# called (with the shapes as they come first, then with the number of rows left open), and batches
# of any size compile nothing more. Where PyTorch meets more ways than :data:`_WAYS`, it computes
# the rest as without compiling.

#: Ways to call a part that are compiled: training and evaluation, with padding and without.
_WAYS = 16


def compile_parts(model: Model) -> None:
    """Compile the encoder layers of `model` (in place), its heads that guess words, and the
    cross-entropy; each when it is first called. State dicts and copies of the model stay as they
    are. Without a C compiler, which torch.compile calls, say so and compile nothing."""
    if not any(map(shutil.which, (os.environ.get("CC", ""), "clang", "gcc"))):
        logger.info(
            "no C compiler (gcc or clang): the model is not compiled, and trains more slowly"
        )
        return
    allow_recompilations(_WAYS)
    for layer in model.backbone.layers:
        # The steps of recurrent ones are as many as a batch has: each would be code of its own.
        if not isinstance(layer, RecurrentLayer):
            layer.compile()
    for head in model.heads.values():
        if isinstance(head, GuessesWords):
            head.compile()
    losses.compile_cross_entropy()


# Weights that training leaves as they are.


def check_freezing(model: Model, layers: int) -> None:
    """Refuse to freeze more layers than there are.

    Raises:
        BertineError: there are fewer than `layers`.
    """
    if not 0 <= layers <= len(model.backbone.layers):
        raise BertineError(
            f"freeze_layers is {layers}, but the model has "
            f"{plural(len(model.backbone.layers), 'layer')}"
            + (" with weights of their own" if model.config.shares_layers else "")
        )


@contextlib.contextmanager
def frozen(model: Model, *, layers: int, embeddings: bool) -> Iterator[None]:
    """Within it, the lowest `layers` layers, and the embeddings if `embeddings`, are not trained:
    their weights get no gradient. Dropout in them goes on as elsewhere.

    Raises:
        BertineError: there are fewer layers.
    """
    check_freezing(model, layers)
    parts: list[nn.Module] = [*list(model.backbone.layers)[:layers]]
    if embeddings:
        parts.append(model.backbone.embeddings)
    held = [p for part in parts for p in part.parameters() if p.requires_grad]
    if held:
        every = sum(p.numel() for p in model.parameters())
        still = every - sum(p.numel() for p in held)
        names = ["embeddings"] if embeddings else []
        names += [f"the lowest {layers} of {len(model.backbone.layers)} layers"] if layers else []
        logger.info(f"frozen: {' and '.join(names)}; {still:,} of {every:,} parameters are trained")
    with _without_gradients(held):
        yield


def has_biases(model: Model) -> bool:
    """Tell whether the linear layers of the backbone add biases; those of ModernBERT do not."""
    layers = [part for part in model.backbone.layers.modules() if isinstance(part, nn.Linear)]
    return any(layer.bias is not None for layer in layers)


@contextlib.contextmanager
def only_biases_trained(model: Model) -> Iterator[None]:
    """Within it, of the weights of `model` only the biases and the parameters of layer norms, all
    those of one dimension, are trained (BitFit: Ben Zaken et al. 2021, arXiv 2106.10199)."""
    held = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    with _without_gradients(held):
        yield


@contextlib.contextmanager
def _without_gradients(held: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within it, `held` get no gradient."""
    try:
        for parameter in held:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


# The sums of losses, right answers and tokens between two lines of a run's log.


@dataclass
class Meter:
    """Sums since the last line of the log.

    Attributes:
        totals: of the losses of each term (fp32 scalars, on the device).
        correct: targets predicted right, for the terms that know it (int64 scalars).
        shares: other numbers of targets, by "term_name" (int64 scalars).
        counts: targets.
        tokens: real tokens.
        seconds: of the steps.
    """

    totals: dict[str, Tensor] = field(default_factory=dict)
    correct: dict[str, Tensor] = field(default_factory=dict)
    shares: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    seconds: float = 0.0

    def add(self, terms: dict[str, Term]) -> None:
        """Add the terms of a micro-batch."""
        for name, term in terms.items():
            self.totals[name] = self.totals.get(name, 0) + term.total.detach()
            self.counts[name] = self.counts.get(name, 0) + term.count
            if term.correct is not None:
                self.correct[name] = self.correct.get(name, 0) + term.correct
            for share, number in term.shares.items():
                key = f"{name}_{share}"
                self.shares[key] = self.shares.get(key, 0) + number

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint, as JSON values; a float holds an fp32 number
        exactly."""
        return {
            "totals": {name: float(total) for name, total in self.totals.items()},
            "correct": {name: int(right) for name, right in self.correct.items()},
            "counts": self.counts,
            "tokens": self.tokens,
            "seconds": self.seconds,
            **(
                {"shares": {name: int(number) for name, number in self.shares.items()}}
                if self.shares
                else {}
            ),
        }

    @classmethod
    def restore(cls, state: dict[str, Any], device: torch.device) -> Meter:
        """Return the meter of :meth:`state`."""
        return cls(
            {name: torch.tensor(v, device=device) for name, v in state["totals"].items()},
            {name: torch.tensor(v, device=device) for name, v in state["correct"].items()},
            {name: torch.tensor(v, device=device) for name, v in state.get("shares", {}).items()},
            dict(state["counts"]),
            state["tokens"],
            state["seconds"],
        )

    @classmethod
    def resumed(cls, state: dict[str, Any], world: DistContext, device: torch.device) -> Meter:
        """Return this process's part of a checkpoint's sums: its own where the world is the same,
        so that they go on being added in the same order; else the first process has it all."""
        parts = state.get("meters", [state["meter"]])
        if len(parts) == world.size:
            return cls.restore(parts[world.rank], device)
        meter = cls.restore(state["meter"], device)
        if not world.main:
            for sums in (meter.totals, meter.correct, meter.shares):
                sums.update({name: torch.zeros_like(value) for name, value in sums.items()})
            meter.counts = dict.fromkeys(meter.counts, 0)
        return meter

    @classmethod
    def joined(cls, states: list[dict[str, Any]], device: torch.device) -> Meter:
        """Add up the meters of all processes, from the :meth:`state` of each. Tokens and seconds
        are those of the whole step in every one."""
        first = dict(states[0])
        for name in ("totals", "correct", "counts", *(("shares",) if "shares" in first else ())):
            first[name] = {key: sum(state[name][key] for state in states) for key in first[name]}
        return cls.restore(first, device)

    def means(self, weights: dict[str, float]) -> dict[str, float]:
        """Compute the numbers of a line of the log: the loss, by the `weights` of the terms; loss
        and accuracy of each term that had a target; tokens a second."""
        losses = {k: float(v) / max(1, self.counts[k]) for k, v in self.totals.items()}
        entry = {"loss": sum(weights[k] * v for k, v in losses.items())}
        alone = len(losses) == 1
        if not alone:
            entry |= {f"{k}_loss": v for k, v in losses.items() if self.counts[k]}
        for name, right in self.correct.items():
            if not alone and not self.counts[name]:
                continue
            key = "accuracy" if alone else f"{name}_accuracy"
            entry[key] = float(right) / max(1, self.counts[name])
        for key, number in self.shares.items():
            entry[key] = float(number) / max(1, self.counts[key.partition("_")[0]])
        entry["tokens_per_second"] = self.tokens / max(self.seconds, 1e-9)
        return entry


#: Tokens, padding counted, that are computed at once: of a CPU, of a GPU.
CPU_MICRO_BATCH, GPU_MICRO_BATCH = 16384, 65536


def accumulate(
    model: Model, objective: Loss, parts: list[Batch], *, dtype: torch.dtype, seeds: list[int]
) -> list[dict[str, Term]]:
    """Add the gradients of one step, computed in `parts`, to the parameters.

    Every term is the mean over all its targets in the step: sums are divided by the count of the
    whole step, not averaged per part, so any partition gives the large batch's gradient.

    Args:
        seeds: (seed, step) of the dropout; the part's index is added.
    """
    adapt_spin_count()
    whole: dict[str, int] = {}
    for part in parts:
        for name, count in objective.counts(part).items():
            whole[name] = whole.get(name, 0) + count
    device = next(model.parameters()).device
    computed = []
    for index, part in enumerate(parts):
        stream.seed(*seeds, index)
        with autocast(dtype, device):
            terms = objective.terms(model, send(part, model, dtype))
        loss = sum(t.total * (t.weight / max(1, whole[name])) for name, t in terms.items())
        assert isinstance(loss, Tensor)
        loss.backward()
        computed.append(terms)
    return computed


class TrainStep:
    """Computes the steps of a run: this process by itself, or as one of a team.

    Args:
        model: on this process's device; in a team the same in all processes.
        batch: a pure function of the step, of which a team looks at the first.
        world: the processes that compute each step together; all make a stepper.
        dtype: to compute in.
        max_tokens: of a micro-batch, padding counted; None: what suits the device.
        shard: divide weights, gradients and moments among the processes.
        compile: the parts of the model, on a GPU.

    Attributes:
        model: what is trained, and what an optimizer is made of: the model itself, or with `shard`
            a sharded copy of it.
        plain: the model as it was given; with `shard` it may be without weights.
        objective: what is minimized.
        max_tokens: of a micro-batch.
        config: of the model.
        dtype: computed in.
    """

    def __init__(
        self,
        model: Model,
        objective: Loss,
        batch: Callable[[int], Batch],
        *,
        world: DistContext,
        dtype: torch.dtype,
        max_tokens: int | None = None,
        shard: bool = False,
        compile: bool | None = None,
    ) -> None:
        device = next(model.parameters()).device
        self.model, self.plain, self.objective = model, model, objective
        self.config, self.dtype = model.config, dtype
        self.max_tokens = max_tokens or (
            CPU_MICRO_BATCH if device.type == "cpu" else GPU_MICRO_BATCH
        )
        keep_freed_memory()
        self._team: DataParallel | None = None
        if world.size > 1:
            sample = batch(0)
            check_batch(sample, model.config)
            self._team = DataParallel(
                model,
                objective,
                world,
                max_tokens=self.max_tokens,
                dtype=dtype,
                shard=shard,
                sample=sample,
            )
            self.model = self._team.model
        if compile and device.type == "cuda" and not (self._team and shard):
            compile_parts(self.model)

    def training(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which steps are computed."""
        return row_gradients(self.plain) if self._team is None else contextlib.nullcontext()

    def accumulate(self, batch: Batch, seeds: list[int]) -> list[dict[str, Term]]:
        """Add the gradients of the whole `batch` to the parameters.

        Args:
            seeds: (seed, step) of the dropout.

        Returns:
            The terms of the micro-batches that this process computed.
        """
        if self._team is not None:
            return self._team.accumulate(batch, seeds)
        parts = split(batch, self.max_tokens)
        return accumulate(self.plain, self.objective, parts, dtype=self.dtype, seeds=seeds)

    def collect(self) -> None:
        """Bring the weights of a sharded model into the plain one of the first process; all
        processes must call it."""
        if self._team is not None:
            self._team.collect()

    def close(self) -> None:
        """Leave the model as it was given, with its new weights (with `shard`: in the first
        process); all processes must call it."""
        if self._team is not None:
            self._team.close()
