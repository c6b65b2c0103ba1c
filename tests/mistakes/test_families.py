"""Mistakes with models of every type: each ends in one line that names the file or the setting."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import toys
import unigrams
from bertine.core.model_folders import locate
from bertine.core.names import FAMILIES
from bertine.core.rng import generator
from bertine.hub.model_directory import save_model
from bertine.models.config import Config
from bertine.models.family import Family, config_to_huggingface, family_of
from bertine.models.heads import Model, new_head
from bertine.tasks.classification import TextClassification
from mistakes.commands import Fails, finetune, pretrain

#: The files that a folder may be without, by kind of tokenizer.
EXPECTED = {
    "wordpiece": "expected tokenizer.json or vocab.txt",
    "byte-bpe": "expected tokenizer.json or vocab.json with merges.txt",
    "word-bpe": "expected tokenizer.json, vocab.json with merges.txt",
    "unigram": "expected tokenizer.json, spiece.model, sentencepiece.bpe.model, ",
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return family_of(request.param)


def tiny(family: Family) -> Config:
    preset = next(iter(family.presets.values()))
    small = dict.fromkeys(("embedding_size", "intra_bottleneck_size"), 16)
    small |= {"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 128}
    small["eos_token_id"] = toys.tokenizer().sep_token_id
    return preset.replace(
        vocab_size=toys.tokenizer().vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=40,
        pad_token_id=0,
        **{name: size for name, size in small.items() if hasattr(preset, name)},
    )


@pytest.fixture
def classifier(family: Family, tmp_path: Path) -> Path:
    """A model directory with random weights, of the type."""
    torch.manual_seed(0)
    config = tiny(family)
    task = TextClassification(("animal", "dish"), ("text",), "label", 16)
    model = Model(config, task.heads(config))
    save_model(tmp_path / "model", model, toys.tokenizer(), task=task.task_info())
    return tmp_path / "model"


def test_files_that_are_cut_short_wrong_or_missing(
    family: Family, classifier: Path, made: Path, tmp_path: Path, fails: Fails
) -> None:
    data, out = made / "train.csv", tmp_path / "out"
    commands = [
        ["predict", classifier, "--input", data, "--output", tmp_path / "answers.csv"],
        finetune(classifier, data, out),
        pretrain(made / "store", classifier, out),
    ]
    weights, config = classifier / "model.safetensors", classifier / "config.json"
    whole, written = weights.read_bytes(), config.read_text()
    os.truncate(weights, len(whole) - 100)
    for command in commands:
        message = fails(*command)
        assert message.startswith(f"{weights}: is damaged, cut short or of another kind")
    weights.write_bytes(whole)
    config.write_text(json.dumps({**json.loads(written), "hidden_sise": 2}))
    for command in commands:
        assert fails(*command).startswith(f"{config}: unknown key 'hidden_sise'; did you mean")
    config.write_text(written)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (classifier / name).unlink()
    for command in commands[:2]:
        message = fails(*command)
        assert message.startswith(f"{classifier}: has no vocabulary; {EXPECTED[family.tokenizer]}")
    pieces = classifier / "spiece.model"
    noise = generator(0, "noise").bytes(5000)
    for raw, problem in (
        (unigrams.model_bytes(unigrams.ALBERT_SPECIALS, model=2), "its model is BPE, not Unigram"),
        (noise, "truncated, or not a sentencepiece model"),
    ):
        pieces.write_bytes(raw)
        for command in commands[:2]:
            assert fails(*command).startswith(f"{pieces}: {problem}")


def test_an_objective_of_another_type(
    family: Family, made: Path, tmp_path: Path, fails: Fails
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config_to_huggingface(tiny(family))))
    name = family.config.model_type
    others = {"mlm", "mlm-nsp", "mlm-sop", "rtd"} - set(family.objectives)
    assert others
    for objective in others:
        message = fails(*pretrain(made / "store", file, tmp_path / "out"), "--objective", objective)
        assert message.startswith(f"a model of type {name} is pre-trained with objective ")
        assert message.endswith(f", not with {objective}")


def test_a_teacher_of_another_vocabulary(
    family: Family, classifier: Path, made: Path, tmp_path: Path, fails: Fails
) -> None:
    """On a store; on texts of a task each reads them with its own."""
    teacher = tmp_path / "teacher"
    shutil.copytree(locate("bertine-en"), teacher)
    message = fails(
        *("distill", made / "store", "--teacher", teacher, "--student", classifier),
        *("--out", tmp_path / "out", "--steps", 1, "--max-seq-length", 32),
    )
    if not any("mlm" in name or name == "rtd" for name in family.objectives):
        # A student on a store guesses hidden words.
        only = family.objectives[0]
        assert message.endswith(f"is pre-trained with objective {only}, not with mlm")
        return
    assert str(teacher) in message
    assert "vocabulary" in message


def test_types_that_write_no_texts_and_types_that_fill_no_masks(
    family: Family, classifier: Path, fails: Fails
) -> None:
    kind = family.config
    if not kind.writes_with:
        told = fails("generate", classifier, "the old cat")
        assert f"{classifier}: is of type {kind.model_type}, which writes no texts" in told
    told = fails("fill-mask", classifier, "the [MASK]")
    if "mlm" not in family.heads:
        assert f"{classifier}: is of type {kind.model_type}, which fills no masks" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top-k", 3), "--top-k is for sampling; add --sample, or leave it out"),
        (("--sample", "--beams", 2), "leave out --sample"),
        (("--max-new-tokens", 40), "the model has places for 40 tokens"),
        (("--end-token", "!"), "end_token '!' is not in the vocabulary"),
        (("--output", "written.zip"), "written.zip: rows of plain text are not written as .zip"),
        (("--text-column", "b"), "--text-column is for an input file; leave it out"),
        (("--beams", 257), "257"),
        (("--input", "-"), "give either texts or an input file (--input)"),
        ((" ",), "text 2 has nothing to go on from; give a word or more"),
    ],
)
def test_texts_that_cannot_be_written(
    tmp_path: Path, fails: Fails, options: tuple[object, ...], message: str
) -> None:
    gpt = family_of("openai-gpt")
    config = tiny(gpt)
    model = Model(config, new_head(config, "lm"))
    save_model(tmp_path / "model", model, toys.tokenizer())
    few = () if "--max-new-tokens" in options else ("--max-new-tokens", 8)
    assert message in fails("generate", tmp_path / "model", "the old cat", *few, *options)
