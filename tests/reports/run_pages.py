"""Runs as they are on disk, and what their pages say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertine import report
from reports.test_html import Page

SETTINGS: dict[str, Any] = {
    "unigram_entropy": 6.25,
    "num_tokens": 1_234_567,
    "batch_size": 32,
    "steps": 1000,
    "learning_rate": 1e-3,
    "warmup_steps": 10,
    "schedule": "linear",
    "max_grad_norm": 1.0,
    "mask_split": [0.8, 0.1, 0.1],
    "log_every": 10,
    "dropout": None,
    "architecture": {"hidden_size": 128, "num_hidden_layers": 2},
}


def line(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "loss": 4.5 + 20 / step,
        "mlm_loss": 4.0 + 20 / step,
        "nsp_loss": 0.5,
        "mlm_accuracy": 0.25,
        "nsp_accuracy": 0.625,
        "tokens_per_second": 12_345.0,
        "unigram_entropy": 6.25,
        "learning_rate": 1e-3 * (1 - step / 1000),
        "grad_norm": 1.5,
        "tokens": 1000 * step,
        "elapsed": step / 10,
    }


def write_run(
    folder: Path, log: list[dict[str, Any]], settings: dict[str, Any] | None = None, tail: str = ""
) -> Path:
    folder.mkdir(parents=True)
    environment = {"bertine": "0.1.0", "torch": "2.13.0", "threads": 2}
    begun = {"settings": SETTINGS if settings is None else settings, "environment": environment}
    (folder / "run.json").write_text(json.dumps(begun), encoding="utf-8")
    lines = "".join(json.dumps(one) + "\n" for one in log)
    (folder / "log.jsonl").write_text(lines + tail, encoding="utf-8")
    return folder


def sample(probability: float, truth: str = "cat", text: str = "the [MASK] sleeps.") -> dict:
    guesses = [{"token": "the", "probability": 0.5}, {"token": truth, "probability": probability}]
    return {"text": text, "truth": truth, "truth_probability": probability, "guesses": guesses}


def write_samples(folder: Path, lines: list[tuple[int, list[dict[str, Any]]]]) -> None:
    text = "".join(json.dumps({"step": step, "samples": each}) + "\n" for step, each in lines)
    (folder / "samples.jsonl").write_text(text, encoding="utf-8")


def page_of(folder: Path) -> str:
    """A run's page."""
    return report(folder).path.read_text(encoding="utf-8")


def words(folder: Path) -> str:
    """The text of a run's page, which must be well-formed."""
    return Page(page_of(folder)).words


def titles(folder: Path) -> list[str]:
    """The titles of the plots."""
    page = page_of(folder)
    return [part.split("</h3>")[0] for part in page.split("<h3>")[1:]]


def finetuning(labels: list[str], confusion: list[list[int]]) -> dict[str, Any]:
    return {
        "scores": [],
        "final": {
            "source": "data/dev.tsv",
            "num_examples": sum(map(sum, confusion)),
            "metrics": {"accuracy": 0.875, "matthews": -0.125, "loss": 0.5},
            "majority_share": 0.352,
            "collapsed": False,
            "labels": labels,
            "confusion": confusion,
            "notes": ["3 texts were cut"],
        },
    }


def write_finetuning(folder: Path, **changes: Any) -> Path:
    settings = {"task": "text", "num_examples": 3200, "epochs": 2, "steps": 200, "log_every": 10}
    settings |= changes
    log: list[dict[str, Any]] = [
        {"step": step, "loss": 1.0, "accuracy": 0.5, "tokens": step, "elapsed": 1.0}
        for step in range(10, 201, 10)
    ]
    log += [
        {"step": step, "eval_accuracy": 0.8, "eval_matthews": -0.1, "eval_loss": 0.6}
        for step in (100, 200)
    ]
    return write_run(folder, log, settings)
