"""Model directories that are broken: every one is refused, and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.hub.model_directory import (
    TaskInfo,
    load_model,
    save_model,
)
from bertine.models.heads import Model
from bertine.reports.inspect import describe_model
from bertine.tokenization.tokenizer import Tokenizer
from hub.models import (
    CONFIG,
    VOCABULARY,
    classifier_model,
    fine_tune_start,
    pretraining_model,
)


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    state = load_file(file)
    change(state)
    save_file(state, file, metadata={"format": "pt"})


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save_model(
        tmp_path / "m", classifier_model(), tokenizer, task=TaskInfo("text", ("a", "b", "c"))
    )
    return tmp_path / "m"


def refuses(folder: Path, message: str) -> None:
    with pytest.raises(BertineError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.pop("bert.encoder.layer.1.output.dense.weight"),
            r"encoder\.layer\.1\.output\.dense\.weight is missing",
        ),
        (
            lambda s: [s.pop(k) for k in list(s) if "layer.1." in k],
            "has 1 layers, but num_hidden_layers in config.json is 2",
        ),
        (
            lambda s: s.pop("bert.encoder.layer.0.attention.self.key.bias"),
            r"attention\.self\.key\.bias is missing",
        ),
        (
            lambda s: s.update({"bert.encoder.layer.0.attention.self.key.bias": torch.ones(6)}),
            r"attention\.self\.key\.bias has shape \[6\], but config\.json asks for \[12\]",
        ),
        (
            lambda s: s.update({"bert.embeddings.word_embeddings.weight": torch.ones(60, 12)}),
            r"word_embeddings\.weight has shape \[60, 12\], .* \[57, 12\]",
        ),
        (
            lambda s: s.update({"classifier.weight": torch.ones(3, 13)}),
            r"classifier\.weight has shape \[3, 13\], .* \[3, 12\]",
        ),
        (
            lambda s: s.update({"classifier.bias": torch.ones(4)}),
            r"classifier\.bias has shape \[4\], but config\.json asks for \[3\]",
        ),
        (
            lambda s: s.update({"bert.pooler.dense.bias": torch.ones(12, dtype=torch.int8)}),
            r"pooler\.dense\.bias is torch\.int8",
        ),
        (
            lambda s: s.update({"adapter.up": torch.ones(2), "zz.down": torch.ones(2)}),
            r"unexpected tensors: adapter\.up, zz\.down",
        ),
        (
            lambda s: s.update({"pooler.dense.bias": torch.ones(12)}),
            r"pooler\.dense\.bias is there twice",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    rewrite(folder, change)
    refuses(folder, message)


def test_an_untied_decoder_is_refused_unless_the_head_is_dropped(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    save_model(tmp_path / "m", pretraining_model(), tokenizer)
    rewrite(tmp_path / "m", lambda s: s.update({"cls.predictions.decoder.weight": torch.ones(2)}))
    refuses(tmp_path / "m", "not tied to the word embeddings")
    assert fine_tune_start(tmp_path / "m", seed=0).report.unexpected == []


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_safetensors_file_is_refused(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refuses(folder, "cut short")
    with pytest.raises(BertineError, match="cut short"):
        describe_model(folder)


@pytest.mark.parametrize("keep", [0, 100, -1000])
def test_a_truncated_old_file_is_refused(folder: Path, keep: int) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "dropped" not in load_model(folder).report.lines()[0]
    file = folder / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:keep])
    refuses(folder, "cut short")


class Planted:
    """Unpickling this would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("planted", "w"))


def test_code_in_an_old_file_is_not_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.bias": Planted()}, folder / "pytorch_model.bin")
    refuses(folder, "runs no code")
    assert not (tmp_path / "planted").exists()
    torch.save({"weights": [1, 2]}, folder / "pytorch_model.bin")
    refuses(folder, "not a dictionary of tensors")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json"], "has no config.json"),
        (["model.safetensors"], "has no weights"),
        (["vocab.txt", "tokenizer.json"], "has no vocabulary"),
    ],
)
def test_a_missing_file_is_named(folder: Path, names: list[str], message: str) -> None:
    for name in names:
        (folder / name).unlink()
    refuses(folder, message)


def test_what_is_not_a_folder_is_refused(folder: Path) -> None:
    refuses(folder / "nowhere", "does not exist")
    refuses(folder / "config.json", "is a file")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "gone.safetensors"}}, "gone.safetensors: missing"),
        ({"weight_map": {"a": "../m/config.json"}}, "lists no shards of this folder"),
        ({"weight_map": {"a": 3, "b": []}}, "lists no shards of this folder"),
        ({}, "lists no shards"),
        ([], "must hold a JSON object"),
    ],
)
def test_a_broken_index_of_shards_is_refused(folder: Path, index: Any, message: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refuses(folder, message)


def test_a_tokenizer_with_more_pieces_than_the_model_is_refused(
    tmp_path: Path, folder: Path, tokenizer: Tokenizer
) -> None:
    larger = Tokenizer.from_vocab([*VOCABULARY, "ab", "##ab"])
    with pytest.raises(BertineError, match="59 pieces, but the model's vocab_size is 57"):
        save_model(tmp_path / "new", classifier_model(), larger)
    assert not (tmp_path / "new").exists()
    larger.save(folder)
    refuses(folder, "59 pieces, but the model's vocab_size is 57")
    # Vocabularies padded to a round number are usual.
    padded = CONFIG.replace(vocab_size=64)
    save_model(tmp_path / "padded", Model(padded, {}), tokenizer)
    assert load_model(tmp_path / "padded").config.vocab_size == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a", "b", "d"]}, "not those of id2label"),
        ({"format": 2}, "has format 2"),
        ({"lables": []}, "unknown key 'lables'; did you mean 'labels'"),
        ({"labels": "abc"}, "labels is 'abc', but must be a list"),
        ({"max_length": "128"}, "max_length is '128', but must be a whole number"),
        ({"name": None}, "name is None"),
        ({"training": None}, "training is None"),
        ({"settings": None}, "settings is None"),
        ({"settings": ["x"]}, "settings is"),
    ],
)
def test_a_task_file_that_cannot_be_is_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    edit_json(folder / "bertine.json", **changes)
    refuses(folder, message)


def test_labels_that_are_not_as_many_as_outputs_are_refused(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    with pytest.raises(BertineError, match="3 outputs, but the task has 2 labels"):
        save_model(tmp_path / "m", classifier_model(), tokenizer, task=TaskInfo("text", ("a", "b")))
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bert-base-uncased", "give hf:google-bert/bert-base-uncased"),
        ("all-MiniLM-L6-v2", "give hf:sentence-transformers/all-MiniLM-L6-v2"),
        ("roberta-base", "give hf:FacebookAI/roberta-base"),
        ("cardiffnlp/twitter-roberta-base", "give hf:cardiffnlp/twitter-roberta-base"),
        ("bert-mini", "is a size to pre-train"),
        ("electra-small", "is a size to pre-train"),
    ],
)
def test_a_published_name_is_answered_with_the_way_to_get_it(name: str, said: str) -> None:
    with pytest.raises(BertineError) as caught:
        load_model(name)
    assert said in str(caught.value)
