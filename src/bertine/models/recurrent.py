"""Run LSTMs with fast training on a CPU: a bidirectional one, and ELMo's with projection.

PyTorch's backward pass accumulates the gradient of the recurrent weights step after step, each time
over the whole matrix. Here a step computes only what the next one needs: one product of weights
that are packed once a batch, and some operations on whole rows; the gradients of weights are one
product over all steps (``benchmarks/lstm.py``). Weights and outputs of the first are those of an
``nn.LSTM``.

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
    return recur(F.linear(x, of_input, bias.to(x.dtype)), of_state, sizes.tolist())


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
            act[:, : 2 * units].sigmoid_()
            act[:, 2 * units : 3 * units].tanh_()
            act[:, 3 * units :].sigmoid_()
            enter, keep, new, show = act.chunk(4, 1)
            cell = torch.mul(enter, new, out=cells[here])
            if before.stop:
                cell.addcmul_(keep, cells[last])
            torch.mul(show, cell.tanh(), out=states[here])
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
        shown = cells.tanh()
        worth = torch.empty(rows, 4, units, device=weight.device)
        torch.mul(new, enter - enter * enter, out=worth[:, 0])
        torch.mul(of_word_before(cells, previous, first), keep - keep * keep, out=worth[:, 1])
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
        of_weight = errors[first:].t() @ rounded.index_select(0, previous)
        return errors, of_weight, None


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


def of_word_before(x: Tensor, previous: Tensor, first: int) -> Tensor:
    """Map x [N, S] to [N, S]: for each word the row of the previous word; 0 for the first."""
    return F.pad(x.index_select(0, previous), (0, 0, first, 0))


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


# Projected LSTM: ELMo's LSTM, with a projection, clipped cells and states, and a state that
# continues from batch to batch. As above, its training on a CPU is one operation; PyTorch's LSTM
# has no clipping.
#
# Shape legend: N words of all sequences, ordered by place as in a ``PackedSequence``; B
# sequences, I inputs of a word, S cells, P width of a state.


class ProjectedLstm(nn.Module):
    """One layer and direction of an LSTM with projection (Sak et al. 2014) and TensorFlow's
    clipping (``LSTMCell``): cells are clipped before the output gate, states after the
    projection.

    Args:
        input_size: I.
        cells: S.
        projection: P.
        cell_clip, projection_clip: the bounds, on both sides of 0.

    Attributes:
        weight_ih, weight_hh, bias: [4 S, I], [4 S, P], [4 S], of the input, forget, cell and output
            gate, as in ``nn.LSTM``. The 1 that the published code adds to the forget gate is part
            of the bias.
        weight_hr: [P, S], the projection.
    """

    def __init__(
        self,
        input_size: int,
        cells: int,
        projection: int,
        *,
        cell_clip: float = 3.0,
        projection_clip: float = 3.0,
    ) -> None:
        super().__init__()
        self.cell_clip, self.projection_clip = cell_clip, projection_clip
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, input_size))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, projection))
        self.bias = nn.Parameter(torch.empty(4 * cells))
        self.weight_hr = nn.Parameter(torch.empty(projection, cells))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new weights by TensorFlow's defaults (uniform, Glorot and Bengio 2010); the forget
        gate begins open."""
        cells = self.weight_hr.shape[1]
        # In TensorFlow the two matrices of the gates are one.
        bound = (6 / (self.weight_ih.shape[1] + self.weight_hh.shape[1] + 4 * cells)) ** 0.5
        nn.init.uniform_(self.weight_ih, -bound, bound)
        nn.init.uniform_(self.weight_hh, -bound, bound)
        nn.init.xavier_uniform_(self.weight_hr)
        self.bias.zero_()
        self.bias[cells : 2 * cells] = 1.0

    def forward(
        self, x: Tensor, sizes: Sequence[int], state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read N words; in bf16 under autocast, with cells and states in fp32.

        Args:
            x: [N, I], in the order of reading: the first words of all sequences, then the second
                ones, …, longer sequences first.
            sizes: sequences of each step, in falling order.
            state: the initial state of the sequences, fp32 [B, P] and [B, S] (states, cells); it
                gets no gradient.

        Returns:
            States fp32 [N, P], and the final state of each sequence, in the form of `state`.
        """
        dtype = autocast_dtype(x.device.type) or x.dtype
        with torch.autocast(x.device.type, enabled=False):
            gates = F.linear(x.to(dtype), self.weight_ih.to(dtype), self.bias.to(dtype))
            out, last, cells = _ProjectedRecurrence.apply(
                gates,
                self.weight_hh.to(dtype),
                self.weight_hr.to(dtype),
                *state,
                list(sizes),
                (self.cell_clip, self.projection_clip),
            )
        return out, (last, cells)


class _ProjectedRecurrence(torch.autograd.Function):
    """The steps of a projected LSTM, and their gradient.

    gates: [N, 4 S], in the compute type.
    of_state, projection: [4 S, P] and [P, S], in that type.
    state, cell: fp32 [B, P] and [B, S].
    sizes: sequences of each step.
    clips: of cells and of states.
    Returns fp32 [N, P], [B, P], [B, S]: states, the final states and the final cells.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        of_state: Tensor,
        projection: Tensor,
        state: Tensor,
        cell: Tensor,
        sizes: list[int],
        clips: tuple[float, float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, units, dtype = len(gates), projection.shape[1], gates.dtype
        first = sizes[0] if sizes else 0
        to_gates, project = product_with(of_state, first), product_with(projection, first)
        acts = gates.float() if dtype != torch.float32 else gates.clone()
        cells = gates.new_empty(rows, units, dtype=torch.float32)
        states = gates.new_empty(rows, projection.shape[0], dtype=torch.float32)
        last, last_cell = state.clone(), cell.clone()
        for here in steps_of(sizes):
            size = here.stop - here.start
            # In place: sequences that have ended keep their final state.
            hidden, memory = last[:size], last_cell[:size]
            act = acts[here]
            act += to_gates(hidden.to(dtype), None)
            act[:, : 2 * units].sigmoid_()
            act[:, 2 * units : 3 * units].tanh_()
            act[:, 3 * units :].sigmoid_()
            enter, keep, new, show = act.chunk(4, 1)
            memory.mul_(keep).addcmul_(enter, new).clamp_(-clips[0], clips[0])
            cells[here] = memory
            shown = show * memory.tanh()
            hidden.copy_(project(shown.to(dtype), None)).clamp_(-clips[1], clips[1])
            states[here] = hidden
        ctx.save_for_backward(of_state, projection, state, cell, acts, cells, states)
        ctx.sizes, ctx.clips = sizes, clips
        ctx.mark_non_differentiable(last, last_cell)
        return states, last, last_cell

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        of_state, projection, state, cell, acts, cells, states = ctx.saved_tensors
        sizes: list[int] = ctx.sizes
        dtype, first = of_state.dtype, sizes[0] if sizes else 0
        from_gates = product_with(of_state.t().contiguous(), first)
        from_states = product_with(projection.t().contiguous(), first)
        previous = previous_rows(sizes).to(cells.device)
        cut_states = states.abs() >= ctx.clips[1]
        errors = grad.new_empty(acts.shape, dtype=dtype)
        of_states = grad.new_empty(states.shape, dtype=dtype)
        shown_rows = grad.new_empty(cells.shape, dtype=dtype)
        state_grad = grad.new_zeros(first, states.shape[1], dtype=torch.float32)
        cell_grad = grad.new_zeros(first, cells.shape[1], dtype=torch.float32)
        steps = steps_of(sizes)
        # One step at a time, whose numbers stay in the cache, with PyTorch's own derivatives, which
        # take one pass each.
        by_sigmoid, by_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
        for number in range(len(steps) - 1, -1, -1):
            here = steps[number]
            size = here.stop - here.start
            enter, keep, new, show = acts[here].chunk(4, 1)
            now = cells[here]
            before = cells[steps[number - 1].start :][:size] if number else cell[:size]
            shown = now.tanh()
            shown_rows[here] = show * shown
            hidden = state_grad[:size].add_(grad[here]).masked_fill_(cut_states[here], 0.0)
            of_states[here] = hidden
            shown_grad = from_states(of_states[here], None).float()
            memory = cell_grad[:size].add_(by_tanh(shown_grad * show, shown))
            memory.masked_fill_(now.abs() >= ctx.clips[0], 0.0)
            error = errors[here].chunk(4, 1)
            error[0].copy_(by_sigmoid(memory * new, enter))
            error[1].copy_(by_sigmoid(memory * before, keep))
            error[2].copy_(by_tanh(memory * enter, new))
            error[3].copy_(by_sigmoid(shown_grad * shown, show))
            if number:
                state_grad[:size] = from_gates(errors[here], None)
                memory *= keep
        read = torch.cat([state[:first], states.index_select(0, previous)]).to(dtype)
        of_weight = errors.t() @ read
        of_projection = of_states.t() @ shown_rows
        return errors, of_weight, of_projection, None, None, None, None
