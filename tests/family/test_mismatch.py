"""A folder with files of two families is refused in one line that says what they are."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from bertine.core.errors import BertineError
from bertine.hub.model_directory import save_model
from bertine.models.family import check_same_family, config_to_huggingface, read_config
from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

from .variants import VARIANTS, Variant

PAIRS = [
    (one, other)
    for one, other in itertools.permutations(VARIANTS.values(), 2)
    # XLM-RoBERTa and CamemBERT are RoBERTas under other names.
    if one.family.names.prefix != other.family.names.prefix
]


def _file_names(variant: Variant, *, heads: bool) -> list[str]:
    config = variant.tiny(0)
    with torch.device("meta"):
        model = Model(config, new_head(config, some_head(variant), 2) if heads else {})
    return list(variant.family.names.to_huggingface(model.state_dict(), config))


def some_head(variant: Variant) -> str:
    """A head that its models have."""
    return "spans" if "spans" in variant.family.heads else "classifier"


@pytest.mark.fast_cases(one=(VARIANTS["bert"],))
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda v: v.model_type)
def test_weights_of_another_family_are_named(one: Variant, other: Variant) -> None:
    with pytest.raises(BertineError) as refused:
        check_same_family(Path("w.safetensors"), _file_names(one, heads=True), other.family)
    message = str(refused.value)
    assert message.startswith("w.safetensors: has the weights of a ")
    assert one.family.config.title in message
    assert f"config.json is {other.model_type};" in message


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda v: v.model_type)
@pytest.mark.parametrize("heads", [False, True])
def test_weights_of_the_family_itself_pass(variant: Variant, heads: bool) -> None:
    check_same_family(Path("w"), _file_names(variant, heads=heads), variant.family)


@pytest.mark.fast_cases(one=(VARIANTS["bert"],))
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda v: v.model_type)
def test_a_wrong_model_type_is_refused(one: Variant, other: Variant, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    values = config_to_huggingface(one.tiny(0), heads=[some_head(one)])
    path.write_text(json.dumps(values))
    assert read_config(path).config.model_type == one.model_type
    path.write_text(json.dumps(values | {"model_type": other.model_type}))
    with pytest.raises(BertineError, match=r"config.json: architectures names .*, but model_type"):
        read_config(path)


def test_a_tokenizer_with_another_padding_is_refused_where_positions_skip_it(
    tmp_path: Path,
) -> None:
    config = VARIANTS["roberta"].tiny(0).replace(pad_token_id=1)
    letters = Tokenizer.from_vocab([*SPECIAL_TOKENS, *"abcdefgh"])
    with pytest.raises(BertineError, match=r"padding has the id 0, but pad_token_id .* is 1"):
        save_model(tmp_path / "model", Model(config, {}), letters)
    bert = VARIANTS["bert"].tiny(0).replace(pad_token_id=1)
    save_model(tmp_path / "model", Model(bert, {}), letters)  # there it is masked, wherever it is
