"""Pairs that GPT-1 reads in both orders, as its paper does for similarity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import page_files
import toys
from bertine.hub.model_directory import load_model
from bertine.inference.predictor import Predictor
from bertine.models.encoder import TextInputs

PAIRS = [
    ("the cat sleeps", "the small dog barks in the garden"),
    ("soup", "the old soup boils in the pot"),
    ("the old bread bakes in the oven and cools in the bowl " * 4, "the cow grazes"),
]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt") / "model"
    page_files.gpt(folder)
    return folder


def fine_tune(task: str, model: Path, folder: Path, **options: Any) -> Any:
    data = toys.write_pairs(folder / "pairs.csv")
    if task == "regression":
        text = data.read_text(encoding="utf-8")
        data.write_text(text.replace(",same\n", ",5\n").replace(",different\n", ",1\n"))
    out = folder / "run"
    options = {"epochs": 1, "max_length": 32, "precision": "fp32", "baselines": False} | options
    return bertine.finetune(task, model=model, data=data, out=out, pairs="both-orders", **options)


@pytest.mark.parametrize("task", ["text", "regression"])
def test_the_vectors_of_both_orders_are_added_before_the_layer(
    task: str, gpt: Path, tmp_path: Path
) -> None:
    learner = fine_tune(task, gpt, tmp_path)
    loaded = load_model(learner.model)
    model, words = loaded.model, loaded.tokenizer
    with torch.inference_mode():
        expected = []
        for pair in PAIRS:
            first = words.encode(*pair, max_length=32)
            # What is left of both texts, in the other order.
            a, b = (
                [
                    index
                    for index, part in zip(first.input_ids, first.token_type_ids, strict=True)
                    if part == of and index not in words.special_ids
                ]
                for of in (0, 1)
            )
            second = [first.input_ids[0], *b, first.input_ids[len(a) + 1], *a, first.input_ids[-1]]
            vectors = [
                model.encode(TextInputs(torch.tensor([ids]))).pooler_output
                for ids in (first.input_ids, second)
            ]
            expected.append(model.heads["both_orders_classifier"](sum(vectors))[0])
    predictor = Predictor.load(learner.model, "cpu", "fp32")
    prepared = predictor.prepare(predictor.task.examples_of(PAIRS))
    outputs = predictor.compute(prepared.features)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert ours.reshape(-1) == pytest.approx(theirs.numpy(), abs=1e-5)
    # The order makes no difference.
    swapped = predictor.predict([(b, a) for a, b in PAIRS[:2]])
    said = "score" if task == "regression" else "probability"
    assert [getattr(answer, said) for answer in swapped] == pytest.approx(
        [getattr(answer, said) for answer in predictor.predict(PAIRS[:2])], abs=1e-5
    )


def test_it_is_refused_where_it_has_no_meaning(gpt: Path, tmp_path: Path) -> None:
    with pytest.raises(bertine.BertineError, match="read from left to right, such as GPT-1; a "):
        fine_tune("text", toys.write_model(tmp_path / "bert"), tmp_path)
    with pytest.raises(bertine.BertineError, match="trains all weights"):
        fine_tune("text", gpt, tmp_path, frozen=True)
    with pytest.raises(bertine.BertineError, match="for pairs of texts, and the task 'text'"):
        fine_tune("text", gpt, tmp_path, text_columns=["premise"], label_column="label")
    with pytest.raises(bertine.BertineError, match="reads pairs in both orders, which is no graph"):
        bertine.export(fine_tune("text", gpt, tmp_path).model, tmp_path / "graph.onnx")
