"""A pre-trained model of every variant: what is saved is loaded, computes the same, in transformers
too, and is resumed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertine
import toys
from bertine.core.loss_names import OBJECTIVE_TERMS, main_term
from bertine.families.fitted_heads import can_be_linear, takes_mean_layer
from bertine.hub.model_directory import load_model, save_model
from bertine.inference.predictor import Predictor
from bertine.models.heads import VECTOR_CLASSIFIER
from bertine.models.pooling import Pooling

from .conftest import Home, Run


def opened_by_transformers(folder: Path) -> tuple[Any, dict[str, Any]]:
    """By the class that its ``config.json`` names; what was missing."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    found: tuple[Any, dict[str, Any]] = getattr(transformers, name).from_pretrained(
        folder, output_loading_info=True
    )
    return found


def test_it_is_that_of_the_family(home: Home) -> None:
    values = json.loads((home.pretrained / "config.json").read_text())
    assert values["model_type"] == home.variant.model_type
    loaded = load_model(home.pretrained)
    objective = home.variant.family.objectives[0]
    # A detector's generator is left behind.
    terms = set(OBJECTIVE_TERMS[objective]) - {"generator"}
    kept = {"clm": {"lm"}, "denoising": {"lm"}}.get(objective, terms)
    assert set(loaded.model.heads) == kept
    assert loaded.report.new == loaded.report.dropped == loaded.report.unexpected == []
    theirs, info = opened_by_transformers(home.pretrained)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert theirs.num_parameters() == loaded.model.num_parameters()


def test_masks_are_filled_as_transformers_fills_them(home: Home, run: Run) -> None:
    if not home.variant.hides:
        with pytest.raises(
            bertine.BertineError, match=r"no masked-LM head|needs a mask|fills no masks"
        ):
            bertine.fill_mask(home.masked_lm, "the old cat")
        return
    mask = load_model(home.masked_lm).tokenizer.mask_text
    text = f"the old {mask} barks in the {mask} ."
    ours = bertine.fill_mask(home.masked_lm, text, top_k=3)
    assert run("fill-mask", home.masked_lm, text, "--top-k", 3).splitlines() == ours.lines()
    pipeline = transformers.pipeline("fill-mask", model=str(home.masked_lm), top_k=3)
    for filled, theirs in zip(ours, pipeline(text), strict=True):
        assert [c.probability for c in filled.candidates] == pytest.approx(
            [t["score"] for t in theirs], abs=1e-5
        )
        if home.variant.model_type == "bert":  # a token of bytes is written in another way
            assert [c.token for c in filled.candidates] == [t["token_str"] for t in theirs]


def test_a_directory_of_transformers_is_opened_and_written_back(home: Home, tmp_path: Path) -> None:
    theirs = opened_by_transformers(home.masked_lm)[0]
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(home.masked_lm).save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    text = "The old cat sleeps. Übrigens: naïve 猫 🐱!"
    known = load_model(home.masked_lm).tokenizer
    assert loaded.tokenizer.encode(text).input_ids == known.encode(text).input_ids
    assert loaded.tokenizer.fingerprint == known.fingerprint
    save_model(tmp_path / "ours", loaded.model, loaded.tokenizer)
    again, info = opened_by_transformers(tmp_path / "ours")
    assert not info["missing_keys"]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    encode = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for texts in ((text,), (text, "and a second one")):
        assert list(loaded.tokenizer.encode(*texts).input_ids) == encode(*texts)["input_ids"]


def test_vectors_are_the_means_of_transformers_states(home: Home) -> None:
    embedder = bertine.Embedder.load(home.pretrained, precision="fp32")
    texts = ["the old cat sleeps in the sofa .", "a soup"]
    vectors = embedder.embed(texts)
    theirs = transformers.AutoModel.from_pretrained(home.pretrained).eval()
    encode = transformers.AutoTokenizer.from_pretrained(home.pretrained)
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            states = theirs(**encode(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0).numpy(), atol=1e-5)


def test_the_vector_of_cls_is_that_of_its_token(home: Home) -> None:
    embedder = bertine.Embedder.load(home.pretrained, pooling="cls", device="cpu", precision="fp32")
    tokens = bertine.Embedder.load(
        home.pretrained, pooling="tokens", device="cpu", precision="fp32"
    )
    text = "the old cat sleeps in the sofa ."
    (states,) = tokens.embed_tokens([text])
    if home.variant.family.config.reads_forward:
        pytest.skip("the first token knows nothing of the text")
    ids = tokens.tokenizer.encode(text).input_ids
    place = ids.index(tokens.tokenizer.cls_token_id)
    np.testing.assert_allclose(embedder.embed([text])[0], states.vectors[place], atol=1e-5)


def test_held_out_text_is_scored(home: Home) -> None:
    report = bertine.evaluate(home.masked_lm, home.folder / "store")
    term = "mlm" if home.variant.hides else main_term(home.variant.family.objectives[0])
    loss = report.metrics[f"{term}_loss"]
    assert 0 < loss < 2 * np.log(320)
    assert any(name.endswith("_perplexity") for name in report.metrics)


def test_store_and_model_can_be_inspected(home: Home, run: Run) -> None:
    shown = run("inspect", home.folder / "store", "--num-instances", 2, "--max-seq-length", 48)
    loaded = load_model(home.pretrained)
    # Each with the word that it hides; a store with RoBERTa's kind of vocabulary may be BART's.
    vocabulary = loaded.tokenizer
    hides = vocabulary.mask_token_id is not None and not vocabulary.template.sums_up_at_end
    assert ("[MASK→" in shown) == hides
    assert "instance 1" in shown
    for folder in (home.pretrained, home.pretrained.parent):
        found = re.search(r"^parameters: ([\d,]+)", run("inspect", folder), re.MULTILINE)
        assert found is not None
        assert int(found[1].replace(",", "")) == loaded.model.num_parameters()


def test_a_runs_folder_is_a_tokenizer_and_a_model_too(home: Home, tmp_path: Path, run: Run) -> None:
    begun = home.pretrained.parent
    run("prepare", home.folder / "corpus.txt", "--tokenizer", begun, "--out", tmp_path / "store")
    run(
        *("pretrain", tmp_path / "store", "--model", begun, "--out", tmp_path / "run"),
        *("--objective", home.variant.family.objectives[0], "--learning-rate", 0),
        *("--steps", 1, "--batch-size", 2, "--max-seq-length", 24),
    )
    assert toys.same_weights(home.pretrained, tmp_path / "run" / "model")


def test_a_store_can_be_trained_on_further(home: Home, tmp_path: Path, run: Run) -> None:
    """From the model directory, whose heads go on where they stopped; the folder may be moved."""
    shutil.copytree(home.pretrained, tmp_path / "moved")
    run(
        *("pretrain", home.folder / "store", "--model", tmp_path / "moved"),
        *("--objective", home.variant.family.objectives[0], "--out", tmp_path / "run"),
        *("--steps", 1, "--batch-size", 2, "--learning-rate", 0, "--max-seq-length", 48),
    )
    assert toys.same_weights(home.pretrained, tmp_path / "run" / "model")


@pytest.mark.fast_cases(home=("modernbert",))
def test_a_folder_that_transformers_saved_trains_to_the_same_model(
    home: Home, tmp_path: Path, run: Run
) -> None:
    theirs = tmp_path / "theirs"
    opened_by_transformers(home.pretrained)[0].save_pretrained(theirs)
    transformers.AutoTokenizer.from_pretrained(home.pretrained).save_pretrained(theirs)
    data = toys.write_labelled(tmp_path / "data.csv")
    for start in (home.pretrained, theirs):
        given = ("--model", start, "--data", data, "--out", tmp_path / f"from-{start.name}")
        run("finetune", "text", *given, "--epochs", 1, "--max-length", 40, "--no-frozen")
    assert toys.same_weights(tmp_path / "from-model" / "model", tmp_path / "from-theirs" / "model")


def has_published_head(home: Home) -> bool:
    """Whether the head of a text that is fitted alone is transformers' too."""
    model = load_model(home.pretrained).model
    return takes_mean_layer(model.backbone) or can_be_linear(model.config, Pooling(), 2)


@pytest.mark.fast_cases(home=("bert",))
def test_a_head_alone_is_trained(home: Home, tmp_path: Path) -> None:
    if not has_published_head(home):
        pytest.skip("the head is one of ours, or there is none")
    data = toys.write_labelled(tmp_path / "data.csv")
    learner = bertine.finetune(
        "text", model=home.pretrained, data=data, out=tmp_path / "run", frozen=True
    )
    assert learner.validate(data).metrics["accuracy"] > 0.6
    opened = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run" / "model"
    )
    assert opened.config.num_labels == 2


@pytest.mark.fast_cases(home=("bert",))
def test_a_head_alone_on_other_layers_reads_the_vector_of_a_text(
    home: Home, tmp_path: Path
) -> None:
    if VECTOR_CLASSIFIER not in home.variant.family.heads or has_published_head(home):
        pytest.skip("the head is the published one, or there is none")
    data = toys.write_labelled(tmp_path / "data.csv")
    learner = bertine.finetune(
        "text", model=home.pretrained, data=data, out=tmp_path / "run", frozen=True
    )
    assert learner.validate(data).metrics["accuracy"] > 0.6
    opened = load_model(tmp_path / "run")
    assert "vector_classifier" in opened.model.heads
    # The head is the linear layer that it was fitted as, and alone a text has the same answer.
    texts = ["the old cat sleeps", "a very warm cake is on the table"]
    vectors = bertine.Embedder.load(home.pretrained, precision="fp32").embed(texts)
    out: Any = opened.model.heads["vector_classifier"]
    scores = out.out(torch.from_numpy(np.asarray(vectors)))
    predictor = Predictor.load(tmp_path / "run", "cpu", "fp32")
    for text, wanted in zip(texts, scores.softmax(-1), strict=True):
        (answer,) = predictor.predict([text])
        assert list(answer.probabilities.values()) == pytest.approx(wanted.tolist(), abs=1e-4)


@pytest.mark.fast_cases(home=("roberta",))
def test_a_head_alone_compares_two_texts(home: Home, tmp_path: Path) -> None:
    if "pair_classifier" not in home.variant.family.heads:
        pytest.skip("its models have no head for pairs of texts")
    data = toys.write_pairs(tmp_path / "data.csv")
    learner = bertine.finetune(
        "text", model=home.pretrained, data=data, out=tmp_path / "run", frozen=True
    )
    assert learner.validate(data).metrics["accuracy"] > 0.6
    opened = load_model(tmp_path / "run")
    assert "pair_classifier" in opened.model.heads
    weights = opened.model.backbone.state_dict()
    for name, tensor in load_model(home.pretrained).model.backbone.state_dict().items():
        assert name not in weights or tensor.equal(weights[name])
