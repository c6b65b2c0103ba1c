"""Google's MobileBERT and its teacher open from their checkpoints. There is no run of the program
to compare with: the variables are written by the rule that it names them by, and the model is that
of which they are the weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertine.contrib.tensorflow.checkpoint import Checkpoint
from bertine.families.mobilebert import MobileBertConfig
from bertine.families.presets import preset
from bertine.hub.model_directory import load_model
from bertine.models.family import family_of
from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import SPECIAL_TOKENS

from . import bundles

WORDS = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(20))]
MODEL = "mobilebert-uncased"
#: Of the published configurations, what is said there besides the sizes.
SAID: dict[str, dict[str, Any]] = {
    MODEL: {
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "key_query_shared_bottleneck": True,
        "num_feedforward_networks": 4,
        "normalization_type": "no_norm",
        "classifier_activation": False,
    },
    "mobilebert-tiny": {
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "use_bottleneck_attention": True,
        "num_feedforward_networks": 2,
        "normalization_type": "no_norm",
        "classifier_activation": False,
    },
    "ib-bert-large": {"hidden_act": "gelu", "hidden_dropout_prob": 0.1},
}
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 12,
    "embedding_size": 6,
}


def variable(name: str, fake: bool) -> tuple[str, bool]:
    """What the program calls a tensor of transformers, and whether it is transposed there."""
    if name == "cls.predictions.dense.weight":
        return "cls/predictions/extra_output_weights", True
    if name == "cls.predictions.bias":
        return "cls/predictions/output_bias", False
    if name.startswith("cls.seq_relationship."):
        return f"cls/seq_relationship/output_{name[21:].replace('weight', 'weights')}", False
    if name.endswith("_embeddings.weight"):
        return f"bert/{name.removesuffix('.weight').replace('.', '/')}", False
    name, leaf = name.rsplit(".", 1)
    if name.endswith("LayerNorm"):
        name, leaf = name, {"weight": "gamma", "bias": "beta"}[leaf]
        if fake and not name.startswith("cls."):
            name = name.replace("LayerNorm", "FakeLayerNorm")
    name = re.sub(r"ffn\.(\d+)", r"ffn_layer_\1", re.sub(r"layer\.(\d+)", r"layer_\1", name))
    name = f"{name.replace('.', '/')}/{leaf.replace('weight', 'kernel')}"
    return (name if name.startswith("cls/") else f"bert/{name}"), leaf == "weight"


@pytest.mark.parametrize(("name", "pools"), [*((name, None) for name in SAID), (MODEL, True)])
def test_a_folder_of_googles_is_the_model(name: str, pools: bool | None, tmp_path: Path) -> None:
    inner = 24 if name.startswith("ib") else 8
    published = preset(name)
    assert isinstance(published, MobileBertConfig)
    config = published.replace(**SIZES, intra_bottleneck_size=inner)
    if pools is not None:
        config = config.replace(classifier_activation=pools)
    model = Model(config, new_head(config, "mlm") | new_head(config, "nsp")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    canonical = family_of("mobilebert").names.to_canonical(model.state_dict(), config)
    arrays = {}
    for tensor_name, tensor in canonical.items():
        google_name, transposed = variable(tensor_name, config.normalization_type == "no_norm")
        array = tensor.detach().numpy()
        arrays[google_name] = np.ascontiguousarray(array.T if transposed else array)
        arrays[f"{google_name}/adam_m"] = np.zeros_like(arrays[google_name])
    bundles.write_bundle(tmp_path / "bert_model.ckpt", arrays)
    said = {
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "type_vocab_size": 2,
        "trigram_input": True,
        "use_bottleneck": True,
        "intra_bottleneck_size": inner,
        **SAID[name],
    }
    if pools is not None:
        said["classifier_activation"] = pools
    (tmp_path / "bert_config.json").write_text(json.dumps({**SIZES, **said}))
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))

    assert Checkpoint.open(tmp_path).config == config
    loaded = load_model(tmp_path)
    assert set(loaded.model.heads) == {"mlm", "nsp"}
    ours, expected = loaded.model.state_dict(), model.state_dict()
    assert ours.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(ours[key], tensor), key
