"""An objective that hides nothing, from a store to a log: neither the loop nor the ceiling knows
what a corruption does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import toys
from bertine.corpora.batch import Batch
from bertine.corpora.collators import Draws, PaddingCollator
from bertine.corpora.sequences import Instance
from bertine.inference.heldout import score_batches
from bertine.models.encoder import Encoded
from bertine.models.heads import Model
from bertine.models.losses import sum_cross_entropy
from bertine.objectives.losses import LossDefaults, Term
from bertine.options.pretraining import InstanceSettings
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training import mfu
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run


class NextTokens:
    """Ask of each token which one follows."""

    def __init__(self, tokenizer: Tokenizer, settings: InstanceSettings) -> None:
        self.padder = PaddingCollator(tokenizer, settings.input_format)

    def __call__(self, instances: Sequence[Instance], draws: Draws) -> Batch:
        padded = self.padder.pad(instances)
        places = np.flatnonzero(np.pad(padded.real[:, 1:], ((0, 0), (0, 1))))
        labels = padded.input_ids.reshape(-1)[places + 1]
        return padded.batch(padded.input_ids, lm_positions=places, lm_labels=labels)


class NextToken(LossDefaults):
    """The mean cross-entropy of the next tokens, by the head of masked tokens."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.targets["lm_labels"].numel()}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        labels = batch.targets["lm_labels"]
        logits = model.read("mlm", encoded, places=batch.targets["lm_positions"])
        total, correct = sum_cross_entropy(logits, labels)
        return {"mlm": Term(total, labels.numel(), correct)}


@pytest.mark.slow
def test_a_run_learns_and_logs_its_share_of_the_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mfu, "_WORTH", 0.0)
    store = toys.write_store(tmp_path / "store")
    data = toys.pretraining_data(store, input_format="full-sentences", corruption=NextTokens)
    model, loss = toys.pretraining_model(), NextToken()
    before = score_batches(model, loss, data.batch, tokens=500)
    config = FitConfig(steps=40, learning_rate=5e-3, log_every=20)
    with Run.open(tmp_path / "run", {}, resume=False) as run:
        fit(model, loss, data.batch, config, run)
    after = score_batches(model, loss, data.batch, tokens=500)
    assert after["mlm_loss"] < before["mlm_loss"] - 0.3
    assert after["mlm_count"] > 400, "every token but the last is asked about"
    lines = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    shares = [json.loads(line)["share_of_ceiling"] for line in lines]
    assert len(shares) == 2
    assert all(0 < share < 1 for share in shares)
