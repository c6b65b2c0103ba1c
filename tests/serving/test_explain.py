"""Attention is that of transformers; gradient times input is what a small change of a token
does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import toys
from bertine.errors import BertineError
from bertine.modeldir import load_model
from bertine.models.model import Model
from bertine.serving.explain import Explainable, Explainer
from bertine.tasks import task_class
from bertine.tasks.classification import TextClassification
from bertine.tasks.examples import Example, Examples

from .conftest import Client

SENTENCE = toys.sentence("cat", "old")
PAIRS = {"pairs", "choice", "spans"}


def explainer(folder: Path) -> Explainer:
    loaded = load_model(folder)
    task = None
    if loaded.task is not None:
        task = task_class(loaded.task.name).from_info(loaded.task, loaded.config)
    return Explainer(loaded.model, loaded.tokenizer, task, 96)


def larger(model: Model, at: int, factor: float) -> torch.utils.hooks.RemovableHandle:
    """Multiply the embedding of the token `at` by `factor`."""

    def change(module: object, inputs: object, output: Tensor) -> Tensor:
        changed = output.clone()
        changed[at] *= factor
        return changed

    return model.backbone.embeddings.register_forward_hook(change)


@pytest.mark.parametrize("kind", ["text", "regression", "multi-label"])
def test_scores_are_what_a_token_adds_to_first_order(kind: str, models: dict[str, Path]) -> None:
    look = explainer(models[kind])
    found = look(Explainable(SENTENCE))
    ids = look.tokenizer.encode(SENTENCE).input_ids
    assert [token["token"] for token in found["tokens"]] == [look.tokenizer.tokens[i] for i in ids]
    task = look.task
    assert task is not None

    def score() -> float:
        batch = look._batch(look.tokenizer.encode(SENTENCE))
        with torch.no_grad():
            output = task.outputs(look.model, batch)[0]
        labels = getattr(task, "labels", ())
        return float(output[labels.index(found["answer"])] if labels else output)

    step = 0.02
    for at in range(len(ids)):
        sides = []
        for factor in (1 + step, 1 - step):
            handle = larger(look.model, at, factor)
            sides.append(score())
            handle.remove()
        assert found["scores"][at] == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-3)


def test_attention_is_that_of_transformers(models: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = models["fill-mask"]
    theirs = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    look = explainer(folder)
    encoding = look.tokenizer.encode(SENTENCE, "the soup")
    with torch.no_grad():
        expected = theirs(
            torch.tensor([encoding.input_ids]),
            token_type_ids=torch.tensor([encoding.token_type_ids]),
            output_attentions=True,
        ).attentions
    for layer in range(2):
        for head in range(2):
            found = look(Explainable(SENTENCE, "the soup", layer, head))["attention"]
            np.testing.assert_allclose(found, expected[layer][0, head].numpy(), atol=2e-5)


@pytest.mark.parametrize(
    "kind",
    ["text", "pairs", "regression", "multi-label", "choice", "spans", "tagging", "fill-mask"],
)
def test_every_task_is_explained(kind: str, ask: Client) -> None:
    body = {"model": kind, "text": "the old [MASK] sleeps"}
    if kind in PAIRS:
        body["pair"] = SENTENCE
    answer = ask("/explain", body)
    assert answer.status == 200, answer.body
    found = answer.json
    assert len(found["scores"]) == len(found["tokens"])
    assert any(score != 0 for score in found["scores"])
    parts = [body["text"], body.get("pair", "")]
    for token in found["tokens"]:
        if token["end"]:
            assert parts[token["part"]][token["begin"] : token["end"]] == token["token"]
    if kind == "spans":
        assert found["answer"] in SENTENCE


def test_the_answer_is_that_of_predict(ask: Client) -> None:
    for topic in toys.TOPICS:
        text = toys.sentence(topic, "warm")
        label = ask("/predict", {"texts": [text], "model": "text"}).json["predictions"][0]["label"]
        assert ask("/explain", {"text": text, "model": "text"}).json["answer"] == label


def test_long_texts_are_cut_and_counted(ask: Client) -> None:
    # As the answer: two tokens are [CLS] and [SEP].
    for path in ("/explain", "/attention"):
        for model, longest in (("text", 16), ("fill-mask", 40)):
            found = ask(path, {"text": "[MASK] " + "cat " * 99, "model": model}).json
            assert len(found["tokens"]) == longest
            assert found["pieces_cut"] == 102 - longest


@pytest.mark.parametrize("mode", ["tail", "head-tail", "windows"])
def test_of_a_long_text_what_the_task_reads_is_looked_at(mode: str) -> None:
    task = TextClassification(("animal", "dish"), ("text",), "label", 16, long_text=mode)
    torch.manual_seed(0)
    model, tokenizer = Model(toys.config(), task.heads(toys.config())).eval(), toys.tokenizer()
    look = Explainer(model, tokenizer, task, 96)
    text = " ".join(toys.sentence(topic, "warm") for topic in toys.TOPICS)
    first = task.featurize(Examples("texts", ("text",), None, [Example((text,))]), tokenizer)[0]
    found = look(Explainable(text))
    tokens = [token["token"] for token in found["tokens"]]
    assert tokens == [tokenizer.tokens[index] for index in first.input_ids]
    for token in found["tokens"][1:-1]:
        assert text[token["begin"] : token["end"]] == token["token"]
    assert found["pieces_cut"] == len(text.split()) - 14
    with torch.no_grad():
        outputs = task.outputs(model, task.collate([first], 0))[0]
    assert found["answer"] == task.labels[int(outputs.argmax())]
    # What fits is looked at as it is.
    assert look(Explainable(SENTENCE))["pieces_cut"] == 0
    assert len(look(Explainable(SENTENCE, None, 0, 0))["tokens"]) == len(SENTENCE.split()) + 2


def test_a_model_without_second_texts_takes_none(tmp_path: Path) -> None:
    look = explainer(toys.write_model(tmp_path / "model", type_vocab_size=1))
    assert look(Explainable("the cat", None, 0, 0))["attention"]
    with pytest.raises(BertineError, match="takes one text"):
        look(Explainable("the cat", "the soup", 0, 0))


def test_looking_leaves_the_model_as_it_was(ask: Client) -> None:
    body = {"texts": [SENTENCE], "model": "text", "all_probabilities": True}
    before = ask("/predict", body).json
    ask("/explain", {"text": SENTENCE, "model": "text"})
    model = ask.service.models["text"].model.model
    assert not model.backbone.embeddings._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    assert ask("/predict", body).json == before
