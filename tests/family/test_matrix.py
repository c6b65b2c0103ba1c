"""Every variant with every task, by its users' way, from a pre-trained model to answers: what is
fine-tuned is saved, what is saved is loaded, and answers the same; test_in_transformers.py opens it
there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertine
from bertine.hub.model_directory import load_model
from bertine.inference.compute import why_not_int8
from tolerance import network_terms, tolerance

from .conftest import Home, Once, Run
from .task_cases import ONE, TASKS, WHOLE, TaskCase, finetune_once


@pytest.fixture(scope="module", params=TASKS)
def finetuned(request: pytest.FixtureRequest, home: Home, once: Once) -> tuple[TaskCase, Path]:
    case = TASKS[request.param]
    if case.head not in home.variant.family.heads:
        pytest.skip("its models have no head for this task")
    return case, finetune_once(home, once, request.param, *WHOLE)


@pytest.mark.fast_cases(finetuned=("text",))
@pytest.mark.fast_cases(home=("bert",))
def test_answers_are_the_same_in_memory_and_in_files(
    finetuned: tuple[TaskCase, Path], tmp_path: Path, run: Run
) -> None:
    case, folder = finetuned
    predictor = bertine.Predictor.load(folder, "cpu", "fp32")
    data = case.write(tmp_path / case.file)
    answers = tmp_path / ("answers.conll" if case.task == "tagging" else "answers.jsonl")
    exactly = ("--precision", "fp32")
    details = ("--all-probabilities",) if case.task == "text" else ()
    run("predict", folder, "--input", data, "--output", answers, *details, *exactly)
    assert len(answers.read_text().splitlines()) >= 48
    if case.task == "text":
        check_classified(folder, predictor, [json.loads(line) for line in answers.open()])
    report = bertine.evaluate(folder, data, precision="fp32")
    told = run("evaluate", folder.parent, "--data", data, *exactly)  # a run stands for its model
    assert told.splitlines()[0] == report.lines()[0]
    assert len(list(predictor.predict(list(case.texts)))) == len(case.texts)


def check_classified(folder: Path, predictor: bertine.Predictor, rows: list[Any]) -> None:
    """The rows of a file are the answers in memory, and what transformers makes of the texts."""
    columns = predictor.task.text_columns
    texts = [tuple(row[column] for column in columns) for row in rows]
    in_memory = predictor.predict([t[0] if len(t) == 1 else t for t in texts])
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    # Where padding is read, an answer is that of the text alone.
    alone = predictor.model.backbone.reads_padding
    logits = []
    for group in [[text] for text in texts] if alone else [texts]:
        encoded = tokenizer(*map(list, zip(*group, strict=True)), padding=True, return_tensors="pt")
        with torch.no_grad():
            logits.append(classifier(**encoded).logits)
    theirs = torch.cat(logits).softmax(-1)
    labels = tuple(classifier.config.id2label.values())
    assert labels == predictor.task.labels
    for row, answer, probabilities in zip(rows, in_memory, theirs.tolist(), strict=True):
        assert row["predicted_label"] == answer.label
        expected = dict(zip(labels, probabilities, strict=True))
        assert answer.probabilities == pytest.approx(expected, abs=1e-5)
        written = {label: row[f"probability_{label}"] for label in labels}
        assert written == pytest.approx(expected, abs=1e-4)


def numbers_of(answer: Any) -> list[float]:
    """The numbers that an answer stands on."""
    if hasattr(answer, "n_best"):
        return [answer.probability]
    if hasattr(answer, "score"):
        return [answer.score]
    found = answer.probabilities
    return list(found.values() if isinstance(found, dict) else found)


@pytest.mark.fast_cases(home=("bert",), finetuned=("text", "tagging"))
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fast_answers_are_close(finetuned: tuple[TaskCase, Path], precision: str) -> None:
    case, folder = finetuned
    try:
        fast = bertine.Predictor.load(folder, "cpu", precision)
    except bertine.BertineError as error:
        # Where 8 bits can be computed, a variant says what keeps it from them.
        if not why_not_int8() and "this machine cannot" in str(error):
            raise
        pytest.skip(str(error))
    exact = bertine.Predictor.load(folder, "cpu", "fp32")
    bound = 0.2 if case.task == "regression" else 0.05
    for ours, theirs in zip(
        fast.predict(list(case.texts)), exact.predict(list(case.texts)), strict=True
    ):
        assert numbers_of(ours) == pytest.approx(numbers_of(theirs), abs=bound)


@pytest.mark.fast_cases(home=("bert",), finetuned=("text", "tagging"))
def test_answers_are_explained(finetuned: tuple[TaskCase, Path]) -> None:
    """A word for each of the text, and of a model that was trained they do not all weigh the
    same."""
    case, folder = finetuned
    if case.task not in ("text", "tagging"):
        pytest.skip("text and tagging stand for all")
    explanation = bertine.Predictor.load(folder, "cpu", "fp32").explain(case.texts[0])
    weights = [word.contribution for word in explanation.words]
    assert len(set(weights)) > 1


@pytest.mark.fast_cases(home=("bert",), finetuned=("text", "tagging"))
def test_a_server_answers_explains_and_shows_attention(
    home: Home, finetuned: tuple[TaskCase, Path]
) -> None:
    pytest.importorskip("fastapi")
    from serving.conftest import running

    case, folder = finetuned
    names = bertine.Predictor.load(folder, "cpu", "fp32").tokenizer.names
    with running({"task": folder, "base": home.masked_lm}) as ask:
        inputs = [list(text) if isinstance(text, tuple) else text for text in case.texts]
        answers = ask("/predict", {"texts": inputs, "model": "task"})
        assert answers.status == 200, answers.body
        assert len(answers.json["predictions"]) == len(inputs)
        assert ask("/explain", {"text": inputs[0], "model": "task"}).json["words"]
        if home.variant.hides:
            listed = {entry["id"]: entry for entry in ask("/v1/models").json["data"]}
            hidden = f"the old {listed['base']['mask']} sleeps"
            filled = ask("/fill-mask", {"model": "base", "texts": [hidden]}).json
            assert len(filled["filled"][0]["masks"]) == 1
        for item in ({"text": ONE[0]}, {"text": ONE[0], "pair": "the soup"}):
            answer = ask("/attention", {**item, "model": "base"})
            if not load_model(home.masked_lm).model.backbone.shows_attention:
                assert answer.status == 422
                assert "has no attention" in answer.json["error"]["message"]
                continue
            shown = answer.json["tokens"]
            words = [each["token"] for each in shown if each["end"]]
            assert set(words) <= {*names, *(name[2:] for name in names)}
            assert not words[0].startswith("##"), "no word goes on where a text begins"


#: Variants whose graphs are exported: each has layers of its own. tests/inference exports every
#: kind of head of BERT.
EXPORTED = ("modernbert", "deberta-v2", "xlnet", "bart")


@pytest.mark.slow
def test_graphs_are_exported(finetuned: tuple[TaskCase, Path], home: Home, tmp_path: Path) -> None:
    case, folder = finetuned
    if case != TASKS["text"] or home.variant.model_type not in EXPORTED:
        pytest.skip("texts, with layers of each kind, stand for all")
    pytest.importorskip("onnxruntime")
    report = bertine.export(folder, tmp_path / "graph")
    near = report.differences["model.onnx"]
    assert near.largest < tolerance(near.scale, terms=network_terms(2, 32))
