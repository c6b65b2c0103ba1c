"""BERT's backbone (Devlin et al. 2018, section 3; google-research/bert, ``modeling.py``).

Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertine.models.config import BertConfig
from bertine.models.dropout import Dropout
from bertine.models.layers import EncoderLayer, Layout, Packing

#: From this share of padding on, a CPU computes real tokens alone: less does not pay for putting
#: them into place for the attention and back.
_UNPAD_FROM = 0.1
#: Numbers of rows that are computed: multiples of this, or of a sixteenth of the number, rounded
#: down to a power of two. oneDNN compiles each product for its shape, at about a millisecond,
#: and keeps a thousand; batches whose real tokens all differ in number would compile for ever.
_ROWS = 64


@dataclass
class BackboneOutput:
    """What a backbone computes.

    Attributes:
        last_hidden_state: [B, T, H]; what stands at padding has no meaning.
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
        self.word_embeddings = _table(config.vocab_size, size)
        self.position_embeddings = _table(config.max_position_embeddings, size)
        self.token_type_embeddings = _table(config.type_vocab_size, size)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None = None,
        word_vectors: Tensor | None = None,
    ) -> Tensor:
        """input_ids, token_type_ids int64 [B, T]; real int64 [N], indices of the tokens to
        compute, or None for all; word_vectors [B, T, H], in place of the word embeddings of
        `input_ids` (not together with `real`). Returns [N, H]."""
        length, positions = input_ids.shape[1], self.position_embeddings
        if word_vectors is not None:
            x = word_vectors + positions.weight[:length]
        elif real is None:
            x = self.word_embeddings(input_ids) + positions.weight[:length]
        else:
            input_ids = input_ids.reshape(-1)[real]
            x = self.word_embeddings(input_ids) + positions(real % length)
            if token_type_ids is not None:
                token_type_ids = token_type_ids.reshape(-1)[real]
        if token_type_ids is None:
            x = x + self.token_type_embeddings.weight[0]
        else:
            x = x + self.token_type_embeddings(token_type_ids)
        x = x.reshape(-1, x.shape[-1])
        x = self.layer_norm(x)
        device = x.device.type
        if torch.is_autocast_enabled(device):
            # From here on the residual stream is in the compute type: half the memory traffic.
            x = x.to(torch.get_autocast_dtype(device))
        return self.dropout(x)


def _table(rows: int, size: int) -> nn.Embedding:
    """A new ``nn.Embedding`` [rows, size]. On the meta device it gets its weights without values:
    PyTorch would draw them with functions whose import takes more than a second."""
    meta = torch.empty(0).is_meta
    return nn.Embedding(rows, size, _weight=torch.empty(rows, size) if meta else None)


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
        packing: Packing | None = None,
        word_vectors: Tensor | None = None,
    ) -> BackboneOutput:
        """Encode a batch.

        Args:
            input_ids: int64 [B, T], T at most ``max_position_embeddings``.
            attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
            token_type_ids: int64 [B, T]; None: all 0.
            output_hidden_states: also return every layer's output.
            packing: where the real tokens stand, in place of `attention_mask`: what lies at
                others is not computed (rows that make a round number excepted).
            word_vectors: [B, T, H], read in place of the embeddings of `input_ids`, to see what
                an answer owes to them; for batches without padding.

        Raises:
            ValueError: `word_vectors` for a batch with padding.
        """
        if packing is None:
            layout = self._layout(input_ids, attention_mask)
        else:
            b, t = input_ids.shape
            layout = Layout(b, t, packing.real, ends=packing.ends, longest=packing.longest)
        if word_vectors is not None and layout.real is not None:
            raise ValueError("word_vectors are for batches without padding")
        x = self.embeddings(input_ids, token_type_ids, layout.real, word_vectors)
        states = [layout.pad(x)] if output_hidden_states else []
        for layer in self.layers:
            x = layer(x, layout)
            if output_hidden_states:
                states.append(layout.pad(x))
        last = layout.pad(x)
        pooled = None if self.pooler is None else torch.tanh(self.pooler(last[:, 0]))
        return BackboneOutput(last, pooled, tuple(states) if output_hidden_states else None)

    def _layout(self, input_ids: Tensor, attention_mask: Tensor | None) -> Layout:
        b, t = input_ids.shape
        if attention_mask is None:
            return Layout(b, t)
        mask, device = attention_mask.bool(), input_ids.device.type
        real = None
        # On a CPU a look at the mask is cheap; elsewhere it would wait for the device.
        if device == "cpu":
            padding = 1.0 - int(mask.sum()) / mask.numel()
            if padding == 0.0:
                return Layout(b, t)
            if padding >= _UNPAD_FROM:
                real = _real_rows(mask.reshape(-1))
        dtype = self.embeddings.word_embeddings.weight.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        bias = torch.zeros(b, 1, 1, t, dtype=dtype, device=mask.device)
        return Layout(b, t, real, bias.masked_fill_(~mask[:, None, None, :], float("-inf")))


def _real_rows(mask: Tensor) -> Tensor | None:
    """The indices of the real tokens in mask [B*T], and some of padding to make a number that
    comes again; None where that would be all."""
    real = mask.nonzero()[:, 0]
    each = max(_ROWS, 1 << max(0, real.numel() // 16).bit_length() >> 1)
    rows = -(-real.numel() // each) * each
    if rows >= mask.numel():
        return None
    return torch.cat([real, (~mask).nonzero()[: rows - real.numel(), 0]])


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
