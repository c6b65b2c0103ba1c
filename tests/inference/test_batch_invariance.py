"""With ``batch_invariant`` an answer has the same bits whatever texts stand beside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertine
from bertine.inference.compute import why_not_int8
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.predictor import Predictor

from .test_predictor import random_texts

TEXTS = [text or "a cat" for text in random_texts(60, seed=9)]
PRECISIONS = ["fp32", "bf16", *([] if why_not_int8() else ["int8"])]


def parts(count: int, seed: int) -> list[list[int]]:
    """Put the texts into parts of any sizes, in any order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    cuts = np.sort(rng.choice(np.arange(1, count), 6, replace=False))
    return [part.tolist() for part in np.split(order, cuts)]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_have_the_same_bits_in_any_company(pretrained: Path, precision: Any) -> None:
    embedder = Embedder.load(pretrained, precision=precision, batch_invariant=True)
    expected = embedder.embed(TEXTS)
    for seed in range(3):
        for part in parts(len(TEXTS), seed):
            found = embedder.embed([TEXTS[at] for at in part])
            np.testing.assert_array_equal(found, expected[part])
            features = embedder.features([TEXTS[at] for at in part])
            np.testing.assert_array_equal(embedder.run_batch(features), expected[part])


def test_predictions_have_the_same_bits_in_any_company(classifier: Path) -> None:
    predictor = Predictor.load(classifier, batch_invariant=True)
    assert str(predictor.dtype) == "torch.float32"
    expected = predictor.predict(TEXTS)
    for part in parts(len(TEXTS), 4):
        found = predictor.predict([TEXTS[at] for at in part])
        for answer, at in zip(found, part, strict=True):
            assert dataclasses.asdict(answer) == dataclasses.asdict(expected[at])
        features = predictor.prepare(
            predictor.task.examples_of([TEXTS[at] for at in part], "texts", range(len(part)))
        ).features
        outputs = predictor.compute_batch(features)
        alone = [predictor.compute([feature])[0] for feature in features]
        for output, other in zip(outputs, alone, strict=True):
            np.testing.assert_array_equal(output, other)


@pytest.mark.slow
def test_files_have_the_same_rows(classifier: Path, pretrained: Path, tmp_path: Path) -> None:
    whole, half = tmp_path / "whole.txt", tmp_path / "half.txt"
    whole.write_text("".join(f"{text}\n" for text in TEXTS))
    half.write_text("".join(f"{text}\n" for text in TEXTS[1::2]))
    options: dict[str, Any] = {"batch_invariant": True, "show_progress": False}
    rows = []
    for source in (whole, half):
        output = source.with_suffix(".jsonl")
        bertine.predict(classifier, input=source, output=output, **options)
        bertine.embed(pretrained, source, source.with_suffix(".npy"), **options)
        rows.append([json.loads(line) for line in output.read_text().splitlines()])
    assert rows[1] == rows[0][1::2]
    vectors = np.load(tmp_path / "whole.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "half.npy"), vectors[1::2])
