"""Cases of vectors, and of what is built on fine-tuning: rates, searches, estimators, exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import bertine
from golden import made, taken
from golden.pretraining_cases import filled


def embedded(folder: Path) -> dict[str, Any]:
    """Turn texts into vectors, with every pooling and in every precision, and compare them."""
    model = made.write_model(folder / "model", num_hidden_layers=4)
    texts = [text for text, _ in made.text_rows("vectors", 40)]
    texts += [text for text in made.TRICKY if text.strip()]
    found: dict[str, Any] = {}
    for precision in taken.PRECISIONS:
        here = found.setdefault(precision, {})
        poolings: tuple[tuple[Any, dict[str, Any]], ...] = (
            ("mean", {}),
            ("cls", {"normalize": True}),
            ("max", {"layer": 1}),
            ("mean-last-4", {"max_length": 16}),
        )
        for pooling, options in poolings:
            embedder = bertine.Embedder.load(
                model, pooling=pooling, device="cpu", precision=precision, threads=1, **options
            )
            here[pooling] = taken.vectors(embedder.embed(texts))
            if pooling == "mean":
                here["one"] = taken.vectors(embedder.embed(texts[0]))
        embedder = bertine.Embedder.load(
            model, pooling="tokens", device="cpu", precision=precision, threads=1
        )
        tokens = embedder.embed_tokens(texts[:5])
        here["tokens"] = taken.vectors(np.concatenate([each.vectors for each in tokens]))
    lines = folder / "texts.txt"
    lines.write_text("".join(f"{text}\n" for text in texts[:40]), encoding="utf-8")
    bertine.embed(
        model, lines, folder / "vectors.npy", device="cpu", precision="fp32", show_progress=False
    )
    found["file"] = taken.vectors(np.load(folder / "vectors.npy"))
    near = bertine.similar(
        texts[3], folder / "vectors.npy", model=model, device="cpu", precision="fp32", top=5
    )
    return found | {"similar": taken.answers(near.found), **filled(model)}


def others(folder: Path) -> dict[str, Any]:
    """Find a rate, search over rates, fit a scikit-learn classifier."""
    model = made.write_model(folder / "model")
    rows = made.text_rows("others", 32)
    table = made.write_table(folder / "texts.csv", ("text", "label"), rows)
    given: dict[str, Any] = {"model": model, "data": table, "max_length": 32, "batch_size": 8}
    given |= {"device": "cpu", "precision": "fp32"}
    bertine.lr_find("text", out=folder / "rate", steps=20, warmup_steps=2, seed=5, **given)
    tried = json.loads((folder / "rate" / "lr-find.json").read_text(encoding="utf-8"))
    sizes = given.pop("batch_size")
    numbers = made.number_rows("others", 40)
    given["data"] = made.write_table(folder / "numbers.csv", ("text", "label"), numbers)
    bertine.search(
        "regression",
        out=folder / "search",
        batch_sizes=[sizes],
        learning_rates=[5e-3, 3e-4],
        epochs=[3],
        seeds=[0, 1],
        **given,
    )
    searched = json.loads((folder / "search" / "search.json").read_text(encoding="utf-8"))
    classifier = bertine.BertClassifier(
        model,
        epochs=1,
        batch_size=8,
        max_length=32,
        learning_rate=1e-3,
        device="cpu",
        precision="fp32",
        random_state=3,
    )
    classifier.fit([text for text, _ in rows], [label for _, label in rows])
    asked = [text for text, _ in made.text_rows("asked", 8)]
    chosen = folder / "search" / "model"
    return {
        "lr_find": {"curve": tried["curve"], "bits": tried["advice"]},
        "search": taken.bits(taken.without_clock(searched)),
        "found": taken.bits(taken.tensors(chosen / "model.safetensors")),
        "estimator": taken.vectors(np.asarray(classifier.predict_proba(asked))),
    }
