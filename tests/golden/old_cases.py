"""Cases of folders that version 0.1 has written: they open as before, and say the same.

They lie in ``v01.tar.xz``; version 0.1 has written them.
"""

from __future__ import annotations

import contextlib
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

import bertine
from golden import made, taken
from golden.text_cases import described

ARCHIVE = Path(__file__).with_name("v01.tar.xz")

#: What each model directory is asked.
ASKED: dict[str, list[Any]] = {
    "text": ["The old cat sleeps in the sofa.", "Tom saw the tea.", ""],
    "pairs": [("the old cat sleeps", "a cat in the sofa"), ("the dog barks", "the tea brews")],
    "regression": ["a warm soup in the pot", "a small owl in the barn"],
    "multi-label": ["The cat sleeps. The soup boils.", "What is there?"],
    "choice": [("the old cat", "sleeps", "boils", "brews"), ("the tea", "barks", "brews")],
    "spans": [("Where is the cat?", "The cat sleeps in the sofa. The dog barks.")],
    "tagging": ["Mia Berg saw the old cat near the sofa ."],
    "frozen-text": ["The old cat sleeps in the sofa.", "Tom saw the tea."],
    "frozen-pairs": [("the old cat sleeps", "a cat in the sofa"), ("the dog barks", "it brews")],
}
#: What the runs that were interrupted had been started with; paths are relative to the folder.
PRETRAINING: dict[str, Any] = {
    **{"store": "store", "model": "pretrained", "steps": 20, "batch_size": 4},
    **{"max_seq_length": 24, "learning_rate": 1e-3, "warmup_steps": 4, "log_every": 3},
    **{"held_out": "store", "evaluate_every": 1},
    **{"checkpoint_every": 2, "keep_checkpoints": 1, "device": "cpu", "precision": "fp32"},
    "seed": 7,
}
FINETUNING: dict[str, Any] = {
    # With its head, for new weights are not the same bits on every machine.
    **{"task": "text", "model": "text", "data": "texts.csv", "epochs": 2},
    **{"batch_size": 2, "max_length": 24, "learning_rate": 1e-3, "log_every": 3},
    **{"checkpoint_every": 2, "keep_checkpoints": 1, "device": "cpu", "precision": "fp32"},
    **{"seed": 7, "frozen": False, "baselines": False, "freeze_embeddings": True},
}


def _unpack(folder: Path) -> contextlib.chdir[Path]:
    """Unpack the folders into `folder`, which is then the current one."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return contextlib.chdir(folder)


def models(folder: Path) -> dict[str, Any]:
    """Open model directories of every task: look at them, ask them, save them again."""
    found: dict[str, Any] = {}
    with _unpack(folder):
        for name, texts in ASKED.items():
            predictor = bertine.Predictor.load(name, "cpu", "fp32", threads=1)
            predictor.save(f"{name}-again")
            found[name] = {
                "inspect": bertine.inspect(name).text.splitlines(),
                "answers": taken.answers(predictor.predict(texts)),
                "tensors": taken.checksum(taken.tensors(Path(name) / "model.safetensors")),
                "saved": taken.checksum(taken.tensors(Path(f"{name}-again/model.safetensors"))),
                "config": taken.checksum(json.loads(Path(f"{name}-again/config.json").read_text())),
            }
        found["pretrained"] = {
            "inspect": bertine.inspect("pretrained").text.splitlines(),
            "fill_mask": taken.answers(
                bertine.fill_mask("pretrained", "The [MASK] sleeps.", top_k=3).masks
            ),
            "evaluate": taken.scores(
                bertine.evaluate(
                    "pretrained", "store", device="cpu", precision="fp32", show_progress=False
                ).metrics
            ),
        }
        vectors = bertine.Embedder.load("pretrained", device="cpu", precision="fp32", threads=1)
        found["vectors"] = taken.vectors(vectors.embed(["the old cat", "Tom saw the tea."]))
        # Vectors in a file know the model that made them.
        near = bertine.similar(
            "the cat", "vectors.npy", model="pretrained", device="cpu", precision="fp32", top=3
        )
        found["similar"] = taken.answers(near.found)
        found["file"] = taken.vectors(np.load("vectors.npy"))
    return found


def runs(folder: Path) -> dict[str, Any]:
    """Go on with runs that were interrupted, prepare with a vocabulary, train on a store."""
    with _unpack(folder):
        seen = bertine.inspect("store", num_instances=2, max_seq_length=24).text.splitlines()
        corpus = made.write_corpus(Path("corpus.txt"), 8, "old")
        bertine.prepare(corpus, tokenizer="vocabulary", out="again", processes=1)
        bertine.pretrain(out="pretraining-run", resume=True, **PRETRAINING)
        bertine.finetune(out="finetuning-run", resume=True, **FINETUNING)
        bertine.pretrain(out="new", **PRETRAINING | {"steps": 2, "held_out": "again"})
        return {
            "store": {"inspect": seen, **described(Path("store"))},
            "prepared": described(Path("again")),
            "pretraining": taken.run(Path("pretraining-run")),
            "finetuning": taken.run(Path("finetuning-run")),
            "new": taken.brief(Path("new")),
        }
