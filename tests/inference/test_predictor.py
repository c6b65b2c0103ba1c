"""A saved model answers the same for one text, for many, for files of every format."""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import frames
from bertine.core.errors import BertineError
from bertine.data.in_memory import as_table
from bertine.families.bert import BertConfig
from bertine.hub.model_directory import load_model, save_model
from bertine.inference import predict_files
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.evaluate import evaluate
from bertine.inference.explaining.explain import explain
from bertine.inference.predict import predict
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import Tokenizer
from tolerance import assert_close, network_terms

from .conftest import WORDS


def random_texts(count: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    words = [word for word in WORDS if not word.startswith("##")]
    return [" ".join(draw.choice(words, size=draw.integers(0, 18)).tolist()) for _ in range(count)]


@pytest.fixture(scope="module")
def predictor(classifier: Path) -> Predictor:
    return Predictor.load(classifier, "cpu", "fp32")


def test_a_predictor_can_be_pickled_and_copied(predictor: Predictor) -> None:
    texts = random_texts(5)
    expected = [answer.probabilities for answer in predictor.predict(texts)]
    for other in (pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor)):
        assert [answer.probabilities for answer in other.predict(texts)] == expected
        assert other.folder == predictor.folder


def test_one_by_one_equals_batched_and_the_saved_model(
    predictor: Predictor, classifier: Path
) -> None:
    texts = random_texts(60)
    together = predictor.predict(texts)
    assert len({p.label for p in together}) > 1  # or the comparison would say little
    again = Predictor.load(classifier, "cpu", "fp32")
    model = load_model(classifier).model
    for text, expected in zip(texts, together, strict=True):
        (alone,) = again([text])
        assert alone.label == expected.label
        values = list(expected.probabilities.values())
        encoding = predictor.tokenizer.encode(text, max_length=24)
        with torch.no_grad():
            pooled = model.backbone(torch.tensor([encoding.input_ids])).pooler_output
            logits = model.heads["classifier"](pooled)
        bound: Any = {"terms": network_terms(2, 32), "size": float(logits.abs().max())}
        assert_close(list(alone.probabilities.values()), values, **bound)
        assert_close(logits.softmax(-1)[0], values, **bound)
    assert predictor.predict([]) == []


def test_the_model_is_left_in_the_mode_it_was_in(predictor: Predictor) -> None:
    predictor.model.train()
    with_dropout_off = predictor.predict(["a cat sat"])
    assert predictor.model.training
    predictor.model.eval()
    assert predictor.predict(["a cat sat"]) == with_dropout_off


def test_misuse_is_answered(predictor: Predictor, classifier: Path) -> None:
    with pytest.raises(BertineError, match="stream takes many texts"):
        next(predictor.stream("a cat sat"))
    with pytest.raises(BertineError, match=r"texts\[1\]: 2 texts, but the model takes 1"):
        predictor.predict(["a", ("a", "b")])
    with pytest.raises(BertineError, match="was not fine-tuned"):
        Predictor.load("bertine-en")
    with pytest.raises(BertineError, match="unknown device 'gpu9'"):
        Predictor.load(classifier, "gpu9")
    with pytest.raises(BertineError, match="'int8' is for the CPU; choose bf16 or fp32"):
        Predictor.load(classifier, "meta", "int8")  # as on a GPU
    with pytest.raises(BertineError, match="precision 'fp17'"):
        Predictor.load(classifier, "cpu", "fp17")


def test_a_csv_keeps_its_order_and_columns(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_files, "CHUNK_ROWS", 7)  # several chunks
    texts = [f'{text}, "quoted"\nline' for text in random_texts(30)]
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    with open(source, "w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["id", "text"])
        writer.writerows(enumerate(texts))
    report = predict(predictor, source, out, all_probabilities=True)
    with open(out, encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    expected = predictor.predict(texts)
    assert [int(row["id"]) for row in rows] == list(range(30))
    assert [row["text"] for row in rows] == texts
    assert [row["label"] for row in rows] == [p.label for p in expected]
    for row, answer in zip(rows, expected, strict=True):
        assert float(row["probability"]) == pytest.approx(answer.probability, abs=1e-5)
        for label, value in answer.probabilities.items():
            assert float(row[f"probability_{label}"]) == pytest.approx(value, abs=1e-5)
    assert report.rows == 30


def test_json_lines_keep_their_other_values(predictor: Predictor, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "good cat", "label": ["x"], "n": 1}\n\n{"text": "bad"}\n')
    report = predict(predictor, source, out)
    first, second = map(json.loads, out.read_text().splitlines())
    good, bad = predictor.predict(["good cat", "bad"])
    assert first == {
        "text": "good cat",
        "label": ["x"],
        "n": 1,
        "predicted_label": good.label,
        "probability": pytest.approx(good.probability, abs=1e-5),
    }
    assert second["predicted_label"] == bad.label
    assert report.columns == ["predicted_label", "probability"]
    assert any("1 blank line was skipped" in line for line in report.lines())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.csv", 'text,id\n"good, cat",1\nbad,2\n'),
        ("in.tsv", "text\tid\ngood, cat\t1\nbad\t2\n"),
        ("in.txt", "good, cat\nbad\n"),
        ("in.jsonl", '{"text": "good, cat", "id": [1]}\n{"text": "bad", "id": null}\n'),
    ],
)
def test_the_output_is_what_its_name_says(
    predictor: Predictor, tmp_path: Path, name: str, text: str
) -> None:
    source = tmp_path / name
    source.write_text(text)
    expected = [(p.label, "good, cat") for p in predictor.predict(["good, cat"])]
    expected += [(p.label, "bad") for p in predictor.predict(["bad"])]
    predict(predictor, source, tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["label"], row["text"]) for row in rows] == expected
    assert [type(row["probability"]) for row in rows] == [float, float]
    if name == "in.jsonl":
        refused = ["out.csv", "out.tsv", "out.zip"]
    else:
        predict(predictor, source, tmp_path / "out.csv")
        with open(tmp_path / "out.csv", encoding="utf-8", newline="") as handle:
            assert [(row["label"], row["text"]) for row in csv.DictReader(handle)] == expected
        refused = ["out.zip"] if name == "in.tsv" else ["out.zip", "out.tsv"]
    for out in refused:
        with pytest.raises(BertineError, match=rf"{out}: rows of .* not written as"):
            predict(predictor, source, tmp_path / out)
        assert not (tmp_path / out).exists()


def test_answers_in_squads_format_are_not_named_as_if_compressed(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = SpanExtraction(max_length=40, limits=SpanLimits(max_question_length=8))
    predictor = Predictor(Model(config, task.heads(config)), tokenizer, task)
    paragraph = {"context": "the cat sat .", "qas": [{"id": "a", "question": "the cat"}]}
    source = tmp_path / "in.json"
    source.write_text(json.dumps({"data": [{"title": "", "paragraphs": [paragraph]}]}))
    with pytest.raises(BertineError, match=r"leave out \.gz"):
        predict(predictor, source, tmp_path / "out.json.gz")
    predict(predictor, source, tmp_path / "out.json")
    assert list(json.loads((tmp_path / "out.json").read_text())) == ["a"]


def test_files_that_do_not_fit_leave_nothing(
    predictor: Predictor, pair_classifier: Path, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("txt\na\n")
    with pytest.raises(BertineError, match=r"no column 'text' \(did you mean 'txt'\?\)"):
        predict(predictor, source, out)
    source.write_text("text,id\na,1\nb\n")
    with pytest.raises(BertineError, match=r"in\.csv:3: 1 cell"):
        predict(predictor, source, out)
    plain = tmp_path / "in.txt"
    plain.write_text("hello\n")
    with pytest.raises(BertineError, match="takes pairs; give csv, tsv or jsonl"):
        predict(pair_classifier, plain, out)
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "in.txt"]


_TABLE = {"text": ["good cat", "a\u2028line", ""], "label": [7, None, 9]}


@pytest.mark.parametrize(
    "table",
    [
        _TABLE,
        [dict(zip(_TABLE, row, strict=True)) for row in zip(*_TABLE.values(), strict=True)],
        frames.PandasFrame(_TABLE),
        frames.PolarsFrame(_TABLE),
        frames.Dataset(_TABLE),
        pa.table(_TABLE),
    ],
    ids=lambda table: type(table).__name__,
)
def test_a_table_in_memory_gets_its_rows_with_their_answers(
    predictor: Predictor, table: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = predict(predictor, table, show_progress=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "predicted 3 rows" in printed.err
    assert "1 of 3 texts are empty" in printed.err
    if isinstance(table, frames.PandasFrame):
        assert isinstance(answered, frames.PandasFrame)
        assert answered.columns == [*_TABLE, "predicted_label", "probability"]
        answered = [*as_table(answered).rows()]
    assert [row["text"] for row in answered] == _TABLE["text"]
    assert [row["label"] for row in answered] == _TABLE["label"]
    labels = [
        None if answer.empty else answer.label for answer in predictor.predict(_TABLE["text"])
    ]
    assert [row["predicted_label"] for row in answered] == labels


def test_the_values_of_a_table_in_memory_stay_as_they_are(predictor: Predictor) -> None:
    other = {"when": date(2020, 1, 1), "not a number": math.nan, "set": {1, 2}}
    [row] = predict(predictor, [{"text": "good cat", **other}], show_progress=False)
    assert {name: row[name] for name in other} == other
    assert row["label"]


def test_evaluate_a_file_and_a_folder(predictor: Predictor, tmp_path: Path) -> None:
    texts = random_texts(40, seed=5)
    guesses = [p.label for p in predictor.predict(texts)]
    truth = [("fear", "joy", "love")[i % 3] if i % 2 else g for i, g in enumerate(guesses)]
    path = tmp_path / "val.tsv"
    rows = [f"{text}\t{label}\n" for text, label in zip(texts, truth, strict=True)]
    path.write_text("text\tlabel\n" + "".join(rows))
    report = evaluate(predictor, tmp_path)
    right = sum(g == t for g, t in zip(guesses, truth, strict=True))
    assert report.metrics["accuracy"] == pytest.approx(right / 40)
    assert str(path) in report.lines()[0]
    assert evaluate(predictor, path).metrics == report.metrics


def test_columns_of_training_that_a_table_lacks_are_told_with_the_option(
    predictor: Predictor, tmp_path: Path
) -> None:
    path = tmp_path / "data.csv"
    hint = r"; '{}' is what the model was trained with, so name what this table has with {}"
    path.write_text("text,mood\ngood,joy\n")
    with pytest.raises(BertineError, match=hint.format("label", "label_column")):
        evaluate(predictor, path)
    assert evaluate(predictor, path, label_column="mood").metrics["accuracy"] in (0.0, 1.0)
    path.write_text("review,label\ngood,joy\n")
    wanted = hint.format("text", "text_columns$")
    with pytest.raises(BertineError, match=wanted):
        evaluate(predictor, path)
    with pytest.raises(BertineError, match=wanted):
        predict(predictor, path, tmp_path / "out.csv")


def test_the_text_column_of_a_plain_file_need_not_be_named(
    predictor: Predictor, tmp_path: Path
) -> None:
    task = dataclasses.replace(predictor.task, text_columns=("body",))
    plain, table = tmp_path / "in.txt", tmp_path / "in.csv"
    plain.write_text("good cat\nbad dog\n")
    table.write_text("text\ngood cat\n")
    renamed = Predictor(predictor.model, predictor.tokenizer, task)
    assert predict(renamed, plain, tmp_path / "out.txt").rows == 2
    with pytest.raises(BertineError, match="no column 'body'"):
        predict(renamed, table, tmp_path / "out.csv")
    assert predict(renamed, table, tmp_path / "out.csv", text_columns=["text"]).rows == 1


def test_a_model_that_was_saved_again_answers_the_same(
    predictor: Predictor, tmp_path: Path
) -> None:
    save_model(
        tmp_path / "copy", predictor.model, predictor.tokenizer, task=predictor.task.task_info()
    )
    texts = random_texts(10, seed=9)
    assert predictor.engine is not None
    # The last bits depend on the threads, whose number is measured where it is not named.
    threads = predictor.engine.threads
    copy = Predictor.load(tmp_path / "copy", "cpu", "fp32", threads=threads)
    assert copy.predict(texts) == predictor.predict(texts)


def test_a_regression_that_was_not_unscaled_is_saved_with_its_scale(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = TextRegression(("text",), "score", 24, mean=1000.0, scale=250.0)
    torch.manual_seed(3)
    ours = Predictor(Model(config, task.heads(config)), tokenizer, task)
    texts = random_texts(5)
    expected = [answer.score for answer in ours.predict(texts)]
    ours.save(tmp_path / "saved")
    theirs = Predictor.load(tmp_path / "saved", "cpu", "fp32")
    scores = [answer.score for answer in theirs.predict(texts)]
    # A hundred-thousandth of the scale, also where the score is near 0.
    assert scores == pytest.approx(expected, rel=1e-5, abs=2.5e-3)
    assert [answer.score for answer in ours.predict(texts)] == expected
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    with pytest.raises(BertineError, match="'regression' answers without probabilities; leave out"):
        predict(ours, tmp_path / "in.txt", tmp_path / "out.txt", all_probabilities=True)


def test_what_is_no_text_is_told_by_its_number(predictor: Predictor, classifier: Path) -> None:
    nan = float("nan")
    for gap, shown in (
        *((None, "None"), (nan, "nan"), (5, "5"), (b"a", "b'a'")),
        ({"a cat"}, "{'a cat'}"),
    ):
        with pytest.raises(
            BertineError, match=rf"^texts\[1\]: {shown} \(\w+\) is not a text; give a"
        ):
            predictor.predict(["a cat", gap])  # type: ignore[list-item]
    with pytest.raises(BertineError, match=r"^texts\[0\]: nan "):
        predictor.predict([("a cat", nan)])  # type: ignore[list-item]
    with pytest.raises(BertineError, match=r"^texts\[4\]: None "):
        list(predictor.stream(["a"] * 4 + [None], hold=2))  # type: ignore[list-item]
    with pytest.raises(BertineError, match=r"^texts\[2\]: 2 texts, but the model takes 1"):
        list(predictor.stream(["a", "a", ("a", "b")], hold=2))
    embedder = Embedder.load(classifier, device="cpu", precision="fp32")
    with pytest.raises(BertineError, match=r"^texts\[1\]: nan "):
        embedder(["a cat", nan])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", [iter, tuple, np.array, lambda texts: dict.fromkeys(texts).keys()])
def test_texts_may_come_in_any_way(predictor: Predictor, kind: Callable[..., Any]) -> None:
    given = ["a cat sat", "a dog ran"]
    expected = predictor(given)
    found = predictor(kind(given))
    assert list(found) == list(expected)
    assert str(found) == str(expected)
    explained = explain(predictor, texts=kind(given))
    assert str(explained) == str(explain(predictor, texts=given))
    frame = [{"text": text, "n": 1} for text in given]
    columns = {"text": given, "n": [1, 1]}
    assert list(predictor(columns)) == list(predictor(frame)) == list(expected)
    assert len(explain(predictor, texts=columns).items) == 2
    for nothing in (5, b"a cat", None):
        with pytest.raises(BertineError, match=r"^texts is .*; give a text or a list of texts"):
            predictor(nothing)  # type: ignore[call-overload]


def test_one_string_or_dictionary_gets_one_answer(
    predictor: Predictor, pair_classifier: Path, classifier: Path
) -> None:
    expected = predictor.predict_one("a cat sat")
    assert predictor("a cat sat") == expected
    assert predictor({"text": "a cat sat", "label": "joy"}) == expected
    assert [type(each) for each in predictor([{"text": "a cat sat"}, "a dog"])] == [
        type(expected)
    ] * 2
    pairs = Predictor.load(pair_classifier, "cpu", "fp32")
    pair = {"hypothesis": "a dog ran", "premise": "a cat sat"}  # by name, not by order
    assert pairs(pair) == pairs.predict_one(("a cat sat", "a dog ran"))
    with pytest.raises(
        BertineError, match=r"^texts\[0\]: there is no column 'premise'.*'premises'"
    ):
        pairs({"premises": "a cat", "hypothesis": "a dog"})
    embedder = Embedder.load(classifier, device="cpu", precision="fp32")
    vectors = embedder(["a cat sat"])
    assert vectors.shape == (1, 32)
    for one in ("a cat sat", {"text": "a cat sat"}):
        np.testing.assert_array_equal(embedder(one), vectors[0])
    with pytest.raises(BertineError, match="there is no column 'text'"):
        embedder([{"first": "a cat", "second": "a dog"}])


def test_a_row_is_cut_once_however_many_of_its_choices_are(
    config: BertConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    task = MultipleChoice(("text",), ("one", "two"), "label", 12)
    predictor = Predictor(Model(config, task.heads(config)), tokenizer, task)
    source = tmp_path / "in.csv"
    rows = ["very " * 5 + "," + "cat " * 10 + "," + "dog " * 10, "very,cat,dog"]
    source.write_text("\n".join(["text,one,two", *rows]) + "\n")
    report = predict(predictor, source, tmp_path / "out.csv")
    # Five pieces, ten of a choice and three special tokens are six too many, twice.
    assert "1 of 2 texts were cut at 12 pieces (12 pieces lost)" in report.lines()
