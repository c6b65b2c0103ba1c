"""Set the weights of heads and layers directly, without training.

The mean layer is a layer of BERT whose output at every token is the normalized mean of all tokens'
states. Heads of published models read only the state of [CLS]; in a model that was not trained for
a task, the mean says more. The published architecture computes it with this layer on top: queries
and keys are 0, so that every token attends to all equally; values are the states; the output is so
much larger than the residual that the layer norm leaves the mean; and the feed-forward part adds
0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bertine.families.deberta import DebertaEncoder
from bertine.families.modernbert import ModernHead
from bertine.families.modernbert_layers import LINEAR, POOLINGS, ModernBertConfig
from bertine.models.config import Config
from bertine.models.encoder import Backbone, Encoder
from bertine.models.heads import Model
from bertine.models.layers import EncoderLayer, SelfAttention
from bertine.models.pooling import Pooling

# Linear classifier: a ModernBERT's classifier whose weights compute a linear model of a text's
# vector, so that the published architecture gives the answers of a model fitted on such vectors.
#
# The classifier is a dense layer, an activation, a norm and a last layer. Here the dense layer
# computes the scores and, in further columns, their negative sum, so that the norm finds a mean of
# 0; the activation is linear; and all values are so small that their variance is negligible next to
# the norm's epsilon. So the norm multiplies by a constant, which the last layer undoes.
#
# Shape legend: N texts, H hidden size, K outputs.

#: The largest variance before the norm, in epsilons: twice the relative change of a score.
_VARIANCE = 2.0**-19


def can_be_linear(config: Config, pooling: Pooling, outputs: int) -> bool:
    """Return whether a classifier of `config` can compute `outputs` scores linearly from vectors
    made by `pooling`."""
    known = isinstance(config, ModernBertConfig) and pooling.name in POOLINGS
    return known and outputs < config.hidden_size


@torch.no_grad()
def make_linear(
    model: Model, head: ModernHead, pooling: Pooling, weights: Tensor, bias: Tensor, scores: Tensor
) -> None:
    """Set a classifier's weights to a linear model, in place; see :func:`can_be_linear`.

    Args:
        model: the model with that classifier, `head`.
        pooling: how states become the vector of a text.
        weights: [K, H], the factors of a vector.
        bias: [K].
        scores: fp64 [N, K], the linear model's scores of texts like those to come.
    """
    config = model.config
    assert isinstance(config, ModernBertConfig)
    count, size = weights.shape
    config = config.replace(
        classifier_pooling=pooling.name, classifier_activation=LINEAR, classifier_bias=True
    )
    model.config = model.backbone.config = config
    square = float((scores.square().sum(1) + scores.sum(1).square()).max())
    room = math.sqrt(_VARIANCE * config.layer_norm_eps * size / max(square, 1e-6))
    factor = 2.0 ** math.floor(math.log2(room))  # a power of two causes no rounding
    new = ModernHead(config, count).to(head.out.weight.device).train(head.training)
    for parameter in new.parameters():
        parameter.zero_()
    new.dense.weight[:count] = factor * weights
    new.dense.weight[count] = -factor * weights.sum(0)
    new.dense.bias[:count] = factor * bias
    new.dense.bias[count] = -factor * bias.sum()
    new.layer_norm.weight.fill_(1.0)
    new.out.weight.fill_diagonal_(math.sqrt(config.layer_norm_eps) / factor)
    for name, part in new.named_children():
        setattr(head, name, part)
    head.act = new.act


#: The weight of the mean relative to the token's own state; a power of two causes no rounding.
_OUTWEIGHS = 64.0


def takes_mean_layer(backbone: Backbone) -> bool:
    """Return whether its layers can compute that mean: BERT's can, and DeBERTa's, whose scores of
    relative positions are products with the same queries and keys."""
    return isinstance(backbone, Encoder | DebertaEncoder)


@torch.no_grad()
def add_mean_layer(model: Model) -> None:
    """Add a mean layer on top of the encoder of `model`, in place; see :func:`takes_mean_layer`.
    Layers that share weights become separate layers: this one shares with none of them."""
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
    if model.config.shares_layers:  # each pass gets a separate layer
        layers = [_copy_of(backbone.layers[number], config) for number in model.config.passes]
        backbone.layers = nn.ModuleList(layers)
    backbone.layers.append(layer.train(model.training))
    model.config = backbone.config = config


def has_mean_layer(model: Model) -> bool:
    """Return whether the top layer of `model` is one that :func:`add_mean_layer` put there."""
    backbone = model.backbone
    if not takes_mean_layer(backbone):
        return False
    attention = backbone.layers[-1].attention
    assert isinstance(attention, SelfAttention)
    size = model.config.hidden_size
    return not bool(attention.qkv.weight[: 2 * size].any())


def _copy_of(layer: nn.Module, config: Config) -> EncoderLayer:
    """Return an unshared layer that computes the same as `layer`."""
    copy = EncoderLayer(config).to(next(layer.parameters()).device)
    for name, part in copy.named_children():
        part.load_state_dict(getattr(layer, name).state_dict())
    return copy.train(layer.training)
