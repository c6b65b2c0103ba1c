"""A student that learns a teacher's vectors of texts."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from bertine.models.pooling import Pooling
from bertine.tasks.base import Features, pad_features
from bertine.training.distillation import on_vectors
from bertine.training.similarity.data import PairSampler
from bertine.training.similarity.fitting import SimilarityResult

SETTINGS: dict[str, Any] = {
    "kind": "vectors",
    "learning_rate": 2e-3,
    "precision": "fp32",
    "batch_size": 16,
    "held_out_texts": 30,
}


def sentences(count: int = 200) -> list[str]:
    plain = [toys.sentence(topic, word) for topic in toys.TOPICS for word in toys.ADJECTIVES]
    return [f"{a} {b}" for a, b in itertools.islice(itertools.permutations(plain, 2), count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some are empty."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    lines = sentences()
    path.write_text("\n".join([*lines[:70], "", *lines[70:150], "", *lines[150:]]) + "\n")
    return path


def run(texts: Path, out: Path, **options: Any) -> SimilarityResult:
    with toys.one_thread():
        result = bertine.distill(texts, out=out, **SETTINGS | options)
    assert isinstance(result, SimilarityResult)
    return result


def vectors_of(model: Path) -> np.ndarray:
    """The vectors of all lines, with something for the empty ones too."""
    with toys.one_thread():
        made = Embedder.load(model)(sentences())
    anything = np.full((1, made.shape[1]), np.nan)
    return np.concatenate([made[:70], anything, made[70:150], anything, made[150:]])


@pytest.mark.takes(4)
def test_layers_of_the_teacher_come_nearer_to_it(base: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run(texts, out, teacher=base, layers=[0, 3], epochs=4, relation_weight=1.0)
    assert (result.rows, result.metric) == (170, "spearman")
    assert result.after["spearman"] > result.before["spearman"]
    assert result.after["cosine"] > result.before["cosine"]
    assert not (out / "checkpoints").exists()
    losses = [line for line in toys.log(out) if "cosine_loss" in line]
    assert losses[-1]["cosine_loss"] < losses[0]["cosine_loss"]
    assert losses[-1]["relations_loss"] < losses[0]["relations_loss"]
    assert (out / "model" / "modules.json").is_file()
    vector, theirs = (Embedder.load(model)("the old cat sleeps") for model in (out, base))
    assert vector.shape == theirs.shape
    assert run(texts, out, teacher=base, layers=[0, 3], epochs=4, relation_weight=1.0,
               resume=True).after == result.after  # fmt: skip


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".parquet"])
def test_a_file_of_vectors_teaches_what_its_model_does(
    suffix: str, base: Path, texts: Path, tmp_path: Path
) -> None:
    vectors, file = vectors_of(base).astype(np.float16), tmp_path / f"vectors{suffix}"
    if suffix == ".npy":
        np.save(file, vectors)
    elif suffix == ".jsonl":
        rows = [{"vector": None if v[0] != v[0] else v} for v in vectors.tolist()]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"vector": vectors.astype(np.float32).tolist()}), file)
    same = {"layers": [0, 3], "steps": 3}
    from_model = run(texts, tmp_path / "one", teacher=base, **same)
    from_file = run(texts, tmp_path / "two", vectors=file, student=base, **same)
    assert toys.same_weights(from_model.model, from_file.model)


@pytest.mark.takes(4)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    base: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_vectors, "_PART", 64)
    settings = {"teacher": base, "layers": [1, 2], "steps": 8, "checkpoint_every": 2}
    settings |= {"mlm_weight": 0.5, "relation_weight": 0.5}
    whole = run(texts, tmp_path / "whole", **settings)
    again = tmp_path / "again"
    # While the teacher is asked, whose parts stay; then in training.
    with toys.interrupted_at(3, on_vectors.VectorTeacher, "of"):
        run(texts, again, **settings)
    parts = sorted((again / "checkpoints" / "teacher").iterdir())
    assert [part.name for part in parts] == ["000000.npy", "000001.npy"]
    times, rows = [part.stat().st_mtime_ns for part in parts], PairSampler.rows

    def stopped(draws: PairSampler, step: int) -> list[int]:
        if step == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return rows(draws, step)

    monkeypatch.setattr(PairSampler, "rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(texts, again, resume=True, **settings)
    assert [part.stat().st_mtime_ns for part in parts] == times
    monkeypatch.setattr(PairSampler, "rows", rows)
    result = run(texts, again, resume=True, **settings)
    assert toys.same_weights(whole.model, result.model)
    assert not (again / "checkpoints").exists()


@pytest.mark.takes(4)
def test_masked_words_are_learned_and_the_head_stays(
    base: Path, texts: Path, labelled: Path, tmp_path: Path
) -> None:
    """Also where a batch is computed in parts; and what follows takes the model."""
    options = {"teacher": base, "layers": [0, 3], "epochs": 2, "mlm_weight": 1.0}
    options |= {"max_tokens_per_micro_batch": 64, "masked_lm_prob": 0.3}
    result = run(texts, tmp_path / "run", **options)
    losses = [line["mlm_loss"] for line in toys.log(tmp_path / "run") if "mlm_loss" in line]
    assert losses[-1] < losses[0]
    assert {"mlm"} == {*bertine.load_model(result.model).model.heads}
    filled = bertine.fill_mask(tmp_path / "run", "the old [MASK] sleeps in the house .", top_k=3)
    assert len(filled[0].candidates) == 3
    with toys.one_thread():
        vector = Embedder.load(tmp_path / "run")("the old cat sleeps")
        assert np.isfinite(vector).all()
        tuned = bertine.finetune(
            "text", model=tmp_path / "run", data=labelled, out=tmp_path / "tuned", epochs=1,
            baselines=False, frozen=False,
        )  # fmt: skip
    assert tuned.metrics


def test_a_layer_between_the_widths_is_thrown_away(base: Path, texts: Path, tmp_path: Path) -> None:
    narrow = toys.write_model(tmp_path / "narrow", hidden_size=16, intermediate_size=32)
    result = run(texts, tmp_path / "run", teacher=base, student=narrow, epochs=3)
    assert result.after.keys() == {"spearman"}
    assert result.after["spearman"] > result.before["spearman"]
    assert not [name for name in toys.weights(result.model) if "projection" in name]
    assert Embedder.load(result.model)("the old cat").shape == (16,)


def test_what_all_vectors_share_hides_nothing(base: Path) -> None:
    """A student that knows nothing but the part that all vectors share, as E5's do, is far off."""
    model = bertine.load_model(base).model.eval()
    batch = pad_features([Features(np.array([2, n, 3]), np.zeros(3), 0) for n in (7, 8, 9)], 0, 8)
    with torch.no_grad():
        encoded = model.encode(batch)
        own = F.normalize(Pooling()(encoded, batch.attention_mask), dim=-1)
    shared = 10 * own.mean(0) / own.mean(0).norm()
    batch.targets = {"vectors": shared + own[[1, 2, 0]], "masked": torch.zeros(3).bool()}
    mean = F.normalize(batch.targets["vectors"], dim=-1).mean(0)
    losses = [
        on_vectors.VectorObjective(Pooling(), mean=value).terms(model, batch)["cosine"].total / 3
        for value in (torch.zeros(1), mean)
    ]
    assert losses[0] < 0.2 < 0.5 < losses[1]


def test_pairs_judge_where_they_are_given(base: Path, texts: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    rows = [f"{text},{text if n % 2 else sentences()[-n]},{n % 2}" for n, text in
            enumerate(sentences(12), 1)]  # fmt: skip
    pairs.write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n")
    result = run(texts, tmp_path / "run", teacher=base, steps=2, validation=pairs,
                 held_out_texts=None)  # fmt: skip
    assert (result.rows, result.metric) == (200, "spearman")


def test_mistakes_are_named(base: Path, texts: Path, tmp_path: Path) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(BertineError, match=match):
            run(texts, tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()

    vectors = vectors_of(base)
    np.save(tmp_path / "few.npy", vectors[:-1])
    np.save(tmp_path / "lines.npy", np.arange(202))
    vectors[7] = 0.0
    np.save(tmp_path / "zero.npy", vectors)
    (tmp_path / "none.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "wide.jsonl").write_text('{"vector": [1, 2]}\n' * 201 + '{"vector": [1, 2, 3]}\n')
    refused("give one of teacher, a model, and vectors, a file")
    refused("give one of", teacher=base, vectors=tmp_path / "few.npy")
    few = {"vectors": tmp_path / "few.npy"}
    counts = r"few\.npy: has vectors of 201 rows, but .*texts\.txt has 202 rows"
    refused(r"few\.npy: has no layers to begin as; name a model directory", **few)
    refused(r"few\.npy: has no layers", student="bert-tiny", **few)
    refused(counts, student=base, **few)
    refused(r"lines\.npy: is an array", student=base, vectors=tmp_path / "lines.npy")
    refused(r"zero\.npy: the vector of row 8 is 0", student=base, vectors=tmp_path / "zero.npy")
    refused(r"none\.jsonl: has no column of vectors", student=base,
            vectors=tmp_path / "none.jsonl")  # fmt: skip
    refused(r"wide\.jsonl:202: 'vector' is not 2 numbers, as in row 1", student=base,
            vectors=tmp_path / "wide.jsonl")  # fmt: skip
    refused("temperature is for task and lm, but this is vectors", teacher=base, temperature=3.0)
    refused("give steps or epochs, not both", teacher=base, steps=1, epochs=1)
