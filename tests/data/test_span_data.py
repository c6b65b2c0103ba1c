"""Reading questions: SQuAD's JSON, what is odd in it, and what is held out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bertine.core.errors import BertineError
from bertine.data.spans import (
    read_questions,
    read_span_evaluation,
    read_span_splits,
)
from bertine.data.squad import Gold, load_squad, read_squad
from bertine.options.data import DataConfig

CONTEXT = "The oil crisis began in October 1973 , and in October 1974 it was over ."
Answer = tuple[str, int]


def question(name: str, *answers: Answer, **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"When, {name}?", "answers": listed, **more}


def squad(*questions: dict[str, Any], version: str = "1.1", context: str = CONTEXT) -> Any:
    paragraphs = [{"context": context, "qas": list(questions)}]
    return {"version": version, "data": [{"title": "Oil", "paragraphs": paragraphs}]}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_questions_and_answers_of_v1(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dev-v1.1.json",
        squad(question("a", ("October 1973", 24), ("1973", 32)), question("b", ("oil", 4))),
    )
    examples = read_squad(path)
    assert [item.id for item in examples.items] == ["a", "b"]
    assert examples.items[0].texts == ("When, a?", CONTEXT)
    assert examples.items[0].label == Gold(("October 1973", "1973"), (24, 36), False)
    assert (examples.v2, examples.dataset) == (False, "squad/v1.1")
    assert examples.notes == []
    assert examples.unaligned == []


@pytest.mark.parametrize(
    ("content", "v2"),
    [
        (squad(question("a", ("oil", 4)), version="v2.0"), True),
        (squad(question("a", ("oil", 4)), version="2.0"), True),
        (squad(question("a", ("oil", 4), is_impossible=False), version="my own"), True),
        (squad(question("a", ("oil", 4)), version="my own"), False),
    ],
)
def test_the_version_is_told_from_the_data(tmp_path: Path, content: Any, v2: bool) -> None:
    examples = read_squad(write(tmp_path / "train.json", content))
    assert examples.v2 == v2
    assert examples.items[0].label is not None
    assert examples.items[0].label.v2 == v2


def test_answers_that_are_not_at_their_place_are_listed_and_the_nearest_is_taken(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "train-v1.1.json",
        squad(
            question("right", ("October", 24)),
            question("second", ("October", 46)),
            question("off by two", ("October", 44)),
            question("beyond", ("October", 4000)),
            question("negative", ("oil", -3)),
            question("other case", ("OIL", 4)),
            question("no answer"),
        ),
    )
    examples = read_squad(path)
    spans = {item.id: item.label.span for item in examples.items if item.label}
    second = CONTEXT.index("October", 30)
    assert spans == {
        "right": (24, 31),
        "second": (second, second + 7),
        "off by two": (second, second + 7),
        "beyond": (second, second + 7),
        "negative": (4, 7),
        "other case": None,
        "no answer": None,
    }
    assert {answer.id: answer.found for answer in examples.unaligned} == {
        "off by two": f"found at {second}",
        "beyond": f"found at {second}",
        "negative": "found at 4",
        "other case": "not in the context",
        "no answer": "no answer",
    }
    notes = "\n".join(examples.notes)
    assert "1 of 6 gold answers are not in their context (other case 'OIL')" in notes
    assert "3 of 6 gold answers are not where answer_start says" in notes
    trained = examples.trainable()
    assert [item.id for item in trained.items] == [
        *("right", "second", "off by two", "beyond", "negative")
    ]
    assert "2 of 7 questions are not trained on" in trained.notes[-1]
    assert trained.unaligned == examples.unaligned
    # To be scored, a gold answer need not be in the context.
    scored = examples.scorable()
    assert [item.id for item in scored.items][-1] == "other case"
    assert "1 of 7 questions have no gold answer" in scored.notes[-1]


def test_questions_without_an_answer_count_in_v2_alone(tmp_path: Path) -> None:
    content = squad(
        question("yes", ("oil", 4), is_impossible=False),
        question("no", is_impossible=True),
        question("said impossible", ("oil", 4), is_impossible=True),
        version="v2.0",
    )
    examples = read_squad(write(tmp_path / "train-v2.0.json", content))
    assert len(examples.trainable()) == len(examples.scorable()) == 3
    assert [item.label.answerable for item in examples.items if item.label] == [True, False, True]
    assert "1 question is called impossible and with answers" in examples.notes[0]
    path = write(tmp_path / "none.json", squad(question("a"), question("b")))
    with pytest.raises(BertineError, match=r"none\.json: no question has an answer that is in"):
        read_squad(path).trainable()
    with pytest.raises(BertineError, match=r"none\.json: no question has an answer to compare"):
        read_squad(path).scorable()


def test_a_test_file_has_no_labels(tmp_path: Path) -> None:
    unknown = {"id": "a", "question": "When?"}
    examples = read_squad(write(tmp_path / "test.json", squad(unknown)))
    assert examples.items[0].label is None
    silent = [unknown | {"is_impossible": given} for given in (True, False)]
    examples = read_squad(write(tmp_path / "test.json", squad(*silent)))
    assert [item.label for item in examples.items] == [Gold((), None, True), None]
    broken = squad(question("a") | {"answers": "hidden"})
    assert len(read_squad(write(tmp_path / "test.json", broken), answers=False)) == 1


def test_empty_contexts_ids_that_come_twice_and_half_characters_are_counted(
    tmp_path: Path,
) -> None:
    content = squad(question("a", ("x", 0)), question("a", ("", 0)), context=" ")
    content["data"] += squad(question("b", ("\ud800il", 4)), context="The \ud800il")["data"]
    content["data"][0]["paragraphs"][0]["qas"][1]["question"] = " "
    examples = read_squad(write(tmp_path / "dev.json", content))
    notes = "\n".join(examples.notes)
    assert "2 of 3 contexts are empty" in notes
    assert "1 of 3 questions are empty" in notes
    assert "1 ids stand for more than one question" in notes
    assert "1 of 3 gold answers are empty texts" in notes
    assert "2 texts with half a character" in notes
    assert examples.items[2].label is not None
    assert examples.items[2].label.span == (4, 7)
    with pytest.raises(BertineError, match=r"paragraphs\[0\]: 'context' has half a character"):
        read_questions(tmp_path / "dev.json", DataConfig(strict=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, "has no questions"),
        ({"data": [{}]}, r"data\[0\]: has no 'paragraphs', which must be a list"),
        ({"data": ["x"]}, r"data\[0\]: is a text, but must be an object"),
        ({"data": [{"paragraphs": {}}]}, r"data\[0\]: 'paragraphs' is an object, but must be a l"),
        ({"data": [{"paragraphs": [{}]}]}, r"data\[0\].paragraphs\[0\]: has no 'context', which"),
        (squad({"id": "a"}), r"paragraphs\[0\].qas\[0\]: has no 'question', which must be a text"),
        (squad({"question": "a"}), r"qas\[0\]: has no id"),
        (squad(question("a") | {"answers": "x"}), r"qas\[0\]: 'answers' is a text, but must be"),
        (squad(question("a", ("oil", "4"))), r"answers\[0\]: 'answer_start' is a text, but must"),
        (squad(question("a", ("oil", 4.5))), r"answer_start' is a number, but must be a whole nu"),
        (squad(question("a", ("oil", True))), r"answers\[0\]: 'answer_start' is a truth value"),
        (squad(question("a", is_impossible="no")), r"qas\[0\]: 'is_impossible' is a text, but mu"),
        (squad(question("a"), context=7), r"paragraphs\[0\]: 'context' is a number, but must be"),
        (
            [1],
            r"train\.json: is a list, but SQuAD's format is one JSON object with a list",
        ),
        ({"data": {}}, r'is an object whose "data" is an object, but'),
        ({"version": "1.1"}, r"is an object with the keys 'version', but SQuAD's format"),
    ],
)
def test_a_broken_file_names_its_place(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path / "train.json", content)
    with pytest.raises(BertineError, match=message) as caught:
        read_squad(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", r"train\.json: the file is empty"),
        (b" \n\n", r"train\.json: the file is empty"),
        (
            b'{"data": [{"para',
            r"json:1:12: not valid JSON \(Unterminated .*; is the file cut",
        ),
        (b'{\n "data": [\n  {"title": "a",}\n ]\n}', r"train\.json:3:\d+: not valid JSON \(.*\);"),
        (b"{'data': []}", r"json:1:2: not valid JSON \(Expecting property name .* a list \"data\""),
        ("{}".encode("utf-16"), r"train\.json: is an object with no keys, but SQuAD's"),
        (b'{"version": "1.1",\n"data": ["\xff"]}', r"json:2: invalid UTF-8 \(byte 0xff\); save"),
        (b"[" * 100_000, r"train\.json: not valid JSON \("),
        (b'{"question": "a"}\n{"question": "b"}\n', r"json: is JSON lines, but SQuAD's format"),
    ],
)
def test_json_that_is_broken_or_something_else_is_told_by_place(
    tmp_path: Path, raw: bytes, message: str
) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(raw)
    with pytest.raises(BertineError, match=message) as caught:
        read_span_splits(path, official=True)
    assert "\n" not in str(caught.value)


def test_nothing_is_said_of_the_columns_of_squads_files_in_vain(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.json", squad(question("a", ("oil", 4))))
    given: dict[str, Any] = {"text_columns": ["q", "c"], "label_column": "a", "quotes": False}
    for name, value in given.items():
        option, config = "--" + name.replace("_", "-"), DataConfig(**{name: value})
        for data in (path, tmp_path):
            with pytest.raises(BertineError, match=rf"dev\.json: .* leave out {name} \({option}\)"):
                read_span_evaluation(data, config, trained_with=(["q", "c"], None))
    columns = (["q", "c"], "a")
    assert len(read_span_evaluation(path, DataConfig(label_column=None), trained_with=columns)) == 1
    table = tmp_path / "own.csv"
    table.write_text("q,c,a,b\nwhat ?,The oil .,oil,The\n")
    assert read_span_evaluation(table, trained_with=columns).label_column == "a"
    assert (
        read_span_evaluation(table, DataConfig(label_column="b"), trained_with=columns).label_column
        == "b"
    )


def test_what_is_squads_format_and_what_is_not(tmp_path: Path) -> None:
    content = squad(question("a", ("oil", 4)))
    packed = tmp_path / "dev.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert load_squad(packed) == content
    assert len(read_questions(packed)) == 1
    lines = tmp_path / "lines.json"
    lines.write_text('{"question": "a", "context": "b", "answer": "b"}\n' * 2)
    assert load_squad(lines) is None
    assert len(read_questions(lines)) == 2
    assert load_squad(write(tmp_path / "data.jsonl", content)) is None
    assert load_squad("-") is None


# Splits


def test_the_dev_file_is_found_beside_the_training_file(tmp_path: Path) -> None:
    for version in ("1.1", "2.0"):
        for part in ("train", "dev"):
            content = squad(question(f"{part}{version}", ("oil", 4)), version=f"v{version}")
            write(tmp_path / f"{part}-v{version}.json", content)
    path = tmp_path / "train-v2.0.json"
    train, validation = read_span_splits(path, official=True)
    assert [item.id for item in train.items] == ["train2.0"]
    assert [item.id for item in validation.items] == ["dev2.0"]
    with pytest.raises(BertineError, match=r"has train-v1\.1\.json and train-v2\.0\.json; name"):
        read_span_splits(tmp_path, official=True)
    with pytest.raises(BertineError, match=r"has dev-v1\.1\.json and dev-v2\.0\.json; name"):
        read_span_evaluation(tmp_path)
    for part in ("train", "dev"):
        (tmp_path / f"{part}-v1.1.json").unlink()
    train, validation = read_span_splits(tmp_path, official=True)
    assert [item.id for item in validation.items] == ["dev2.0"]
    assert [item.id for item in read_span_evaluation(tmp_path).items] == ["dev2.0"]
    # One's own task takes the file, too, but its columns are what they are.
    with pytest.raises(BertineError, match=r"whose columns and quotes are known; leave out label"):
        read_span_splits(path, DataConfig(label_column="answer"), official=False)
    train, validation = read_span_splits(path, official=False)
    assert [item.id for item in validation.items] == ["dev2.0"]


def test_a_folder_of_ones_own_may_hold_json(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write(tmp_path / f"{part}.json", squad(question(part, ("oil", 4))))
    for official in (True, False):
        train, validation = read_span_splits(tmp_path, official=official)
        assert [item.id for item in train.items] == ["train"]
        assert [item.id for item in validation.items] == ["val"]
    assert [item.id for item in read_span_evaluation(tmp_path).items] == ["val"]
    table = "id,question,context,answer\n"
    (tmp_path / "val.json").unlink()
    (tmp_path / "dev.csv").write_text(f"{table}1,a,b c,b\n")
    with pytest.raises(BertineError, match=r"dev\.csv: is not read beside train\.json; give both"):
        read_span_splits(tmp_path, official=False)
    (tmp_path / "dev.csv").unlink()
    (tmp_path / "train.csv").write_text(table + "".join(f"{i},a,b c{i},b\n" for i in range(9)))
    train, _ = read_span_splits(tmp_path, official=False)
    assert train.source.startswith(f"{tmp_path / 'train.csv'}")


def test_what_is_held_out_shares_no_context(tmp_path: Path) -> None:
    contexts = [f"It was in {year} ." for year in range(1900, 1930)]
    content = {
        "version": "1.1",
        "data": [
            squad(
                *(question(f"{context[10:14]}-{number}", ("was", 3)) for number in range(3)),
                context=context,
            )["data"][0]
            for context in contexts
        ],
    }
    path = write(tmp_path / "all.json", content)
    train, held = read_span_splits(path, DataConfig(seed=5), official=True)
    assert len(train) + len(held) == 90
    assert 9 <= len(held) <= 11
    assert not {item.texts[1] for item in train.items} & {item.texts[1] for item in held.items}
    again = read_span_splits(path, DataConfig(seed=5), official=True)
    assert [part.fingerprint() for part in again] == [train.fingerprint(), held.fingerprint()]
    other = read_span_splits(path, DataConfig(seed=6), official=True)[1]
    assert other.fingerprint() != held.fingerprint()
    write(path, squad(question("a", ("oil", 4)), question("b", ("oil", 4))))
    with pytest.raises(BertineError, match="about 1 contexts; give a folder"):
        read_span_splits(path, DataConfig(seed=5), official=True)


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="no such file or folder"):
        read_span_splits(tmp_path / "no", official=True)
    with pytest.raises(BertineError, match="has no training file of SQuAD"):
        read_span_splits(tmp_path, official=True)
    path = tmp_path / "train.csv"
    path.write_text("question,context,answer\na,b,b\n")
    with pytest.raises(BertineError, match="use 'bertine finetune spans'"):
        read_span_splits(path, official=True)
    with pytest.raises(BertineError, match="columns and the format of SQuAD's files are known"):
        read_span_splits(path, DataConfig(label_column="answer"), official=True)
    with pytest.raises(BertineError, match="holds only training data"):
        read_span_evaluation(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_json(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(squad(question("a", ("oil", 4)))), encoding="utf-8-sig")
    assert len(read_squad(path)) == 1
