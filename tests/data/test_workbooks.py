"""Workbooks are read as the tables that their programs show, and columns are added to copies."""

from __future__ import annotations

import datetime
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.styles import Font

from bertine.core import errors
from bertine.core.errors import BertineError
from bertine.data import sheets, workbooks
from bertine.data.examples import find_splits, read_examples
from bertine.data.lines import TableLayout, written_layout
from bertine.data.tables import Table
from bertine.data.writer import open_writer
from bertine.options.data import DataConfig
from bertine.tokenization.documents import Corpus

FIXTURES = Path(__file__).parents[1] / "fixtures" / "workbooks"


def write(path: Path, rows: Sequence[Sequence[Any]], title: str = "Data") -> Path:
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    with Table(path, **options) as table:
        return [row.values for row in table]


def notes(path: Path) -> str:
    with Table(path) as table:
        list(table)
        return "\n".join(table.stats.notes("t"))


@pytest.mark.parametrize("name", ["table.xlsx", "table.ods", "table.xls"])
def test_files_of_libreoffice(name: str) -> None:
    with Table(FIXTURES / name) as table:
        rows = list(table)
        said = table.stats.notes("t")
    assert table.columns == ["Text", "Label", "Datum", "Zahl", "Formel"]
    assert [row.line for row in rows] == [2, 3, 5]
    assert rows[0].values == {
        "Text": "sehr gut 😀",
        "Label": "gut ",
        "Datum": "2024-05-01",
        "Zahl": 3,
        "Formel": 4,
    }
    assert [row.values["Text"] for row in rows] == ["sehr gut 😀", "007", "=1+1"]
    assert [row.values["Zahl"] for row in rows] == [3, 0.1, None]
    assert f"{FIXTURES / name}: 1 empty row skipped" in said
    assert f"{FIXTURES / name}: the sheet 'Daten' is read, not 'Notizen' (sheet)" in said
    assert read(FIXTURES / name, sheet="Notizen") == [{"Notiz": "eins"}, {"Notiz": True}]


def test_values_are_those_that_excel_shows(tmp_path: Path) -> None:
    day = datetime.datetime(2024, 5, 1)
    path = write(
        tmp_path / "a.xlsx",
        [
            ["text", "label", "x"],
            ["007", 3.0, day],
            [True, "#N/A", day.replace(hour=12, minute=30)],
            [5, 0.1 + 0.2, "=1+1"],
        ],
    )
    assert read(path) == [
        {"text": "007", "label": 3, "x": "2024-05-01"},
        {"text": True, "label": None, "x": "2024-05-01 12:30:00"},
        {"text": 5, "label": 0.3, "x": None},
    ]
    examples = read_examples(path)
    assert [(item.texts, item.label, item.line) for item in examples.items] == [
        (("007",), "3", 2),
        (("5",), "0.3", 4),
    ]
    said = "\n".join(examples.notes)
    assert "a.xlsx: 1 cell with an error, such as #N/A, read as empty" in said
    assert "a.xlsx: 1 formula without a stored value, read as empty; open and save" in said
    assert "1 row has no label in 'label'" in said


def test_a_table_may_begin_anywhere(tmp_path: Path) -> None:
    rows = [
        [],
        [None, "Umfrage 2024"],
        [],
        [None, "Text", "Label"],
        [None, "a", "x"],
        [],
        [None, "b"],
    ]
    path = write(tmp_path / "a.xlsx", rows)
    book = openpyxl.load_workbook(path)
    book.active.merge_cells("B2:C2")
    book.active["XFD1048576"].font = Font(bold=True)  # a format is no value
    book.save(path)
    with Table(path) as table:
        assert [(row.line, row.values) for row in table] == [
            (5, {"Text": "a", "Label": "x"}),
            (7, {"Text": "b", "Label": None}),
        ]
        assert table.stats.notes("t") == [
            f"{path}: the header is in row 4, below the title 'Umfrage 2024'",
            f"{path}: 2 empty rows skipped",
            f"{path}: 1 merged range of cells, whose value is in the first one alone",
        ]


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([["text"], ["a"], ["b"]], ["text"]),
        ([["text", None], ["a", "note"]], ["text", ""]),
        ([[None, "Wort"], [0, "a"]], ["", "Wort"]),
        ([["Titel", None], ["a", 1]], ["Titel", ""]),
    ],
)
def test_a_header_is_not_taken_for_a_title(
    tmp_path: Path, rows: list[list[Any]], columns: list[str]
) -> None:
    with Table(write(tmp_path / "a.xlsx", rows)) as table:
        assert table.columns == columns


def test_the_sheet_with_the_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    book.active["A1"] = "Cover"
    for name, state in (("hidden", "hidden"), ("2024", "visible"), ("other", "visible")):
        sheet = book.create_sheet(name)
        sheet.append(["text"])
        sheet.append([name])
        sheet.sheet_state = state
    book.save(path)
    assert read(path) == [{"text": "2024"}]
    assert "the sheet '2024' is read, not 'Sheet', 'hidden', 'other' (sheet)" in notes(path)
    assert read(path, sheet="2") == [{"text": "hidden"}]
    assert read(path, sheet="2024") == [{"text": "2024"}]
    with pytest.raises(BertineError, match=r"a.xlsx: there is no sheet 'x'; it has 'Sheet', 'hid"):
        Table(path, sheet="x")
    with pytest.raises(BertineError, match=r"a.csv: is no workbook with sheets; leave out sheet"):
        Table(tmp_path / "a.csv", sheet="x")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a", "a"], ["b", "c"]], "a.xlsx:1: two columns are called 'a'; rename one"),
        ([[]], "a.xlsx: there is no cell with a value in 'Data'"),
    ],
)
def test_tables_without_a_header(tmp_path: Path, rows: list[list[Any]], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        Table(write(tmp_path / "a.xlsx", rows))


def test_what_is_no_workbook(tmp_path: Path) -> None:
    sound = write(tmp_path / "a.xlsx", [["text"], ["a"]])
    raw = sound.read_bytes()
    cases = {
        "text.xlsx": (b"text\na\n", r"is damaged, cut short or no workbook \(Calamine"),
        "cut.xlsx": (raw[: len(raw) // 2], "is damaged, cut short or no workbook"),
        "workbook.csv": (raw, r"is a zip archive, as workbooks \(.xlsx\) are, .*; name it .xlsx"),
        "a.xlsx.gz": (raw, "not .xlsx; a workbook compresses by itself, so unpack it"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BertineError, match=message):
            Table(tmp_path / name)
    with pytest.raises(BertineError, match=r"a.xlsx: is a workbook by its name; leave out format"):
        Table(sound, format="csv")


def test_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cells far from each other would take 512 GiB, and so end this process."""
    path = write(tmp_path / "a.xlsx", [["text"]])
    book = openpyxl.load_workbook(path)
    book.active["XFD1048576"] = "b"
    book.save(path)
    with pytest.raises(BertineError, match=r"takes more than 4 GiB of memory; save the sheet as"):
        Table(path)
    bomb = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(1 << 20))
    raw = bomb.read_bytes()
    size = (1 << 20).to_bytes(4, "little")
    bomb.write_bytes(raw.replace(size, b"\xff\xff\xff\xff"))
    shutil.copy(bomb, tmp_path / "b.xlsx")
    with zipfile.ZipFile(bomb) as archive:
        entries = [archive.infolist()[0]] * 2
        monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda self: entries)
    with (
        open(bomb, "rb") as file,
        pytest.raises(sheets.Refused, match="unpacks to 7 GiB, but at most 4 are read"),
    ):
        list(sheets._lines(file, ""))


def test_the_library_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.xlsx", [["text"], ["a"]])
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(BertineError, match=r"a workbook needs python-calamine; .* pip install py"):
        Table(path)


def test_data_folders_and_corpora(tmp_path: Path) -> None:
    path = write(tmp_path / "train.xlsx", [["text", "label"], ["a", "x"]])
    assert find_splits(tmp_path).train == path
    corpus = Corpus([path])
    assert [(document.text, document.row) for document in corpus] == [("a", 2)]


#: Texts as people write them, and what XML and workbooks treat in their own way.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\n\t\r&<>\"'=_x"),
    max_size=40,
) | st.sampled_from(["=1+1", "_x0041_", "_x005F_", "#N/A", "007", " a ", "]]>", "-1", "1e5"])


@pytest.mark.takes(6)
@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=40))
def test_texts_come_back(tmp_path_factory: pytest.TempPathFactory, texts: list[Any]) -> None:
    path = tmp_path_factory.mktemp("texts") / "a.xlsx"
    with open_writer(path, TableLayout("jsonl"), ["text", "label"]) as writer:
        for pair in texts:
            writer.write(dict(zip(("text", "label"), pair, strict=True)))
    kept = [tuple(text if text.strip() else None for text in pair) for pair in texts]
    with Table(path, wanted=["text"]) as table:
        read = [tuple(row.values.get(name) for name in ("text", "label")) for row in table]
    assert read == [pair for pair in kept if any(pair)]


def test_a_new_workbook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.xlsx"
    values = {"text": "a\x01b", "n": 0.25, "whole": 10**16, "list": [1, "ä"], "is": True}
    with open_writer(path, TableLayout("jsonl"), ["text", "n"]) as writer:
        writer.write({"text": "😀" * 20_000, "n": None})
        writer.write(values)
    said = capsys.readouterr().err
    assert "a.xlsx: 1 text cut to the 32,767 characters that a cell can hold" in said
    assert "a.xlsx: 1 control character removed, which a workbook cannot hold" in said
    first, second = read(path)
    assert first["text"] == "😀" * 16_383
    assert second == {
        "text": "ab", "n": 0.25, "whole": "10000000000000000", "list": '[1, "ä"]', "is": True
    }  # fmt: skip
    assert openpyxl.load_workbook(path).active["B3"].value == 0.25


def answer(source: Path, target: Path, answers: Sequence[Any], **options: Any) -> None:
    with Table(source, **options) as table:
        layout = written_layout(target, table.layout)
        with open_writer(target, layout, [*table.columns, "answer"]) as writer:
            for row, value in zip(table, answers, strict=True):
                writer.write({**row.values, "answer": value}, row)


def test_columns_are_added_to_a_copy(tmp_path: Path) -> None:
    """All else stays: other sheets, formulas with their values, formats, empty rows."""
    source, target = FIXTURES / "table.xlsx", tmp_path / "answered.xlsx"
    answer(source, target, ["=x", 0.5, None])
    before, after = openpyxl.load_workbook(source), openpyxl.load_workbook(target)
    assert before.sheetnames == after.sheetnames
    for sheet in before:
        cells = {cell.coordinate: cell for row in sheet for cell in row}
        for place, cell in cells.items():
            same = after[sheet.title][place]
            assert (cell.value, cell.number_format, cell.font.b) == (
                same.value, same.number_format, same.font.b
            )  # fmt: skip
    page = after["Daten"]
    assert [page[f"F{row}"].value for row in range(1, 6)] == ["answer", "=x", 0.5, None, None]
    assert page["F2"].data_type == "s"
    assert page["F1"].font.b
    assert [row["Formel"] for row in read(target)] == [4, 2, 2]  # the stored values
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target) as new:
        changed = [name for name in old.namelist() if old.read(name) != new.read(name)]
        assert changed == ["xl/worksheets/sheet1.xml"]


def test_cells_in_the_way_and_columns_far_out(tmp_path: Path) -> None:
    source, target = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    book = openpyxl.Workbook()
    page = book.active
    for column in range(1, 29):
        page.cell(2, column, f"c{column}")
        page.cell(3, column, column)
    for place in ("AC2", "AC3", "AD3"):  # empty, but with a format
        page[place].font = Font(bold=True)
    book.save(source)
    answer(source, target, ["yes"])
    page = openpyxl.load_workbook(target).active
    assert [page[place].value for place in ("AB3", "AC2", "AC3", "AD3")] == [
        28,
        "answer",
        "yes",
        None,
    ]
    assert page["AD3"].font.b


def test_rows_of_other_writers(tmp_path: Path) -> None:
    """Prefixes before the tags, and rows and cells without numbers, are allowed."""
    source, target = write(tmp_path / "a.xlsx", [["text"], ["a"]]), tmp_path / "b.xlsx"
    text = '<x:c t="inlineStr"><x:is><x:t>{}</x:t></x:is></x:c>'
    rows = "".join(f"<x:row>{text.format(word)}</x:row>" for word in ("text", "a", "b"))
    name = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    xml = f'<x:worksheet xmlns:x="{name}"><x:sheetData>{rows}</x:sheetData></x:worksheet>'
    other = tmp_path / "other.xlsx"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(other, "w") as new:
        for part in old.namelist():
            new.writestr(part, xml if part.endswith("sheet1.xml") else old.read(part))
    answer(other, target, ["y", "z"])
    assert read(target) == [{"text": "a", "answer": "y"}, {"text": "b", "answer": "z"}]


def test_a_workbook_that_is_changed_or_of_another_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "answered.xlsx"
    answer(FIXTURES / "table.ods", target, ["a", "b", "c"])
    assert "a new workbook, without what else is in" in capsys.readouterr().err
    assert [row["answer"] for row in read(target)] == ["a", "b", "c"]
    source = write(tmp_path / "a.xlsx", [["text"], ["a"], ["b"]])
    with (
        Table(source) as table,
        open_writer(target, written_layout(target, table.layout), ["text", "answer"]) as writer,
    ):
        for row in table:
            writer.write({**row.values, "answer": 1}, row)
        write(source, [["text"], ["new"], ["a"], ["b"]])
    assert read(target) == [{"text": "a", "answer": 1}, {"text": "b", "answer": 1}]
    assert "a new workbook, without what else is in" in capsys.readouterr().err


def test_outputs_of_a_workbook(tmp_path: Path) -> None:
    source = FIXTURES / "table.xlsx"
    answer(source, tmp_path / "a.csv", [True, None, "c"])
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == [
        "Text,Label,Datum,Zahl,Formel,answer", "sehr gut 😀,gut ,2024-05-01,3,4,true"
    ]  # fmt: skip
    answer(source, tmp_path / "a.jsonl", [1, 2, 3])
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[1])["Zahl"] == 0.1
    with pytest.raises(BertineError, match=r"a.ods: workbooks are written as .xlsx; name the out"):
        answer(source, tmp_path / "a.ods", [1, 2, 3])


def test_a_list_of_json_is_written_as_one(tmp_path: Path) -> None:
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text('[{"text": "ä"},\n {"text": "b"}]')
    answer(source, target, [1, 2])
    assert json.loads(target.read_text()) == [
        {"text": "ä", "answer": 1}, {"text": "b", "answer": 2}
    ]  # fmt: skip
    answer(source, tmp_path / "b.jsonl", [1, 2])
    assert len((tmp_path / "b.jsonl").read_text().splitlines()) == 2
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.json", "b.json", "b.jsonl"]


def _write_rows(path: Path, count: int) -> None:
    with open_writer(path, TableLayout("jsonl"), ["a"]) as writer:
        for _ in range(count):
            writer.write({"a": "b"})


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbooks, "_MOST_ROWS", 2)
    message = "a sheet holds 2 rows, and there are more; name the out"
    with pytest.raises(BertineError, match=message):
        _write_rows(tmp_path / "a.xlsx", 2)
    assert not list(tmp_path.iterdir())


def test_decimal_commas(tmp_path: Path) -> None:
    from bertine.data.examples import read_scores

    path = tmp_path / "a.csv"
    path.write_text("text;label\na;4,5\nb;-1\nc;0,125\n")
    examples = read_scores(path, DataConfig())
    assert [item.label for item in examples.items] == ["4.5", "-1", "0.125"]
    assert examples.notes == [f"{path}: the numbers in 'label', such as '4,5', have decimal commas"]
    path.write_text("text;label\na;1,234\nb;5\n")
    with pytest.raises(BertineError, match=r"'1,234', may be thousands or fractions; write them"):
        read_scores(path, DataConfig())


def test_a_password_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import python_calamine

    def locked(file: Any) -> Any:
        raise python_calamine.PasswordError("Workbook is password protected")

    monkeypatch.setattr(python_calamine, "load_workbook", locked)
    with open(FIXTURES / "table.xlsx", "rb") as file:
        monkeypatch.setattr(sheets.sys, "stdin", SimpleNamespace(buffer=file))
        with pytest.raises(SystemExit, match="is protected by a password; save it without one"):
            sheets.main("")
