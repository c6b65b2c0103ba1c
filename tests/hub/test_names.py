"""Names: both ways without loss, and every spelling that published files have."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import transformers

from bertine.core.errors import BertineError
from bertine.families.bert import FAMILY, BertConfig
from bertine.models.heads import ClassificationHead, MlmHead, Model, NspHead
from bertine.models.tensor_names import HeadNames

NAMES = FAMILY.names

CONFIG = BertConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
#: Classes of transformers without a pooler.
UNPOOLED = ("BertForMaskedLM", "BertForTokenClassification")


def their_state(name: str = "BertForPreTraining") -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    config = transformers.BertConfig(**CONFIG.to_dict(), num_labels=4)
    state = getattr(transformers, name)(config).state_dict()
    for key in ("cls.predictions.decoder.bias", "cls.predictions.bias"):
        if key in state:
            state[key] = torch.arange(31.0)
    return {key: tensor.clone() for key, tensor in state.items()}


def our_model() -> Model:
    return Model(
        CONFIG,
        {
            "mlm": MlmHead(CONFIG),
            "nsp": NspHead(CONFIG),
            "classifier": ClassificationHead(CONFIG, 4),
        },
    )


def from_huggingface(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return NAMES.from_canonical(NAMES.canonical_names(state), CONFIG)


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def test_ours_to_theirs_and_back_is_the_same() -> None:
    state = our_model().state_dict()
    assert_equal(from_huggingface(NAMES.to_huggingface(state, CONFIG)), state)


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("BertModel", {}),
        ("BertForPreTraining", {"mlm": MlmHead(CONFIG), "nsp": NspHead(CONFIG)}),
        ("BertForMaskedLM", {"mlm": MlmHead(CONFIG)}),
        ("BertForSequenceClassification", {"classifier": ClassificationHead(CONFIG, 4)}),
        ("BertForTokenClassification", {"token_classifier": ClassificationHead(CONFIG, 4)}),
    ],
)
def test_names_are_those_of_transformers_classes(
    name: str, heads: dict[str, torch.nn.Module]
) -> None:
    model = Model(CONFIG, heads, add_pooler=name not in UNPOOLED)
    theirs = {key: tensor.shape for key, tensor in their_state(name).items()}
    ours = NAMES.to_huggingface(model.state_dict(), CONFIG)
    untied = {key for key in theirs if not key.startswith("cls.predictions.decoder.")}
    assert ours.keys() == untied
    assert all(ours[key].shape == theirs[key] for key in ours)


def test_query_key_and_value_are_joined_in_this_order() -> None:
    theirs = their_state("BertModel")
    ours = from_huggingface(theirs)
    for kind in ("weight", "bias"):
        joined = ours[f"backbone.layers.1.attention.qkv.{kind}"]
        for i, part in enumerate(("query", "key", "value")):
            their = theirs[f"encoder.layer.1.attention.self.{part}.{kind}"]
            assert torch.equal(joined[12 * i : 12 * (i + 1)], their)


def test_prefix_gamma_beta_and_buffers_do_not_matter() -> None:
    theirs = their_state()
    plain = from_huggingface(theirs)
    old = {}
    for name, tensor in theirs.items():
        name = name.removeprefix("bert.")
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old[name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    old["embeddings.position_ids"] = torch.arange(16)[None]
    assert_equal(from_huggingface(old), plain)
    assert plain.keys() == our_model().state_dict().keys() - {
        "heads.classifier.out.weight",
        "heads.classifier.out.bias",
    }


def test_a_tied_decoder_is_used_where_the_original_is_not_saved() -> None:
    theirs = their_state()
    plain = from_huggingface(theirs)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        del theirs[name]
    assert_equal(from_huggingface(theirs), plain)


def test_an_untied_decoder_and_unknown_names_are_kept_in_sight() -> None:
    theirs = their_state()
    theirs["cls.predictions.decoder.weight"] += 1
    theirs["adapter.weight"] = torch.zeros(3)
    theirs["embeddings.position_ids"] = torch.arange(16).flip(0)
    rest = from_huggingface(theirs).keys() - our_model().state_dict().keys()
    assert rest == {
        "cls.predictions.decoder.weight",
        "adapter.weight",
        "embeddings.position_ids",
    }


def test_a_key_without_its_query_is_an_error() -> None:
    theirs = their_state()
    del theirs["bert.encoder.layer.1.attention.self.query.weight"]
    with pytest.raises(BertineError, match=r"encoder\.layer\.1\.attention\.self\.query\.weight"):
        from_huggingface(theirs)


def test_one_name_twice_is_an_error() -> None:
    theirs = their_state()
    theirs["pooler.dense.bias"] = torch.zeros(12)
    with pytest.raises(BertineError, match=r"pooler\.dense\.bias is there twice"):
        from_huggingface(theirs)


def test_heads_whose_modules_stand_beside_the_backbone() -> None:
    parts = (("dense", "pre_classifier"), ("out", "classifier"))
    names = dataclasses.replace(
        NAMES,
        heads={
            "classifier": HeadNames("", parts),
            "choice": HeadNames("choice_classifier", parts, published=""),
        },
    )
    state = {
        f"{part}.{kind}": torch.zeros(1)
        for part in ("bert.pooler.dense", "pre_classifier", "classifier")
        for kind in ("weight", "bias")
    }
    for head, begin in (("classifier", ""), ("choice", "choice_classifier.")):
        canonical = names.canonical_names(state, head)
        assert f"{begin}pre_classifier.weight" in canonical
        parted = [names.part_of(name) for name in canonical]
        assert sorted(set(parted)) == sorted(("pooler", head))
        assert names.heads[head].output() == f"{begin}classifier"
        ours = names.from_canonical(canonical, CONFIG)
        assert {f"heads.{head}.dense.weight", f"heads.{head}.out.bias"} <= ours.keys()
        assert names.to_huggingface(ours, CONFIG).keys() == state.keys()


def test_what_transformers_has_no_name_for_is_refused() -> None:
    with pytest.raises(ValueError, match="no counterpart"):
        NAMES.to_canonical({"heads.chess.out.weight": torch.zeros(2, 2)}, CONFIG)
