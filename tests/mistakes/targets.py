"""What is damaged, and the commands that read it: sound files, made once, of every kind."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl

import annotated
import bertine
import squad_files
import tagged
import toys

#: Made from the folder of the case (a copy of the sound files) and of what is damaged in it.
Command = Callable[[Path, Path], list[object]]

#: A TensorFlow checkpoint, with the licence of those who made it.
GOOGLE = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "keras-bert-tiny"
#: What LibreOffice has written.
WORKBOOKS = Path(__file__).parents[1] / "fixtures" / "workbooks"
FAST = ["--precision", "fp32"]


@dataclass(frozen=True)
class Target:
    """Files of one folder that are damaged, one at a time, and the commands that then read them.

    Attributes:
        folder: that is copied for a case, within the sound files.
        files: patterns of what is damaged in it.
        commands: of which one is run.
        weight: how often it is chosen.
    """

    folder: str
    files: tuple[str, ...]
    commands: tuple[Command, ...]
    weight: int = 4


def make_untrained(home: Path) -> None:
    """Write the sound folders that need no training: a model, one of sentence-transformers, a
    store, tables."""
    toys.write_model(home / "model")
    toys.write_store(home / "store", 12)
    shutil.copytree(GOOGLE, home / "google")
    sentence = home / "sentence"
    shutil.copytree(home / "model", sentence)
    types = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"models.{kind}"}
        for i, kind in enumerate(types)
    ]
    (sentence / "1_Pooling").mkdir()
    (sentence / "2_Normalize").mkdir()
    files: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"embedding_dimension": 32, "pooling_mode": "mean"},
        "2_Normalize/config.json": {},
        "sentence_bert_config.json": {"max_seq_length": 32, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": "the old ", "document": ""},
            "default_prompt_name": "query",
            "truncate_dim": 16,
        },
    }
    for name, value in files.items():
        (sentence / name).write_text(json.dumps(value))
    _tables(home)
    _formats(home / "formats")
    np.save(home / "tables" / "vectors.npy", np.random.rand(24, 32).astype(np.float32))


def make_sound_files(home: Path) -> None:
    """Write one sound folder for each of `TARGETS`: models of all tasks, runs, stores, tables."""
    make_untrained(home)
    quick: dict[str, Any] = {"epochs": 1, "batch_size": 8, "frozen": False, "precision": "fp32"}
    for task, name, options in (
        ("text", "train.csv", {"max_length": 16}),
        ("regression", "numbers.csv", {"max_length": 16}),
        ("multi-label", "many.csv", {"max_length": 16}),
        ("choice", "choice.csv", {"max_length": 24}),
        ("tagging", "train.conll", {"max_length": 24}),
        ("spans", "spans.csv", {"max_length": 32, "doc_stride": 8, "max_question_length": 10}),
    ):
        bertine.finetune(
            task,
            model=home / "model",
            data=home / "tables" / name,
            out=home / f"run-{task}",
            **quick,
            **options,
        )
    bertine.finetune(
        "text",
        model=home / "model",
        data=home / "tables" / "pairs.csv",
        out=home / "run-pairs",
        frozen=True,
        precision="fp32",
        max_length=24,
    )
    bertine.pretrain(
        home / "store",
        model=home / "model",
        out=home / "run-pretrain",
        steps=2,
        max_seq_length=32,
        batch_size=2,
        checkpoint_every=1,
        precision="fp32",
    )
    shutil.copytree(home / "run-pretrain", home / "stopped")
    shutil.rmtree(home / "stopped" / "model")


def _tables(home: Path) -> None:
    folder = home / "tables"
    folder.mkdir()
    toys.write_labelled(folder / "train.csv", 24)
    lines = (folder / "train.csv").read_text().splitlines()[1:]
    rows = [tuple(line.rsplit(",", 1)) for line in lines]
    texts = [text for text, _ in rows]
    (folder / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *rows]))
    (folder / "train.jsonl").write_text(
        "".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in rows)
    )
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    (folder / "numbers.csv").write_text(
        "text,label\n" + "".join(f"{text},{number / 7:.3f}\n" for number, text in enumerate(texts))
    )
    names = ("animal", "dish", "animal dish", "")
    (folder / "many.csv").write_text(
        "text,label\n" + "".join(f"{text},{names[i % 4]}\n" for i, text in enumerate(texts))
    )
    (folder / "choice.csv").write_text(
        "question,choice0,choice1,label\n"
        + "".join(f"the,{text},{texts[i - 1]},{i % 2}\n" for i, text in enumerate(texts))
    )
    annotated.write_files(folder, rows)
    toys.write_pairs(folder / "pairs.csv", 24)
    tagged.write_columns(folder / "train.conll", 16)
    tagged.write_json(folder / "tagged.jsonl", 16)
    content = squad_files.toy_squad(4)
    (folder / "squad.json").write_text(json.dumps(content))
    spans = ["question,context,answer"]
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                answer = asked["answers"][0]["text"]
                spans.append(f"{asked['question']},{paragraph['context']},{answer}")
    (folder / "spans.csv").write_text("\n".join(spans) + "\n")
    toys.write_corpus(folder / "corpus.txt", 8)
    corpus = (folder / "corpus.txt").read_text()
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in corpus.split("\n\n"))
    )
    quoted = (text.replace('"', '""') for text in corpus.split("\n\n"))
    numbered = "".join(f'{number},"{text}"\n' for number, text in enumerate(quoted))
    (folder / "corpus.csv").write_text("id,text\n" + numbered)
    (folder / "corpus.txt.gz").write_bytes(gzip.compress(corpus.encode()))
    (folder / "corpus.txt.zst").write_bytes(_zstd(corpus.encode()))
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": texts, "label": [label for _, label in rows]})
    pq.write_table(table, folder / "train.parquet")
    (folder / "config.yaml").write_text("format: csv\nprecision: fp32\ntext-columns: [text]\n")


def _formats(folder: Path) -> None:
    """Write files of other programs, each with texts in `Text` and labels in `Label`."""
    folder.mkdir()
    rows = [(toys.sentence(topic, "old"), "animal") for topic in toys.TOPICS]
    book = openpyxl.Workbook()
    for row in [("Text", "Label"), *rows]:
        book.active.append(row)
    book.create_sheet("empty")
    book.save(folder / "table.xlsx")
    for name in ("table.xlsx", "table.ods", "table.xls"):
        shutil.copy(WORKBOOKS / name, folder / f"office-{name}")
    listed = [dict(zip(("Text", "Label"), row, strict=True)) for row in rows]
    (folder / "table.json").write_text(json.dumps(listed, indent=1))


def _zstd(raw: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(raw)


def _reads(task: str) -> tuple[Command, ...]:
    """Commands that read a table with the model of a task."""
    model = f"run-{task}/model"
    return (
        lambda case, file: ["predict", case / "sound" / model, "--input", file, *FAST],
        lambda case, file: ["evaluate", case / "sound" / model, "--data", file, *FAST],
    )


def _model_of(task: str, table: str) -> tuple[Command, ...]:
    """Commands that read a model; the damaged file is in it."""
    return (
        lambda case, file: ["predict", case, "--input", case / "sound" / table, *FAST],
        lambda case, file: ["evaluate", case, "--data", case / "sound" / table, *FAST],
        lambda case, file: ["inspect", case],
    )


def _training(task: str, *options: object) -> Command:
    return lambda case, file: [
        "finetune",
        task,
        *("--model", case / "sound" / "model", "--data", file, "--out", case / "out"),
        *("--epochs", 1, "--batch-size", 8, "--max-length", 24, *FAST, *options),
    ]


#: Commands that read :func:`_formats`.
_READ_FORMATS: tuple[Command, ...] = (
    *(
        lambda case, file, suffix=suffix: [
            *("predict", case / "sound/run-text/model", "--input", file, *FAST),
            *("--text-column", "Text", "--output", case / f"answers{suffix}"),
        ]
        for suffix in (".xlsx", ".jsonl", ".json")
    ),
    lambda case, file: [
        *("evaluate", case / "sound/run-text/model", "--data", file, *FAST),
        *("--text-column", "Text", "--label-column", "Label"),
    ],
    lambda case, file: [
        *("vocab", file, "--out", case / "out", "--vocab-size", 120, "--text-column", "Text"),
    ],
)
MODEL_FILES = ("config.json", "bertine.json", "tokenizer.json", "tokenizer_config.json")

#: What is read with :func:`make_untrained` and a classifier in ``run-text/model`` alone.
UNTRAINED = (
    Target("run-text/model", MODEL_FILES, _model_of("text", "tables/train.csv"), 16),
    Target("run-text/model", ("model.safetensors",), _model_of("text", "tables/train.csv"), 6),
    Target(
        "model",
        ("*.json", "vocab.txt", "*.safetensors"),
        (
            lambda case, file: ["fill-mask", case, "the old [MASK] barks in the garden ."],
            lambda case, file: ["inspect", case],
            lambda case, file: ["evaluate", case, "--data", case / "sound/store", *FAST],
        ),
        8,
    ),
    Target(
        "google",
        ("bert_config.json", "bert_model.ckpt.*", "vocab.txt"),
        (
            lambda case, file: ["inspect", case],
            lambda case, file: ["convert", case, "--out", case / "converted"],
        ),
        4,
    ),
    Target(
        "sentence",
        ("*.json", "1_Pooling/*.json", "2_Normalize/*.json"),
        (
            lambda case, file: [
                *("embed", case, "--input", case / "sound/tables/texts.txt"),
                *("--output", case / "out.npy", *FAST),
            ],
        ),
        12,
    ),
    Target(
        "store",
        ("manifest.json", "*.arrow", "*.npy", "tokenizer/*"),
        (
            lambda case, file: ["inspect", case, "--max-seq-length", 32],
            lambda case, file: ["evaluate", case / "sound/model", "--data", case, *FAST],
        ),
        8,
    ),
    Target(
        "tables", ("train.*sv", "train.jsonl", "train.parquet", "texts.txt"), _reads("text"), 24
    ),
    Target(
        "tables",
        ("corpus.*",),
        (
            lambda case, file: [
                *("prepare", file, "--tokenizer", case / "sound/store/tokenizer"),
                *("--out", case / "out", "--processes", 1),
            ],
            lambda case, file: ["vocab", file, "--out", case / "out", "--vocab-size", 120],
        ),
        8,
    ),
    Target(
        "tables",
        ("vectors.npy", "texts.txt"),
        (
            lambda case, file: [
                *("similar", "the old cat", "--in", case / "vectors.npy", *FAST),
                *("--texts", case / "texts.txt", "--model", case / "sound/model"),
            ],
        ),
    ),
    Target(
        "tables",
        ("config.yaml",),
        (
            lambda case, file: [
                *("predict", case / "sound/run-text/model", "--config", file),
                *("--input", case / "train.csv"),
            ],
        ),
        4,
    ),
)
TARGETS = (
    *UNTRAINED,
    Target("formats", ("*",), _READ_FORMATS, 24),
    Target(
        "run-pairs/model", (*MODEL_FILES, "*.safetensors"), _model_of("pairs", "tables/pairs.csv")
    ),
    Target("run-regression/model", MODEL_FILES, _model_of("regression", "tables/numbers.csv")),
    Target("run-multi-label/model", MODEL_FILES, _model_of("multi-label", "tables/many.csv")),
    Target("run-choice/model", MODEL_FILES, _model_of("choice", "tables/choice.csv")),
    Target("run-tagging/model", MODEL_FILES, _model_of("tagging", "tables/train.conll")),
    Target("run-spans/model", MODEL_FILES, _model_of("spans", "tables/spans.csv")),
    Target(
        "stopped",
        ("run.json", "log.jsonl", "checkpoints/*/*"),
        (
            lambda case, file: [
                *("pretrain", case / "sound/store", "--model", case / "sound/model"),
                *("--out", case, "--steps", 2, "--max-seq-length", 32, "--batch-size", 2),
                *("--checkpoint-every", 1, "--resume", *FAST),
            ],
        ),
        2,
    ),
    *(
        Target(
            f"run-{task}",
            ("*.json", "*.jsonl"),
            (lambda case, file: ["report", case, "--out", case / "page.html"],),
            1,
        )
        for task in ("text", "spans", "pretrain")
    ),
    Target("tables", ("numbers.csv",), _reads("regression")),
    Target("tables", ("pairs.csv",), _reads("pairs")),
    Target("tables", ("many.csv",), _reads("multi-label")),
    Target("tables", ("choice.csv",), _reads("choice")),
    Target("tables", ("train.conll", "tagged.jsonl"), _reads("tagging"), 8),
    Target("tables", ("spans.csv", "squad.json"), _reads("spans"), 8),
    Target("tables", annotated.NAMES, _reads("text"), 16),
    Target("tables", ("train.csv", "train.jsonl", "train.parquet"), (_training("text"),), 2),
    Target("tables", ("train.conll", "tagged.jsonl"), (_training("tagging"),), 1),
    Target("tables", ("squad.json",), (_training("squad", "--doc-stride", 8),), 1),
    Target("tables", ("choice.csv",), (_training("choice"),), 1),
    Target("tables", ("many.csv",), (_training("multi-label"),), 1),
    Target("tables", ("numbers.csv",), (_training("regression"),), 1),
)
