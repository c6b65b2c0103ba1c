"""What is read of texts longer than the model, and the weights of rare classes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.models.heads import Model
from bertine.tasks.base import parts_of, truncation_note
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.whole_text import TextRegression
from bertine.tokenization.base import Template

CLS, SEP = 900, 901
FRAME = Template((CLS, None, SEP), (CLS, None, SEP, None, SEP)).one


def text(pieces: int) -> np.ndarray:
    """[CLS] 0 1 2 … [SEP]."""
    return np.array([CLS, *range(pieces), SEP], dtype=np.int32)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("head", [[*range(8)]]),
        ("tail", [[*range(12, 20)]]),
        ("head-tail", [[0, 1, *range(14, 20)]]),
        ("windows", [[*range(8)], [*range(4, 12)], [*range(8, 16)], [*range(12, 20)]]),
    ],
)
def test_each_way_keeps_its_part(mode: str, expected: list[list[int]]) -> None:
    found = parts_of(text(20), 10, mode, FRAME)
    assert [part.tolist() for part in found] == [[CLS, *part, SEP] for part in expected]
    for pieces in (0, 1, 8):
        (whole,) = parts_of(text(pieces), 10, mode, FRAME)
        assert whole.tolist() == text(pieces).tolist()


@pytest.mark.parametrize("pieces", range(9, 40))
def test_windows_lose_nothing_and_are_full(pieces: int) -> None:
    found = parts_of(text(pieces), 10, "windows", FRAME)
    assert all(len(part) == 10 for part in found)
    assert sorted({piece for part in found for piece in part[1:-1].tolist()}) == [*range(pieces)]
    assert len({tuple(part.tolist()) for part in found}) == len(found)


def long_examples() -> Examples:
    long = " ".join([toys.sentence("cat", "old")] * 4)  # 32 pieces
    texts = [long, "the cat", f"{long} {long}"]
    items = [Example((words,), label, 1) for words, label in zip(texts, "aba", strict=True)]
    return Examples("train.csv", ("text",), "label", items)


def test_windows_are_examples_in_training_and_one_answer_in_the_end() -> None:
    examples = long_examples()
    task = TextClassification(("a", "b"), max_length=18, long_text="windows")
    features = task.featurize(examples, toys.tokenizer())
    assert [feature.row for feature in features] == [0, 0, 0, 1, *[2] * 7]
    assert [feature.label for feature in features] == [0, 0, 0, 1, *[0] * 7]
    assert truncation_note(features, 18) == (
        "2 of 3 texts are longer than 18 pieces and are read in 10 windows"
    )
    model = Model(toys.config(), task.heads(toys.config())).eval()
    with torch.no_grad():
        logits = task.outputs(model, task.collate(features, 0)).numpy()
    answers = task.decode(list(logits), features)
    assert len(answers) == 3
    mean = torch.from_numpy(logits[:3].mean(0)).double().softmax(-1).tolist()
    assert list(answers[0].probabilities.values()) == pytest.approx(mean, rel=1e-5)
    scores = TextRegression(long_text="windows", max_length=18)
    plain = [np.float32(number) for number in range(11)]
    assert [answer.score for answer in scores.decode(plain, features)] == [1.0, 3.0, 7.0]


def test_pairs_and_unknown_ways_are_refused() -> None:
    with pytest.raises(BertineError, match="long_text 'tail' is for single texts"):
        TextClassification(("a", "b"), ("x", "y"), long_text="tail")
    with pytest.raises(BertineError, match="long_text is 'middle', but must be one of head, tail"):
        TextRegression(long_text="middle")


def test_balanced_weights_let_every_class_count_the_same() -> None:
    items = [Example(("the cat",), label) for label in "aaaaab"]
    examples = Examples("train.csv", ("text",), "label", items)
    task = TextClassification.from_examples(examples, max_length=18)
    assert task.balanced(examples) == pytest.approx((6 / (2 * 5), 6 / (2 * 1)))
    weighted = TextClassification(("a", "b"), max_length=18, class_weights=task.balanced(examples))
    model = Model(toys.config(), task.heads(toys.config())).eval()
    batch = task.collate(task.featurize(examples, toys.tokenizer()), 0)
    with torch.no_grad():
        logits = task.outputs(model, batch)
        total = weighted.terms(model, batch)["classifier"].total
    losses = -logits.log_softmax(-1)
    assert float(total) == pytest.approx(float(0.6 * losses[:5, 0].sum() + 3 * losses[5, 1]))


def test_weights_are_those_of_the_windows_that_are_trained_on() -> None:
    """A class of long texts is met more often than in the table of examples."""
    examples = long_examples()  # in 3, 1 and 7 windows: a, b, a
    task = TextClassification(("a", "b"), max_length=18, long_text="windows")
    task = dataclasses.replace(task, class_weights=task.balanced(examples))
    assert task.class_weights == pytest.approx((3 / 4, 3 / 2))
    features = task.featurize(examples, toys.tokenizer())
    assert task.weighted_for(features).class_weights == pytest.approx((11 / 20, 11 / 2))
    whole = dataclasses.replace(task, long_text="head")
    plain = whole.featurize(examples, toys.tokenizer())
    assert whole.weighted_for(plain).class_weights == whole.class_weights  # to the bit
    many = MultiLabel(("a", "b"), max_length=18, long_text="windows")
    many = dataclasses.replace(many, positive_weights=many.balanced(examples))
    assert many.positive_weights == pytest.approx((1 / 2, 2))
    windows = many.featurize(examples, toys.tokenizer())
    assert many.weighted_for(windows).positive_weights == pytest.approx((1 / 10, 10))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_focal_loss_is_written_out(weighted: bool) -> None:
    items = [Example((text,), label) for text, label in [("the cat", "a"), ("a dog .", "b")]]
    examples = Examples("train.csv", ("text",), "label", items)
    weights = (0.5, 1.5) if weighted else None
    task = TextClassification(("a", "b"), max_length=18, class_weights=weights, focal_gamma=2.0)
    torch.manual_seed(0)
    settings = toys.config(initializer_range=0.3)
    model = Model(settings, task.heads(settings)).eval()
    batch = task.collate(task.featurize(examples, toys.tokenizer()), 0)
    term = task.terms(model, batch)["classifier"]
    p = task.outputs(model, batch).softmax(-1).diagonal()
    scale = torch.tensor([0.5, 1.5]) if weighted else 1.0
    assert term.total.item() == pytest.approx(-(scale * (1 - p) ** 2 * p.log()).sum().item())
    torch.testing.assert_close(
        torch.autograd.grad(term.total, list(model.heads.parameters()))[0],
        torch.autograd.grad(
            -(scale * (1 - p) ** 2 * p.log()).sum(), list(model.heads.parameters())
        )[0],
    )
