"""Text classification: labels, features, loss, decoding and scores."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import check_batch
from bertine.data.examples import Example, Examples
from bertine.families.bert import BertConfig
from bertine.models.heads import Model
from bertine.tasks import task_class
from bertine.tasks.base import truncation_note
from bertine.tasks.classification import Prediction, TextClassification
from bertine.tasks.report import ClassificationReport, label_lines
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = ["good", "bad", "film", "very", "a", "##s"]
TOKENIZER = Tokenizer.from_vocab([*SPECIAL_TOKENS, *WORDS])
CONFIG = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)


def examples_of(rows: Sequence[tuple[str | tuple[str, str], str | None]]) -> Examples:
    items = [
        Example((text,) if isinstance(text, str) else text, label, line)
        for line, (text, label) in enumerate(rows, 2)
    ]
    columns = ("text",) if isinstance(rows[0][0], str) else ("premise", "hypothesis")
    return Examples("train.csv", columns, "label", items)


def prediction(labels: Sequence[str], probabilities: Sequence[float]) -> Prediction:
    table = dict(zip(labels, probabilities, strict=True))
    return toys.prediction(max(table, key=lambda name: table[name]), table)


@pytest.mark.parametrize(
    ("given_labels", "expected"),
    [
        (["b", "a", "c", "a"], ("a", "b", "c")),
        (["10", "9", "1"], ("1", "9", "10")),
        (["-1", "x", "0"], ("-1", "0", "x")),
    ],
)
def test_labels_are_those_that_occur_in_a_fixed_order(
    given_labels: list[str], expected: tuple[str, ...]
) -> None:
    rows = [("good film", label) for label in given_labels]
    assert TextClassification.from_examples(examples_of(rows)).labels == expected
    assert TextClassification.from_examples(examples_of(rows[::-1])).labels == expected


def test_labels_that_cannot_be_classes() -> None:
    with pytest.raises(BertineError, match=r"train\.csv: the column 'label' holds only the label"):
        TextClassification.from_examples(examples_of([("good", "x"), ("bad", "x")]))
    with pytest.raises(BertineError, match="every row has its own value in the column 'label'"):
        TextClassification.from_examples(examples_of([("good", str(i)) for i in range(60)]))
    with pytest.raises(BertineError, match="label 'x' is given twice"):
        TextClassification(("x", "y", "x"))
    with pytest.raises(BertineError, match="leaves no room for text"):
        TextClassification(("x", "y"), max_length=3)


def test_an_unseen_label_names_file_line_label_and_the_known_ones() -> None:
    task = TextClassification(("joy", "love", "fear"))
    with pytest.raises(BertineError) as caught:
        task.featurize(examples_of([("good", "joy"), ("bad", "jou")]), TOKENIZER)
    assert str(caught.value) == (
        "train.csv:3: unknown label 'jou' (did you mean 'joy'?); the known ones are joy, love, fear"
    )
    with pytest.raises(BertineError, match=r"train\.csv:2: unknown label 'z'"):
        TextClassification.from_examples(examples_of([("good", "z")]), labels=["x", "y"])


def test_features_are_the_tokenizers_and_truncation_is_counted() -> None:
    task = TextClassification(("n", "p"), max_length=6)
    rows = [("good film", "p"), ("very very very bad film", "n"), ("", None)]
    features = task.featurize(examples_of(rows), TOKENIZER)
    for (text, _), feature in zip(rows, features, strict=True):
        assert isinstance(text, str)
        expected = TOKENIZER.encode(text, max_length=6)
        assert feature.input_ids.tolist() == expected.input_ids
    assert [feature.label for feature in features] == [1, 0, None]
    assert [feature.num_truncated for feature in features] == [0, 1, 0]
    assert truncation_note(features, 6) == "1 of 3 texts were cut at 6 pieces (1 piece lost)"
    assert truncation_note(features[:1], 6) is None


def test_pairs_have_segments_and_must_be_pairs() -> None:
    task = TextClassification(("n", "p"), ("premise", "hypothesis"))
    features = task.featurize(examples_of([(("good film", "bad"), "n")]), TOKENIZER)
    assert features[0].token_type_ids.tolist() == [0, 0, 0, 0, 1, 1]
    with pytest.raises(BertineError, match=r"train\.csv:2: 1 text, but the model takes 2"):
        task.featurize(examples_of([("good film", "n")]), TOKENIZER)


def test_a_batch_is_padded_and_has_its_rows() -> None:
    task = TextClassification(("n", "p"))
    features = task.featurize(examples_of([("good", "p"), ("very bad film", "n")]), TOKENIZER)
    batch = task.collate(features[::-1], TOKENIZER.pad_token_id)
    assert batch.rows == [1, 0]
    assert batch.attention_mask.tolist() == [[True] * 5 + [False] * 3, [True] * 3 + [False] * 5]
    assert batch.input_ids[1, 3:].tolist() == [TOKENIZER.pad_token_id] * 5
    assert batch.targets["labels"].tolist() == [0, 1]
    assert batch.num_tokens == 8
    # No longer than the model may take.
    short = TextClassification(("n", "p"), max_length=6)
    assert short.collate(features, TOKENIZER.pad_token_id).input_ids.shape == (2, 6)


def test_padding_does_not_change_the_loss() -> None:
    torch.manual_seed(0)
    task = TextClassification(("a", "b", "c"), max_length=16)
    model = Model(CONFIG, task.heads(CONFIG)).eval()
    rows = [("good", "a"), ("very very bad film", "b"), ("a good film", "c")]
    features = task.featurize(examples_of(rows), TOKENIZER)
    alone = [task.terms(model, task.collate([f], 0))["classifier"] for f in features]
    together = task.terms(model, task.collate(features, 0))["classifier"]
    assert together.count == 3
    assert together.total.dtype == torch.float32
    assert together.total.item() == pytest.approx(sum(t.total.item() for t in alone), abs=1e-5)
    assert together.correct is not None
    assert int(together.correct) == sum(int(t.correct) for t in alone if t.correct is not None)
    logits = task.outputs(model, task.collate(features, 0))
    expected = F.cross_entropy(logits, torch.tensor([0, 1, 2]), reduction="sum")
    assert together.total.item() == pytest.approx(expected.item(), abs=1e-6)


def test_training_learns_the_labels() -> None:
    torch.manual_seed(0)
    config = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    rows = [("good film", "p"), ("bad film", "n"), ("very good", "p"), ("very bad", "n")]
    examples = examples_of(rows)
    task = TextClassification.from_examples(examples, max_length=16)
    model = Model(config, task.heads(config))
    features = task.featurize(examples, TOKENIZER)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        term = task.terms(model, task.collate(features, 0))["classifier"]
        optimizer.zero_grad()
        (term.total / term.count).backward()
        optimizer.step()
    with torch.no_grad():
        outputs = list(task.outputs(model.eval(), task.collate(features, 0)).numpy())
    labels = [label for _, label in rows if label]
    assert [p.label for p in task.decode(outputs, features)] == labels


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(data=st.data(), classes=st.integers(2, 5))
def test_metrics_are_scikit_learns(data: st.DataObject, classes: int) -> None:
    names = [f"c{i}" for i in range(classes)]
    task = TextClassification(tuple(names))
    count = data.draw(st.integers(1, 20))
    logits = data.draw(
        st.lists(
            st.lists(st.floats(-5, 5, width=32), min_size=classes, max_size=classes),
            min_size=count,
            max_size=count,
        )
    )
    truth = data.draw(st.lists(st.sampled_from(names), min_size=count, max_size=count))
    outputs = [np.array(row, dtype=np.float32) for row in logits]
    examples = examples_of([("good", label) for label in truth])
    predictions = task.decode(outputs, task.featurize(examples, TOKENIZER))

    guesses = [names[int(np.argmax(row))] for row in outputs]
    assert [p.label for p in predictions] == guesses
    for p, row in zip(predictions, logits, strict=True):
        assert sum(p.probabilities.values()) == pytest.approx(1)
        expected = torch.tensor(row, dtype=torch.float64).softmax(-1).tolist()
        assert list(p.probabilities.values()) == pytest.approx(expected, abs=1e-12)
        assert p.probability == max(p.probabilities.values())

    report = task.report(predictions, truth)
    assert report.metrics["accuracy"] == pytest.approx(sk.accuracy_score(truth, guesses))
    assert report.confusion == sk.confusion_matrix(truth, guesses, labels=names).tolist()
    expected_loss = F.cross_entropy(
        torch.tensor(logits, dtype=torch.float64), torch.tensor([names.index(t) for t in truth])
    )
    assert report.metrics["loss"] == pytest.approx(expected_loss.item(), abs=1e-6)
    assert ("f1" in report.metrics) == (classes == 2)
    assert report.collapsed == (len(set(guesses)) == 1 and len(set(truth)) > 1)
    assert report.majority_share == max(truth.count(name) for name in names) / count


def test_binary_scores_by_hand() -> None:
    task = TextClassification(("neg", "pos"))
    guesses = [0.9, 0.8, 0.2, 0.6, 0.1]  # probability of "pos"
    truth = ["pos", "neg", "pos", "pos", "neg"]
    predictions = [prediction(task.labels, [1 - p, p]) for p in guesses]
    scores = task.report(predictions, truth).metrics
    # pos: 2 of 3 predicted are right, 2 of 3 true are found.
    assert scores["f1"] == pytest.approx(2 / 3)
    assert scores["accuracy"] == pytest.approx(3 / 5)
    assert scores["matthews"] == pytest.approx((2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))
    assert task.primary_metric in scores


def test_a_collapse_is_said() -> None:
    task = TextClassification(("neg", "pos"))
    predictions = [prediction(task.labels, [0.4, 0.6])] * 4
    report = task.report(predictions, ["neg", "neg", "neg", "pos"])
    text = "\n".join(report.lines())
    assert "majority class 'neg': 75.00%" in text
    assert "collapsed: every prediction is 'pos'" in text
    assert report.to_dict()["collapsed"] is True
    right = task.report(predictions, ["pos"] * 4)
    assert not right.collapsed


def test_labels_with_control_characters_keep_to_their_line() -> None:
    """A line break, a colour, a turn of the direction of writing; letters stay as they are."""
    names = ("a\nb", "\x1b[31mred", "\u202eturned", "\u0628\u200c\u0627 naïve 名")
    task = TextClassification(names)
    scores = dict.fromkeys(("precision", "recall", "f1", "support"), 0.5)
    wrong = [prediction(names, [0.7, 0.1, 0.1, 0.1])] * 4
    text = "\n".join(task.report(wrong, names).lines())
    many = "\n".join(label_lines(dict.fromkeys(names, scores)))
    for shown in (text, many):
        for name in ("a\\nb  ", "\\x1b[31mred", "\\u202eturned", names[3]):
            assert name in shown
        assert not {"\x1b", "\u202e"} & set(shown)
    assert len(many.splitlines()) == 5
    assert len({len(line) for line in many.splitlines()}) == 1
    with pytest.raises(BertineError, match=r"the known ones are a\\nb, \\x1b\[31mred, ") as mistake:
        task.target("c", "file", 1)
    assert "\n" not in str(mistake.value)


def test_the_confusion_matrix_is_a_table_or_the_worst_confusions() -> None:
    few = TextClassification(("a", "b"))
    report = few.report([prediction(few.labels, [0.1, 0.9])] * 3, ["a", "a", "b"])
    assert report.lines()[-4:] == [
        "how often each label (a row) was predicted as which (the columns):",
        "actual label  a  b",
        "a             0  2",
        "b             0  1",
    ]
    names = tuple(f"c{i:02}" for i in range(12))
    many = TextClassification(names)
    first = prediction(names, [0.5] + [0.5 / 11] * 11)
    report = many.report([first] * 3, ["c03", "c03", "c01"])
    assert report.lines()[-2:] == [
        "2 times 'c03' was taken for 'c00'",
        "1 time 'c01' was taken for 'c00'",
    ]


def test_unknown_tasks_are_answered_with_the_nearest() -> None:
    with pytest.raises(BertineError, match="unknown task 'texts'; did you mean 'text'"):
        task_class("texts")


def test_what_does_not_fit_the_model_names_its_row() -> None:
    task = TextClassification(("a", "b"), max_length=4)
    features = task.featurize(examples_of([("good", "a"), ("bad film", "b")]), TOKENIZER)
    batch = task.collate(features, 0)
    check_batch(batch, CONFIG, num_labels=2)
    with pytest.raises(BertineError, match="row 1: label 1 is outside the 1"):
        check_batch(batch, CONFIG, num_labels=1)
    with pytest.raises(BertineError, match="row 1: 4 tokens, but the model has positions for 3"):
        check_batch(batch, CONFIG.replace(max_position_embeddings=3))
    batch.token_type_ids[0, 0] = 2
    with pytest.raises(BertineError, match="row 0: segment id 2 is outside the 2"):
        check_batch(batch, CONFIG)
    batch.input_ids[1, 2] = 40000
    with pytest.raises(BertineError, match="row 1: token id 40000 is outside the vocabulary of 11"):
        check_batch(batch, CONFIG)


def test_scores_of_each_label_are_scikit_learns() -> None:
    names = ("a", "b", "c", "d")
    draw = np.random.default_rng(0)
    truth, guesses = draw.integers(0, 3, 200), draw.integers(0, 2, 200)  # c never found, no d
    matrix = sk.confusion_matrix(truth, guesses, labels=range(4)).tolist()
    report = ClassificationReport(names, {"accuracy": 0.5}, toys.counts_of(matrix))
    expected = sk.precision_recall_fscore_support(truth, guesses, labels=range(4), zero_division=0)
    keys = ("precision", "recall", "f1", "support")
    for key, values in zip(keys, expected, strict=True):
        assert [report.per_label[name][key] for name in names] == pytest.approx(values.tolist())
    assert report.to_dict()["per_label"] == report.per_label
    lines = report.lines()
    at = next(row for row, line in enumerate(lines) if line.startswith("label  precision"))
    assert sorted(line.split()[0] for line in lines[at + 1 : at + 5]) == list(names)
    assert lines[at + 4].split() == ["d", "0.00%", "0.00%", "0.00%", "0"]


def test_a_report_on_thousands_of_classes_is_small() -> None:
    """No matrix of them, whose zeros would be gigabytes, but the most frequent confusions."""
    names = tuple(f"c{number}" for number in range(5_000))
    counts = {(n, n + 1): 2 for n in range(200)} | {(7, 9): 5, (3, 3): 8}
    report = ClassificationReport(names, {"accuracy": 0.1}, counts)
    written = report.to_dict()
    assert "confusion" not in written
    first = {"actual": "c7", "predicted": "c9", "count": 5, "of": 7}
    second = {"actual": "c0", "predicted": "c1", "count": 2, "of": 2}
    assert written["confused"][:2] == [first, second]
    assert len(written["confused"]) == 100
    assert len(json.dumps(written)) < 4_000_000
    assert not report.collapsed
    assert "5 times 'c7' was taken for 'c9'" in report.lines()
    few = ClassificationReport(names[:100], {"accuracy": 0.1}, {(7, 9): 5})
    assert few.to_dict()["confusion"] == few.confusion
    assert few.confusion[7][9] == 5
