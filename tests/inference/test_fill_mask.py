"""Filling masks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertine.core.errors import BertineError
from bertine.hub.model_directory import load_model
from bertine.inference.fill_mask import fill_mask
from bertine.tokenization.tokenizer import Tokenizer


def test_candidates_are_the_models_most_probable_pieces(
    pretrained: Path, tokenizer: Tokenizer
) -> None:
    text = "The cat [MASK] on the  [MASK]."
    filled = fill_mask(pretrained, text, top_k=4)
    loaded = load_model(pretrained)
    ids = tokenizer.encode(text).input_ids
    places = [at for at, index in enumerate(ids) if index == tokenizer.mask_token_id]
    with torch.no_grad():
        hidden = loaded.model.backbone(torch.tensor([ids])).last_hidden_state[0, places]
        words = loaded.model.backbone.embeddings.word_embeddings.weight
        logits = loaded.model.heads["mlm"](hidden, words)[:, : tokenizer.vocab_size]
    best = logits.softmax(-1).topk(4)
    assert len(filled) == 2
    assert [mask.start for mask in filled] == [8, 23]
    for mask, values, indices in zip(
        filled, best.values.tolist(), best.indices.tolist(), strict=True
    ):
        assert [c.token for c in mask.candidates] == [tokenizer.id_to_token(i) for i in indices]
        assert [c.probability for c in mask.candidates] == pytest.approx(values, abs=1e-6)
        for candidate in mask.candidates:
            # Only this mask is replaced; the rest of the text is as it was, spaces included.
            token = candidate.token.removeprefix("##")
            start = mask.start - (1 if candidate.token.startswith("##") else 0)
            if candidate.token.startswith("##") and mask.start == 23:
                start -= 1
            assert candidate.text == text[:start] + token + text[mask.start + len("[MASK]") :]


def test_a_piece_inside_a_word_joins_the_word(pretrained: Path, tokenizer: Tokenizer) -> None:
    filled = fill_mask(pretrained, "two cat [MASK]", top_k=tokenizer.vocab_size)
    texts = {candidate.token: candidate.text for candidate in filled[0].candidates}
    assert texts["##s"] == "two cats"
    assert texts["dog"] == "two cat dog"
    assert sum(c.probability for c in filled[0].candidates) == pytest.approx(1, abs=1e-5)
    assert len(filled.lines()) == tokenizer.vocab_size
    assert any("two cats" in line for line in filled.lines())


def test_what_the_vocabulary_does_not_know_is_told(
    pretrained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_mask(pretrained, "The cat [MASK] on Δευτέρα.")
    assert "1 word of the text unknown to the vocabulary" in capsys.readouterr().err
    fill_mask(pretrained, "The cat [MASK].")
    assert "unknown to the vocabulary" not in capsys.readouterr().err


def test_mistakes(pretrained: Path, classifier: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(BertineError, match=r"the text has no \[MASK\]"):
        fill_mask(pretrained, "The cat [mask] on the mat.")
    with pytest.raises(BertineError, match="has no masked-LM head"):
        fill_mask(classifier, "The [MASK].")
    with pytest.raises(BertineError, match="the text has 63 pieces, but the model takes 40"):
        fill_mask(pretrained, "cat " * 60 + "[MASK]")
    for wrong in (0, tokenizer.vocab_size + 1):
        with pytest.raises(BertineError, match=f"top_k is {wrong}"):
            fill_mask(pretrained, "The [MASK].", top_k=wrong)
