"""Tiny random models in model directories: a classifier, one of pairs, an MLM, a deeper one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import toys
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import save_model
from bertine.models.heads import MlmHead, Model, NspHead
from bertine.tasks.classification import TextClassification
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "ran", "good", "bad"]
WORDS += ["very", "film", "##s", "##ing", ".", ","]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab([*SPECIAL_TOKENS, *WORDS])


@pytest.fixture(scope="session")
def config(tokenizer: Tokenizer) -> BertConfig:
    # More rows than pieces, as in vocabularies padded to a round number; and weights large enough
    # that answers differ clearly.
    return BertConfig(
        vocab_size=tokenizer.vocab_size + 11,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        initializer_range=0.5,
    )


def _save(path: Path, config: BertConfig, tokenizer: Tokenizer, task: TextClassification) -> Path:
    torch.manual_seed(1)
    save_model(path, Model(config, task.heads(config)), tokenizer, task=task.task_info())
    return path


@pytest.fixture(scope="session")
def classifier(
    tmp_path_factory: pytest.TempPathFactory, config: BertConfig, tokenizer: Tokenizer
) -> Path:
    task = TextClassification(("fear", "joy", "love"), ("text",), "label", 24)
    return _save(tmp_path_factory.mktemp("models") / "single", config, tokenizer, task)


@pytest.fixture(scope="session")
def pair_classifier(
    tmp_path_factory: pytest.TempPathFactory, config: BertConfig, tokenizer: Tokenizer
) -> Path:
    task = TextClassification(("no", "yes"), ("premise", "hypothesis"), "label", 24)
    return _save(tmp_path_factory.mktemp("models") / "pair", config, tokenizer, task)


@pytest.fixture(scope="session")
def pretrained(
    tmp_path_factory: pytest.TempPathFactory, config: BertConfig, tokenizer: Tokenizer
) -> Path:
    torch.manual_seed(2)
    heads = {"mlm": MlmHead(config), "nsp": NspHead(config)}
    path = tmp_path_factory.mktemp("models") / "pretrained"
    save_model(path, Model(config, heads), tokenizer)
    return path


@pytest.fixture(scope="session")
def deep(
    tmp_path_factory: pytest.TempPathFactory, config: BertConfig, tokenizer: Tokenizer
) -> Path:
    """A pre-trained model of five layers."""
    torch.manual_seed(3)
    deeper = config.replace(num_hidden_layers=5, initializer_range=0.3)
    path = tmp_path_factory.mktemp("models") / "deep"
    save_model(path, Model(deeper, {"mlm": MlmHead(deeper)}), tokenizer)
    return path


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the toy language."""
    return toys.write_store(tmp_path_factory.mktemp("toys") / "store")
