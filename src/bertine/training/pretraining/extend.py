"""Going on with a model under an extended vocabulary: new pieces begin as the mean of their old
ones, so that a text means at first about what it meant before."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bertine.models.electra.generator import generator_of
from bertine.models.heads import new_head
from bertine.models.model import Model
from bertine.text.tokenizer import Tokenizer


@torch.no_grad()
def extend_vocabulary(model: Model, old: Tokenizer, new: Tokenizer) -> tuple[Model, int]:
    """Give `model`, which was made for `old`, the vocabulary of `new`, which extends it
    (:meth:`bertine.Tokenizer.extends`).

    The word embedding of a new piece is the mean of those of
    :meth:`bertine.Tokenizer.parts_of` `old`, and so is its
    bias in the MLM head, the model's or a generator's, where there is one. A piece with a character
    that was unknown gets the mean of all.

    Returns:
        The model (on the CPU, in the mode it was in), and how many pieces had unknown characters.
    """
    config = model.config.replace(vocab_size=max(new.vocab_size, model.config.vocab_size))
    state = dict(model.state_dict())
    unknown = 0
    grown = {"backbone.embeddings.word_embeddings.weight": 0}
    generator = generator_of(model)
    if "mlm" in model.heads:
        of_head: Any = model.heads["mlm"]
        grown |= {f"heads.mlm.{name}": at for name, at in of_head.vocabulary_tensors.items()}
    if generator is not None:
        tensors = generator.head.vocabulary_tensors
        grown |= {f"heads.generator.head.{name}": at for name, at in tensors.items()}
    for name, at in grown.items():
        table = state[name].movedim(at, 0)
        rows = table.new_zeros(config.vocab_size, *table.shape[1:])
        rows[: len(table)] = table
        known = table[: old.vocab_size]
        unknown = 0
        for index in range(old.vocab_size, new.vocab_size):
            pieces = old.parts_of(new.tokens[index])
            unknown += not pieces
            rows[index] = (known[pieces] if pieces else known).mean(0)
        state[name] = rows.movedim(0, at).contiguous()
    with torch.device("meta"):
        heads: dict[str, nn.Module] = {}
        for name in model.heads:
            sizes: dict[str, Any] = {}
            if config.heads[name].reads == "inputs" and generator is not None:
                sizes["generator"] = generator.config.replace(vocab_size=config.vocab_size)
            heads |= new_head(config, name, **sizes)
        extended = Model(config, heads, add_pooler=model.backbone.pooler is not None)
    extended.load_state_dict({k: v.detach().cpu().clone() for k, v in state.items()}, assign=True)
    extended.requires_grad_(True)
    return extended.train(model.training), unknown
