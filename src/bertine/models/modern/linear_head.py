"""A ModernBERT's classifier that computes a linear model of the vector of a text, so that the
published architecture answers as the model that was fitted on such vectors.

A dense layer, an activation and a norm stand before its last layer. Here the dense layer computes
the scores themselves, and beside them minus their sum, so that the norm finds a mean of 0; the
activation is none; and all of it is so small that beside the epsilon of the norm its variance is
nothing. So the norm multiplies by one number, which the last layer takes back.

Shape legend: N texts, H hidden size, K outputs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bertine.models.config import Config
from bertine.models.model import Model
from bertine.models.modern.config import POOLINGS, ModernBertConfig
from bertine.models.modern.heads import LINEAR, ModernHead
from bertine.models.pooling import Pooling

#: The largest variance before the norm, in epsilons: twice the share by which it changes a score.
_VARIANCE = 2.0**-19


def can_be_linear(config: Config, pooling: Pooling, outputs: int) -> bool:
    """Tell whether a classifier of `config` can compute so many `outputs` of vectors made by
    `pooling`."""
    known = isinstance(config, ModernBertConfig) and pooling.name in POOLINGS
    return known and outputs < config.hidden_size


@torch.no_grad()
def make_linear(
    model: Model, head: ModernHead, pooling: Pooling, weights: Tensor, bias: Tensor, scores: Tensor
) -> None:
    """Let a classifier compute a linear model, in place; :func:`can_be_linear` says whether it can.

    Args:
        model: with that classifier, `head`.
        pooling: how states become the vector of a text.
        weights: [K, H], on a vector.
        bias: [K].
        scores: fp64 [N, K], what the linear model says of texts like those to come.
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
    factor = 2.0 ** math.floor(math.log2(room))  # a power of two rounds nothing
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
