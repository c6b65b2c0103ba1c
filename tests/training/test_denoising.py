"""Pre-training of an encoder and a decoder: exact resume, ``kill -9``, what it learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.families.presets import preset
from bertine.models.family import config_to_huggingface
from training.test_next_tokens import (
    check_learning,
    check_parts_of_a_batch,
    kill_at_a_checkpoint,
)

SETTINGS: dict[str, Any] = {
    "steps": 12,
    "batch_size": 4,
    "max_seq_length": 24,
    "learning_rate": 3e-3,
    "precision": "fp32",
    "log_every": 2,
    "checkpoint_every": 4,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a configuration."""
    folder = tmp_path_factory.mktemp("denoising")
    corpus = toys.write_corpus(folder / "corpus.txt")
    bertine.train_vocab(corpus, folder / "vocab", kind="byte-bpe", vocab_size=320)
    bertine.prepare(corpus, tokenizer=folder / "vocab", out=folder / "store")
    sizes = {"num_attention_heads": 2, "decoder_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "decoder_ffn_dim": 64}
    config = preset("bart-tiny", hidden_size=32, initializer_range=0.1, **sizes)
    (folder / "config.json").write_text(json.dumps(config_to_huggingface(config)))
    return folder


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(home: Path, tmp_path: Path) -> None:
    """With dropout, after ``kill -9``."""
    given: dict[str, Any] = {"model": home / "config.json", **SETTINGS, "steps": 60}
    bertine.pretrain(home / "store", out=tmp_path / "whole", **given)
    run = tmp_path / "parts"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    arguments = ["pretrain", str(home / "store"), "--out", str(run), *options]
    kill_at_a_checkpoint(arguments, run)
    bertine.pretrain(home / "store", out=run, resume=True, **given)
    assert toys.log(run) == toys.log(tmp_path / "whole")
    assert toys.same_weights(run / "model", tmp_path / "whole" / "model")


@pytest.mark.takes(5)
def test_it_learns_and_held_out_text_is_scored(home: Path, tmp_path: Path) -> None:
    given = SETTINGS | {"steps": 100, "checkpoint_every": 100, "dropout": 0.0}
    settings = check_learning(home, tmp_path / "run", "denoising", "Denoising", given)
    assert (settings["infill_share"], settings["permute_share"]) == (0.3, 1.0)


@pytest.mark.slow
def test_gradients_in_parts_of_a_batch_are_those_of_the_whole(home: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {**SETTINGS, "steps": 3, "dropout": 0.0, "checkpoint_every": 9}
    check_parts_of_a_batch(home, tmp_path, 48, given)


def test_what_does_not_go_together_is_said(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {**SETTINGS, "steps": 1, "model": home / "config.json"}
    bertine.pretrain(home / "store", out=tmp_path / "run", generator_size=0.5, **given)
    told = "generator_size: does nothing with objective denoising; it is for rtd"
    assert told in capsys.readouterr().err
    for options, message in (
        ({"objective": "mlm"}, r"bart is pre-trained with objective denoising, not with mlm"),
        ({"input_format": "segment-pair"}, r"denoising works on input_format full-sentences or"),
        ({"infill_share": 1.0}, r"infill_share"),
        ({"initialization": "mimetic"}, r"mimetic"),
    ):
        with pytest.raises(BertineError, match=message):
            bertine.pretrain(home / "store", out=tmp_path / "other", **given, **options)
