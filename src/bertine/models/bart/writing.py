"""A BART writing: the text that was read is encoded once, and of what is written each token is
read once; keys and values of both are kept.

Shape legend: N texts, R rows, S tokens of the longest text, T tokens that are read now, K tokens
that are kept, A attention heads, D size of a head, H hidden size, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bertine.models.bart.layers import DecoderLayer
from bertine.models.cached import KeyValues, same_rows
from bertine.models.layers import RowLayout, attend

if TYPE_CHECKING:
    from bertine.models.bart.backbone import BartBackbone


class Seq2SeqWriter:
    """What scores the next tokens of rows (:class:`bertine.generation.scores.NextTokens`), each of
    which answers one of the texts that were read.

    Args:
        backbone: in evaluation mode.
        scores: turns states [R, H] into those of the vocabulary, [R, V].
        texts: ids of N texts, at least one token each.
    """

    def __init__(
        self,
        backbone: BartBackbone,
        scores: Callable[[Tensor], Tensor],
        texts: Sequence[Sequence[int]],
    ) -> None:
        self._backbone, self._scores = backbone, scores
        device = backbone.word_weights.device
        lengths = torch.tensor([len(text) for text in texts])
        real = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = torch.full(real.shape, backbone.config.pad_token_id)
        ids[real] = torch.tensor([token for text in texts for token in text])
        mask = None if bool(real.all()) else real.to(device)
        memory, layout = backbone.encode_text(ids.to(device), mask)
        self._layers: list[DecoderLayer] = []
        #: Of each layer, what of the texts is looked at: keys and values [R, A, S, D].
        self._there: list[tuple[Tensor, Tensor]] = []
        for layer in backbone.decoder_layers:
            assert isinstance(layer, DecoderLayer)
            self._layers.append(layer)
            self._there.append(layer.cross.keys_and_values(memory, layout))
        #: [R, 1, 1, S], what is added to the scores of attention to the texts; None: nothing.
        self._bias = layout.bias
        self._kept = [KeyValues() for _ in self._layers]
        self._count, self._read_so_far = len(texts), 0

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read what the decoder begins with; see :class:`bertine.generation.scores.NextTokens`.

        Raises:
            ValueError: the beginnings are not of one length, or not as many as the texts.
        """
        if len(prompts) != self._count or len({len(prompt) for prompt in prompts}) != 1:
            raise ValueError("a decoder begins with as many tokens for each text")
        return self._read(torch.tensor(prompts, device=self._backbone.word_weights.device))

    def advance(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Go on with chosen rows; see :class:`bertine.generation.scores.NextTokens`."""
        if not same_rows(rows, self._count):
            for kept in self._kept:
                kept.choose(rows)
            self._there = [
                (keys.index_select(0, rows), values.index_select(0, rows))
                for keys, values in self._there
            ]
            if self._bias is not None:
                self._bias = self._bias.index_select(0, rows)
            self._count = len(rows)
        return self._read(tokens[:, None])

    def _read(self, ids: Tensor) -> Tensor:
        """Read tokens [R, T] behind those that are kept; the scores behind the last."""
        r, t = ids.shape
        backbone, layout = self._backbone, RowLayout(r, t)
        words = backbone.embeddings.words(ids, layout)
        x = backbone.decoder_embeddings.placed(words, layout, self._read_so_far)
        bias = None
        if t > 1:
            seen = torch.ones(t, self._read_so_far + t, dtype=torch.bool, device=x.device)
            hidden = ~seen.tril_(self._read_so_far)
            bias = torch.zeros(hidden.shape, dtype=x.dtype, device=x.device)
            bias = bias.masked_fill_(hidden, float("-inf"))[None, None]
        for layer, kept, there in zip(self._layers, self._kept, self._there, strict=True):
            q, k, v = layer.attention.split(x.view(r, t, -1))
            keys, values = kept.add(k, v)
            mixed = _joined(attend(q, keys, values, bias, 0.0, training=False))
            x = layer.closed(layer.attention.out(mixed), x, layer.attention_norm)
            q = layer.cross.queries(x.view(r, t, -1))
            mixed = _joined(attend(q, *there, self._bias, 0.0, training=False))
            x = layer.closed(layer.cross.out(mixed), x, layer.cross_norm)
            x = layer.fed_forward(x)
        self._read_so_far += t
        return self._scores(x.view(r, t, -1)[:, -1]).float()


def _joined(mixed: Tensor) -> Tensor:
    """Put the heads of [R, A, T, D] side by side: [R * T, H]."""
    return mixed.transpose(1, 2).reshape(mixed.shape[0] * mixed.shape[2], -1)
