"""Compute the gradients of one training step in parts, by one process or several.

Also here: compilation of the model's parts, freezing of weights, and the sums for a line of the
log.
"""

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
from bertine.models.layers import faster_products
from bertine.models.precision import autocast
from bertine.models.torch_private import allow_recompilations
from bertine.objectives.losses import Loss, Term
from bertine.training.adamw import row_gradients
from bertine.training.distributed import DistContext
from bertine.training.parallel import DataParallel, send

# Compilation: torch.compile for training on a GPU, applied to the repeated parts, not to the whole
# model.
#
# All encoder layers share one piece of compiled code. It is compiled at most twice for each way of
# calling a layer: with the first shapes, then with a variable number of rows. After that, batches
# of any size compile nothing more. If PyTorch meets more than :data:`_WAYS` ways, it computes the
# rest without compiling.

#: The ways to call a part that are compiled: training and evaluation, with padding and without.
_WAYS = 16


def compile_parts(model: Model) -> None:
    """Compile the encoder layers of `model` (in place), its heads that predict words, and the
    cross-entropy, each at its first call.

    State dicts and copies of the model stay as they are. Without a C compiler, which torch.compile
    needs, print a note and compile nothing.
    """
    if not any(map(shutil.which, (os.environ.get("CC", ""), "clang", "gcc"))):
        logger.info(
            "no C compiler (gcc or clang): the model is not compiled, and trains more slowly"
        )
        return
    allow_recompilations(_WAYS)
    for layer in model.backbone.layers:
        # Recurrent layers are left out: their number of steps depends on the batch, and each number
        # would be compiled again.
        if not isinstance(layer, RecurrentLayer):
            layer.compile()
    for head in model.heads.values():
        if isinstance(head, GuessesWords):
            head.compile()
    losses.compile_cross_entropy()


# Freezing: weights that training leaves unchanged.


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
    """Freeze, within the context, the lowest `layers` layers, and the embeddings if `embeddings`:
    their weights get no gradient. Dropout in them stays active.

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
    """Return whether the linear layers of the backbone have biases; those of ModernBERT have
    none."""
    layers = [part for part in model.backbone.layers.modules() if isinstance(part, nn.Linear)]
    return any(layer.bias is not None for layer in layers)


@contextlib.contextmanager
def only_biases_trained(model: Model) -> Iterator[None]:
    """Train, within the context, only the biases and the parameters of layer norms (all weights of
    `model` with one dimension) (BitFit: Ben Zaken et al. 2021, arXiv 2106.10199)."""
    held = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    with _without_gradients(held):
        yield


@contextlib.contextmanager
def _without_gradients(held: Sequence[nn.Parameter]) -> Iterator[None]:
    """Compute, within the context, no gradients for `held`."""
    try:
        for parameter in held:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


# The meter: sums of losses, correct predictions and tokens between two lines of a run's log.


@dataclass
class Meter:
    """The sums since the last line of the log.

    Attributes:
        totals: the losses of each term (fp32 scalars, on the device).
        correct: the correctly predicted targets, for the terms that count them (int64 scalars).
        shares: other numbers of targets, by "term_name" (int64 scalars).
        counts: the targets.
        tokens: the real tokens.
        seconds: the duration of the steps.
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
        """Return the sums for a checkpoint, as JSON values; a float represents an fp32 number
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
        """Restore a meter from its :meth:`state`."""
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
        """Return this process's part of the sums in a checkpoint. If the number of processes is the
        same, it is its own part, so that the order of addition is the same; else the first process
        gets everything."""
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
        are already those of the whole step in each of them."""
        first = dict(states[0])
        for name in ("totals", "correct", "counts", *(("shares",) if "shares" in first else ())):
            first[name] = {key: sum(state[name][key] for state in states) for key in first[name]}
        return cls.restore(first, device)

    def means(self, weights: dict[str, float]) -> dict[str, float]:
        """Compute the values of a line of the log: the loss, by the `weights` of the terms; loss
        and accuracy of each term that had a target; tokens per second."""
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


#: The tokens, padding counted, that are computed at once on a CPU and on a GPU.
CPU_MICRO_BATCH, GPU_MICRO_BATCH = 16384, 65536


def accumulate(
    model: Model, objective: Loss, parts: list[Batch], *, dtype: torch.dtype, seeds: list[int]
) -> list[dict[str, Term]]:
    """Add the gradients of one step, computed in `parts`, to the parameters.

    Every term is the mean over all its targets in the step: sums are divided by the count of the
    whole step, not averaged per part, so any partition gives the large batch's gradient.

    Args:
        seeds: (seed, step) of the dropout; the index of the part is added.

    Returns:
        The terms of each part.
    """
    adapt_spin_count()
    counts: dict[str, int] = {}
    for part in parts:
        for name, count in objective.counts(part).items():
            counts[name] = counts.get(name, 0) + count
    device = next(model.parameters()).device
    computed = []
    for index, part in enumerate(parts):
        stream.seed(*seeds, index)
        with autocast(dtype, device), faster_products(model):
            terms = objective.terms(model, send(part, model, dtype))
        # The part's share of the step's loss. The log computes the whole from the terms: `Meter`.
        loss = sum(t.total * (t.weight / max(1, counts[name])) for name, t in terms.items())
        assert isinstance(loss, Tensor)
        loss.backward()
        computed.append(terms)
    return computed


class TrainStep:
    """The computation of a run's steps, by this process alone or as one of several.

    Args:
        model: on this process's device; with several processes the same in all.
        batch: a pure function of the step; several processes inspect the first batch.
        world: the processes that compute each step together; all create a stepper.
        dtype: to compute in.
        max_tokens: of a micro-batch, padding counted; None: a value that suits the device.
        shard: divide weights, gradients and moments among the processes.
        compile: compile the parts of the model, on a GPU.

    Attributes:
        model: the module that is trained, and whose parameters the optimizer gets: the model
            itself, or with `shard` a sharded copy of it.
        plain: the model as it was passed; with `shard` it may be without weights.
        objective: the loss to minimize.
        max_tokens: of a micro-batch.
        config: of the model.
        dtype: of the computation.
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
        """Copy the weights of a sharded model into the plain one of the first process; all
        processes must call it."""
        if self._team is not None:
            self._team.collect()

    def close(self) -> None:
        """Restore the original form of the model, with its new weights (with `shard`: in the first
        process); all processes must call it."""
        if self._team is not None:
            self._team.close()
