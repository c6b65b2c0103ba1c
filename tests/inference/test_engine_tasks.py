"""Every task gets of the engine what it gets of the model: outputs, in windows and with padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bertine.data.entities import Sentence, Sentences
from bertine.data.examples import Example, Examples
from bertine.families.bert import BertConfig
from bertine.inference.compute import Engine, run_features, why_not_int8
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.tokenizer import Tokenizer

from .test_predictor import random_texts

TEXTS = [*random_texts(9, seed=3), "", " ".join(random_texts(6, seed=5))]
PAIRS: list[tuple[str, ...]] = list(zip(TEXTS, reversed(TEXTS), strict=True))
FULL = [text for text in TEXTS if text]
CHOICES = [("good cat", *FULL[at : at + 2 + at % 3]) for at in range(4)]
SPANS = SpanLimits(doc_stride=8, max_question_length=10, max_answer_length=6)

#: Each task with its texts.
TASKS: dict[str, tuple[Any, list[tuple[str, ...]]]] = {
    "text": (
        TextClassification(("a", "b", "c"), ("text",), "label", 24),
        [(text,) for text in TEXTS],
    ),
    "pairs": (TextClassification(("a", "b"), ("left", "right"), "label", 24), PAIRS),
    "windows": (
        TextClassification(("a", "b"), ("text",), "label", 16, long_text="windows"),
        [(text,) for text in TEXTS],
    ),
    "regression": (TextRegression(("left", "right"), "score", 24), PAIRS),
    "multi-label": (
        MultiLabel(("a", "b", "c"), max_length=24),
        [(text,) for text in TEXTS],
    ),
    "choice": (MultipleChoice(("question",), ("a", "b", "c", "d"), "right", 24), CHOICES),
    "spans": (
        SpanExtraction(max_length=24, limits=SPANS),
        [(text or "cat", other) for text, other in PAIRS],
    ),
    "tagging": (Tagging(("B-X", "I-X", "O"), max_length=16), [(text,) for text in TEXTS]),
    "documents": (
        Tagging(("B-X", "I-X", "O"), max_length=24, document_context=True),
        [(text,) for text in TEXTS],
    ),
}


def examples_of(task: Any, texts: list[tuple[str, ...]]) -> Any:
    if isinstance(task, Tagging):
        items = [
            Sentence(tuple(text.split()) or ("cat",), None, at + 1, at // 4)
            for at, (text,) in enumerate(texts)
        ]
        return Sentences("input", ("words",), None, items)
    numbered = [Example(text, line=at) for at, text in enumerate(texts, 1)]
    return Examples("input", task.text_columns, None, numbered)


@pytest.mark.parametrize("name", TASKS)
def test_outputs_are_those_of_the_model(
    name: str, config: BertConfig, tokenizer: Tokenizer
) -> None:
    task, texts = TASKS[name]
    torch.manual_seed(2)
    config = config.replace(hidden_act="gelu_new", layer_norm_eps=1e-5, initializer_range=0.2)
    add_pooler = task.head not in ("token_classifier", "spans")
    model = Model(config, task.heads(config), add_pooler=add_pooler).eval()
    examples = examples_of(task, texts)
    features = task.featurize(examples, tokenizer)
    expected = run_features(model, task, features, pad_id=tokenizer.pad_token_id)
    engine = Engine(model, precision="fp32", threads=1, max_tokens=96)
    found = run_features(engine, task, features, pad_id=tokenizer.pad_token_id)
    assert len(found) == len(expected) == len(features)
    for feature, ours, theirs in zip(features, found, expected, strict=True):
        if ours.ndim == 2:  # of every token; the engine leaves out columns of padding
            length = len(feature.input_ids)
            ours, theirs = ours[:length], theirs[:length]
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, atol=2e-4)
    # And the other precisions answer to all, nearly the same.
    of_parts = Predictor(model, tokenizer, task).run(examples)[0]
    assert len(of_parts) == len(texts)
    for precision in ["bf16"] + ([] if why_not_int8() else ["int8"]):
        rough = Engine(model, precision=precision, threads=1)
        near = run_features(rough, task, features, pad_id=tokenizer.pad_token_id)
        wrong = size = 0.0
        for feature, ours, theirs in zip(features, near, expected, strict=True):
            if ours.ndim == 2:
                length = len(feature.input_ids)
                ours, theirs = ours[:length], theirs[:length]
            wrong += float(np.square(ours - theirs).sum())
            size += float(np.square(theirs).sum())
        assert (wrong / size) ** 0.5 < 0.15
        assert len(task.decode(near, features)) == len(texts)
