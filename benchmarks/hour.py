"""The hour of ``recipes/hour`` with ``transformers``: the same text, time, cores and tasks.

    python benchmarks/hour.py --corpus FILE ... --data FOLDER --out FOLDER

What one would write by its documentation: a WordPiece vocabulary by ``tokenizers``, the text in
blocks of 128 tokens, ``BertForMaskedLM`` of bert-mini's shape with 15% of the tokens masked anew
every time, AdamW and a linear schedule; in the settings that are fastest on a CPU (bf16 autocast,
fused AdamW, freed memory kept). Vocabulary, encoding and training share the time. Then the five
tasks are fine-tuned by the loop of ``tasks.py``. Killed and started again, it goes on with the
fine-tuning if the model is done.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Worker, describe_machine, machine, print_table, save_json
from sides import theirs
from sides.settings import TASKS, Setting

from bertine.core.process import keep_freed_memory
from bertine.tokenization.documents import Corpus

VOCAB_SIZE = 8_192
LENGTH, BATCH = 128, 32
MASKED = 0.15
LEARNING_RATE, WARM_UP, WEIGHT_DECAY = 5e-4, 0.05, 0.01
#: Paragraphs that are encoded at once.
_PARAGRAPHS = 256
#: Steps whose pace says how many there is time for, after one that does not count.
_TRIED = 20
#: What each task is judged by, and its passes over the training set, as in ``recipes/hour``; those
#: that have the head alone there have as many as are usual.
TASKS_HERE = {
    "CoLA": ("matthews", 10),
    "SST-2": ("accuracy", 2),
    "MRPC": ("f1", 3),
    "STS-B": ("spearman", 5),
    "RTE": ("accuracy", 3),
}


def texts(corpus: Sequence[Path]) -> Iterator[str]:
    return (document.text for document in Corpus(list(corpus)))


def train_tokenizer(corpus: Sequence[Path], out: Path) -> Any:
    """Train a vocabulary, and return the tokenizer of transformers with it."""
    import transformers
    from tokenizers import BertWordPieceTokenizer

    learner = BertWordPieceTokenizer(lowercase=True)
    lines = (line for text in texts(corpus) for line in text.split("\n"))
    learner.train_from_iterator(lines, vocab_size=VOCAB_SIZE, show_progress=False)
    out.mkdir(parents=True, exist_ok=True)
    learner.save_model(str(out))
    # Both major versions have it, but not for a type checker.
    library: Any = transformers
    return library.BertTokenizerFast(str(out / "vocab.txt"))


def encode(corpus: Sequence[Path], tokenizer: Any) -> torch.Tensor:
    """Encode the text into blocks int64 [N, LENGTH]: paragraphs with their special tokens, one
    after the other, cut where a block is full."""
    ids: list[np.ndarray] = []
    waiting: list[str] = []

    def flush() -> None:
        for row in tokenizer(waiting, return_attention_mask=False)["input_ids"]:
            ids.append(np.array(row, dtype=np.uint16))
        waiting.clear()

    for text in texts(corpus):
        # Paragraphs: the tokenizer's memory grows with the length of a text.
        waiting.extend(part for part in text.split("\n\n") if part.strip())
        if len(waiting) >= _PARAGRAPHS:
            flush()
    if waiting:
        flush()
    stream = np.concatenate(ids)
    whole = len(stream) // LENGTH * LENGTH
    return torch.from_numpy(stream[:whole].reshape(-1, LENGTH).astype(np.int64))


def pretrain(
    blocks: torch.Tensor, tokenizer: Any, ends: float, out: Path, *, steps: int | None
) -> dict[str, float]:
    """Train until the clock shows `ends`, as many steps as there is time for at the pace of the
    first ones, or so many `steps` whatever the clock shows; save the model, and return what it
    saw."""
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        DataCollatorForLanguageModeling,
        get_linear_schedule_with_warmup,
    )

    torch.manual_seed(0)
    keep_freed_memory()
    model: Any = BertForMaskedLM(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            max_position_embeddings=512,
        )
    )
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED)
    optimizer = torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
    )
    order = torch.randperm(len(blocks))

    def step(number: int) -> float:
        chosen = order[torch.arange(number * BATCH, (number + 1) * BATCH) % len(blocks)]
        batch = collate([{"input_ids": blocks[at]} for at in chosen.tolist()])
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=batch["input_ids"], labels=batch["labels"]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    # The first steps are at the rate at which warming up begins, about none.
    for group in optimizer.param_groups:
        group["lr"] = 1e-6
    step(0)
    began = time.monotonic()
    for number in range(_TRIED):
        step(1 + number)
    pace = (time.monotonic() - began) / _TRIED
    planned = steps or max(1, int((ends - time.monotonic()) / pace))
    print(f"{planned:,} steps, {pace:.2f} s each", flush=True)
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE
    schedule = get_linear_schedule_with_warmup(optimizer, round(WARM_UP * planned), planned)
    losses: list[float] = []
    model.train()
    while len(losses) < planned and (steps or time.monotonic() < ends or not losses):
        losses.append(step(1 + _TRIED + len(losses)))
        schedule.step()
        if len(losses) % 200 == 0:
            mean = statistics.fmean(losses[-200:])
            print(f"step {len(losses)} of {planned}: loss {mean:.3f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    tokens = (1 + _TRIED + len(losses)) * BATCH * LENGTH
    return {
        "steps": len(losses),
        "planned": planned,
        "tokens": tokens,
        "loss": statistics.fmean(losses[-200:]),
    }


def make_model(
    corpus: Sequence[Path], out: Path, minutes: float, *, steps: int | None
) -> dict[str, float]:
    """Make the model within the time, or with so many `steps`; return the seconds of each part and
    what it saw."""
    began = time.monotonic()
    tokenizer = train_tokenizer(corpus, out / "vocab")
    vocabulary = time.monotonic() - began
    blocks = encode(corpus, tokenizer)
    encoding = time.monotonic() - began - vocabulary
    print(f"vocabulary {vocabulary:.0f} s, encoding {encoding:.0f} s", flush=True)
    ends = began + 60 * minutes
    seen = pretrain(blocks, tokenizer, ends, out / "model", steps=steps)
    seconds = {"vocabulary": vocabulary, "encoding": encoding, "all": time.monotonic() - began}
    return seconds | seen


def finetune(setting: Setting, threads: int) -> float:
    """Fine-tune once, and return its score times 100."""
    way = theirs.WAYS["best"]
    with Worker("transformers", threads, theirs.whole_run, setting, way) as worker:
        result = worker.turn()
    return 100 * float(result["scores"][TASKS_HERE[setting.task.name][0]])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The hour of recipes/hour with transformers.")
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--data", type=Path, required=True, help="a folder with GLUE in its folder glue"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3, help="fine-tuning runs a task")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="of fine-tuning")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--steps",
        type=int,
        help="train so many steps however long they take: as many as a run on a quiet machine "
        "planned, where other work now slows this one",
    )
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    print(describe_machine(machine(args.threads)), flush=True)
    file = args.out / "hour.json"
    settings = {
        "corpus": [str(path.absolute()) for path in args.corpus],
        "minutes": args.minutes,
        "learning_rate": args.learning_rate,
        "tasks": {name: list(values) for name, values in TASKS_HERE.items()},
    }
    if not file.exists():
        args.out.mkdir(parents=True, exist_ok=True)
        made = make_model(args.corpus, args.out, args.minutes, steps=args.steps)
        save_json(file, {"settings": settings, "made": made, "scores": {}})
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if result["settings"] != settings:
        raise SystemExit(f"{file}: was made with other settings; name another folder")
    print(", ".join(f"{name} {value:,.4g}" for name, value in result["made"].items()), flush=True)
    for name, (metric, epochs) in TASKS_HERE.items():
        task = TASKS[name]
        scores = result["scores"].setdefault(name, [])
        setting = Setting(
            task=task,
            model=args.out / "model",
            data=args.data / task.folder,
            scorers=args.data / "squad",
            epochs=epochs,
            batch_size=32,
            learning_rate=args.learning_rate,
            max_length=task.max_length,
        )
        while len(scores) < args.seeds:
            scores.append(finetune(dataclasses.replace(setting, seed=len(scores)), args.threads))
            print(f"{name}, seed {len(scores) - 1}: {metric} {scores[-1]:.1f}", flush=True)
            save_json(file, result)
    every = {name: result["scores"][name][: args.seeds] for name in TASKS_HERE}
    rows = [[name, TASKS_HERE[name][0], _spread(scores)] for name, scores in every.items()]
    seeds = zip(*every.values(), strict=True)
    rows.append(["average", "", _spread([statistics.fmean(seed) for seed in seeds])])
    print_table(["task", "metric", "transformers"], rows)


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


if __name__ == "__main__":
    main()
