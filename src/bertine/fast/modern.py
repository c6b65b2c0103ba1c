"""Pack the layers of a ModernBERT, :class:`bertine.families.modernbert.ModernEncoder`.

The norm comes before each part, so products add their results to the residuals; queries and keys
are rotated in the pass that lays them out; local layers add a band to the scores or, from the
length on where that is cheaper, compute block by block.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A,
I inner size of the feed-forward; N rows of :class:`bertine.fast.layers.Rows`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bertine.families.modernbert import ModernEncoder, mean_of_tokens
from bertine.families.modernbert_layers import (
    Angles,
    Blocks,
    ModernBertConfig,
    ModernLayer,
    band_bias,
    block_attention,
    blocks_from,
    first_angles,
    turn_into,
)
from bertine.fast.backbone import LayerPart, PackedBackbone, PackedOutput
from bertine.fast.int8 import ByteGrid, Int8Linear, LayerRanges, smoothed
from bertine.fast.layers import (
    BLOCKED_FROM,
    FEW_ROWS,
    Heads,
    PaddedRows,
    QueriesKeysValues,
    Rows,
    UnpaddedRows,
    first_attention,
    linear,
    linear_act,
    linear_add,
    norm_of,
    packed,
    parted,
    scaled_queries,
    self_attention,
)

#: Tables of angles and bands are kept for texts of up to so many tokens, whatever a file says that
#: a model reads; for longer ones they are made anew.
_KEPT = 1024


@dataclass(frozen=True)
class LocalRows(PaddedRows):
    """Rows whose tokens attend only to those nearby.

    Attributes:
        bias: fp32 [B or 1, T, T], or of first tokens [B or 1, 1, T]; None with `blocks`.
        blocks: the blocks that attention is computed in.
    """

    blocks: Blocks | None = None

    @classmethod
    def around(cls, rows: PaddedRows, window: int, dtype: torch.dtype) -> PaddedRows:
        """Return `rows` with a window of `window` tokens to either side, for scores in `dtype`."""
        if window >= rows.length - 1:
            return rows
        real = None if rows.bias is None else rows.bias[:, 0] == 0
        if rows.length >= blocks_from(window):
            blocks = Blocks.of(rows.length, window, real, dtype)
            return cls(rows.sequences, rows.length, None, blocks)
        bias = band_bias(rows.length, window, real, torch.float32, torch.device("cpu"))
        return cls(rows.sequences, rows.length, bias[:, 0])

    @classmethod
    def around_first(cls, rows: PaddedRows, window: int) -> PaddedRows:
        """Return `rows` with a window of `window` tokens for first tokens."""
        if window >= rows.length - 1:
            return rows
        bias = torch.zeros(1, 1, rows.length) if rows.bias is None else rows.bias.clone()
        bias[:, :, window + 1 :] = float("-inf")
        return cls(rows.sequences, rows.length, bias)


class TurnedHeads(Heads):
    """Attention with rotary positions; the rows define which tokens are attended to.

    Args:
        count: A.
        size: D.
        theta: base of the rotary wavelengths.
        dtype: of the attention.
    """

    def __init__(self, count: int, size: int, theta: float, dtype: torch.dtype) -> None:
        super().__init__(count)
        self._angles = partial(first_angles, size=size, theta=theta, dtype=dtype)
        self._kept: Angles = self._angles(_KEPT)

    def parts(self, x: Tensor, parts: int, rows: PaddedRows) -> Tensor:
        """Lay out [N, parts * H] as [parts, B, A, T, D]; all but the values are rotated."""
        laid = parted(x, parts, rows, self.count)
        length = laid.shape[3]
        tables = self._kept if length <= _KEPT else self._angles(int(length))
        cosines, sines = (table[:length] for table in tables)
        out = torch.empty_like(laid, memory_format=torch.contiguous_format)
        turn_into(out[:-1], laid[:-1], cosines, sines)
        out[-1].copy_(laid[-1])
        return out

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: PaddedRows) -> Tensor:
        """Compute attention; see :meth:`bertine.fast.layers.Heads.attend`."""
        blocks = rows.blocks if isinstance(rows, LocalRows) else None
        if blocks is None:
            return super().attend(q, k, v, rows)
        b, a, t, d = q.shape
        q, k, v = (x.reshape(b * a, t, d) for x in (q, k, v))
        return block_attention(q, k, v, blocks, scale=1.0).view(b, a, t, d)


class PackedModernLayer:
    """A layer in fp32 or bf16.

    Args:
        layer: its weights are copied and packed.
        config: of the model.
        heads: of the layer's kind.
        window: of the layer; None: it attends to all tokens.
        dtype: torch.float32 or torch.bfloat16.
        split: also keep the queries' weights apart from keys' and values', for :meth:`first_token`.
    """

    def __init__(
        self,
        layer: ModernLayer,
        config: ModernBertConfig,
        heads: TurnedHeads,
        window: int | None,
        dtype: torch.dtype,
        split: bool,
    ) -> None:
        self.dtype, self.heads, self.window = dtype, heads, window
        attention, feed_forward = layer.attention, layer.feed_forward
        weight, bias = scaled_queries(attention.qkv, attention.heads)
        self._qkv = QueriesKeysValues(partial(packed, dtype=dtype), weight, bias, split)
        self._out = packed(attention.out.weight, attention.out.bias, dtype)
        weights = feed_forward.up.weight.chunk(2)
        no_biases: tuple[None, None] = (None, None)
        biases = no_biases if feed_forward.up.bias is None else feed_forward.up.bias.chunk(2)
        self._gate, self._up = (
            packed(weight, bias, dtype) for weight, bias in zip(weights, biases, strict=True)
        )
        self._down = packed(feed_forward.down.weight, feed_forward.down.bias, dtype)
        self._attention_norm = (
            None if layer.attention_norm is None else norm_of(layer.attention_norm)
        )
        self._feed_forward_norm = norm_of(layer.feed_forward_norm)
        self._act = config.hidden_act

    def __call__(self, x: Tensor, around: dict[int | None, Rows]) -> Tensor:
        """Map x [N, H] to [N, H]; `around` holds the rows by the window of layers."""
        rows = around[self.window]
        qkv = linear(self._attention_input(x), self._qkv.all)
        return self._rest(x, self_attention(qkv, rows, self.heads, self.dtype))

    def first_token(self, x: Tensor, around: dict[int | None, Rows]) -> Tensor:
        """Map x [N, H] to [at least B, H], the layer's output for each sequence's first token."""
        rows = around[self.window]
        read = self._attention_input(x)
        # At the first place the rotation is the identity.
        q, kv = linear(rows.first(read), self._qkv.q), linear(read, self._qkv.kv)
        return self._rest(rows.first(x), first_attention(q, kv, rows, self.heads))

    def weights(self) -> list[Any]:
        """Return the packed weights, for :class:`bertine.fast.layers.Recorded`."""
        products = [*self._qkv.packed, self._out, self._gate, self._up, self._down]
        return [weight for weight, _ in products]

    def _attention_input(self, x: Tensor) -> Tensor:
        return x if self._attention_norm is None else self._attention_norm(x)

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Compute the rest of the layer after the attention; x, mixed [M, H]."""
        x = linear_add(mixed, x, self._out)
        read = self._feed_forward_norm(x)
        gate = linear_act(read, self._gate, self._act)
        return linear_add(gate.mul_(linear(read, self._up)), x, self._down)


class Int8ModernLayer:
    """A layer of 8-bit products; the states that they are added to are fp32.

    Differences between channels go into the weights: the norms divide their output by them, and the
    products divide the values and the half of the feed-forward that is not activated.

    Args:
        layer: its weights are rounded and packed.
        ranges: the ranges for sample inputs.
        config, heads, window, split: as of :class:`PackedModernLayer`.
    """

    def __init__(
        self,
        layer: ModernLayer,
        ranges: LayerRanges,
        config: ModernBertConfig,
        heads: TurnedHeads,
        window: int | None,
        split: bool,
    ) -> None:
        self.heads, self.window = heads, window
        qkv, out, up, down = layer.products
        weight, bias = scaled_queries(qkv, layer.attention.heads)
        size = weight.shape[1]
        # The inputs of the products are divided by their grids' steps, which are then 1.
        divisor, self._input = smoothed(ranges.qkv, qkv.weight)
        inner_divisor, self._inner_input = smoothed(ranges.up, up.weight)
        steps, self._mixed = ByteGrid.over(*ranges.out.ends()).of_ones()
        weight[2 * size :] /= steps
        bias[2 * size :] /= steps
        weight = weight * divisor
        self._qkv = QueriesKeysValues(
            partial(Int8Linear, zero=self._input.zero), weight, bias, split
        )
        self._out = Int8Linear(out.weight * steps, _bias(out), self._mixed.zero)
        neurons, self._inner = smoothed(ranges.down, down.weight)
        gate, other = (up.weight * inner_divisor).chunk(2)
        gate_bias, other_bias = _bias(up).chunk(2)
        zero = self._inner_input.zero
        self._gate = Int8Linear(gate, gate_bias, zero)
        self._up = Int8Linear(other / neurons[:, None], other_bias / neurons, zero)
        self._down = Int8Linear(down.weight * neurons, _bias(down), self._inner.zero)
        if layer.attention_norm is None:
            self._attention_input: Callable[[Tensor], Tensor] = divisor.reciprocal().mul
        else:
            self._attention_input = norm_of(layer.attention_norm, divisor)
        self._feed_forward_norm = norm_of(layer.feed_forward_norm, inner_divisor)
        self._act = config.hidden_act

    def __call__(self, x: Tensor, around: dict[int | None, Rows]) -> Tensor:
        """Map x fp32 [N, H] to fp32 [N, H]; `around` holds the rows by the window of layers."""
        rows = around[self.window]
        qkv = self._qkv.all(self._input.round(self._attention_input(x)), torch.bfloat16)
        return self._rest(x, self_attention(qkv, rows, self.heads, torch.float32))

    def first_token(self, x: Tensor, around: dict[int | None, Rows]) -> Tensor:
        """Map x fp32 [N, H] to fp32 [at least B, H], the layer's output for each first token."""
        rows = around[self.window]
        rounded = self._input.round(self._attention_input(x))
        q = self._qkv.q(rows.first(rounded), torch.bfloat16)
        kv = self._qkv.kv(rounded, torch.bfloat16)
        return self._rest(rows.first(x), first_attention(q, kv, rows, self.heads).float())

    def weights(self) -> list[Any]:
        """Return the packed weights, for :class:`bertine.fast.layers.Recorded`."""
        products = [*self._qkv.packed, self._out, self._gate, self._up, self._down]
        return [weight for product in products for weight in product.weights()]

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Compute the rest of the layer after the attention; x and mixed fp32 [M, H]."""
        x = self._out.added_to(x + self._out.bias, self._mixed.round(mixed))
        read = self._inner_input.round(self._feed_forward_norm(x))
        inner = self._gate.activated_float(read, self._act).mul_(self._up(read, torch.float32))
        return self._down.added_to(x + self._down.bias, self._inner.round(inner))


def _bias(linear: nn.Linear) -> Tensor:
    """Return the bias of a linear layer, fp32; zeros without one."""
    if linear.bias is None:
        return torch.zeros(linear.out_features)
    return linear.bias.detach().float()


class PackedModern(PackedBackbone):
    """The embeddings of a ModernBERT, fp32, and its layers packed."""

    def float_layer(self, backbone: Any, dtype: torch.dtype) -> Any:
        """Return the first layer of `backbone`, packed in `dtype`, fp32 or bf16."""
        config = backbone.config
        window = config.windows[0]
        theta = config.rope_thetas[window]
        heads = TurnedHeads(config.num_attention_heads, config.head_size, theta, dtype)
        return PackedModernLayer(backbone.layers[0], config, heads, window, dtype, False)

    def _pack(self, backbone: Any, ranges: Sequence[LayerRanges] | None) -> None:
        assert isinstance(backbone, ModernEncoder)
        config = backbone.config
        bytes_ = self.dtype == torch.int8
        if bytes_ and ranges is None:
            raise ValueError("8-bit layers need the ranges of their activations")
        # Attention of 8-bit layers is in bf16.
        self._attention_dtype = torch.bfloat16 if bytes_ else self.dtype
        self._windows = sorted({window for window in config.windows if window is not None})
        self._pooling = config.classifier_pooling
        count, size = config.num_attention_heads, config.head_size
        heads = self._heads = {
            window: TurnedHeads(count, size, theta, self._attention_dtype)
            for window, theta in config.rope_thetas.items()
        }
        last = config.num_hidden_layers - 1
        self.layers = []
        for number, (layer, window) in enumerate(zip(backbone.layers, config.windows, strict=True)):
            assert isinstance(layer, ModernLayer)
            of_kind, split = heads[window], number == last
            self.layers.append(
                PackedModernLayer(layer, config, of_kind, window, self.dtype, split)
                if ranges is None or not bytes_
                else Int8ModernLayer(layer, ranges[number], config, of_kind, window, split)
            )
        self._words = backbone.embeddings.word_embeddings.weight.detach()
        self._places = None
        self._types = torch.zeros(1, config.hidden_size)
        norm = backbone.embeddings.layer_norm
        assert isinstance(norm, nn.LayerNorm)
        self._norm = norm_of(norm)
        self._final_norm = norm_of(backbone.final_norm)
        self._recorded_below = min([_KEPT, *map(blocks_from, self._windows)])
        changes = {window + 2 for window in self._windows}
        self._different = tuple(sorted({1, FEW_ROWS + 1, BLOCKED_FROM, *changes}))
        # The bias of a single sequence's scores, while it is recorded.
        self._bands = {
            window: band_bias(
                self._recorded_below, window, None, torch.float32, torch.device("cpu")
            )[:, 0]
            for window in self._windows
        }

    def pooled(self, output: PackedOutput, attention_mask: Tensor | None) -> Tensor | None:
        """Return the first token's state or the mean of the real tokens', as the family pools."""
        if self._pooling == "cls":
            return output.first_token
        states = output.last_hidden_state
        mask = None if attention_mask is None else attention_mask[:, : states.shape[1]]
        return mean_of_tokens(states, mask)

    def _finished(self, x: Tensor) -> Tensor:
        return self._final_norm(x)

    def around(self, part: LayerPart, x: Tensor, rows: Rows) -> dict[int | None, Rows]:
        """Return the rows with their attention masks, by the window of the layers."""
        first = part == "first of last"
        around: dict[int | None, Rows] = {None: rows}
        for window in self._windows:
            if isinstance(rows, UnpaddedRows):
                groups = [self._local(group, window, first) for group in rows.groups]
                around[window] = dataclasses.replace(rows, groups=groups)
            elif rows.sequences == 1 and window < rows.length - 1 and len(x) < self._recorded_below:
                band = self._bands[window][:, : 1 if first else x.shape[0], : x.shape[0]]
                around[window] = LocalRows(1, rows.length, band)
            else:
                around[window] = self._local(rows, window, first)
        return around

    def _local(self, rows: PaddedRows, window: int, first: bool) -> PaddedRows:
        if first:
            return LocalRows.around_first(rows, window)
        return LocalRows.around(rows, window, self._attention_dtype)
