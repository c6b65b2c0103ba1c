"""DeBERTa's relative positions are those of the published code; what has no class in transformers
to compare with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from bertine.core.errors import BertineError
from bertine.families.deberta import DisentangledAttention, RelativePositions, bucket
from bertine.families.presets import preset
from bertine.families.xlnet_layers import by_pairs
from bertine.hub.model_directory import load_model, save_model
from bertine.models.dropout import stream
from bertine.models.family import config_to_huggingface, family_of, read_config
from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from family.parity import close, inputs, random_batch
from family.variants import VARIANTS, scramble

DEBERTA = VARIANTS["deberta-v2"]


@pytest.mark.parametrize(
    ("buckets", "longest", "length"), [(256, 512, 512), (256, 512, 3), (32, 1024, 700), (-1, 40, 9)]
)
def test_buckets_are_those_of_the_published_code(buckets: int, longest: int, length: int) -> None:
    tokens = torch.empty(1, length, 4)
    expected = build_relative_position(tokens, tokens, buckets, longest)[0]
    places = torch.arange(length)
    assert torch.equal(bucket(places[:, None] - places[None, :], buckets, longest), expected)


def test_near_positions_have_a_row_each_and_far_ones_share() -> None:
    """256 rows to either side for 512 tokens: the published models'."""
    offsets = bucket(torch.arange(512), 256, 512)
    assert torch.equal(offsets[:129], torch.arange(129))
    assert int(offsets[-1]) == 255
    assert len(offsets.unique()) == 256


@pytest.mark.parametrize("length", [1, 2, 7])
def test_scores_of_offsets_are_put_where_their_pairs_are(length: int) -> None:
    scores = torch.randn(2, 3, length, 2 * length - 1, requires_grad=True)
    moved = by_pairs(scores, scores.shape[-2])
    for i in range(length):
        for j in range(length):
            assert torch.equal(moved[..., i, j], scores[..., i, length - 1 - (i - j)])
    moved.sum().backward()
    assert scores.grad is not None
    assert float(scores.grad.sum()) == 6 * length**2


def test_only_the_rows_that_a_length_needs_are_used() -> None:
    positions = RelativePositions.of(5, 256, 256, 512)
    assert (positions.first, positions.count) == (252, 9)
    assert positions.falling.tolist() == list(range(8, -1, -1))


@pytest.mark.parametrize("seed", [0, 1])
def test_attention_maps_are_transformers(seed: int) -> None:
    config = DEBERTA.tiny(seed)
    model = Model(config, {}).eval()
    scramble(model, seed)
    batch = random_batch(config, seed)
    theirs = DEBERTA.twin(model)(**inputs(batch, config), output_attentions=True)
    encoded = model.encode(batch, all_states=True)
    assert encoded.hidden_states is not None
    real = batch.attention_mask
    for layer, expected in enumerate(theirs.attentions):
        scores = model.backbone.attention_scores(layer, encoded.hidden_states[layer])
        ours = scores.masked_fill(~real[:, None, None, :], -math.inf).softmax(-1)
        close(ours.transpose(1, 2)[real], expected.transpose(1, 2)[real], f"attention {layer}")


def test_a_graph_computes_the_same_by_another_way() -> None:
    config = DEBERTA.tiny(1)
    model = Model(config, {}).eval()
    scramble(model, 1)
    batch = random_batch(config, 1)
    ids, mask = batch.input_ids, batch.attention_mask
    traced = model.backbone.traced(ids, mask, None).last_hidden_state
    close(traced[mask], model.encode(batch).last_hidden_state[mask], "states")


def test_dropout_follows_the_seed_and_leaves_the_mean() -> None:
    config = DEBERTA.tiny(0).replace(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    model = Model(config, {}).train()
    scramble(model, 0)
    batch = random_batch(config, 0)
    states = []
    for seed in (0, 0, 1):
        stream.seed(seed, 1)
        states.append(model.encode(batch).last_hidden_state[batch.attention_mask])
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    attention = model.backbone.layers[0].attention
    assert isinstance(attention, DisentangledAttention)
    assert attention.position_dropout.p == attention.probability_dropout.p == 0.2


def test_both_names_of_the_head_that_fills_masks_are_read() -> None:
    """transformers' class has two by ``legacy``; they compute the same."""
    import transformers

    config = DEBERTA.tiny(0)
    names = family_of("deberta-v2").names
    values = config_to_huggingface(config, heads=["mlm"])
    for key in ("architectures", "model_type", "dtype"):
        values.pop(key)
    batch = random_batch(config, 0)
    for legacy in (True, False):
        other = transformers.DebertaV2ForMaskedLM(
            transformers.DebertaV2Config(**{**values, "legacy": legacy})
        ).eval()
        scramble(other, 3)
        model = Model(config, new_head(config, "mlm")).eval()
        state = names.from_canonical(names.canonical_names(other.state_dict()), config)
        model.load_state_dict(state)
        places = batch.attention_mask.flatten().nonzero()[:, 0]
        with torch.no_grad():
            ours = model.read("mlm", model.encode(batch), places=places)
            theirs = other(**inputs(batch, config)).logits.flatten(0, 1)[places]
        close(ours, theirs, f"legacy {legacy}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conv_kernel_size": 3}, r"conv_kernel_size is 3 \(DeBERTa-v2's convolution\)"),
        ({"share_att_key": False}, "share_att_key is False"),
        ({"pos_att_type": ["c2p"]}, r"pos_att_type is \['c2p'\]"),
        ({"position_buckets": 1}, "position_buckets is 1, but must be at least 2"),
        ({"type_vocab_size": 2}, "DeBERTa has no token types"),
        ({"pooler_hidden_act": "sine"}, "pooler_hidden_act is 'sine'"),
    ],
)
def test_other_networks_are_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    values = config_to_huggingface(DEBERTA.tiny(0))
    path.write_text(json.dumps(values | fields))
    with pytest.raises(BertineError, match=message):
        read_config(path)
    del values["relative_attention"]
    path.write_text(json.dumps(values))
    with pytest.raises(BertineError, match="has no relative_attention"):
        read_config(path)


def test_the_published_file_is_read(tmp_path: Path) -> None:
    """The keys of deberta-v3-base's."""
    path = tmp_path / "config.json"
    published = {
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "layer_norm_eps": 1e-7,
        "max_relative_positions": -1,
        "position_biased_input": False,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 0,
        "vocab_size": 128100,
    }
    path.write_text(json.dumps(published))
    assert read_config(path).config == preset("deberta-v3-base")


def test_what_published_files_hold_besides_is_dropped_and_said(
    tmp_path: Path,
) -> None:
    """The head that tells replaced tokens, and absolute positions that nothing reads."""
    words = Tokenizer.from_vocab([*SPECIAL_TOKENS, *"abcdefgh"])
    config = DEBERTA.tiny(0).replace(vocab_size=words.vocab_size, pad_token_id=0)
    save_model(tmp_path, Model(config, new_head(config, "mlm")), words)
    file = tmp_path / "model.safetensors"
    width = config.hidden_size
    more = {
        "mask_predictions.dense.weight": torch.zeros(width, width),
        "mask_predictions.classifier.bias": torch.zeros(1),
        "deberta.embeddings.position_embeddings.weight": torch.zeros(8, width),
    }
    save_file(load_file(file) | more, file)
    loaded = load_model(tmp_path)
    assert len(loaded.report.dropped) == 3
    (line,) = loaded.report.lines()
    assert line.endswith("; dropped: replaced-token head, absolute positions")
