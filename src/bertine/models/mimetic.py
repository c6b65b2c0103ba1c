"""Initial weights with which attention looks, from the first step on, where trained heads do.

With weights that are random alone, every token looks at all others alike, and the loss stays for
long at what the frequencies of the pieces give, until heads have found neighbours. Trained models
have in common that products of query and key weights are near a multiple of the identity, and
that positions are like waves; given to a model as it begins, both are worth much where there is
little time (Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers"). Some
heads of trained encoders look at the token before or after (Clark et al. 2019, "What Does BERT Look
At?", section 3.1); in the lowest layer two do from the beginning here.

Shape legend: H hidden size, D size of a head, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bertine.errors import BertineError
from bertine.models.backbone import Backbone
from bertine.models.encoder import Encoder
from bertine.models.layers import EncoderLayer

#: How alike key and query weights are, the correlation of their elements; set by hand, as is the
#: score, and not searched for.
_ALIKE = 0.7
#: The score that a token begins with for one like itself, before the softmax.
_SCORE = 5.2
#: The waves of the positions are from one to about this many times as long as the shortest, which
#: is 2 pi tokens.
_LONGEST = 16.0
#: Where the first heads of the lowest layer look.
_OFFSETS = (-1, 1)


class _Waves:
    """Sines and cosines of positions, each in a dimension that is drawn, with a sign that is drawn
    so that the dimensions have no mean. There are no matrix products in this: their last bits
    depend on the machine, and initial weights should not."""

    def __init__(self, size: int) -> None:
        self.size, count = size, size // 2
        # In double precision, so that functions that round otherwise give the same floats.
        self.rates = _LONGEST ** -(torch.arange(count, dtype=torch.float64) / max(1, count))
        drawn = torch.randperm(size)
        self.sines, self.cosines = drawn[:count], drawn[count : 2 * count]
        self.signs = 1.0 - 2.0 * torch.randint(2, (size,))

    def at(self, positions: Tensor) -> Tensor:
        """positions [P]. Returns [P, H]; the squares of a row add up to H, or to H - 1."""
        angles = positions[:, None] * self.rates
        waves = torch.zeros(len(positions), self.size, dtype=torch.float64)
        waves[:, self.sines], waves[:, self.cosines] = angles.sin(), angles.cos()
        return (math.sqrt(2) * waves * self.signs).float()

    def shifted(self, rows: Tensor, by: float) -> Tensor:
        """rows [N, H]. Returns [N, H], whose products with ``at(t)`` are those of `rows` with
        ``at(t + by)``."""
        sine, cosine = (by * self.rates).sin().float(), (by * self.rates).cos().float()
        sine = sine * self.signs[self.sines] * self.signs[self.cosines]
        of_sines, of_cosines = rows[:, self.sines], rows[:, self.cosines]
        turned = rows.clone()
        turned[:, self.sines] = of_sines * cosine - of_cosines * sine
        turned[:, self.cosines] = of_cosines * cosine + of_sines * sine
        return turned


@torch.no_grad()
def mimic_trained_attention(backbone: Backbone) -> None:
    """Replace the position embeddings and the query and key weights of a new `backbone`, drawing
    from PyTorch's generator; all else stays as it was initialized.

    Raises:
        BertineError: the layers of `backbone` are not BERT's, or a projection stands between them
            and the embeddings, which would not leave positions the waves that heads look by.
    """
    config = backbone.config
    if not isinstance(backbone, Encoder):
        raise BertineError(
            f"initialization mimetic is for layers like BERT's, and those of {config.title} are "
            "others; take normal"
        )
    if config.projects_embeddings:
        raise BertineError(
            "initialization mimetic is for layers that read the embeddings as they are, and a "
            f"linear layer stands between those of this {config.title}; take normal"
        )
    waves = _Waves(config.hidden_size)
    table = backbone.embeddings.position_embeddings.weight
    # About as large as the other embeddings in the sum.
    table.copy_(waves.at(torch.arange(len(table))) * config.initializer_range)
    for depth, layer in enumerate(backbone.layers):
        assert isinstance(layer, EncoderLayer)
        _look_alike(
            layer.attention.qkv.weight, config.head_size, waves, _OFFSETS if depth == 0 else ()
        )


def _look_alike(qkv: Tensor, head_size: int, waves: _Waves, offsets: Sequence[int]) -> None:
    """Make each token look at those like itself; the head of an offset, at those like itself and
    so many places on. `qkv` is [3H, H]."""
    size = qkv.shape[1]
    # The score of x for itself is D times the square of this, the squared norm of x, which is H
    # after the layer norm, and the correlation; attention divides it by the root of D.
    scale = math.sqrt(_SCORE / (math.sqrt(head_size) * size * _ALIKE))
    queries, noise = scale * torch.randn(size, size), scale * torch.randn(size, size)
    alike = queries.clone()
    for head, offset in enumerate(offsets[: size // head_size]):
        own = slice(head * head_size, (head + 1) * head_size)
        alike[own] = waves.shifted(queries[own], -offset)
    qkv[:size] = queries
    qkv[size : 2 * size] = _ALIKE * alike + math.sqrt(1 - _ALIKE**2) * noise
