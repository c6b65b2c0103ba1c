"""A model of multiple choice answers tables with more or fewer choices than those of training."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.inference.evaluate import evaluate
from bertine.inference.predict import PredictReport, predict
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.report import ClassificationReport

VERBS = [verb for verb, _ in toys.TOPICS.values()]
QUIET: dict[str, Any] = {"show_progress": False}


def predicted(predictor: Predictor, path: Path, out: Path, **how: Any) -> PredictReport:
    report = predict(predictor, path, out, show_progress=False, **how)
    assert isinstance(report, PredictReport)
    return report


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    """Of SWAG's columns, with four endings."""
    task = MultipleChoice(label_column="label", max_length=24)
    torch.manual_seed(3)
    settings = toys.config(initializer_range=0.3)
    return Predictor(Model(settings, task.heads(settings)), toys.tokenizer(), task)


def rows(choices: int) -> list[dict[str, Any]]:
    """The last ending is always right."""
    return [
        {
            "sent1": f"a {topic} in the {place} .",
            "sent2": f"the {topic}",
            **{f"ending{n}": f"{VERBS[(at + n) % len(VERBS)]} ." for n in range(choices)},
            "label": choices - 1,
        }
        for at, (topic, (_, place)) in enumerate(toys.TOPICS.items())
    ]


def written(path: Path, table: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
    else:
        with open(path, "w", encoding="utf-8", newline="") as handle:
            writer = csv.DictWriter(handle, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    return path


def answers(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def by_pairs(predictor: Predictor, row: dict[str, Any], choices: int) -> list[float]:
    """The probabilities of the endings, from the odds of each against the first alone."""
    given, first = (row["sent1"], row["sent2"]), row["ending0"]
    found = predictor.predict([(*given, first, row[f"ending{n}"]) for n in range(1, choices)])
    odds = [1.0, *(pair.probabilities[1] / pair.probabilities[0] for pair in found)]
    return [each / sum(odds) for each in odds]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("choices", [2, 3, 4, 6])
def test_every_choice_of_a_table_is_scored(
    predictor: Predictor, tmp_path: Path, suffix: str, choices: int
) -> None:
    table = rows(choices)
    path = written(tmp_path / f"in.{suffix}", table)
    out = tmp_path / ("out.csv" if suffix == "csv" else "out.jsonl")
    said = predicted(predictor, path, out, all_probabilities=True)
    found = answers(out)
    for row, answer in zip(table, found, strict=True):
        expected = by_pairs(predictor, row, choices)
        chances = [float(answer[f"probability_ending{n}"]) for n in range(choices)]
        assert chances == pytest.approx(expected, abs=2e-5)
        assert int(answer["choice"]) == max(range(choices), key=expected.__getitem__)

    report = evaluate(predictor, path, **QUIET)
    assert isinstance(report, ClassificationReport)
    right = sum(int(answer["choice"]) == choices - 1 for answer in found)
    assert report.metrics["accuracy"] == pytest.approx(right / len(table))
    assert report.num_examples == len(table)

    fixed = suffix != "jsonl"  # rows of JSON lines may lack keys, which are counted one by one
    told = {2: "2 fewer than in training", 3: "1 fewer", 6: "2 more than in training"}
    for notes in (said.lines(), report.notes):
        noted = [line for line in notes if "columns of choices" in line]
        if choices == 6 or (choices < 4 and fixed):
            (line,) = noted
            assert f"in.{suffix}: has {choices} columns of choices (ending0, ending1" in line
            assert told[choices] in line
        else:
            assert noted == []
        if choices < 4 and not fixed:
            assert any("8 of 8 rows have no key 'ending3'" in line for line in notes)
    assert len(predictor.task.text_columns) == 6  # of the model nothing is changed


def test_columns_that_are_named_may_be_any_number(predictor: Predictor, tmp_path: Path) -> None:
    table = rows(6)
    path = written(tmp_path / "in.csv", table)
    columns = ["sent1", "sent2", "ending5", "ending0", "ending3"]
    report = predicted(
        predictor, path, tmp_path / "a.csv", text_columns=columns, all_probabilities=True
    )
    assert report.columns[2:] == [f"probability_{name}" for name in columns[2:]]
    assert "has 3 columns of choices (ending5, ending0, ending3), 1 fewer" in report.lines()[1]
    (answer, *_) = answers(tmp_path / "a.csv")
    every = by_pairs(predictor, table[0], 6)
    chosen = [every[n] for n in (5, 0, 3)]
    found = [float(answer[name]) for name in report.columns[2:]]
    assert found == pytest.approx([each / sum(chosen) for each in chosen], abs=2e-5)
    with pytest.raises(BertineError, match=r"but the model takes 4 or more: sent1 and sent2, then"):
        predicted(predictor, path, tmp_path / "b.csv", text_columns=columns[:3])
    twice = [*columns[:4], "ending5", "ending1"]
    with pytest.raises(BertineError, match="the text column 'ending5' is named twice"):
        predicted(predictor, path, tmp_path / "b.csv", text_columns=twice)


def test_columns_in_another_order_go_by_their_own_names(
    predictor: Predictor, tmp_path: Path
) -> None:
    table = rows(4)
    path = written(tmp_path / "in.csv", table)
    endings = ["ending3", "ending2", "ending1", "ending0"]
    columns = ["sent1", "sent2", *endings]
    report = predicted(
        predictor, path, tmp_path / "a.csv", text_columns=columns, all_probabilities=True
    )
    assert report.columns[2:] == [f"probability_{name}" for name in endings]
    (answer, *_) = answers(tmp_path / "a.csv")
    every = by_pairs(predictor, table[0], 4)
    found = [float(answer[name]) for name in report.columns[2:]]
    assert found == pytest.approx([every[n] / sum(every) for n in (3, 2, 1, 0)], abs=2e-5)


@pytest.mark.parametrize(
    ("endings", "message"),
    [
        (((0, 1, 3),), r"in\.csv: there is no column 'ending2'"),
        (((0, 1, 2, 4),), r"in\.csv: there is no column 'ending3'"),
        (((0, 1, 2, 3, 5),), r"in\.csv: has the choice 'ending5', but none just before it; name"),
        (((0,),), r"in\.csv: there is no column 'ending1'"),
        ((range(4), range(5)), r"in\.jsonl:2: has the choice 'ending4', but the first row has no"),
        ((range(5), range(7)), r"in\.jsonl:2: has the choice 'ending5', but the first row has no"),
    ],
)
def test_choices_with_a_gap_and_those_of_later_rows_are_refused(
    predictor: Predictor, tmp_path: Path, endings: Any, message: str
) -> None:
    given = {"sent1": "a cat .", "sent2": "the cat", "label": 0}
    table = [{**given, **{f"ending{n}": "sleeps" for n in each}} for each in endings]
    path = written(tmp_path / f"in.{'csv' if len(table) == 1 else 'jsonl'}", table)
    with pytest.raises(BertineError, match=message):
        predicted(predictor, path, tmp_path / "out.jsonl")
    with pytest.raises(BertineError, match=message):
        evaluate(predictor, path, **QUIET)
    assert list(tmp_path.iterdir()) == [path]
    if len(table) > 1:
        columns = ["sent1", "sent2", *(f"ending{n}" for n in range(7))]
        report = predicted(predictor, path, tmp_path / "out.jsonl", text_columns=columns)
        assert report.rows == 2
        assert [row["choice"] < 7 for row in answers(tmp_path / "out.jsonl")] == [True, True]


def test_a_model_whose_choices_were_named_reads_no_others(
    predictor: Predictor, tmp_path: Path
) -> None:
    assert isinstance(predictor.task, MultipleChoice)
    named = dataclasses.replace(predictor.task, named_choices=True)
    assert MultipleChoice.from_info(named.task_info(), toys.config()) == named
    reader = Predictor(predictor.model, predictor.tokenizer, named)
    path = written(tmp_path / "in.csv", rows(6))
    report = predicted(reader, path, tmp_path / "out.csv", all_probabilities=True)
    assert report.columns[-1] == "probability_ending3"
