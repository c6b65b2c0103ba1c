"""Pre-training by the next token: batches, exact resume, what it learns, what does nothing."""

from __future__ import annotations

import json
import math
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine
import processes
import toys
from bertine.core.errors import BertineError
from bertine.corpora.collators import CausalLMCollator
from bertine.corpora.pretraining_data import PretrainingData
from bertine.corpora.store import TokenStore
from bertine.families.presets import preset
from bertine.models.family import config_to_huggingface
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training import fit

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
    folder = tmp_path_factory.mktemp("next-tokens")
    corpus = toys.write_corpus(folder / "corpus.txt")
    bertine.train_vocab(corpus, folder / "vocab", kind="word-bpe", vocab_size=200)
    bertine.prepare(corpus, tokenizer=folder / "vocab", out=folder / "store")
    config = preset("gpt-tiny", hidden_size=32, num_attention_heads=2, intermediate_size=128)
    (folder / "config.json").write_text(json.dumps(config_to_huggingface(config)))
    return folder


def check_parts_of_a_batch(home: Path, folder: Path, tokens: int, given: dict[str, Any]) -> None:
    """The weights after micro-batches of at most `tokens` are those after whole batches."""
    for room in (1000, tokens):
        bertine.pretrain(
            home / "store",
            out=folder / str(room),
            model=home / "config.json",
            max_tokens_per_micro_batch=room,
            **given,
        )
    one, two = (toys.weights(folder / str(room) / "model") for room in (1000, tokens))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-5)


def check_learning(home: Path, run: Path, term: str, title: str, given: dict[str, Any]) -> Any:
    """Train, score held-out text by `term`, and return the run's settings: it uses what it sees."""
    result = bertine.pretrain(home / "store", out=run, model=home / "config.json", **given)
    assert any(line.startswith(f"{title} loss") for line in result.lines())
    metrics = bertine.evaluate(run, home / "store", precision="fp32").metrics
    assert metrics[f"{term}_loss"] < TokenStore.open(home / "store").unigram_entropy - 0.5
    assert metrics[f"{term}_perplexity"] == pytest.approx(math.exp(metrics[f"{term}_loss"]))
    settings = json.loads((run / "run.json").read_text())["settings"]
    assert settings["objective"] == term
    return settings


def kill_at_a_checkpoint(arguments: list[str], run: Path) -> None:
    """Start a command of the line, and kill it as soon as there is a checkpoint."""
    process = processes.forked(processes.bertine, arguments)
    try:
        deadline = time.monotonic() + 60
        while not list((run / "checkpoints").glob("step-*")):
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (run / "model").exists()


def test_each_token_is_the_target_of_the_one_before(home: Path) -> None:
    """Nothing is hidden or added, and no target is another sequence's."""
    tokenizer, store = Tokenizer.load(home / "vocab"), TokenStore.open(home / "store")
    settings = InstanceSettings(input_format="running-text", batch_size=6, max_seq_length=24)
    data = PretrainingData(store, tokenizer, settings, corruption=CausalLMCollator)
    lengths = set()
    for step in range(8):
        batch = data.batch(step)
        length = batch.input_ids.shape[1]
        pairs = iter(
            zip(
                batch.targets["clm_positions"].tolist(),
                batch.targets["clm_labels"].tolist(),
                strict=True,
            )
        )
        for row, instance in enumerate(data.instances(step)):
            text = np.concatenate(instance.segments).tolist()
            assert batch.input_ids[row, : len(text)].tolist() == text
            assert int(batch.attention_mask[row].sum()) == len(text) <= 24
            lengths.add(len(text))
            for place, label in enumerate(text[1:]):
                assert next(pairs) == (row * length + place, label)
        assert next(pairs, None) is None
    assert max(lengths) > 16, "sequences hold several sentences"


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"model": home / "config.json", **SETTINGS}
    bertine.pretrain(home / "store", out=tmp_path / "whole", **given)
    with toys.interrupted_at(8, fit, "check_batch"):
        bertine.pretrain(home / "store", out=tmp_path / "parts", **given)
    bertine.pretrain(home / "store", out=tmp_path / "parts", resume=True, **given)
    assert toys.log(tmp_path / "parts") == toys.log(tmp_path / "whole")
    assert toys.same_weights(tmp_path / "whole" / "model", tmp_path / "parts" / "model")


@pytest.mark.takes(4)
def test_it_learns_and_held_out_text_has_a_perplexity(home: Path, tmp_path: Path) -> None:
    given = SETTINGS | {"steps": 80, "checkpoint_every": 80}
    settings = check_learning(home, tmp_path / "run", "clm", "LM", given)
    assert settings["input_format"] == "running-text"


def test_gradients_in_parts_of_a_batch_are_those_of_the_whole(home: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {**SETTINGS, "steps": 3, "dropout": 0.0, "checkpoint_every": 9}
    check_parts_of_a_batch(home, tmp_path, 48, given)


def test_what_does_nothing_or_does_not_go_together_is_said(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {**SETTINGS, "steps": 1, "model": home / "config.json"}
    bertine.pretrain(home / "store", out=tmp_path / "run", whole_word_mask=True, **given)
    assert "whole_word_mask: does nothing with objective clm" in capsys.readouterr().err
    for options, message in (
        ({"model": "bert-tiny", "objective": "clm"}, r"mlm-nsp or mlm or mlm-neighbours, not"),
        ({"objective": "mlm"}, r"openai-gpt is pre-trained with objective clm, not with mlm"),
        ({"input_format": "segment-pair"}, r"objective clm works on input_format running-text"),
        ({"initialization": "mimetic"}, r"mimetic"),
    ):
        with pytest.raises(BertineError, match=message):
            bertine.pretrain(home / "store", out=tmp_path / "other", **given | options)


@pytest.mark.slow
def test_after_kill_9_a_run_goes_on_bit_for_bit(home: Path, tmp_path: Path) -> None:
    """With dropout, after ``kill -9``; so does its fine-tuning, with the next tokens beside the
    task."""

    def check(verb: str, first: str, given: dict[str, Any]) -> Path:
        runs = [tmp_path / f"{verb}-{name}" for name in ("whole", "parts")]
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        alone = {"baselines": False, "frozen": False} if verb == "finetune" else {}
        options += [f"--no-{name}" for name in alone]
        call = getattr(bertine, verb)
        call(first, out=runs[0], **given, **alone)
        kill_at_a_checkpoint([verb, first, "--out", str(runs[1]), *options], runs[1])
        call(first, out=runs[1], resume=True, **given, **alone)
        assert toys.log(runs[0]) == toys.log(runs[1])
        ours, theirs = (toys.weights(run / "model") for run in runs)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        return runs[0]

    given = {"model": home / "config.json", **SETTINGS, "steps": 30}
    with toys.one_thread():
        run = check("pretrain", str(home / "store"), given)
        data = toys.write_labelled(tmp_path / "data.csv")
        few = {"epochs": 3, "batch_size": 8, "max_length": 16, "learning_rate": 1e-3}
        every = {"checkpoint_every": 4, "log_every": 3, "precision": "fp32"}
        tuned = check("finetune", "text", {"model": run / "model", "data": data, **few, **every})
    assert "lm_loss" in toys.log(tuned)[0]
