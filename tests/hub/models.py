"""Tiny models of random weights, and what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertine.families.bert import BertConfig
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.models.heads import ClassificationHead, MlmHead, Model, NspHead

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=32,
)
IDS = torch.tensor([[2, 9, 40, 4, 3, 12, 3], [2, 30, 3, 31, 3, 0, 0]])
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0]])
THEIRS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}


def scrambled(model: torch.nn.Module, seed: int = 0) -> Any:
    """Random values in all parameters, so that none equals its initial value."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2, generator=draw)
    return model.eval()


def pretraining_model() -> Model:
    return scrambled(Model(CONFIG, {"mlm": MlmHead(CONFIG), "nsp": NspHead(CONFIG)}))


def classifier_model(labels: int = 3) -> Model:
    return scrambled(Model(CONFIG, {"classifier": ClassificationHead(CONFIG, labels)}))


def backbone(model: Model) -> tuple[Tensor, Tensor]:
    output = model.backbone(IDS, MASK, SEGMENTS)
    assert output.pooler_output is not None
    return output.last_hidden_state, output.pooler_output


def mlm(model: Model) -> Tensor:
    return model.heads["mlm"](backbone(model)[0], model.backbone.embeddings.word_embeddings.weight)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def fine_tune_start(folder: Path, seed: int, labels: int = 4, **options: Any) -> LoadedModel:
    heads = {"classifier": ClassificationHead(CONFIG, labels)}
    return load_model(folder, heads=heads, seed=seed, **options)
