"""Packed layers of a ModernBERT: :class:`bertine.models.modern.encoder.ModernEncoder` for answers.

The norm stands before each part, so residuals are what the products' results are added to; queries
and keys are turned in the pass that lays them out; local layers add a band to the scores or, from
the length on where that is less, compute block by block.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A,
I inner size of the feed-forward; N rows of :class:`bertine.models.fast.rows.Rows`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bertine.models.fast.backbone import LayerPart, PackedBackbone, PackedOutput
from bertine.models.fast.int8 import LayerRanges
from bertine.models.fast.layers import (
    BLOCKED_FROM,
    Heads,
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
from bertine.models.fast.rows import FEW_ROWS, PaddedRows, Rows, UnpaddedRows
from bertine.models.modern.encoder import ModernEncoder, mean_of_tokens
from bertine.models.modern.layers import ModernLayer, blocks_from
from bertine.models.modern.local import Blocks, band_bias, block_attention
from bertine.models.modern.rotary import Angles, first_angles, turn_into

if TYPE_CHECKING:
    from bertine.models.modern.config import ModernBertConfig


@dataclass(frozen=True)
class LocalRows(PaddedRows):
    """Rows whose tokens see those around them alone.

    Attributes:
        bias: fp32 [B or 1, T, T], or of first tokens [B or 1, 1, T]; None where there are blocks.
        blocks: in which attention is computed.
    """

    blocks: Blocks | None = None

    @classmethod
    def around(cls, rows: PaddedRows, window: int, dtype: torch.dtype) -> PaddedRows:
        """Return `rows` where tokens see `window` others to either side, for scores in `dtype`."""
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
        """Return `rows` where first tokens see `window` others."""
        if window >= rows.length - 1:
            return rows
        bias = torch.zeros(1, 1, rows.length) if rows.bias is None else rows.bias.clone()
        bias[:, :, window + 1 :] = float("-inf")
        return cls(rows.sequences, rows.length, bias)


class TurnedHeads(Heads):
    """Attention with rotary positions; tokens see what the rows say.

    Args:
        count: A.
        by: cosines and sines of all places, [longest T, D / 2], in the type of the layers.
    """

    def __init__(self, count: int, by: Angles) -> None:
        super().__init__(count)
        self._by = by

    def parts(self, x: Tensor, parts: int, rows: PaddedRows) -> Tensor:
        """Lay out [N, parts * H] as [parts, B, A, T, D]; all but the values are turned."""
        laid = parted(x, parts, rows, self.count)
        length = laid.shape[3]
        cosines, sines = (table[:length] for table in self._by)
        out = torch.empty_like(laid, memory_format=torch.contiguous_format)
        turn_into(out[:-1], laid[:-1], cosines, sines)
        out[-1].copy_(laid[-1])
        return out

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: PaddedRows) -> Tensor:
        """See :meth:`bertine.models.fast.layers.Heads.attend`."""
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
        window: of the layer; None: it sees all tokens.
        dtype: torch.float32 or torch.bfloat16.
        split: also keep queries apart from keys and values, for :meth:`first_token`.
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
        size = weight.shape[1]
        self._qkv = packed(weight, bias, dtype)
        self._split = split
        if split:
            self._q = packed(weight[:size], bias[:size], dtype)
            self._kv = packed(weight[size:], bias[size:], dtype)
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
        """x [N, H], by the window of layers what their tokens see → [N, H]."""
        rows = around[self.window]
        qkv = linear(self._attention_input(x), self._qkv)
        return self._rest(x, self_attention(qkv, rows, self.heads, self.dtype))

    def first_token(self, x: Tensor, around: dict[int | None, Rows]) -> Tensor:
        """x [N, H] → [at least B, H], what the layer gives for the first token of each sequence."""
        rows = around[self.window]
        read = self._attention_input(x)
        # The first place is turned by nothing.
        q, kv = linear(rows.first(read), self._q), linear(read, self._kv)
        return self._rest(rows.first(x), first_attention(q, kv, rows, self.heads))

    def weights(self) -> list[Any]:
        """Return the packed weights, for :class:`bertine.models.fast.recorded.Recorded`."""
        products = [self._qkv, self._out, self._gate, self._up, self._down]
        if self._split:
            products += [self._q, self._kv]
        return [weight for weight, _ in products]

    def _attention_input(self, x: Tensor) -> Tensor:
        return x if self._attention_norm is None else self._attention_norm(x)

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return what follows the attention; x, mixed [M, H]."""
        x = linear_add(mixed, x, self._out)
        read = self._feed_forward_norm(x)
        gate = linear_act(read, self._gate, self._act)
        return linear_add(gate.mul_(linear(read, self._up)), x, self._down)


class PackedModern(PackedBackbone):
    """The embeddings of a ModernBERT, fp32, and its layers packed, in fp32 or bf16."""

    def _pack(self, backbone: Any, ranges: Sequence[LayerRanges] | None) -> None:
        if self.dtype == torch.int8:
            raise ValueError("there are no 8-bit layers of a ModernBERT")
        assert isinstance(backbone, ModernEncoder)
        config = backbone.config
        self._windows = sorted({window for window in config.windows if window is not None})
        self._pooling = config.classifier_pooling
        count, size = config.num_attention_heads, config.head_size
        length = config.max_position_embeddings
        heads = {
            window: TurnedHeads(count, first_angles(length, size, theta, self.dtype))
            for window, theta in config.rope_thetas.items()
        }
        last = config.num_hidden_layers - 1
        self.layers = [
            PackedModernLayer(layer, config, heads[window], window, self.dtype, number == last)  # type: ignore[arg-type]
            for number, (layer, window) in enumerate(
                zip(backbone.layers, config.windows, strict=True)
            )
        ]
        self._words = backbone.embeddings.word_embeddings.weight.detach()
        self._places = None
        self._types = torch.zeros(1, config.hidden_size)
        self._norm = norm_of(backbone.embeddings.layer_norm)
        self._final_norm = norm_of(backbone.final_norm)
        self._recorded_below = min((blocks_from(window) for window in self._windows), default=1e9)
        changes = {window + 2 for window in self._windows}
        self._different = tuple(sorted({1, FEW_ROWS + 1, BLOCKED_FROM, *changes}))
        # What a lone sequence adds to its scores, while it is recorded.
        self._bands = {
            window: band_bias(
                blocks_from(window), window, None, torch.float32, torch.device("cpu")
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

    def _around(self, part: LayerPart, x: Tensor, rows: Rows) -> dict[int | None, Rows]:
        """Return what tokens see, by the window of the layers."""
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
        return LocalRows.around(rows, window, self.dtype)
