"""Which columns of a column file are the words and the tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.data.tagged_sentences import WordColumns, read_sentences
from bertine.options.data import DataConfig

GERMEVAL = """#	http://de.wikipedia.org/x [2009]
1	Ada	B-PER	O
2	kam	O	O
3	heute	O	O
4	an	O	O

1	Uni	B-ORG	O
2	Rom	I-ORG	B-LOC
3	ist	O	O
"""


@pytest.mark.parametrize(
    ("text", "columns", "words", "tags"),
    [
        # An index first, from 1, from 0, on through the file.
        ("1 Ada NNP B-PER\n2 ran VBD O\n\n1 Rom NNP B-LOC\n2 is VBZ O\n", (2, 4), "Ada", "B-PER"),
        ("0 Ada B-PER\n1 ran O\n\n0 Rom B-LOC\n1 is O\n", (2, 3), "Ada", "B-PER"),
        ("1 Ada B-PER\n2 ran O\n\n3 Rom B-LOC\n4 is O\n", (2, 3), "Ada", "B-PER"),
        ("1\tthe\tDT\n2\tcat\tNN\n", (2, 3), "the", "DT"),
        ("1 Das O\n2 Haus B-X\n4 ist O\n", (2, 3), "Das", "O"),  # with a gap
        # The number of the sentence.
        ("1 EU B-ORG\n1 lebt O\n\n2 Bonn B-LOC\n", (2, 3), "EU", "B-ORG"),
        ("1 EU NNP I-NC I-ORG\n2 ran VBZ I-VC O\n", (2, 5), "EU", "B-ORG"),
        # Entities inside of others; nothing, or who tagged, behind the tags.
        (GERMEVAL, (2, 3), "Ada", "B-PER"),
        ("1\tAda\tB-PER\t-\t-\n2\tran\tO\t-\t-\n", (2, 3), "Ada", "B-PER"),
        ("1\tAda\tB-PER\t-\teve\n2\tran\tO\t-\tbob\n", (2, 3), "Ada", "B-PER"),
        # True tags and predicted ones.
        ("EU B-ORG O\nran O O\nRom B-ORG B-ORG\n", (1, 2), "EU", "B-ORG"),
        ("1.\tAda\tB-PER\n2.\tran\tO\n", (2, 3), "Ada", "B-PER"),
        # The tags first.
        ("B-PER Ada\nO ran\n", (2, 1), "Ada", "B-PER"),
        ("I-PER\tAda\nO\tran\n", (2, 1), "Ada", "B-PER"),
        # Not an index: words that are numbers, chunks beside entities.
        ("3\tB-NUM\n4\tO\n\n7\tO\n", (1, 2), "3", "B-NUM"),
        ("1\tO\n2\tB-NUM\n", (1, 2), "1", "O"),
        ("EU NNP I-NP I-ORG\nran VBZ I-VP O\n", (1, 4), "EU", "B-ORG"),
        ("1 EU I-NP I-ORG\n2 ran I-VP O\n", (2, 4), "EU", "B-ORG"),
    ],
)
def test_words_and_tags_are_found(
    text: str, columns: tuple[int, int], words: str, tags: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.txt"
    path.write_text(text, encoding="utf-8")
    read = read_sentences(path)
    assert (*read.text_columns, read.label_column) == tuple(f"column {n}" for n in columns)
    first = read.items[0]
    assert (first.words[0], (first.tags or ("",))[0]) == (words, tags)
    said = "\n".join(read.notes)
    assert ("so the words are read from column 2" in said) == (columns[0] == 2)
    width = max(len(line.split()) for line in text.splitlines() if line[:1] != "#")
    assert ("the tags are read from column" in said) == (1 < columns[1] < width)


def test_an_empty_last_column_holds_no_tags(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("Ada\tB-PER\t\nran\tO\t\n", encoding="utf-8")
    assert read_sentences(path).items[0].tags == ("B-PER", "O")


def test_numbers_that_are_no_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{n // 3}\tword{n}\t{'B-PER' if n % 3 else 'O'}\n" for n in range(9)))
    with pytest.raises(BertineError, match="column 1 holds only numbers, which do not count"):
        read_sentences(path)
    named = read_sentences(path, DataConfig(word_column=2))
    assert named.items[0].words[:2] == ("word0", "word1")


def test_what_looks_like_columns_in_the_wrong_order_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{'VN'[n % 2]} word{n}\n" for n in range(30)))
    (note,) = read_sentences(path).notes
    assert "column 2 has 30 different tags, more than column 1 has words (2)" in note
    assert "(word_column=2 and tag_column=1)" in note
    path.write_text("".join(f"word{n} {'VN'[n % 2]}\n" for n in range(30)))
    assert read_sentences(path).notes == []


def test_what_a_user_names_holds(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(GERMEVAL, encoding="utf-8")
    inner = read_sentences(path, DataConfig(tag_column=4))
    assert inner.items[1].tags == ("O", "B-LOC", "O")
    numbers = read_sentences(path, DataConfig(word_column=1))
    assert numbers.items[0].words == ("1", "2", "3", "4")
    # Of a model that read the first column, or of one that read the second, the file has another.
    assert read_sentences(path, columns=WordColumns(1, 3)).items[0].words[:2] == ("Ada", "kam")
    path.write_text("Ada B-PER O\nran O O\n", encoding="utf-8")
    assert read_sentences(path, columns=WordColumns(2, 3)).items[0].words == ("Ada", "ran")


def test_conllu_is_known_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    rows = [("1-2", "au", "_"), ("1", "à", "ADP"), ("2", "le", "DET")]
    lines = ["\t".join([number, word, "_", tag, *"______"]) for number, word, tag in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(BertineError, match=r"is CoNLL-U, whose first column holds numbers"):
        read_sentences(path)
    read = read_sentences(path, columns=WordColumns(tag_column=4))
    assert read.items[0].words == ("à", "le")
    assert read.items[0].tags == ("ADP", "DET")


def test_an_index_and_words_alone_have_no_tags(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("1\tAda\n2\tran\n", encoding="utf-8")
    with pytest.raises(BertineError, match=r"has the file a column of tags\?"):
        read_sentences(path)
