"""What the tests of the command line call it with, and what they expect of it."""

from __future__ import annotations

import pytest

from bertine.cli import main

#: The least that each command wants to hear.
ENOUGH = {
    "demo": [],
    "vocab": ["a.txt", "--out", "v"],
    "prepare": ["a.txt", "--tokenizer", "v", "--out", "s"],
    "inspect": ["s"],
    "pretrain": ["s", "--model", "bert-tiny", "--out", "r"],
    "finetune": ["text", "--data", "d", "--out", "o"],
    "finetune-similarity": ["--data", "d", "--out", "o"],
    "few-shot": ["--data", "d", "--out", "o"],
    "learning-curve": ["--data", "d", "--out", "o"],
    "search": ["text", "--data", "d", "--out", "o"],
    "check-labels": ["d", "--out", "o"],
    "suggest": ["t"],
    "label": ["t", "--out", "o.csv"],
    "drift": ["m", "t"],
    "distill": ["d", "--out", "o"],
    "lr-find": ["text", "--data", "d", "--out", "o"],
    "report": ["r"],
    "evaluate": ["m", "--data", "d"],
    "blimp": ["m"],
    "predict": ["m", "a text"],
    "explain": ["m", "a text"],
    "fill-mask": ["m", "a [MASK]"],
    "generate": ["m", "a text"],
    "embed": ["m", "--input", "-", "--output", "v.npy"],
    "index-vectors": ["v.npy", "--out", "o"],
    "similar": ["a query"],
    "export": ["m", "--output", "o"],
    "convert": ["m", "--out", "o"],
    "serve": ["m"],
    "glue-submission": ["m", "--data", "d", "--out", "s.zip"],
    "pretrain-elmo": ["c", "--model", "elmo-tiny", "--out", "o"],
    "feature-based": ["m", "--data", "d", "--out", "o"],
    "paper": ["bert-5", "--out", "o"],
    "word2vec": ["a.txt", "--out", "o"],
}


#: The function that each command stands for, as `bertine` exposes it.
VERBS = {
    "demo": "run_demo",
    "vocab": "train_vocab",
    "prepare": "prepare",
    "inspect": "inspect",
    "pretrain": "pretrain",
    "finetune": "finetune",
    "finetune-similarity": "finetune_similarity",
    "few-shot": "few_shot",
    "learning-curve": "learning_curve",
    "search": "search",
    "distill": "distill",
    "lr-find": "lr_find",
    "report": "report",
    "evaluate": "evaluate",
    "blimp": "blimp",
    "predict": "predict",
    "explain": "explain",
    "fill-mask": "fill_mask",
    "generate": "generate",
    "embed": "embed",
    "index-vectors": "index_vectors",
    "similar": "similar",
    "export": "export",
    "check-labels": "check_labels",
    "suggest": "suggest",
    "label": "label",
    "drift": "drift",
    "convert": "convert",
    "serve": "serve",
    "glue-submission": "glue_submission",
    "pretrain-elmo": "pretrain_elmo",
    "feature-based": "feature_based",
    "paper": "paper",
    "word2vec": "word2vec",
}


class Report:
    """A result as the verbs return them."""

    ok = True

    def next_lines(self) -> list[str]:
        return []

    def lines(self) -> list[str]:
        return ["first result", "second result"]


def error_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that `arguments` end with; exit status 2 and an empty stdout are checked."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[-1].startswith("bertine: error: ")
    assert sum("error" in line for line in lines) == 1
    return lines[-1]
