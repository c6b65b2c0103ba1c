"""An LSTM with a projection whose cells and states are bounded, as ELMo has it, and whose state
goes on from batch to batch. Its training on a CPU is of one operation, as that of
:mod:`bertine.models.recurrent.lstm`; PyTorch's LSTM has no bounds.

Shape legend: N words of all sequences, ordered by place as in a ``PackedSequence``; B sequences,
I inputs of a word, S cells, P width of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.precision import autocast_dtype
from bertine.models.recurrent.lstm import previous_rows, product_with, steps_of


class ProjectedLstm(nn.Module):
    """One layer and direction of an LSTM with projection (Sak et al. 2014), with bounds as
    TensorFlow's ``LSTMCell`` has them: cells are cut before they are shown, states after they are
    projected.

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
        """Draw new weights, as TensorFlow does where nothing is said (uniform, Glorot and Bengio
        2010); the forget gate begins open."""
        cells = self.weight_hr.shape[1]
        # There the two matrices of the gates are one.
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
            sizes: sequences of each step, never more than of the one before.
            state: what the sequences begin with, fp32 [B, P] and [B, S] (states, cells); no
                gradient goes into it.

        Returns:
            States fp32 [N, P], and what each sequence ends with, as `state`.
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
    """What such an LSTM does from step to step.

    gates: [N, 4 S], in the type to compute in.
    of_state, projection: [4 S, P] and [P, S], in that type.
    state, cell: fp32 [B, P] and [B, S].
    sizes: sequences of each step.
    clips: of cells and of states.
    Returns fp32 [N, P], [B, P], [B, S]: states, and the last ones with their cells.
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
            # In place: what has ended keeps the state it ended with.
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
        # A step at a time, whose numbers stay in the cache, and by PyTorch's own derivatives, which
        # are one pass each.
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
