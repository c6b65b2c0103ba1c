"""LAMB (You et al. 2019, "Large Batch Optimization for Deep Learning: Training BERT in 76
minutes", algorithm 2), as ALBERT was trained with it (google-research/albert,
``lamb_optimizer.py``)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from bertine.training.loop.optim import ClippedOptimizer, adam_state, parameter_groups
from bertine.training.loop.optimizers.parts import parts_of


class Lamb(ClippedOptimizer):
    """LAMB: Adam's update and the decay, made as long as the weights are, variable by variable, and
    then times the rate. So each variable moves by the same share of its size.

    Biases and norms are updated as by Adam, without decay and without that ratio, as in the
    published program. There, query, key and value are variables of their own; the three parts of
    our joined tensor have a ratio each. The published program has no bias correction, the paper
    has; it is a switch. `lr` is set on every step by the training loop.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
        layer_decay: float = 1.0,
    ) -> None:
        groups = parameter_groups(model, weight_decay, layer_decay)
        super().__init__(groups, {"lr": 0.0, "betas": betas, "eps": eps})
        self._parts = parts_of(model)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = adam_state(parameter, bias_correction)
        #: Room for the update of any one parameter, so that it stays in the cache between passes.
        self._room: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        # The fused kernel at a rate of 1 on zeros leaves the update there, its sign turned.
        update = self._zeros_like(parameter)
        adam(
            [update],
            [grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            fused=True,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=1.0,
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )
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
