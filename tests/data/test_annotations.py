"""Files of annotation tools become rows with the text and its entities or labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.data.annotated_texts import UNITS
from bertine.data.lines import written_layout
from bertine.data.tables import Table
from bertine.data.writer import open_writer
from bertine.datasets.readers import read_labelled
from bertine.options.data import DataConfig

TEXT = "😀 Ada Lovelace\r\nlebte in Zu\u0308rich, 伦敦 und Köln."
#: Begin, end and label in code points; nested, overlapping, after a line break.
ENTITIES = [
    (2, 14, "PER"),
    (6, 14, "NAME"),
    (10, 21, "ODD"),
    (25, 32, "LOC"),
    (34, 36, "LOC"),
    (41, 45, "LOC"),
]
NAMED = [{"start": begin, "end": end, "label": label} for begin, end, label in ENTITIES]


def write(path: Path, value: Any) -> Path:
    """Write JSON, or for .jsonl JSON lines."""
    if path.suffix == ".jsonl":
        lines = [json.dumps(item, ensure_ascii=False) for item in value]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    else:
        path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of a table and its notes."""
    with Table(path, **options) as table:
        rows = [row.values for row in table]
        return rows, "\n".join(table.stats.notes(table.name))


def utf16(at: int, text: str = TEXT) -> int:
    return len(text[:at].encode("utf-16-le")) // 2


def region(begin: int, end: int, label: str, text: str = TEXT) -> dict[str, Any]:
    """A span as Label Studio writes it."""
    value = {
        "start": utf16(begin, text),
        "end": utf16(end, text),
        "text": text[begin:end],
        "labels": [label],
    }
    return {"type": "labels", "from_name": "label", "to_name": "text", "value": value}


def choice(*labels: str, name: str = "mood") -> dict[str, Any]:
    value = {"choices": list(labels)}
    return {"type": "choices", "from_name": name, "to_name": "text", "value": value}


def task(text: str, *answers: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A task of Label Studio with the results of several annotators."""
    given = [{"result": list(result), "was_cancelled": False} for result in answers]
    return {"id": 7, "data": {"text": text}, "annotations": given, "predictions": [], **more}


def short(text: str, **answers: Any) -> dict[str, Any]:
    """A row of Label Studio's JSON-MIN."""
    about = {"annotator": 1, "annotation_id": 3, "lead_time": 2.5}
    return {"text": text, "id": 7, **answers, **about}


TRIPLES = [[begin, end, label] for begin, end, label in ENTITIES]
FILES: dict[str, tuple[str, Any, str]] = {
    "label studio": (
        "a.json",
        [task(TEXT, [region(*entity) for entity in ENTITIES])],
        "label-studio",
    ),
    "label studio, short": (
        "a.json",
        [short(TEXT, label=[region(*entity)["value"] for entity in ENTITIES])],
        "label-studio",
    ),
    "doccano": ("a.jsonl", [{"id": 7, "text": TEXT, "label": TRIPLES, "Comments": []}], "doccano"),
    "doccano with relations": (
        "a.jsonl",
        [
            {
                "id": 7,
                "text": TEXT,
                "entities": [
                    {"id": at, "start_offset": begin, "end_offset": end, "label": label}
                    for at, (begin, end, label) in enumerate(ENTITIES)
                ],
                "relations": [{"id": 1, "from_id": 0, "to_id": 1, "type": "is"}],
            }
        ],
        "doccano",
    ),
    "prodigy": (
        "a.jsonl",
        [
            {
                "text": TEXT,
                "_task_hash": 5,
                "tokens": [{"text": "Köln", "start": 41, "end": 45, "id": 0}],
                "spans": [{**item, "token_start": 0} for item in NAMED],
                "answer": "accept",
            }
        ],
        "prodigy",
    ),
    "spacy 2": ("a.json", [[TEXT, {"entities": TRIPLES}]], "spacy"),
    "spacy 2, lines": ("a.jsonl", [[TEXT, {"entities": TRIPLES}]], "spacy"),
    "spacy, groups of spans": ("a.jsonl", [{"text": TEXT, "spans": {"sc": NAMED}}], "spacy"),
    "an annotator of spaCy's": (
        "a.json",
        {"classes": ["PER"], "annotations": [[TEXT, {"entities": TRIPLES}], None]},
        "spacy",
    ),
    "argilla": (
        "a.json",
        [
            {
                "id": "7",
                "fields": {"comment": TEXT},
                "metadata": {},
                "suggestions": {},
                "responses": {"spans": [{"value": NAMED, "user_id": "u", "status": "submitted"}]},
            }
        ],
        "argilla",
    ),
    "argilla 1": (
        "a.jsonl",
        [
            {
                "text": TEXT,
                "annotation": [[label, begin, end] for begin, end, label in ENTITIES],
                "prediction": None,
                "status": "Validated",
            }
        ],
        "argilla",
    ),
    "entities": ("a.jsonl", [{"text": TEXT, "entities": NAMED}], "entities"),
}


@pytest.mark.parametrize("name", FILES)
def test_entities_of_every_tool(name: str, tmp_path: Path) -> None:
    file, content, title = FILES[name]
    if isinstance(content, dict):
        (tmp_path / file).write_text(json.dumps(content), encoding="utf-8")
        path = tmp_path / file
    else:
        path = write(tmp_path / file, content)
    rows, notes = read(path)
    assert rows[0]["text"] == TEXT
    assert sorted(rows[0]["entities"], key=lambda item: (item["start"], -item["end"])) == NAMED
    # Plain texts with entities were not guessed to be anything, so nothing is said.
    assert notes == "" if title == "entities" else title in notes


def test_csv_of_label_studio(tmp_path: Path) -> None:
    values = json.dumps([region(*entity)["value"] for entity in ENTITIES]).replace('"', '""')
    path = tmp_path / "a.csv"
    text = TEXT.replace("\n", "\n")
    row = f'annotation_id,annotator,id,label,lead_time,text\n3,1,7,"{values}",2.5,"{text}"\n'
    path.write_text(row, encoding="utf-8", newline="")
    rows, _ = read(path)
    assert rows[0]["text"] == TEXT
    assert rows[0]["entities"] == NAMED


def test_brat_has_a_text_beside(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8", newline="")
    (tmp_path / "b.txt").write_text("nothing yet", encoding="utf-8")
    lines = [f"T{at}\t{label} {b} {e}\t{TEXT[b:e]}" for at, (b, e, label) in enumerate(ENTITIES)]
    lines[2] = f"T2\tODD {ENTITIES[2][0]} 12;16 {ENTITIES[2][1]}\tlace lebte"
    lines += ["R1\tis Arg1:T0 Arg2:T1", "E1\tPER:T0", "A1\tSure T0", "#1\tAnnotatorNotes T0\tok"]
    (tmp_path / "a.ann").write_text("\n".join(lines).replace("\r\n", " "), encoding="utf-8")
    rows, notes = read(tmp_path)
    assert [row["name"] for row in rows] == ["a", "b"]
    whole = [item for item in NAMED if item["label"] != "ODD"]
    assert rows[0]["entities"] == whole
    assert rows[1]["entities"] is None
    for note in ("1 relation", "1 event", "1 attribute", "1 discontinuous"):
        assert note in notes
    assert read(tmp_path / "a.ann")[0][0]["entities"] == whole


PIECES = st.sampled_from(["a", " ", "\r\n", "\n", "é", "e\u0301", "京", "😀", "👩‍👧", "🇩🇪"])


@settings(max_examples=50)
@given(data=st.data(), unit=st.sampled_from(UNITS))
def test_spans_with_their_text_are_read_in_any_unit(
    data: st.DataObject, unit: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "".join(data.draw(st.lists(PIECES, max_size=12))) + "x😀\r\né-end"
    offsets = list(unit.offsets(text))
    places = st.integers(0, len(text))
    given = {tuple(sorted(pair)) for pair in data.draw(st.lists(st.tuples(places, places)))}
    spans = [(begin, end) for begin, end in given if text[begin:end].strip()]
    # The end tells the unit; an offset between \r and \n is in no unit that counts them as one.
    spans = [(b, e) for b, e in spans if "\r\n" not in (text[b - 1 : b + 1], text[e - 1 : e + 1])]
    spans.append((len(text) - 3, len(text)))
    values = [
        {
            "start": offsets[begin],
            "end": offsets[end],
            "text": text[begin:end],
            "labels": ["X"],
        }
        for begin, end in spans
    ]
    regions = [{"type": "labels", "value": value} for value in values]
    path = tmp_path_factory.mktemp("unit") / "a.json"
    rows, _ = read(write(path, [task(text, regions)]))
    assert rows[0]["text"] == text
    assert {(item["start"], item["end"]) for item in rows[0]["entities"]} == {*spans}


def test_spans_without_their_text_show_the_unit_by_blanks(tmp_path: Path) -> None:
    lines = [{"text": f"😀 in Rome {n}", "label": [[6, 10, "LOC"]]} for n in range(5)]
    rows, notes = read(write(tmp_path / "a.jsonl", lines))
    assert rows[4]["entities"] == [{"start": 5, "end": 9, "label": "LOC"}]
    assert "offsets count UTF-16 units" in notes
    rows, notes = read(write(tmp_path / "a.jsonl", lines[:1]))
    assert rows[0]["entities"] == [{"start": 6, "end": 10, "label": "LOC"}]
    assert "offsets count" not in notes


def test_spans_elsewhere_are_left_out_and_shown(tmp_path: Path) -> None:
    regions = [region(2, 14, "PER"), region(25, 32, "LOC"), region(34, 36, "LOC")]
    regions[2]["value"] |= {"start": 0, "end": 900}
    rows, notes = read(write(tmp_path / "a.json", [task(TEXT, regions)]))
    assert len(rows[0]["entities"]) == 2
    assert "1 of 3 spans are not where their offsets say" in notes
    for item in regions:
        item["value"]["text"] = "other words"
    with pytest.raises(BertineError, match=r"a.json:2: 3 of 3 spans are not where"):
        read(write(tmp_path / "a.json", [task(TEXT, regions)]))


def test_labels_of_every_tool(tmp_path: Path) -> None:
    stars = {"type": "rating", "from_name": "stars", "value": {"rating": 4}}
    about = {"text": "good", "_task_hash": 1, "options": [{"id": "pos"}, {"id": "neg"}]}
    files: list[tuple[Any, str, Any]] = [
        ([task("good", [choice("pos")])], "label", "pos"),
        ([task("good", [choice("pos", "new")])], "labels", ["pos", "new"]),
        ([task("good", [stars])], "label", 4),
        ([task("good", [stars, choice("pos")])], "mood", "pos"),
        ([short("good", mood="pos")], "label", "pos"),
        ([short("good", stars=[{"rating": 4}])], "label", 4),
        ([{**about, "accept": ["pos"], "answer": "accept"}], "label", "pos"),
        ([{"text": "good", "label": "GOOD", "answer": "reject"}], "label", "not GOOD"),
        ([["good", {"cats": {"pos": 1.0, "neg": 0.0}}]], "label", "pos"),
        (
            [{"fields": {"review": "good"}, "responses": {"mood": [{"value": "pos"}]}}],
            "label",
            "pos",
        ),
        ([{"text": "good", "annotation": "pos", "prediction": None}], "label", "pos"),
    ]
    for content, column, expected in files:
        rows, _ = read(write(tmp_path / "a.json", content))
        assert rows[0][column] == expected, content
        assert rows[0]["text"] == "good"


def test_doccano_has_a_list_with_one_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"id": 1, "text": "good", "label": ["pos"]}])
    with Table(path) as table:
        (row,) = table
        assert table.label(row, "label") == "pos"


def test_the_majority_of_annotators_decides(tmp_path: Path) -> None:
    text = "Ada in Rome"
    ada, rome = region(0, 3, "PER", text), region(7, 11, "LOC", text)
    tasks = [
        task(text, [ada, rome], [ada], [ada, rome]),
        task(text, [ada], [rome]),
        {**task(text, [ada]), "annotations": [{"result": [], "was_cancelled": True}]},
    ]
    rows, notes = read(write(tmp_path / "a.json", tasks))
    labels = [row["entities"] and [item["label"] for item in row["entities"]] for row in rows]
    assert labels == [["PER", "LOC"], [], None]
    assert "2 texts have several annotators (up to 3), agreement 39%" in notes
    assert "decides 2 disagreements; 2 spans lost" in notes
    assert "not read: 1 cancelled annotation" in notes


def test_votes_for_labels_are_shares(tmp_path: Path) -> None:
    tasks = [
        task("a", [choice("pos")], [choice("neg")], [choice("pos")]),
        task("b", [choice("neg")], [choice("pos")]),
    ]
    rows, notes = read(write(tmp_path / "a.json", tasks))
    assert [row["label"] for row in rows] == ["pos", "neg"]
    assert rows[0]["probability_pos"] == pytest.approx(2 / 3)
    assert rows[1]["probability_pos"] == 0.5
    assert "1 tied, where the first answer counts" in notes


def test_a_list_may_be_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([["a", {"entities": TRIPLES[:0]}], ["b", {"entities": []}]]))
    assert [row["text"] for row in read(path)[0]] == ["a", "b"]


def test_prodigys_and_short_rows_of_a_text_are_its_annotators(tmp_path: Path) -> None:
    rows, _ = read(write(tmp_path / "a.json", [short("a", mood=m) for m in ("x", "y", "y")]))
    assert [row["label"] for row in rows] == ["y"]
    lines = [{"text": "a", "accept": [m], "answer": "accept"} for m in ("x", "y", "y")]
    lines.append({"text": "b", "accept": [], "answer": "ignore"})
    rows, notes = read(write(tmp_path / "a.jsonl", lines))
    assert [row["label"] for row in rows] == ["y", None]
    assert "not read: 1 ignored example" in notes


def test_other_tables_are_not_taken_for_annotations(tmp_path: Path) -> None:
    for line in (
        {"text": "a", "label": "pos"},
        {"text": "a", "labels": ["pos", "new"]},
        {"words": ["a"], "tags": ["O"], "entities": []},
        {"text": "a", "answer": "yes", "data": {"x": 1}},
    ):
        rows, notes = read(write(tmp_path / "a.jsonl", [line]))
        assert rows == [line]
        assert notes == ""


def test_a_format_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"text": "a", "label": []}])
    assert "entities" not in read(path)[0][0]
    assert read(path, format="doccano")[0][0]["entities"] == []
    path = write(tmp_path / "a.jsonl", [{"text": "abc", "entities": [[0, 1, "X"]]}])
    assert read(path, format="jsonl")[0][0]["entities"] == [[0, 1, "X"]]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    good = {"text": "abc", "entities": [{"start": 0, "end": 1, "label": "X"}]}
    for bad, message in (
        ({"text": "abc", "entities": [{"start": "0", "end": 1, "label": "X"}]}, "start is '0'"),
        ({"text": "abc", "entities": [7]}, "a.jsonl:2: is not as entities writes it"),
        ({"text": None, "entities": []}, "a.jsonl:2: has no text 'text'"),
        ([1], "a.jsonl:2: is not as entities writes it"),
    ):
        with pytest.raises(BertineError, match=message):
            read(write(tmp_path / "a.jsonl", [good, bad]))
    path = write(tmp_path / "a.json", [task(TEXT, [region(2, 14, "PER")])])
    path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    with pytest.raises(BertineError, match=r"cut off|not valid JSON"):
        read(path)


def test_mistakes_in_lists_and_in_brat_say_where(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([task(TEXT), {"id": 1}]), encoding="utf-8")
    with pytest.raises(BertineError, match=r"a.json:1, object 2: .* writes it: 'data' is missing"):
        read(path)
    (tmp_path / "a.ann").write_text("T1\tPER 0\tAda\n", encoding="utf-8")
    with pytest.raises(BertineError, match=r"a.txt: no such file; .* the text of a.ann"):
        read(tmp_path)
    (tmp_path / "a.txt").write_text("Ada", encoding="utf-8")
    with pytest.raises(BertineError, match=r"line 1 of a.ann is 'T1\\tPER 0\\tAda'"):
        read(tmp_path)


def test_utf_16_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([task(TEXT, [region(2, 14, "PER")])]), encoding="utf-16")
    assert read(path)[0][0]["entities"] == NAMED[:1]


def test_what_nobody_answered_is_counted_and_no_data_for_a_tagger(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [task("a", drafts=[{}], predictions=[{}, {}])])
    assert "not read: 2 predictions, 1 draft" in read(path)[1]
    with pytest.raises(BertineError, match="no entities for a tagger; it has no annotated text"):
        read_labelled("tagging", path, DataConfig(whole=True))
    write(path, [task("a", [choice("pos")])])
    with pytest.raises(BertineError, match="it has labels, which the task text learns"):
        read_labelled("tagging", path, DataConfig(whole=True))


def test_soft_labels_are_learned_by_option(tmp_path: Path) -> None:
    tasks = [
        task("a", [choice("pos")], [choice("neg")], [choice("pos")]),
        task("b", [choice("neg")], [choice("pos")]),
        task("c"),
        task("d", [choice("neg")]),
    ]
    path = write(tmp_path / "a.json", tasks)
    config = DataConfig(annotators="soft", whole=True)
    train = read_labelled("text", path, config).train
    assert [item.label for item in train.items] == ["pos", "neg", "neg"]
    assert train.items[0].probabilities == pytest.approx((1 / 3, 2 / 3))
    train = read_labelled("text", path, DataConfig(whole=True)).train
    assert [item.label for item in train.items] == ["pos", "neg", "neg"]
    assert any("1 row has no label" in note for note in train.notes)
    write(path, [task("a", [choice("pos")])])
    with pytest.raises(BertineError, match="no text has labels of several annotators"):
        read_labelled("text", path, config)


def predict(path: Path, output: Path, answers: Sequence[dict[str, Any]]) -> Path:
    """Write a file with these answers, as `predict` does."""
    with Table(path) as table:
        layout = written_layout(output, table.layout)
        with open_writer(output, layout, table.columns) as writer:
            for row, answer in zip(table, answers, strict=True):
                added = {f"predicted_{name}": value for name, value in answer.items()}
                writer.write(row.values | added)
    return output


def as_answers(tool: str, item: Any) -> Any:
    """Make what a tool shows as predictions the answers of a person."""
    if tool == "label-studio":
        return {**item, "annotations": item["predictions"]}
    if tool == "argilla" and "fields" in item:
        given = {key: [value] for key, value in item["suggestions"].items()}
        return {**item, "responses": given}
    return {**item, "annotation": item["prediction"]} if tool == "argilla" else item


@given(data=st.data())
@settings(max_examples=50)
def test_predictions_are_written_where_the_tool_has_them(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.sampled_from([*FILES]))
    file, content, tool = FILES[name]
    folder = tmp_path_factory.mktemp("round")
    path = folder / file
    if isinstance(content, dict):
        path.write_text(json.dumps(content), encoding="utf-8")
    else:
        write(path, content)
    places = st.integers(0, len(TEXT))
    pairs = data.draw(st.lists(st.tuples(places, places).map(sorted), unique_by=tuple))
    spans = sorted((b, e) for b, e in pairs if TEXT[b:e].strip() == TEXT[b:e] != "")
    spans = spans or [(2, 14)]
    entities = [{"start": b, "end": e, "label": "NEW", "probability": 0.5} for b, e in spans]
    output = predict(path, folder / f"out{path.suffix}", [{"entities": entities}])
    text = output.read_text(encoding="utf-8")
    written = [json.loads(text)] if path.suffix == ".jsonl" else json.loads(text)
    assert len(written) == 1
    again = write(folder / file, [as_answers(tool, item) for item in written])
    rows, _ = read(again, format=tool)
    assert rows[0]["text"] == TEXT
    assert [(item["start"], item["end"]) for item in rows[0]["entities"]] == spans
    assert {item["label"] for item in rows[0]["entities"]} == {"NEW"}


def test_labels_by_people_that_are_replaced_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[Any] = [{"text": TEXT, "entities": NAMED}, {"text": TEXT, "entities": []}]
    path, answers = write(tmp_path / "a.jsonl", rows), [{"entities": NAMED[:1]}] * 2
    predict(path, tmp_path / "b.jsonl", answers)
    assert "take the place of the labels that 1 text had" in caplog.text
    with Table(predict(path, tmp_path / "b.parquet", answers)) as both:
        assert both.columns == ["text", "entities", "predicted_entities"]


def test_brats_predictions_are_files_beside_their_texts(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text(TEXT, encoding="utf-8", newline="")
    (tmp_path / "in/b.txt").write_text("Ada", encoding="utf-8")
    (tmp_path / "in/b.ann").write_text("T1\tPER 0 3\tAda\n", encoding="utf-8")
    answers = [{"entities": NAMED}, {"entities": []}]
    rows, _ = read(predict(tmp_path / "in", tmp_path / "out", answers))
    assert [row["text"] for row in rows] == [TEXT, "Ada"]
    assert [row["entities"] for row in rows] == [NAMED, []]
    with pytest.raises(BertineError, match="is a folder"):
        predict(tmp_path / "in", tmp_path / "out", answers)
    one = predict(tmp_path / "in/b.ann", tmp_path / "b.ann", [{"entities": NAMED[:0]}])
    assert one.read_text(encoding="utf-8") == ""


def test_labels_are_written_where_the_tool_has_them(tmp_path: Path) -> None:
    stars = {"type": "rating", "from_name": "stars", "to_name": "t", "value": {"rating": 4}}
    about = {"text": "good", "_task_hash": 1, "options": [{"id": "pos"}, {"id": "neg"}]}
    response = {"mood": [{"value": "pos"}]}
    files: list[tuple[Any, str, Any]] = [
        ([task("good", [choice("pos")])], "neg", "neg"),
        ([task("good", [stars])], "2", 2),
        ([{**about, "accept": ["pos"], "answer": "accept"}], "neg", "neg"),
        ([["good", {"cats": {"pos": 1.0, "neg": 0.0}}]], "neg", "neg"),
        ([{"fields": {"review": "good"}, "responses": response}], "neg", "neg"),
        ([{"text": "good", "annotation": "pos", "prediction": None}], "neg", "neg"),
    ]
    for content, label, expected in files:
        path = write(tmp_path / "a.json", content)
        with Table(path) as table:
            tool = table.layout.annotations.tool  # type: ignore[union-attr]
        output = predict(path, tmp_path / "b.json", [{"label": label, "probability": 0.75}])
        (written,) = json.loads(output.read_text(encoding="utf-8"))
        if tool == "argilla" and "prediction" in written:
            assert written["prediction"] == [["neg", 0.75]]
            continue
        rows, _ = read(write(path, [as_answers(tool, written)]))
        assert rows[0]["label"] == expected, content
    for item in (written, json.loads(path.read_text(encoding="utf-8"))[0]):
        assert item["text"] == "good"


def test_other_outputs_are_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [task("good", [choice("pos")])])
    output = predict(path, tmp_path / "b.jsonl", [{"label": "neg"}])
    row = json.loads(output.read_text(encoding="utf-8"))
    assert (row["text"], row["label"], row["predicted_label"]) == ("good", "pos", "neg")
