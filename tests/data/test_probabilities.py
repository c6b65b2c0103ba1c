"""Files of probabilities, in every form, and what is wrong in them by row and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertine.core.errors import BertineError
from bertine.data.soft_labels import read_probabilities, read_soft_examples
from bertine.options.data import DataConfig

ROWS = [{"joy": 0.7, "anger": 0.2, "fear": 0.1}, {"joy": 0.0, "anger": 0.0, "fear": 1.0}]
LABELS = ("joy", "anger", "fear")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As its suffix says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "\t" if path.suffix == ".tsv" else ";"
        cells = [
            [json.dumps(v) if isinstance(v, dict | list) else str(v) for v in row.values()]
            for row in rows
        ]
        lines = [mark.join(row) for row in [list(rows[0]), *cells]]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("form", ["columns", "prefixed", "dictionary", "list"])
def test_every_form_of_every_file(tmp_path: Path, suffix: str, form: str) -> None:
    if suffix == ".csv" and form in ("dictionary", "list"):
        pytest.skip("quotes of JSON in csv are the writer's business; see below")
    made: dict[str, list[dict[str, Any]]] = {
        "columns": [{"text": "a", **row} for row in ROWS],
        "prefixed": [{f"probability_{k}": v for k, v in row.items()} for row in ROWS],
        "dictionary": [{"text": "a", "probabilities": row} for row in ROWS],
        "list": [{"probs": list(row.values())} for row in ROWS],
    }
    path = write(tmp_path / f"p{suffix}", made[form])
    labels = LABELS if form in ("columns", "list") else None
    found = read_probabilities(path, labels=labels, text_columns=["text"])
    assert found.labels == LABELS
    np.testing.assert_allclose(found.values, [list(row.values()) for row in ROWS], atol=1e-12)
    assert bool(found.texts) == (form in ("columns", "dictionary"))
    turned = read_probabilities(path, labels=LABELS[::-1]) if form != "list" else found
    if form != "list":
        np.testing.assert_allclose(turned.values, found.values[:, ::-1], atol=1e-12)


def test_json_in_csv(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('id,probabilities\n1,"{""a"": 0.25, ""b"": 0.75}"\n')
    assert read_probabilities(path).values.tolist() == [[0.25, 0.75]]


def test_rounded_rows_are_made_to_sum_to_one(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", [{"probability_a": 0.333, "probability_b": 0.666}])
    assert read_probabilities(path).values.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("rows", "options", "wanted"),
    [
        ([{"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.7}], {"labels": ["a", "b"]},
         r"p.jsonl:2: the columns of the labels sum to 1.2 \(0.5, 0.7\)"),
        ([{"a": 0.5, "b": 0.5}, {"a": 1.5, "b": -0.5}], {"labels": ["a", "b"]},
         "p.jsonl:2: 'a' is 1.5, but must be a probability"),
        ([{"a": "x", "b": 0.5}], {"labels": ["a", "b"]}, "p.jsonl:1: 'a' is 'x'"),
        ([{"a": True, "b": 0.5}], {"labels": ["a", "b"]}, "p.jsonl:1: 'a' is True"),
        ([{"a": 0.5, "b": None}], {"labels": ["a", "b"]}, "p.jsonl:1: 'b' is None"),
        ([{"a": 0.5, "b": 0.5}], {"labels": ["a", "c"]}, "no column for the probability of 'c'"),
        ([{"a": 0.5, "b": 0.5}], {}, "cannot tell which columns hold probabilities"),
        ([{"probs": [0.5, 0.5]}], {}, "p.jsonl:1: 'probs' holds a list, which does not say whose"),
        ([{"probs": [0.5, 0.5]}, {"probs": [1.0]}], {"labels": ["a", "b"]},
         "p.jsonl:2: 'probs' has 1 probabilities, but there are 2 labels"),
        ([{"probs": {"a": 0.5, "b": 0.5}}, {"probs": {"a": 0.5, "c": 0.5}}], {},
         "p.jsonl:2: 'probs' has the label 'c', which is not among 'a', 'b'"),
        ([{"probs": {"a": 0.4, "b": 0.4}}], {}, "p.jsonl:1: 'probs' sum to 0.8"),
        ([{"probs": 3}], {}, "p.jsonl:1: 'probs' is 3, but must be a dictionary or a list"),
        ([{"probs": "{"}], {}, "p.jsonl:1: 'probs' is '{', but must be JSON such as"),
        ([{"probs": '{"a": 1, "a": 1, "b": 0}'}], {}, r"JSON .*: the key 'a' is there twice in"),
        ([{"probs": r'{"\ud800": 1, "b": 0}'}], {}, r"has half a character .\\ud800. in a text"),
        ([{"probs": {"\ud800": 1, "b": 0}}], {}, r"the label of a probability is '\\ud800', with"),
        ([{"probability_\ud800": 1, "probability_b": 0}], {}, r"is '\\ud800', with a damaged"),
        ([{"probability_\ufffd": 1, "probability_b": 0}], {}, "is '\ufffd', with a damaged"),
        ([{"probs": {"a": 1.0}}], {}, "probabilities of one label"),
        ([{"probs": {"a": 0.5, "b": 0.5}}], {"column": "other"}, "no column 'other'"),
    ],
)  # fmt: skip
def test_mistakes_name_row_and_column(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any], wanted: str
) -> None:
    path = write(tmp_path / "p.jsonl", rows)
    with pytest.raises(BertineError, match=wanted) as error:
        read_probabilities(path, **options)
    assert "\n" not in str(error.value)


def test_plain_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("nothing here\nat all\n")
    with pytest.raises(BertineError, match="is plain text"):
        read_probabilities(tmp_path / "p.txt")


def test_soft_examples_have_the_best_label(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", **row} for n, row in enumerate(ROWS)]
    examples = read_soft_examples(
        write(tmp_path / "p.jsonl", rows), DataConfig(probability_columns=LABELS)
    )
    assert [item.label for item in examples.items] == ["joy", "fear"]
    assert examples.class_names == LABELS
    hard = examples.fingerprint()
    rows[0] |= {"joy": 0.6, "fear": 0.2}
    other = read_soft_examples(
        write(tmp_path / "q.jsonl", rows), DataConfig(probability_columns=LABELS)
    )
    assert other.fingerprint() != hard


@pytest.mark.parametrize("form", ["dictionary", "columns", "named"])
def test_many_labels_take_no_longer_than_few(tmp_path: Path, form: str) -> None:
    """Each is looked up among all of them: 20,000 once took a minute a row."""
    row = {f"c{number}": 1 / 20_000 for number in range(20_000)}
    prefixed = {f"probability_{name}": value for name, value in row.items()}
    rows = [{"text": "a", **({"probabilities": row} if form == "dictionary" else prefixed)}] * 2
    path = write(tmp_path / "p.jsonl", rows)
    found = read_probabilities(path, labels=list(row) if form == "named" else None)
    assert (found.labels, found.values.shape) == (tuple(row), (2, 20_000))
