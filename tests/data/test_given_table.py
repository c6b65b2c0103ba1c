"""Examples in memory: what is taken for a table, and that every task reads it as a file of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bertine
from bertine.core.errors import BertineError
from bertine.data.examples import read_examples
from bertine.data.in_memory import DataParts, InMemoryTable, as_data, as_table, plain_value
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_evaluation, read_labelled
from bertine.options.data import DataConfig
from frames import FRAMES, Dataset, PandasFrame

ROWS = [{"text": f"a cat {n}", "label": "odd" if n % 2 else "even", "n": n} for n in range(20)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label", "n")}


def texts_and_labels(labelled: DatasetSplits) -> list[tuple[Any, Any]]:
    parts = (labelled.train, labelled.validation)
    return [(item.texts, item.label) for part in parts for item in part.items]


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_table_is_read_as_a_file_of_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    expected = texts_and_labels(read_labelled("text", path, DataConfig(seed=3)))
    given = as_data(FRAMES[kind](COLUMNS))
    assert texts_and_labels(read_labelled("text", given, DataConfig(seed=3))) == expected


def test_a_real_data_frame_where_there_is_one() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", None, "c"], "n": [1, 2, 3]}, index=[7, 7, 9])
    rows = list(as_table(frame).rows())
    assert rows == [{"text": "a", "n": 1}, {"text": None, "n": 2}, {"text": "c", "n": 3}]
    assert as_table(frame.convert_dtypes()).columns == ("text", "n")
    assert list(as_table(frame.convert_dtypes()).rows()) == rows


def test_rows_without_a_text_are_read_as_empty_and_counted(tmp_path: Path) -> None:
    """As in the csv of the same frame."""
    nan = float("nan")
    frame = PandasFrame({"text": ["a", None, "c", nan, ""], "label": ["x", "y"] * 2 + ["x"]})
    path = tmp_path / "a.csv"
    path.write_text('text,label\na,x\n"",y\nc,x\n"",y\n"",x\n')
    packed = tmp_path / "a.jsonl"
    packed.write_text(
        "".join(json.dumps(row) + "\n" for row in as_table(frame).rows()), encoding="utf-8"
    )
    for source in (as_table(frame), path, packed):
        examples = read_examples(source)
        assert [item.texts for item in examples.items] == [("a",), ("",), ("c",), ("",), ("",)]
        assert any("3 of 5 texts are empty" in note for note in examples.notes)


def test_a_dictionary_of_tables_has_parts() -> None:
    given = as_data({"train": ROWS[:15], "dev": PandasFrame(COLUMNS)})
    assert isinstance(given, DataParts)
    labelled = read_labelled("text", given)
    assert (len(labelled.train), len(labelled.validation)) == (15, 20)
    with pytest.raises(BertineError, match="the part 'training' is not known"):
        as_data({"training": ROWS})


def test_numbers_of_classes_get_their_names() -> None:
    data = Dataset({"text": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}, label=["no", "yes"])
    labelled = read_labelled("text", as_data(data))
    assert {label for _, label in texts_and_labels(labelled)} == {"no", "yes"}


def test_other_tasks_read_tables_too() -> None:
    spans = {
        "question": ["who"] * 8,
        "context": ["a cat", "a dog"] * 4,
        "answer": ["cat", "dog"] * 4,
    }
    assert len(read_labelled("spans", as_data(spans)).train) > 0
    words = [{"words": ["Ada", "wrote"], "tags": ["B-PER", "O"]}] * 10
    assert len(read_labelled("tagging", as_data(words)).train) == 9
    scores = {"text": ["a", "b", "c"], "label": [0.5, np.float32(1.5), 2]}
    assert len(read_labelled("regression", as_data(scores)).train) == 2
    quiz = [{"question": "q", "choice1": "a", "choice2": "b", "label": n % 2} for n in range(10)]
    task = read_labelled("choice", as_data(quiz)).make_task(24)
    assert len(read_evaluation(task, as_data(quiz), DataConfig())[""]) == 10


def test_values_are_those_of_json() -> None:
    values = [np.int64(3), np.bool_(True), np.array([1, 2]), float("nan"), b"x", ("a", "b")]
    (row,) = as_table([{str(at): value for at, value in enumerate(values)}]).rows()
    assert list(row.values()) == [3, True, [1, 2], None, "x", ["a", "b"]]
    assert json.dumps(row) == json.dumps(dict(zip("012345", row.values(), strict=True)))


def test_an_object_without_a_text_is_refused() -> None:
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": (part for part in "xy")}]
    with pytest.raises(
        BertineError, match=r"data\[1\]: a value is <generator .* \(generator\), which"
    ):
        list(as_table(rows).rows())
    assert plain_value({"b", "a"}) == ["a", "b"]
    assert plain_value(frozenset((2, 1))) == [1, 2]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (5, "data is an int, but must be a path, a pandas"),
        (["a", "b"], "data is a list, but must be a path"),
        (None, "data is a NoneType, but must be a path"),
        ({"text": ["a"], "label": ["x", "y"]}, "different lengths ('text' 1, 'label' 2)"),
        ({"text": []}, "data: has no rows"),
        (pa.table({"text": pa.array([], pa.string())}), "data: has no rows"),
        (iter(ROWS), "data is a list_iterator, but must be a path"),
    ],
)
def test_what_is_no_table_is_one_line(data: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(BertineError) as caught:
        bertine.finetune("text", model=tmp_path, data=data, out=tmp_path / "out")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_in_a_table_name_the_row() -> None:
    rows = as_data([{"text": "a", "label": "x"}, {"text": 5, "label": "y"}] * 3)
    with pytest.raises(BertineError, match=r"^data\[1\]: 'text' is a number, but must be a text"):
        read_labelled("text", rows)
    with pytest.raises(BertineError, match=r"^data: there is no column 'txt' .did you mean 'text'"):
        read_labelled("text", rows, DataConfig(text_columns="txt"))
    with pytest.raises(BertineError, match="is a table in memory, not a file; leave out format"):
        read_labelled("text", rows, DataConfig(format="csv"))
    with pytest.raises(BertineError, match="reads official files, not tables in memory"):
        read_labelled("squad", rows)
    assert isinstance(rows, InMemoryTable)
