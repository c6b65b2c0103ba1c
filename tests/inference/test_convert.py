"""``bertine convert``: what is written computes the same, in transformers too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bertine
import toys
import unigrams
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.hub.model_directory import save_model
from bertine.tokenization.tokenizer import SPECIAL_TOKENS

from .test_generate import bart

GOLDEN = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "google-bert-tiny"


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


def test_an_old_file_of_weights_becomes_safetensors(tmp_path: Path) -> None:
    toys.write_model(tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    torch.save(weights, tmp_path / "model" / "pytorch_model.bin")
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "README.md").write_text("a card")
    written = bertine.convert(tmp_path / "model", tmp_path / "out")
    assert written.left_behind == ["README.md"]
    assert written.lines()[-1] == "not converted: README.md"
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    old, new = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("model", "out")
    )
    assert old == new


def test_what_would_be_lost_is_refused(google: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    with pytest.raises(BertineError, match="is a folder, but not a model directory"):
        bertine.convert(google, tmp_path / "texts")
    with pytest.raises(BertineError, match="is a folder, but not a model directory"):
        bertine.convert(google, google)
    bertine.convert(google, tmp_path / "out")
    with pytest.raises(BertineError, match="is the model's own folder"):
        bertine.convert(tmp_path / "out", tmp_path / "out")
    with pytest.raises(BertineError, match="hidden_act"):
        bertine.convert(google, tmp_path / "other", hidden_act="swish")  # type: ignore[arg-type]


def test_vectors_of_words_go_from_format_to_format(tmp_path: Path) -> None:
    """Folder, binary, text and back, the same bits all the way."""
    before = bertine.WordVectors(["a", "b"], np.array([[0.1, -3], [1e-20, 7]], dtype=np.float32))
    before.save(tmp_path / "folder")
    source: Path = tmp_path / "folder"
    for name in ("v.bin", "v.txt", "again"):
        done = bertine.convert(source, tmp_path / name)
        assert done.lines() == [f"written to {tmp_path / name}: 2 words, vectors of 2 numbers"]
        source = tmp_path / name
    after = bertine.WordVectors.load(source)
    assert after.words == before.words
    assert after.vectors.tobytes() == before.vectors.tobytes()
    with pytest.raises(BertineError, match="is what is read"):
        bertine.convert(source, source)
    with pytest.raises(BertineError, match="no activation; leave out hidden_act"):
        bertine.convert(source, tmp_path / "v.bin", hidden_act="relu")


def test_how_texts_are_written_is_kept(tmp_path: Path) -> None:
    """What a published model says of it, not what Bertine would do where nothing is said."""
    folder, output = tmp_path / "bart", tmp_path / "out"
    save_model(folder, *bart(tmp_path))
    file = folder / "generation_config.json"
    said = {**json.loads(file.read_text()), "num_beams": 4, "min_length": 56}
    file.write_text(json.dumps(said))
    assert bertine.convert(folder, output).left_behind == ["README.md"]
    assert json.loads((output / file.name).read_text()) == said
    file.unlink()
    bertine.convert(folder, output)
    assert json.loads((output / file.name).read_text())["num_beams"] == 1
