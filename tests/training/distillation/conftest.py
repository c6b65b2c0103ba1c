"""A model, and a teacher that was trained on labelled examples of the toy language, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

import bertine
import toys


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers that see words from the first step on."""
    return toys.write_model(
        tmp_path_factory.mktemp("base") / "model",
        num_hidden_layers=4,
        initializer_range=0.2,
        max_position_embeddings=64,
    )


@pytest.fixture(scope="session")
def teacher(base: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuned, and right about nearly everything."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    with toys.one_thread():
        learner = bertine.finetune(
            "text",
            model=base,
            data=labelled,
            out=out,
            epochs=4,
            learning_rate=2e-3,
            max_length=24,
            precision="fp32",
            baselines=False,
        )
    assert learner.metrics["accuracy"] > 0.95
    return out
