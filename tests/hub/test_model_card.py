"""The card that every saved model has: what it says, and that its code runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import bertine
import toys
from bertine.core.files import read_json
from bertine.core.scores import correlation_interval
from bertine.core.task_info import TaskInfo
from bertine.hub.model_card import model_card
from bertine.hub.model_directory import load_model, save_model
from bertine.models.heads import Model, new_head

_TASKS = {
    "text": TaskInfo("text", ("bad", "good"), ("review",), "stars", 16),
    "pairs": TaskInfo("text", ("no", "yes"), ("first", "second"), "same", 16),
    "multi-label": TaskInfo("multi-label", ("a", "b", "c"), ("text",), "labels", 16),
    "regression": TaskInfo("regression", (), ("first", "second"), "score", 16),
    "tagging": TaskInfo("tagging", ("O", "B-X", "I-X"), ("words",), "tags", 16),
    "spans": TaskInfo("spans", max_length=32),
    "choice": TaskInfo("choice", text_columns=("prompt", "one", "two"), max_length=16),
}
_HEADS = {"tagging": "token_classifier", "spans": "spans", "choice": "choice"}


def _block(card: str) -> dict[str, Any]:
    """The block that the hub reads."""
    front = card.split("---\n")[1]
    values: dict[str, Any] = yaml.safe_load(front)
    return values


def _run(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the code of a card prints, with the folder in its place."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(code.split("\n\n")[1].splitlines()) <= 4
    capsys.readouterr()
    exec(code.replace("FOLDER", str(folder)), {})
    return capsys.readouterr().out


@pytest.mark.parametrize("name", _TASKS)
def test_the_code_of_a_card_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = _TASKS[name]
    config = toys.config()
    head = new_head(config, _HEADS.get(name, "classifier"), max(1, len(task.labels)))
    save_model(tmp_path / "m", Model(config, head), toys.tokenizer(), task=task)
    printed = _run(tmp_path / "m", capsys)
    assert printed.strip()
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert _block(card)["pipeline_tag"].endswith(("classification", "answering", "choice"))
    for label in task.labels:
        assert f"`{label}`" in card


def test_models_without_a_task_have_code_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(tmp_path / "mlm", toys.pretraining_model(), toys.tokenizer())
    assert "[MASK]" not in _run(tmp_path / "mlm", capsys)
    assert _block((tmp_path / "mlm" / "README.md").read_text())["pipeline_tag"] == "fill-mask"
    gpt = toys.config_for("clm").replace(max_position_embeddings=64)
    save_model(tmp_path / "gpt", Model(gpt, new_head(gpt, "lm")), toys.tokenizer())
    assert "Once upon a time" in _run(tmp_path / "gpt", capsys)
    save_model(tmp_path / "encoder", Model(toys.config(), {}), toys.tokenizer())
    assert "(2," in _run(tmp_path / "encoder", capsys)


def test_a_finetuning_says_what_it_was_trained_on_and_scored(tmp_path: Path) -> None:
    model = toys.write_model(tmp_path / "model")
    toys.write_labelled(tmp_path / "reviews.csv", rows=80)
    with toys.one_thread():
        bertine.finetune(
            "text",
            model=model,
            data=tmp_path / "reviews.csv",
            out=tmp_path / "run",
            epochs=1,
            max_length=8,
            precision="fp32",
            baselines=False,
        )
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    block = _block(card)
    (result,) = block["model-index"][0]["results"]
    assert result["dataset"]["name"] == "reviews.csv"
    accuracy = read_json(tmp_path / "run" / "scores.json")["final"]["metrics"]["accuracy"]
    assert result["metrics"] == [{"type": "accuracy", "value": pytest.approx(accuracy, abs=1e-4)}]
    assert re.search(r"\| accuracy \| 0\.\d+ \| 0\.\d+ to [01]\.\d+ \|", card)
    assert str(tmp_path) not in card, "the machine's folders are nobody's business"
    facts = load_model(tmp_path / "run").task
    assert facts is not None
    assert facts.training["examples_fingerprint"] in card
    assert "cut at the longest input" in card
    assert "- epochs: 1" in card
    assert "torch 2." in card


def test_a_pretraining_says_its_text_recipe_and_time(tmp_path: Path) -> None:
    store = toys.write_store(tmp_path / "store")
    config = toys.write_config(tmp_path / "config.json", toys.config())
    with toys.one_thread():
        bertine.pretrain(
            store, model=config, out=tmp_path / "run", steps=2, batch_size=4, max_seq_length=32
        )
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "- trained on `store`" in card
    assert "documents" in card
    assert "tokens seen" in card
    assert "mlm loss" in card
    assert "- steps: 2" in card
    assert str(tmp_path) not in card


def test_the_interval_of_a_correlation_holds_it_and_narrows() -> None:
    low, high = correlation_interval(0.6, 103)
    # By hand: atanh(0.6) = 0.6931, plus and minus 1.96 / 10.
    assert (low, high) == (pytest.approx(0.4595, abs=1e-3), pytest.approx(0.7112, abs=1e-3))
    assert correlation_interval(0.6, 10_000)[1] < high


def test_numbers_that_are_none_are_left_out() -> None:
    training = {"evaluation": {"num_examples": 9, "metrics": {"f1": float("nan"), "pearson": 0.5}}}
    task = TaskInfo("regression", metrics=("f1", "pearson"), training=training)
    card = model_card(Model(toys.config(), {}), task)
    low, high = correlation_interval(0.5, 9)
    assert f"| pearson | 0.5000 | {low:.4f} to {high:.4f} |" in card
    assert "nan" not in card
