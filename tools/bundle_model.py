"""Put a model into the package: what ``recipes/hour`` made, as ``bertine-en`` or ``bertine-zh``, or
the last run of ``recipes/bert``, as ``bertine-bert``.

    python recipes/hour --model bertine-zh --corpus WIKI-ZH.jsonl.zst --tasks ZH --out ZH-MODEL
    python tools/bundle_model.py bertine-zh ZH-MODEL --machine "two cores of an AMD EPYC"
    python tools/bundle_model.py bertine-bert RUN

Writes the model in bf16, its vocabulary and its card (from ``tools/cards``) with the scores of its
fine-tuning; the card of ``bertine-bert`` is written by hand. Refuses a model of the hour that has
read an article of the demo; ``tools/leave_out_demo.py`` writes a corpus without them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from compressed_rows import read_lines, read_rows
from safetensors.torch import save_file

from bertine.core.console import human_time
from bertine.core.files import atomic_dir, read_json, write_json, write_text
from bertine.hub.weights import read_weights

WEIGHTS = Path("src/bertine/weights")
CARDS = Path(__file__).with_name("cards")
#: None of its articles may be in the text.
DEMO = Path("src/bertine/contrib/demo/data")
#: At most so many bytes of weights in the package.
MOST_BYTES = 16_000_000


class TaskRow(NamedTuple):
    question: str
    metric: str


TASKS = {
    "bertine-en": {
        "CoLA": TaskRow("is a sentence good English?", "Matthews"),
        "SST-2": TaskRow("is a review good or bad?", "accuracy"),
        "MRPC": TaskRow("do two sentences say the same?", "F1"),
        "STS-B": TaskRow("how alike are two sentences?", "Spearman"),
        "RTE": TaskRow("does one sentence follow from the other?", "accuracy"),
    },
    "bertine-zh": {
        "topics": TaskRow("what is a sentence about?", "accuracy"),
        "paraphrases": TaskRow("do two sentences say the same?", "accuracy"),
        "entities": TaskRow("which words are names?", "F1"),
        "questions": TaskRow("where is the answer?", "F1"),
    },
}
#: What the recipe compares, and the heading of its column.
WAYS = {
    "pre-trained": "score",
    "random weights": "random weights",
    "no model": "no model: tf-idf or the like",
}


def demo_articles() -> set[str]:
    """Return the titles of the demo's articles."""
    titles = {row["title"] for row in read_rows(DEMO / "articles.jsonl.zst")}
    return titles | {row["article"] for row in read_rows(DEMO / "subjects.jsonl.zst")}


def corpus_lines(corpus: Sequence[str]) -> list[str]:
    """Return a line of a list for each file of a corpus: its documents and its hash.

    Raises:
        SystemExit: an article of the demo is among them.
    """
    lines, demo = [], demo_articles()
    for file in map(Path, corpus):
        titles = [json.loads(line)["title"] for line in read_lines(file)]
        chinese, wiki = "-zh" in file.name, file.name.startswith("wiki")
        # A book, or an article in another language, may well be called like one of the demo's.
        if wiki and not chinese and (both := demo & set(titles)):
            raise SystemExit(f"{file}: has articles of the demo: {', '.join(sorted(both)[:5])}")
        kind = f"articles of the {'Chinese' if chinese else 'English'} Wikipedia"
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(
            f"- {len(titles):,} {kind if wiki else 'books'} (`{file.name}`, sha256 "
            f"`{digest[:16]}…`)"
        )
    return lines


def spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def score_table(
    scores: Mapping[str, Mapping[str, Sequence[float]]], tasks: Mapping[str, TaskRow]
) -> list[str]:
    """Return the card's table of the recipe's ``scores.json``: way → task → one score a seed."""
    rows = [
        f"| task | | {' | '.join(WAYS[way] for way in scores)} |",
        f"|---|---|{'---|' * len(scores)}",
    ]
    for task, row in tasks.items():
        cells = " | ".join(spread(scores[way][task]) for way in scores)
        rows.append(f"| {task}, {row.metric} | {row.question} | {cells} |")
    means = []
    for way in scores:
        count = max(map(len, scores[way].values()))
        # Where nothing is random there is one score, whatever the seed.
        every = [own * count if len(own) == 1 else own for own in map(list, scores[way].values())]
        means.append(f"**{spread([statistics.fmean(seed) for seed in zip(*every, strict=True)])}**")
    rows.append(f"| **average** | | {' | '.join(means)} |")
    return rows


def write_model(model: Path, folder: Path) -> int:
    """Write a model in bf16 and its tokenizer; return the number of parameters."""
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(model).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    size = (folder / "model.safetensors").stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"the weights are {size:,} bytes, more than {MOST_BYTES:,}")
    config: dict[str, Any] = read_json(model / "config.json")
    # Fine-tuning wants dropout, which so short a pre-training did not.
    dropout = {key: 0.1 for key in config if "dropout" in key}
    # Older and newer versions of transformers have their own key each.
    precision = dict.fromkeys(("dtype", "torch_dtype"), "bfloat16")
    write_json(folder / "config.json", config | dropout | precision)
    for file in ("vocab.txt", "tokenizer_config.json"):
        shutil.copyfile(model / file, folder / file)
    # Half the size without the line ends of the original.
    backend = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    write_text(
        folder / "tokenizer.json",
        json.dumps(backend, ensure_ascii=False, separators=(",", ":")) + "\n",
    )
    return sum(tensor.numel() for tensor in tensors.values())


def pack(name: str, made: Path, out: Path, *, machine: str, blimp: str) -> None:
    """Write the model that the recipe made in the folder `made` into the folder `out`, with its
    card.

    Args:
        name: of the model.
        machine: on which it was trained, for people.
        blimp: of an English model, its accuracy on BLiMP, for people.
    """
    clock: dict[str, Any] = read_json(made / "hour.json")
    if clock["model"] != name:
        raise SystemExit(f"{made}: was made with --model {clock['model']}, not {name}")
    if not (made / "scores.json").exists():
        raise SystemExit(f"{made}: its fine-tuning is not complete, so that there are no scores")
    scores: dict[str, dict[str, list[float]]] = read_json(made / "scores.json")
    phases = [phase["name"] for phase in clock["recipe"]["phases"]]
    model = made / phases[-1] / "model"
    config: dict[str, Any] = read_json(model / "config.json")
    logs = [
        [json.loads(line) for line in (made / phase / "log.jsonl").read_text().splitlines()]
        for phase in phases
    ]
    tokens = sum(log[-1]["tokens"] for log in logs)
    settings = read_json(made / phases[-1] / "run.json")["settings"]
    seconds = [clock["seconds"][stage] for stage in ("vocabulary", "preparation", *phases)]
    end = logs[-1][-8:]
    with atomic_dir(out) as folder:
        parameters = write_model(model, folder)
        card = (CARDS / f"{name}.md").read_text(encoding="utf-8")
        write_text(
            folder / "README.md",
            card.format(
                layers=config["num_hidden_layers"],
                hidden=config["hidden_size"],
                parameters=parameters / 1e6,
                vocabulary=config["vocab_size"],
                positions=config["max_position_embeddings"],
                corpus="\n".join(corpus_lines(clock["corpus"])),
                tokens=tokens / 1e6,
                epochs=tokens / settings["num_tokens"],
                time=human_time(sum(seconds)),
                machine=machine,
                mlm=statistics.fmean(line["loss"] for line in end),
                accuracy=statistics.fmean(line["accuracy"] for line in end),
                seeds=max(map(len, scores["pre-trained"].values())),
                table="\n".join(score_table(scores, TASKS[name])),
                blimp=f"BLiMP (`bertine blimp {name}`): {blimp}.",
            ),
        )
    for path in sorted(out.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("name", choices=[*TASKS, "bertine-bert"])
    parser.add_argument("made", type=Path, help="the folder of recipes/hour, or a run")
    parser.add_argument("--machine", help='such as "two cores of an AMD EPYC"')
    parser.add_argument("--blimp", help="what bertine blimp gives, such as 66.1%%")
    parser.add_argument("--out", type=Path, help="the folder (that of the package)")
    given = parser.parse_args()
    out = given.out or WEIGHTS / given.name
    if given.name not in TASKS:
        out.mkdir(exist_ok=True)
        write_model(given.made / "model", out)
        return
    if given.machine is None:
        parser.error("--machine is needed for the card")
    if (given.blimp is None) != (given.name == "bertine-zh"):
        parser.error("--blimp is for the English model, and needed there")
    pack(given.name, given.made, out, machine=given.machine, blimp=given.blimp or "")


if __name__ == "__main__":
    main()
