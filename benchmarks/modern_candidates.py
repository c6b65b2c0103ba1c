"""Architectures that were compared for the modern presets, and are not in the package: a ModernBERT
with one of its parts exchanged for another.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A; N
rows that are computed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.families.modernbert_layers import ModernAttention, ModernLayer, Surroundings
from bertine.models.dropout import dropout_add
from bertine.models.embeddings import WordEmbeddings
from bertine.models.heads import Model
from bertine.models.layers import _Linear, written_attention

#: Buckets of distances of relative positions, and the distance from which on all are one (Raffel et
#: al. 2020, section 2.1).
BUCKETS, FARTHEST = 32, 128


class PlainFeedForward(nn.Module):
    """Product, GELU, product, without biases."""

    def __init__(self, size: int, inner: int, std: float, out_std: float) -> None:
        super().__init__()
        self.up = nn.Linear(size, inner, bias=False)
        self.down = nn.Linear(inner, size, bias=False)
        self.register_buffer("zeros", torch.zeros(size), persistent=False)
        nn.init.normal_(self.up.weight, std=std)
        nn.init.normal_(self.down.weight, std=out_std)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        if self.training:
            out: Tensor = _Linear.apply(inner, self.down.weight, self.zeros, True)
            return out
        return self.down(F.gelu(inner))


class Unturned(ModernAttention):
    """Attention without rotary positions: the embeddings have learned ones."""

    def _on_cpu(self, qkv: Tensor, around: Surroundings, p: float) -> Tensor:
        b, t, _, a, d = qkv.shape
        q, k, v = qkv.permute(2, 0, 3, 1, 4).reshape(3, b * a, t, d).unbind()
        bias = around.bias
        if bias is not None:
            rows = b if bias.shape[0] > 1 else 1
            bias = bias.expand(rows, a if rows > 1 else 1, *bias.shape[2:]).flatten(0, 1)
        return written_attention(q, k, v, bias, p).view(b, a, t, d)


class Biased(ModernAttention):
    """Attention with a learned number for each distance and head, and no rotation (T5's)."""

    table: nn.Parameter

    def _on_cpu(self, qkv: Tensor, around: Surroundings, p: float) -> Tensor:
        b, t, _, a, d = qkv.shape
        q, k, v = qkv.permute(2, 0, 3, 1, 4).reshape(3, b * a, t, d).unbind()
        by_distance = self.table.t()[:, _buckets(t)].to(q.dtype)  # [A, T, T]
        if around.bias is not None:
            by_distance = by_distance + around.bias.expand(b, -1, -1, -1)
        scores = torch.bmm(q, k.transpose(1, 2)).view(b, a, t, t) * d**-0.5 + by_distance
        return torch.bmm(scores.softmax(-1).view(b * a, t, t), v).view(b, a, t, d)


def _buckets(length: int) -> Tensor:
    places = torch.arange(length)
    distance = places[None, :] - places[:, None]
    half = BUCKETS // 2
    near = half // 2
    away = distance.abs().clamp(min=1).float()
    far = near + (away / near).log() / torch.tensor(FARTHEST / near).log() * (half - near)
    number = torch.where(distance.abs() < near, distance.abs(), far.long().clamp(max=half - 1))
    return number + half * (distance > 0)


class WithPositions(WordEmbeddings):
    """Embeddings with learned positions."""

    positions: nn.Parameter

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None = None,
        word_vectors: Tensor | None = None,
    ) -> Tensor:
        t = input_ids.shape[1]
        ids = input_ids.reshape(-1)
        places = torch.arange(t).expand(input_ids.shape).reshape(-1)
        if real is not None:
            ids, places = ids[real], places[real]
        x = self.layer_norm(self.word_embeddings(ids) + self.positions[places])
        return self.dropout(x.to(torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype))


class PostNormLayer(ModernLayer):
    """A layer with the norm after each part, as in BERT."""

    first_norm: nn.LayerNorm

    def forward(self, x: Tensor, around: Surroundings) -> Tensor:
        attended = self.attention(x, around)
        x = self.first_norm(dropout_add(attended, x, self.attention.dropout, self.training))
        return self.feed_forward_norm(x + self.feed_forward(x))


class RmsNorm(nn.Module):
    """The root-mean-square norm (Zhang and Sennrich 2019, arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps, self.size = nn.Parameter(torch.ones(size)), eps, (size,)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.size, self.weight.to(x.dtype), self.eps)


def change(model: Model, parts: dict[str, Any]) -> Model:
    """Exchange parts of a new ModernBERT.

    Args:
        parts: "plain": the inner size of feed-forwards without gates; "learned", "relative":
            positions; "post": norms after the parts; "rms": root-mean-square norms.
    """
    config: Any = model.config
    backbone: Any = model.backbone
    if inner := parts.get("plain"):
        for layer in backbone.layers:
            std = config.initializer_range
            layer.feed_forward = PlainFeedForward(config.hidden_size, inner, std, config.output_std)
    if parts.get("learned"):
        for layer in backbone.layers:
            layer.attention.__class__ = Unturned
        backbone.embeddings.__class__ = WithPositions
        rows = torch.randn(config.max_position_embeddings, config.hidden_size)
        backbone.embeddings.positions = nn.Parameter(rows * config.initializer_range)
    if parts.get("relative"):
        table = nn.Parameter(torch.zeros(BUCKETS, config.num_attention_heads))
        for layer in backbone.layers:
            layer.attention.__class__ = Biased
            layer.attention.table = table
    if parts.get("post"):
        for layer in backbone.layers:
            layer.__class__ = PostNormLayer
            layer.attention_norm = None
            layer.first_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps, bias=False)
        backbone.final_norm = nn.Identity()
    if parts.get("rms"):
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.LayerNorm):
                    setattr(module, name, RmsNorm(config.hidden_size, child.eps))
    return model
