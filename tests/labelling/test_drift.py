"""`bertine drift` on a toy model: what it reports, writes, refuses, and its exit status."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import bertine
import toys
from bertine import BertineError
from bertine.cli import main

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_recorded(tmp_path_factory.mktemp("drift"), rows=160)


def rows_of(path: Path) -> Rows:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def usual(model: Path) -> Rows:
    rows = rows_of(toys.write_labelled(model.parent.parent / "new.csv", rows=160, seed=2))
    return [row | {"id": str(number)} for number, row in enumerate(rows)]


@pytest.fixture(scope="module")
def strange(usual: Rows) -> Rows:
    return [row | {"text": "7 ? ! the the in in the . 7 7"} for row in usual[:80]] + usual[:80]


def texts(rows: Rows) -> list[dict[str, str]]:
    return [{"text": row["text"], "id": row["id"]} for row in rows]


def test_new_texts_are_compared_and_shown(
    model: Path, usual: Rows, strange: Rows, tmp_path: Path
) -> None:
    same = bertine.drift(model, texts(usual), show_progress=False)
    assert not same.fallen
    assert not same.clusters
    assert same.held_out == 160
    page, values, first = tmp_path / "d.html", tmp_path / "d.json", tmp_path / "first.csv"
    report = bertine.drift(
        model,
        texts(strange),
        output=first,
        num=7,
        html=page,
        json=values,
        show_progress=False,
    )
    assert report.more_unfamiliar
    assert any("7" in cluster.words for cluster in report.clusters)
    assert "7 ? !" in str(report)
    written = json.loads(values.read_text(encoding="utf-8"))
    assert written == report.to_dict()
    assert written["accuracy"] == pytest.approx(report.accuracy, abs=1e-4)
    assert "Has the world moved?" in page.read_text(encoding="utf-8")
    rows = rows_of(first)
    assert len(rows) == 7
    assert list(rows[0]) == ["text", "id", "answer"]
    assert [texts(strange)[line]["text"] for line in report.label_first] == [
        r["text"] for r in rows
    ]


def test_the_exit_status_says_whether_too_much_is_lost(
    model: Path, strange: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.csv"
    with open(file, "w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, ["text", "id"])
        writer.writeheader()
        writer.writerows(texts(strange))
    loss = bertine.drift(model, file, show_progress=False).loss
    assert main(["drift", str(model), str(file), "--fail-above", f"{max(0, loss) + 1:.2f}"]) == 0
    asked = ["drift", str(model), str(file), "--fail-above", "0"]
    assert main(asked) == (1 if loss > 0 else 0)
    assert "estimated accuracy on 160 texts" in capsys.readouterr().out


def test_labelled_rows_take_the_place_of_a_record(model: Path, usual: Rows, tmp_path: Path) -> None:
    earlier = toys.write_classifier(tmp_path / "earlier")
    with pytest.raises(BertineError, match=r"no record of held-out texts .*reference="):
        bertine.drift(earlier, texts(usual), show_progress=False)
    recorded = bertine.drift(model, texts(usual), show_progress=False)
    given = bertine.drift(model, texts(usual), reference=usual, show_progress=False)
    assert given.held_out == len(usual) // 2  # the others show what texts of a label are like
    assert given.accuracy == pytest.approx(recorded.accuracy, abs=0.05)
    with pytest.raises(BertineError, match="has 40 labelled rows; 100 are needed"):
        bertine.drift(model, texts(usual), reference=usual[:40], show_progress=False)
    with pytest.raises(BertineError, match="has 9 texts; 50 are needed"):
        bertine.drift(model, texts(usual)[:9], show_progress=False)
    pairs = bertine.Predictor.load(model)._with(text_columns=("text", "id"))
    with pytest.raises(BertineError, match="models that choose one label of one text"):
        bertine.drift(pairs, texts(usual), show_progress=False)
