"""Google's ALBERT opens from its checkpoint and computes what Google's program computed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import bertine
from bertine.contrib.tensorflow.bundle import Bundle
from bertine.contrib.tensorflow.variables import VARIABLES
from bertine.hub.model_directory import load_model
from bertine.objectives.losses import MlmSop
from tolerance import assert_close

from . import bundles
from .google import ALBERT, TERMS, WORDS, arrays_of, assert_gradients, batch_of, expected


@pytest.fixture
def google_albert(tmp_path: Path) -> Path:
    """An ALBERT's folder of Google's, with a vocabulary of words."""
    folder = tmp_path / "albert_tiny"
    shutil.copytree(ALBERT, folder, ignore=shutil.ignore_patterns("*.npz"))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return folder


def test_an_albert_computes_what_googles_program_computes(google_albert: Path) -> None:
    """States, losses and every gradient of the authors' own program."""
    loaded = load_model(google_albert)
    assert loaded.config.hidden_act == "gelu_new"
    model, values = loaded.model, expected(ALBERT)
    weights = values["masked_lm_weights"].flatten()
    batch = batch_of(values)
    real = batch.attention_mask
    encoded = model.encode(batch, all_states=True)
    assert encoded.hidden_states is not None
    assert encoded.pooler_output is not None
    for ours, theirs in zip(encoded.hidden_states[1:], values["layers"], strict=True):
        assert_close(ours[real], theirs[real], terms=TERMS)
    assert_close(encoded.pooler_output, values["pooled"], terms=TERMS)
    logits = model.read("mlm", encoded, places=batch.targets["mlm_positions"])
    assert_close(logits.log_softmax(-1), values["mlm_log_probs"], terms=TERMS)
    order = model.read("sop", encoded).log_softmax(-1)
    assert_close(order, values["sop_log_probs"], terms=TERMS)

    for name in ("mlm_positions", "mlm_labels"):
        batch.targets[name] = batch.targets[name][weights > 0]
    terms = MlmSop().terms(model, batch)
    mlm = terms["mlm"].total / (weights.sum() + 1e-5)
    sop = terms["sop"].total / terms["sop"].count
    assert_close(mlm, values["mlm_loss"], terms=TERMS)
    assert_close(sop, values["sop_loss"], terms=TERMS)
    (mlm + sop).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    canonical = loaded.report.names.to_canonical(gradients, model.config)
    assert_gradients(canonical, ALBERT, VARIABLES["albert"])


def test_an_albert_becomes_a_directory_that_transformers_opens(
    google_albert: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForPreTraining

    bertine.convert(google_albert, tmp_path / "converted")
    theirs = AutoModelForPreTraining.from_pretrained(tmp_path / "converted").eval()
    golden = expected(ALBERT)
    with torch.no_grad():
        outputs = theirs(
            input_ids=golden["input_ids"].long(),
            attention_mask=golden["input_mask"].long(),
            token_type_ids=golden["segment_ids"].long(),
        )
    assert_close(outputs.sop_logits.log_softmax(-1), golden["sop_log_probs"], terms=TERMS)


def test_an_albert_as_wide_as_its_embeddings_has_no_projection_there(google_albert: Path) -> None:
    arrays = {
        name: array
        for name, array in arrays_of(google_albert, "model.ckpt-best").items()
        if "embedding_hidden_mapping_in" not in name
    }
    draw = np.random.default_rng(0)
    for name, array in arrays.items():
        if array.shape[-1:] == (16,):  # E becomes H
            arrays[name] = draw.normal(size=(*array.shape[:-1], 32)).astype(np.float32)
    bundles.write_bundle(google_albert / "model.ckpt-best", arrays)
    file = google_albert / "albert_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "embedding_size": 32}))
    loaded = load_model(google_albert)
    weight = dict(loaded.model.named_parameters())["backbone.embeddings.projection.weight"]
    assert torch.equal(weight.detach(), torch.eye(32))


def test_every_variable_of_googles_albert_has_the_name_of_transformers() -> None:
    from transformers import AlbertConfig, AlbertForPreTraining

    values = json.loads((ALBERT / "albert_config.json").read_text())
    ours = AlbertConfig(**{**values, "hidden_act": "gelu_new"})
    ours._attn_implementation = "eager"
    theirs = AlbertForPreTraining(ours).eval()
    bundle = Bundle(ALBERT / "model.ckpt-best.index")
    state: dict[str, Tensor] = {}
    for variable in bundle.entries:
        place = VARIABLES["albert"].place(variable)
        assert place is not None, variable
        tensor = torch.from_numpy(np.asarray(bundle.array(variable)))
        name = place.name
        if name.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"albert.{name}"
        state[name] = tensor.T if place.transposed else tensor
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(".decoder." in name or "position_ids" in name for name in missing)
    theirs.tie_weights()
    golden = expected(ALBERT)
    with torch.no_grad():
        outputs = theirs(
            input_ids=golden["input_ids"].long(),
            attention_mask=golden["input_mask"].long(),
            token_type_ids=golden["segment_ids"].long(),
            output_hidden_states=True,
        )
    real = golden["input_mask"].bool()
    for ours, theirs in zip(outputs.hidden_states[1:], golden["layers"], strict=True):
        assert_close(ours[real], theirs[real], terms=TERMS)
    assert_close(outputs.sop_logits.log_softmax(-1), golden["sop_log_probs"], terms=TERMS)
