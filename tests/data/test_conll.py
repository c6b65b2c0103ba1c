"""Column files and JSON lines of tagged words: what is read, what is mended, what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.data.column_files import looks_like_columns
from bertine.data.entities import Sentence, Sentences
from bertine.data.tagged_sentences import (
    WordColumns,
    find_tagged,
    named_columns,
    read_sentences,
)
from bertine.options.data import DataConfig

CONLL_2003 = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
call NN I-NP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
-DOCSTART- -X- O O

Brussels NNP I-NP I-LOC
"""


def file(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def tags_of(
    path: Path, columns: WordColumns | None = None, **options: Any
) -> list[tuple[str, ...]]:
    return [item.tags or () for item in read_sentences(path, DataConfig(**options), columns).items]


def test_documents_sentences_and_schemes(tmp_path: Path) -> None:
    examples = read_sentences(file(tmp_path / "eng.train", CONLL_2003))
    assert examples.items == [
        Sentence(("EU", "rejects", "German", "call"), ("B-ORG", "O", "B-MISC", "O"), 3, 0),
        Sentence(("Peter", "Blackburn"), ("B-PER", "I-PER"), 8, 0),
        Sentence(("Brussels",), ("B-LOC",), 12, 1),
    ]
    assert (examples.text_columns, examples.label_column) == (("column 1",), "column 4")
    assert examples.notes == [
        f"{tmp_path}/eng.train: the tags are IOB1; they are read as IOB2",
    ]


@pytest.mark.parametrize(("number", "first"), [(2, "NNP"), (3, "B-NP"), (4, "B-ORG")])
def test_any_column_can_hold_the_tags(tmp_path: Path, number: int, first: str) -> None:
    path = file(tmp_path / "eng.train", CONLL_2003)
    assert tags_of(path, WordColumns(tag_column=number))[0][0] == first
    examples = read_sentences(path, columns=WordColumns(word_column=2, tag_column=number % 4 + 1))
    assert examples.items[0].words[:2] == ("NNP", "VBZ")


def test_lines_that_hold_only_a_tab_end_a_sentence(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conll", "a\tO\n\t\nb c\tB-x\n \t \n\n\t\nd\tI-x")
    examples = read_sentences(path)
    assert [item.words for item in examples.items] == [("a",), ("b c",), ("d",)]
    assert [item.document for item in examples.items] == [None] * 3


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_bytes("\ufeffa\tO\r\nb\tB-x\r\n\r\nc\tO\r\n".encode())
    assert [item.words for item in read_sentences(path).items] == [("a", "b"), ("c",)]


def test_a_no_break_space_is_a_word_and_no_separator(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conll", "\u00a0 O\nb\u00a0c B-x\n")
    assert read_sentences(path).items[0].words == ("\u00a0", "b\u00a0c")


def test_comments_of_conllu_are_counted_and_a_word_may_begin_with_the_sign(tmp_path: Path) -> None:
    text = "# sent_id = 1\n# text = a b\n1\ta\tDET\n2\t#b\tNOUN\n\n# x\n1\t#\tPUNCT\n"
    examples = read_sentences(file(tmp_path / "a.conllu", text), columns=WordColumns(word_column=2))
    assert [item.words for item in examples.items] == [("a", "#b"), ("#",)]
    assert examples.scheme == "plain"
    assert examples.notes == [
        f"{tmp_path}/a.conllu: 3 lines that begin with # were taken for comments"
    ]
    tweets = read_sentences(file(tmp_path / "t.conll", "#\tO\n#photo\tB-x\n"))
    assert tweets.items[0].words == ("#", "#photo")


def test_lines_of_conllu_that_are_no_words_are_left_out(tmp_path: Path) -> None:
    rows = [("1-2", "au", "_"), ("1", "à", "ADP"), ("2", "le", "DET"), ("2.1", "est", "VERB")]
    lines = ["\t".join([number, word, "_", tag, *["_"] * 6]) for number, word, tag in rows]
    path = file(tmp_path / "fr.conllu", "\n".join(["# text = au", *lines]) + "\n")
    examples = read_sentences(path, columns=WordColumns(word_column=2, tag_column=4))
    assert examples.items == [Sentence(("à", "le"), ("ADP", "DET"), 3)]
    assert any("2 lines of CoNLL-U are not words" in note for note in examples.notes)
    with pytest.raises(BertineError, match="is CoNLL-U, whose first column holds numbers"):
        read_sentences(path)
    # In files of fewer columns it is a word like any other.
    scores = read_sentences(file(tmp_path / "a.conll", "2-1\tO\nwin\tO\n3.5\tB-x\n"))
    assert scores.items[0].words == ("2-1", "win", "3.5")


def test_names_are_for_keys_and_numbers_for_columns(tmp_path: Path) -> None:
    columns = file(tmp_path / "a.conll", "a\tN\tO\nb\tV\tB-x\n")
    with pytest.raises(BertineError, match=r"a.conll: is a column file.* not label_column"):
        read_sentences(columns, DataConfig(label_column="pos"))
    keys = jsonl(tmp_path / "a.jsonl", {"words": ["a"], "tags": ["B-x"], "pos": ["N"]})
    with pytest.raises(BertineError, match=r"a.jsonl: is not a column file.* not tag_column"):
        read_sentences(keys, DataConfig(tag_column=2))
    # What a model was trained with is no demand.
    trained = WordColumns.trained_with(("tokens",), "pos")
    assert tags_of(columns, named_columns(DataConfig(tag_column=2)).merged(trained)) == [("N", "V")]


@pytest.mark.parametrize("space", ["", " "])
def test_json_lines_are_told_without_their_suffix(tmp_path: Path, space: str) -> None:
    text = f'{{{space}"words": ["a", "b"], "tags": ["B-x", "O"]}}\n'
    assert tags_of(file(tmp_path / "a.txt", text)) == [("B-x", "O")]


def test_malformed_sequences_are_counted_and_read_as_conlleval_does(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conll", "a\tB-x\nb\tI-x\nc\tI-y\nd\tO\ne\tB-x\nf\tB-y\n")
    examples = read_sentences(path)
    assert examples.items[0].tags == ("B-x", "I-x", "B-y", "O", "B-x", "B-y")
    assert examples.notes == [
        f"{path}: 1 of 6 tags do not keep the rules of IOB2; entities are read as conlleval reads "
        "them"
    ]


def test_bilou_is_called_so(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conll", "a\tB-x\nb\tL-x\nc\tU-y\nd\tO\ne\tI-x\n")
    examples = read_sentences(path)
    assert examples.items[0].tags == ("B-x", "I-x", "B-y", "O", "B-x")
    assert examples.notes == [
        f"{path}: the tags are BILOU; they are read as IOB2",
        f"{path}: 1 of 5 tags do not keep the rules of BILOU; entities are read as conlleval reads "
        "them",
    ]


def test_a_stray_tag_among_those_of_entities_is_told(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conll", "a\tB-x\nb\tb-x\nc\tI-x\nd\tO\n")
    examples = read_sentences(path)
    assert examples.scheme == "plain"
    assert examples.notes == [
        f"{path}: 1 of 4 tags mark no entity (such as 'b-x'), so all are taken for plain tags; "
        "mend them, or name the scheme (tag_scheme)"
    ]
    assert read_sentences(path, DataConfig(tag_scheme="plain")).notes == []
    both = read_sentences(file(tmp_path / "c.conll", "a\tB-x\nb\tE-x\nc\tB-x\nd\tL-x\n"))
    assert "1 of 4 tags mark no entity (such as 'L-x')" in both.notes[0]
    parts = file(tmp_path / "b.conll", "a\tDT\nb\tNN\nc\tO\n")
    assert read_sentences(parts).notes == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ada\tPER\nran\tO\nfar\tO\n", "most tags are 'O', but the others mark no entities"),
        ("Ada\tBPER\nran\to\nfar\to\n", "most tags are 'o', but the others mark no entities"),
        ("Ada\t1\nran\t0\n", "the tags are numbers and mark no entities"),
        ("en:Ada\tB-x\n\nen:ran\tO\n", "every word begins with 'en:'"),
        ("Ada, B-x\n\nran, O\n", "every word ends with ','"),
        ("# 7\nAda B-x\n\n# 8\nran O\n", "the first line of every sentence begins with #"),
        ("# a1\td=en\nAda _ B-x\n\n# a2\td=en\nran _ O\n", "first line of every sentence begins"),
        ("word\ttag\nAda\tB-x\nran\tO\n", ":1: is read as a header, not as words (word, tag)"),
        ("Word POS NER\n\nAda NN B-x\nran VB O\n", ":1: is read as a header"),
        ("Ada\tB-x\n\nran:\tO\n", ""),
        ("a\tDT\nb\tNN\nc\tO\n", ""),
    ],
)
def test_what_may_be_meant_otherwise_is_told(tmp_path: Path, text: str, said: str) -> None:
    examples = read_sentences(file(tmp_path / "a.txt", text))
    assert len(examples.notes) == bool(said), examples.notes
    assert said in "".join(examples.notes)
    assert {"word", "Word", "#"}.isdisjoint(word for item in examples.items for word in item.words)


def test_tags_in_json_have_no_space_around_them(tmp_path: Path) -> None:
    path = file(tmp_path / "a.jsonl", '{"words": ["Ada", "ran"], "tags": [" B-x", "O "]}\n')
    assert read_sentences(path).items[0].tags == ("B-x", "O")


def test_csv_is_no_column_file_unless_it_looks_like_one(tmp_path: Path) -> None:
    path = file(tmp_path / "ner.csv", "Sentence #,Word,Tag\nSentence: 1,Ada,B-x\n,wrote,O\n")
    with pytest.raises(
        BertineError, match=r"ner\.csv: cannot tell which key holds the words.* format='columns'"
    ):
        read_sentences(path)
    file(path, "a B-x\nb O\n")
    assert read_sentences(path).items[0].words == ("a", "b")
    file(path, "a, NN\nb, VB\n")
    assert read_sentences(path, DataConfig(format="columns")).items[0].words == ("a,", "b,")


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.conll.gz"
    path.write_bytes(gzip.compress(b"a\tB-x\nb\tO\n"))
    assert tags_of(path) == [("B-x", "O")]


def jsonl(path: Path, *rows: object) -> Path:
    return file(path, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("words", "tags"), [("words", "tags"), ("tokens", "ner_tags")])
def test_json_lines(tmp_path: Path, words: str, tags: str) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {words: ["New York", "is"], tags: ["S-x", "O"]},
        {words: [], tags: []},
    )
    examples = read_sentences(path)
    assert examples.items == [Sentence(("New York", "is"), ("B-x", "O"), 1), Sentence((), (), 2)]
    assert (examples.text_columns, examples.label_column) == ((words,), tags)
    assert "1 of 2 sentences have no words" in examples.notes[0]
    named = jsonl(tmp_path / "b.txt", {"w": ["a"], "t": ["B-x"], "words": 3})
    assert tags_of(named, WordColumns(word_key="w", tag_key="t")) == [("B-x",)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "a\tO\nb\n", "a.conll:2: 1 column (separated by tabs), but the first word"),
        ("a.conll", "\n\t\n", "a.conll: has no words"),
        ("a.jsonl", '{"words": ["a"], "tags": [""]}', "a.jsonl:1: the tag of word 1 is empty"),
        ("a.jsonl", '{"words": "a", "tags": ["O"]}', "a.jsonl:1: 'words' must be a list of texts"),
        ("a.jsonl", '{"txt": "a", "tags": []}', "a.jsonl: cannot tell which key holds the words"),
        ("a.jsonl", '{"words": ["a"]}', "a.jsonl: cannot tell which key holds the tags"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(BertineError) as error:
        read_sentences(file(tmp_path / name, text))
    assert str(error.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = file(tmp_path / "a.conll", "a\tO\n")
    with pytest.raises(
        BertineError, match=r"a\.conll: has 2 columns, so the tag cannot be in colu"
    ):
        read_sentences(path, columns=WordColumns(tag_column=3))
    with pytest.raises(BertineError, match="tag_column is 0, but must be at least 1"):
        DataConfig(tag_column=0)
    with pytest.raises(BertineError, match="tagging takes one column of words, not 2"):
        named_columns(DataConfig(text_columns=["a", "b"]))
    with pytest.raises(BertineError, match=r"cannot tell which key holds the words.* are 'a', 'O'"):
        read_sentences(path, DataConfig(format="tsv"))


def test_the_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("train.conll", "dev.conll", "test.conll"):
        file(tmp_path / name, "a\tO\n")
    found = find_tagged(tmp_path)
    assert found.train == tmp_path / "train.conll"
    assert found.validation == tmp_path / "dev.conll"
    official = tmp_path / "official"
    official.mkdir()
    for name in ("eng.train", "eng.testa", "eng.testb"):
        file(official / name, CONLL_2003)
    found = find_tagged(official)
    assert found.train == official / "eng.train"
    assert found.validation == official / "eng.testa"
    assert found.test == official / "eng.testb"


def sentences(count: int, documents: int | None = None) -> Sentences:
    items = [
        Sentence((f"w{i}", "x"), ("B-a" if i % 2 else "B-b", "O"), i, documents and i % documents)
        for i in range(count)
    ]
    items.sort(key=lambda item: item.document or 0)
    return Sentences("train.conll", ("column 1",), "column 2", items)


def test_held_out_sentences_are_the_same_each_time_and_leave_every_tag() -> None:
    examples = sentences(50)
    examples.items.append(Sentence(("rare",), ("B-rare",), 99))
    first, second = examples.hold_out(0.1, seed=3)
    assert len(second) == 5
    assert sorted([*first.items, *second.items], key=lambda item: item.line) == sorted(
        examples.items, key=lambda item: item.line
    )
    assert any("B-rare" in (item.tags or ()) for item in first.items)
    again = examples.hold_out(0.1, seed=3)
    assert (again[0].items, again[1].items) == (first.items, second.items)
    assert examples.hold_out(0.1, seed=4)[1].items != second.items


def test_whole_documents_are_held_out_where_there_are_many() -> None:
    first, second = sentences(200, documents=40).hold_out(0.1, seed=0)
    assert not {item.document for item in first.items} & {item.document for item in second.items}
    assert 15 <= len(second) <= 25


def test_nothing_can_be_held_out_of_one_sentence() -> None:
    with pytest.raises(BertineError, match=r"train\.conll: cannot hold out 0\.1 of 1 sentence"):
        sentences(1).hold_out(0.1, 0)


def test_the_fingerprint_knows_words_tags_and_documents() -> None:
    prints = {
        Sentences("x", ("w",), "t", [Sentence(*item)]).fingerprint()
        for item in [
            (("a",), ("O",), 1, None),
            (("b",), ("O",), 1, None),
            (("a",), ("B-x",), 1, None),
            (("a",), ("O",), 1, 0),
        ]
    }
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("head", "columns"),
    [
        (["EU NNP I-ORG", "rejects VBZ O"], True),
        (["a\tO", "\t", "b\tB-x"], True),
        (["-DOCSTART- -X- O", ""], True),
        (["# id 1", "a\tX", "b\tY"], True),
        (["Ada wrote.", "Bob read."], False),
        (["Ada wrote programs.", "Bob read."], False),
        (["one line of text"], False),
        (["", ""], False),
    ],
)
def test_column_files_are_told_from_text(head: list[str], columns: bool) -> None:
    assert looks_like_columns(head) is columns


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("a.conll", "über O\nüb Gr\ufffdn\n".encode()),
        ("a.conll", "über O\nüb ".encode() + b"Gr\xffn\n"),
        ("a.jsonl", b'{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": ["\\udcffn"]}\n'),
    ],
)
def test_a_damaged_tag_is_an_error_with_its_line(tmp_path: Path, name: str, raw: bytes) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(BertineError, match=r":2: the tag is '.*n', with a damaged character"):
        read_sentences(tmp_path / name)
