"""A checkpoint of XLNet's authors: it computes what their program computed, and what transformers
computes with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import bertine
from bertine.contrib.tensorflow.checkpoint import Checkpoint
from bertine.families.xlnet_layers import GuessedPlaces
from bertine.hub.model_directory import load_model
from bertine.models import encoder
from bertine.models.encoder import TextInputs
from bertine.models.family import family_of
from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from family.parity import close
from tolerance import assert_close, network_terms

from .google import FIXTURES

FILES = FIXTURES.parent / "xlnet"


@pytest.fixture(params=[0.0, 2.0], ids=["real tokens alone", "padding too"], autouse=True)
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute batches with padding in both ways."""
    monkeypatch.setattr(encoder, "_UNPAD_FROM", request.param)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder as the authors publish it, of a tiny model."""
    folder = tmp_path / "published"
    folder.mkdir()
    for file in FILES.glob("xlnet_*"):
        shutil.copy(file, folder)
    return folder


def gold() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the authors' program computed, and its gradients by variable."""
    expected, gradients = np.load(FILES / "expected.npz"), np.load(FILES / "gradients.npz")
    return (
        {name: torch.from_numpy(value) for name, value in expected.items()},
        {name.replace("|", "/"): torch.from_numpy(value) for name, value in gradients.items()},
    )


def test_the_authors_program_computes_the_same(published: Path) -> None:
    """States of both kinds, losses and all gradients."""
    expected, gradients = gold()
    checkpoint = Checkpoint.open(published)
    assert checkpoint.gelu is not None
    assert checkpoint.gelu.name == "gelu_new"
    names = family_of("xlnet").names
    model = Model(checkpoint.config, new_head(checkpoint.config, "plm")).eval()
    model.load_state_dict(names.from_canonical(checkpoint.tensors(), checkpoint.config))
    places, hidden = expected["target_mapping"].argmax(-1), expected["perm_mask"].bool()
    ids, types = expected["input_ids"].long(), expected["segment_ids"].long()
    memory, backwards = list(expected["mems"]), torch.tensor([False, True])
    with_memory = model.backbone(
        ids, None, types, memory=memory, guesses=GuessedPlaces(places, hidden), backwards=backwards
    ).last_hidden_state
    terms = network_terms(3, 32)
    assert_close(with_memory, expected["pre_output"], terms=terms)
    plain = model.backbone(
        ids, None, types, guesses=GuessedPlaces(places, hidden)
    ).last_hidden_state
    assert_close(plain, expected["nomem_output"], terms=terms)
    logits = model.heads["plm"](with_memory.flatten(0, 1), model.backbone.word_weights)
    losses = F.cross_entropy(logits, expected["target"].long().flatten(), reduction="none")
    assert_close(losses.view(2, 5), expected["lm_loss"], terms=terms)
    losses.mean().backward()
    ours = names.to_canonical(
        {name: p.grad for name, p in model.named_parameters() if p.grad is not None},
        checkpoint.config,
    )
    # Gradients begin with scores, which are as large as the losses.
    bound: Any = {
        "terms": network_terms(3, 32, gradients=True),
        "size": float(expected["lm_loss"].max()),
    }
    compared = 0
    for variable, place in checkpoint.places.items():
        theirs = gradients[variable]
        theirs = theirs.t() if place.transposed else theirs
        for name, number in place.parts(tuple(theirs.shape), 3):
            wanted = theirs if number is None else theirs[number]
            assert_close(ours[name], wanted, what=name, **bound)
            compared += 1
    assert compared == len(ours)


def test_the_authors_checkpoint_is_converted_and_opens_in_transformers(
    published: Path, tmp_path: Path
) -> None:
    letters = Tokenizer.from_vocab([*SPECIAL_TOKENS, *(chr(0x4E00 + n) for n in range(92))])
    letters.save(published)
    (published / "tokenizer.json").unlink()
    report = bertine.convert(published, tmp_path / "out")
    assert report.hidden_act == "gelu_new"
    ours = load_model(tmp_path / "out").model
    theirs, info = transformers.XLNetLMHeadModel.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    # Drawn once for all: with the large weights of this checkpoint, texts differ in how far
    # rounding alone carries fp32 logits from what float64 computes.
    ids = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(211))
    with torch.no_grad():
        encoded = ours.encode(TextInputs(ids))
        logits = ours.read("plm", encoded, places=torch.arange(22)).view(2, 11, 97)
        close(logits, theirs.eval()(ids).logits, "logits")
