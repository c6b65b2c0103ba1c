"""The generator of replaced-token detection: a small masked language model over the embeddings of
the model that it is trained with (Clark et al. 2020, arXiv 2003.10555, section 3.2).

Shape legend: B sequences, T tokens of the longest, P places, V vocabulary size, E width of the
embeddings, G width of the generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from bertine.models.config import Config
from bertine.models.embeddings import Embeddings
from bertine.models.encoded import Inputs
from bertine.models.encoder import Encoder, layout_of
from bertine.models.heads import MlmHead
from bertine.models.initial import init_weights
from bertine.models.layers import EncoderLayer
from bertine.models.model import Model


class Generator(nn.Module):
    """Layers and an MLM head over embeddings that are another model's.

    The published code shares all of the embeddings, of words, positions and types with their layer
    norm (``modeling.py``: one variable scope for both models); a projection to the width of the
    layers is each model's own. So the embeddings are an argument, as the matrix of a tied decoder
    is.

    Args:
        config: of the generator as a model by itself; its ``embedding_width`` is that of the
            embeddings.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.projection = (
            nn.Linear(width, config.hidden_size) if config.projects_embeddings else None
        )
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.head = MlmHead(config, "gelu")
        init_weights(self, config.initializer_range)

    @property
    def vocabulary_tensors(self) -> Mapping[str, int]:
        """The weights of the head with a place for each word, and the dimension of it."""
        return {f"head.{name}": at for name, at in self.head.vocabulary_tensors.items()}

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile the parts, as of a model: all layers share one piece of code."""
        for part in (*self.layers, self.head):
            part.compile(*args, **options)

    def forward(self, embeddings: Embeddings, inputs: Inputs, places: Tensor) -> Tensor:
        """Guess the tokens at `places`, int64 [P], indices among the B * T tokens of `inputs`.
        Returns logits [P, V]."""
        states = self.states(embeddings, inputs).flatten(0, 1)
        return self.head(states.index_select(0, places), embeddings.word_embeddings.weight)

    def states(self, embeddings: Embeddings, inputs: Inputs) -> Tensor:
        """Return the last states of `inputs`, [B, T, G]; what stands at padding has no meaning."""
        dtype = embeddings.word_embeddings.weight.dtype
        layout = layout_of(inputs.input_ids, inputs.attention_mask, inputs.packing, dtype)
        x = embeddings.unprojected(inputs.input_ids, inputs.token_type_ids, layout.real)
        if self.projection is not None:
            x = self.projection(x)
        for layer in self.layers:
            x = layer(x, layout)
        return layout.pad(x)


def generator_of(model: Model) -> Generator | None:
    """Return the generator that `model` is trained with; None where there is none."""
    return cast(Generator, model.heads["generator"]) if "generator" in model.heads else None


def as_masked_lm(model: Model) -> Model | None:
    """Return the generator of `model` as a model by itself, with an MLM head, which shares its
    weights and the embeddings; None where there is none."""
    generator = generator_of(model)
    if generator is None:
        return None
    with torch.device("meta"):
        alone = Model(generator.config, {"mlm": generator.head}, add_pooler=False)
    backbone, embeddings = cast(Encoder, alone.backbone), cast(Encoder, model.backbone).embeddings
    for name, part in embeddings.named_children():
        if name not in ("dropout", "projection"):
            setattr(backbone.embeddings, name, part)
    backbone.embeddings.projection = generator.projection
    backbone.layers = generator.layers
    return alone.train(model.training)


def without_generator(model: Model) -> Model:
    """Return what is kept of `model`: its backbone and its other heads, which are shared."""
    with torch.device("meta"):
        kept = Model(model.config, {}, add_pooler=model.backbone.pooler is not None)
    kept.backbone = model.backbone
    kept.heads = nn.ModuleDict({n: head for n, head in model.heads.items() if n != "generator"})
    return kept.train(model.training)


def generator_from(masked_lm: Model) -> Generator:
    """Return the generator that the model `masked_lm` is, without its embeddings; the weights are
    shared with it."""
    with torch.device("meta"):
        generator = Generator(masked_lm.config)
    backbone = cast(Encoder, masked_lm.backbone)
    generator.projection = backbone.embeddings.projection
    generator.layers = backbone.layers
    generator.head = cast(MlmHead, masked_lm.heads["mlm"])
    return generator.train(masked_lm.training)
