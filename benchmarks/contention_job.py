"""What ``contention.py`` measures, each in a process of its own: one work by one system.

    python benchmarks/contention_job.py prepare FOLDER
    python benchmarks/contention_job.py bertine|transformers WORK FOLDER

The process says ``ready`` when it is warm, then works for as many seconds as each line of standard
input says, and answers with units of work and seconds. PyTorch is loaded as it is by the commands
of each system: by ours after ``import bertine``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: One piece of work; how many units it was.
Piece = Callable[[], int]

LABELS = ("one", "two", "three", "four")
#: Sequences and tokens of a pre-training step; texts of a fine-tuning step; texts of a call.
PRETRAIN_SHAPE, FINETUNE_TEXTS, CALL_TEXTS = (64, 32), 32, 64
LEARNING_RATE = 1e-5


def prepare(folder: Path) -> None:
    """A classifier over all-MiniLM-L6-v2 with a random head, and the demo's passages."""
    import bertine  # noqa: I001  before PyTorch
    from common import minilm

    from bertine.contrib.demo import texts
    from bertine.hub.model_directory import load_model, save_model
    from bertine.tasks.classification import TextClassification

    config = bertine.load_model(minilm()).config
    task = TextClassification(LABELS, ("text",), "label", 128)
    loaded = load_model(minilm(), heads=task.heads(config))
    save_model(folder / "model", loaded.model, loaded.tokenizer, task=task.task_info())
    found = [passage.text for passage in texts.passages("validation")][:CALL_TEXTS]
    (folder / "texts.json").write_text(json.dumps(found), encoding="utf-8")


def _random_step(vocab_size: int) -> tuple[Any, Any, Any]:
    """Token ids, what is to be predicted (-100 elsewhere), and whether B follows A."""
    import torch

    torch.manual_seed(0)
    ids = torch.randint(1000, vocab_size, PRETRAIN_SHAPE)
    labels = torch.where(torch.rand(PRETRAIN_SHAPE) < 0.15, ids, torch.full_like(ids, -100))
    return ids, labels, torch.randint(0, 2, PRETRAIN_SHAPE[:1])


def bertine_pretrain(folder: Path) -> Piece:
    """A step of bert-tiny, as ``fit`` makes it."""
    from bertine import preset
    from bertine.corpora.batch import Batch
    from bertine.models.heads import Model
    from bertine.objectives.losses import MlmNsp

    config = preset("bert-tiny")
    ids, labels, follows = _random_step(config.vocab_size)
    places = (labels.view(-1) != -100).nonzero()[:, 0]
    targets = {
        "mlm_positions": places,
        "mlm_labels": labels.view(-1)[places],
        "next_sentence_label": follows,
    }
    batch = Batch(ids, ids > 0, ids * 0, targets)
    return _bertine_step(Model(config, MlmNsp.heads(config)), MlmNsp(), [batch], ids.numel())


def bertine_finetune(folder: Path) -> Piece:
    from bertine.data.examples import Example, Examples
    from bertine.hub.model_directory import load_model
    from bertine.tasks.classification import TextClassification

    loaded = load_model(folder / "model")
    task = TextClassification(LABELS, ("text",), "label", 128)
    items = [
        Example((text,), label=LABELS[i % len(LABELS)]) for i, text in enumerate(_texts(folder))
    ]
    features = task.featurize(Examples("texts", ("text",), "label", items), loaded.tokenizer)
    size = FINETUNE_TEXTS
    batches = [
        task.collate(features[at : at + size], loaded.tokenizer.pad_token_id)
        for at in range(0, len(features), size)
    ]
    return _bertine_step(loaded.model, task, batches, size)


def _bertine_step(model: Any, objective: Any, batches: list[Any], units: int) -> Piece:
    import torch

    from bertine.core.process import keep_freed_memory
    from bertine.corpora.batch import split
    from bertine.training.adamw import AdamW, row_gradients
    from bertine.training.step import CPU_MICRO_BATCH, accumulate

    keep_freed_memory()
    model.train()
    optimizer = AdamW(model)
    done = 0

    def step() -> int:
        nonlocal done
        parts = split(batches[done % len(batches)], CPU_MICRO_BATCH)
        with row_gradients(model):
            accumulate(model, objective, parts, dtype=torch.bfloat16, seeds=[0, done])
            optimizer.clipped_step(LEARNING_RATE, 1.0)
            optimizer.zero_grad(set_to_none=True)
        done += 1
        return units

    return step


def bertine_predict(folder: Path) -> Piece:
    from bertine import Predictor

    predictor, texts = Predictor.load(folder / "model"), _texts(folder)
    return lambda: len(predictor.predict(texts))


def bertine_embed(folder: Path) -> Piece:
    from bertine import Embedder

    embedder, texts = Embedder.load(folder / "model"), _texts(folder)
    return lambda: len(embedder.embed(texts))


def transformers_pretrain(folder: Path) -> Piece:
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    ids, labels, follows = _random_step(config.vocab_size)
    inputs = {"input_ids": ids, "labels": labels, "next_sentence_label": follows}
    return _transformers_step(BertForPreTraining(config), [inputs], ids.numel())


def transformers_finetune(folder: Path) -> Piece:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    texts, size = _texts(folder), FINETUNE_TEXTS
    batches = [
        {
            **tokenizer(texts[at : at + size], padding=True, truncation=True, return_tensors="pt"),
            "labels": torch.arange(at, min(at + size, len(texts))) % len(LABELS),
        }
        for at in range(0, len(texts), size)
    ]
    return _transformers_step(model, batches, size)


def _transformers_step(model: Any, batches: list[dict[str, Any]], units: int) -> Piece:
    import torch

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    done = 0

    def step() -> int:
        nonlocal done
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**batches[done % len(batches)]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        return units

    return step


def transformers_predict(folder: Path) -> Piece:
    classify, texts = _pipeline(folder), _texts(folder)
    return lambda: len(classify(texts, batch_size=32))


def _pipeline(folder: Path) -> Any:
    from transformers import pipeline

    return pipeline("text-classification", model=str(folder / "model"), device="cpu")


def transformers_embed(folder: Path) -> Piece:
    """The mean of the tokens, as the model's page shows it."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "model")
    model: Any = AutoModel.from_pretrained(folder / "model").eval()
    texts = sorted(_texts(folder), key=len)

    def run() -> int:
        with torch.inference_mode():
            for at in range(0, len(texts), 32):
                inputs = tokenizer(
                    texts[at : at + 32], padding=True, truncation=True, return_tensors="pt"
                )
                mask = inputs["attention_mask"][..., None]
                (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
        return len(texts)

    return run


def transformers_serve(folder: Path) -> None:
    """A pipeline behind FastAPI, one request at a time."""
    import uvicorn
    from fastapi import Body, FastAPI

    classify, app = _pipeline(folder), FastAPI()
    body: Any = Body(embed=True)

    @app.post("/predict")
    async def predict(texts: list[str] = body) -> Any:
        return classify(texts)

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    real = server.startup

    async def startup(sockets: Any = None) -> None:
        await real(sockets)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}/", file=sys.stderr, flush=True)

    server.startup = startup  # type: ignore[method-assign]
    server.run()


def _texts(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    return found


def main() -> None:
    system, work = sys.argv[1], sys.argv[2]
    if system == "prepare":
        prepare(Path(work))
        return
    folder = Path(sys.argv[3])
    if system == "bertine":
        import bertine  # noqa: F401  before PyTorch
    if work == "serve":
        transformers_serve(folder)
        return
    piece: Piece = globals()[f"{system}_{work}"](folder)
    piece()
    piece()
    print("ready", flush=True)
    for line in sys.stdin:
        units, began = 0, time.perf_counter()
        while time.perf_counter() - began < float(line):
            units += piece()
        print(json.dumps([units, time.perf_counter() - began]), flush=True)


if __name__ == "__main__":
    main()
