"""Word vectors on disk: word2vec's formats, the folder of ours, and files that lie."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bertine
from bertine import WordVectors
from bertine.contrib.recognize import SETTINGS
from bertine.contrib.word2vec.vectors import TENSORS, WORDS
from bertine.core.errors import BertineError

WORDS_HERE = ["the", "naïve", "new_york", "北"]


def vectors(**others: object) -> WordVectors:
    table = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    table[1, 0] = 1e-30
    return WordVectors(WORDS_HERE, table, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["v.bin", "v.txt", "v.vec"])
def test_word2vecs_files_give_back_the_same_bits(tmp_path: Path, name: str) -> None:
    before = vectors()
    before.save(tmp_path / name)
    after = WordVectors.load(tmp_path / name)
    assert after.words == before.words
    assert after.vectors.tobytes() == before.vectors.tobytes()
    assert not after.notes


def test_a_folder_gives_back_all_of_it(tmp_path: Path) -> None:
    counts = np.array([9, 5, 5, 1])
    before = vectors(counts=counts, lowercase=True, training={"seed": 3})
    before.save(tmp_path / "v")
    after = WordVectors.load(tmp_path / "v")
    assert (after.words, after.lowercase, after.training) == (WORDS_HERE, True, {"seed": 3})
    assert after.vectors.tobytes() == before.vectors.tobytes()
    assert after.counts is not None
    assert after.counts.tolist() == counts.tolist()
    after.save(tmp_path / "v")  # one of ours may be replaced
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    with pytest.raises(BertineError, match="not a folder of word vectors"):
        after.save(tmp_path / "mine")


def test_the_programs_bytes(tmp_path: Path) -> None:
    """As word2vec.c prints them: "%s " and the floats, then a line break; other writers leave the
    line break out."""
    numbers = struct.pack("<2f", 0.5, -2.0), struct.pack("<2f", 1.0, 3.0)
    for end in (b"\n", b""):
        path = tmp_path / "v.bin"
        path.write_bytes(b"2 2\n" + b"a " + numbers[0] + end + b"b " + numbers[1] + end)
        assert WordVectors.load(path).vectors.tolist() == [[0.5, -2.0], [1.0, 3.0]]
    text = tmp_path / "v.txt"
    text.write_bytes(b"2 2\na 0.500000 -2.000000 \nb 1 3e0 \n")  # with the program's last space
    assert WordVectors.load(text).vectors.tolist() == [[0.5, -2.0], [1.0, 3.0]]


@pytest.mark.parametrize("name", ["v.bin", "v.txt", "v.vec"])
def test_compressed_files_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    table = np.random.default_rng(0).standard_normal((5000, 60)).astype(np.float32)  # over a block
    words = [f"w{number}" for number in range(5000)]
    WordVectors(words, table).save(tmp_path / name)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress((tmp_path / name).read_bytes(), 1))
    read = WordVectors.load(packed)
    assert read.words == words
    assert read.vectors.tobytes() == table.tobytes()
    with pytest.raises(BertineError, match=r"read, but not written; leave out \.gz"):
        read.save(packed)


def test_gloves_files_have_no_header(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(b"the 0.5 -1 2\n, 1e-3 0 0\nat a name 1 2 3\n12 7 8 9\nthe 1 1 1\n")
    read = WordVectors.load(path)
    assert read.words == ["the", ",", "12"]
    assert read.vectors.tolist() == [[0.5, -1, 2], [np.float32(1e-3), 0, 0], [7, 8, 9]]
    assert read.notes == [
        "1 word came twice; the first vector is kept",
        "1 word with a blank inside, left out",
    ]
    read.save(tmp_path / "vectors.bin")
    assert WordVectors.load(tmp_path / "vectors.bin").words == read.words


GLOVE = b"the 0.5 -1 2\nbank 1 0 0\n"
BINARY = b"2 3\n" + b"".join(
    word + b" " + struct.pack("<3f", *numbers)
    for word, numbers in ((b"the", (0.5, -1, 2)), (b"bank", (1, 0, 0)))
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("v.txt", b"\xef\xbb\xbf" + GLOVE),
        ("v.vec", b"\xef\xbb\xbf2 3\n" + GLOVE),
        ("v.txt.gz", gzip.compress(b"\xef\xbb\xbf" + GLOVE, mtime=0)),
        ("v.vec.xz", lzma.compress(b"2 3\n" + GLOVE)),
        ("v.txt", GLOVE.replace(b" ", b"\t")),
        ("v.txt", b"the\t0.5 -1 2\nbank\t1 0 0\n"),
        ("v.txt", b" the  0.5 -1   2 \n\n  bank 1 0 0\t\n\n \n"),
        ("v.txt", GLOVE.replace(b"\n", b"\r\n")[:-2]),
        ("v.bin", GLOVE),
        ("v.txt", BINARY),
        ("v.vec.gz", gzip.compress(BINARY, mtime=0)),
        ("v.bin", BINARY.replace(b"2 3\n", b"2 3\r\n")),
    ],
)
def test_files_as_they_are_published(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    read = WordVectors.load(tmp_path / name)
    assert read.words == list(read) == ["the", "bank"]
    assert read.vectors.tolist() == [[0.5, -1, 2], [1, 0, 0]]
    assert not read.notes


@pytest.mark.parametrize("header", ["", "8 2\n"])
def test_words_that_no_file_can_hold_are_left_out_and_counted(tmp_path: Path, header: str) -> None:
    words = ["new york", ". .", "a\x85b", "a\u2028b", "a\xa0b", "\u3000", ""]
    rows = "".join(f"{word} 1 2\n" for word in [*words, "a\u200bb"])
    (tmp_path / "v.vec").write_text(header + rows, encoding="utf-8")
    read = WordVectors.load(tmp_path / "v.vec")
    assert read.words == ["a\u200bb"]
    assert read.notes == ["7 words with a blank inside, left out"]
    for name in ("folder", "v.bin", "v.txt"):  # what is read, all formats can hold
        read.save(tmp_path / name)
        assert WordVectors.load(tmp_path / name).words == read.words


def test_little_that_unpacks_to_much_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertine.contrib.word2vec.files._ALWAYS_UNPACKED", 1 << 20)
    path = tmp_path / "v.txt.gz"
    rows = b"".join(b"w%d" % number + b" 0" * 9_000 + b"\n" for number in range(300))
    path.write_bytes(gzip.compress(rows, mtime=0))
    with pytest.raises(BertineError, match=r"v.txt.gz: unpacks to more than 1,\d{3},\d{3} bytes"):
        WordVectors.load(path)


def test_memory_is_looked_at_as_rows_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertine.contrib.word2vec.files._NUMBERS", 16)
    monkeypatch.setattr("bertine.core.process.memory_limit", lambda: 1000)
    path = tmp_path / "v.txt"
    path.write_text("".join(f"w{number} 1 2 3 4\n" for number in range(30)))
    assert len(WordVectors.load(path)) == 30
    path.write_text("".join(f"w{number} 1 2 3 4\n" for number in range(90)))
    with pytest.raises(BertineError, match=r"v.txt: the table of vectors needs 1.0 kB of memory"):
        WordVectors.load(path)


def test_what_is_mended_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    words = [f"w{number}ä" for number in range(200)]
    rows = "".join(f"{word} 5\n" for word in words).encode()
    path.write_bytes(b"204 1\na 1\na 2\nw\xe4 3\nb 4\n" + rows)
    read = WordVectors.load(path)
    assert read.words == ["a", "w\ufffd", "b", *words]
    assert read.vectors[:3, 0].tolist() == [1, 3, 4]
    assert read.notes == [
        "1 word with invalid UTF-8, replaced by U+FFFD",
        "1 word came twice; the first vector is kept",
    ]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("v.gz", b"1 1\na 1\n", "not known as word vectors"),
        ("v.txt", b"", "does not begin with a line of two numbers"),
        ("v.txt", b"a 0.1\n", "does not begin with a line of two numbers"),
        ("v.txt", b"a 0.1 0.2", "does not begin with a line of two numbers"),
        ("v.txt", b"once upon a time\n", "does not begin with a line of two numbers"),
        ("v.txt", b"a 0.1 0.2\nb 0.1\n", ":2: must be a word and 2 numbers"),
        ("v.txt", b"a 0.1 0.2\nb 0.1 c\n", ":2: .* is no number; write it as 0.1"),
        ("v.txt", b"a 1 0.1 0.2\nb 0.1 0.2\n", ":2: must be a word and 3 numbers"),
        ("v.txt", b"the,0.1,0.2\n", "divided by blanks; .* It begins with 'the,0.1,0.2"),
        ("v.txt", b"the 0,1 0,2\n", "It begins with 'the 0,1 0,2"),
        ("v.vec", b"1 2\nthe 0,1 0,2\n", ":2: .* is no number; write it as 0.1"),
        ("v.txt", "a 1 2\n".encode("utf-16"), "is UTF-16; convert it"),
        ("v.txt", "café 1 2\nnaïve 2 1\n".encode("latin-1"), "is not UTF-8 but looks like cp1252"),
        (
            "v.txt",
            gzip.compress(b"a 1 2\n", mtime=0),
            "is compressed with gzip, whatever its name says",
        ),
        (
            "v.bin",
            gzip.compress(b"a 1 2\n", mtime=0),
            "is compressed with gzip, whatever its name says",
        ),
        ("v.zip", b"PK\x03\x04", "a file .bin, .txt or .vec .* unpack an archive"),
        ("v.txt", b"PK\x03\x04", "is PyTorch's weights, or a zip archive; .* unpack"),
        ("v.bin", struct.pack("<13i", 793712314, *range(12)), "fastText's, .* give the file .vec"),
        (
            "v.bin.gz",
            gzip.compress(struct.pack("<2i", 793712314, 12), mtime=0),
            "is a model of fastText's",
        ),
        ("v.bin", b"x\0\0\0\0\0\0\0{}", "does not begin with a line of two numbers"),
        ("v.txt.gz", b"1 1\na 1\n", "not gzip data"),
        ("v.txt.gz", gzip.compress(b"1 1\na 1\n", mtime=0)[:-9], "cut off before its end"),
        ("v.bin.gz", gzip.compress(b"999999999 300\na 1234", mtime=0), "do not fit into"),
        ("v.txt", b"999999999999 999999\na 1\n", "do not fit into"),
        ("v.bin", b"999999999999 300\na 1234", "do not fit into"),
        ("v.bin", b"0 3\n", "do not fit into"),
        ("v.txt", b"2 1\na 1\n     ", "says 2 words, but ends after 1; it is cut"),
        ("v.txt", b"1 2\na 1       \n", "must be a word and 2 numbers"),
        ("v.txt", b"1 2\na b c\n", "is no number; write it"),
        ("v.txt", b"1 1\na 1\nb 2\n", "more than the 1 words"),
        ("v.txt", b"1 1\na nan\n", "not finite"),
        ("v.txt", b"1 1\na " + b"1" * 9000, "must be a word and 1 numbers"),
        ("v.txt", b"1 1\na 1e39\n", "not finite"),
        ("v.txt", b"1 2\na 1 2 3\n", "no words without blanks .1 word .* are there more numbers"),
        ("v.bin", b"1 1\n" + b"a" * 5000, "cut short or damaged"),
        ("v.bin", b"2 1\na \0\0\0\0b  \0\0", "cut short or damaged"),
        ("v.bin", b"1 1\na \0\0\xc0\x7f", "not finite"),
        ("v.bin", b"1 1\na \0\0\0\0\nmore", "more than the 1 words"),
        ("v.bin", b"1 1\n  \0\0\0\0", "cut short or damaged"),
    ],
)
def test_files_that_lie(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BertineError, match=message) as caught:
        WordVectors.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def _json(folder: Path, **changes: object) -> None:
    values = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps(values | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: _json(folder, format=9), "another version"),
        (lambda folder: _json(folder, lowercase="yes"), "does not say what the vectors are"),
        (lambda folder: (folder / WORDS).write_text("the\na\nb\n"), "3 words, but there are 4"),
        (lambda folder: (folder / WORDS).write_text("a\nb\nc\nd\ne\n"), "more words than the 4"),
        (lambda folder: (folder / WORDS).write_text("a\na\nb\nc\n"), "a word comes twice"),
        (lambda folder: (folder / WORDS).write_text("a\n\nb\nc\n"), ":2: is no word"),
        (lambda folder: (folder / WORDS).write_text("a\nb\nc\n" + "d" * 9999), ":4: is no word"),
        (lambda folder: (folder / WORDS).write_bytes(b"a\nb\nc\n\xff\n"), ":4: is not UTF-8"),
        (lambda folder: (folder / WORDS).unlink(), "No such file"),
        (lambda folder: (folder / TENSORS).write_bytes(b"\xff" * 99), "is damaged, cut short"),
    ],
)
def test_folders_that_lie(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    vectors().save(tmp_path / "v")
    damage(tmp_path / "v")
    with pytest.raises(BertineError, match=message):
        WordVectors.load(tmp_path / "v")


def test_words_that_a_format_cannot_hold(tmp_path: Path) -> None:
    odd = WordVectors(["new york"], np.ones((1, 2)))
    with pytest.raises(BertineError, match="cannot stand in a file"):
        odd.save(tmp_path / "v.txt")
    odd.save(tmp_path / "v")  # a line may have a space
    assert WordVectors.load(tmp_path / "v").words == ["new york"]
    with pytest.raises(BertineError, match="cannot stand in a line"):
        WordVectors(["a\nb"], np.ones((1, 2))).save(tmp_path / "w")


def test_nearest_words() -> None:
    table = np.array([[1, 0], [1, 0.1], [0, 1], [-1, 0]], dtype=np.float32)
    four = WordVectors(["bank", "river", "money", "sky"], table, lowercase=True)
    assert [each.word for each in four.nearest("Bank").nearest] == ["river", "money", "sky"]
    # Of several words the mean, and none of them is in the answer.
    several = four.nearest("the river, money", top=1)
    assert [each.word for each in several.nearest] == ["bank"]
    assert several.notes == ["1 word of the query without a vector"]
    with pytest.raises(BertineError, match="none of its words"):
        four.nearest("ocean")
    cased = WordVectors(["New_York", "Bank"], table[:2])
    for asked, meant in (("New York", "New_York"), ("bank", "Bank"), ("new-york", "New_York")):
        with pytest.raises(BertineError, match=f"with a vector; did you mean '{meant}'"):
            cased.nearest(asked)
    assert four.embed("River bank") == pytest.approx([1, 0.05])
    assert four.embed(["", "ocean"]).tolist() == [[0, 0], [0, 0]]


def test_vectors_of_words_go_from_format_to_format(tmp_path: Path) -> None:
    """Folder, binary, text and back, the same bits all the way."""
    before = bertine.WordVectors(["a", "b"], np.array([[0.1, -3], [1e-20, 7]], dtype=np.float32))
    before.save(tmp_path / "folder")
    source: Path = tmp_path / "folder"
    for name in ("v.bin", "v.txt", "again"):
        done = bertine.convert(source, tmp_path / name)
        assert done.lines() == [f"written to {tmp_path / name}: 2 words, vectors of 2 numbers"]
        source = tmp_path / name
    after = bertine.WordVectors.load(source)
    assert after.words == before.words
    assert after.vectors.tobytes() == before.vectors.tobytes()
    with pytest.raises(BertineError, match="is what is read"):
        bertine.convert(source, source)
    with pytest.raises(BertineError, match="no activation; leave out hidden_act"):
        bertine.convert(source, tmp_path / "v.bin", hidden_act="relu")
