"""A layer of BERT whose output at every token is the mean of all tokens' states, normalized.

Heads of published models read the state of [CLS] alone. In a model that was not trained for a task
the mean of all states says more than that. With this layer on top the published architecture
computes it: queries and keys are 0, so that every token attends to all alike; values are the
states; the output is so much larger than the residual that the layer norm leaves the mean; and the
feed-forward part adds 0.
"""

from __future__ import annotations

import torch
from torch import nn

from bertine.models.backbone import Backbone
from bertine.models.config import Config
from bertine.models.deberta.backbone import DebertaEncoder
from bertine.models.encoder import Encoder
from bertine.models.layers import EncoderLayer, SelfAttention
from bertine.models.model import Model

#: By how much the mean outweighs the token's own state; a power of two rounds nothing.
_OUTWEIGHS = 64.0


def takes_mean_layer(backbone: Backbone) -> bool:
    """Tell whether its layers can make that mean: BERT's, and DeBERTa's, whose scores of relative
    positions are products with the same queries and keys."""
    return isinstance(backbone, Encoder | DebertaEncoder)


@torch.no_grad()
def add_mean_layer(model: Model) -> None:
    """Put such a layer on top of the encoder of `model`, which :func:`takes_mean_layer`, in place.
    Layers that share weights become layers of their own: this one shares with none of them."""
    backbone = model.backbone
    assert takes_mean_layer(backbone)
    config = model.config.with_layer_on_top()
    layer = type(backbone.layers[0])(config).to(next(model.parameters()).device)
    assert isinstance(layer, EncoderLayer)
    for parameter in layer.parameters():
        parameter.zero_()
    size = config.hidden_size
    layer.attention.qkv.weight[2 * size :].fill_diagonal_(1.0)
    layer.attention.out.weight.fill_diagonal_(_OUTWEIGHS)
    layer.attention_norm.weight.fill_(1.0)
    layer.output_norm.weight.fill_(1.0)
    if model.config.shares_layers:  # each pass gets a layer of its own
        layers = [_copy_of(backbone.layers[number], config) for number in model.config.passes]
        backbone.layers = nn.ModuleList(layers)
    backbone.layers.append(layer.train(model.training))
    model.config = backbone.config = config


def has_mean_layer(model: Model) -> bool:
    """Tell whether the highest layer of `model` is one that :func:`add_mean_layer` put there."""
    backbone = model.backbone
    if not takes_mean_layer(backbone):
        return False
    attention = backbone.layers[-1].attention
    assert isinstance(attention, SelfAttention)
    size = model.config.hidden_size
    return not bool(attention.qkv.weight[: 2 * size].any())


def _copy_of(layer: nn.Module, config: Config) -> EncoderLayer:
    """Return a layer with weights of its own that computes what `layer` does."""
    copy = EncoderLayer(config).to(next(layer.parameters()).device)
    for name, part in copy.named_children():
        part.load_state_dict(getattr(layer, name).state_dict())
    return copy.train(layer.training)
