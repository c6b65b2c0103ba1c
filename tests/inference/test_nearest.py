"""The nearest labelled examples: the right ones by the vectors that the head reads, kept beside the
weights, for every kind of task."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.data.examples import read_examples
from bertine.hub.model_directory import save_model
from bertine.inference.explaining import nearest as nearest_module
from bertine.inference.explaining.nearest import NearestExamples, head_vectors
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.whole_text import TextRegression

TASK = TextClassification(("animal", "dish"), ("text",), "label", 24)
ROWS = ["the old cat sleeps,animal", "a warm soup boils,dish", "the cow grazes,animal"]


def random_model(folder: Path, task: object) -> Path:
    """Write a model with random weights."""
    torch.manual_seed(0)
    words = toys.tokenizer()
    config = toys.config(vocab_size=words.vocab_size)
    model = Model(config, task.heads(config))  # type: ignore[attr-defined]
    save_model(folder, model, words, task=task.task_info())  # type: ignore[attr-defined]
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return random_model(tmp_path / "model", TASK)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "examples.csv"
    path.write_text("text,label\n" + "\n".join(ROWS) + "\n", encoding="utf-8")
    return path


def test_the_nearest_are_those_with_the_highest_cosine(folder: Path, data: Path) -> None:
    predictor = Predictor.load(folder, "cpu", "fp32")
    nearest = NearestExamples.of(predictor, 3, data)
    found = nearest.to("the cow grazes")
    assert (found[0].texts, found[0].label) == (("the cow grazes",), "animal")
    assert (found[0].similarity, found[0].line) == (pytest.approx(1.0, abs=1e-5), 4)
    assert found[0].file == str(data)
    texts = ["the cow grazes", *(row.split(",")[0] for row in ROWS)]
    prepared = predictor.prepare(TASK.examples_of(texts))
    # The head's own layer, on these vectors, gives the answers: they are what it reads.
    vectors = head_vectors(predictor, prepared.features)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    cosines = sorted((vectors[1:] @ vectors[0]).tolist(), reverse=True)
    assert [each.similarity for each in found] == pytest.approx(cosines, abs=1e-5)


def test_equal_examples_come_in_the_order_of_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is computed together with them, and compared together."""
    rows = [f"{toys.sentence(topic, 'old')},animal" for topic in list(toys.TOPICS)[:4]] * 3
    draw = random.Random(0)
    for chunk, block in ((2, 5), (5, 3), (12, 12)):
        draw.shuffle(rows)
        monkeypatch.setattr(nearest_module, "_CHUNK", chunk)
        monkeypatch.setattr(nearest_module, "_ROWS", block)
        file = tmp_path / f"{chunk}.csv"
        file.write_text("text,label\n" + "\n".join(rows) + "\n")
        predictor = Predictor.load(folder, "cpu", "fp32")
        found = NearestExamples.of(predictor, 12, file).to(rows[0].split(",")[0])
        for text in {each.texts for each in found}:
            lines = [each.line for each in found if each.texts == text]
            assert lines == sorted(lines)


def test_some_are_drawn_from_the_whole_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the tokens allow, wherever they stand; none without a label."""
    rows = [f"{toys.sentence(topic, word)},animal" for topic in toys.TOPICS for word in ("old", "")]
    file = tmp_path / "many.csv"
    file.write_text("text,label\n" + "\n".join([*rows, "the soup boils,dish"]) + "\n")
    predictor = Predictor.load(folder, "cpu", "fp32")
    examples = read_examples(file)
    examples.items[0] = replace(examples.items[0], label=None)
    features = predictor.prepare(examples).features
    every = NearestExamples.among_some(predictor, examples, features, 1)
    assert len(every.examples) == len(examples) - 1
    (near,) = every.to("the soup boils")
    assert (near.label, near.line) == ("dish", len(rows) + 2)
    monkeypatch.setattr(nearest_module, "_TOKENS", 30)
    some = NearestExamples.among_some(predictor, examples, features, 1)
    places = [item.line for item in some.examples.items]
    assert 1 < len(places) < 8
    assert places != sorted(places)
    assert some.vectors.shape[0] == len(places)


def test_vectors_are_kept_and_made_anew_where_anything_changes(folder: Path, data: Path) -> None:
    def kept() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in folder.glob("nearest-*.npy")}

    predictor = Predictor.load(folder, "cpu", "fp32")
    first = NearestExamples.of(predictor, 2, data).to("the old cow")
    before = kept()
    assert len(before) == 1
    assert (
        NearestExamples.of(Predictor.load(folder, "cpu", "fp32"), 2, data).to("the old cow")
        == first
    )
    assert kept() == before
    with data.open("a", encoding="utf-8") as file:
        file.write("the old cow,animal\n")
    assert NearestExamples.of(predictor, 1, data).to("the old cow")[0].line == 5
    assert len(kept()) == 1
    assert kept().keys() != before.keys()
    (file_of_vectors,) = folder.glob("nearest-*.npy")
    file_of_vectors.write_bytes(b"no vectors")
    assert NearestExamples.of(predictor, 1, data).to("the old cow")[0].line == 5


LIMITS = SpanLimits(doc_stride=8, max_question_length=10, max_answer_length=6)
CASES = {
    "pairs": (
        TextClassification(("a", "b"), ("one", "two"), "label", 24),
        "one,two,label\nthe cat,a cow,a\nsoup,bread,b\n",
        ("the cat", "a cow"),
        "a",
    ),
    "numbers": (
        TextRegression(("text",), "score", 24),
        "text,score\nthe cat,1.5\nsoup,3\n",
        "the cat",
        "1.5",
    ),
    "labels": (
        MultiLabel(("a", "b", "c"), ("text",), "labels", 24),
        "text,labels\nthe cat,a|c\nsoup,b\n",
        "the cat",
        "a|c",
    ),
    "choices": (
        MultipleChoice(("q",), ("x", "y"), label_column="label", max_length=24),
        "q,x,y,label\nthe cat,sleeps,boils,0\nsoup,boils,sleeps,1\n",
        ("the cat", "sleeps", "boils"),
        "0",
    ),
    "spans": (
        SpanExtraction(max_length=24, limits=LIMITS, label_column="answer"),
        "question,context,answer\nthe cat,the old cat sleeps,old\nsoup,a warm soup,warm\n",
        ("the cat", "the old cat sleeps"),
        "old",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_task_has_them(case: str, tmp_path: Path) -> None:
    task, rows, text, label = CASES[case]
    folder = random_model(tmp_path / "model", task)
    data = tmp_path / "examples.csv"
    data.write_text(rows, encoding="utf-8")
    (found,) = bertine.explain(folder, [text], nearest_examples=1, examples=data, precision="fp32")  # type: ignore[list-item]
    (near,) = found.nearest
    assert near.label == label
    assert near.texts == ((text,) if isinstance(text, str) else text)
    assert near.similarity == pytest.approx(1.0, abs=1e-5)


def test_they_are_shown_in_the_terminal_and_in_files(
    folder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--nearest-examples", "2", "--examples", str(data)]
    assert main(["explain", str(folder), *asked, "the cow grazes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("nearest examples: similarity, label, text")
    assert lines[at + 1].split()[:2] == ["1.00", "animal"]
    target = tmp_path / "answered.jsonl"
    call = ["predict", str(folder), "--input", str(data), "--output", str(target), *asked]
    assert main(call) == 0
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [row["explanation"]["nearest"][0]["texts"] for row in rows] == [
        [row.split(",")[0]] for row in ROWS
    ]
    found = bertine.explain(folder, "a <b>", nearest_examples=1, examples=data)[0]
    assert "nearest examples" in found._repr_html_()


def test_mistakes_are_told(folder: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="does not tell what it was trained on; name a labelled"):
        bertine.explain(folder, "a cat", nearest_examples=1)
    with pytest.raises(BertineError, match="say how many: nearest_examples=3"):
        bertine.explain(folder, "a cat", examples=data)
    with pytest.raises(BertineError, match="nearest_examples"):
        bertine.explain(folder, "a cat", nearest_examples=1000)
    with pytest.raises(BertineError, match=r"nothing.csv"):
        bertine.explain(folder, "a cat", nearest_examples=1, examples=tmp_path / "nothing.csv")
