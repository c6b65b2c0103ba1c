"""``bertine convert``: what is written computes the same, in transformers too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.hub.model_directory import save_model

from .test_generate import bart


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


def test_what_would_be_lost_is_refused(tmp_path: Path) -> None:
    model = toys.write_model(tmp_path / "model")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    with pytest.raises(BertineError, match="is a folder, but not a model directory"):
        bertine.convert(model, tmp_path / "texts")
    bertine.convert(model, tmp_path / "out")
    with pytest.raises(BertineError, match="is the model's own folder"):
        bertine.convert(tmp_path / "out", tmp_path / "out")
    with pytest.raises(BertineError, match="hidden_act"):
        bertine.convert(model, tmp_path / "other", hidden_act="swish")  # type: ignore[arg-type]


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
