"""Going on with a model under an extended vocabulary: new pieces begin as the mean of their old
ones, so that a text means at first about what it meant before."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bertine.models.config import Config
from bertine.models.heads import GuessesWords, new_head
from bertine.models.model import Model
from bertine.text.tokenizer import Tokenizer


@torch.no_grad()
def extend_vocabulary(model: Model, old: Tokenizer, new: Tokenizer) -> tuple[Model, int]:
    """Give `model`, which was made for `old`, the vocabulary of `new`, which extends it
    (:meth:`bertine.Tokenizer.extends`).

    The word embedding of a new piece is the mean of those of :meth:`bertine.Tokenizer.parts_of`
    `old`, and so are its weights in heads that guess words
    (:class:`bertine.models.heads.GuessesWords`). A piece with a character that was unknown gets the
    mean of all.

    Returns:
        The model (on the CPU, in the mode it was in), and how many pieces had unknown characters.
    """
    config = model.config.replace(vocab_size=max(new.vocab_size, model.config.vocab_size))
    state = dict(model.state_dict())
    unknown = 0
    grown = {"backbone.embeddings.word_embeddings.weight": 0}
    for name, head in model.heads.items():
        if isinstance(head, GuessesWords):
            grown |= {f"heads.{name}.{own}": at for own, at in head.vocabulary_tensors.items()}
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
        for name, head in model.heads.items():
            options: dict[str, Any] = {}
            if config.heads[name].reads == "inputs":  # of sizes of its own
                assert isinstance(head.config, Config)
                options["sizes"] = head.config.replace(vocab_size=config.vocab_size)
            heads |= new_head(config, name, **options)
        extended = Model(config, heads, add_pooler=model.backbone.pooler is not None)
    extended.load_state_dict({k: v.detach().cpu().clone() for k, v in state.items()}, assign=True)
    extended.requires_grad_(True)
    return extended.train(model.training), unknown
