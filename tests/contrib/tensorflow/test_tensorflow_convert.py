"""``bertine convert`` of a checkpoint of Google's: transformers computes the same with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import bertine
import unigrams
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.tokenization.tokenizer import SPECIAL_TOKENS

GOLDEN = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "google-bert-tiny"


@pytest.fixture
def google(tmp_path: Path) -> Path:
    folder = tmp_path / "google"
    shutil.copytree(GOLDEN, folder, ignore=shutil.ignore_patterns("*.npz"))
    words = [*SPECIAL_TOKENS, "the", "cat", "sat", "##s", *(f"word{i}" for i in range(88))]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder


def test_a_checkpoint_of_googles_opens_in_transformers(google: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForPreTraining, AutoTokenizer

    written = bertine.convert(google, tmp_path / "out")
    assert written.lines() == [
        "loaded 62 tensors: encoder, pooler, MLM head, NSP head",
        f"written to {tmp_path / 'out'}: 32,483 parameters in fp32, hidden_act gelu_new",
    ]
    theirs = AutoModelForPreTraining.from_pretrained(tmp_path / "out", attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(["The cats sat", "word1 word2"], return_tensors="pt", padding=True)
    ours = bertine.load_model(google)
    assert ours.tokenizer.encode("The cats sat").input_ids == inputs["input_ids"][0].tolist()
    with torch.no_grad():
        outputs = theirs.eval()(**inputs, output_hidden_states=True)
        embedded = bertine.Embedder(ours.model, ours.tokenizer, precision="fp32")
        vectors = torch.as_tensor(embedded.embed(["The cats sat", "word1 word2"]))
    mask = inputs["attention_mask"][..., None]
    mean = (outputs.hidden_states[-1] * mask).sum(1) / mask.sum(1)
    torch.testing.assert_close(vectors, mean, rtol=1e-5, atol=1e-5)
    assert bertine.load_model(tmp_path / "out").model.fingerprint() == ours.model.fingerprint()


def test_googles_albert_with_its_own_tokenizer_opens_in_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForPreTraining

    folder = tmp_path / "albert_base"
    shutil.copytree(GOLDEN.parent / "google-albert-tiny", folder)
    unigrams.write_albert(folder)
    (folder / "spiece.model").rename(folder / "30k-clean.model")
    written = bertine.convert(folder, tmp_path / "out")
    assert "expected.npz" in written.left_behind
    assert "30k-clean.model" not in written.left_behind
    ours, again = bertine.load_model(folder), bertine.load_model(tmp_path / "out")
    assert again.tokenizer.kind == "unigram"
    assert again.tokenizer.fingerprint == ours.tokenizer.fingerprint
    assert again.model.fingerprint() == ours.model.fingerprint()
    theirs = AutoModelForPreTraining.from_pretrained(tmp_path / "out", attn_implementation="eager")
    ids = torch.arange(5, 29).view(2, 12)
    with torch.no_grad():
        outputs = theirs.eval()(input_ids=ids, output_hidden_states=True)
        mask = torch.ones_like(ids, dtype=torch.bool)
        encoded = ours.model.encode(Batch(ids, mask, torch.zeros_like(ids)))
        order = ours.model.read("sop", encoded)
    last = outputs.hidden_states[-1]
    torch.testing.assert_close(encoded.last_hidden_state, last, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(order, outputs.sop_logits, rtol=1e-5, atol=1e-5)


def test_a_checkpoint_is_not_replaced(google: Path) -> None:
    with pytest.raises(BertineError, match="is a folder, but not a model directory"):
        bertine.convert(google, google)
