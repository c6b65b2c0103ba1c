"""Which examples are read of which data, and what cannot be said of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tagged
import toys
from bertine.core.errors import BertineError
from bertine.datasets.readers import has_validation, read_labelled
from bertine.options.data import DataConfig
from glue_files import write_glue
from squad_files import write_squad


def write_choices(path: Path) -> None:
    rows = [f"the cat,sleeps,boils {number},0" for number in range(8)]
    path.write_text("\n".join(["question,choice0,choice1,label", *rows]) + "\n", encoding="utf-8")


def data_of(task: str, folder: Path) -> tuple[Path, Path]:
    """A data set with a validation file, and that file."""
    folder.mkdir()
    if task == "glue":
        return write_glue(folder, "RTE"), folder / "RTE" / "dev.tsv"
    if task in ("squad", "spans"):
        return write_squad(folder, articles=4, dev=2), folder / "dev-v1.1.json"
    if task == "tagging":
        tagged.write_columns(folder / "train.conll", 16)
        tagged.write_columns(folder / "dev.conll", 4, seed=1)
        return folder, folder / "dev.conll"
    for part in ("train", "dev"):
        if task == "choice":
            write_choices(folder / f"{part}.csv")
        else:
            toys.write_labelled(folder / f"{part}.csv")
    return folder, folder / "dev.csv"


@pytest.mark.parametrize("task", ["text", "choice", "tagging", "squad", "spans", "glue"])
def test_a_split_seed_is_for_data_of_which_some_are_held_out(task: str, tmp_path: Path) -> None:
    data, validation = data_of(task, tmp_path / "data")
    named: dict[str, Any] = {"glue_task": "RTE"} if task == "glue" else {}
    plain, split = DataConfig(**named), DataConfig(**named, split_seed=3)
    assert has_validation(task, data, plain)
    judged_on = read_labelled(task, data, plain).validation
    assert judged_on.source == str(validation)
    with pytest.raises(BertineError, match=r"has validation examples of its own, so that split_se"):
        read_labelled(task, data, split)
    os.remove(validation)
    assert not has_validation(task, data, plain)
    found = [
        read_labelled(task, data, DataConfig.of(reading, seed=seed)).validation.fingerprint()
        for seed, reading in ((0, split), (5, split), (3, plain), (0, plain))
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("task", ["text", "spans", "choice"])
def test_quotes_are_said_of_the_files_that_may_have_some(task: str, tmp_path: Path) -> None:
    """Of a folder with csv beside JSON lines or Parquet; not of one with neither csv nor tsv."""
    row: dict[str, Any] = {"text": '"the cat', "label": "x"}
    if task == "spans":
        row = {"question": '"who', "context": "the cat sleeps", "answer": "cat"}
    elif task == "choice":
        row = {"question": '"the cat', "choice0": "sleeps", "choice1": "boils", "label": 0}
    cells = "".join(",".join(map(str, line)) + "\n" for line in (row, row.values(), row.values()))
    (tmp_path / "train.csv").write_text(cells, encoding="utf-8")
    reading = DataConfig(quotes=False)
    dev = tmp_path / "dev.parquet"
    pq.write_table(pa.Table.from_pylist([row] * 2), dev)
    found = read_labelled(task, tmp_path, reading)
    dev.unlink()
    lines = "".join(json.dumps(each) + "\n" for each in (row, row))
    (tmp_path / "dev.jsonl").write_text(lines, encoding="utf-8")
    again = read_labelled(task, tmp_path, reading)
    for examples in (found.train, found.validation, again.train, again.validation):
        assert len(examples) == 2
        assert examples.fingerprint() == found.train.fingerprint()
    with pytest.raises(BertineError, match=r"train\.csv:2: not valid csv"):
        read_labelled(task, tmp_path)
    (tmp_path / "train.csv").unlink()
    (tmp_path / "train.jsonl").write_text(lines, encoding="utf-8")
    with pytest.raises(BertineError, match=r"train\.jsonl: is JSON lines, which has no quotes"):
        read_labelled(task, tmp_path, reading)


def test_columns_are_said_of_the_training_file(tmp_path: Path) -> None:
    """The validation file may be of another kind, which has columns of its own."""
    tagged.write_columns(tmp_path / "train.conll", 8)
    tagged.write_json(tmp_path / "dev.jsonl", 8)
    reading = DataConfig(word_column=1, tag_column=3)
    found = read_labelled("tagging", tmp_path, reading)
    assert found.validation.fingerprint() == found.train.fingerprint()
    (tmp_path / "train.conll").unlink()
    tagged.write_json(tmp_path / "train.jsonl", 8)
    with pytest.raises(BertineError, match=r"train\.jsonl: is not a column file; name its columns"):
        read_labelled("tagging", tmp_path, reading)
