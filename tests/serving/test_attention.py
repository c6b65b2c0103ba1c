"""Attention is that of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.families.roberta import RobertaConfig
from bertine.hub.model_directory import load_model
from bertine.models.heads import Model
from bertine.serving.attention import AttentionQuestion, AttentionReader
from bertine.tasks import task_class
from bertine.tasks.classification import TextClassification

from .conftest import Client

SENTENCE = toys.sentence("cat", "old")


def reader(folder: Path) -> AttentionReader:
    loaded = load_model(folder)
    task = None
    if loaded.task is not None:
        task = task_class(loaded.task.name).from_info(loaded.task, loaded.config)
    return AttentionReader(loaded.model, loaded.tokenizer, task, 96)


def test_attention_is_that_of_transformers(models: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = models["fill-mask"]
    theirs = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    look = reader(folder)
    encoding = look.tokenizer.encode(SENTENCE, "the soup")
    with torch.no_grad():
        expected = theirs(
            torch.tensor([encoding.input_ids]),
            token_type_ids=torch.tensor([encoding.token_type_ids]),
            output_attentions=True,
        ).attentions
    for layer in range(2):
        for head in range(2):
            found = look(AttentionQuestion(SENTENCE, "the soup", layer, head))["attention"]
            np.testing.assert_allclose(found, expected[layer][0, head].numpy(), atol=2e-5)


def test_texts_that_are_encoded_apart_do_not_look_at_each_other(models: dict[str, Path]) -> None:
    loaded = load_model(models["fill-mask"])
    task = TextClassification(("0", "1"), ("a", "b"), max_length=32, pair_pooling="mean")
    look = AttentionReader(loaded.model, loaded.tokenizer, task, 96)
    alone = [look(AttentionQuestion(text)) for text in (SENTENCE, "the soup")]
    both = look(AttentionQuestion(SENTENCE, "the soup"))
    split = len(alone[0]["tokens"])
    assert [each["part"] for each in both["tokens"]] == [0] * split + [1] * len(alone[1]["tokens"])
    names = [[each["token"] for each in found["tokens"]] for found in (*alone, both)]
    assert names[2] == names[0] + names[1]
    attention = np.array(both["attention"])
    np.testing.assert_allclose(attention[:split, :split], alone[0]["attention"], atol=2e-5)
    np.testing.assert_allclose(attention[split:, split:], alone[1]["attention"], atol=2e-5)
    assert not attention[:split, split:].any()
    assert not attention[split:, :split].any()


def test_long_texts_are_cut_and_counted(ask: Client) -> None:
    # As the answer: two tokens are [CLS] and [SEP].
    for model, longest in (("text", 16), ("fill-mask", 40)):
        found = ask("/attention", {"text": "[MASK] " + "cat " * 99, "model": model}).json
        assert len(found["tokens"]) == longest
        assert found["pieces_cut"] == 102 - longest


@pytest.mark.parametrize("mode", ["tail", "head-tail", "windows"])
def test_of_a_long_text_what_the_task_reads_is_looked_at(mode: str) -> None:
    task = TextClassification(("animal", "dish"), ("text",), "label", 16, long_text=mode)
    torch.manual_seed(0)
    model, tokenizer = Model(toys.config(), task.heads(toys.config())).eval(), toys.tokenizer()
    look = AttentionReader(model, tokenizer, task, 96)
    text = " ".join(toys.sentence(topic, "warm") for topic in toys.TOPICS)
    first = task.featurize(Examples("texts", ("text",), None, [Example((text,))]), tokenizer)[0]
    found = look(AttentionQuestion(text))
    tokens = [token["token"] for token in found["tokens"]]
    assert tokens == [tokenizer.tokens[index] for index in first.input_ids]
    for token in found["tokens"][1:-1]:
        assert text[token["start"] : token["end"]] == token["token"]
    assert found["pieces_cut"] == len(text.split()) - 14
    # What fits is looked at as it is.
    assert look(AttentionQuestion(SENTENCE))["pieces_cut"] == 0


def test_a_model_without_second_texts_takes_none(tmp_path: Path) -> None:
    look = reader(toys.write_model(tmp_path / "model", type_vocab_size=1))
    assert look(AttentionQuestion("the cat"))["attention"]
    with pytest.raises(BertineError, match="takes one text"):
        look(AttentionQuestion("the cat", "the soup"))


def test_a_model_that_tells_texts_apart_without_types_takes_two() -> None:
    config = RobertaConfig(**toys.config(type_vocab_size=1).to_dict())
    look = AttentionReader(Model(config, {}).eval(), toys.tokenizer(), None, 96)
    found = look(AttentionQuestion("the cat", "the soup"))
    assert [token["part"] for token in found["tokens"]] == [0, 0, 0, 0, 1, 1, 1]


def test_without_a_head_it_is_the_mean_of_the_last_layer(ask: Client) -> None:
    body = {"text": SENTENCE, "model": "text"}
    heads = [ask("/attention", {**body, "layer": 1, "head": head}).json for head in range(2)]
    mean = np.mean([each["attention"] for each in heads], axis=0)
    assert np.allclose(ask("/attention", body).json["attention"], mean, atol=1e-4)
