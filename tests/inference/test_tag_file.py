"""Tags for JSON lines whose texts are damaged, or whose keys are those of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from bertine.core.errors import BertineError
from bertine.data.tables import Table
from bertine.families.bert import BertConfig
from bertine.inference import predict_files
from bertine.inference.predict import TagReport, predict
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.tasks.tagging import Tagging
from bertine.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def predictor(config: BertConfig, tokenizer: Tokenizer) -> Predictor:
    task = Tagging(("O", "B-x", "I-x"), max_length=24)
    torch.manual_seed(5)
    return Predictor(Model(config, task.heads(config)), tokenizer, task)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_list_of_json_is_tagged_like_lines(predictor: Predictor, tmp_path: Path) -> None:
    rows = [{"text": "the cat sat"}, {"words": ["a", "dog"]}]
    lines, whole = tmp_path / "in.jsonl", tmp_path / "in.json"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole.write_text(json.dumps(rows, indent=1))
    for source in (lines, whole):
        predict(predictor, source, tmp_path / f"{source.suffix}.jsonl")
    assert rows_of(tmp_path / ".json.jsonl") == rows_of(tmp_path / ".jsonl.jsonl")


def test_a_table_in_memory_gets_its_rows_with_their_tags(predictor: Predictor) -> None:
    words = [["the", "cat"], ["a", "dog", "sat"]]
    rows = predict(predictor, {"words": words, "id": [1, 2]}, show_progress=False)
    assert [row["words"] for row in rows] == words
    assert [len(row["tags"]) for row in rows] == [2, 3]
    texts = predict(predictor, {"text": ["the cat", "a dog sat"]}, show_progress=False)
    assert [row["text"] for row in texts] == ["the cat", "a dog sat"]


def test_what_is_not_read_stays_to_the_byte(predictor: Predictor, tmp_path: Path) -> None:
    text = "# schön ".encode() + b"\xff\n\nthe\t\xff\tDT\ncat\t" + "ü\tNN\n".encode()
    (tmp_path / "in.conll").write_bytes(text)
    predict(predictor, tmp_path / "in.conll", tmp_path / "out.conll")
    found = (tmp_path / "out.conll").read_bytes().split(b"\n")
    for line, before in zip(found, text.split(b"\n"), strict=True):
        assert line.startswith(before)
    (tmp_path / "in.jsonl").write_bytes(b'{"words": ["the", "cat"], "n": "\xc3\xbc\xff"}\n')
    predict(predictor, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert b'"n": "\xc3\xbc\xff"' in (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize("row", ['{"words": ["cat", "a\\ud800"]}', '{"text": "cat a\\ud800"}'])
def test_half_characters_are_mended_and_counted(
    predictor: Predictor, tmp_path: Path, row: str
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(f"{row}\n\n{row}\n")
    report = predict(predictor, source, out)
    assert report.notes[-2:] == [
        f"{source}: 2 bytes that are not valid UTF-8 (the file has another encoding or is damaged) "
        "were replaced by U+FFFD",
        f"{source}: 1 blank line was skipped",
    ]
    for found in rows_of(out):
        assert found.get("text", " ".join(found.get("words", []))) == "cat a\ufffd"
    with pytest.raises(BertineError, match=r"in\.jsonl:1: a lone surrogate"):
        predict(predictor, source, out, strict=True)


def test_keys_that_are_there_are_kept(predictor: Predictor, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"words": ["cat"], "tags": 1}\n{"words": ["a", "dog"]}\n')
    report = predict(predictor, source, out)
    first, second = rows_of(out)
    assert report.columns == ["predicted_tags", "entities"]
    assert first["tags"] == 1
    assert (len(first["predicted_tags"]), len(second["predicted_tags"])) == (1, 2)
    source.write_text('{"words": ["cat"]}\n{"words": ["a", "dog"], "tags": 1}\n')
    with pytest.raises(BertineError, match=r"in\.jsonl:2: has a key 'tags', but the first row has"):
        predict(predictor, source, out)


@pytest.mark.parametrize(
    "content",
    ['{"words": ["cat", "dog"]}\n{"words": []}\n', '{"text": "cat dog", "n": 1}\n', "cat\ndog\n"],
    ids=["words", "texts", "plain"],
)
def test_rows_become_parquet_by_the_name_of_the_output(
    predictor: Predictor, tmp_path: Path, content: str
) -> None:
    source = tmp_path / f"in.{'jsonl' if content.startswith('{') else 'txt'}"
    source.write_text(content)
    predict(predictor, source, tmp_path / "out.jsonl")
    report = predict(predictor, source, tmp_path / "out.parquet")
    assert isinstance(report, TagReport)
    found = pq.read_table(tmp_path / "out.parquet").to_pylist()
    flagged = [{k: v for k, v in row.items() if k != "empty" or v} for row in found]
    assert flagged == rows_of(tmp_path / "out.jsonl")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_column_file_does_not_become_parquet(predictor: Predictor, tmp_path: Path) -> None:
    source = tmp_path / "in.conll"
    source.write_text("cat O\ndog O\n")
    for name in ("out.parquet", "out.jsonl"):
        with pytest.raises(BertineError, match=rf"{name}: the tags of a column file are one more"):
            predict(predictor, source, tmp_path / name)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("value", "kind"), [("null", "null"), ("[1]", "a list"), ("7", "a number")]
)
def test_what_is_no_text_is_called_so(
    predictor: Predictor, tmp_path: Path, value: str, kind: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(f'{{"text": "the cat"}}\n{{"text": {value}}}\n')
    with pytest.raises(BertineError, match=rf"in\.jsonl:2: 'text' is {kind}, but must be a text"):
        predict(predictor, source, tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv", 'id,text\n1,"the old cat, sleeps"\n'),
        ("in.tsv", "id\ttext\n1\tthe old cat sleeps\n2\tthe dog barks\n"),
    ],
)
def test_a_table_of_texts_is_not_a_column_file(
    name: str, content: str, predictor: Predictor, tmp_path: Path
) -> None:
    path, out = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
    path.write_text(content, encoding="utf-8")
    report = predict(predictor, path, out, show_progress=False)
    before = [row.values for row in Table(path)]
    rows = [row.values for row in Table(out)]
    assert [{k: v for k, v in row.items() if k != "entities"} for row in rows] == before
    answers = predictor([row["text"] for row in before])
    assert [json.loads(row["entities"]) for row in rows] == [
        [entity.to_json() for entity in answer.entities] for answer in answers
    ]
    assert report.columns == ["entities"]
    predict(predictor, path, tmp_path / "lines.jsonl", format="text", show_progress=False)
    assert len(rows_of(tmp_path / "lines.jsonl")) == len(content.splitlines())


def test_a_column_file_may_be_called_tsv(predictor: Predictor, tmp_path: Path) -> None:
    path, out = tmp_path / "in.tsv", tmp_path / "out.tsv"
    path.write_text("# a comment with\ta tab\n1\tNew York\tO\n2\tsleeps\tO\n3\t.\tO\n")
    predict(predictor, path, out, word_column=2, show_progress=False)
    assert [line.count("\t") for line in out.read_text().splitlines()] == [1, 3, 3, 3]


def test_other_formats_of_answers_are_refused(predictor: Predictor, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("the cat sat\n")
    with pytest.raises(BertineError, match=r"out\.zip: rows of plain text are not .* \.zip"):
        predict(predictor, source, tmp_path / "out.zip")
    assert list(tmp_path.iterdir()) == [source]


def test_words_that_the_vocabulary_does_not_know_are_flagged(
    predictor: Predictor, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"words": ["the", "cat"]}\n{"words": ["好", "的"]}\n')
    report = predict(predictor, source, out)
    assert [row.get("unknown") for row in rows_of(out)] == [None, 1.0]
    assert any("1 of 2 texts is mostly unknown" in note for note in report.lines())


ODD = (
    "the cat \U0001f469\u200d\U0001f680 sat",
    "cafe\u0301\u00a0the\r\ncat, \u2764\ufe0fcat",
    "北京タワー the ประเทศ",
    '  "the" cat ',
    "",
)


def test_offsets_of_answers_count_the_characters_of_the_text_as_given(
    predictor: Predictor, tmp_path: Path
) -> None:
    answers = predictor(ODD)
    assert any(answer.entities for answer in answers)
    for text, answer in zip(ODD, answers, strict=True):
        assert all(text[one.start : one.end] == one.text for one in answer.entities)
    frame = [{"n": number, "body": text} for number, text in enumerate(ODD)]
    rows = predict(predictor, frame, text_columns="body", show_progress=False)
    assert [row["entities"] for row in rows] == [
        [entity.to_json() for entity in answer.entities] for answer in answers
    ]
    assert [row["body"] for row in rows] == list(ODD)


def test_a_table_goes_on_where_it_was_stopped(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, whole, out = tmp_path / "in.csv", tmp_path / "whole.csv", tmp_path / "out.csv"
    source.write_text("text,n\n" + "the cat sat,1\na dog,2\n" * 5)
    expected = predict(predictor, source, whole, show_progress=False)
    monkeypatch.setattr(predict_files, "CHUNK_ROWS", 2)
    run, calls = predictor.run, iter(range(3))

    def stopped(examples: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return run(examples)

    monkeypatch.setattr(predictor, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        predict(predictor, source, out, show_progress=False)
    monkeypatch.setattr(predictor, "run", run)
    report = predict(predictor, source, out, resume=True, show_progress=False)
    assert out.read_text() == whole.read_text()
    assert (report.rows_before, report.rows, report.words) == (6, 10, expected.words)
    assert report.entities == expected.entities


def test_a_table_without_a_text_is_named(predictor: Predictor, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,body\n1,the cat\n")
    with pytest.raises(BertineError, match=r"in\.csv:2: has neither words .*; it has 'id', 'body'"):
        predict(predictor, source, tmp_path / "out.csv")
    source.write_text("body\nthe cat\n")
    assert predict(predictor, source, tmp_path / "out.csv").words == 2
    with pytest.raises(BertineError, match=r"is not a column file; name its columns by text_col"):
        predict(predictor, source, tmp_path / "out.csv", word_column=1)
