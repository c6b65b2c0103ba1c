"""GPT-1 going on with texts: each token is read once, its keys and values are kept.

Shape legend: N prompts, R rows, T tokens that are read now, K tokens that are kept, H hidden size,
V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bertine.models.cached import KeyValues, same_rows
from bertine.models.layers import EncoderLayer, attend

if TYPE_CHECKING:
    from bertine.models.causal.backbone import CausalBackbone


class CausalWriter:
    """What scores the next tokens of rows (:class:`bertine.generation.scores.NextTokens`).

    Shorter prompts have padding before them, which nothing looks at; positions count real tokens.
    """

    def __init__(self, backbone: CausalBackbone, scores: Callable[[Tensor], Tensor]) -> None:
        """`scores` turns states [R, H] into those of the vocabulary, [R, V]."""
        self._backbone, self._scores = backbone, scores
        self._kept = [KeyValues() for _ in backbone.layers]
        self._device = backbone.word_weights.device
        # bool [R, K], whether a kept token is real.
        self._real = torch.zeros(0, 0, dtype=torch.bool, device=self._device)

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read N prompts; see :class:`bertine.generation.scores.NextTokens`."""
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
        real = torch.zeros(len(prompts), longest, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            real[row, longest - len(prompt) :] = True
        ids, self._real = ids.to(self._device), real.to(self._device)
        places = torch.arange(longest, device=self._device)
        seen = self._real[:, None, :] & (places[:, None] >= places[None, :])
        # Padding looks at itself: of a row without any place to look at nothing is a number.
        seen |= torch.eye(longest, dtype=torch.bool, device=self._device)
        return self._read(ids, (self._real.cumsum(1) - 1).clamp(min=0), seen)

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Go on with chosen rows; see :class:`bertine.generation.scores.NextTokens`."""
        if not same_rows(rows, len(self._real)):
            self._real = self._real.index_select(0, rows)
            for kept in self._kept:
                kept.choose(rows)
        positions = self._real.sum(1, keepdim=True)
        self._real = torch.cat([self._real, self._real.new_ones(len(tokens), 1)], 1)
        return self._read(tokens[:, None], positions, self._real[:, None, :])

    def _read(self, ids: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        """Read tokens [R, T] that see what `seen` [R, T, K] says; the scores behind the last."""
        r, t = ids.shape
        embeddings = self._backbone.embeddings
        x = embeddings.word_embeddings(ids) + embeddings.position_embeddings(positions)
        x = x.view(r * t, -1)
        bias = None
        if not bool(seen.all()):
            bias = torch.zeros(seen.shape, dtype=x.dtype, device=x.device)
            bias = bias.masked_fill_(~seen, float("-inf"))[:, None]
        for layer, kept in zip(self._backbone.layers, self._kept, strict=True):
            assert isinstance(layer, EncoderLayer)
            q, k, v = layer.attention.split(x.view(r, t, -1))
            keys, values = kept.add(k, v)
            mixed = attend(q, keys, values, bias, 0.0, training=False)
            mixed = mixed.transpose(1, 2).reshape(r * t, -1)
            x = layer.after(layer.attention.out(mixed), x)
        return self._scores(x.view(r, t, -1)[:, -1]).float()
