"""Model directories as people have them: what has one meaning is read, the rest is refused by
name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.core.files import read_json
from bertine.core.task_info import TaskInfo
from bertine.hub.model_directory import load_model, save_model
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.fill_mask import fill_mask
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.reports.inspect import describe_model
from bertine.tokenization.tokenizer import Tokenizer
from hub.models import CONFIG, VOCABULARY, classifier_model, pretraining_model, scrambled

BIN, SHARDS = "pytorch_model.bin", "pytorch_model.bin.index.json"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:12ab\nsize 437971872\n"


def write(folder: Path, tokenizer: Tokenizer, labels: int = 3, **config: Any) -> Path:
    """Write a classifier as transformers does; keys of `config` that are None are left out."""
    save_model(folder, classifier_model(labels), tokenizer)
    values = json.loads((folder / "config.json").read_text())
    values = values | {"problem_type": None} | config
    values = {key: value for key, value in values.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return write(tmp_path / "m", tokenizer)


def tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def put(folder: Path, state: dict[str, Tensor]) -> None:
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def as_shards(folder: Path) -> list[str]:
    """Put the weights into two files of torch's; return their names."""
    state = tensors(folder)
    (folder / "model.safetensors").unlink()
    names = [f"pytorch_model-{number:05}-of-00002.bin" for number in (1, 2)]
    places = {name: names[at % 2] for at, name in enumerate(state)}
    for file in names:
        torch.save({n: state[n] for n, place in places.items() if place == file}, folder / file)
    (folder / SHARDS).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return names


# Labels and tasks


@pytest.mark.parametrize(
    ("labels", "config", "task", "names"),
    [
        (2, {}, "text", ("LABEL_0", "LABEL_1")),
        (3, {"num_labels": 3, "_num_labels": 3}, "text", ("LABEL_0", "LABEL_1", "LABEL_2")),
        (2, {"problem_type": "multi_label_classification"}, "multi-label", ("LABEL_0", "LABEL_1")),
        (1, {}, "regression", ()),
        (1, {"problem_type": "regression"}, "regression", ()),
    ],
)
def test_a_classifier_without_names_of_labels_has_those_of_transformers(
    tmp_path: Path,
    tokenizer: Tokenizer,
    labels: int,
    config: dict[str, Any],
    task: str,
    names: tuple[str, ...],
) -> None:
    config = {"id2label": None, "label2id": None, **config}
    loaded = load_model(write(tmp_path / "m", tokenizer, labels, **config))
    assert loaded.task is not None
    assert (loaded.task.name, loaded.task.labels) == (task, names)
    assert loaded.report.dropped == []


@pytest.mark.parametrize(
    ("labels", "config", "message"),
    [
        (3, {"problem_type": "regression"}, "has 3 outputs; several numbers for a text are not"),
        (1, {"problem_type": "single_label_classification"}, "would be the label of every text"),
        (2, {"problem_type": "x"}, "'x', but must be single_label_classification, multi_label"),
        (3, {"id2label": {"0": "a", "1": "b"}}, "has 3 outputs, but id2label .* has 2 labels"),
    ],
)
def test_a_classifier_of_another_kind_is_refused_but_gives_vectors(
    tmp_path: Path, tokenizer: Tokenizer, labels: int, config: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path / "m", tokenizer, labels, **config)
    with pytest.raises(BertineError, match=message) as caught:
        load_model(folder)
    assert str(caught.value).startswith(str(folder))
    assert load_model(folder, heads={}).task is None


#: How sentence-transformers 6, 4 and older write what scores go through.
IDENTITY, SIGMOID = (
    f"torch.nn.modules.{name}" for name in ("linear.Identity", "activation.Sigmoid")
)


@pytest.mark.parametrize(
    ("config", "beside", "sigmoid"),
    [
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}}, {}, False),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, {}, True),
        ({"sentence_transformers": {"version": "4.1.0"}}, {}, True),
        ({"sbert_ce_default_activation_function": IDENTITY}, {}, False),
        ({"sbert_ce_default_activation_function": SIGMOID}, {}, True),
        ({}, {"model_type": "CrossEncoder", "activation_fn": SIGMOID}, True),
        ({}, {"model_type": "CrossEncoder", "activation_fn": IDENTITY}, False),
    ],
)
def test_a_cross_encoder_scores_pairs_as_it_was_saved_to(
    tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any], beside: Any, sigmoid: bool
) -> None:
    plain = Predictor.load(write(tmp_path / "plain", tokenizer, 1), "cpu", "fp32", threads=1)
    folder = write(tmp_path / "m", tokenizer, 1, **config)
    if beside:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(beside))
    model = Predictor.load(folder, "cpu", "fp32", threads=1)
    pair = ("a b", "c d")
    score = model.predict([pair])[0].score
    pairs: Any = replace(cast(Any, plain.task), text_columns=("query", "text"))
    raw = plain.with_task(pairs).predict([pair])[0].score
    assert score == pytest.approx(1 / (1 + 2.718281828**-raw) if sigmoid else raw, rel=1e-6)
    assert model.explain(pair).unit == ("log-odds" if sigmoid else "score")
    # And it stays so.
    model.save(tmp_path / "saved")
    again = Predictor.load(tmp_path / "saved", "cpu", "fp32", threads=1)
    assert again.predict([pair])[0].score == score


@pytest.mark.parametrize(
    ("labels", "name"), [(1, "torch.nn.modules.activation.Tanh"), (1, "my.Own"), (3, SIGMOID)]
)
def test_another_activation_of_a_cross_encoder_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, labels: int, name: str
) -> None:
    folder = write(tmp_path / "m", tokenizer, labels, sentence_transformers={"activation_fn": name})
    with pytest.raises(BertineError, match=f"go through '{name}', which is not computed here"):
        load_model(folder)


# config.json

HARMLESS: dict[str, Any] = {
    **{
        "xla_device": True,
        "function_to_apply": "none",
        "_commit_hash": "0123",
        "output_past": True,
    },
    **{"cls_token_id": 2, "unk_token_id": 1, "mask_token_id": 4, "return_all_scores": False},
    **{"model_max_length": 512, "vocab_size_or_config_json_file": 57, "pruned_heads": {}},
    **{"torchscript": False, "use_bfloat16": False, "gradient_checkpointing": True},
    **{"is_decoder": False, "_num_labels": 3, "finetuning_task": "mrpc", "pooler_fc_size": 768},
    **{"pooler_type": "first_token_transform", "dtype": "float32", "torch_dtype": "float16"},
    **{"_name_or_path": "x", "pad_token": "[PAD]", "num_choices": 4, "is_composition": False},
}


def test_harmless_keys_of_all_versions_are_read_past(
    tmp_path: Path, tokenizer: Tokenizer, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = load_model(folder)
    loaded = load_model(write(tmp_path / "old", tokenizer, **HARMLESS))
    assert loaded.config == wanted.config
    assert capfd.readouterr().err == ""


def test_an_unknown_key_is_named_in_a_warning(
    tmp_path: Path, tokenizer: Tokenizer, capfd: pytest.CaptureFixture[str]
) -> None:
    long = {"x" * 100_000: 1}
    folder = write(tmp_path / "m", tokenizer, adapters={}, **{f"k{n}": 1 for n in range(20)})
    load_model(folder)
    said = capfd.readouterr().err
    assert "config.json: Bertine does not know what it says of adapters, k0, k1, k2" in said
    assert "k8, …; it is not read" in said
    assert said.count("warning") == 1
    load_model(write(folder, tokenizer, **long))
    assert 100 < len(capfd.readouterr().err) < 5000


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_sise": 12}, "did you mean 'hidden_size'"),
        ({"auto_map": {"AutoModel": "own.Model"}}, "a program of the model's own"),
        ({"position_embedding_type": "relative_key"}, "relative positions"),
    ],
)
def test_a_key_that_may_change_what_is_computed_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertineError, match=message):
        load_model(write(tmp_path / "m", tokenizer, **config))


# Weights


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "model.", "_orig_mod.module.", "base_model.model."]
)
def test_what_a_program_puts_before_all_names_is_taken_off(folder: Path, prefix: str) -> None:
    wanted = load_model(folder)
    put(folder, {f"{prefix}{name}": tensor for name, tensor in tensors(folder).items()})
    assert load_model(folder).model.fingerprint() == wanted.model.fingerprint()
    assert "unknown" not in " ".join(describe_model(folder))


def test_a_module_around_the_encoder_alone_is_refused(folder: Path) -> None:
    state = tensors(folder)
    put(folder, {f"model.{n}" if n.startswith("bert.") else n: t for n, t in state.items()})
    with pytest.raises(BertineError, match=r"begin with 'model\.', that of tensor classifier\."):
        load_model(folder)


@pytest.mark.parametrize("name", ["loss_fct.weight", "criterion.pos_weight", "loss.weight"])
def test_weights_of_a_loss_are_dropped_and_named(folder: Path, name: str) -> None:
    put(folder, tensors(folder) | {name: torch.ones(3)})
    assert "dropped: weights of the loss" in load_model(folder).report.lines()[0]


def test_the_advice_names_a_class_that_is_there(folder: Path) -> None:
    put(folder, tensors(folder) | {"lora_A.weight": torch.ones(3)})
    with pytest.raises(BertineError, match=r"lora_A\.weight; .* with transformers' BertModel$"):
        load_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_weights_that_are_not_finite_are_refused(folder: Path, value: float) -> None:
    state = tensors(folder)
    broken = state["bert.encoder.layer.1.output.dense.bias"].to(torch.float64)
    broken[3] = value  # the last is none in fp32
    put(folder, state | {"bert.encoder.layer.1.output.dense.bias": broken})
    with pytest.raises(BertineError, match=r"tensor encoder\.layer\.1\.output\.dense\.bias has a"):
        load_model(folder)


def test_a_sum_that_overflows_is_no_broken_weight(folder: Path) -> None:
    large = {"classifier.bias": torch.full((3,), 3e38)}
    put(folder, tensors(folder) | large)
    assert load_model(folder).report.dropped == []


def test_a_broken_head_that_is_dropped_does_not_matter(folder: Path) -> None:
    put(folder, tensors(folder) | {"classifier.bias": torch.full((3,), float("nan"))})
    assert load_model(folder, heads={}).report.notes == {"classifier": "3 labels"}


def test_old_weights_in_parts_are_read(folder: Path) -> None:
    wanted = load_model(folder).model.fingerprint()
    first, _ = as_shards(folder)
    assert load_model(folder).model.fingerprint() == wanted
    assert any("and 1 more" in line for line in describe_model(folder))
    (folder / first).unlink()
    with pytest.raises(BertineError, match=f"{first}: missing, but {SHARDS} lists it"):
        load_model(folder)
    (folder / SHARDS).write_text('{"weight_map": {"a": "../x.bin"}}')
    with pytest.raises(BertineError, match=f"{SHARDS}: lists no shards of this folder"):
        load_model(folder)


def test_weights_of_other_programs_are_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "tf_model.h5").write_bytes(b"x")
    with pytest.raises(BertineError, match=r"has adapter_model\.safetensors, tf_model\.h5, which"):
        load_model(folder)


@pytest.mark.parametrize(
    "name", ["model.safetensors", BIN, "config.json", "tokenizer.json", "vocab.txt"]
)
def test_a_pointer_of_git_lfs_is_told_from_the_file(folder: Path, name: str) -> None:
    for other in {BIN: ["model.safetensors"], "vocab.txt": ["tokenizer.json"]}.get(name, []):
        (folder / other).unlink()
    (folder / name).write_text(POINTER)
    with pytest.raises(BertineError, match=f"{name}: is a pointer of Git LFS, .*git lfs pull"):
        load_model(folder)


def test_a_text_about_git_lfs_is_no_pointer(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([POINTER]))
    assert read_json(file) == [POINTER]


# Vocabularies


@pytest.mark.parametrize(
    ("embeddings", "said"),
    [(57, ""), (64, "57 tokens, the model embeddings of 64"), (60, "ids from 57 on")],
)
def test_ids_without_a_token_are_said(
    tmp_path: Path,
    tokenizer: Tokenizer,
    capfd: pytest.CaptureFixture[str],
    embeddings: int,
    said: str,
) -> None:
    save_model(tmp_path / "m", Model(CONFIG.replace(vocab_size=embeddings), {}), tokenizer)
    load_model(tmp_path / "m")
    err = capfd.readouterr().err
    assert said in err
    assert ("warning" in err) == (embeddings == 64)
    assert bool(err) == (embeddings > len(VOCABULARY))


# Folders


def test_a_folder_of_the_hubs_cache_is_its_snapshot(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "models--acme--tiny"
    shutil.copytree(folder, cache / "snapshots" / "0a1b")
    wanted = load_model(folder).model.fingerprint()
    assert load_model(cache).model.fingerprint() == wanted  # the only one
    shutil.copytree(folder, cache / "snapshots" / "2c3d")
    with pytest.raises(BertineError, match=r"holds several snapshots .*snapshots/0a1b, .*2c3d"):
        load_model(cache)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("2c3d\n")
    (cache / "snapshots" / "0a1b" / "model.safetensors").unlink()
    assert load_model(cache).model.fingerprint() == wanted
    assert Tokenizer.load(cache).tokens == VOCABULARY
    # What lies beside the weights is found too.
    modules = [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}]
    pooling = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    snapshot = cache / "snapshots" / "2c3d"
    (snapshot / "modules.json").write_text(json.dumps([*modules, pooling]))
    (snapshot / "1_Pooling").mkdir()
    (snapshot / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert Embedder.load(cache, precision="fp32").pooling.modes == ("cls",)


def test_of_a_trainers_folder_the_best_checkpoint_is_read(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    shutil.copytree(folder, results / "checkpoint-500")
    load_model(results)
    assert "results: checkpoint-500 is read, the only one there" in capfd.readouterr().err
    shutil.copytree(folder, results / "checkpoint-1000")
    with pytest.raises(BertineError, match=r"holds checkpoint-500, checkpoint-1000, and .* names"):
        load_model(results)
    state = results / "checkpoint-1000" / "trainer_state.json"
    for best in (str(results / "checkpoint-500"), "runs\\\\checkpoint-500"):
        state.write_text(f'{{"best_model_checkpoint": "{best}", "log_history": [{{"l": NaN}}]}}')
        load_model(results)
    said = capfd.readouterr().err
    assert said.count("checkpoint-500 is read, the best one by checkpoint-1000/trainer_state") == 1
    state.write_text('{"best_model_checkpoint": null}')
    with pytest.raises(BertineError, match=r"give one of them, such as the last, .*1000"):
        load_model(results)


def test_a_folder_of_model_directories_names_them(folder: Path) -> None:
    with pytest.raises(BertineError, match=rf"give one of those in it: {folder}"):
        load_model(folder.parent)


# Answers


def test_outputs_that_are_not_finite_are_no_answer(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = classifier_model()
    with torch.no_grad():
        model.heads["classifier"].out.weight.fill_(3e38)
    save_model(tmp_path / "m", model, tokenizer, task=TaskInfo("text", ("a", "b", "c")))
    with pytest.raises(BertineError, match="outputs are NaN or infinite"):
        Predictor.load(tmp_path / "m", "cpu", "fp32", threads=1).predict(["a b"])
    bare = scrambled(Model(CONFIG, {}))
    with torch.no_grad():
        bare.backbone.layers[1].output_norm.weight.fill_(3e38)
    save_model(tmp_path / "bare", bare, tokenizer)
    with pytest.raises(BertineError, match="outputs are NaN or infinite"):
        Embedder.load(tmp_path / "bare", precision="fp32", threads=1).embed(["a b"])
    masked = pretraining_model()
    with torch.no_grad():
        masked.heads["mlm"].layer_norm.weight.fill_(3e38)
    save_model(tmp_path / "masked", masked, tokenizer)
    with pytest.raises(BertineError, match="outputs are NaN or infinite"):
        fill_mask(tmp_path / "masked", "a [MASK]")
