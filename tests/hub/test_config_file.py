"""config.json: what transformers writes is read, what we write it reads, the rest is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertine.core.errors import BertineError
from bertine.families.bert import FAMILY, BertConfig
from bertine.models.family import config_to_huggingface, read_config
from bertine.models.layers import activation

SIZES = {
    "model_type": "bert",
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
}


def write(folder: Path, values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


def test_what_transformers_writes_is_read(tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=31,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        hidden_act="relu",
        hidden_dropout_prob=0.25,
        classifier_dropout=0.5,
        type_vocab_size=3,
        layer_norm_eps=1e-5,
        pad_token_id=4,
    )
    other = transformers.BertConfig(**config.to_dict(), id2label={0: "no", 1: "yes", 2: "maybe"})
    other.architectures = ["BertForSequenceClassification"]
    other.save_pretrained(tmp_path)
    found = read_config(tmp_path / "config.json")
    assert found.config == config
    assert found.architecture == "BertForSequenceClassification"
    assert found.labels == ("no", "yes", "maybe")


@pytest.mark.parametrize(
    ("name", "same"),
    [("gelu_python", "gelu"), ("swish", "silu"), ("gelu_fast", "gelu_new"), ("gelu_new",) * 2],
)
def test_an_activation_of_another_name_computes_the_same(
    tmp_path: Path, name: str, same: str
) -> None:
    config = read_config(write(tmp_path, {**SIZES, "hidden_act": name})).config
    assert config.hidden_act == same
    numbers = torch.linspace(-5, 5, 99)
    theirs = transformers.activations.ACT2FN[name](numbers)
    torch.testing.assert_close(activation(same)(numbers), theirs)


def test_every_key_that_transformers_ever_gives_a_bert_is_known(tmp_path: Path) -> None:
    # to_dict has all keys, the ones at their defaults included.
    values = json.loads(transformers.BertConfig().to_json_string(use_diff=False))
    assert read_config(write(tmp_path, values)).config == BertConfig()


def test_ours_is_what_transformers_would_write(tmp_path: Path) -> None:
    config = BertConfig(**{k: v for k, v in SIZES.items() if k != "model_type"})
    values = config_to_huggingface(config, heads=("classifier",), labels=("good", "bad"))
    write(tmp_path, values)
    other = transformers.AutoConfig.from_pretrained(tmp_path)
    assert isinstance(other, transformers.BertConfig)
    assert other.id2label == {0: "good", 1: "bad"}
    assert other.problem_type == "single_label_classification"
    again = json.loads(other.to_json_string())
    again.pop("transformers_version")
    assert {key: values.get(key) for key in again} == again


@pytest.mark.parametrize(
    ("heads", "name"),
    [
        ((), "BertModel"),
        (("mlm", "nsp"), "BertForPreTraining"),
        (("mlm",), "BertForMaskedLM"),
        (("nsp",), "BertForNextSentencePrediction"),
        (("classifier",), "BertForSequenceClassification"),
        (("spans",), "BertForQuestionAnswering"),
    ],
)
def test_architecture_says_the_class_with_these_heads(heads: tuple[str, ...], name: str) -> None:
    assert config_to_huggingface(BertConfig(), heads=heads)["architectures"] == [name]
    assert hasattr(transformers, name)


def test_an_old_file_with_settings_of_other_things_is_read(tmp_path: Path) -> None:
    old = SIZES | {
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_type": "first_token_transform",
        "gradient_checkpointing": False,
        "position_embedding_type": "absolute",
        "transformers_version": "4.8.2",
        "torch_dtype": "float16",
        "num_beams": 1,
        "pruned_heads": {},
        "pad_token_id": None,
        "hidden_dropout_prob": 0,
    }
    config = read_config(write(tmp_path, old)).config
    assert config.pad_token_id == 0
    assert config.hidden_dropout_prob == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "t5"}, "'t5', another architecture"),
        ({"model_type": ["bert"]}, r"\['bert'\], another architecture"),
        ({"model_type": None}, "has no model_type"),
        ({"hidden_sise": 24}, "unknown key 'hidden_sise'; did you mean 'hidden_size'"),
        ({"position_embedding_type": "relative_key"}, "relative positions"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"quantization_config": {"bits": 8}}, "quantized"),
        ({"hidden_act": "mish"}, "hidden_act 'mish'"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"hidden_size": "12"}, "hidden_size is '12'"),
        ({"hidden_size": 12.5}, "hidden_size is 12.5"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": ["a"]}, "id2label"),
    ],
)
def test_what_we_would_compute_wrongly_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    # A None stands for a key that is not there.
    values = {k: v for k, v in (SIZES | changes).items() if v is not None}
    path = write(tmp_path, values)
    with pytest.raises(BertineError, match=message) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


RENAMED = dataclasses.replace(
    FAMILY.keys,
    renamed={"hidden_size": "dim", "num_attention_heads": "n_heads", "hidden_act": "activation"},
    absent=frozenset({"layer_norm_eps"}),
    required=("dim",),
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dim": 10, "n_heads": 3}, "dim 10 is not a multiple of n_heads 3$"),
        ({"dim": 12, "activation": "mish"}, "activation 'mish' is not supported"),
        ({"dim": "12"}, "dim is '12'"),
        ({"hidden_size": 12}, "unknown key 'hidden_size'; did you mean 'dim'"),
        ({"dim": 12, "layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05 .*only 1e-12 can be loaded"),
        ({"n_heads": 3}, "has no dim"),
    ],
)
def test_messages_have_the_names_of_the_file(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        RENAMED.read(Path("config.json"), values, BertConfig)


def test_a_value_that_a_file_has_no_key_for_is_not_lost() -> None:
    written = RENAMED.write(BertConfig())
    assert written["dim"] == 768
    assert not {"hidden_size", "layer_norm_eps"} & written.keys()
    with pytest.raises(ValueError, match="no key for layer_norm_eps"):
        RENAMED.write(BertConfig(layer_norm_eps=1e-5))
