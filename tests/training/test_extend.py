"""Domain adaptation: a vocabulary is extended, and a model goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import toys
from bertine import load_model, prepare, pretrain, train_vocab
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.training.pretraining.pretrain import extend_vocabulary

OLD = [*SPECIAL_TOKENS, "chat", "##bot", "b", "##o", "##t", "##s", "bot"]


def test_what_new_pieces_are_made_of() -> None:
    old = Tokenizer.from_vocab(OLD)

    def words(token: str) -> list[str]:
        return [old.id_to_token(piece) for piece in old.parts_of(token)]

    assert words("chatbots") == ["chat", "##bot", "##s"]
    assert words("##bots") == ["##bot", "##s"]
    assert words("bots") == ["bot", "##s"]
    assert words("chatx") == []


def test_old_rows_stay_and_new_ones_are_means() -> None:
    old = Tokenizer.from_vocab([*SPECIAL_TOKENS, *toys.WORDS])
    new = Tokenizer.from_vocab([*old.tokens, "§", toys.WORDS[0] + "§"])
    assert new.extends(old)
    assert not old.extends(old)
    assert not old.extends(new)
    assert not Tokenizer.from_vocab(new.tokens, lowercase=False).extends(old)
    model = toys.pretraining_model()
    bigger, unknown = extend_vocabulary(model, old, new)
    assert unknown == 2
    before, after = model.state_dict(), bigger.state_dict()
    table = "backbone.embeddings.word_embeddings.weight"
    for name, value in before.items():
        rows = len(value) if name in (table, "heads.mlm.bias") else None
        assert torch.equal(after[name][:rows], value), name
    torch.testing.assert_close(after[table][-1], before[table][: old.vocab_size].mean(0))
    assert bigger.config.vocab_size == len(after[table]) == new.vocab_size


def test_from_the_corpus_of_a_field_to_a_model_that_went_on(model: Path, tmp_path: Path) -> None:
    field = tmp_path / "field.txt"
    documents = [
        "the old neurotransmitter sleeps in the garden .\nthe warm neurotransmitter barks .\n"
        f"the small cat number{i % 3} sleeps ."
        for i in range(40)
    ]
    field.write_text("\n\n".join(documents) + "\n")
    old = Tokenizer.load(model)
    report = train_vocab(field, tmp_path / "vocab", vocab_size=old.vocab_size + 150, extend=model)
    new = Tokenizer.load(tmp_path / "vocab")
    assert new.tokens[: old.vocab_size] == old.tokens
    assert "neurotransmitter" in new.tokens
    assert report.base_size == old.vocab_size
    assert any("are those it extends" in line for line in report.lines())
    prepare(field, tokenizer=tmp_path / "vocab", out=tmp_path / "store")
    result = pretrain(
        tmp_path / "store",
        model=model,
        out=tmp_path / "run",
        steps=2,
        batch_size=2,
        max_seq_length=24,
    )
    loaded = load_model(result.model)
    assert loaded.tokenizer.tokens == new.tokens
    assert loaded.config.vocab_size >= new.vocab_size


def test_another_vocabulary_and_too_small_a_one_are_refused(
    store: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    other = train_vocab(corpus, tmp_path / "other", vocab_size=100)
    prepare(corpus, tokenizer=other.out, out=tmp_path / "store")
    with pytest.raises(BertineError, match="vocab --extend"):
        pretrain(tmp_path / "store", model=model, out=tmp_path / "run", steps=1)
    command = ["vocab", str(corpus), "--extend", str(model), "--vocab-size", "10"]
    assert main([*command, "--out", str(tmp_path / "new")]) == 2
    assert "tokens already" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
