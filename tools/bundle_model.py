"""Put what ``recipes/hour`` made into the package, as ``bertine-en``.

    python recipes/hour --corpus BOOKS.jsonl.zst WIKI.jsonl.zst --glue GLUE --out HOUR
    python tools/bundle_model.py HOUR

Writes the hour's model in bf16, its vocabulary and its card with the scores of HOUR. Refuses a
model that has read an article of the demo.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch
from compressed_rows import read_lines, read_rows
from safetensors.torch import save_file

from bertine.files import atomic_dir, read_json, write_json, write_text
from bertine.interop.weights import read_weights

WEIGHTS = Path("src/bertine/weights/bertine-en")
#: None of its articles may be in the text.
DEMO = Path("src/bertine/demo/data")
#: At most so many bytes of weights in the package.
MOST_BYTES = 8_000_000

#: Task -> what it asks, its metric's name and key.
TASKS = {
    "CoLA": ("is a sentence good English?", "Matthews", "matthews"),
    "SST-2": ("is a review good or bad?", "accuracy", "accuracy"),
    "MRPC": ("do two sentences say the same?", "F1", "f1"),
    "STS-B": ("how alike are two sentences?", "Spearman", "spearman"),
    "RTE": ("does one sentence follow from the other?", "accuracy", "accuracy"),
}
#: How the runs of the hour are called, and the heading of their column.
WAYS = {"pre-trained": "score", "random-weights": "random weights"}


def documents(corpus: list[str]) -> dict[str, int]:
    """How many documents the files of a corpus have, by their names.

    Raises:
        SystemExit: an article of the demo is among them.
    """
    demo = {row["title"] for row in read_rows(DEMO / "articles.jsonl.zst")}
    demo |= {row["article"] for row in read_rows(DEMO / "subjects.jsonl.zst")}
    counts = {}
    for file in map(Path, corpus):
        name = file.name.split(".")[0]
        titles = [json.loads(line)["title"] for line in read_lines(file)]
        # A book may well be called like an article on it.
        if name == "wiki" and (both := demo & set(titles)):
            raise SystemExit(f"{file}: has articles of the demo: {', '.join(sorted(both)[:5])}")
        counts[name] = len(titles)
    return counts


CARD = """\
---
language: en
license: cc-by-sa-4.0
library_name: transformers
tags: [modernbert, fill-mask]
---

# bertine-en

A small English ModernBERT: {layers} layers of {hidden}, {parameters:.1f} million parameters, a
WordPiece vocabulary of {vocabulary:,} pieces (lower case), at most {positions} tokens. It comes
with Bertine and was trained by it, from raw text, in one hour on two cores of a CPU.

`--model bertine-en` works wherever a model directory does:

```bash
bertine finetune text --model bertine-en --data my.csv \\
    --text-column text --label-column label --out my-model
bertine fill-mask bertine-en "He opened the [MASK] and went out."
```

The folder is an ordinary Hugging Face model directory (`ModernBertForMaskedLM`, weights in bf16),
and `transformers` opens it.

## What it is good for

Use it when you have labels but no GPU and little time: it fine-tunes and answers quickly, and is
far better than random weights, above all with few labels.

## What it is not good for

- **Quality that matters.** Larger published models, which have read far more, are better on every
  task. Where one can be had, take it ([choose a model](../../../../docs/guides/choose-a-model.md)).
- **Facts and reasoning.** It has read little. Its guess for a hidden word is often the right kind
  of word, seldom the right word. Grammar (CoLA) and inference (RTE) are hardly above chance.
- **Sentence vectors as they come.** It was not trained to give similar sentences similar vectors.
- **Languages other than English**, long texts (it was trained on at most 128 tokens), code, slang
  and social media, and anything said after 2016 or so.
- **Decisions about people.** Its texts are novels of the 19th and early 20th century and an
  encyclopaedia, with the views of their times and authors.

## What it has read

- {books} books from the public domain, published before 1926 (novels, stories, essays).
- {articles:,} articles of the English Wikipedia, written by its contributors, under the
  [CC BY-SA 4.0](https://creativecommons.org/licenses/by-sa/4.0/) licence (Creative Commons
  Attribution-ShareAlike).

No article of the demo is among them. The weights come under the same licence, CC BY-SA 4.0.

## How it was made

`python recipes/hour` in Bertine's repository, {tokens:.0f} million tokens in {minutes:.0f} minutes
on two cores of an AMD EPYC, vocabulary and preparation included: 30% of the words hidden in
sequences of at most 64 tokens for most of the time, of 128 for the rest, with Muon. It ended at an
MLM loss of {mlm:.2f} nats, {accuracy:.0%} of the hidden words right, on its own text.

## Scores

Five tasks of GLUE, judged on their dev sets, times 100, each in the way that held-out training
examples chose (docs/hour.md): all weights trained, {seeds} seeds, mean and standard deviation, or
the head alone (`--frozen`), which has nothing random in it. Before CoLA a copy of the model learned
to tell sentences of the same text from damaged ones, which this folder has not.

{table}

For comparison: the published scores of Google's bert-tiny and bert-mini on these tasks, on GLUE's
hidden test sets, average 59.0 and 59.6. Those are other sentences, so compare with care.
"""


def spread(values: list[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def read_scores(finetuning: Path) -> dict[str, dict[str, list[float]]]:
    """The scores times 100 that the hour's fine-tuning runs left: way -> task -> one a seed. A way
    that is not complete is left out."""
    scores: dict[str, dict[str, list[float]]] = {}
    for way in WAYS:
        of = {
            task: [
                100 * read_json(file)[key]
                for file in sorted(finetuning.glob(f"{task}-{way}-?.json"))
            ]
            for task, (_, _, key) in TASKS.items()
        }
        if all(of.values()):
            scores[way] = of
    return scores


def glue_table(scores: dict[str, dict[str, list[float]]]) -> list[str]:
    """The card's table of what :func:`read_scores` gave."""
    rows = [
        f"| task | | {' | '.join(WAYS[way] for way in scores)} |",
        f"|---|---|{'---|' * len(scores)}",
    ]
    for task, (question, metric, _) in TASKS.items():
        cells = " | ".join(spread(scores[way][task]) for way in scores)
        rows.append(f"| {task}, {metric} | {question} | {cells} |")
    means = []
    for way in scores:
        count = max(map(len, scores[way].values()))
        # A head that is fitted alone has one score, whatever the seed.
        every = [own * count if len(own) == 1 else own for own in scores[way].values()]
        seeds = zip(*every, strict=True)
        means.append(spread([statistics.fmean(seed) for seed in seeds]))
    rows.append(f"| **average** | | {' | '.join(f'**{mean}**' for mean in means)} |")
    return rows


def pack(hour: Path, out: Path) -> None:
    """Write the model of the hour in `hour` into the folder `out`, with its card."""
    phases = ("short-sequences", "longer-sequences")
    model = hour / phases[-1] / "model"
    config: dict[str, Any] = read_json(model / "config.json")
    clock: dict[str, Any] = read_json(hour / "hour.json")
    counts = documents(clock["corpus"])
    scores = read_scores(hour / "finetuning")
    if not scores:
        raise SystemExit(f"{hour}: its fine-tuning is not complete, so that there are no scores")
    logs = [
        [json.loads(line) for line in (hour / phase / "log.jsonl").read_text().splitlines()]
        for phase in phases
    ]
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(model).items()
    }
    with atomic_dir(out) as folder:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        size = (folder / "model.safetensors").stat().st_size
        if size > MOST_BYTES:
            raise SystemExit(f"the weights are {size:,} bytes, more than {MOST_BYTES:,}")
        # Fine-tuning wants dropout, which an hour of pre-training did not.
        rates = ("attention_dropout", "mlp_dropout", "embedding_dropout", "classifier_dropout")
        dropout = dict.fromkeys(rates, 0.1)
        # Older and newer versions of transformers have their own key each.
        precision = dict.fromkeys(("dtype", "torch_dtype"), "bfloat16")
        write_json(folder / "config.json", config | dropout | precision)
        for name in ("vocab.txt", "tokenizer_config.json"):
            shutil.copyfile(model / name, folder / name)
        # Half the size without the line ends of the original.
        backend = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
        write_text(
            folder / "tokenizer.json",
            json.dumps(backend, ensure_ascii=False, separators=(",", ":")) + "\n",
        )
        end = logs[-1][-8:]
        write_text(
            folder / "README.md",
            CARD.format(
                layers=config["num_hidden_layers"],
                hidden=config["hidden_size"],
                parameters=sum(tensor.numel() for tensor in tensors.values()) / 1e6,
                vocabulary=config["vocab_size"],
                positions=config["max_position_embeddings"],
                books=counts["books"],
                articles=counts["wiki"],
                tokens=sum(log[-1]["tokens"] for log in logs) / 1e6,
                minutes=sum(
                    seconds
                    for name, seconds in clock["seconds"].items()
                    if name in ("vocabulary", "preparation", *phases)
                )
                / 60,
                mlm=statistics.fmean(line["loss"] for line in end),
                accuracy=statistics.fmean(line["accuracy"] for line in end),
                seeds=len(scores["pre-trained"]["CoLA"]),
                table="\n".join(glue_table(scores)),
            ),
        )
    for file in sorted(out.iterdir()):
        print(f"{file}: {file.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("hour", type=Path, help="the folder of recipes/hour")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    pack(options.hour, options.out)


if __name__ == "__main__":
    main()
