"""config.json of ModernBERT: older versions, as transformers 5 writes it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.families.modernbert_layers import GLOBAL, LOCAL, ModernBertConfig
from bertine.families.presets import preset
from bertine.hub.model_directory import load_model, save_model
from bertine.models.family import config_to_huggingface, read_config
from bertine.models.heads import Model, new_head

transformers = pytest.importorskip("transformers")

#: What the published files say, as of transformers 4.48 (ModernBERT-base).
PUBLISHED: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "reference_compile": True,
    "repad_logits_with_grad": False,
    "sep_token_id": 50282,
    "sparse_pred_ignore_index": -100,
    "sparse_prediction": False,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}


def read(folder: Path, values: dict[str, Any]) -> ModernBertConfig:
    (folder / "config.json").write_text(json.dumps(values))
    config = read_config(folder / "config.json").config
    assert isinstance(config, ModernBertConfig)
    return config


def test_the_published_file_is_the_preset(tmp_path: Path) -> None:
    assert read(tmp_path, PUBLISHED) == preset("modernbert-base")


def test_keys_that_lack_have_the_values_of_transformers(tmp_path: Path) -> None:
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    values = {name: PUBLISHED[name] for name in (*sizes, "intermediate_size", "model_type")}
    ours = read(tmp_path, values)
    theirs = transformers.ModernBertConfig(**values)
    theirs.save_pretrained(tmp_path)
    assert read_config(tmp_path / "config.json").config == ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"global_attn_every_n_layers": 2, "num_hidden_layers": 5, "local_attention": 32},
        {"layer_types": (LOCAL, GLOBAL, GLOBAL), "num_hidden_layers": 3},
        {"global_rope_theta": 777.0, "local_rope_theta": 33.0, "classifier_pooling": "cls"},
        {"embedding_dropout": 0.1, "hidden_dropout_prob": 0.2, "classifier_dropout": 0.3},
    ],
)
def test_both_ways_with_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    ours = preset("modernbert-base", **changes)
    values = config_to_huggingface(ours)
    assert read(tmp_path, values) == ours
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert theirs.layer_types == list(ours.kinds)
    assert theirs.rope_parameters["full_attention"]["rope_theta"] == ours.global_rope_theta
    assert theirs.rope_parameters["sliding_attention"]["rope_theta"] == ours.local_rope_theta
    assert theirs.sliding_window == ours.local_attention // 2
    assert theirs.mlp_dropout == ours.hidden_dropout_prob
    assert theirs.norm_eps == ours.layer_norm_eps
    theirs.save_pretrained(tmp_path)
    assert read_config(tmp_path / "config.json").config == ours


def test_a_part_of_a_models_layers_keeps_their_kinds(tmp_path: Path) -> None:
    types = [LOCAL, GLOBAL, GLOBAL, LOCAL]
    config = read(tmp_path, {**PUBLISHED, "num_hidden_layers": 4, "layer_types": types})
    assert config.replace(num_hidden_layers=2).kinds == (LOCAL, GLOBAL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": [LOCAL]}, "layer_types has 1 layers, but num_hidden_layers is 22"),
        ({"layer_types": ["chunked_attention"] * 22}, "layer_types has 'chunked_attention'"),
        ({"layer_types": 3}, "layer_types is 3, but must be of type"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "scaled positions"),
        ({"rope_parameters": [1]}, "rope_parameters is .* but must be an object of"),
        (
            {"rope_parameters": {GLOBAL: {"rope_type": "yarn", "factor": 4.0}}},
            "rope_type in rope_parameters is 'yarn' .scaled positions.",
        ),
        ({"rope_parameters": {GLOBAL: {"rope_theta": "x"}}}, "global_rope_theta is 'x'"),
        ({"rope_parameters": {GLOBAL: {"rope_theta": 0.0}}}, "must be at least 1"),
        ({"attention_bias": 1}, "attention_bias is 1, but must be of type bool"),
        ({"hidden_activation": "mish"}, "hidden_activation 'mish' is not supported"),
        ({"classifier_activation": "swish"}, "classifier_activation 'swish' is not supported"),
        ({"local_atention": 64}, "unknown key 'local_atention'; did you mean 'local_attention'"),
        ({"num_attention_heads": 256}, "is 3, but rotary positions need an even number"),
        ({"mlp_dropout": 1.0}, r"mlp_dropout is 1.0, but must be in \[0, 1\)"),
    ],
)
def test_what_it_does_not_compute_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertineError, match=message) as error:
        read(tmp_path, {**PUBLISHED, **changes})
    assert str(error.value).startswith(str(tmp_path / "config.json"))
    assert "\n" not in str(error.value)


def test_a_new_classifier_begins_as_that_of_transformers(tmp_path: Path) -> None:
    """With the dense layer and the norm of the head that filled masks."""
    torch.manual_seed(0)
    tokenizer = toys.tokenizer()
    config = preset(
        "modernbert-base",
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        pad_token_id=0,
    )
    model = Model(config, new_head(config, "mlm"))
    torch.nn.init.normal_(model.heads["mlm"].layer_norm.weight)
    save_model(tmp_path, model, tokenizer)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    loaded = load_model(tmp_path, heads=new_head(config, "classifier", 2))
    head = loaded.model.heads["classifier"]
    assert torch.equal(head.dense.weight, theirs.head.dense.weight)
    assert torch.equal(head.layer_norm.weight, theirs.head.norm.weight)
    assert head.out.weight.std() > 0
    (line,) = loaded.report.lines()
    assert "new (random): classifier" in line
    assert "new, with weights from another head: classifier" in line
