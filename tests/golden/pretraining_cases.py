"""Cases of pre-training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import bertine
from bertine.cli import main
from golden import made, taken

#: Small steps on one thread; every one of them is in the log, and none of the runs has a page.
SETTINGS: dict[str, Any] = {
    "steps": 6,
    "batch_size": 8,
    "max_seq_length": 48,
    "learning_rate": 2e-3,
    "warmup_steps": 2,
    "log_every": 1,
    "device": "cpu",
    "precision": "fp32",
    "seed": 11,
}


def write_store(folder: Path, name: str = "corpus") -> Path:
    """Write a store of made texts."""
    corpus = made.write_corpus(folder.with_suffix(".txt"), 40, name)
    vocabulary = folder.with_name(f"{folder.name}-vocabulary")
    made.write_vocabulary(vocabulary)
    bertine.prepare(corpus, tokenizer=vocabulary, out=folder, processes=1)
    return folder


def segments(folder: Path) -> dict[str, Any]:
    """Pre-train new weights on pairs of segments, with held-out text, in micro-batches; evaluate
    them and fill masks."""
    store = write_store(folder / "store")
    held_out = write_store(folder / "held-out", "held-out")
    model = made.write_sizes(folder / "config.json")
    bertine.pretrain(
        store,
        model=model,
        out=folder / "run",
        held_out=held_out,
        evaluate_every=3,
        max_tokens_per_micro_batch=150,
        **SETTINGS,
    )
    trained = folder / "run" / "model"
    found = {"run": taken.run(folder / "run"), "evaluate": {}}
    for precision in ("fp32", "bf16"):
        report = bertine.evaluate(
            trained, held_out, device="cpu", precision=precision, show_progress=False
        )
        found["evaluate"][precision] = taken.scores(report.metrics)
    return found | filled(trained)


def filled(model: Path) -> dict[str, Any]:
    """Record what a model puts in the place of masks."""
    texts = ("The [MASK] sleeps in the [MASK].", "tom saw the [MASK] near the river")
    found = [bertine.fill_mask(model, text, top_k=4) for text in texts]
    return {"fill_mask": [taken.answers(each.masks) for each in found]}


def full_sentences(folder: Path) -> dict[str, Any]:
    """Pre-train masked LM alone on full sentences, whole words masked, from mimetic weights, by
    the command line and its configuration files."""
    store = write_store(folder / "store")
    model = made.write_sizes(folder / "config.json")
    given = {
        "objective": "mlm",
        "input_format": "full-sentences",
        "whole_word_mask": True,
        "initialization": "mimetic",
        "adam_beta2": 0.98,
        **SETTINGS,
    }
    (folder / "given.yaml").write_text(json.dumps(given), encoding="utf-8")
    command = ["pretrain", store, "--config", folder / "given.yaml", "--model", model]
    assert main([str(each) for each in (*command, "--out", folder / "run")]) == 0
    return {"run": taken.run(folder / "run")}


def phases(folder: Path) -> dict[str, Any]:
    """Pre-train in bf16 on pairs of sentences, masked the same ways again, in two phases; its
    length is given in tokens."""
    store = write_store(folder / "store")
    settings = {key: value for key, value in SETTINGS.items() if key != "steps"}
    settings |= {"precision": "bf16", "tokens": 1500, "max_seq_length": 32}
    bertine.pretrain(
        store,
        model=made.write_sizes(folder / "config.json", num_attention_heads=4, hidden_act="relu"),
        out=folder / "run",
        input_format="sentence-pair",
        masking="static",
        dupe_factor=2,
        mask_split=(0.7, 0.2, 0.1),
        masked_lm_prob=0.2,
        long_seq_length=64,
        long_share=0.4,
        bias_correction=False,
        max_grad_norm=0.0,
        initializer_range=0.1,
        dropout=0.2,
        **settings,
    )
    return {"bf16": {"run": taken.run(folder / "run")}}


def recipe(folder: Path) -> dict[str, Any]:
    """Pre-train by the recipe ``quick``, as the command line resolves it."""
    store = write_store(folder / "store")
    made.write_sizes(folder / "config.json")
    command = ["pretrain", store, "--config", "quick", "--model", folder / "config.json"]
    command += ["--out", folder / "run", "--steps", 5, "--batch-size", 6, "--log-every", 1]
    command += ["--initialization", "mimetic", "--precision", "fp32", "--device", "cpu"]
    assert main([str(each) for each in command]) == 0
    return {"run": taken.run(folder / "run")}


def threads(folder: Path) -> dict[str, Any]:
    """Pre-train a wider model with two threads, which compute other last bits than one."""
    store = write_store(folder / "store")
    model = made.write_sizes(folder / "config.json", hidden_size=64, intermediate_size=256)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        bertine.pretrain(store, model=model, out=folder / "run", **SETTINGS | {"steps": 3})
    finally:
        torch.set_num_threads(before)
    return {"run": taken.brief(folder / "run")}


def presets(folder: Path) -> dict[str, Any]:
    """Make the new weights of ``bert-tiny``, by a first step at a rate of nothing."""
    store = write_store(folder / "store")
    settings = SETTINGS | {"steps": 1, "learning_rate": 0.0, "batch_size": 2, "warmup_steps": 0}
    found = {}
    for initialization in ("normal", "mimetic"):
        out = folder / initialization
        bertine.pretrain(
            store, model="bert-tiny", out=out, initialization=initialization, **settings
        )
        found[initialization] = taken.tensors(out / "model" / "model.safetensors")
    return found


def continued(folder: Path) -> dict[str, Any]:
    """Go on from a model directory, on sequences within documents, killed after its third step;
    and the same without a stop."""
    store = write_store(folder / "store")
    model = made.write_model(folder / "model")
    given = {
        "store": store,
        "model": model,
        "objective": "mlm",
        "input_format": "doc-sentences",
        "checkpoint_every": 3,
        "keep_checkpoints": 9,
        **SETTINGS,
        # Of the log's lines some sum over a checkpoint.
        "log_every": 2,
        "steps": 7,
    }
    bertine.pretrain(out=folder / "whole", **given)
    whole = taken.run(folder / "whole")
    # As kill -9 would have left it: a log that is further than the checkpoint, and no model.
    shutil.copytree(folder / "whole", folder / "killed")
    shutil.rmtree(folder / "killed" / "model")
    shutil.rmtree(folder / "killed" / "checkpoints" / "step-00000006")
    bertine.pretrain(out=folder / "killed", resume=True, **given)
    if taken.run(folder / "killed") != whole:
        raise AssertionError("the resumed run is not the undisturbed one")
    return {"run": whole}


def extended(folder: Path) -> dict[str, Any]:
    """Go on with a larger vocabulary than the model has."""
    model = made.write_model(folder / "model")
    corpus = made.write_corpus(folder / "corpus.txt")
    size = len(made.unique(made.vocabulary())) + 40
    bertine.train_vocab(
        [corpus, made.copy_messages(folder)],
        folder / "vocabulary",
        vocab_size=size,
        extend=model,
        text_column="message",
    )
    store = folder / "store"
    bertine.prepare(corpus, tokenizer=folder / "vocabulary", out=store, processes=1)
    settings = SETTINGS | {"steps": 3}
    bertine.pretrain(store, model=model, out=folder / "run", **settings)
    return {"run": taken.run(folder / "run")}


def processes(folder: Path) -> dict[str, Any]:
    """Pre-train and fine-tune in two processes (gloo): replicas, and shards."""
    store = write_store(folder / "store")
    model = made.write_model(folder / "model")
    table = made.write_table(
        folder / "texts.csv", ("text", "label"), made.text_rows("two processes", 20)
    )
    # Rows do not divide by 2, and processes have different numbers of micro-batches.
    settings = SETTINGS | {
        "store": str(store),
        "model": str(model),
        "batch_size": 7,
        "max_tokens_per_micro_batch": 120,
    }
    tuned = {
        **{"task": "text", "model": str(model), "data": str(table), "epochs": 2, "batch_size": 5},
        **{"learning_rate": 1e-3, "device": "cpu", "precision": "fp32", "log_every": 1},
        "frozen": False,
    }
    calls = [
        ("pretrain", settings | {"out": str(folder / "replicas")}),
        ("pretrain", settings | {"out": str(folder / "shards"), "shard": True}),
        ("pretrain", settings | {"out": str(folder / "bf16"), "precision": "bf16", "steps": 2}),
        ("finetune", tuned | {"out": str(folder / "tuned")}),
    ]
    together(2, calls)
    found = {name: taken.run(folder / name) for name in ("replicas", "shards", "tuned")}
    return found | {"bf16": taken.brief(folder / "bf16")}


def together(count: int, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Call verbs of ``bertine`` in `count` processes, as ``torchrun`` would start them."""
    # The launcher keeps the store, and outlives the processes.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    lives = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", _CALLS, json.dumps(calls)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ
            | {
                "PYTHONPATH": str(Path(bertine.__file__).parents[1]),
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                # Not 1, which is what torchrun says where the user has said nothing.
                "OMP_NUM_THREADS": "2",
            },
        )
        for rank in range(count)
    ]
    try:
        told = [life.communicate(timeout=300)[0] for life in lives]
    finally:
        for life in lives:
            life.kill()
    for life, output in zip(lives, told, strict=True):
        assert life.returncode == 0, output


_CALLS = """
import json, sys
import torch
torch.set_num_threads(1)
import bertine
for verb, given in json.loads(sys.argv[1]):
    getattr(bertine, verb)(**given)
"""
