"""Corpora: every format and compression, and every way in which a file can be bad."""

import errno
import gzip
import json
import lzma
import os
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from bertine.core.errors import BertineError
from bertine.tokenization.documents import Corpus

DOCUMENTS = ["First line.\nSecond line.", "Zweites Dokument: äöü.", "第三份文件。"]

COMPRESS = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda raw: zstandard.ZstdCompressor().compress(raw),
}


def raw_of(kind, tmp_path):
    if kind == ".txt":
        return "\n\n".join(DOCUMENTS).encode()
    if kind == ".jsonl":
        return "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in DOCUMENTS).encode()
    pq.write_table(pa.table({"n": [1, 2, 3], "text": DOCUMENTS}), tmp_path / "raw")
    return (tmp_path / "raw").read_bytes()


def texts(*args, **kwargs):
    return [document.text for document in Corpus(*args, **kwargs)]


def error_of(*args, **kwargs) -> str:
    with pytest.raises(BertineError) as error:
        texts(*args, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("packing", COMPRESS)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_every_format_in_every_compression(tmp_path, kind, packing):
    file = tmp_path / f"corpus{kind}{packing}"
    file.write_bytes(COMPRESS[packing](raw_of(kind, tmp_path)))
    corpus = Corpus([file])
    documents = list(corpus)
    assert [document.text for document in documents] == DOCUMENTS
    assert {document.source for document in documents} == {str(file)}
    assert [document.row for document in documents] == ([1, 4, 6] if kind == ".txt" else [1, 2, 3])
    assert list(corpus) == documents, "a corpus can be read again"
    assert corpus.stats.documents == 3
    assert corpus.stats.files == 1
    assert corpus.stats.text_bytes == sum(len(text.encode()) for text in DOCUMENTS)
    assert corpus.position == corpus.size_on_disk == file.stat().st_size


def test_frames_of_zstd_and_members_of_gzip_are_read_on(tmp_path):
    for packing in (".zst", ".gz", ".xz"):
        file = tmp_path / f"two.txt{packing}"
        file.write_bytes(COMPRESS[packing](b"one\n\n") + COMPRESS[packing](b"two\n"))
        assert texts(file) == ["one", "two"]


def test_folders_are_read_recursively_in_sorted_order(tmp_path):
    for name, text in {
        "b.txt": "b",
        "a/z.md": "az",
        "a/b/x.jsonl": '{"text": "abx"}',
        "README": "readme",
        ".hidden/x.txt": "hidden",
        "picture.png": "png",
        ".dot.txt": "dot",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    corpus = Corpus([tmp_path])
    assert [document.text for document in corpus] == ["readme", "abx", "az", "b"]
    assert corpus.stats.skipped_files == len(corpus.stats.first_skipped) == 2
    assert any("2 files of no known format skipped" in line for line in corpus.stats.lines())


def test_links_to_folders_are_followed_once(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.txt").write_text("x")
    corpus = tmp_path / "corpus"
    (corpus / "z").mkdir(parents=True)
    (corpus / "z" / "a.txt").write_text("a")
    for name, target in {
        "other": tmp_path / "elsewhere",
        "latest": "z",  # not a second time
        "z/up": corpus,  # nor for ever
        "z/itself": "itself",
    }.items():
        (corpus / name).symlink_to(target)
    assert texts(corpus) == ["x", "a"]


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b.txt").write_text("b")
    scandir = os.scandir

    def refused(folder):
        if str(folder).endswith("a"):
            raise PermissionError(errno.EACCES, "no", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refused)
    assert f"{tmp_path / 'a'}: Permission denied" in error_of(tmp_path)


def test_plain_text_documents_end_at_blank_lines(tmp_path):
    file = tmp_path / "c.txt"
    file.write_bytes(b"\n\n  one\r\nline two\r\n \t\r\n\r\n\r\ntwo\rold mac\n\n")
    assert texts(file) == ["  one\nline two", "two\nold mac"]
    assert texts(file, document_per_file=True) == [
        "  one\nline two\n \t\n\n\ntwo\nold mac",
    ]


def test_byte_order_marks(tmp_path):
    for name, raw in {"a.txt": b"hello", "a.jsonl": b'{"text": "hello"}'}.items():
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + raw)
        assert texts(tmp_path / name) == ["hello"]
        (tmp_path / name).write_bytes(raw.decode().encode("utf-16"))
        assert texts(tmp_path / name) == ["hello"]


def test_what_ends_a_file_of_dos_is_no_text(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\n\ntwo\n\n\x1a")
    assert texts(file) == ["one", "two"]


def test_documents_without_text_are_skipped_and_counted(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text('{"text": ""}\n\n{"text": " \\n"}\n{"text": null}\n{"text": "x"}\n')
    corpus = Corpus(file)
    assert [(d.text, d.row) for d in corpus] == [("x", 5)]
    assert corpus.stats.empty_documents == 3
    assert "3 documents without text skipped" in corpus.stats.lines()


def test_invalid_utf8_is_left_out_and_counted_or_refused(tmp_path):
    file = tmp_path / "c.txt"
    # A U+FFFD that is in the file is not one that was put there; alone it is no document.
    file.write_bytes("fine \ufffd\n\n\ufffd\n\nline 3\nbad ".encode() + b"\xff and \xc3( here\n")
    corpus = Corpus(file)
    assert [d.text for d in corpus][1] == "line 3\nbad  and ( here"
    assert corpus.stats.invalid_utf8 == 2
    assert "4 damaged characters (U+FFFD) left out" in corpus.stats.lines()
    assert list(corpus)
    assert corpus.stats.invalid_utf8 == 2, "counted anew on each pass"
    message = error_of(file, strict=True)
    assert f"{file}:6: invalid UTF-8 (byte 0xff, 4 bytes into the line)" in message


CHINESE = "物流太慢了，等了一个星期才收到，客服也不回复。"


@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "gb2312"])
def test_chinese_that_is_not_utf8_is_read(tmp_path, kind, encoding):
    file = tmp_path / f"a corpus{kind}"
    if kind == ".parquet":
        raw = pa.array([b"plain", CHINESE.encode(encoding)], pa.binary())
        pq.write_table(pa.table({"text": raw.cast(pa.string(), safe=False)}), file)
        message = "is not UTF-8 but looks like GB18030 (GBK); convert it to UTF-8"
        assert error_of(file) == f"{file}:2: {message}"
        return
    jsonl = f'{{"text": "plain"}}\n\n{{"text": "{CHINESE}"}}\n'
    text = f"plain\n\n{CHINESE}\n" if kind == ".txt" else jsonl
    file.write_bytes(text.encode(encoding))
    corpus = Corpus(file)
    assert [document.text for document in corpus] == ["plain", CHINESE]
    assert corpus.position == corpus.size_on_disk
    packed = tmp_path / f"a{kind}.gz"
    packed.write_bytes(gzip.compress(text.encode(encoding)))
    named = Corpus(packed, encoding=encoding, strict=True)
    assert [document.text for document in named] == ["plain", CHINESE]


def test_a_list_of_json_is_a_corpus(tmp_path):
    file = tmp_path / "c.json"
    file.write_text('[{"text": "one"}, {"text": null},\n\n {"text": "two"}]')
    assert [(d.text, d.row) for d in Corpus(file)] == [("one", 1), ("two", 3)]
    file.write_text('[{"text": "one"},\n {"text": }]')
    assert f"{file}:2: not valid JSON" in error_of(file)


def test_nul_bytes_are_removed_and_counted_or_refused(tmp_path):
    for name, raw in {
        "c.txt": b"a\nb\0\0c\n",
        "c.jsonl": b'{"text": "a\\nb\\u0000\\u0000c"}\n',
    }.items():
        (tmp_path / name).write_bytes(raw)
        corpus = Corpus(tmp_path / name)
        assert [d.text for d in corpus] == ["a\nbc"]
        assert corpus.stats.nul == 2
        assert "NUL" in error_of(tmp_path / name, strict=True)


def test_lone_surrogates_of_json_are_left_out_or_refused(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text('{"text": "a\\ud800b \\ud83d\\ude00"}\n')
    corpus = Corpus(file)
    assert [d.text for d in corpus] == ["ab 😀"]
    assert corpus.stats.invalid_utf8 == 1
    assert f"{file}:1: a lone surrogate" in error_of(file, strict=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":2: not valid JSON"),
        ("[" * 100_000, ":2: not valid JSON"),
        ('["text"]', ":2: a list, but each line, or each item of a list, must be one object"),
        (
            '{"txt": "x", "id": 1}',
            ":2: there is no column 'text' (did you mean 'txt'?)",
        ),
        ('{"body": "x"}', "it has 'body'"),
        ('{"text": "a", "text": "b"}', ":2: the key 'text' is there twice"),
        ('{"text": 3}', ":2: 'text' is a number; it must be a text"),
        ('{"text": ["x"]}', ":2: 'text' is a list; it must be a text"),
    ],
)
def test_bad_json_lines_name_file_and_line(tmp_path, line, message):
    file = tmp_path / "c.jsonl"
    file.write_text('{"text": "fine"}\n' + line + "\n")
    assert message in error_of(file)
    assert str(file) in error_of(file)


def test_the_column_of_the_text_can_be_named(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"body": "x", "text": "no"}\n')
    pq.write_table(pa.table({"body": ["y"], "id": [1]}), tmp_path / "d.parquet")
    assert texts(tmp_path, text_column="body") == ["x", "y"]
    message = "cannot tell which column holds the text; name it with text_column"
    assert f"d.parquet: {message}; the columns are 'body', 'id'" in error_of(tmp_path / "d.parquet")
    (tmp_path / "only.jsonl").write_text('{"said": "z"}\n')
    assert texts(tmp_path / "only.jsonl") == ["z"]


def test_parquet_types(tmp_path):
    file = tmp_path / "c.parquet"
    many = [f"row {i}" for i in range(1000)]
    dictionary = pa.dictionary(pa.int32(), pa.string())
    for kind in (pa.string(), pa.large_string(), pa.string_view(), dictionary):
        pq.write_table(pa.table({"text": pa.array([*many, None], kind)}), file, row_group_size=300)
        corpus = Corpus(file)
        assert [(d.text, d.row) for d in corpus] == [(t, i + 1) for i, t in enumerate(many)]
        assert corpus.stats.empty_documents == 1
    # A writer that finds no text in a file knows no type.
    pq.write_table(pa.table({"text": [None, None]}), tmp_path / "d.parquet")
    assert len(texts(tmp_path)) == len(many)
    pq.write_table(pa.table({"text": [1, 2]}), file)
    assert "column 'text' is of type int64; it must be string" in error_of(file)


def test_parquet_with_invalid_utf8(tmp_path):
    file = tmp_path / "c.parquet"
    raw = pa.array([b"fine", b"bad \xff"], pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    pq.write_table(pa.table({"text": bad}), file)
    corpus = Corpus(file)
    assert [d.text for d in corpus] == ["fine", "bad "]
    assert corpus.stats.invalid_utf8 == 1
    assert "c.parquet:2: invalid UTF-8 (byte 0xff, 4 bytes into the" in error_of(file, strict=True)


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_files_cut_off_or_damaged(tmp_path, kind, packing):
    file = tmp_path / f"c{kind}{packing}"
    whole = COMPRESS[packing](raw_of(kind, tmp_path))
    name = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[packing]
    for missing in (1, 9, len(whole) // 2):
        file.write_bytes(whole[:-missing])
        assert f"{file}: the {name} data is cut off before its end" in error_of(file)
    file.write_bytes(b"this was never compressed at all")
    assert "damaged or not" in error_of(file)
    file.write_bytes(b"")
    assert "cut off" in error_of(file)


def test_parquet_cut_off(tmp_path):
    file = tmp_path / "c.parquet"
    file.write_bytes(raw_of(".parquet", tmp_path)[:-20])
    assert f"{file}: is damaged, cut short or of another kind" in error_of(file)


def test_missing_unknown_and_empty(tmp_path):
    assert f"{tmp_path / 'none'}: No such file" in error_of([tmp_path / "none"])
    assert "no file of text in this folder" in error_of(tmp_path)
    assert "no corpus given" in error_of([])
    (tmp_path / "c.docx").write_bytes(b"x")
    assert "unknown kind of file" in error_of(tmp_path / "c.docx")
    assert "no file of text in this folder" in error_of(tmp_path)
    (tmp_path / "c.txt").write_text("\n \n\n")
    assert "no document with text" in error_of(tmp_path)


def test_large_documents_are_split_at_line_ends_and_counted(tmp_path):
    lines = [f"line number {i} é" for i in range(100)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\nsmall\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "\n".join(lines)}) + "\n")
    for name, tail in {"a.txt": ["small"], "b.jsonl": []}.items():
        corpus = Corpus(tmp_path / name, max_document_bytes=200)
        parts = [d.text for d in corpus]
        assert all(len(part.encode()) <= 200 for part in parts)
        assert "\n".join(parts) == "\n".join(lines + tail)
        assert corpus.stats.split_documents == 1
        assert "1 very large documents split into parts" in corpus.stats.lines()
    assert texts(tmp_path / "a.txt") == ["\n".join(lines), "small"]


@pytest.mark.parametrize("unit", ["word ", "é", "中", "😀", "x"])
def test_a_line_longer_than_a_document_loses_no_character(tmp_path, unit):
    text = unit * 500
    for name, raw in {"a.txt": text, "b.jsonl": json.dumps({"text": text})}.items():
        (tmp_path / name).write_text(raw + "\n", encoding="utf-8")
        for limit in (16, 17, 18, 19, 100):
            corpus = Corpus(tmp_path / name, max_document_bytes=limit)
            parts = [d.text for d in corpus]
            assert "".join(parts) == text
            assert all(len(part.encode()) <= limit for part in parts)
            assert corpus.stats.split_documents == 1
            assert corpus.stats.invalid_utf8 == 0


def test_a_line_of_50_mb(tmp_path):
    line = b"some words of it " * 3_000_000
    (tmp_path / "a.txt").write_bytes(b"first\n\n" + line + b"\n\nlast\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "' + line + b'"}\n')
    corpus = Corpus([tmp_path])
    assert [len(d.text) for d in corpus] == [5, len(line), 4, len(line)]
    assert corpus.stats.split_documents == 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    file = tmp_path / "c.txt.gz"
    # 32 MB without a blank line.
    with gzip.open(file, "wb", compresslevel=1) as out:
        for _ in range(32):
            out.write((b"the same line again and again " * 34 + b"\n") * 1_028)
    corpus = Corpus(file, max_document_bytes=1 << 20)
    tracemalloc.start()
    try:
        count = sum(1 for _ in corpus)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count >= 30
    assert peak < 16e6


def test_memory_does_not_grow_with_the_row_groups_of_parquet(tmp_path):
    file = tmp_path / "c.parquet"
    text = [f"{i} " * 2_000 for i in range(1_000, 5_000)]  # 40 MB
    pq.write_table(pa.table({"text": text}), file, compression="none", use_dictionary=False)
    before = pa.total_allocated_bytes()
    peak = max(pa.total_allocated_bytes() for _ in Corpus(file))
    assert peak - before < 20e6


def test_lines_that_end_as_on_old_macintoshes_are_no_one_document(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\rtwo\r")
    with pytest.raises(BertineError, match=r"a\.txt:1: the lines end with \\r alone"):
        list(Corpus([path]))
    path.write_bytes(b"one\r\n\r\ntwo\rand more\r\n")
    assert [document.text for document in Corpus([path])] == ["one", "two\nand more"]
