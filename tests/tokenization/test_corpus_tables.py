"""Corpora of csv and tsv: each row is a document."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.tokenization.documents import Corpus


def texts(path: Path, **options: object) -> list[str]:
    return [document.text for document in Corpus(path, **options)]


def error_of(path: Path, **options: object) -> str:
    with pytest.raises(BertineError) as raised:
        texts(path, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_each_row_is_a_document_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "posts.csv"
    file.write_bytes(b'id,text\r\n1,"Two lines\r\nof ""one"" text."\r\n2,\r\n3,"  "\r\n4,Last\r\n')
    corpus = Corpus(file)
    found = [(document.text, document.row) for document in corpus]
    assert found == [('Two lines\nof "one" text.', 2), ("Last", 6)]
    assert corpus.stats.documents == 2
    assert corpus.position == corpus.size_on_disk == file.stat().st_size
    assert "2 documents without text skipped" in corpus.stats.lines()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "label;sentence\nx;Some, no: text\n"),
        ("a.tsv", "sentence\tlabel\nSome, no: text\tx\n"),
        ("a.tab", "body\nSome, no: text\n"),
    ],
)
def test_the_usual_column_or_the_only_one_is_taken(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert texts(tmp_path / name) == ["Some, no: text"]


def test_a_column_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("review,stars\nGood.,5\n")
    assert error_of(file, text_column="reviews") == (
        f"{file}: there is no column 'reviews' (did you mean 'review'?); it has 'review', 'stars'"
    )
    assert error_of(file) == (
        f"{file}: cannot tell which column holds the text; name it with text_column; the columns "
        "are 'review', 'stars'"
    )


def test_options_that_have_nothing_to_say_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n")
    with pytest.raises(BertineError, match="plain text, without columns; leave out text_column"):
        Corpus(tmp_path, text_column="body").check_options()
    with pytest.raises(BertineError, match=r"is not csv or tsv.*leave out quotes=False"):
        Corpus(tmp_path, quotes=False).check_options()
    (tmp_path / "b.csv").write_text("body\nTwo.\n")
    Corpus(tmp_path, text_column="body", quotes=True).check_options()
    (tmp_path / "only").mkdir()
    (tmp_path / "only/a.parquet").touch()
    with pytest.raises(BertineError, match=r"only: is Parquet or a workbook; leave out encoding"):
        Corpus(tmp_path / "only", encoding="cp1252").check_options()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with file.open("w") as handle:
        handle.write("id,text\n")
        handle.writelines(f"{number},{'word ' * 200}\n" for number in range(20_000))
    tracemalloc.start()
    count = sum(1 for _ in Corpus(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    # A few blocks of a MiB, in which the encoding is looked for; the file has 20 MB.
    assert peak < 4_000_000 < file.stat().st_size
