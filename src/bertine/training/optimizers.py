"""Train with Muon or LAMB, and choose an optimizer by its name.

Muon is that of Jordan 2024 ("Muon: An optimizer for hidden layers in neural networks"), with the
scale and the decay of Liu et al. 2025 ("Muon is scalable for LLM training"). LAMB is that of You et
al. 2019. AdamW is in :mod:`bertine.training.adamw`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.names import OptimizerName, option
from bertine.models.heads import Model
from bertine.options.training import Updates
from bertine.training.adamw import AdamW, ClippedOptimizer

# Joined tensors: parameters that are several matrices in the published models, joined along rows.

#: Names of modules that join several matrices of one shape, with their number
#: (:mod:`bertine.models.layers`).
_JOINED = {"qkv": 3, "qk": 2}


def parts_of(model: nn.Module) -> dict[Tensor, int]:
    """Return the joined parameters of `model`, with the number of equal parts of their rows."""
    return {
        parameter: _JOINED[module]
        for name, parameter in model.named_parameters()
        if (module := name.rpartition(".")[0].rpartition(".")[2]) in _JOINED
    }


# LAMB (You et al. 2019, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
# algorithm 2), as it trained ALBERT (google-research/albert, ``lamb_optimizer.py``).


class Lamb(ClippedOptimizer):
    """LAMB: Adam's update plus the decay, scaled to the norm of the weights, variable by variable,
    then multiplied by the rate. So each variable changes by the same share of its size.

    Biases and norms are updated as by Adam, without decay and without that ratio, as in the
    published program. There, query, key and value are separate variables; here the three parts of
    the joined tensor have a ratio each. The published program has no bias correction, the paper
    has; it is an option. The training loop sets `lr` on every step.
    """

    def __init__(self, model: nn.Module, **settings: Any) -> None:
        super().__init__(model, **settings)
        self._parts = parts_of(model)
        #: A buffer for the update of any one parameter, so that it stays in the cache between
        #: passes.
        self._room: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        # The fused kernel at a rate of 1 on zeros gives the update, with the opposite sign.
        update = self._zeros_like(parameter)
        alone = {**group, "lr": 1.0, "weight_decay": 0.0}
        self.update_as_adamw([update], [grad], [self.state[parameter]], alone)
        if parameter.ndim <= 1:
            parameter.add_(update, alpha=group["lr"])
            return
        if group["weight_decay"]:
            update.add_(parameter, alpha=-group["weight_decay"])
        count = self._parts.get(parameter, 1)
        for weights, change in zip(parameter.chunk(count), update.chunk(count), strict=True):
            length, moved = torch.linalg.vector_norm(weights), torch.linalg.vector_norm(change)
            ratio = torch.where((length > 0) & (moved > 0), length / moved, 1.0)
            if self.found_inf is not None:
                ratio = ratio * (1.0 - self.found_inf)
            weights.addcmul_(change, ratio, value=group["lr"])

    def _zeros_like(self, parameter: Tensor) -> Tensor:
        size = parameter.numel()
        if self._room is None or self._room.numel() < size:
            largest = max(p.numel() for group in self.param_groups for p in group["params"])
            self._room = torch.empty(largest, dtype=parameter.dtype, device=parameter.device)
        return self._room[:size].view(parameter.shape).zero_()


#: The decay factor of the momentum.
_MOMENTUM = 0.95
#: The coefficients of the polynomial of the Newton-Schulz iteration. In five steps it brings
#: singular values between 0.7 and 1.2, if they are above a thousandth of the largest.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
#: An orthogonal matrix [R, C] has entries of 1 / sqrt(max(R, C)) on average. Multiplied by this
#: factor, they are as large as those of AdamW's updates, so that AdamW's rate and decay suit them
#: (Liu et al., section 2.2).
_RMS = 0.2


class _Matrix(NamedTuple):
    """A matrix to update: a view of the weights, its new direction, its rate and decay."""

    weights: Tensor
    direction: Tensor
    learning_rate: float
    weight_decay: float


class Muon(ClippedOptimizer):
    """Muon for the matrices of the layers; AdamW for embeddings, heads, pooler, biases and norms.

    Muon's update is the momentum of the gradient with all its singular values set to about 1, so
    that every direction changes equally. The parts of joined queries, keys and values count as
    separate matrices. Matrices of one shape are made orthogonal together. The training loop sets
    `lr` on every step.

    Args:
        dtype: of the products that make matrices orthogonal. bf16 is precise enough, as the
            singular values need not be exactly 1.
        settings: of :class:`ClippedOptimizer`; betas, eps and bias_correction are for AdamW.
    """

    def __init__(
        self, model: nn.Module, *, dtype: torch.dtype = torch.float32, **settings: Any
    ) -> None:
        super().__init__(model, **settings)
        self._parts, self._dtype = parts_of(model), dtype

    def groups_of(self, model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        matrices = {p for name, p in model.named_parameters() if _is_of_layers(name, p)}
        return [
            {**shared, "params": mine, "muon": muon}
            for shared in groups
            for muon in (True, False)
            if (mine := [p for p in shared["params"] if (p in matrices) == muon])
        ]

    def first_state(
        self, parameter: Tensor, start: float, group: dict[str, Any]
    ) -> dict[str, Tensor]:
        if group["muon"]:
            return {"momentum": torch.zeros_like(parameter)}
        return super().first_state(parameter, start, group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
        by_shape: dict[tuple[int, ...], list[_Matrix]] = {}
        for group in self.param_groups:
            members = [p for p in group["params"] if p.grad is not None]
            if not group["muon"]:
                grads = [p.grad for p in members if p.grad is not None]
                states = [self.state[p] for p in members]
                self.update_as_adamw(members, grads, states, group)
                continue
            for parameter in members:
                direction, count = self._direction(parameter), self._parts.get(parameter, 1)
                parts = zip(parameter.chunk(count), direction.chunk(count), strict=True)
                for weights, part in parts:
                    matrix = _Matrix(weights, part, group["lr"], group["weight_decay"])
                    by_shape.setdefault(tuple(weights.shape), []).append(matrix)
        for matrices in by_shape.values():
            self._move(matrices)

    def _direction(self, parameter: Tensor) -> Tensor:
        """Add the gradient to the momentum, and return their Nesterov mean, stored in the memory of
        the gradient."""
        grad, momentum = parameter.grad, self.state[parameter]["momentum"]
        assert grad is not None
        if self.grad_scale is not None:
            grad.div_(self.grad_scale)
        if self.found_inf is not None:  # keeps the momentum unchanged
            grad.copy_(torch.where(self.found_inf > 0, momentum, grad))
        momentum.lerp_(grad, 1.0 - _MOMENTUM)
        return grad.lerp_(momentum, _MOMENTUM)

    def _move(self, matrices: list[_Matrix]) -> None:
        """Update matrices of one shape [R, C]."""
        rows, columns = matrices[0].weights.shape
        tall = rows > columns
        size = (len(matrices), min(rows, columns), max(rows, columns))
        stack = torch.empty(size, dtype=self._dtype, device=matrices[0].weights.device)
        for place, matrix in zip(stack, matrices, strict=True):
            place.copy_(matrix.direction.T if tall else matrix.direction)
        scale = _RMS * max(rows, columns) ** 0.5
        for matrix, direction in zip(matrices, orthogonal(stack), strict=True):
            rate, weights = matrix.learning_rate, matrix.weights
            if self.found_inf is not None:
                direction = torch.where(self.found_inf > 0, 0.0, direction)
                weights.mul_(1.0 - rate * matrix.weight_decay * (1.0 - self.found_inf))
            else:
                weights.mul_(1.0 - rate * matrix.weight_decay)
            weights.add_(direction.T if tall else direction, alpha=-rate * scale)


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices near U V' of the singular value decompositions U S V' of `matrices` [N, R,
    C], R at most C, by the Newton-Schulz iteration: singular values between 0.7 and 1.2."""
    a, b, c = _COEFFICIENTS
    lengths = torch.linalg.matrix_norm(matrices.float(), keepdim=True) + 1e-7
    x = (matrices / lengths).to(matrices.dtype)
    for _ in range(_ITERATIONS):
        products = torch.bmm(x, x.transpose(1, 2))
        polynomial = torch.baddbmm(products, products, products, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


def _is_of_layers(name: str, parameter: Tensor) -> bool:
    """Return whether the parameter called `name` is a matrix of a layer, including layers of a
    generator."""
    return parameter.ndim == 2 and "layers" in name.split(".")


# Choice: optimizers by name.

OPTIMIZERS: dict[OptimizerName, type[ClippedOptimizer]] = {
    "adamw": AdamW,
    "lamb": Lamb,
    "muon": Muon,
}


def optimizer_for(model: Model, options: Updates, dtype: torch.dtype) -> ClippedOptimizer:
    """Return the optimizer that `options` describe, for all trained parameters of `model`.

    Args:
        dtype: of the run's computation, for Muon's products.
    """
    settings = {
        "weight_decay": options.weight_decay,
        "betas": (options.adam_beta1, options.adam_beta2),
        "eps": options.adam_epsilon,
        "bias_correction": options.bias_correction,
        "layer_decay": options.layer_decay,
    }
    kind = OPTIMIZERS[options.optimizer]
    return kind(model, **settings, **({"dtype": dtype} if kind is Muon else {}))  # type: ignore[arg-type]


def check_whole(options: Updates, shard: bool) -> None:
    """Refuse to divide weights among processes if the optimizer needs whole matrices.

    Raises:
        BertineError: they are to be divided.
    """
    if shard and options.optimizer != "adamw":
        raise BertineError(
            f"{option('shard', True)} divides matrices among processes, but the updates of "
            f"{options.optimizer} need them whole; leave it out (replicas), or take "
            f"{option('optimizer', 'adamw')}"
        )
