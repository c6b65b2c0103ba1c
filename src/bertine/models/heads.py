"""Heads: what turns a backbone's states into scores. Composed with any backbone, never subclassed.

Shape legend: B sequences, T tokens of the longest, P masked positions, H hidden size, V vocabulary
size, K labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.models.bert import init_weights
from bertine.models.config import BertConfig
from bertine.models.dropout import Dropout
from bertine.models.layers import activation
from bertine.models.pooling import Pooling


class MlmHead(nn.Module):
    """Masked-LM head: dense, activation, layer norm, then the word embeddings as decoder.

    The decoder's matrix is the backbone's word embedding (tied), so it is an argument, not a
    parameter; only its bias lives here (google-research/bert, ``get_masked_lm_output``).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.act = activation(config.hidden_act)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, H]. Returns logits [P, V]."""
        hidden = self.layer_norm(self.act(self.dense(hidden)))
        return F.linear(hidden, decoder_weight, self.bias)


class NspHead(nn.Module):
    """Next-sentence head on the pooled output; label 0 is "next", 1 is "random"."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, 2)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """pooled [B, H]. Returns logits [B, 2]."""
        return self.dense(pooled)


class SpanHead(nn.Module):
    """One linear layer on every token: its score as the first and as the last of the answer (paper,
    section 4.2; ``BertForQuestionAnswering``). Without dropout, as in the published code."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.out = nn.Linear(config.hidden_size, 2)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, H]. Returns logits [B, T, 2], of start and end."""
        return self.out(hidden)


class ClassificationHead(nn.Module):
    """Dropout and one linear layer on the pooled output (paper, section 4.1)."""

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__()
        p = config.classifier_dropout
        self.dropout = Dropout(config.hidden_dropout_prob if p is None else p)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """pooled [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(pooled))


class PairHead(nn.Module):
    """One linear layer on the vectors of two texts that are encoded apart: u, v, |u - v|, u * v by
    element, and their cosine (the vectors and the difference are those of Reimers and Gurevych
    2019, arXiv 1908.10084, section 3).

    A model that was trained to give texts vectors knows how alike two texts are; read as one
    input, as the paper has it, it must first learn to compare them.

    Args:
        config: of the backbone.
        num_labels: K.
        pooling: how the last states of a text become its vector.

    Raises:
        BertineError: `pooling` is not known, or gives no single vector of the last states.
    """

    def __init__(self, config: BertConfig, num_labels: int, pooling: Pooling) -> None:
        super().__init__()
        pooling.check(config)
        if pooling.tokens or pooling.needs_all_layers:
            raise BertineError(f"pooling {pooling.name!r} is not for pairs of texts")
        self.pooling = pooling
        self.out = nn.Linear(4 * pooling.width(config) + 1, num_labels)
        init_weights(self, config.initializer_range)

    def forward(
        self,
        encode: Callable[[Tensor, Tensor, None], Any],
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
    ) -> Tensor:
        """int64 [B, T] each: pairs as one input, [CLS] a [SEP] b [SEP], with the types 0 and 1, and
        the mask of their real tokens; `encode` is a backbone. Returns logits fp32 [B, K]."""
        features = self.features(encode, input_ids, attention_mask, token_type_ids)
        with torch.autocast(features.device.type, enabled=False):
            return self.out(features)

    def features(
        self,
        encode: Callable[[Tensor, Tensor, None], Any],
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
    ) -> Tensor:
        """What the linear layer reads of each pair, fp32 [B, 4 D + 1]; see :meth:`forward`."""
        ids, mask = texts_apart(input_ids, attention_mask, token_type_ids)
        output = encode(ids, mask, None)
        # A packed backbone leaves out columns of nothing but padding.
        vectors = self.pooling(output, mask[:, : output.last_hidden_state.shape[1]])
        vectors, count = F.normalize(vectors, dim=-1), input_ids.shape[0]
        u, v = vectors[:count], vectors[count:]
        cosine = (u * v).sum(-1, keepdim=True)
        return torch.cat([u, v, (u - v).abs(), u * v, cosine], -1)


def texts_apart(
    input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor, separators: int = 1
) -> tuple[Tensor, Tensor]:
    """Take pairs that are one input, [CLS] a [SEP] b [SEP], apart into [CLS] a [SEP] and
    [CLS] b [SEP].

    Args:
        input_ids, attention_mask, token_type_ids: int64 [B, T] each, see :class:`PairHead`; the
            type is 1 from the first piece of b on.
        separators: how many stand between the texts: 1 as in BERT's pairs, 2 as in RoBERTa's, of
            which one stays with a.

    Returns:
        Ids int64 [2 B, T], first those of all a, and their mask, bool.
    """
    real = attention_mask.bool()
    second = real & (token_type_ids == 1)
    first = real & ~second
    before, after = first.sum(1, keepdim=True), second.sum(1, keepdim=True)
    places = torch.arange(input_ids.shape[1], device=input_ids.device)[None, :]
    # The first token, and then what comes after the separators.
    source = (places + before - 1).clamp(max=input_ids.shape[1] - 1) * (places > 0)
    ids = torch.cat([input_ids, input_ids.gather(1, source)])
    return ids, torch.cat([places < before - (separators - 1), places < after + 1])
