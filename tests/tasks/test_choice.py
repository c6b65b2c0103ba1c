"""Multiple choice: SWAG's columns, own tables, sequences, loss, answers, mistakes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import toys
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch, members, plan, split
from bertine.data.examples import Example, Examples, Splits
from bertine.datasets.multiple_choice import read_choices
from bertine.datasets.own_data import read_for, read_own
from bertine.datasets.readers import read_evaluation, read_labelled
from bertine.hub.model_directory import load_model, save_model
from bertine.models.heads import Model
from bertine.options.data import DataConfig
from bertine.tasks import task_class
from bertine.tasks.base import values_of
from bertine.tasks.choice import ChoicePrediction, MultipleChoice
from bertine.training.step import accumulate

HEADER = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)


def swag_file(path: Path, more: str = "") -> Path:
    """Two rows in SWAG's columns, the second with a quoted comma; `more` of the header."""
    path.write_text(
        f"{HEADER}{more}\n"
        "0,v0,0,the cat in the sofa . the cat,the cat in the sofa .,the cat,gold,"
        "sleeps .,barks .,boils .,bakes .,0\n"
        '1,v1,1,a dog . the dog,a dog .,the dog,gen,boils .,"barks , barks .",steams .,cools .,1\n',
        encoding="utf-8",
    )
    return path


def own(rows: list[tuple[tuple[str, ...], str | None]], choices: int = 3) -> Examples:
    columns = ("question", *(f"choice{number}" for number in range(choices)))
    items = [Example(texts, label, line) for line, (texts, label) in enumerate(rows, 2)]
    return Examples("train.csv", columns, "label", items)


UNEVEN = [
    (("the cat", "sleeps", "barks", "boils"), "0"),
    (("a small dog in the garden", "boils", "barks in the garden .", ""), "choice1"),
    (("soup", "boils in the warm pot", "swims"), "0"),
    (("the old bread", "swims", "grazes", "bakes"), "2"),
]


def model_for(task: MultipleChoice, **changes: float) -> Model:
    torch.manual_seed(3)
    settings = toys.config(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2, **changes
    )
    return Model(settings, task.heads(settings)).eval()


def batch_of(task: MultipleChoice, examples: Examples) -> Batch:
    return task.collate(task.featurize(examples, toys.tokenizer()), 0)


def test_swags_sequences_are_those_of_the_paper(tmp_path: Path) -> None:
    examples, choices = read_choices(swag_file(tmp_path / "train.csv"), swag=True)
    task = MultipleChoice.from_examples(examples, max_length=40, labels=choices)
    assert [item.label for item in examples.items] == ["0", "1"]
    features = task.featurize(examples, toys.tokenizer())
    assert [feature.row for feature in features] == [0] * 4 + [1] * 4
    assert [feature.label for feature in features] == [1, 0, 0, 0, 0, 1, 0, 0]
    words = toys.tokenizer()
    expected = words.encode("a dog .", "the dog barks , barks .")
    assert features[5].input_ids.tolist() == list(expected.input_ids)
    assert features[5].token_type_ids.tolist() == list(expected.token_type_ids)


def write_race(folder: Path, part: str, level: str, passage: str, **changes: Any) -> Path:
    file = folder / part / level / "1.txt"
    file.parent.mkdir(parents=True)
    questions = ["what sleeps", "the cat _ in the sofa"]
    options = [["the cat", "the soup", "the dog", "the cow"], ["boils", "barks", "sleeps", "a"]]
    content = {"questions": questions, "options": options, "answers": ["A", "C"], "id": "1.txt"}
    file.write_text(json.dumps({"article": passage, **content, **changes}), encoding="utf-8")
    return file


def test_races_passages_are_cut_and_its_questions_begin_the_choices(tmp_path: Path) -> None:
    passage = "the small cat sleeps in the sofa . " * 9
    for part in ("train", "dev"):
        for level in ("high", "middle"):
            write_race(tmp_path, part, level, passage)
    data = read_labelled("choice", tmp_path)
    assert len(data.train) == len(data.validation) == 4
    assert [item.label for item in data.train.items] == ["A", "C", "A", "C"]
    task = data.make_task(24)
    features = task.featurize(data.train, toys.tokenizer())
    assert [feature.label for feature in features] == [1, 0, 0, 0, 0, 0, 1, 0] * 2
    words = toys.tokenizer()
    pair = words.encode(passage, "the cat _ in the sofa sleeps", max_length=24)
    assert features[6].input_ids.tolist() == list(pair.input_ids)
    # The passage alone is cut.
    asked = words.encode("the cat _ in the sofa sleeps").input_ids[1:]
    assert features[6].input_ids.tolist()[-len(asked) :] == list(asked)
    (judged,) = read_evaluation(task, tmp_path / "dev" / "high").values()
    assert [item.texts for item in judged.items] == [i.texts for i in data.validation.items[:2]]


def test_files_that_are_not_as_in_race_are_named(tmp_path: Path) -> None:
    file = write_race(tmp_path, "train", "high", "the cat sleeps", answers=["A"])
    with pytest.raises(BertineError, match=rf"{file}: has not as many questions as lists"):
        read_labelled("choice", tmp_path)
    write_race(tmp_path / "other", "train", "high", "the cat sleeps", options=["A"])
    with pytest.raises(BertineError, match=r"1.txt: options\[0\] must be a list"):
        read_labelled("choice", tmp_path / "other")


def test_own_columns_are_told_or_named(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("question,option A,option B,label\na,b,c,option B\n", encoding="utf-8")
    examples, choices = read_choices(path)
    assert choices == ("option A", "option B")
    task = MultipleChoice.from_examples(examples, max_length=24, labels=choices)
    assert (task.prompt_columns, task.dataset) == (("question",), None)
    path.write_text("frage,x,y,z,gut\na,b,c,d,2\n", encoding="utf-8")
    examples, choices = read_choices(
        path, DataConfig(text_columns="frage", choice_columns=["x", "y", "z"], label_column="gut")
    )
    assert MultipleChoice.from_examples(examples, max_length=24, labels=choices).text_columns == (
        "frage",
        "x",
        "y",
        "z",
    )
    with pytest.raises(BertineError, match=r"train.csv: cannot tell which columns hold the choice"):
        read_choices(path, DataConfig(text_columns="frage", label_column="gut"))
    with pytest.raises(BertineError, match=r"cannot tell which column holds the text before"):
        read_choices(path, DataConfig(choice_columns=["x", "y"], label_column="gut"))
    with pytest.raises(BertineError, match=r"there is no column 'w'"):
        read_choices(
            path, DataConfig(text_columns="frage", choice_columns=["w", "x"], label_column="gut")
        )


@pytest.mark.parametrize(
    ("texts", "label", "message"),
    [
        (("q", "a", "b", "c"), "4", r"train.csv:2: the label is '4', but must be the number"),
        (("q", "a", "b", ""), "3", r"of a choice, 0 to 1, its letter or its column's name"),
        (("q", "a", "b", "c"), "d", r"the label is 'd'"),
        (("q", "", "b", "c"), "1", r"train.csv:2: the choice 'choice0' is empty"),
        (("q", "a", "", ""), "0", r"train.csv:2: has 1 choice, but must have from 2 to 3"),
    ],
)
def test_bad_rows_are_named(texts: tuple[str, ...], label: str, message: str) -> None:
    with pytest.raises(BertineError, match=message):
        MultipleChoice.from_examples(own([(texts, label)]), max_length=24)


@pytest.mark.parametrize(
    ("columns", "numbers"),
    [
        (("option A", "option B", "option C"), {"A": 0, "b": 1, "(C)": 2, "D": None, "AB": None}),
        (("A", "B"), {"A": 0, "b": 1, "B.": 1, "C": None}),
        (("answer_b", "answer_a"), {"a": 1, "B": 0}),  # the letters are the columns' own
        (("good end", "bad end"), {"a": 0, "b)": 1}),
    ],
)
def test_letters_name_choices(columns: tuple[str, ...], numbers: dict[str, int | None]) -> None:
    task = MultipleChoice(("q",), columns, "label", 24)
    assert {label: task.number_of(label) for label in numbers} == numbers


def test_answers_to_letters_are_columns_and_places_are_noted() -> None:
    examples = own([(("q", "a", "b", "c"), "A"), (("q", "a", "b", "c"), "c")])
    task = MultipleChoice.from_examples(examples, max_length=24)
    assert task.label_of(2) == "choice2"
    assert any("A is 'choice0'" in note for note in examples.notes)


def test_rows_of_json_lines_may_have_other_keys(tmp_path: Path) -> None:
    """More choices than the first row: named, or refused by row; fewer: counted by row."""
    row = {"question": "q", "choice0": "a", "choice1": "b", "label": 0}
    path = tmp_path / "train.jsonl"
    rows = [row, {**row, "choice2": "c"}, row]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    with pytest.raises(BertineError, match=r"jsonl:2: has the choice 'choice2' besides tho"):
        read_choices(path)
    first = tmp_path / "first.jsonl"
    first.write_text(json.dumps(row) + "\n")
    with pytest.raises(
        BertineError, match=r"jsonl:2: has the choice 'choice2' besides those .*1\)"
    ):
        read_own(MultipleChoice, Splits(first, validation=path))
    named = ("choice0", "choice1", "choice2")
    examples, choices = read_choices(path, DataConfig(choice_columns=named))
    assert [item.texts for item in examples.items] == [
        ("q", "a", "b", ""),
        ("q", "a", "b", "c"),
        ("q", "a", "b", ""),
    ]
    assert examples.notes == [
        f"{path}: 2 of 3 rows have no key 'choice2' and are read without it (lines 1, 3)"
    ]
    task = MultipleChoice.from_examples(examples, max_length=24, labels=choices)
    assert [item.label for item in read_for(task, path).items] == ["0"] * 3
    with pytest.raises(BertineError, match=r"train\.jsonl: there is no column 'choice3'"):
        read_choices(path, DataConfig(choice_columns=(*named, "choice3")))
    with pytest.raises(BertineError, match=r"train\.jsonl: there is no column 'choise1'"):
        read_choices(path, DataConfig(choice_columns=("choice0", "choise1")))
    del rows[1]["choice1"]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    with pytest.raises(BertineError, match=r"jsonl:2: there is no column 'choice1'"):
        read_choices(path, DataConfig(choice_columns=named))


def test_further_choices_of_csv_files_are_refused_in_training(tmp_path: Path) -> None:
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("question,choice0,choice1,label\na,b,c,0\n", encoding="utf-8")
    dev.write_text("question,choice0,choice1,choice2,label\na,b,c,d,2\n", encoding="utf-8")
    splits = Splits(train, validation=dev)
    with pytest.raises(BertineError, match=r"dev\.csv:1: has the choice 'choice2' besides those"):
        read_own(MultipleChoice, splits)
    dev.write_text("question,choice0,choice1,choice2,label\na,b,c,d,1\n", encoding="utf-8")
    config = DataConfig(choice_columns=("choice0", "choice1"))
    task = read_own(MultipleChoice, splits, config).make_task(24)
    assert isinstance(task, MultipleChoice)
    assert task.named_choices
    with pytest.raises(
        BertineError, match=r"swag\.csv:1: has the choice 'ending4' besides those of S"
    ):
        read_choices(swag_file(tmp_path / "swag.csv", ",ending4"), swag=True)


def test_too_few_columns_are_refused() -> None:
    with pytest.raises(BertineError, match="at least two columns of choices"):
        MultipleChoice(("question",), ("a",))
    with pytest.raises(BertineError, match="one or two text columns besides the choices, not 3"):
        MultipleChoice(("a", "b", "c"), ("d", "e"))
    with pytest.raises(BertineError, match="the column 'a' is named twice"):
        MultipleChoice(("a",), ("a", "b"))


def test_the_loss_is_the_softmax_over_the_choices_of_an_example() -> None:
    """Written out, with examples of two and of three choices."""
    examples = own(UNEVEN)
    task = MultipleChoice.from_examples(examples, max_length=24)
    model = model_for(task)
    batch = batch_of(task, examples)
    with torch.no_grad():
        scores = task.outputs(model, batch).double().tolist()
        term = task.terms(model, batch)["choice"]
    of = [scores[0:3], scores[3:5], scores[5:7], scores[7:10]]
    right = [0, 1, 0, 2]
    losses = [
        math.log(sum(map(math.exp, each))) - each[number]
        for each, number in zip(of, right, strict=True)
    ]
    assert float(term.total) == pytest.approx(sum(losses), rel=1e-5)
    assert term.count == task.counts(batch)["choice"] == 4
    best = [each.index(max(each)) for each in of]
    assert int(term.correct or 0) == sum(a == b for a, b in zip(best, right, strict=True))


def test_transformers_computes_the_same(tmp_path: Path) -> None:
    examples = own([(texts, label) for texts, label in UNEVEN if len(texts) == 4 and texts[3]])
    task = MultipleChoice.from_examples(examples, max_length=24)
    model = model_for(task)
    save_model(tmp_path / "m", model, toys.tokenizer(), task=task.task_info())
    theirs, info = transformers.AutoModelForMultipleChoice.from_pretrained(
        tmp_path / "m", output_loading_info=True
    )
    assert type(theirs) is transformers.BertForMultipleChoice
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = batch_of(task, examples)
    shape = (len(examples), 3, -1)
    with torch.no_grad():
        expected = theirs.eval()(
            input_ids=batch.input_ids.view(shape),
            attention_mask=batch.attention_mask.long().view(shape),
            token_type_ids=batch.token_type_ids.view(shape),
            labels=torch.tensor([0, 2]),
        )
        term = task.terms(model, batch)["choice"]
        scores = task.outputs(model, batch).view(len(examples), 3)
    torch.testing.assert_close(scores, expected.logits, rtol=1e-5, atol=1e-5)
    assert float(term.total) / term.count == pytest.approx(float(expected.loss), rel=1e-5)

    # What transformers saves of it opens here, as the task with SWAG's columns.
    theirs.save_pretrained(tmp_path / "theirs")
    toys.tokenizer().save(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert loaded.task is not None
    again = task_class(loaded.task.name).from_info(loaded.task, loaded.config)
    assert again.text_columns[:2] == ("sent1", "sent2")
    with torch.no_grad():
        back = again.outputs(loaded.model, batch).view(len(examples), 3)
    torch.testing.assert_close(back, expected.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("max_tokens", [1, 40, 60, 100])
def test_choices_stay_together_and_gradients_are_those_of_the_batch(max_tokens: int) -> None:
    examples = own(UNEVEN)
    task = MultipleChoice.from_examples(examples, max_length=24)
    model = model_for(task).train()
    batch = batch_of(task, examples)
    parts = split(batch, max_tokens)
    assert len(parts) > 1
    seen = [row for part in parts for row in dict.fromkeys(part.rows)]
    assert sorted(seen) == [0, 1, 2, 3]  # no example in two parts
    assert sum(part.num_sequences for part in parts) == 10

    def gradients(pieces: list[Batch]) -> list[torch.Tensor]:
        model.zero_grad()
        accumulate(model, task, pieces, dtype=torch.float32, seeds=[0, 0])
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for found, expected in zip(gradients(parts), gradients([batch]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_groups_are_dealt_to_processes_whole() -> None:
    task = MultipleChoice.from_examples(own(UNEVEN), max_length=24)
    batch = batch_of(task, own(UNEVEN))
    shares = plan(batch, 3, 30)
    assert len(shares) == 3
    rows = [row for parts in shares for part in parts for row in part.tolist()]
    assert sorted(rows) == list(range(10))
    examples = [{batch.rows[row] for part in parts for row in part.tolist()} for parts in shares]
    assert sum(map(len, examples)) == 4  # each with one process
    assert [group.tolist() for group in members(batch.targets["groups"])] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
        [7, 8, 9],
    ]


def test_answers_are_joined_by_example() -> None:
    examples = own(UNEVEN)
    task = MultipleChoice.from_examples(examples, max_length=24)
    features = task.featurize(examples, toys.tokenizer())
    outputs = [np.float32(x) for x in (0, 1, 2, 5, 5, -1, 1, 0, 0, 0)]
    answers = task.decode(outputs, features)
    assert [answer.choice for answer in answers] == [2, 0, 1, 0]
    whole = sum(math.exp(x) for x in (0, 1, 2))
    assert answers[0].probability == pytest.approx(math.exp(2) / whole)
    assert answers[1].probabilities == (0.5, 0.5)
    assert [*task.output_columns(True)][:3] == ["choice", "probability", "probability_choice0"]
    assert [*values_of(task.output_columns(True), answers[1]).values()] == [0, 0.5, 0.5, 0.5, 0.0]
    labels = [item.label or "" for item in examples.items]
    report = task.report(answers, labels)
    assert report.metrics["accuracy"] == 0.0
    assert report.metrics["loss"] == pytest.approx(
        -sum(
            math.log(answer.probabilities[right])
            for answer, right in zip(answers, [0, 1, 0, 2], strict=True)
        )
        / 4
    )
    assert report.num_examples == 4
    told = task.report([ChoicePrediction(1, (0.2, 0.8), "1")], ["choice1"])
    assert told.metrics["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("labels", "answer"),
    [(("choice2", "choice0"), "choice1"), (("2", "0"), 1), (("2.0", "choice0"), 1)],
)
def test_answers_are_written_as_the_training_file_writes_labels(
    labels: tuple[str, str], answer: str | int
) -> None:
    texts = ("the cat", "sleeps", "barks", "boils")
    examples = own([(texts, labels[0]), (texts, labels[1])])
    task = MultipleChoice.from_examples(examples, max_length=24)
    assert task_class("choice").from_info(task.task_info(), toys.config()) == task
    features = task.featurize(examples, toys.tokenizer())
    first, _ = found = task.decode([np.float32(x) for x in (0, 1, 0) * 2], features)
    assert (first.choice, first.label) == (1, str(answer))
    assert values_of(task.output_columns(False), first)["choice"] == answer
    # The report's rows, and so those of `evaluate`, have the same names.
    named = "choice" if isinstance(answer, str) else ""
    assert task.report(found, list(labels)).labels == tuple(f"{named}{n}" for n in range(3))


def test_a_model_that_says_nothing_of_its_labels_answers_by_number() -> None:
    """As models did before their labels were recorded."""
    info = MultipleChoice(("q",), ("a", "b"), "right", 24).task_info()
    assert "answers_by_column" not in info.settings
    task = task_class("choice").from_info(info, toys.config())
    assert isinstance(task, MultipleChoice)
    assert task.label_of(1) == "1"


@pytest.mark.parametrize(
    ("labels", "first", "said"),
    [
        ([str(1 + row % 4) for row in range(12)], 1, "the choices are numbered from 1 on"),
        ([f"{1 + row % 4}.0" for row in range(12)], 1, "3 rows (lines 5, 9, 13) have the number"),
        ([str(1 + row % 3) for row in range(40)], 0, "no row has the first choice, number 0"),
        ([str(row % 4) for row in range(12)], 0, ""),
        (["1", "2", "4"], 1, "1 row (line 4) has the number of choices"),
        (["1", "2", "3"], 0, ""),  # so few may be so by chance
    ],
)
def test_numbers_of_choices_that_begin_at_1(labels: list[str], first: int, said: str) -> None:
    columns = ("q", *(f"choice{number}" for number in range(4)))
    items = [Example(("?", *"abcd"), label, line) for line, label in enumerate(labels, 2)]
    examples = Examples("train.csv", columns, "label", items)
    task = MultipleChoice.from_examples(examples)
    assert task.first_number == first
    assert task.right_of(items[0], "train.csv") == int(float(labels[0])) - first
    assert task.label_of(2) == str(2 + first)
    assert said in "\n".join(examples.notes)
    assert bool(examples.notes) == bool(said)
    again = MultipleChoice.from_info(task.task_info(), toys.config())
    assert again.first_number == first
