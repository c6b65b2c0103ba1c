"""Files in other encodings than UTF-8 are told from damaged ones, by all of their bytes."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.data.encodings import other_encoding
from bertine.data.in_memory import as_table
from bertine.data.lines import TableLayout, written_layout
from bertine.data.tables import Table
from bertine.data.writer import open_writer
from bertine.inference.rows import joined
from mistakes.odd.languages import PHRASES

#: By encoding: texts as people write them, some of them very short.
TEXTS = {
    "cp1252": [
        "Die Qualität ist schön\nGrüße aus Köln",
        "Größe,Text\na,b",
        "text,label\nx,Ä\ny,Ö\nz,gut",
        "Ça a été très décevant, le café était froid",
        "El niño comió mañana ¿qué? años",
        "Não gostei, muito ações à não você",
        "He said “hello” – don’t",
        "costs £5",
        "costs £5 and 10¢",
        "¼ cup sugar ¾ cup milk 350°",
        "Author† Other‡",
        "3 × 4 m, ±2 %",
    ],
    "iso8859-15": ["kostet 5 €", "Ça coûte 10 € à Œuvre, cœur très été"],
    "cp1250": ["Szybka wysyłka, źle, proszę są", "příště zase, Měl jsem děkuji"],
    "iso8859-2": ["Szybka wysyłka, źle, proszę są"],
    "cp1254": ["Çok güzel, teşekkürler. Kargo hızlıydı, değil"],
    "cp1257": ["Labai gera prekė, ačiū už greitą pristatymą, šį"],
    "mac-roman": ["Die Qualität ist schön, Grüße", "Ça a été très décevant"],
    "cp850": ["Die Qualität ist schön, Grüße"],
    "cp1251": ["Доставка была долгой", "text,label\nда,good\nнет,bad", "ДОСТАВКА БЫЛА ДОЛГОЙ, да"],
    "koi8-r": ["Доставка была долгой", "text,label\nда,good\nнет,bad"],
    "cp866": ["Доставка была долгой"],
    "iso8859-5": ["Доставка была долгой, никто не отвечает"],
    "cp1253": ["Πολύ καλό προϊόν, ευχαριστώ"],
    "cp1255": ["מוצר מצוין, אני מרוצה מאוד"],
    "cp1256": ["منتج رائع جدا وسعيد بالشراء"],
    "cp874": ["สินค้าดีมาก จัดส่งเร็ว"],
    "gb18030": [
        "物流太慢了，等了一个星期",
        "text,label\n很好,good\n太差了,bad",
        "正文,类别\n短,好",
    ],
    "big5": ["這個產品的品質很好，我們都很喜歡", "text,label\n很好,good\n太差,bad"],
    "cp932": ["お届けが遅すぎました", "text,label\n良い,good\n悪い,bad", "本文,ラベル\na,b"],
    "euc_jp": ["お届けが遅すぎました", "配達が遅すぎて残念でした"],
    "cp949": ["배송이 너무 늦어서 실망했습니다", "text,label\n좋아요,good\n별로,bad"],
    "utf-16-le": ["text,label\nfine,a", "很好，我们都喜欢。\n太差了\n", "да нет это хорошо\n"],
    "utf-16-be": ["text,label\nfine,a", "좋아요 별로\n"],
    "utf-32-le": ["text,label\nfine,a"],
    "iso-2022-jp": ["お届けが遅すぎました", "text,label\n良い,good"],
    "iso-2022-kr": ["배송이 너무 늦어서 실망했습니다"],
}


@pytest.mark.parametrize(
    ("codec", "text"), [(codec, text) for codec, texts in TEXTS.items() for text in texts]
)
def test_the_encoding_of_a_file_is_found(codec: str, text: str) -> None:
    finding = other_encoding([text.encode(codec)])
    assert finding is not None
    assert not finding.mixed
    assert text.encode(codec).decode(finding.encodings[0].codec) == text


def test_others_are_named_only_where_they_read_it_differently() -> None:
    assert str(other_encoding(["Größe".encode("cp1250")])) == "cp1252"
    # A word is none of East Asia's for a few rare characters.
    for word in ("долгой", "доставка", "никто"):
        finding = other_encoding([word.encode("koi8-r")])
        assert finding is not None
        assert finding.encodings[0].codec == "koi8-r"
    assert str(other_encoding(["não".encode("cp1252")])) == "cp1252 ('não') or cp1250 ('năo')"


CHINESE = "物流太慢了，等了一个星期才收到，客服也不回复。\n".encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"caf\xe9 \xff,a\nx\0y,b\n",
        b"some words and more words \xff\0\n" * 200,
        b"the cow \xff\xfe grazes .\n",
        "fine \ufffd\nbad ".encode() + b"\xff and \xc3( here\n",
        CHINESE[1:],
        CHINESE[:-3] + b"x" + CHINESE,
        "Die Qualität ist schön, Grüße\n".encode() * 20 + b"sch\xf6n\n",
        "Доставка была очень долгой\n".encode() + "да".encode("cp1251"),
        "é à ü\n".encode() + b"don\x92t\n",
        b"a line of English as it comes\n" * 200 + b"a caf\xe9\n",
        b"a line of English as it comes\n" * 5000
        + "é\n".encode()
        + b"a\xffb c\xfed e\xfcf \x91x\n",
        "hi 😀\n".encode() * 12 + b"cut \xf0\x9f\x98\n" * 5 + b"English as it comes\n" * 1000,
        b"hello \xed\xa0\xbd\xed\xb8\x80 there\n" * 5 + b"English as it comes\n" * 1000,
        b"abc\0\0\0\0\n" * 100,
        b"plain text\n",
        "Grüße\n".encode(),
        b"",
    ],
)
def test_a_few_damaged_bytes_are_no_other_encoding(raw: bytes) -> None:
    assert other_encoding([raw]) is None


def test_what_is_in_two_encodings_or_in_none() -> None:
    both = "für Öl und Bücher\n" * 3, "Schlüssel Bücher Äpfel Übung mögen\n" * 3
    mixed = other_encoding([both[0].encode(), both[1].encode("cp1252")])
    assert mixed is not None
    assert (mixed.mixed, str(mixed), mixed.damaged) == (True, "cp1252", 15)
    noise = other_encoding([random.Random(0).randbytes(1000)])
    assert noise is not None
    assert (noise.encodings, str(noise)) == ((), "none known here")


def test_all_of_the_file_counts() -> None:
    english = b"a line of English as it comes\n" * 20000
    assert str(other_encoding([english, "Grüße schön\n".encode("cp1252") * 3])) == "cp1252"
    assert other_encoding([b"\x92\n", english, "Grüße schön für\n".encode() * 9]) is None


def test_many_words_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertine.data.encodings._LOOKED_AT", 3)
    endless = iter(lambda: "доставка была долгой\n".encode("cp1251"), None)
    assert str(other_encoding(endless)) == "cp1251"


RUSSIAN = "Доставка была очень долгой и никто не отвечает"


def packed(path: Path, raw: bytes) -> Path:
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.csv", f"text,label\n{RUSSIAN},a\n", ":2"),
        ("a.csv", f"{RUSSIAN},label\nfine,a\n", ":1"),
        ("a.tsv", f"text\tlabel\nfine\t{RUSSIAN}\n", ":2"),
        ("a.jsonl", f'{{"text": "fine"}}\n{{"text": "{RUSSIAN}"}}\n', ":2"),
        ("a.json", f'[\n{{"text": "{RUSSIAN}"}}]\n', ":2"),
        ("a.txt", f"fine\n\n{RUSSIAN}\n", ":3"),
        ("a.csv.gz", f"text,label\n{RUSSIAN},a\n", ":2"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_tables_are_read_in_the_encoding_of_their_words(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    content: str,
    place: str,
    strict: bool,
) -> None:
    path = packed(tmp_path / name, content.encode("cp1251"))
    with caplog.at_level("INFO"), Table(path, strict=strict) as table:
        assert RUSSIAN in str([*table.columns, *(row.values for row in table)])
    (note,) = caplog.messages
    assert note.startswith(f"{path}: is read as cp1251 (")
    assert RUSSIAN[:10] in note
    # Where there is doubt the candidates are named, and the place.
    path.write_bytes(packed(path, content.replace(RUSSIAN, "não").encode("cp1252")).read_bytes())
    with pytest.raises(BertineError) as caught, Table(path, strict=strict) as table:
        list(table)
    assert str(caught.value) == (
        f"{path}{place}: is not UTF-8 but looks like cp1252 ('não') or cp1250 ('năo'); name its "
        "encoding (the one whose words are right): encoding='cp1252'"
    )
    with Table(path, encoding="latin-1", strict=True) as table:
        assert "não" in str([*table.columns, *(row.values for row in table)])
    with pytest.raises(BertineError, match=r"is not known \(did you mean cp125"):
        Table(path, encoding="cp125z")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-8", "gb18030"])
def test_a_byte_order_mark_names_the_encoding(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\ufefftext,label\r\n很好,å\r\n".encode(codec))
    with Table(path) as table:
        assert [row.values for row in table] == [{"text": "很好", "label": "å"}]
        assert (table.layout.codec, table.layout.mark, table.layout.line_end) == (
            codec,
            True,
            "\r\n",
        )
    with pytest.raises(BertineError, match=f"is {codec} by its byte order mark, not cp1252"):
        Table(path, encoding="cp1252")


def test_bytes_that_are_not_of_the_encoding_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\n" + "да\n".encode("cp1251") * 999 + b"\x98\n")
    with Table(path, encoding="windows-1251") as table:
        assert [*table][-1].values == {"text": "\ufffd"}
        assert "1 byte that is not valid CP1251" in table.stats.notes("a")[0]
    with (
        pytest.raises(BertineError, match=r"a\.csv:1001: invalid CP1251 \(byte 0x98, 0 bytes into"),
        Table(path, encoding="cp1251", strict=True) as table,
    ):
        list(table)
    with (
        pytest.raises(BertineError, match=r":2: .* are not ascii; it looks like .*; name its"),
        Table(path, encoding="ascii") as table,
    ):
        list(table)
    path.write_bytes("text\nда\n".encode("utf-16-le")[:-1])
    with (
        pytest.raises(BertineError, match=r"is not utf-16-le, or is damaged"),
        Table(path) as table,
    ):
        list(table)


def test_bytes_in_memory_and_in_parquet_are_refused(tmp_path: Path) -> None:
    cells = {"text": ["fine", RUSSIAN.encode("cp1251")], "label": ["a", "b"]}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**cells, "text": pa.array([b"fine", cells["text"][1]])}), path)
    for source, place in ((as_table(cells), "data[1]"), (path, f"{path}:2")):
        with pytest.raises(BertineError) as caught, Table(source) as table:
            list(table)
        assert str(caught.value) == (
            f"{place}: is not UTF-8 but looks like cp1251; convert it to UTF-8"
        )


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_read_but_once_is_judged_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """A pipe is read on from what is kept of it."""
    rest = RUSSIAN.encode("utf-8" if damaged else "cp1251")
    raw = b"fine\n" + "ё".encode("cp1251") + b" \xff\n" + rest + b"\n" + rest * 9000
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    with Table("-", format="text") as table:
        if not damaged:
            with pytest.raises(BertineError, match=r"<stdin>:2: .*cp1251; name its .*='cp1251'"):
                list(table)
            return
        texts = [row.values["text"] for row in table]
    assert texts == ["fine", "\ufffd \ufffd", RUSSIAN, RUSSIAN * 9000]
    assert table.stats.invalid_utf8 == 2


def test_a_pipe_is_judged_as_its_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"as it comes\n" * 20_000 + b"a caf\xe9 and a caf\xe9\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    assert other_encoding([raw]) is None
    with Table("-", format="text") as table:
        assert len(list(table)) == 20_001
    assert table.stats.invalid_utf8 == 2


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("a.csv", b"text,n\nfine,1\nsch\xc3\xb6n,\xff \xc3\n\xc3\xbc,a\0b\n"),
        ("a.csv", b'text,n\n"a\nb","\xff\n"\n\xc3\xbc\xc3\xb6\xc3\xa4,"\xfe ""x"""\n'),
        ("a.tsv", b"text\tn\nsch\xc3\xb6n\t\xff\n\xc3\xbc\t1\n"),
        ("a.jsonl", b'{"text": "sch\xc3\xb6n", "n": ["\xff", 1]}\n{"text": "\xc3\xbc", "n": 2}\n'),
    ],
)
def test_columns_that_are_not_read_stay_to_the_byte(tmp_path: Path, name: str, raw: bytes) -> None:
    path, out = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
    path.write_bytes(raw)
    with Table(path) as table, open_writer(out, table.layout, table.columns) as writer:
        for row in table:
            writer.write(joined(table.name, row, {}, ["text"]))
    assert out.read_bytes() == raw
    # Where they cannot be, they are as they are read.
    with (
        Table(path) as table,
        open_writer(tmp_path / "out.parquet", TableLayout("jsonl"), table.columns) as writer,
    ):
        for row in table:
            writer.write(joined(table.name, row, {}, ["text"]))
    written = str(pq.read_table(tmp_path / "out.parquet").to_pydict())
    assert "\ufffd" in written or "\\ufffd" in written


CELLS = st.text("aб中é,;\t\"'\n\r x0", max_size=6).map(lambda text: text.replace("\r", ""))


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, st.booleans()), min_size=1, max_size=6),
    codec=st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-be", "gb18030"]),
    mark=st.booleans(),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n"]),
    separator=st.booleans(),
)
def test_a_table_with_a_column_more_is_the_same_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, bool]],
    codec: str,
    mark: bool,
    delimiter: str,
    end: str,
    separator: bool,
) -> None:
    """Encoding, mark, separator line, line ends and quotes stay, whether they are needed or not."""
    lines = [f"sep={delimiter}"] * separator + [f'text{delimiter}"n"']
    for *cells, quoted in rows:
        needed = [quoted or any(c in cell for c in (delimiter, '"', "\n")) for cell in cells]
        written = ['"' + cell.replace('"', '""') + '"' for cell in cells]
        pairs = zip(cells, written, needed, strict=True)
        lines.append(delimiter.join(long if need else cell for cell, long, need in pairs))
    folder = tmp_path_factory.mktemp("same")
    path, out = folder / "a.csv", folder / "b.csv"
    text = "\ufeff" * mark + end.join([*lines, ""])
    path.write_bytes(text.encode(codec))
    with (
        Table(path, encoding=codec) as table,
        open_writer(out, table.layout, [*table.columns, "added"], source=table) as writer,
    ):
        read = [
            row for row in table if not writer.write(joined(table.name, row, {"added": 7}), row)
        ]
    assert [tuple(row.values.values()) for row in read] == [row[:2] for row in rows]
    more = [*lines[:separator], *(f"{line}{delimiter}7" for line in lines[separator:]), ""]
    more[separator] = f"{lines[separator]}{delimiter}added"
    assert out.read_bytes() == ("\ufeff" * mark + end.join(more)).encode(codec)


@pytest.mark.parametrize("codec", ["cp1251", "cp932", "koi8-r", "iso2022_jp"])
def test_bytes_stay_and_a_character_that_is_lacking_is_named(tmp_path: Path, codec: str) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "b.csv"
    raw = "text,n\nда,1\n".encode(codec) + b"\xfd\xff,2\n" * (codec == "cp932")
    path.write_bytes(raw)
    for label in ("да", "naïve"):
        with (
            contextlib.suppress(BertineError)
            if label == "да"
            else pytest.raises(BertineError) as no,
            Table(path, encoding=codec) as table,
            open_writer(out, table.layout, ["text", "n", "label"], source=table) as writer,
        ):
            for row in table:
                writer.write(joined(table.name, row, {"label": label}, ["text"]), row)
    added = [b",label\n", *[",да\n".encode(codec)] * 2]
    lines = zip(raw.split(b"\n")[:-1], added, strict=False)
    assert out.read_bytes() == b"".join(line + more for line, more in lines)
    assert f"the encoding {codec} of the output has no 'ï'; write it with" in str(no.value)
    assert written_layout(out, TableLayout("csv", ","), encoding="utf-8-sig").mark


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_list_of_json_is_written_in_the_encoding_that_came_or_is_asked_for(
    tmp_path: Path, codec: str, asked: bool
) -> None:
    path, out = tmp_path / "a.json", tmp_path / "b.json"
    text = '[\n{"text": "Größe"},\n{"text": "Müll"}\n]\n'
    path.write_bytes(text.encode("utf-8" if asked else codec))
    with Table(path, encoding=None if asked else codec) as table:
        layout = written_layout(out, table.layout, encoding=codec if asked else None)
        with open_writer(out, layout, ["text"]) as writer:
            for row in table:
                writer.write(row.values)
    assert out.read_bytes() == text.encode(codec)
    with open_writer(out, layout, ["text"]):
        pass
    assert out.read_bytes() == "[]\n".encode(codec)


@pytest.mark.parametrize("name", ["a.xlsx", "a.parquet"])
def test_what_is_no_text_has_no_encoding_to_choose(tmp_path: Path, name: str) -> None:
    with pytest.raises(BertineError, match=f"{name}: is always .* leave out output_encoding"):
        written_layout(tmp_path / name, TableLayout("csv", ","), encoding="cp1252")


def test_read_columns_are_written_as_they_were_read(tmp_path: Path) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out.csv"
    path.write_bytes(b"text,n\na\xff,\xff\n")
    with Table(path) as table, open_writer(out, table.layout, ["text", "n"]) as writer:
        for row in table:
            writer.write(joined(table.name, row, {}, ["text"]))
    assert out.read_bytes() == "text,n\na\ufffd,".encode() + b"\xff\n"


def long_list(size: int) -> bytes:
    row = '{"text": "' + "ü" * 1000 + '"}'
    return ("[" + ",".join([row] * (size // len(row.encode()) + 1)) + "]").encode()


def test_a_list_of_json_may_be_one_long_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertine.data.lines.MAX_LINE_BYTES", 4095)
    path = tmp_path / "a.json"
    path.write_bytes(long_list(10_000))
    with Table(path) as table:
        assert len(list(table)) > 4
        assert table.stats.notes("a") == []
    with pytest.raises(BertineError, match=r"a\.json:1: the line is longer than"):
        Table(path, format="text")
    monkeypatch.setattr("bertine.data.lines.MAX_JSON_BYTES", 9_000)
    with pytest.raises(BertineError, match=r"a\.json: one JSON value of more than"):
        Table(path)


#: The lengths of the files of the table, in rows.
LENGTHS = (1, 1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000, 10_000)


@pytest.mark.parametrize(
    "length", [*LENGTHS[:5], *(pytest.param(n, marks=pytest.mark.slow) for n in LENGTHS[5:])]
)
def test_no_file_of_the_table_of_encodings_is_read_wrong(tmp_path: Path, length: int) -> None:
    """Files of eight encodings with ASCII in header and labels: read right, or refused."""
    languages = {
        **{"utf-16-le": "ja ru zh de", "gb18030": "zh", "cp950": "zh-tw", "cp932": "ja"},
        **{"cp949": "ko", "cp1251": "ru uk", "cp1252": "de fr es pt", "koi8-r": "ru"},
    }
    refused = 0
    for codec, names in languages.items():
        draw = random.Random(f"{codec} {length}")
        rows = ["text,label"]
        pieces = PHRASES[draw.choice(names.split())]
        for _ in range(length):
            text = " ".join(draw.sample([p for p in pieces if "," not in p], 3))
            rows.append(f"{text},{draw.choice(('good', 'bad'))}")
        path = tmp_path / f"{codec}.csv"
        path.write_bytes("\r\n".join([*rows, ""]).encode(codec))
        try:
            with Table(path) as table:
                read = [",".join(row.values.values()) for row in table]
        except BertineError as error:
            assert "name its encoding" in str(error)  # noqa: PT017
            refused += 1
            continue
        assert read == rows[1:], codec
    assert refused <= (2 if length < 10 else 0)
