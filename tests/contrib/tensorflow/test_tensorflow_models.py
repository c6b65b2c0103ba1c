"""Folders of Google's open wherever a model directory does, and compute what Google's program
computed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bertine
from bertine.cli import main
from bertine.contrib.tensorflow.checkpoint import Checkpoint
from bertine.contrib.tensorflow.variables import VARIABLES
from bertine.core.errors import BertineError
from bertine.hub.model_directory import load_model
from bertine.hub.weights import read_facts
from bertine.objectives.losses import MlmNsp
from bertine.options.training import Updates
from bertine.training.optimizers import optimizer_for
from tolerance import assert_close, tolerance

from . import bundles
from .google import (
    FIXTURES,
    GOLDEN,
    KERAS,
    TERMS,
    WORDS,
    arrays_of,
    assert_gradients,
    batch_of,
    expected,
    largest,
)


@pytest.fixture
def google(tmp_path: Path) -> Path:
    """A folder of Google's as it is published."""
    folder = tmp_path / "uncased_L-3_H-32_A-4"
    shutil.copytree(GOLDEN, folder, ignore=shutil.ignore_patterns("*.npz"))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return folder


@torch.no_grad()
def differences(folder: Path, model: Any, act: str | None = None) -> dict[str, float]:
    """The largest differences to what Google's program gave."""
    values = expected(folder)
    batch = batch_of(values)
    encoded = model.encode(batch, all_states=True)
    real = batch.attention_mask
    logits = model.read("mlm", encoded, places=batch.targets["mlm_positions"])
    states = [values["embedding_output"], *values["layers"]]
    return {
        "states": max(
            largest(a[real], b[real]) for a, b in zip(encoded.hidden_states, states, strict=True)
        ),
        "pooled": largest(encoded.pooler_output, values["pooled"]),
        "mlm": largest(logits.log_softmax(-1), values["mlm_log_probs"]),
        "nsp": largest(model.read("nsp", encoded).log_softmax(-1), values["nsp_log_probs"]),
    }


@pytest.mark.parametrize("name", ["google", "keras"])
def test_states_and_log_probabilities_are_those_of_googles_program(google: Path, name: str) -> None:
    source, folder = (GOLDEN, google) if name == "google" else (KERAS, KERAS)
    gaps, values = differences(source, load_model(folder).model), expected(source)
    assert gaps["states"] < tolerance(values["layers"], terms=TERMS)
    assert gaps["pooled"] < tolerance(values["pooled"], terms=TERMS)
    assert gaps["mlm"] < tolerance(values["mlm_log_probs"], terms=TERMS)
    assert gaps["nsp"] < tolerance(values["nsp_log_probs"], terms=TERMS)


def test_the_other_gelu_gives_other_states(google: Path, tmp_path: Path) -> None:
    bertine.convert(google, tmp_path / "erf", hidden_act="gelu")
    gaps = differences(GOLDEN, load_model(tmp_path / "erf").model)
    assert 1e-4 < gaps["states"] < 2e-3
    assert 1e-3 < gaps["mlm"] < 1e-2


def test_losses_and_gradients_are_those_of_googles_program(google: Path) -> None:
    model = load_model(google).model
    values = expected(GOLDEN)
    weights = values["masked_lm_weights"].flatten()
    batch = batch_of(values)
    kept = weights > 0
    for name in ("mlm_positions", "mlm_labels"):
        batch.targets[name] = batch.targets[name][kept]
    terms = MlmNsp().terms(model, batch)
    # The program divides by the number of targets and 1e-5.
    mlm = terms["mlm"].total / (weights.sum() + 1e-5)
    nsp = terms["nsp"].total / terms["nsp"].count
    assert_close(mlm, values["mlm_loss"], terms=TERMS)
    assert_close(nsp, values["nsp_loss"], terms=TERMS)
    (mlm + nsp).backward()
    ours = {name: p.grad for name, p in model.named_parameters()}
    canonical = bertine.load_model(google).report.names.to_canonical(ours, model.config)
    assert_gradients(canonical, GOLDEN, Checkpoint.open(google).variables)


def test_what_is_chosen_and_left_out_is_said_in_one_line(
    google: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_model(google)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0] == (
        "bert_model.ckpt.index: Google's BERT, 62 tensors; left out: adam_m, adam_v, global_step "
        "(125 tensors); gelu with tanh, as in Google's program since February 2019 (else: bertine "
        "convert --hidden-act gelu); text lower-cased, as vocab.txt has no capitals (else: "
        "do_lower_case in a tokenizer_config.json)"
    )
    (google / "vocab.txt").write_text("".join(f"{w}\n" for w in [*WORDS[:-1], "Word"]))
    load_model(google)
    assert "text cased, as vocab.txt (else: do_lower_case" in capsys.readouterr().err
    (google / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert load_model(google).tokenizer.lowercase
    assert "vocab.txt" not in capsys.readouterr().err


def index_of(folder: Path, arrays: dict[str, Any], **config: Any) -> Path:
    """A folder of Google's with `arrays` and changes to the configuration."""
    for path in folder.glob("bert_model.ckpt.*"):
        path.unlink()
    bundles.write_bundle(folder / "bert_model.ckpt", arrays)
    file = folder / "bert_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


def test_gelu_of_googles_models_of_2018_is_the_exact_one(tmp_path: Path) -> None:
    chinese = shutil.copytree(FIXTURES / "tf1-index-bert-base-chinese", tmp_path / "chinese")
    opened = Checkpoint.open(chinese)
    assert opened.config.hidden_act == "gelu"
    assert opened.config.num_parameters + opened.config.hidden_size**2 > 1e8
    # The same sizes with an optimizer's state: trained on by Google's program.
    entries = {name: entry for name, entry in opened.bundle.entries.items() if "layer" not in name}
    entries["bert/pooler/dense/bias/adam_m"] = entries["bert/pooler/dense/bias"]
    # Only the index is read, so the data need not be there.
    rows = [(b"", bundles.header())]
    offset = 0
    for name in sorted(entries):
        empty = np.broadcast_to(np.float32(0), entries[name].shape)
        row = bundles.field(1, 1) + bundles.field(
            2, b"".join(bundles.field(2, bundles.field(1, size)) for size in empty.shape)
        )
        row += bundles.field(4, offset) + bundles.field(5, empty.size * 4)
        offset += empty.size * 4
        rows.append((name.encode(), row))
    (chinese / "bert_model.ckpt.index").write_bytes(bundles.table(rows))
    assert Checkpoint.open(chinese).config.hidden_act == "gelu_new"


def test_sizes_and_names_of_the_published_bert_base_chinese(tmp_path: Path) -> None:
    facts = read_facts(
        Path(shutil.copytree(FIXTURES / "tf1-index-bert-base-chinese", tmp_path / "c"))
    )
    from transformers import BertConfig, BertForPreTraining

    with torch.device("meta"):
        config = BertConfig(vocab_size=21128)
        theirs = BertForPreTraining(config).state_dict()
    names = {name.removeprefix("bert."): tuple(t.shape) for name, t in theirs.items()}
    ours = {name: fact.shape for name, fact in facts.items()}
    copies = ("cls.predictions.decoder.", "embeddings.position_ids")
    assert ours == {name: shape for name, shape in names.items() if not name.startswith(copies)}


@pytest.mark.parametrize("without", ["pooler|seq_relationship", "cls/", "cls/seq_relationship"])
def test_a_checkpoint_without_some_heads(google: Path, without: str) -> None:
    rest = {n: a for n, a in arrays_of(google).items() if not re.search(without, n)}
    model = load_model(index_of(google, rest)).model
    assert ("mlm" in model.heads) == (without != "cls/")
    assert "nsp" not in model.heads
    assert (model.backbone.pooler is None) == ("pooler" in without)
    assert bertine.Embedder.load(google).embed(["the cat sat"]).shape == (1, 32)


def test_a_classifier_of_run_classifier_answers(google: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {n: a for n, a in arrays_of(google).items() if not n.startswith("cls/")}
    arrays["output_weights"] = draw.normal(size=(3, 32)).astype(np.float32)
    arrays["output_bias"] = draw.normal(size=3).astype(np.float32)
    folder = index_of(google, arrays)
    predictor = bertine.Predictor.load(folder, precision="fp32")
    answer = predictor.predict("the cat sat")
    assert answer.label in ("LABEL_0", "LABEL_1", "LABEL_2")
    bertine.convert(folder, tmp_path / "out")
    other = bertine.Predictor.load(tmp_path / "out", precision="fp32").predict("the cat sat")
    assert other.probabilities == answer.probabilities


def test_spans_of_run_squad(google: Path) -> None:
    arrays = {n: a for n, a in arrays_of(google).items() if not n.startswith("cls/")}
    arrays["cls/squad/output_weights"] = np.ones((2, 32), np.float32)
    arrays["cls/squad/output_bias"] = np.zeros(2, np.float32)
    loaded = load_model(index_of(google, arrays))
    assert list(loaded.model.heads) == ["spans"]
    assert loaded.task is not None
    assert loaded.task.name == "spans"


@pytest.mark.slow
def test_every_command_that_takes_a_model_takes_it(
    google: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "\n".join(f"{text},{label}" for text, label in [("the cat", "a"), ("sats", "b")] * 8)
    (tmp_path / "data.csv").write_text(f"text,label\n{rows}\n")
    run = ["finetune", "text", "--model", google, "--data", tmp_path / "data.csv"]
    run += ["--out", tmp_path / "run", "--epochs", 1, "--precision", "fp32", "--no-frozen"]
    for command in (
        ["inspect", google],
        ["fill-mask", google, "the [MASK] sat"],
        ["embed", google, "--input", tmp_path / "data.csv", "--out", tmp_path / "v.npy"],
        ["export", google, "--out", tmp_path / "graph", "--format", "torch"],
        run,
    ):
        assert main([str(argument) for argument in command]) == 0, capsys.readouterr().err
        output = capsys.readouterr()
        assert "gelu with tanh" in output.err + output.out
    assert load_model(tmp_path / "run").config.hidden_act == "gelu_new"
    assert json.loads((tmp_path / "graph/config.json").read_text())["hidden_act"] == "gelu_new"


def refusal(folder: Path) -> str:
    with pytest.raises(BertineError) as error:
        load_model(folder)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("end", ["", ".index", ".data-00000-of-00001"])
def test_of_a_checkpoints_name_the_folder_is_asked_for(google: Path, end: str) -> None:
    path = google / f"bert_model.ckpt{end}"
    assert refusal(path) == f"{path}: is of a checkpoint; give its folder, {google}"


def test_damaged_and_foreign_folders_end_in_a_line_that_names_the_file(google: Path) -> None:
    data, index = (google / f"bert_model.ckpt.{end}" for end in ("data-00000-of-00001", "index"))
    sound = data.read_bytes()
    data.write_bytes(sound[:-4])
    assert refusal(google).startswith(f"{data}: is cut short: it has 389,800 bytes")
    data.write_bytes(sound[:1000] + b"\1" + sound[1001:])
    assert "the file is damaged, or belongs to another checkpoint" in refusal(google)
    data.write_bytes(sound)
    content = index.read_bytes()
    index.write_bytes(content[:50] + b"\1" + content[51:])
    assert refusal(google).startswith(f"{index}: cannot be read as the index of")
    index.unlink()
    assert refusal(google).startswith(f"{data}: has no bert_model.ckpt.index beside it")
    data.unlink()
    assert "has a bert_config.json, but no weights" in refusal(google)
    # A file of the first format is a table, too.
    (google / "bert_model.ckpt").write_bytes(content)
    assert "TensorFlow's first format (V1)" in refusal(google)
    index.write_bytes(content)
    assert refusal(google).startswith(f"{data}: missing, but bert_model.ckpt.index has tensors")
    data.write_bytes(sound)
    (google / "bert_config.json").rename(google / "elsewhere.json")
    assert "has a TensorFlow checkpoint, but no bert_config.json" in refusal(google)


def test_variables_of_other_networks_are_named(google: Path) -> None:
    arrays = arrays_of(google)
    message = refusal(
        index_of(google, {**arrays, "bert/lstm/kernel": np.zeros((2, 2), np.float32)})
    )
    assert "Google's BERT does not have: 'bert/lstm/kernel'; it is of another" in message
    message = refusal(index_of(google, arrays, num_hidden_layers=2))
    assert "unexpected tensors: encoder.layer.2." in message
    message = refusal(index_of(google, arrays, num_hidden_layers=5))
    assert "has 3 layers, but num_hidden_layers in bert_config.json is 5" in message
    message = refusal(index_of(google, arrays, num_hidden_layers=3, hidden_size=64))
    assert "but bert_config.json asks for" in message
    names = {"bert/encoder/layer_shared/intermediate/dense/kernel", "bert/pooler/dense/kernel"}
    assert VARIABLES["albert"].stranger(names) == "brightmart's albert_zh"


def test_of_several_checkpoints_the_newest_is_read(google: Path) -> None:
    for number in (10, 20):
        for end in ("index", "data-00000-of-00001"):
            shutil.copy(google / f"bert_model.ckpt.{end}", google / f"model.ckpt-{number}.{end}")
    assert "holds 3 checkpoints (bert_model.ckpt.index, model.ckpt-10.index, " in refusal(google)
    (google / "checkpoint").write_text(
        'model_checkpoint_path: "/far/away/model.ckpt-20"\n'
        'all_model_checkpoint_paths: "/far/away/model.ckpt-10"\n'
    )
    assert Checkpoint.open(google).bundle.index.name == "model.ckpt-20.index"


def test_a_step_of_adam_is_that_of_googles_program(google: Path) -> None:
    """From the weights and gradients of the checkpoint to those after one step of
    ``AdamWeightDecayOptimizer`` at 1e-3, clipped to a norm of 1."""
    loaded = load_model(google)
    model, names = loaded.model, loaded.report.names
    variables = Checkpoint.open(google).variables

    def read(file: str) -> dict[str, Tensor]:
        canonical = {}
        with np.load(GOLDEN / file) as values:
            for name in values.files:
                place = variables.place(name.replace("|", "/"))
                assert place is not None
                tensor = torch.from_numpy(values[name])
                canonical[place.name] = (tensor.T if place.transposed else tensor).contiguous()
        return names.from_canonical(canonical, model.config)

    for name, gradient in read("gradients.npz").items():
        model.get_parameter(name).grad = gradient.clone()
    options = Updates(bias_correction=False)
    optimizer = optimizer_for(model, options, torch.float32)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.clipped_step(1e-3, options.max_grad_norm)
    after = read("after_1_step.npz")
    assert after.keys() == before.keys()
    for name, parameter in model.named_parameters():
        assert float((parameter.detach() - after[name]).abs().max()) < 3e-7, name
        assert float((before[name] - after[name]).abs().max()) > 1e-5, name
