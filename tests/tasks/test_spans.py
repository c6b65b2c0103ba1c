"""Span extraction as a task: loss and outputs as in transformers, answers, scores, threshold."""

from __future__ import annotations

import json
from typing import cast

import numpy as np
import pytest
import torch
import transformers

import toys
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.core.task_info import TaskInfo
from bertine.data.squad import Gold, RawQuestion, SpanExamples, span_examples
from bertine.families.bert import FAMILY
from bertine.models.heads import Model
from bertine.tasks.base import values_of
from bertine.tasks.span_scores import SpanAnswer, SpanPrediction
from bertine.tasks.span_windows import unaligned_answers
from bertine.tasks.spans import N_BEST, SpanExtraction, SpanLimits
from squad_scorers import scorer
from tolerance import assert_close, network_terms

NAMES = FAMILY.names

LIMITS = SpanLimits(doc_stride=6, max_question_length=8, max_answer_length=5)


def toy_questions(count: int, *, v2: bool = False, seed: int = 0) -> SpanExamples:
    """Which place a topic is in; the context has three sentences. With `v2` every third question
    is about another topic."""
    draw = generator(seed, "toy questions")
    topics = list(toys.TOPICS)
    raws = []
    for number in range(count):
        chosen = draw.permutation(len(topics))[:4]
        context = " ".join(toys.sentence(topics[i], toys.ADJECTIVES[i % 4]) for i in chosen[:3])
        silent = v2 and number % 3 == 0
        asked = topics[chosen[3] if silent else chosen[draw.integers(3)]]
        verb, place = toys.TOPICS[asked]
        answers = [] if silent else [(place, context.index(f" {place} ") + 1)]
        raws.append(RawQuestion(f"q{number}", number + 1, f"the {asked} {verb}", context, answers))
    return span_examples("toy", ("question", "context"), "answers", raws, v2=v2)


def toy_task(examples: SpanExamples) -> SpanExtraction:
    return SpanExtraction.from_examples(examples, max_length=24, limits=LIMITS)


def toy_model(task: SpanExtraction, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    config = toys.config(initializer_range=0.5)
    return Model(config, task.heads(config), add_pooler=False).eval()


def prediction(text: str, odds: float | None = None) -> SpanPrediction:
    """An answer, with what it takes to decide again."""
    span = SpanAnswer(text, 0, 0.6, 1.0, 1.0)
    null = () if odds is None else (SpanAnswer("", None, 0.4, 0.0, 0.0),)
    return SpanPrediction(text, 0, 0.6, odds, (span, *null)).decided(0.0)


def test_outputs_and_loss_are_those_of_transformers() -> None:
    examples = toy_questions(12)
    task = toy_task(examples)
    model = toy_model(task)
    config = transformers.BertConfig(**model.config.to_dict())
    other = transformers.BertForQuestionAnswering(config).eval()
    names = other.load_state_dict(
        NAMES.to_huggingface(model.state_dict(), model.config), strict=True
    )
    assert not names.missing_keys
    features = task.featurize(examples, toys.tokenizer())
    assert len(features) > len(examples)
    whole, losses = 0.0, []
    for feature in features:  # one by one: transformers scores padding as well
        batch = task.collate([feature], 0)
        length = len(feature.input_ids)
        given = {
            "input_ids": batch.input_ids[:, :length],
            "token_type_ids": batch.token_type_ids[:, :length],
            "start_positions": batch.targets["start_positions"],
            "end_positions": batch.targets["end_positions"],
        }
        with torch.no_grad():
            theirs = other(**given)
            logits = task.outputs(model, batch)[0, :length]
            losses.append(task.terms(model, batch)["spans"])
        for ours, expected in zip(logits.T, (theirs.start_logits, theirs.end_logits), strict=True):
            # Its large weights make products of up to 25.
            assert_close(ours, expected[0], terms=network_terms(2, 32), size=25.0)
        assert float(losses[-1].total) == pytest.approx(float(theirs.loss), rel=1e-4)
        whole += float(theirs.loss)
    # A batch with padding gives the sum of its parts.
    with torch.no_grad():
        term = task.terms(model, task.collate(features, 0))["spans"]
    assert term.count == len(features)
    assert float(term.total) == pytest.approx(whole, rel=1e-4)
    assert int(term.correct) == sum(int(each.correct) for each in losses)


def test_gradients_reach_every_weight_but_a_pooler() -> None:
    examples = toy_questions(8)
    task = toy_task(examples)
    model = toy_model(task)
    batch = task.collate(task.featurize(examples, toys.tokenizer()), 0)
    task.terms(model, batch)["spans"].total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_answers_are_parts_of_the_context_and_one_question_alone_gets_the_same() -> None:
    examples = toy_questions(20, v2=True)
    task = toy_task(examples)
    model = toy_model(task)
    features = task.featurize(examples, toys.tokenizer())

    def answers(chosen: list[int]) -> list[SpanPrediction]:
        windows = [feature for feature in features if feature.row in chosen]
        with torch.no_grad():
            batch = task.collate(windows, 0)
            return task.decode(list(task.outputs(model, batch).numpy()), windows)

    together = answers(list(range(20)))
    assert len(together) == 20
    assert len({answer.answer for answer in together}) > 3
    for row, (found, example) in enumerate(zip(together, examples.items, strict=True)):
        context = example.texts[1]
        for entry in found.n_best:
            if entry.start is not None:
                assert context[entry.start : entry.start + len(entry.text)] == entry.text
                pieces = len(entry.text.split())
                assert 1 <= pieces <= LIMITS.max_answer_length
        assert len(found.n_best) <= N_BEST + 1
        (alone,) = answers([row])
        assert alone.answer == found.answer
        assert alone.null_odds == pytest.approx(found.null_odds, abs=1e-3)


def test_targets_are_there_when_every_feature_has_one() -> None:
    examples = toy_questions(3)
    task = toy_task(examples)
    features = task.featurize(examples, toys.tokenizer())
    targets = task.collate(features, 0).targets
    assert targets["start_positions"].dtype == torch.int64
    assert targets["start_positions"].shape == targets["end_positions"].shape == (len(features),)
    for feature, start, end in zip(
        features, targets["start_positions"], targets["end_positions"], strict=True
    ):
        assert feature.span == (int(start), int(end))
    unknown = examples.replaced([type(e)(e.texts, None, e.line, e.id) for e in examples.items])
    assert task.collate(task.featurize(unknown, toys.tokenizer()), 0).targets == {}


def test_the_notes_count_windows_and_cut_questions() -> None:
    examples = toy_questions(4)
    task = SpanExtraction.from_examples(
        examples, max_length=24, limits=SpanLimits(6, max_question_length=2)
    )
    features = task.featurize(examples, toys.tokenizer())
    windows, cut = task.notes(features)
    assert windows.startswith("4 of 4 contexts are longer than an input of 24 pieces")
    assert f"6 apart: {len(features)} inputs in all" in windows
    assert cut == "4 of 4 questions were cut at 2 pieces (4 pieces lost)"
    short = SpanExtraction.from_examples(examples, max_length=40, limits=LIMITS)
    assert short.notes(short.featurize(examples, toys.tokenizer())) == []


def test_the_notes_count_gold_answers_that_cannot_be_given() -> None:
    context = " ".join(["the old cat sleeps in the sofa ."] * 4)
    answers = [context[:33], "cat", None, context]  # of 8, 1 and 32 pieces
    raws = [
        RawQuestion(str(line), line, "the cat", context, [(text, None)] if text else [])
        for line, text in enumerate(answers)
    ]
    examples = span_examples("own.csv", ("question", "context"), "answer", raws, v2=True)

    listed: list[tuple[str, str]] = []

    def notes(max_length: int, limits: SpanLimits) -> list[str]:
        task = SpanExtraction.from_examples(examples, max_length=max_length, limits=limits)
        features = task.featurize(examples, toys.tokenizer())
        for entry in unaligned_answers(examples, features):
            listed.append((entry["answer"], entry["found"]))
        return task.notes(features)

    # Of 10 pieces to a window, 6 are in the next one too.
    several, nowhere, long = notes(15, SpanLimits(4, 2, 7))
    assert "4 of 4 contexts are longer" in several
    assert nowhere.startswith("1 of 4 gold answers are whole in no window, which is trained as if")
    assert long.startswith("2 of 4 gold answers have more than 7 pieces, the most that an answer")
    assert listed == [(context, "whole in no window")]
    assert notes(40, SpanLimits(4, 2, 32)) == []
    assert len(listed) == 1


# Scores


def test_scores_by_kind_and_equal_to_the_official_script() -> None:
    official = scorer("2.0")
    draw = generator(7, "predictions")
    golds = [Gold(() if i % 2 else ("the oil crisis", "oil"), None, True) for i in range(400)]
    guesses = [str(draw.choice(["", "oil", "an oil crisis", "shock"])) for _ in golds]
    task = SpanExtraction(unanswerable=True, null_threshold=0.0)
    report = task.report([prediction(text) for text in guesses], golds)
    questions = [
        {"id": str(i), "answers": [{"text": text} for text in gold.answers]}
        for i, gold in enumerate(golds)
    ]
    named = {str(i): text for i, text in enumerate(guesses)}
    exact, f1 = official.get_raw_scores([{"paragraphs": [{"qas": questions}]}], named)
    kinds = official.make_qid_to_has_ans([{"paragraphs": [{"qas": questions}]}])
    for prefix, chosen in (
        ("", list(kinds)),
        ("has_answer_", [name for name, has in kinds.items() if has]),
        ("no_answer_", [name for name, has in kinds.items() if not has]),
    ):
        theirs = official.make_eval_dict(exact, f1, qid_list=chosen)
        assert 100 * report.metrics[f"{prefix}exact_match"] == pytest.approx(theirs["exact"])
        assert 100 * report.metrics[f"{prefix}f1"] == pytest.approx(theirs["f1"])
    assert (report.num_examples, report.num_answerable) == (400, 200)
    assert report.majority_share == 0.5


def test_a_threshold_is_tuned_once_and_then_kept() -> None:
    answered, silent = Gold(("oil",), None, True), Gold((), None, True)
    predictions = [prediction("oil", odds) for odds in (-3.0, -2.0, 1.0, 5.0)]
    labels = [answered, answered, answered, silent]
    task = SpanExtraction(unanswerable=True)
    report = task.report(predictions, labels)
    assert report.tuned
    assert report.null_threshold == 2.0  # between 1 and 5, and within 1 of the lower
    assert report.metrics["f1"] == 1.0
    kept = task.finished(cast(Model, None), report)
    assert kept.null_threshold == 2.0
    again = kept.report([each.decided(2.0) for each in predictions], labels[::-1])
    assert not again.tuned
    assert again.null_threshold == 2.0
    assert again.metrics["f1"] == 0.5
    assert again.best_threshold is not None
    assert again.best_threshold[1] == 0.75
    assert kept.finished(cast(Model, None), again) == kept
    text = "\n".join(again.lines())
    assert "null threshold 2.0000, from the model; the best for these questions is" in text
    assert "always saying that there is no answer: 25.00%" in text
    assert "tuned on these questions" in "\n".join(report.lines())
    assert json.loads(json.dumps(report.to_dict()))["null_threshold"] == 2.0


def test_a_model_that_always_answers_is_told_so_on_questions_without_answers() -> None:
    task = SpanExtraction()
    report = task.report(
        [prediction("oil")] * 2, [Gold(("oil",), None, True), Gold((), None, True)]
    )
    assert report.metrics["f1"] == 0.5
    assert (report.null_threshold, report.tuned, report.collapsed) == (None, False, False)
    assert "always gives one" in "\n".join(report.lines())
    plain = task.report([prediction("oil")], [Gold(("oil",))])
    assert list(plain.metrics) == ["exact_match", "f1"]
    assert not any("always" in line for line in plain.lines())


def test_a_collapse_is_said() -> None:
    task = SpanExtraction(unanswerable=True, null_threshold=0.0)
    labels = [Gold(("oil",), None, True), Gold((), None, True)]
    silent = task.report([prediction("oil", 3.0)] * 2, labels)
    assert silent.collapsed
    assert "collapsed: the model gives an answer to every question, or to none" in "\n".join(
        silent.lines()
    )
    assert task.report([prediction("oil", -3.0)] * 2, labels).collapsed
    assert not task.report([prediction("oil", -3.0), prediction("oil", 3.0)], labels).collapsed
    assert not task.report([prediction("oil", -3.0)], labels[:1]).collapsed
    with pytest.raises(BertineError, match="no examples"):
        task.report([], [])


# The task as such


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"doc_strid": 3}, "unknown setting 'doc_strid'"),
        ({"doc_stride": "3"}, "doc_stride is '3', not a whole number"),
        ({"unanswerable": 1}, "unanswerable is 1, not a truth value"),
        ({"null_threshold": float("nan")}, "null_threshold is nan, not a number"),
        ({"null_threshold": "0"}, "null_threshold is '0', not a number"),
        ({"max_answer_length": 0}, "max_answer_length is 0, but must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    config = toys.config(max_position_embeddings=512)
    with pytest.raises(BertineError, match=message):
        SpanExtraction.from_info(TaskInfo("spans", settings=settings), config)


def test_limits_that_leave_no_room_are_refused() -> None:
    with pytest.raises(BertineError, match="max_length 67 leaves no room for the context"):
        SpanExtraction(max_length=67)
    SpanExtraction(max_length=68)
    with pytest.raises(BertineError, match="two text columns"):
        SpanExtraction(("text",))
    with pytest.raises(BertineError, match="positions for 40"):
        SpanExtraction(max_length=68).heads(toys.config())


def test_the_n_best_are_a_list_in_json_and_text_in_a_cell() -> None:
    task = SpanExtraction(unanswerable=True)
    found = prediction("oil “x”", 2.0)
    values = values_of(task.output_columns(True), found)
    assert values["answer"] == ""
    assert values["start"] is None
    assert values["null_odds"] == 2.0
    assert json.loads(str(values["n_best"])) == json.loads(json.dumps(values["n_best"]))
    assert values["n_best"][0]["text"] == "oil “x”"
    assert np.isclose(sum(entry["probability"] for entry in values["n_best"]), 1)
    assert [*SpanExtraction().output_columns(False)] == ["answer", "start", "end", "probability"]
