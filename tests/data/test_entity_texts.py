"""Texts with entities by characters: read as tagged words, whatever the texts hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.data.entities import Sentence, entities, split_words
from bertine.data.examples import read_examples
from bertine.data.in_memory import as_table
from bertine.data.tagged_sentences import read_sentences
from bertine.options.data import DataConfig

ADA = {"text": "Ada wrote to Babbage.", "entities": [{"start": 0, "end": 3, "label": "PER"}]}


def read(*rows: dict[str, Any], **options: Any) -> Any:
    return read_sentences(as_table(list(rows), "data"), DataConfig(**options))


def learnt(item: Sentence) -> list[tuple[int, int, str]]:
    """The entities that the tags of the words mark, by characters."""
    return [
        (item.offsets[e.begin][0], item.offsets[e.end - 1][1], e.type)
        for e in entities(item.tags or ())
    ]


#: Parts of texts: letters with marks, emoji of one and several code points, scripts without spaces,
#: signs, and white space of all kinds.
PARTS = st.sampled_from(
    ["Ada", "cafe\u0301", "e\u0301e\u0301", "\U0001f469\u200d\U0001f680", "\U0001f44d\U0001f3fd",
     "\u2764\ufe0f", "\U0001f600", "北京", "タワー", "ประเทศ", "서울", "नमस्ते", ".", "…", "“", "@x",
     "#y", "'s", "U.S.", "\u200b", "\ufeff"]
)  # fmt: skip
SPACES = st.sampled_from(["", " ", "\r\n", "\u00a0", "\t", "\n\n", "\u3000"])


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """A text, and entities of whole words that do not overlap."""
    parts = draw(st.lists(st.tuples(PARTS, SPACES), max_size=12))
    text = "".join(part + space for part, space in parts)
    words = split_words(text)
    bounds = sorted(draw(st.sets(st.integers(0, len(words)), max_size=8)))
    spans = [
        {"start": words[first][0], "end": words[after - 1][1], "label": draw(st.sampled_from("AB"))}
        for first, after in zip(bounds[::2], bounds[1::2], strict=False)
    ]
    return text, spans


@settings(max_examples=50)
@given(texts_with_spans())
def test_entities_of_whole_words_are_learnt_as_they_are(
    row: tuple[str, list[dict[str, Any]]],
) -> None:
    text, spans = row
    first, second = read({"text": text, "entities": spans}, ADA).items
    assert learnt(first) == [(one["start"], one["end"], one["label"]) for one in spans]
    assert [text[begin:end] for begin, end in first.offsets] == list(first.words)
    assert learnt(second) == [(0, 3, "PER")]


def test_the_same_rows_in_every_kind_of_table(tmp_path: Path) -> None:
    rows = [ADA, {"text": '"Hi",\r\nsaid \U0001f600 Ada\u00a0L.', "entities": []}]
    rows[1]["entities"] = [{"start": 14, "end": 20, "label": "PER"}]
    expected = read(*rows).items
    assert [learnt(item) for item in expected] == [[(0, 3, "PER")], [(14, 20, "PER")]]

    def check(name: str) -> None:
        items = read_sentences(tmp_path / name).items
        assert [(item.words, item.tags, item.spans) for item in items] == [
            (item.words, item.tags, item.spans) for item in expected
        ]

    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")

    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    for name, write in (("json", json.dumps), ("python", repr)):
        lines = [f"{quoted(row['text'])},{quoted(write(row['entities']))}\n" for row in rows]
        (tmp_path / f"{name}.csv").write_text("text,entities\n" + "".join(lines), newline="")
    for file in sorted(tmp_path.iterdir()):
        check(file.name)


def test_columns_are_named_and_entities_may_be_lists() -> None:
    row = {"id": 1, "body": "Ada wrote", "spans": [[0, 3, "PER"]]}
    found = read(row, text_columns="body", label_column="spans")
    assert (found.text_columns, found.label_column) == (("body",), "spans")
    assert found.items[0].tags == ("B-PER", "O")
    typed = read({"text": "Ada", "entities": [{"start": 0, "end": 3, "type": "PER"}]})
    assert typed.items[0].tags == ("B-PER",)


def test_what_words_cannot_mark_is_counted_with_examples() -> None:
    text = "New York, Berlins  x"
    spans = [(4, 8, "in"), (0, 8, "out"), (0, 8, "out"), (10, 16, "loc"), (17, 19, "x")]
    spans[-1] = (18, 20, "x")
    found = read({"text": text, "entities": spans})
    assert found.items[0].tags == ("B-out", "I-out", "O", "B-loc", "B-x")
    assert [(e.begin, e.end) for e in found.items[0].spans] == [(4, 8), (0, 8), (10, 16), (19, 20)]
    assert found.notes == [
        "data: 1 of 4 entities begin or end with spaces, which are left off: ' x' (index 0)",
        "data: 1 of 4 entities begin or end inside a word; they are learnt with the whole word, "
        "and count as missed in scores: 'Berlin' in 'Berlins' (index 0)",
        "data: 1 of 4 entities overlap a longer one; they are not learnt, and count as missed in "
        "scores: 'York' (index 0)",
    ]


def test_rows_without_entities_are_counted_an_empty_list_is_none() -> None:
    found = read(ADA, {"text": "nobody", "entities": []}, {"text": "not seen", "entities": None})
    assert [item.tags for item in found.items[1:]] == [("O",)]
    assert found.unlabelled == 1
    assert "1 row has no 'entities' and was left out (index 2)" in found.notes[0]
    with pytest.raises(BertineError, match=r"data\[1\]: has no 'entities'"):
        read(ADA, {"text": "not seen", "entities": None}, strict=True)


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((2, 2, "x"), r"entity 1 \('x'\) goes from 2 to 2 in a text of 3 characters"),
        ((1, 4, "x"), r"entity 1 \('x'\) goes from 1 to 4 in a text of 3 characters"),
        ((-1, 2, "x"), r"goes from -1 to 2"),
        ((1, 2, "x"), r"where the text has only spaces"),
        ((0, 1, " "), r"entity 1 has an empty label"),
        ((0, "1", "x"), r"it must be like \{\"start\": 0, \"end\": 3, \"label\": \"person\"\}"),
        ({"start": 0, "label": "x"}, r"entity 1 is \{'start': 0, 'label': 'x'\}; it must be"),
        ((0, 1), r"entity 1 is \[0, 1\]; it must be like"),
        ((0, 1, "b\ufffd"), r"with a damaged character"),
    ],
)
def test_an_entity_that_cannot_be_is_named(entity: Any, message: str) -> None:
    with pytest.raises(BertineError, match=rf"data\[1\].*{message}"):
        read(ADA, {"text": "a b", "entities": [entity]})


def test_words_and_tags_in_cells(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,sentence,tags\n1,Ada wrote to me,B-x O O O\n2,New York,B-x I-x\n")
    assert [item.tags for item in read_sentences(path).items][1] == ("B-x", "I-x")
    path.write_text('words,tags\n"[\'Ada\', \'ran\']","[""B-x"", ""O""]"\n')
    assert read_sentences(path).items[0].words == ("Ada", "ran")
    path.write_text("text,tags\nAda wrote to me,B-x O O\n")
    with pytest.raises(BertineError, match=r"in\.csv:2: 4 words \(text\), but 3 tags \(tags\)"):
        read_sentences(path)
    path.write_text("text,tags\nAda wrote,B-x O\nnot tagged, \n")
    assert "1 row has no 'tags'" in read_sentences(path).notes[0]
    path.write_text("text,label\nvery good,positive\n")
    with pytest.raises(BertineError, match=r"cannot tell which key holds the tags; name it with"):
        read_sentences(path)


def test_what_learns_labels_says_who_learns_entities() -> None:
    with pytest.raises(BertineError, match=r"data: has entities, which the task tagging learns"):
        read_examples(as_table([ADA], "data"))


def test_a_scheme_of_tags_is_refused_and_a_zero_character(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match=r"which are in no scheme of tags; leave out tag_scheme"):
        read(ADA, tag_scheme="IOB2")
    with pytest.raises(BertineError, match=r"data: has zero characters, .* offsets do not fit"):
        read({"text": "a\0 Ada.", "entities": [[3, 6, "PER"]]})
