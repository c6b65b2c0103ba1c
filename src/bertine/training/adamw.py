"""Train BERT with AdamW on PyTorch's fused kernel.

:class:`ClippedOptimizer` is the base of this AdamW and of the other optimizers
(:mod:`bertine.training.optimizers`).
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from bertine.models import torch_private
from bertine.training.distributed import norm

#: Only tables of words have so many rows.
_MANY_ROWS = 8192
#: A step count so high that both of Adam's bias corrections are 1 for every beta below 1.
_UNCORRECTED = 1e30


def parameter_groups(
    model: nn.Module, weight_decay: float, layer_decay: float = 1.0
) -> list[dict[str, Any]]:
    """Split the parameters into two groups: matrices and embeddings with decay; biases and layer
    norms (every parameter of one dimension) without (google-research/bert,
    ``exclude_from_weight_decay``).

    With a `layer_decay` below 1, there are two groups for each depth, with a factor on the rate as
    ``rate``: 1 for heads and pooler, `layer_decay` for the highest layer, and for each lower layer
    `layer_decay` times the factor of the layer above; the embeddings have the smallest (Howard and
    Ruder 2018; Clark et al. 2020, ELECTRA).
    """
    if layer_decay != 1.0:
        return _groups_by_depth(model, weight_decay, layer_decay)
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    plain = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


def _groups_by_depth(
    model: nn.Module, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    places = [name.split(".") for name, _ in model.named_parameters()]
    top = 1 + max(int(place[2]) for place in places if place[1] == "layers") + 1

    def depth(name: str) -> int:
        place = name.split(".")
        if place[:2] == ["backbone", "layers"]:
            return int(place[2]) + 1
        return 0 if place[:2] == ["backbone", "embeddings"] else top

    groups: list[dict[str, Any]] = []
    for at in range(top + 1):
        for matrices in (True, False):
            members = [p for name, p in named if depth(name) == at and (p.ndim > 1) == matrices]
            if members:
                decay = weight_decay if matrices else 0.0
                rate = layer_decay ** (top - at)
                groups.append({"params": members, "weight_decay": decay, "rate": rate})
    return groups


@contextlib.contextmanager
def row_gradients(model: nn.Module) -> Iterator[None]:
    """Make embeddings, within the context, return sparse gradients of the rows that were looked up,
    not dense ones that are zero in nearly all rows and as large as the vocabulary.

    For training in one process with a :class:`ClippedOptimizer`, which accepts such gradients and
    computes the same updates. If the table is also the decoder, its gradient is dense anyway, and
    the rows are added to it. On a GPU nothing is changed: a dense gradient is computed quickly
    there, and the number of rows would force a synchronization.
    """
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    before = [(m, m.sparse) for m in embeddings if m.weight.device.type == "cpu"]
    for module, _ in before:
        module.sparse = True
    try:
        yield
    finally:
        for module, sparse in before:
            module.sparse = sparse


def device_clip(norm: Tensor, max_grad_norm: float) -> tuple[Tensor | None, Tensor]:
    """Return the arguments for PyTorch's fused kernel that clip without reading `norm` (fp32
    scalar) on the host: the divisor of the gradients (None: no division), and 1.0 where the kernel
    must leave the weights unchanged."""
    scale = (norm / max_grad_norm).clamp(min=1.0).float() if max_grad_norm > 0 else None
    return scale, (~norm.isfinite()).float()


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradients of `parameters` that have one; of sparse ones, which are made unique,
    their values."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad.values())
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    return gradients


def zeros_of(parameter: Tensor) -> Tensor:
    """Return zeros of the shape and type of `parameter`; those of a table of words, on a CPU, take
    memory only where they are written."""
    here = type(parameter) is nn.Parameter and parameter.device.type == "cpu"
    large = here and parameter.ndim == 2 and len(parameter) >= _MANY_ROWS
    if sys.platform == "win32" or not large:
        return torch.zeros_like(parameter)
    pages = mmap.mmap(-1, parameter.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Otherwise a row that is written takes two megabytes, where the system's pages are that large.
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=parameter.dtype).view(parameter.shape)


class ClippedOptimizer(torch.optim.AdamW):
    """The interface of an optimizer to the training loop.

    The rate is passed with every step, gradients are clipped by their global norm in the same pass
    that reads them, and gradients of embeddings may be sparse. The state of every parameter is
    created at the start, so that checkpoints of all steps have the same form.

    A subclass has a ``step()`` that divides the gradients by ``grad_scale``, if there is one, and
    does nothing if ``found_inf`` is 1.
    """

    #: The divisor of the gradients, and the flag that the step must be skipped.
    grad_scale: Tensor | None
    found_inf: Tensor | None

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
        torch_private.keep_eager()
        groups = self.groups_of(model, parameter_groups(model, weight_decay, layer_decay))
        super().__init__(groups, lr=0.0, betas=betas, eps=eps, fused=True)
        start = 0.0 if bias_correction else _UNCORRECTED
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = self.first_state(parameter, start, group)

    def groups_of(self, model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Divide the groups of the parameters of `model` further."""
        return groups

    def first_state(
        self, parameter: Tensor, start: float, group: dict[str, Any]
    ) -> dict[str, Tensor]:
        """Return the state of `parameter` before the first step: Adam's, whose steps are counted
        from `start`."""
        return {
            "step": torch.tensor(start, device=parameter.device),
            "exp_avg": zeros_of(parameter),
            "exp_avg_sq": zeros_of(parameter),
        }

    def set_beta1(self, beta1: float) -> None:
        """Set the momentum of the next steps."""
        for group in self.param_groups:
            group["betas"] = (beta1, group["betas"][1])

    def grad_norm(self) -> Tensor:
        """Return the Euclidean norm of all gradients together, fp32 scalar."""
        return norm(gradients_of(p for group in self.param_groups for p in group["params"]))

    def clipped_step(self, learning_rate: float, max_grad_norm: float) -> float | Tensor:
        """Update with the gradients scaled so that their norm is at most `max_grad_norm` (0: not
        clipped); return the norm before clipping.

        Sparse gradients are consumed. On a GPU the host does not wait: the norm is a tensor there,
        and if it is not finite, the weights stay as they are.
        """
        norm = self.grad_norm()
        for group in self.param_groups:
            group["lr"] = learning_rate * group.get("rate", 1.0)
        if norm.device.type != "cpu":
            self.grad_scale, self.found_inf = device_clip(norm, max_grad_norm)
            self.step()
            return norm
        value = float(norm)
        clipped = max_grad_norm > 0 and value > max_grad_norm
        self.grad_scale = (norm / max_grad_norm).float() if clipped else None
        self.found_inf = None
        with self._densified():
            self.step()
        return value

    @functools.cached_property
    def _dense(self) -> dict[Tensor, Tensor]:
        """The dense gradients of the parameters with sparse ones, zero between steps."""
        return {}

    @functools.cached_property
    def _used(self) -> dict[Tensor, Tensor]:
        """The rows of each table that have had a gradient, bool [V]."""
        return {}

    def _update_rows(self, table: Tensor, group: dict[str, Any]) -> bool:
        """Update `table` by its sparse gradient, and return whether this can be done."""
        return False

    def update_as_adamw(
        self, parameters: list[Tensor], grads: list[Tensor], states: list[Any], group: Any
    ) -> None:
        """Update `parameters` as AdamW does, by the settings of `group`."""
        adamw(
            parameters,
            grads,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    @contextlib.contextmanager
    def _densified(self) -> Iterator[None]:
        """Convert, within the context, sparse gradients to dense ones, in buffers that are kept.
        Only the rows that were used are cleared, which for a large vocabulary takes a thousandth of
        the time of a new buffer."""
        used = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or not parameter.grad.is_sparse:
                    self._used.pop(parameter, None)
                elif self._update_rows(parameter, group):
                    parameter.grad = None
                else:
                    rows = parameter.grad.indices()[0]
                    buffer = self._dense.get(parameter)
                    if buffer is None:
                        buffer = self._dense[parameter] = torch.zeros_like(parameter)
                    parameter.grad = buffer.index_copy_(0, rows, parameter.grad.values())
                    used.append((parameter, rows))
        yield
        for parameter, rows in used:
            self._dense[parameter].index_fill_(0, rows, 0.0)
            parameter.grad = None


class AdamW(ClippedOptimizer):
    """AdamW with decoupled decay, clipping by global norm in the same pass, and optional bias
    correction.

    The paper's code has no bias correction (google-research/bert, ``AdamWeightDecayOptimizer``);
    with it, training on small sets fails less often (Mosbach et al. 2021, "On the Stability of
    Fine-tuning BERT"; Zhang et al. 2021). The default is to correct.

    The training loop sets `lr` on every step.
    """

    def step(self, closure: Any = None) -> Any:
        """Do a step; there is no `closure`."""
        torch_private.adam_step(self)

    @torch.no_grad()
    def _update_rows(self, table: Tensor, group: dict[str, Any]) -> bool:
        """Update `table` [V, H], whose gradient is sparse, in the rows that have had a gradient; to
        all others nothing happens but the decay. The weights are those of a dense update, bit for
        bit. Do nothing, and return False, if these are more than a third of the rows, as then a
        dense update is faster."""
        assert table.grad is not None
        if table.numel() % 16:  # the last numbers would be rounded in another way
            return False
        state = self.state[table]
        used = self._used.get(table)
        if used is None:  # The first step, or that after a checkpoint.
            used = self._used[table] = state["exp_avg"].any(1) | state["exp_avg_sq"].any(1)
        places = table.grad.indices()[0]
        used[places] = True
        rows = used.nonzero()[:, 0]
        # The last numbers of a tensor whose size is odd are rounded in another way.
        rows = torch.cat([rows, (~used).nonzero()[: -len(rows) % 16, 0]]).sort().values
        if 3 * len(rows) > len(used):
            return False
        wholes = (table, state["exp_avg"], state["exp_avg_sq"])
        parts = [whole.index_select(0, rows) for whole in wholes]
        within = torch.searchsorted(rows, places)
        gradient = torch.zeros_like(parts[0]).index_copy_(0, within, table.grad.values())
        table.mul_(1.0 - group["lr"] * group["weight_decay"])
        states = [{"step": state["step"], "exp_avg": parts[1], "exp_avg_sq": parts[2]}]
        self.update_as_adamw(parts[:1], [gradient], states, group)
        for whole, part in zip(wholes, parts, strict=True):
            whole.index_copy_(0, rows, part)
        return True
