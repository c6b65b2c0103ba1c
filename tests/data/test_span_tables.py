"""Tables of questions, contexts and answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.data.spans import read_questions
from bertine.data.squad import Gold
from bertine.options.data import DataConfig

CONTEXT = "The oil crisis began in October 1973 , and in October 1974 it was over ."


def test_a_table_has_a_row_for_each_question(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(
        "id,question,context,answer,answer_start\n"
        'x1,When?,"It began in 1973, in 1973.",1973,21\n'
        "x2,Who?,Nobody knows.,,\n"
        ",What?,It began with oil.,oil,\n",
        encoding="utf-8",
    )
    examples = read_questions(path)
    assert [item.id for item in examples.items] == ["x1", "x2", "4"]
    assert [item.label for item in examples.items] == [
        Gold(("1973",), (21, 25), True),
        Gold((), None, True),
        Gold(("oil",), (14, 17), True),
    ]
    assert (examples.v2, examples.dataset) == (True, None)
    assert examples.notes == [
        f"{path}: 1 answers without answer_start were looked for; 0 of them are there more than "
        "once, and the first place is taken"
    ]


def test_json_lines_may_have_several_answers(tmp_path: Path) -> None:
    rows = [
        {"answers": {"text": ["October 1973", "1973"], "answer_start": [24, 32]}},
        {"answers": [{"text": "oil", "answer_start": 4}, {"text": "The oil"}]},
        {"answers": {"text": [], "answer_start": []}},
        {"answers": None},
        {"answers": "crisis"},
    ]
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps({"q": "?", "c": CONTEXT, **row}) + "\n" for row in rows))
    examples = read_questions(path, DataConfig(text_columns=["q", "c"]))
    golds = [item.label for item in examples.items if item.label]
    assert [gold.answers for gold in golds] == [
        ("October 1973", "1973"),
        ("oil", "The oil"),
        (),
        (),
        ("crisis",),
    ]
    assert [gold.span for gold in golds] == [(24, 36), (4, 7), None, None, (8, 14)]
    assert all(gold.v2 for gold in golds)


def test_places_in_a_column_with_gaps_are_whole_numbers_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"  # as pandas writes it
    path.write_text("question,context,answer,answer_start\nq,a b b,b,4.0\nq,a b b,b,\n")
    spans = [item.label.span for item in read_questions(path).items if item.label]
    assert spans == [(4, 5), (2, 3)]
    path = tmp_path / "train.jsonl"
    row = {"question": "q", "context": "a b b", "answers": {"text": ["b", "b"]}}
    row["answers"] |= {"answer_start": [4.0, float("nan")]}  # type: ignore[operator]
    path.write_text(json.dumps(row))
    assert [item.label.span for item in read_questions(path).items if item.label] == [(4, 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,text,answer\na,b,c\n", "no column 'context'"),
        ("question,context,reply\na,b,c\n", "cannot tell which column holds the answer"),
        ("question,context,answer\n", "has a header, but no rows"),
        (
            "question,context,answer,answer_start\na,b,b,0\na,b,b,x\n",
            r"train\.csv:3: answer_start is 'x', but must be a whole number",
        ),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(text)
    with pytest.raises(BertineError, match=message):
        read_questions(path)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (7, "'answers' is 7, but must be a text"),
        ([7], "an answer in 'answers' is 7, but must be a text"),
        ({"text": ["a"], "answer_start": []}, "of the same length"),
        ([{"text": "a", "answer_start": 1.5}], "answer_start is 1.5, but must be a whole number"),
    ],
)
def test_wrong_answers_in_json_lines_name_their_line(
    tmp_path: Path, answers: Any, message: str
) -> None:
    path = tmp_path / "train.jsonl"
    rows = [{"question": "?", "context": "a", "answers": each} for each in ("a", answers)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BertineError, match=rf"train\.jsonl:2: .*{message}"):
        read_questions(path)
