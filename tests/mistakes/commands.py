"""Commands that are right but for one thing, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Fails = Callable[..., str]


def one_line(stderr: str) -> str:
    """The error of `stderr`, after checking that it is one line and the last."""
    assert "Traceback" not in stderr
    lines = [line for line in stderr.splitlines() if line.strip()]
    assert [line for line in lines if line.startswith("bertine: error:")] == lines[-1:], stderr
    return lines[-1].removeprefix("bertine: error: ")


def corpus_commands(made: Path, tmp_path: Path, corpus: Path) -> list[list[object]]:
    """The two commands that read a corpus."""
    return [
        ["vocab", corpus, "--out", tmp_path / "out", "--vocab-size", 200],
        ["prepare", corpus, "--tokenizer", made / "tokenizer", "--out", tmp_path / "out"],
    ]


def pretrain(store: Path, model: Path | str, out: Path) -> list[object]:
    few = ["--steps", 2, "--max-seq-length", 32, "--batch-size", 2]
    return ["pretrain", store, "--model", model, "--out", out, *few]


def finetune(model: Path, data: Path, out: Path) -> list[object]:
    return ["finetune", "text", "--model", model, "--data", data, "--out", out, "--epochs", 1]
