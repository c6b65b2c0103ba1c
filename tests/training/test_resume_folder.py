"""What is refused, named or left alone in the folder of a run that is to go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import toys
from bertine import finetune, pretrain
from bertine.core.errors import BertineError
from bertine.training import fit
from bertine.training.run_folder import Run


def test_resuming_with_other_settings_names_the_key(
    store: Path, model: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"model": model, "out": tmp_path / "run", "max_seq_length": 32}
    given |= {"batch_size": 4, "checkpoint_every": 2}
    pretrain(store, steps=4, **given)
    before = toys.tree(tmp_path)
    for key, value in {"learning_rate": 3e-4, "seed": 1, "steps": 6, "dropout": 0.2}.items():
        name = r"architecture\.hidden_dropout_prob" if key == "dropout" else key
        with pytest.raises(BertineError, match=rf"run\.json.*started with {name} = ") as caught:
            pretrain(store, **{"steps": 4, **given, key: value}, resume=True)
        assert "\n" not in str(caught.value)
    with pytest.raises(BertineError, match="holds a run already; add resume=True"):
        pretrain(store, steps=4, **given)
    assert toys.tree(tmp_path) == before
    # What does not change the result may change; a finished run stays what it is.
    again = pretrain(store, steps=4, **given, log_every=1, keep_checkpoints=1, resume=True)
    assert again.final["step"] == 4
    assert toys.tree(tmp_path) == before


def test_a_log_that_was_deleted_is_named(store: Path, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given: dict[str, Any] = {"model": model, "out": run, "max_seq_length": 32, "batch_size": 2}
    pretrain(store, steps=2, checkpoint_every=1, **given)
    shutil.rmtree(run / "model")
    (run / "log.jsonl").unlink()
    with pytest.raises(BertineError, match=r"log\.jsonl: has no line about training"):
        pretrain(store, steps=2, checkpoint_every=1, **given, resume=True)
    shutil.rmtree(run / "checkpoints" / "step-00000002")
    pretrain(store, steps=2, checkpoint_every=1, **given, resume=True)
    assert (run / "model").exists()


def test_a_damaged_line_about_training_is_not_taken_for_the_end(
    store: Path, model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    given: dict[str, Any] = {"model": model, "out": run, "max_seq_length": 32, "batch_size": 2}
    pretrain(store, steps=2, checkpoint_every=1, log_every=1, **given)
    log = run / "log.jsonl"
    log.write_text(log.read_text() + '{"step": 2, "tokens": 9, "mlm_loss": "low"}\n')
    result = pretrain(store, steps=2, checkpoint_every=1, log_every=1, **given, resume=True)
    assert result.final["step"] == 2
    assert isinstance(result.final["mlm_loss"], float)


@pytest.mark.parametrize("text", ["[]", '{"settings": null}', '{"settings": {'])
def test_a_damaged_file_of_settings_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    for resume in (Run.open(tmp_path, {}, True).__enter__, lambda: Run.steps(tmp_path)):
        with pytest.raises(BertineError, match=r"run\.json: (damaged|not valid JSON)"):
            resume()


def test_another_machine_is_warned_of(
    store: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    given: dict[str, Any] = {"model": model, "out": run, "max_seq_length": 32, "batch_size": 2}
    pretrain(store, steps=1, **given)
    begun = json.loads((run / "run.json").read_text())
    begun["environment"]["torch"] = "1.0"
    (run / "run.json").write_text(json.dumps(begun))
    capsys.readouterr()
    pretrain(store, steps=1, **given, resume=True)
    assert "started with torch 1.0" in capsys.readouterr().err


def test_a_failure_before_the_first_step_leaves_nothing(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise BertineError("step 1: the gradient is not finite")

    monkeypatch.setattr(fit._Fitting, "train", fails)
    for _ in range(2):  # so that it can be started again
        with pytest.raises(BertineError, match="step 1"):
            finetune("text", model=model, data=labelled, out=tmp_path / "run", max_length=24)
        assert not (tmp_path / "run").exists()
