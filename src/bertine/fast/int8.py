"""Build BERT layers with products of 8-bit integers: VNNI or AMX instructions, through oneDNN.

Weights are signed, with a scale for every output. Activations are unsigned, with one scale and
zero point for each place in the network, measured beforehand on sample inputs: a scale taken from
the batch would make an answer depend on the other texts in it. Outliers would make the steps of
that scale too wide, so

- channels of a layer norm's output are divided by factors that make them alike, and their weights
  multiplied with these, at no cost (Xiao et al. 2022, "SmoothQuant", equation 4);
- the few inner neurons of the feed-forward part with the largest range are computed separately in
  fp32 (as Dettmers et al. 2022, "LLM.int8()", do with channels, but chosen beforehand). In MiniLM
  one neuron of a layer reaches 24 where the others end at 6.

The residual stream is fp32, the attention bf16.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from bertine.fast.layers import (
    FUSED_ACTIVATIONS,
    Heads,
    PaddedRows,
    QueriesKeysValues,
    Rows,
    attend_few,
    first_attention,
    norm_of,
    scaled_queries,
    self_attention,
)
from bertine.models import torch_private
from bertine.models.layers import ACTIVATIONS, EncoderLayer

#: The factor by which sample ranges are widened, because other inputs reach a little further.
_MARGIN = 1.1
#: The share of the difference between channels that goes into the weights: SmoothQuant's alpha.
_ALPHA = 0.65
#: Neurons of a feed-forward part that are computed in fp32.
_APART = 8


class Range:
    """The least and the largest value of each channel seen so far, fp32 [F]."""

    def __init__(self) -> None:
        self.low, self.high = torch.tensor(math.inf), torch.tensor(-math.inf)

    def add(self, x: Tensor) -> None:
        """Add the values x [..., F]."""
        low, high = torch.aminmax(x.detach().reshape(-1, x.shape[-1]).float(), dim=0)
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)

    def ends(self, divisor: Tensor | float = 1.0) -> tuple[float, float]:
        """Return the ends over all channels, each divided by its `divisor`; 0 is within them."""
        low, high = float((self.low / divisor).min()), float((self.high / divisor).max())
        return min(0.0, low) * _MARGIN, max(0.0, high) * _MARGIN

    def largest(self) -> Tensor:
        """Return the largest absolute value of each channel."""
        if not self.low.dim():
            raise ValueError("no sample input has been seen")
        return torch.maximum(self.low.abs(), self.high.abs())

    def without(self, channels: Tensor) -> Range:
        """Return the range as if `channels` had been 0."""
        other = Range()
        other.low, other.high = self.low.clone(), self.high.clone()
        other.low[channels] = other.high[channels] = 0.0
        return other


@dataclass
class LayerRanges:
    """The ranges of the inputs of a layer's four products."""

    qkv: Range = field(default_factory=Range)
    out: Range = field(default_factory=Range)
    up: Range = field(default_factory=Range)
    down: Range = field(default_factory=Range)


class RangeObserver:
    """A context that records in `ranges`, one per layer, the inputs of the products of `backbone`,
    whose layers have ``products``."""

    def __init__(self, backbone: Any) -> None:
        self.ranges = [LayerRanges() for _ in backbone.layers]
        self._backbone = backbone
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> RangeObserver:
        for layer, ranges in zip(self._backbone.layers, self.ranges, strict=True):
            inputs = (ranges.qkv, ranges.out, ranges.up, ranges.down)
            for product, seen in zip(layer.products, inputs, strict=True):
                hook = product.register_forward_pre_hook(
                    lambda _module, inputs, seen=seen: seen.add(inputs[0])
                )
                self._handles.append(hook)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()


@dataclass(frozen=True)
class ByteGrid:
    """A grid of real numbers as unsigned bytes: (byte - zero) * scale."""

    scale: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> ByteGrid:
        scale = max(high - low, 1e-6) / 255
        return cls(scale, min(255, max(0, round(-low / scale))))

    def of_ones(self) -> tuple[float, ByteGrid]:
        """Return the scale, and the grid of numbers that were divided by it."""
        return self.scale, ByteGrid(1.0, self.zero)

    def round(self, x: Tensor) -> Tensor:
        """Round x, fp32 and contiguous, to uint8 of the same shape; values beyond the ends are
        clipped."""
        if not _has_quantize():
            return x.div(self.scale).round_().add_(self.zero).clamp_(0, 255).to(torch.uint8)
        quantized = torch.quantize_per_tensor(x, self.scale, self.zero, torch.quint8)
        if torch.jit.is_tracing():
            return quantized.int_repr()
        # Its bytes directly: int_repr() copies them, which takes longer than rounding.
        storage = quantized.untyped_storage()
        return torch.empty(0, dtype=torch.uint8).set_(storage, 0, x.shape, quantized.stride())


@cache
def _has_quantize() -> bool:
    """Return whether PyTorch has its function for rounding in one pass, which a future version will
    remove. It takes a fifth of the time of five operations; its first call warns of the removal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        except (AttributeError, NotImplementedError, RuntimeError):
            return False
    return True


class Int8Linear:
    """The product x W' + b of bytes and a weight of signed bytes.

    Args:
        weight: fp32 [F, K].
        bias: fp32 [F].
        zero: the byte of 0 in the input, which is subtracted from its bytes.

    Attributes:
        bias: fp32 [F].
    """

    def __init__(self, weight: Tensor, bias: Tensor, zero: int) -> None:
        weight = weight.detach().float()
        scale = weight.abs().amax(1).clamp_min_(1e-12) / 127
        rounded = (weight / scale[:, None]).round_().to(torch.int8)
        packed = torch_private.pack_bytes(rounded)
        self._weight = packed, scale, torch.zeros(weight.shape[0], dtype=torch.int64)
        self._zero = zero
        self.bias = bias.detach().float().clone()

    def weights(self) -> list[Any]:
        """Return the packed weights of the product."""
        return [self._weight[0]]

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Map x uint8 [N, K] to [N, F] in `dtype`, fp32 or bf16."""
        return self._product(x, (1.0, 0, dtype))

    def activated_float(self, x: Tensor, act: str) -> Tensor:
        """Return the activation, a hidden_act of ``config.json``, of x W' + b, fp32 [N, F]."""
        if act in FUSED_ACTIVATIONS:
            return self._product(x, (1.0, 0, torch.float32), *FUSED_ACTIVATIONS[act])
        return ACTIVATIONS[act](self._product(x, (1.0, 0, torch.float32)))

    def activated(self, x: Tensor, act: str, algorithm: str, grid: ByteGrid) -> Tensor:
        """Return the activation of x W' + b on `grid`, uint8 [N, F]."""
        return self._product(x, (grid.scale, grid.zero, torch.uint8), act, algorithm)

    def added_to(self, other: Tensor, x: Tensor) -> Tensor:
        """Add x W' to `other`, fp32 [N, F], in place and without the bias, and return it."""
        return torch_private.byte_linear_add(x, self._zero, self._weight, other)

    def _product(
        self, x: Tensor, to: tuple[float, int, torch.dtype], act: str = "none", algorithm: str = ""
    ) -> Tensor:
        return torch_private.byte_linear(x, self._zero, self._weight, self.bias, to, act, algorithm)


class Int8Layer:
    """An encoder layer of 8-bit products.

    Its input is divided by :attr:`divisor`, in the layer norm before it, and its output by the next
    layer's, if there is one (:meth:`before`).

    Args:
        layer: its weights are rounded and packed.
        ranges: the ranges for sample inputs.
        act: hidden_act of the configuration.
        split: also keep the queries' weights apart from keys' and values', for :meth:`first_token`.

    Attributes:
        divisor: fp32 [H].
    """

    def __init__(
        self,
        layer: EncoderLayer,
        ranges: LayerRanges,
        act: str,
        split: bool = False,
    ) -> None:
        self.heads = Heads(layer.attention.heads)
        weight, bias = scaled_queries(layer.attention.qkv, layer.attention.heads)
        size = weight.shape[1]
        out, up, down = layer.attention.out, layer.up, layer.down
        # The inputs of the products are divided by their grids' steps, which are then 1.
        self.divisor, self._input = smoothed(ranges.qkv, layer.attention.qkv.weight)
        self._divisor, self._inner_input = smoothed(ranges.up, up.weight)
        steps, self._mixed = ByteGrid.over(*ranges.out.ends()).of_ones()
        out_weight = out.weight * steps
        weight[2 * size :] /= steps
        bias[2 * size :] /= steps
        weight = weight * self.divisor
        # The neurons with the largest range become the last.
        order = ranges.down.largest().argsort(stable=True)
        apart = order[max(0, len(order) - _APART) :]
        self._inner = ByteGrid.over(*ranges.down.without(apart).ends())
        self._apart = slice(len(order) - len(apart), len(order))
        up_weight, up_bias = (up.weight * self._divisor)[order], up.bias[order]
        down_weight = down.weight[:, order]
        self._up_apart = up_weight[self._apart].clone().t()
        self._up_apart_bias = up_bias[self._apart].clone()
        self._down_apart = down_weight[:, self._apart].t().contiguous()
        down_weight[:, self._apart] = 0.0
        down_weight *= self._inner.scale
        self._qkv = QueriesKeysValues(
            partial(Int8Linear, zero=self._input.zero), weight, bias, split
        )
        self._out = Int8Linear(out_weight, out.bias, self._mixed.zero)
        self._up = Int8Linear(up_weight, up_bias, self._inner_input.zero)
        self._down = Int8Linear(down_weight, down.bias, self._inner.zero)
        self._attention_norm = norm_of(layer.attention_norm, self._divisor)
        self._output_norm = norm_of(layer.output_norm)
        self._fused = FUSED_ACTIVATIONS.get(act)
        self._act = ACTIVATIONS[act]

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        """Map x fp32 [N, H] to fp32 [N, H]."""
        qkv = self._qkv.all(self._input.round(x), torch.bfloat16)
        if isinstance(rows, PaddedRows) and rows.few:
            mixed = attend_few(qkv, rows, self.heads.count, torch.bfloat16)
            return self._rest(x, _wide(mixed, x))
        return self._rest(x, self_attention(qkv, rows, self.heads, torch.float32))

    def first_token(self, x: Tensor, rows: Rows) -> Tensor:
        """Map x fp32 [N, H] to fp32 [at least B, H], the layer's output for each first token."""
        first, rounded = rows.first(x), self._input.round(x)
        if isinstance(rows, PaddedRows) and rows.few:
            qkv = self._qkv.all(rounded, torch.bfloat16)
            mixed = attend_few(qkv, rows, self.heads.count, torch.bfloat16, first=True)
            return self._rest(first, _wide(mixed, first))
        q = self._qkv.q(rows.first(rounded), torch.bfloat16)
        kv = self._qkv.kv(rounded, torch.bfloat16)
        return self._rest(first, first_attention(q, kv, rows, self.heads).float())

    def before(self, norm: nn.LayerNorm, divisor: Tensor) -> Int8Layer:
        """Return the layer, with the same packed weights, for a place before one with that
        `divisor`, fp32 [H]; `norm` is the output norm of the layer that it was packed from."""
        other = copy.copy(self)
        other._output_norm = norm_of(norm, divisor)
        return other

    def weights(self) -> list[Any]:
        """Return the packed weights, for :class:`bertine.fast.layers.Recorded`."""
        products = [*self._qkv.packed, self._out, self._up, self._down]
        return [weight for product in products for weight in product.weights()]

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Compute the rest of the layer after the attention; x and mixed fp32 [M, H]."""
        x = torch.addcmul(self._out.bias, x, self.divisor)
        x = self._attention_norm(self._out.added_to(x, self._mixed.round(mixed)))
        rounded = self._inner_input.round(x)
        if self._fused:
            inner = self._up.activated(rounded, *self._fused, self._inner)
        else:
            inner = self._inner.round(self._act(self._up(rounded, torch.float32)))
        apart = self._act(torch.addmm(self._up_apart_bias, x, self._up_apart))
        x = torch.addcmul(self._down.bias, x, self._divisor).addmm_(apart, self._down_apart)
        return self._output_norm(self._down.added_to(x, inner))


def _wide(mixed: Tensor, x: Tensor) -> Tensor:
    """Return `mixed`, with any strides, in fp32 as a contiguous tensor in the shape of `x`."""
    return mixed.to(torch.float32, memory_format=torch.contiguous_format).view(x.shape)


def smoothed(seen: Range, weight: Tensor) -> tuple[Tensor, ByteGrid]:
    """Return the factors of :func:`smoothing` times the steps of the grid of the divided channels,
    and that grid, whose steps are then 1."""
    divisor = smoothing(seen, weight)
    steps, grid = ByteGrid.over(*seen.ends(divisor)).of_ones()
    return divisor * steps, grid


def smoothing(seen: Range, weight: Tensor) -> Tensor:
    """Return the factors that channels are divided by and their weights multiplied with: fp32 [K],
    with a geometric mean of 1."""
    ours = seen.largest().clamp_min(1e-5)
    theirs = weight.detach().float().abs().amax(0).clamp_min(1e-5)
    divisor = ours**_ALPHA / theirs ** (1 - _ALPHA)
    return divisor / divisor.log().mean().exp()


def int8_layers(
    layers: nn.ModuleList, ranges: list[LayerRanges], act: str, passes: Sequence[int]
) -> list[Int8Layer]:
    """Return the 8-bit layers of a backbone, in the order of `passes`; the last is `split`."""
    packed: list[Int8Layer] = []
    for number, (layer, seen) in enumerate(zip(layers, ranges, strict=True)):
        assert isinstance(layer, EncoderLayer)
        packed.append(Int8Layer(layer, seen, act, split=number == passes[-1]))
    ordered = [
        packed[number].before(layers[number].output_norm, packed[following].divisor)  # type: ignore[arg-type]
        for number, following in itertools.pairwise(passes)
    ]
    return [*ordered, packed[passes[-1]]]
