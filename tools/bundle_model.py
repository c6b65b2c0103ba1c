"""Put what ``recipes/hour`` made into the package, as ``bertine-en`` or ``bertine-zh``.

    python recipes/hour --model bertine-zh --corpus WIKI-ZH.jsonl.zst --tasks ZH --out ZH-MODEL
    python tools/bundle_model.py bertine-zh ZH-MODEL --machine "two cores of an AMD EPYC"

Writes the model in bf16, its vocabulary and its card (from ``tools/cards``) with the scores of its
fine-tuning. Refuses a model that has read an article of the demo; ``tools/leave_out_demo.py``
writes a corpus without them.
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

from bertine.files import atomic_dir, read_json, write_json, write_text
from bertine.interop.weights import read_weights
from bertine.terminal.console import human_time

WEIGHTS = Path("src/bertine/weights")
CARDS = Path(__file__).with_name("cards")
#: None of its articles may be in the text.
DEMO = Path("src/bertine/demo/data")
#: At most so many bytes of weights in the package.
MOST_BYTES = 16_000_000


class TaskRow(NamedTuple):
    question: str
    metric: str
    key: str


TASKS = {
    "bertine-en": {
        "CoLA": TaskRow("is a sentence good English?", "Matthews", "matthews"),
        "SST-2": TaskRow("is a review good or bad?", "accuracy", "accuracy"),
        "MRPC": TaskRow("do two sentences say the same?", "F1", "f1"),
        "STS-B": TaskRow("how alike are two sentences?", "Spearman", "spearman"),
        "RTE": TaskRow("does one sentence follow from the other?", "accuracy", "accuracy"),
    },
    "bertine-zh": {
        "topics": TaskRow("what is a sentence about?", "accuracy", "accuracy"),
        "paraphrases": TaskRow("do two sentences say the same?", "accuracy", "accuracy"),
        "entities": TaskRow("which words are names?", "F1", "f1"),
        "questions": TaskRow("where is the answer?", "F1", "f1"),
    },
}
#: How the runs of the recipe are called, and the heading of their column.
WAYS = {"pre-trained": "score", "random-weights": "random weights"}


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
        wiki = file.name.startswith("wiki")
        # A book may well be called like an article on it.
        if wiki and (both := demo & set(titles)):
            raise SystemExit(f"{file}: has articles of the demo: {', '.join(sorted(both)[:5])}")
        language = "Chinese" if "-zh" in file.name else "English"
        kind = f"articles of the {language} Wikipedia" if wiki else "books"
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(f"- {len(titles):,} {kind} (`{file.name}`, sha256 `{digest[:16]}…`)")
    return lines


def spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def read_scores(finetuning: Path, tasks: Mapping[str, TaskRow]) -> dict[str, dict[str, Any]]:
    """Read the scores times 100 that the fine-tuning runs left: way -> task -> one a seed. A way
    that is not complete is left out."""
    scores: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        of = {
            task: [
                100 * read_json(file)[row.key]
                for file in sorted(finetuning.glob(f"{task}-{way}-?.json"))
            ]
            for task, row in tasks.items()
        }
        if all(of.values()):
            scores[way] = of
    return scores


def score_table(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    tasks: Mapping[str, TaskRow],
    tf_idf: Mapping[str, float],
) -> list[str]:
    """Return the card's table of what :func:`read_scores` gave, and of tf-idf where it is known."""
    heads = [*(WAYS[way] for way in scores), *(["tf-idf"] if tf_idf else [])]
    rows = [f"| task | | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for task, row in tasks.items():
        cells = [spread(scores[way][task]) for way in scores]
        if tf_idf:
            cells.append(f"{tf_idf[task]:.1f}" if task in tf_idf else "")
        rows.append(f"| {task}, {row.metric} | {row.question} | {' | '.join(cells)} |")
    means = []
    for way in scores:
        count = max(map(len, scores[way].values()))
        # A head that is fitted alone has one score, whatever the seed.
        every = [
            own if len(own) == count else [statistics.fmean(own)] * count
            for own in scores[way].values()
        ]
        means.append(f"**{spread([statistics.fmean(seed) for seed in zip(*every, strict=True)])}**")
    if tf_idf:
        whole = tf_idf.keys() >= tasks.keys()
        means.append(f"**{statistics.fmean(tf_idf.values()):.1f}**" if whole else "")
    rows.append(f"| **average** | | {' | '.join(means)} |")
    return rows


def pack(name: str, made: Path, out: Path, *, machine: str, blimp: float | None) -> None:
    """Write the model that the recipe made in the folder `made` into the folder `out`, with its
    card.

    Args:
        name: of the model.
        machine: on which it was trained, for people.
        blimp: its accuracy on BLiMP, times 100.
    """
    clock: dict[str, Any] = read_json(made / "hour.json")
    phases = [phase["name"] for phase in clock["recipe"]["phases"]]
    model = made / phases[-1] / "model"
    config: dict[str, Any] = read_json(model / "config.json")
    scores = read_scores(made / "finetuning", TASKS[name])
    if not scores:
        raise SystemExit(f"{made}: its fine-tuning is not complete, so that there are no scores")
    logs = [
        [json.loads(line) for line in (made / phase / "log.jsonl").read_text().splitlines()]
        for phase in phases
    ]
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(model).items()
    }
    beside = made / "tf-idf.json"
    tf_idf: dict[str, float] = read_json(beside) if beside.exists() else {}
    tokens = sum(log[-1]["tokens"] for log in logs)
    settings = read_json(made / phases[-1] / "run.json")["settings"]
    seconds = [clock["seconds"][stage] for stage in ("vocabulary", "preparation", *phases)]
    end = logs[-1][-8:]
    with atomic_dir(out) as folder:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        size = (folder / "model.safetensors").stat().st_size
        if size > MOST_BYTES:
            raise SystemExit(f"the weights are {size:,} bytes, more than {MOST_BYTES:,}")
        # Fine-tuning wants dropout, which so short a pre-training did not.
        rates = ("attention_dropout", "mlp_dropout", "embedding_dropout", "classifier_dropout")
        dropout = dict.fromkeys(rates, 0.1)
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
        card = (CARDS / f"{name}.md").read_text(encoding="utf-8")
        write_text(
            folder / "README.md",
            card.format(
                layers=config["num_hidden_layers"],
                hidden=config["hidden_size"],
                parameters=sum(tensor.numel() for tensor in tensors.values()) / 1e6,
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
                table="\n".join(score_table(scores, TASKS[name], tf_idf)),
                blimp="" if blimp is None else f"BLiMP (`bertine blimp {name}`): {blimp:.1f}%.",
            ),
        )
    for path in sorted(out.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("name", choices=TASKS)
    parser.add_argument("made", type=Path, help="the folder of recipes/hour")
    parser.add_argument("--machine", required=True, help='such as "two cores of an AMD EPYC"')
    parser.add_argument("--blimp", type=float, help="its accuracy there, in percent")
    parser.add_argument("--out", type=Path, help="the folder (that of the package)")
    given = parser.parse_args()
    out = given.out or WEIGHTS / given.name
    pack(given.name, given.made, out, machine=given.machine, blimp=given.blimp)


if __name__ == "__main__":
    main()
