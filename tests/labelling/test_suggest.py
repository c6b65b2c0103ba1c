"""The texts to label next, from a table to a table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import bertine
import toys
from bertine import BertineError

TEXTS = [toys.sentence(topic, word) for word in toys.ADJECTIVES for topic in toys.TOPICS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("suggest") / "model")


def table(path: Path, labels: dict[str, str]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "text", "label"])
        writer.writerows([n, text, labels.get(text, "")] for n, text in enumerate(TEXTS))
    return path


def test_rows_are_written_in_the_order_of_labelling_with_all_columns(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "next.csv"
    asked = bertine.suggest(model, table(tmp_path / "texts.csv", {}), num=7, output=out)
    with open(out, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [item.text for item in asked]
    assert all(TEXTS[int(row["number"])] == row["text"] for row in rows)
    assert {row["reason"] for row in rows} <= {"rule", "random", "judge"}
    assert len(rows) == 7


def test_labels_count_wherever_they_stand(model: Path, tmp_path: Path) -> None:
    known = dict.fromkeys(TEXTS[::3], "animal") | dict.fromkeys(TEXTS[1::3], "dish")
    inside = bertine.suggest(model, table(tmp_path / "part.csv", known), num=3)
    apart = bertine.suggest(
        model, {"text": TEXTS}, {"text": list(known), "label": list(known.values())}, num=3
    )
    assert inside.labelled == apart.labelled == len(known)
    assert inside.labels == ["animal", "dish"]
    assert not {item.text for item in inside} & known.keys()
    other = bertine.suggest(model, table(tmp_path / "part.csv", known), num=3, labels=["dish"])
    assert other.labelled == len(TEXTS[1::3])
    assert any("not in labels: animal" in note for note in other.notes)
    with pytest.raises(BertineError, match="every text has a label"):
        bertine.suggest(model, table(tmp_path / "all.csv", dict.fromkeys(TEXTS, "dish")))
