"""The look at the data before training: what spoils it is said, with the rows, and only then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.data.entities import Sentence, Sentences
from bertine.data.examples import Example, Examples, read_examples
from bertine.data.label_sets import JOINT
from bertine.data.squad import Gold, Question, SpanExamples
from bertine.datasets.check import DataReport, check_data
from bertine.options.data import DataConfig
from bertine.tasks import TASKS
from bertine.tasks.classification import TextClassification
from bertine.tasks.unknown_text import UnknownText


def _examples(pairs: list[tuple[str, str]], source: str = "train.csv") -> Examples[Example]:
    items = [Example((text,), label, line) for line, (text, label) in enumerate(pairs, 2)]
    return Examples(source, ("text",), "label", items)


def _many(label: str, count: int) -> list[tuple[str, str]]:
    return [(f"{label} text {number}", label) for number in range(count)]


def _look(
    train: list[tuple[str, str]], held: list[tuple[str, str]], kind: str = "text"
) -> DataReport:
    return check_data(TASKS[kind], _examples(train), _examples(held, "dev.csv"))


def test_nothing_is_said_of_data_that_are_as_they_should_be() -> None:
    held = [(f"new {text}", label) for text, label in [*_many("x", 3), *_many("y", 3)]]
    look = _look([*_many("x", 20), *_many("y", 30)], held)
    assert look.findings == []
    assert look.label_line() == "labels: y 30, x 20"
    assert look.train["labels"] == {"y": 30, "x": 20}
    assert look.validation["examples"] == 6


def test_rare_labels_are_named() -> None:
    look = _look([*_many("x", 60), *_many("y", 5), ("alone", "z")], [("n", "x"), ("m", "y")])
    single, few, uneven = look.findings
    assert single.startswith("1 label has one training example each: z")
    assert few == "1 label has fewer than 10 training examples: y (5)"
    assert "'x' has 91%" in uneven
    assert "class_weights='balanced'" in uneven
    # Who has asked for weights is not told to.
    weighed = check_data(
        TASKS["text"],
        _examples([*_many("x", 60), *_many("y", 5)]),
        _examples([("n", "x"), ("m", "y")]),
        weighed=True,
    )
    assert "labels are uneven" in weighed.findings[-1]
    assert "class_weights" not in weighed.findings[-1]


def test_a_label_that_is_never_judged_is_named() -> None:
    (finding,) = _look([*_many("x", 20), *_many("y", 20)], [("new", "x")]).findings
    assert finding.startswith("1 label has no validation example")
    assert finding.endswith(": y")


def test_the_same_text_with_two_labels_is_found_in_its_rows() -> None:
    train = [*_many("x", 12), *_many("y", 12), ("Same  Text", "x"), ("same text", "y")]
    look = _look(train, [("n", "x"), ("m", "y")])
    conflict, repeated = look.findings
    assert conflict.startswith("1 training text has two or more labels")
    assert "lines 26, 27 of train.csv" in conflict
    assert repeated == "1 training example repeats the text of one before (line 27 of train.csv)"
    assert (look.train["conflicts"], look.train["duplicates"]) == (1, 1)


def test_validation_texts_that_were_trained_on_are_a_leak() -> None:
    train = [*_many("x", 12), *_many("y", 12)]
    look = _look(train, [train[0], ("new", "y"), (train[1][0], "y")])
    (finding,) = look.findings
    assert finding.startswith("2 validation examples are among the training examples too (1 with")
    assert "lines 2, 4 of dev.csv" in finding
    assert look.validation["in_training"] == 2


def test_numbers_and_sets_of_labels() -> None:
    look = _look([("a", "1"), ("b", "4")], [("c", "2")], "regression")
    assert look.train["numbers"] == {"minimum": 1, "maximum": 4, "mean": 2.5, "deviation": 1.5}
    assert look.label_line() == ""
    sets = _look([("a", f"p{JOINT}q"), ("b", "p"), ("c", "")], [], "multi-label")
    assert sets.train["labels"] == {"p": 2, "(none)": 1, "q": 1}


def test_entities_count_where_they_begin_and_answers_by_whether_there_is_one() -> None:
    words = Sentence(("a", "b", "c"), ("B-per", "I-per", "O"), 1)
    tagged = Sentences("t", ("w",), "t", [words, words])
    look = check_data(TASKS["tagging"], tagged, Sentences("t", ("w",), "t", []))
    assert look.train["labels"] == {"per": 2}
    plain = Sentences("t", ("w",), "t", [Sentence(("a", "b"), ("NOUN", "VERB"), 1)])
    assert check_data(TASKS["tagging"], plain, plain).train["labels"] == {"NOUN": 1, "VERB": 1}
    questions = [
        Question(("q", "c"), Gold(("c",), (0, 1), v2=True), 1),
        Question(("q2", "c"), Gold((), None, v2=True), 2),
    ]
    spans = SpanExamples("s", ("question", "context"), "answer", questions)
    assert check_data(TASKS["spans"], spans, spans).train["labels"] == {
        "with an answer": 1,
        "without an answer": 1,
    }


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.csv", "text,label\na,x\nb, \nc,y\nd,\n", "3, 5"),
        ("a.jsonl", '{"text":"a","label":"x"}\n{"text":"b"}\n{"text":"c","label":null}\n', "2, 3"),
    ],
)
def test_rows_without_a_label_are_counted_and_left_out(
    name: str, content: str, lines: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    examples = read_examples(file)
    assert all(item.label for item in examples.items)
    assert examples.unlabelled == 2
    assert (
        f"2 rows have no label in 'label' and were left out (lines {lines})" in examples.notes[-1]
    )
    with pytest.raises(BertineError, match="label"):
        read_examples(file, DataConfig(strict=True))


def test_a_run_keeps_what_was_seen(tmp_path: Path) -> None:
    import toys

    model = toys.write_model(tmp_path / "model")
    data = toys.write_labelled(tmp_path / "data.csv", rows=80)
    bertine.finetune(
        "text", model=model, data=data, out=tmp_path / "run", epochs=1, baselines=False
    )
    seen = json.loads((tmp_path / "run" / "data.json").read_text(encoding="utf-8"))
    assert seen["train"]["examples"] == 72
    assert set(seen["train"]["labels"]) == {"animal", "dish"}
    assert seen["train"]["lengths"]["longest"] == 10
    assert any("among the training examples too" in line for line in seen["findings"])


def test_labels_that_look_alike_are_named_with_their_lines() -> None:
    pairs = [*_many("café", 12), *_many("cafe\u0301", 12), *_many("Café", 12), *_many("thé", 12)]
    (said,) = [line for line in _look(pairs, []).findings if "look alike" in line]
    assert said.startswith(
        r"train.csv: the labels 'café' (line 2), 'cafe\u0301' (line 14), 'Café' (line 26) look"
    )
    types = [Sentence(("Ada", "ran"), (f"B-{kind}", "O"), 1) for kind in ("PER", "per")]
    look = check_data(TASKS["tagging"], Sentences("a.conll", ("w",), "t", types), _examples([]))
    assert any("the entity types 'PER' (line 1), 'per' (line 1) look" in f for f in look.findings)


@pytest.mark.parametrize("label", ["nan", "None", "null", "<NA>"])
def test_what_programs_write_for_a_missing_label_is_named(label: str) -> None:
    look = _look([*_many("x", 12), *_many("y", 12), ("a", label), ("b", label)], [])
    assert (
        f"2 training examples have the label {label!r}, as programs write what is missing; leave "
        "it out if that is meant (lines 26, 27 of train.csv)"
    ) in look.findings
    assert not any("missing" in line for line in _look(_many("none", 12), []).findings)


def test_unknown_text_is_said_once() -> None:
    known = toys.tokenizer()
    train = _examples([("the cat sleeps", "x")] * 12)
    held = _examples([("好 的 吗 " * 5, "x")], "dev.csv")
    task = TextClassification(("x", "y"))
    features = [task.featurize(examples, known) for examples in (train, held)]
    unknown = [UnknownText.of(*each, known) for each in zip((train, held), features, strict=True)]
    look = check_data(type(task), train, held, *features, unknown=unknown)
    (said,) = [line for line in look.findings if "unknown to the vocabulary" in line]
    assert said.startswith("dev.csv: 100% of the pieces of the texts are unknown")
    assert look.validation["unknown"]["share"] == 1.0
    assert "unknown" not in look.train


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (2, "a0 31, a1 30"),
        (10, "a0 39, a1 38, a2 37, a3 36, a4 35, a5 34, a6 33, a7 32, a8 31, a9 30"),
        (11, "a5 35, 1 more, and the rarest: a7 33, a8 32, a9 31, a10 30"),
        (77, "a5 101, 67 more, and the rarest: a73 33, a74 32, a75 31, a76 30"),
    ],
)
def test_the_rarest_labels_are_in_the_line(count: int, line: str) -> None:
    labels = {f"a{number}": 30 + count - 1 - number for number in range(count)}
    assert DataReport({"labels": labels}, {}).label_line().endswith(line)


@pytest.mark.parametrize(
    ("labels", "source", "command"),
    [
        (("joy", "Joy"), "a.csv", "grep -nF -- Joy a.csv"),
        (("joy", "JOY"), "my data/a.tsv", "grep -nF -- JOY 'my data/a.tsv'"),
        (("new york", "new  york"), "a.jsonl", "grep -nF -- 'new  york' a.jsonl"),
        (("joy", "'joy'"), "a.csv", """grep -nF -- ''"'"'joy'"'"'' a.csv"""),
        (("joy", "joy\u200b"), "a.csv", ""),  # which a terminal does not show
        (("joy", "Joy"), "a.parquet", ""),
        (("joy", "Joy"), "a table in memory", ""),
    ],
)
def test_the_rows_of_labels_that_look_alike_can_be_found(
    labels: tuple[str, str], source: str, command: str
) -> None:
    pairs = [("a text", labels[0]), ("another", labels[0]), ("a third", labels[1])]
    look = check_data(TASKS["text"], _examples(pairs, source), _examples([]))
    (said,) = [line for line in look.findings if "look alike" in line]
    assert said.partition("; the rows: ")[2] == command
