"""Run a bidirectional LSTM with fast training on a CPU.

PyTorch's backward pass accumulates the gradient of the recurrent weights step after step, each time
over the whole matrix. Here a step computes only what the next one needs: one product of weights
that are packed once a batch, and some operations on whole rows; the gradients of weights are one
product over all steps (``benchmarks/lstm.py``). Weights and outputs are those of an ``nn.LSTM``.

Shape legend: N words of all sentences, ordered by place as in a ``PackedSequence``; I inputs of a
word, S units of a direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bertine.models import torch_private
from bertine.models.layers import gradient_of, linear
from bertine.models.precision import autocast_dtype
from bertine.models.torch_private import has_packed


def run_lstm(lstm: nn.LSTM, packed: PackedSequence) -> PackedSequence:
    """Compute ``lstm(packed)[0]``; in bf16 under autocast.

    Args:
        lstm: bidirectional, with biases and without a projection; on a GPU PyTorch runs it.
        packed: its data [N, I].

    Returns:
        Its data fp32 [N, 2 S]: both directions of the last layer.
    """
    if packed.data.device.type != "cpu":
        output: PackedSequence = lstm(packed)[0]
        return output
    x, sizes = packed.data, packed.batch_sizes
    # In fp32 between the products, which round their inputs.
    dtype = autocast_dtype("cpu") or x.dtype
    back = _from_behind(sizes)
    with torch.autocast("cpu", enabled=False):
        for layer in range(lstm.num_layers):
            if layer:
                x = F.dropout(x, lstm.dropout, lstm.training)
            x = x.to(dtype)
            forth_out = _direction(lstm, f"l{layer}", x, sizes)
            back_out = _direction(lstm, f"l{layer}_reverse", x.index_select(0, back), sizes)
            x = torch.cat([forth_out, back_out.index_select(0, back)], -1)
    return PackedSequence(x, sizes, packed.sorted_indices, packed.unsorted_indices)


def _from_behind(sizes: Tensor) -> Tensor:
    """Return int64 [N], for each word the row of the word that is as far from the sentence's end as
    it is from the start. sizes int64 [steps], words of each step."""
    starts = F.pad(sizes.cumsum(0), (1, 0))
    rows = torch.arange(int(starts[-1]))
    step = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    sentence = rows - starts[step]
    lengths = (sizes[None, :] > torch.arange(int(sizes[0]))[:, None]).sum(1)
    return starts[lengths[sentence] - 1 - step] + sentence


def _direction(lstm: nn.LSTM, name: str, x: Tensor, sizes: Tensor) -> Tensor:
    """Map x [N, I], in the order of reading, to fp32 [N, S]."""
    weights = (getattr(lstm, f"{part}_{name}") for part in ("weight_ih", "weight_hh"))
    of_input, of_state = (weight.to(x.dtype) for weight in weights)
    bias = getattr(lstm, f"bias_ih_{name}") + getattr(lstm, f"bias_hh_{name}")
    gates = linear(x, of_input, bias.to(x.dtype), lstm.training)
    return recur(gates, of_state, sizes.tolist())


def recur(gates: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Compute the states of an LSTM step by step.

    Args:
        gates: [N, 4 S], W x + b of the input, forget, cell and output gate, in the compute type.
        weight: [4 S, S], for the states, in that type.
        sizes: words of each step, in falling order.

    Returns:
        fp32 [N, S].
    """
    states: Tensor = _Recurrence.apply(gates, weight, sizes)
    return states


class _Recurrence(torch.autograd.Function):
    """The computation of :func:`recur`, and its gradient."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
        rows, units = len(gates), weight.shape[1]
        product = product_with(weight, sizes[0])
        device = gates.device
        acts = torch.empty(rows, 4 * units, device=device)
        cells, states = (torch.empty(rows, units, device=device) for _ in range(2))
        rounded = states if gates.dtype == states.dtype else states.to(gates.dtype)
        before = slice(0, 0)
        for here in steps_of(sizes):
            size = here.stop - here.start
            # Sequences that ended at the step before do not continue.
            last = slice(before.start, before.start + size)
            act = acts[here]
            if before.stop:
                act.copy_(product(rounded[last], gates[here]))
            else:
                act.copy_(gates[here])
            enter, keep, new, show = activate(act)
            cell = torch.mul(enter, new, out=cells[here])
            if before.stop:
                cell.addcmul_(keep, cells[last])
            torch.mul(show, tanh(cell), out=states[here])
            if rounded is not states:
                rounded[here] = states[here]
            before = here
        ctx.save_for_backward(weight, acts, cells, rounded)
        ctx.sizes = sizes
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, acts, cells, rounded = ctx.saved_tensors
        sizes: list[int] = ctx.sizes
        rows, units = cells.shape
        steps = steps_of(sizes)
        product = product_with(weight.t().contiguous(), sizes[0])
        previous = previous_rows(sizes).to(weight.device)
        first = sizes[0]
        # The derivative of the cell, or of the state, by each gate, for all steps at once.
        enter, keep, new, show = acts.chunk(4, 1)
        shown = tanh(cells)
        worth = torch.empty(rows, 4, units, device=weight.device)
        torch.mul(new, enter - enter * enter, out=worth[:, 0])
        # For each word the cells of the previous word; 0 for the first.
        before = F.pad(cells.index_select(0, previous), (0, 0, first, 0))
        torch.mul(before, keep - keep * keep, out=worth[:, 1])
        torch.sub(enter, enter * new * new, out=worth[:, 2])
        torch.mul(shown, show - show * show, out=worth[:, 3])
        to_cell = show * (1 - shown * shown)
        errors = torch.empty(rows, 4 * units, dtype=weight.dtype, device=weight.device)
        of_state, of_cell = (torch.zeros(first, units, device=weight.device) for _ in range(2))
        for here in reversed(steps):
            size = here.stop - here.start
            state = of_state[:size].add_(grad[here])
            cell = of_cell[:size].addcmul_(state, to_cell[here])
            error = worth[here]
            error[:, :3] *= cell[:, None]
            error[:, 3] *= state
            errors[here] = error.flatten(1)
            if here.start:
                of_state[:size] = product(errors[here], None)
                cell *= keep[here]
        of_weight = gradient_of(errors[first:], rounded.index_select(0, previous))
        return errors, of_weight, None


def tanh(x: Tensor) -> Tensor:
    """Compute the hyperbolic tangent by way of the sigmoid, which takes a fifth of the time of
    PyTorch's ``tanh`` on a CPU; exact to some 1e-7."""
    return (x + x).sigmoid_().mul_(2.0).sub_(1.0)


def activate(gates: Tensor) -> tuple[Tensor, ...]:
    """Apply the activations of the input, forget, cell and output gate to `gates` [B, 4 S] in
    place, and return the four."""
    parts = gates.chunk(4, 1)
    parts[2].mul_(2.0)  # as in `tanh`, so that one pass does for all
    gates.sigmoid_()
    parts[2].mul_(2.0).sub_(1.0)
    return parts


def steps_of(sizes: Sequence[int]) -> list[slice]:
    """Return the rows of each step."""
    return [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]


def previous_rows(sizes: Sequence[int]) -> Tensor:
    """Return int64, for each word from the second step on the row of the previous word."""
    starts = list(accumulate(sizes, initial=0))
    parts = [
        torch.arange(start, start + size) for start, size in zip(starts, sizes[1:], strict=False)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)


def product_with(weight: Tensor, rows: int) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return a function of x and other that computes x W' (+ other), with W packed for about `rows`
    rows."""
    weight = weight.detach()
    if weight.device.type != "cpu" or not has_packed(weight.dtype):
        return lambda x, other: F.linear(x, weight) if other is None else other + x @ weight.t()
    packed = torch_private.pack(weight.contiguous(), rows)
    none = torch.zeros(weight.shape[0], dtype=weight.dtype)

    def product(x: Tensor, other: Tensor | None) -> Tensor:
        if other is None:
            return torch_private.linear(x, packed, none, "none", "")
        return torch_private.linear_add(x, other, packed, none)

    return product
