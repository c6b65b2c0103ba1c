"""The loss of each example: what the training log's loss is the mean of, for every task."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tagged
import toys
from bertine.data.entities import Sentence, Sentences
from bertine.data.examples import Example, Examples, read_examples
from bertine.data.label_sets import joined
from bertine.data.squad import Gold, Question, SpanExamples
from bertine.inference import evaluate
from bertine.inference.compute import run_features
from bertine.inference.evaluate import write_worst
from bertine.inference.predictor import Pipeline
from bertine.inference.ranking import ranked
from bertine.models.heads import Model
from bertine.tasks.answer import Mark, WorstExample, worst_lines
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction, SpanLimits
from bertine.tasks.tagged_words import TaggedText, Tags
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression

TOPICS = list(toys.TOPICS)
#: From short to long, so that sorting by length changes their order.
TEXTS = [" ".join([toys.sentence(TOPICS[n % 8], toys.ADJECTIVES[n % 4])] * n) for n in range(1, 5)]


def example_losses(model: Model, task: Task[Any], features: Any) -> list[float]:
    return task.losses(run_features(model, task, features, pad_id=0), features)


def worst_examples(
    model: Any, task: Any, examples: Any, tokenizer: Any, n: int
) -> list[WorstExample]:
    return evaluate.worst_examples(Pipeline(model, task, tokenizer), examples, n)[0]


def texts_with(labels: list[str | None]) -> Examples[Any]:
    items = [Example((text,), label) for text, label in zip(TEXTS, labels, strict=True)]
    return Examples("toy", ("text",), "label", items)


def questions(limits: SpanLimits) -> tuple[SpanExtraction, SpanExamples]:
    """The second has its answer in the last window, the third has none."""
    context = " ".join(toys.sentence(topic, "old") for topic in TOPICS[:4])
    items = []
    for word in ("sofa", "river", None):
        at = context.find(word) if word else None
        gold = Gold((word,), (at, at + len(word)), True) if word and at else Gold((), None, True)
        items.append(Question(("the old cat sleeps in", context), gold))
    examples = SpanExamples("toy", ("question", "context"), "answers", items, v2=True)
    return SpanExtraction.from_examples(examples, max_length=24, limits=limits), examples


def sentences() -> Sentences:
    items = [Sentence(tuple(words), tuple(tags)) for words, tags in tagged.sentences(3)]
    return Sentences("toy", ("words",), "tags", items)


def cases() -> list[tuple[str, Task[Any], Examples[Any]]]:
    classes = texts_with(["animal", "dish", "dish", "animal"])
    scores = texts_with(["1000", "2500", "-300", "0"])
    sets = texts_with([joined(["a", "b"]), "", "c", joined(["a", "c"])])
    quiz = Examples("toy", ("given", "one", "two", "three"), "label", [])
    quiz.items = [
        Example(("the cat", "sleeps .", "boils in the pot .", ""), "0"),
        Example(("the old soup", "barks .", "grazes .", "boils in the warm pot ."), "2"),
    ]
    spans, asked = questions(SpanLimits(doc_stride=8, max_question_length=8))
    plain = TextClassification.from_examples(classes, max_length=40)
    return [
        ("classes", plain, classes),
        ("weighted", replace(plain, class_weights=(5.0, 0.2)), classes),
        ("windows", replace(plain, max_length=10, long_text="windows"), classes),
        ("regression", TextRegression.from_examples(scores, max_length=40), scores),
        ("labels", MultiLabel.from_examples(sets, max_length=40), sets),
        ("choice", MultipleChoice.from_examples(quiz, max_length=40), quiz),
        ("tagging", Tagging.from_examples(sentences(), max_length=40), sentences()),
        ("tagging in windows", Tagging.from_examples(sentences(), max_length=6), sentences()),
        ("spans", spans, asked),
    ]


def model_of(task: Task[Any], spread: float = 1.0) -> Model:
    torch.manual_seed(1)
    model = Model(toys.config(), task.heads(toys.config()))
    with torch.no_grad():  # answers that differ from text to text
        for parameter in model.parameters():
            parameter.mul_(1 + spread)
    return model.eval()


def of_training(model: Model, task: Task[Any], features: list[Any]) -> float:
    """What a log would say of these features, all in one batch: total over count."""
    if isinstance(task, TextClassification):
        task = replace(task, class_weights=None)
    with torch.no_grad():
        (term,) = task.terms(model, task.collate(features, 0)).values()
    return float(term.total) / term.count


@pytest.mark.parametrize(("name", "task", "examples"), cases(), ids=[case[0] for case in cases()])
def test_it_is_the_loss_of_training(name: str, task: Task[Any], examples: Examples[Any]) -> None:
    model, features = model_of(task), list(task.featurize(examples, toys.tokenizer()))
    model.train()  # dropout must not count, and the mode must come back
    losses = example_losses(model, task, features)
    assert model.training
    model.eval()
    assert len(losses) == len(examples)
    assert len(set(losses)) > 1
    for row, loss in enumerate(losses):
        own = [feature for feature in features if feature.row == row]
        if name == "spans":
            each = [(feature.span, of_training(model, task, [feature])) for feature in own]
            assert len(each) > 1
            holding = [value for span, value in each if span != (0, 0)]
            assert bool(holding) is (row < 2)
            expected = min(holding) if holding else np.mean([value for _, value in each])
        else:
            expected = of_training(model, task, own)
        assert loss == pytest.approx(expected, rel=1e-4), (name, row)


def test_a_saved_regression_tells_the_losses_of_its_training() -> None:
    """In a model directory mean and scale are in the head; the losses stay standardized."""
    _, task, examples = cases()[3]
    assert isinstance(task, TextRegression)
    model = model_of(task)
    features = task.featurize(examples, toys.tokenizer())
    before = example_losses(model, task, features)
    saved = task.finished(model, None)
    again = TextRegression.from_info(saved.task_info(), toys.config())
    assert (again.scale, again.deviation) == (1.0, pytest.approx(task.scale))
    assert example_losses(model, again, features) == pytest.approx(before, rel=1e-3)


def test_without_a_label_there_is_no_loss_and_no_place_among_the_worst() -> None:
    examples = texts_with(["animal", None, "dish", None])
    task = TextClassification(("animal", "dish"), ("text",), "label", 40)
    model = model_of(task)
    features = task.featurize(examples, toys.tokenizer())
    losses = example_losses(model, task, features)
    assert [math.isnan(loss) for loss in losses] == [False, True, False, True]
    worst = worst_examples(model, task, examples, toys.tokenizer(), 10)
    assert sorted(each.index for each in worst) == [0, 2]


def test_the_worst_come_first_with_what_was_answered() -> None:
    _, task, examples = cases()[0]
    model = model_of(task)
    features = task.featurize(examples, toys.tokenizer())
    losses = [round(loss, 5) for loss in example_losses(model, task, features)]
    worst = worst_examples(model, task, examples, toys.tokenizer(), 3)
    assert [each.loss for each in worst] == sorted(losses, reverse=True)[:3]
    answers = [p.label for p in _decoded(model, task, examples)]
    for each in worst:
        assert each.loss == losses[each.index]
        assert each.texts == examples.items[each.index].texts
        assert (each.label, each.answer) == (
            examples.items[each.index].label,
            answers[each.index],
        )


def _decoded(model: Model, task: Task[Any], examples: Examples[Any]) -> list[Any]:
    features = task.featurize(examples, toys.tokenizer())
    with torch.no_grad():
        outputs = [task.outputs(model, task.collate([f], 0))[0].numpy() for f in features]
    return task.decode(outputs, features)


def test_equal_losses_are_in_the_order_of_the_examples() -> None:
    items = [Example((TEXTS[0],), "dish") for _ in range(5)]
    examples = Examples("toy", ("text",), "label", items)
    task = TextClassification(("animal", "dish"), ("text",), "label", 40)
    worst = worst_examples(model_of(task), task, examples, toys.tokenizer(), 3)
    assert [each.index for each in worst] == [0, 1, 2]


def test_the_file_is_short_and_whole(tmp_path: Path) -> None:
    items = [Example(("cat " * 300,), "animal" if n % 2 else "dish") for n in range(30)]
    examples = Examples("toy", ("text",), "label", items)
    task = TextClassification(("animal", "dish"), ("text",), "label", 16)
    answering = Pipeline(model_of(task), task, toys.tokenizer())
    features = answering.prepare(examples).features
    write_worst(tmp_path, task, examples, features, answering.compute(features))
    told = json.loads((tmp_path / "worst.json").read_text(encoding="utf-8"))
    assert told["num_examples"] == 30
    assert len(told["examples"]) == 20
    first = told["examples"][0]
    assert {"index", "texts", "label", "answer", "loss", "file"} <= set(first)
    assert (len(first["texts"][0]), first["texts"][0][-1]) == (400, "…")
    losses = [each["loss"] for each in told["examples"]]
    assert losses == sorted(losses, reverse=True)
    assert told["mean_loss"] <= losses[0]


def test_nothing_is_written_of_no_examples(tmp_path: Path) -> None:
    task = TextClassification(("animal", "dish"), ("text",), "label", 16)
    empty = Examples("toy", ("text",), "label", [])
    write_worst(tmp_path, task, empty, [], [])
    assert not list(tmp_path.iterdir())


def test_each_has_its_place_in_the_file_and_what_the_label_is_given(tmp_path: Path) -> None:
    """The line as an editor counts it: a header, and a cell of two lines before."""
    data = tmp_path / "train.csv"
    data.write_text('text,label\nthe old cat,animal\n"the warm\nsoup",dish\nthe dog,animal\n')
    examples = read_examples(data)
    task = TextClassification(("animal", "dish"), ("text",), "label", 40)
    worst = worst_examples(model_of(task), task, examples, toys.tokenizer(), 3)
    assert {each.index: each.place for each in worst} == {
        0: f"{data}:2",
        1: f"{data}:3",
        2: f"{data}:5",
    }
    for each in worst:
        assert each.label_probability == pytest.approx(math.exp(-each.loss))
        assert (each.label_probability < 0.5) == (each.label != each.answer)
    held = examples.hold_out(0.4, 0)[1]
    assert {each.file for each in worst_examples(model_of(task), task, held, toys.tokenizer(), 3)}
    assert worst_examples(model_of(task), task, held, toys.tokenizer(), 1)[0].file == str(data)
    assert str(data) in "\n".join(worst_lines(worst))


def test_entities_and_answers_are_marked_in_their_texts(tmp_path: Path) -> None:
    tagger = Tagging.from_examples(sentences(), max_length=40)
    for each in worst_examples(model_of(tagger), tagger, sentences(), toys.tokenizer(), 3):
        (true,) = [mark for mark in each.marks if mark.of == "label"]
        assert each.label == f"{each.texts[0][true.begin : true.end]}: {true.label}"
    spans, asked = questions(SpanLimits(doc_stride=8, max_question_length=8))
    for each in worst_examples(model_of(spans), spans, asked, toys.tokenizer(), 3):
        texts = {mark.of: each.texts[1][mark.begin : mark.end] for mark in each.marks}
        assert texts.get("label", "(none)") == each.label
        assert texts.get("answer", "(none)") == each.answer


def test_words_with_a_wrong_tag_are_marked_where_tags_are_plain() -> None:
    words, tags = ("we", "run", "a", "run"), ("PRON", "VERB", "DET", "NOUN")
    answer = Tags(("PRON", "NOUN", "DET", "NOUN"), (1.0,) * 4)
    examples = Sentences("dev.conll", ("words",), None, [Sentence(words, tags, 7)])
    (worst,), _ = ranked(TaggedText, examples, [2.5], [answer], [answer.tags], 1)
    assert worst.texts == ("we run a run",)
    assert worst.marks == (Mark(0, 3, 6, "VERB", "label"), Mark(0, 3, 6, "NOUN", "answer"))


def test_chinese_words_stand_together_and_are_marked_there() -> None:
    words = ("在", "北京", "的", "IBM", "公司")
    answer = Tags(("O", "O", "O", "B-org", "I-org"), (1.0,) * 5)
    item = Sentence(words, ("O", "B-place", "O", "O", "O"), 7)
    examples = Sentences("dev.conll", ("words",), None, [item])
    (worst,), _ = ranked(TaggedText, examples, [2.5], [answer], [answer.tags], 1)
    assert worst.texts == ("在北京的 IBM 公司",)
    assert (worst.label, worst.answer) == ("北京: place", "IBM 公司: org")
    assert worst.marks == (Mark(0, 1, 3, "place", "label"), Mark(0, 5, 11, "org", "answer"))


def test_a_long_text_is_cut_around_its_marks() -> None:
    text = "word " * 400 + "Paris " + "word " * 400
    at = text.index("Paris")
    marks = (Mark(0, at, at + 5, "", "label"), Mark(0, 0, 4, "", "answer"))
    far = WorstExample(0, (text,), "Paris", "word", 1.0, "dev.csv", 2, None, marks[:1]).to_dict()
    (mark,) = far["marks"]
    assert len(far["texts"][0]) <= 400
    assert far["texts"][0][mark["begin"] : mark["end"]] == "Paris"
    both = WorstExample(0, (text,), "Paris", "word", 1.0, "dev.csv", 2, None, marks).to_dict()
    assert [mark["of"] for mark in both["marks"]] == ["answer"]
