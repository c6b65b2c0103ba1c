"""The benchmarks run, compare equal computations, and print their ratios. No speed is asserted.

Their programs are called in this process, and the systems' processes are forked: most of a
benchmark of seconds would be the import of PyTorch and transformers, a dozen times.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import processes
import toys
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import save_model
from bertine.models.heads import Model
from bertine.models.layers import init_weights
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"

pytest.importorskip("transformers")

ONE = ("--threads", 1)
#: Runs a benchmark with these arguments; what it prints.
Run = Callable[..., str]


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported() -> Iterator[None]:
    """By their names, some of which packages of tests have too."""
    names = {path.stem for path in BENCHMARKS.glob("*.py")} | {"sides"}

    def take_out() -> dict[str, Any]:
        named = [name for name in sys.modules if name.partition(".")[0] in names]
        return {name: sys.modules.pop(name) for name in named}

    others = take_out()
    with pytest.MonkeyPatch.context() as patched, toys.one_thread():
        patched.syspath_prepend(BENCHMARKS)
        processes.server()
        patched.setattr(importlib.import_module("common").Worker, "start_method", "forkserver")
        yield
    take_out()
    sys.modules.update(others)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def main(script: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *map(str, arguments)])
        monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
        importlib.import_module(script).main()
        return capsys.readouterr().out

    return main


@pytest.mark.slow
def test_pretrain_prints_ratios_and_equal_first_losses(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    shape = ["--size", "tiny", "--batch-size", 3, "--length", 20, "--short", 0.4]
    rivals = ["--rivals", "default", "fused+kept"]
    printed = run("pretrain", *ONE, *shape, "--steps", 2, *rivals, "--json", saved)
    lines = [line for line in printed.splitlines() if line.startswith("transformers, ")]
    assert len(lines) == 2
    assert all(re.search(r"\d\.\d\dx +\d+\.\d\dx$", line) for line in lines)
    result: dict[str, Any] = json.loads(saved.read_text(encoding="utf-8"))["sizes"]["tiny"]
    losses = result["first_losses"]
    assert losses["bertine"]["fp32"] == pytest.approx(losses["transformers"]["fp32"], abs=1e-5)
    for pair in result["pairs"].values():
        medians = [pair[name]["median"] for name in ("transformers", "bertine")]
        assert pair["ratio"]["median"] == pytest.approx(medians[0] / medians[1])
        # A turn is three steps, and two were asked for: one turn each.
        assert len(pair["bertine"]["seconds"]) == len(pair["transformers"]["seconds"]) == 3


def toy_model(folder: Path) -> Path:
    """A model of one layer that knows four words, random."""
    tokenizer = Tokenizer.from_vocab([*SPECIAL_TOKENS, "good", "bad", "film", "very"])
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    model = Model(config, {})
    # Large enough that two words make a difference from the start.
    init_weights(model, 0.3)
    save_model(folder, model, tokenizer)
    return folder


def test_finetune_asks_for_data_that_is_not_there(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("finetune", "--data", tmp_path / "none")
    assert ended.value.code == 2
    assert "--data" in capsys.readouterr().err.splitlines()[-1]


def toy_tasks(folder: Path) -> Path:
    """Three tasks of the table in their own formats: is it good, which ending is, where is it."""
    kinds = [("good", "positive"), ("bad", "negative")]
    emotion = ["text;label_name", *(f"very {word} film;{name}" for word, name in kinds * 20)]
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source"
    codah = [f"{head},ending0,ending1,ending2,ending3,label"]
    wnut = []
    for at in range(40):
        endings = ["good" if place == at % 4 else "bad" for place in range(4)]
        codah.append(f"{at},v,{at},film very,film,very,gold,{','.join(endings)},{at % 4}")
        wnut += ["very\tO", "good\tB-person" if at % 2 else "bad\tO", "film\tO", ""]
    for task, suffix, train, held, lines in (
        ("emotion", "txt", "train", "val", emotion),
        ("swag-format-codah", "csv", "train", "val", codah),
        ("wnut17", "conll", "train", "dev", wnut),
    ):
        (folder / task).mkdir(parents=True)
        for part in (train, held):
            path = folder / task / f"{part}.{suffix}"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_tasks_refuses_to_go_on_with_other_settings(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "results.json"
    data, model = toy_tasks(tmp_path / "data"), toy_model(tmp_path / "model")
    saved.write_text('{"tasks": {"emotion": {"settings": {"epochs": 7}, "speed": {}, "runs": {}}}}')
    given = ["--data", data, "--model", model, "--tasks", "emotion", "--resume", saved]
    with pytest.raises(SystemExit, match="epochs 7"):
        run("tasks", *ONE, *given)


def test_the_loops_spans_are_read_back_from_their_targets(tmp_path: Path) -> None:
    """Windows, targets and answers of the other side in SQuAD's format."""
    import numpy as np
    from sides.settings import TASKS, Setting
    from sides.span_inputs import span_answers, span_inputs
    from transformers import AutoTokenizer

    model = toy_model(tmp_path / "model")
    context = "film film bad film " * 6 + "Good Film bad bad"
    begin = context.index("Good Film")
    questions: list[dict[str, Any]] = [
        {"id": "there", "question": "very good", "answers": []},
        {"id": "none", "question": "very bad", "answers": [], "is_impossible": True},
    ]
    questions[0]["answers"] = [{"text": "Good Film", "answer_start": begin}]
    paragraphs = [{"context": context, "qas": questions}]
    path = tmp_path / "dev-v2.0.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))
    tokenizer = AutoTokenizer.from_pretrained(model)
    inputs, windows = span_inputs(path, tokenizer, 16, 4, targets=True)
    assert len(windows) > 4  # 28 words in inputs of 11
    assert [item["start_positions"] > 0 for item in inputs].count(True) == 1
    outputs = []
    for item in inputs:
        logits = np.zeros((len(item["input_ids"]) + 3, 2), np.float32)
        logits[-3:] = 99.0  # what stands at padding has no meaning
        logits[item["start_positions"], 0] = logits[item["end_positions"], 1] = 9.0
        outputs.append(logits)
    setting = Setting(TASKS["SQuAD-v2.0"], model, tmp_path, tmp_path, 1, 4, 1e-3, 16)
    found = span_answers(windows, outputs, setting)
    (text, odds), (_, odds_none) = found["there"], found["none"]
    assert text == "Good Film"
    assert odds is not None
    assert odds_none is not None
    assert odds < 0 < odds_none


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(100, marks=pytest.mark.deep)])
def test_kills_ends_with_the_same_bits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    def run_for(arguments: list[str], seconds: float | None) -> bool:
        process = processes.forked(processes.bertine, arguments[3:])  # python -m bertine ...
        process.join(seconds)
        if ended := not process.is_alive():
            assert process.exitcode == 0
        process.kill()
        process.join()
        return ended

    monkeypatch.setattr(importlib.import_module("kills"), "run_for", run_for)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    store = toys.write_store(tmp_path / "store")
    printed = run("kills", store, "--kills", kills, "--steps", 25)
    assert f"{kills} kills: weights and logs are those of the undisturbed run" in printed


def test_kills_notices_other_weights_and_another_log(tmp_path: Path) -> None:
    kills = importlib.import_module("kills")
    for name, weights, loss in (("whole", b"a", 1.0), ("weights", b"b", 1.0), ("log", b"a", 2.0)):
        run = tmp_path / name
        (run / "model").mkdir(parents=True)
        (run / "model" / "model.safetensors").write_bytes(weights)
        (run / "log.jsonl").write_text(json.dumps({"loss": loss, "elapsed": len(name)}) + "\n")
    kills.compare(tmp_path / "whole", tmp_path / "whole")
    for name in ("weights", "log"):
        with pytest.raises(SystemExit, match=f"the {name} of"):
            kills.compare(tmp_path / "whole", tmp_path / name)


@pytest.mark.slow
def test_inference_compares_equal_outputs(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    systems = ["bertine fp32", "bertine bf16", "transformers fp32"]
    printed = run(
        "inference",
        *(*ONE, "--shapes", "tiny", "--texts", 40, "--turns", 1, "--cpu-time"),
        *("--systems", *systems, "--json", saved),
    )
    result = json.loads(saved.read_text(encoding="utf-8"))["shapes"]["tiny"]
    assert list(result) == systems
    assert result["bertine fp32"]["difference"] < 1e-4
    assert 1e-4 < result["bertine bf16"]["difference"] < 0.1
    cosines = result["bertine bf16"]["cosines"]
    assert cosines["count"] == 40
    assert 0.999 < cosines["lowest"] <= cosines["median"] < 1.0
    assert "cosines to transformers fp32 over 40 texts" in printed
    rates = [result[name]["texts_per_second"] for name in ("bertine fp32", "transformers fp32")]
    assert f"{rates[0] / rates[1]:.2f}x" in printed


def test_lstm_computes_the_same_as_pytorch(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    shape = ["--batch-size", 4, "--inputs", 8, "--units", 16, "--steps", 2]
    printed = run("lstm", *ONE, *shape, "--json", saved)
    assert re.search(r"PyTorch, fp32 .*\d\.\d\dx", printed)
    losses = json.loads(saved.read_text(encoding="utf-8"))["losses"]
    assert losses["bertine, fp32"] == pytest.approx(losses["PyTorch, fp32"], rel=1e-5)
    assert len({round(loss, 2) for loss in losses.values()}) == 1


def test_elmo_computes_the_same_as_pytorch(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    shape = ["--model", "elmo-tiny", "--batch-size", 3, "--window", 4, "--steps", 2]
    printed = run("elmo", *ONE, *shape, "--json", saved)
    assert re.search(r"PyTorch, fp32 .*\d\.\d\dx", printed)
    losses = json.loads(saved.read_text(encoding="utf-8"))["losses"]
    assert losses["bertine, fp32"] == pytest.approx(losses["PyTorch, fp32"], rel=1e-5)
