"""Fine-tuning on one's own data: multiple choice, many labels, rare classes, long texts; what is
trained is saved, loaded, evaluated and predicted the same."""

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
from bertine.data.examples import Splits
from bertine.datasets.own_data import read_own
from bertine.hub import model_directory
from bertine.tasks.multi_label import MultiLabel

OPTIONS = ["--batch-size", "8", "--max-length", "32", "--precision", "fp32"]
QUICK: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "max_length": 32,
    "learning_rate": 1e-3,
    "precision": "fp32",
}
COLUMNS = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
COLUMNS += [*(f"ending{number}" for number in range(4)), "label"]


def write_swag(path: Path, rows: int, seed: int = 0) -> Path:
    """In SWAG's columns: what an animal does, among what dishes do."""
    draw = generator(seed, "toy swag")
    topics = list(toys.TOPICS)
    with open(path, "w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        for number in range(rows):
            right = int(draw.integers(4))
            order = [4 + int(index) for index in draw.permutation(4)]
            order[right] = int(draw.integers(4))
            topic, place = topics[order[right]], toys.TOPICS[topics[order[right]]][1]
            first, second = f"a {topic} in the {place} .", f"the {topic}"
            endings = [f"{toys.TOPICS[topics[index]][0]} ." for index in order]
            head = [number, f"toy{number}", number, f"{first} {second}", first, second, "gold"]
            writer.writerow([*head, *endings, right])
    return path


@pytest.fixture(scope="module")
def swag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swag")
    write_swag(folder / "train.csv", 160)
    write_swag(folder / "val.csv", 40, seed=1)
    return folder


@pytest.mark.slow
def test_swag_is_learned_saved_evaluated_and_predicted(
    swag: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    command = ["finetune", "swag", "--model", str(model), "--data", str(swag), "--out", str(out)]
    assert main([*command, *OPTIONS, "--epochs", "8", "--learning-rate", "2e-3"]) == 0
    assert "40 examples of" in capsys.readouterr().out
    final = json.loads((out / "scores.json").read_text())["final"]
    assert final["metrics"]["accuracy"] > 0.6  # chance is 0.25
    info = json.loads((out / "model" / "bertine.json").read_text())
    assert (info["name"], info["dataset"]) == ("choice", "swag")

    report = bertine.evaluate(out, swag, precision="fp32", show_progress=False)
    assert report.metrics == pytest.approx(final["metrics"], abs=1e-4)

    answered = tmp_path / "answered.csv"
    arguments = ["--input", str(swag / "val.csv"), "--output", str(answered), "--precision", "fp32"]
    assert main(["predict", str(out), *arguments]) == 0
    with open(answered, encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert list(rows[0])[-2:] == ["choice", "probability"]
    right = sum(row["choice"] == row["label"] for row in rows)
    assert right / len(rows) == pytest.approx(final["metrics"]["accuracy"])

    predictor = bertine.Predictor.load(out, precision="fp32")
    texts = [tuple(row[name] for name in predictor.task.text_columns) for row in rows[:3]]
    answers = predictor.predict(texts)
    assert [str(answer.choice) for answer in answers] == [row["choice"] for row in rows[:3]]

    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(out / "model").eval()
    words = transformers.AutoTokenizer.from_pretrained(out / "model")
    for text, answer in zip(texts, answers, strict=True):
        pairs = [(text[0], f"{text[1]} {ending}") for ending in text[2:]]
        encoded = words(pairs, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**{name: value[None] for name, value in encoded.items()}).logits
        assert logits.softmax(-1)[0].tolist() == pytest.approx(answer.probabilities, abs=1e-4)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_without_a_last_choice_has_fewer(suffix: str, model: Path, tmp_path: Path) -> None:
    row = {"question": "the old cat", "choice0": "sleeps", "choice1": "boils", "label": 0}
    rows = [{**row, "choice2": "bakes"}, *[{**row, "choice2": None}] * 7]
    data, answered = tmp_path / f"train.{suffix}", tmp_path / "answered.jsonl"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), data)
    else:
        del rows[-1]["choice2"]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bertine.finetune("choice", model=model, data=data, out=tmp_path / "run", **QUICK)
    report = bertine.evaluate(tmp_path / "run", data, precision="fp32", show_progress=False)
    assert report.to_dict()["num_examples"] == 8
    bertine.predict(tmp_path / "run", data, answered, precision="fp32", all_probabilities=True)
    found = [json.loads(line)["probability_choice2"] for line in answered.read_text().splitlines()]
    assert found[0] > 0.0
    assert found[1:] == [0.0] * 7
    data = tmp_path / "bad.jsonl"
    data.write_text(json.dumps({**rows[0], "question": 5}) + "\n")
    with pytest.raises(BertineError, match=r"1: 'question' is a number, but must be a text"):
        bertine.evaluate(tmp_path / "run", data, precision="fp32", show_progress=False)


def write_tagged(path: Path, rows: int, columns: bool = False) -> Path:
    """Which of "animal", "pet" and "wet" a text is about; bread, rice and cake are none."""
    draw = generator(0, "toy tags")
    topics = list(toys.TOPICS)
    names = ["animal", "pet", "wet"]
    lines = ["text," + (",".join(names) if columns else "labels")]
    for _ in range(rows):
        topic = topics[int(draw.integers(len(topics)))]
        adjective = toys.ADJECTIVES[int(draw.integers(len(toys.ADJECTIVES)))]
        has = [topics.index(topic) < 4, topic in ("cat", "dog"), topic in ("fish", "soup")]
        cells = ",".join(str(int(value)) for value in has)
        found = "|".join(name for name, value in zip(names, has, strict=True) if value)
        lines.append(f"{toys.sentence(topic, adjective)},{cells if columns else found}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_label_that_is_held_out_with_its_only_row_is_known(tmp_path: Path) -> None:
    # All sets of labels differ, so nothing is stratified; each row has a label of its own.
    lines = ["text,labels", *(f"t{row},all|only{row:02}" for row in range(10))]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    splits = Splits(train=tmp_path / "train.csv")
    read = read_own(MultiLabel, splits)
    task = read.make_task(16)
    assert task.task_info().labels == ("all", *(f"only{row:02}" for row in range(10)))
    for part in (read.train, read.validation):
        features = task.featurize(part, toys.tokenizer())
        assert [each.label.sum() for each in features] == [2.0] * len(part)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [False, True])
def test_many_labels_are_learned_saved_evaluated_and_predicted(
    columns: bool, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_tagged(tmp_path / "tags.csv", 200, columns), tmp_path / "run"
    named = ["--label-columns", "animal", "pet", "wet"] if columns else []
    command = ["finetune", "multi-label", "--model", str(model), "--data", str(data)]
    command += ["--out", str(out), *OPTIONS, "--epochs", "12", "--learning-rate", "3e-3"]
    assert main([*command, *named, "--threshold", "0.4", "--class-weights", "balanced"]) == 0
    assert "micro_f1" in capsys.readouterr().out
    final = json.loads((out / "scores.json").read_text())["final"]
    assert final["metrics"]["micro_f1"] > 0.8
    assert set(final["per_label"]) == {"animal", "pet", "wet"}
    explained = json.loads((out / "explained.json").read_text())["examples"]
    assert 1 <= len(explained) <= 5
    assert all(each["answer"] in final["per_label"] and each["words"] for each in explained)
    # Beside each the nearest training examples, which the page shows too.
    rows = data.read_text(encoding="utf-8").splitlines()
    for each in explained:
        best, second = each["nearest"]
        assert 1 >= best["similarity"] >= second["similarity"]
        assert all(near["texts"][0] in rows[near["line"] - 1] for near in (best, second))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"near in training, {best['label']} ({best['similarity']:.2f})" in page

    report = bertine.evaluate(out, data, precision="fp32", show_progress=False)
    assert report.metrics["micro_f1"] > 0.8
    predictor = bertine.Predictor.load(out, precision="fp32")
    assert predictor.task.threshold == 0.4
    (answer,) = predictor.predict([toys.sentence("dog", "old")])
    assert set(answer.labels) == {"animal", "pet"}
    answered = tmp_path / "answered.csv"
    assert main(["predict", str(out), "--input", str(data), "--output", str(answered)]) == 0
    header = answered.read_text(encoding="utf-8").splitlines()[0]
    assert header.endswith(",labels" if columns else ",predicted_labels")

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out / "model").eval()
    words = transformers.AutoTokenizer.from_pretrained(out / "model")
    with torch.no_grad():
        logits = theirs(**words([toys.sentence("dog", "old")], return_tensors="pt")).logits
    assert logits.sigmoid()[0].tolist() == pytest.approx(
        list(answer.probabilities.values()), abs=1e-4
    )


def test_windows_are_trained_and_answered(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.csv"
    topics = list(toys.TOPICS)
    rows = [
        f"{' '.join([toys.sentence(topics[n % 8], 'old')] * (1 + n % 4))},{'ab'[n % 8 > 3]}"
        for n in range(64)
    ]
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    settings = {**QUICK, "max_length": 16}
    done = bertine.finetune(
        "text", model=model, data=path, out=tmp_path / "run", long_text="windows", **settings
    )
    assert "texts are longer than 16 pieces and are read in" in capsys.readouterr().err
    assert done.report is not None
    assert done.report.to_dict()["num_examples"] == 6  # texts, not windows
    predictor = bertine.Predictor.load(tmp_path / "run")
    assert predictor.task.long_text == "windows"
    assert len(predictor.predict([" ".join(["the cat"] * 40), "soup"])) == 2


def test_the_start_is_read_once_though_its_head_is_for_other_labels(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = toys.write_labelled(tmp_path / "first.csv")
    second = tmp_path / "second.csv"
    second.write_text(first.read_text().replace(",animal", ",beast"), encoding="utf-8")
    settings: dict[str, Any] = {"epochs": 1, "precision": "fp32", "baselines": False}
    started = bertine.finetune("text", model=model, data=first, out=tmp_path / "a", **settings)
    reads, read = [], model_directory.read_weights

    def counted(folder: Path) -> Any:
        reads.append(folder)
        return read(folder)

    monkeypatch.setattr(model_directory, "read_weights", counted)
    ended = bertine.finetune(
        "text", model=started.model, data=second, out=tmp_path / "b", learning_rate=0, frozen=False,
        **settings,
    )  # fmt: skip
    assert reads.count(started.model) == 1
    head = "classifier.weight"
    assert not torch.equal(toys.weights(started.model)[head], toys.weights(ended.model)[head])
