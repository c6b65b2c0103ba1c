"""A sound model directory, of which odd ones are made, and transformers, which is silenced."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bertine.hub.model_directory import save_model
from bertine.models.family import family_of
from bertine.models.heads import Model, new_head
from bertine.tokenization.tokenizer import Tokenizer

WORDS = (
    *("the", "cat", "a", "caf", "##e", "##é", "café", "cafe", "The", "Cat", "É", "e"),
    *("é", "s", "##s", "新", "冠", "##冠", ".", ",", "-", "'", "covid", "##19", "19", "["),
    *("]", "##.", "i", "I", "ß", "ss", "o", "##n", "n", "x", "##x", "E", "1", "/"),
)
TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
TEXTS = (
    "The cat's café, the CAFÉ.",
    "新冠 a新b the-cat",
    "covid19 COVID19 [E1]the[/E1]",
    "[MASK] cat [SEP] x",
    "cafe\u0301 İ ß",
    "the  cat\tx\nn",
    "<s>the</s> [CLS]",
    "mycovidx covid",
    "",
)
SIZES: dict[str, Any] = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 32,
}
#: By the types of models that have WordPiece: what their sizes are besides.
TYPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "distilbert": {},
    "electra": {"embedding_size": 8},
    "mobilebert": {"embedding_size": 4, "intra_bottleneck_size": 6, "num_feedforward_networks": 2},
}
IDS = torch.tensor([[2, 9, 20, 4, 3], [2, 30, 3, 31, 3]])
_HOME = tempfile.TemporaryDirectory(prefix="odd-models-")


@functools.cache
def sound(model_type: str = "bert") -> Path:
    """Write a classifier of three labels as transformers has it, once for all cases."""
    folder = Path(_HOME.name) / model_type
    kind = family_of(model_type).config
    config = kind(vocab_size=len(TOKENS), **SIZES, **TYPES[model_type])
    torch.manual_seed(0)
    model = Model(config, new_head(config, "classifier", 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    save_model(folder, model.eval(), Tokenizer.from_vocab(TOKENS, lowercase=False))
    return folder


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Within it transformers says nothing."""
    with (
        warnings.catch_warnings(),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
