"""A model of every type goes on under a vocabulary with more pieces."""

from __future__ import annotations

import pytest
import torch

from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.training.pretraining.pretrain import extend_vocabulary

from .parity import random_batch
from .variants import VARIANTS, Variant, scramble


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda v: v.model_type)
@torch.no_grad()
def test_what_it_gives_old_pieces_stays(variant: Variant) -> None:
    config = variant.tiny(0)
    head = next(name for name, kind in variant.family.heads.items() if kind.tied)
    model = Model(config, new_head(config, head)).eval()
    scramble(model, 0)
    old = Tokenizer.from_vocab([*SPECIAL_TOKENS, *(chr(0x4E00 + n) for n in range(20))])
    more = [chr(0x4F00 + n) for n in range(config.vocab_size - old.vocab_size + 3)]
    bigger, unknown = extend_vocabulary(model, old, Tokenizer.from_vocab([*old.tokens, *more]))
    assert unknown == len(more)
    assert bigger.config.vocab_size == config.vocab_size + 3
    batch = random_batch(config, 0)
    batch.input_ids.clamp_(max=old.vocab_size - 1)  # rows of no piece are overwritten
    places = batch.targets["mlm_positions"]
    before = model.read(head, model.encode(batch), places=places)
    after = bigger.read(head, bigger.encode(batch), places=places)
    assert after.shape[1] == config.vocab_size + 3
    torch.testing.assert_close(after[:, : old.vocab_size], before[:, : old.vocab_size])
