"""AdamW as BERT is trained with it, on PyTorch's fused kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: A step count so high that both of Adam's bias corrections are 1 for every beta below 1.
_UNCORRECTED = 1e30


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two groups: matrices and embeddings with decay; biases and layer norms (every parameter of
    one dimension) without (google-research/bert, ``exclude_from_weight_decay``)."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    plain = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


class AdamW(torch.optim.AdamW):
    """AdamW with decoupled decay, clipping by global norm in the same pass, and a switch for the
    bias correction.

    The paper's code has no bias correction (google-research/bert,
    ``AdamWeightDecayOptimizer``); with it, small sets collapse less often (Mosbach et al. 2021,
    "On the Stability of Fine-tuning BERT"; Zhang et al. 2021). The default is to correct.

    `lr` is set on every step by the training loop.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        super().__init__(
            parameter_groups(model, weight_decay), lr=0.0, betas=betas, eps=eps, fused=True
        )
        self.bias_correction = bias_correction
        for group in self.param_groups:
            for parameter in group["params"]:
                # All state exists from the start, so that a checkpoint at any step has one form.
                self.state[parameter] = {
                    "step": torch.tensor(
                        0.0 if bias_correction else _UNCORRECTED, device=parameter.device
                    ),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }

    def grad_norm(self) -> Tensor:
        """The Euclidean norm of all gradients together, fp32 scalar."""
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))

    def clipped_step(self, learning_rate: float, max_grad_norm: float) -> float:
        """Update with the gradients scaled so that their norm is at most `max_grad_norm`
        (0: not clipped). Returns the norm before clipping.

        The fused kernel divides by ``grad_scale`` as it reads the gradients, so that clipping
        costs no pass over memory of its own.
        """
        norm = self.grad_norm()
        for group in self.param_groups:
            group["lr"] = learning_rate
        value = float(norm)
        clipped = max_grad_norm > 0 and value > max_grad_norm
        self.grad_scale = (norm / max_grad_norm).float() if clipped else None
        self.found_inf = None
        self.step()
        return value
