"""BERT's backbone (Devlin et al. 2018, section 3; google-research/bert, ``modeling.py``).

Shape legend: B sequences, T tokens of the longest, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertine.models.config import BertConfig
from bertine.models.dropout import Dropout
from bertine.models.layers import EncoderLayer


@dataclass
class BackboneOutput:
    """What a backbone computes.

    Attributes:
        last_hidden_state: [B, T, H].
        pooler_output: [B, H] in (-1, 1), or None without a pooler.
        hidden_states: the embedding output and each layer's, num_hidden_layers + 1 tensors
            [B, T, H]; None unless asked for.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class Embeddings(nn.Module):
    """Word + position + segment embeddings, layer norm, dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """input_ids, token_type_ids int64 [B, T]. Returns [B, T, H]."""
        x = self.word_embeddings(input_ids)
        x = x + self.position_embeddings.weight[: input_ids.shape[1]]
        if token_type_ids is None:
            x = x + self.token_type_embeddings.weight[0]
        else:
            x = x + self.token_type_embeddings(token_type_ids)
        x = self.layer_norm(x)
        device = x.device.type
        if torch.is_autocast_enabled(device):
            # From here on the residual stream is in the compute type: half the memory traffic.
            x = x.to(torch.get_autocast_dtype(device))
        return self.dropout(x)


class BertBackbone(nn.Module):
    """Embeddings, encoder layers and (by default) the pooler."""

    def __init__(self, config: BertConfig, add_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooler else None
        init_weights(self, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a batch.

        Args:
            input_ids: int64 [B, T], T at most ``max_position_embeddings``.
            attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
            token_type_ids: int64 [B, T]; None: all 0.
            output_hidden_states: also return every layer's output.
        """
        x = self.embeddings(input_ids, token_type_ids)
        bias = None
        if attention_mask is not None:
            mask = attention_mask.bool()
            # On a CPU a look at the mask is cheap and saves a pass per layer; elsewhere it
            # would wait for the device.
            if x.device.type != "cpu" or not bool(mask.all()):
                bias = torch.zeros(mask.shape, dtype=x.dtype, device=x.device)
                bias = bias.masked_fill(~mask, float("-inf"))[:, None, None, :]
        states = [x] if output_hidden_states else []
        for layer in self.layers:
            x = layer(x, bias)
            if output_hidden_states:
                states.append(x)
        pooled = None if self.pooler is None else torch.tanh(self.pooler(x[:, 0]))
        return BackboneOutput(x, pooled, tuple(states) if output_hidden_states else None)


@torch.no_grad()
def init_weights(module: nn.Module, std: float) -> None:
    """Initialize as the published code does: matrices and embeddings from a normal of standard
    deviation `std` cut off at two deviations (not rescaled), biases 0, layer norms 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            _truncated_normal_(part.weight, std)
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
            part.bias.zero_()


def _truncated_normal_(tensor: Tensor, std: float) -> None:
    """Draw again whatever falls beyond two deviations: ten times as fast on a CPU as inverting
    the distribution function, which is what ``trunc_normal_`` does."""
    if tensor.is_meta:
        return
    flat = tensor.view(-1).normal_()
    while (outside := (flat.abs() > 2).nonzero()[:, 0]).numel():
        flat[outside] = torch.randn(outside.numel(), dtype=flat.dtype, device=flat.device)
    flat.mul_(std)
