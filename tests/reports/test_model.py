"""What a model directory is said to be."""

from __future__ import annotations

from pathlib import Path

import bertine
import toys
from bertine.families.presets import preset
from bertine.models.heads import Model
from bertine.reports.inspect import describe_model
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer


def test_a_published_size_is_known_with_another_vocabulary(tmp_path: Path) -> None:
    words = [word for word in SPECIAL_TOKENS if word != "[PAD]"]
    tokenizer = Tokenizer.from_vocab([*words, "[PAD]", *toys.WORDS])
    assert tokenizer.pad_token_id == 4
    config = preset("bert-tiny", vocab_size=tokenizer.vocab_size, pad_token_id=4)
    bertine.save_model(tmp_path / "model", Model(config, {}), tokenizer)
    assert "architecture: BERT (bert-tiny), 2 layers" in describe_model(tmp_path / "model")[1]
