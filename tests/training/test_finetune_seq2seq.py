"""Text to text from a table: what is learned, scored, written to files, served, and refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.data.examples import read_examples
from bertine.families.presets import preset
from bertine.inference.baselines.measure import measure_baselines
from bertine.models.family import config_to_huggingface
from bertine.options.data import DataConfig
from bertine.tasks.seq2seq import TextToText
from bertine.tokenization.tokenizer import Tokenizer

NAMES = ("anna", "ben", "clara", "david", "emma", "felix")


def rows_of(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Names after a few other words, to be written alone."""
    draw = generator(seed, "names")
    rows = []
    for _ in range(count):
        first, second = (NAMES[int(at)] for at in draw.integers(6, size=2))
        rows.append({"article": f"{first} met {second} .", "abstract": f"{first} {second}"})
    return rows


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was pre-trained for a moment, and data."""
    folder = tmp_path_factory.mktemp("seq2seq")
    rows = rows_of(160)
    (folder / "corpus.txt").write_text("\n\n".join(row["article"] for row in rows))
    bertine.train_vocab(folder / "corpus.txt", folder / "vocab", kind="byte-bpe", vocab_size=300)
    bertine.prepare(folder / "corpus.txt", tokenizer=folder / "vocab", out=folder / "store")
    sizes = {"num_attention_heads": 2, "decoder_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 40}
    config = preset("bart-tiny", hidden_size=32, initializer_range=0.1, **sizes)
    (folder / "config.json").write_text(json.dumps(config_to_huggingface(config)))
    bertine.pretrain(
        folder / "store",
        model=folder / "config.json",
        out=folder / "pretrained",
        steps=2,
        batch_size=4,
        max_seq_length=24,
    )
    (folder / "data").mkdir()
    for name, part in (("train", rows[:120]), ("dev", rows[120:])):
        with open(folder / "data" / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["article", "abstract"])
            writer.writeheader()
            writer.writerows(part)
    return folder


GIVEN: dict[str, Any] = {
    "text_columns": "article",
    "target_column": "abstract",
    "batch_size": 16,
    "learning_rate": 4e-3,
    "max_length": 24,
    "max_target_length": 12,
    "dropout": 0.0,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def trained(home: Path) -> Path:
    out = home / "run"
    bertine.finetune(
        "seq2seq",
        model=home / "pretrained",
        data=home / "data",
        out=out,
        epochs=12,
        label_smoothing=0.1,
        beams=2,
        **GIVEN,
    )
    return out


def test_it_learns_to_write_and_is_scored(trained: Path, home: Path) -> None:
    report = bertine.evaluate(trained, home / "data", precision="fp32")
    assert report.metrics["rougeL"] > 0.8
    assert set(report.metrics) == {"rouge1", "rouge2", "rougeL", "exact_match"}
    assert any(line.startswith("written: ") for line in report.lines())
    about = json.loads((trained / "model" / "bertine.json").read_text())
    assert about["name"] == "seq2seq"
    assert about["settings"] == {"max_target_length": 12, "beams": 2, "label_smoothing": 0.1}
    assert about["label_column"] == "abstract"


def test_files_hold_what_transformers_writes(trained: Path, home: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    given = ["--input", str(home / "data" / "dev.csv"), "--output", str(output)]
    assert main(["predict", str(trained), *given, "--precision", "fp32"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    model = transformers.BartForConditionalGeneration.from_pretrained(trained / "model").eval()
    encode = transformers.AutoTokenizer.from_pretrained(trained / "model")
    inputs = encode([row["article"] for row in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(**inputs)
    texts = encode.batch_decode(ids, skip_special_tokens=True)
    assert [row["text"] for row in rows] == [text.strip() for text in texts]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_texts_in_memory_are_answered(trained: Path, precision: str) -> None:
    predictor = bertine.Predictor.load(trained / "model", "cpu", precision)
    answers = predictor.predict(["anna met ben .", "clara met david ."])
    assert [answer.text.split()[0] for answer in answers] == ["anna", "clara"]
    assert answers[0].to_json(False) == {"text": answers[0].text}
    with pytest.raises(BertineError, match="answers of the task 'seq2seq' cannot be explained"):
        predictor.explain("anna met ben .")
    with pytest.raises(BertineError, match="writes texts by a search, which is no graph"):
        bertine.export(trained, trained / "graph")


def test_generate_writes_the_same(trained: Path) -> None:
    """Where it is asked for the same beams and length."""
    (text,) = bertine.Predictor.load(trained / "model", "cpu", "fp32").predict(["emma met felix ."])
    report = bertine.generate(trained, "emma met felix .", beams=2, max_new_tokens=12)
    assert report[0].whole == (text.text,)


def test_any_table_is_read(home: Path, tmp_path: Path) -> None:
    """JSON lines with usual names, Parquet, pairs of texts; a part is held out."""
    rows = rows_of(24, seed=1)
    usual = [{"text": row["article"], "summary": row["abstract"]} for row in rows]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in usual))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    short = {**GIVEN, "epochs": 1, "baselines": False}
    unnamed = {k: v for k, v in short.items() if not k.endswith(("column", "columns"))}
    bertine.finetune(
        "seq2seq",
        model=home / "pretrained",
        data=tmp_path / "t.jsonl",
        out=tmp_path / "a",
        **unnamed,
    )
    pair = {**short, "text_columns": ("article", "abstract"), "target_column": "article"}
    for number, given in enumerate((short, {**pair, "target_column": "label"})):
        table = tmp_path / "t.parquet"
        if number:
            table = tmp_path / "p.parquet"
            labelled = [{**row, "label": row["abstract"]} for row in rows]
            pq.write_table(pa.Table.from_pylist(labelled), table)
        learner = bertine.finetune(
            "seq2seq", model=home / "pretrained", data=table, out=tmp_path / f"b{number}", **given
        )
        assert learner.report is not None
        assert learner.report.num_examples == 2


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertine.training import fit

    given = {**GIVEN, "dropout": 0.1, "epochs": 2, "checkpoint_every": 3, "baselines": False}

    def run(out: str, **more: Any) -> None:
        bertine.finetune(
            "seq2seq",
            model=home / "pretrained",
            data=home / "data",
            out=tmp_path / out,
            **given,
            **more,
        )

    run("whole")
    with toys.interrupted_at(11, fit, "check_batch"):
        run("parts")
    run("parts", resume=True)
    assert toys.same_weights(tmp_path / "whole" / "model", tmp_path / "parts" / "model")


def test_mistakes_are_refused_in_one_line(home: Path, tmp_path: Path) -> None:
    toys.write_model(tmp_path / "bert")
    for changes, message in (
        ({"target_column": "nothing"}, "nothing"),
        ({"label_column": "article"}, "give .* or .*, not both"),
        ({"max_target_length": 50}, "max_target_length is 50, but the model has positions for 40"),
        ({"length_penalty": 2.0}, "length_penalty is for beams"),
        ({"frozen": True}, "frozen fits no head for the task"),
        ({"long_text": "tail"}, "long_text is for text"),
        ({"model": tmp_path / "bert"}, "of type bert writes no text after reading another"),
        ({"model": None}, "none that is installed writes texts; take .*hf:facebook/bart-base"),
    ):
        given = {**GIVEN, "model": home / "pretrained", **changes}
        with pytest.raises(BertineError, match=message) as refused:
            bertine.finetune("seq2seq", data=home / "data", out=tmp_path / "out", **given)
        assert "\n" not in str(refused.value)
    with pytest.raises(BertineError, match=r"target_column is for seq2seq"):
        bertine.finetune(
            "text",
            model=home / "pretrained",
            data=home / "data",
            out=tmp_path / "out",
            target_column="abstract",
        )


def test_the_first_words_are_the_baseline(home: Path) -> None:
    task = TextToText(("article",), "abstract")
    train, dev = (
        read_examples(
            home / "data" / f"{name}.csv",
            DataConfig(text_columns="article", label_column="abstract"),
            known=(),
        )
        for name in ("train", "dev")
    )
    (score,) = measure_baselines(task, train, {"": dev})
    assert score.name == "first words"
    # "anna met" beside "anna ben".
    assert score.metrics["rouge1"] == pytest.approx(0.5)
    assert score.metrics["exact_match"] == 0.0


def test_texts_that_are_cut_are_counted(home: Path) -> None:
    tokenizer = Tokenizer.load(home / "vocab")
    task = TextToText(max_length=8, max_target_length=6)
    features = task.featurize(task.examples_of(["anna met ben . " * 4]), tokenizer)
    assert features[0].label is None
    assert len(features[0].input_ids) == 8
    assert any("were cut at 8 pieces" in note for note in task.notes(features))
