"""What a user makes first: a vocabulary, a store and a pre-trained model, of every variant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import toys
from bertine.cli import main
from bertine.models.family import config_to_huggingface

from .variants import VARIANTS, Variant

#: Tokens of the longest input.
LENGTH = 64
#: Runs a command of ``bertine``; what it prints as its result.
Run = Callable[..., str]
#: Makes a folder once for all workers.
Once = Callable[[str, Callable[[Path], object]], Path]


def bertine(*arguments: object) -> None:
    """Run a command."""
    assert main([str(argument) for argument in arguments]) == 0


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object) -> str:
        capsys.readouterr()
        bertine(*arguments)
        return capsys.readouterr().out

    return command


@dataclass(frozen=True)
class Home:
    """What a variant's tests begin with."""

    variant: Variant
    folder: Path

    @property
    def pretrained(self) -> Path:
        return self.folder / "run" / "model"

    @property
    def masked_lm(self) -> Path:
        """The model that fills masks."""
        return self.folder / "run" / self.variant.fills_masks


@pytest.fixture(scope="session", params=VARIANTS)
def home(request: pytest.FixtureRequest, once: Once) -> Home:
    """Make a vocabulary of the variant's kind, a store, and a pre-trained model."""
    variant = VARIANTS[request.param]
    return Home(variant, once(variant.model_type, lambda folder: pretrain(variant, folder)))


def pretrain(variant: Variant, folder: Path) -> None:
    """Fill `folder` as :class:`Home` says."""
    corpus = toys.write_corpus(folder / "corpus.txt")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": LENGTH + 2,
        "initializer_range": 0.2,
    }
    config = variant.family.presets[variant.preset].replace(**(sizes | variant.small))
    (folder / "config.json").write_text(json.dumps(config_to_huggingface(config)))
    with toys.one_thread():
        bertine(
            *("vocab", corpus, "--kind", variant.family.tokenizer, "--vocab-size", 320),
            *("--out", folder / "vocab", *variant.vocab),
        )
        bertine("prepare", corpus, "--tokenizer", folder / "vocab", "--out", folder / "store")
        bertine(
            *("pretrain", folder / "store", "--model", folder / "config.json"),
            *("--out", folder / "run", "--steps", 6, "--batch-size", 8, "--max-seq-length", 48),
            *("--learning-rate", 1e-3, "--precision", "fp32", *variant.pretrain),
        )
