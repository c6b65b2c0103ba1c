"""Pre-training by guessing words in any order: exact resume, what it learns, what does nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import bertine
import processes
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.families.presets import preset
from bertine.models.family import config_to_huggingface
from training.test_kill import life
from training.test_next_tokens import check_learning, check_parts_of_a_batch

SETTINGS: dict[str, Any] = {
    "steps": 12,
    "batch_size": 4,
    "max_seq_length": 32,
    "learning_rate": 3e-3,
    "precision": "fp32",
    "log_every": 2,
    "checkpoint_every": 4,
}
EVERYTHING: dict[str, Any] = {
    "input_format": "full-sentences",
    "both_directions": True,
    "memory_length": 12,
    "permuted_length": 16,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a configuration."""
    folder = tmp_path_factory.mktemp("any-order")
    corpus = toys.write_corpus(folder / "corpus.txt")
    bertine.train_vocab(
        corpus, folder / "vocab", kind="unigram", special_tokens="xlnet", vocab_size=200
    )
    bertine.prepare(corpus, tokenizer=folder / "vocab", out=folder / "store")
    config = preset("xlnet-tiny", hidden_size=32, num_attention_heads=2, intermediate_size=64)
    config = config.replace(initializer_range=0.1)
    (folder / "config.json").write_text(json.dumps(config_to_huggingface(config)))
    return folder


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(home: Path, tmp_path: Path) -> None:
    """Killed while a checkpoint is written, with memory and both directions."""

    def arguments(out: Path) -> list[str]:
        given = {**SETTINGS, **EVERYTHING, "model": home / "config.json", "out": out}
        flags = [
            text
            for name, value in given.items()
            for text in (f"--{name.replace('_', '-')}", str(value))
        ]
        switch = flags.index("--both-directions")
        del flags[switch + 1]
        return ["pretrain", str(home / "store"), *flags, "--resume"]

    with toys.one_thread():
        assert main(arguments(tmp_path / "whole")) == 0
    process = processes.forked(life, arguments(tmp_path / "run"), 4)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "run" / "model").exists()
    with toys.one_thread():
        assert main(arguments(tmp_path / "run")) == 0
    assert toys.log(tmp_path / "run") == toys.log(tmp_path / "whole")
    assert toys.same_weights(tmp_path / "whole" / "model", tmp_path / "run" / "model")


@pytest.mark.slow
def test_it_learns_and_held_out_text_has_a_perplexity(home: Path, tmp_path: Path) -> None:
    given = SETTINGS | {"steps": 120, "batch_size": 16, "checkpoint_every": 120}
    given |= {"learning_rate": 1e-2}
    settings = check_learning(home, tmp_path / "run", "plm", "Permutation LM", given)
    assert (settings["input_format"], settings["longest_span"]) == ("segment-pair", 5)


@pytest.mark.slow
def test_evaluate_scores_as_the_run_did_along_the_way(home: Path, tmp_path: Path) -> None:
    """With the memory, directions and lengths of its own pre-training."""
    given = {**SETTINGS, **EVERYTHING, "held_out": home / "store", "evaluate_every": 12}
    bertine.pretrain(home / "store", out=tmp_path / "run", model=home / "config.json", **given)
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    scores = [line for line in map(json.loads, lines) if "eval_loss" in line]
    report = bertine.evaluate(tmp_path / "run", home / "store", precision="fp32")
    assert report.metrics["plm_loss"] == pytest.approx(scores[-1]["eval_plm_loss"], rel=1e-5)


@pytest.mark.slow
def test_gradients_in_parts_of_a_batch_are_those_of_the_whole(home: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {**SETTINGS, **EVERYTHING, "steps": 3, "dropout": 0.0}
    check_parts_of_a_batch(home, tmp_path, 64, given)


def test_what_does_nothing_or_does_not_go_together_is_said(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {**SETTINGS, "steps": 1, "model": home / "config.json"}
    bertine.pretrain(home / "store", out=tmp_path / "run", whole_word_mask=True, **given)
    assert "whole_word_mask: does nothing with objective plm" in capsys.readouterr().err
    for options, message in (
        ({"model": "bert-tiny", "objective": "plm"}, r"mlm-nsp or mlm or mlm-neighbours, not"),
        ({"objective": "mlm"}, r"xlnet is pre-trained with objective plm, not with mlm"),
        ({"input_format": "running-text"}, r"objective plm works on input_format segment-pair"),
        ({"initialization": "mimetic"}, r"mimetic"),
        ({"memory_length": 8}, r"memory_length=8 needs input_format='full-sentences'"),
        ({"predict_ratio": 1.0}, r"predict_ratio is 1, but must be between 0 and 1"),
        ({"longest_span": 0}, r"longest_span is 0, but must be"),
    ):
        with pytest.raises(BertineError, match=message):
            bertine.pretrain(home / "store", out=tmp_path / "other", **given | options)
