"""Tagged words in Parquet, as the `datasets` library stores CoNLL: read, trained on, answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertine
import tagged
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.data.tagged_sentences import WordColumns, find_tagged, read_sentences
from bertine.hub.model_directory import load_model
from bertine.inference import predict_files
from bertine.inference.predictor import Predictor
from bertine.models.heads import Model
from bertine.options.data import DataConfig
from bertine.tasks.tagging import Tagging

NAMES = ["O", "B-animal", "I-animal", "B-dish", "I-dish"]


def write(path: Path, columns: dict[str, list[Any]], metadata: Any = None) -> Path:
    table = pa.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pq.write_table(table, path)
    return path


def features(**kinds: Any) -> dict[str, Any]:
    return {"info": {"features": kinds}}


def listed(count: int, seed: int = 0) -> dict[str, list[Any]]:
    sentences = tagged.sentences(count, seed)
    return {
        "id": [str(number) for number in range(count)],
        "tokens": [words for words, _ in sentences],
        "ner_tags": [tags for _, tags in sentences],
    }


def test_lists_of_words_and_tags_are_those_of_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "train.parquet", listed(12))
    tagged.write_json(tmp_path / "same.jsonl", 12)
    found, same = read_sentences(path), read_sentences(tmp_path / "same.jsonl")
    assert [item.words for item in found.items] == [item.words for item in same.items]
    assert [item.tags for item in found.items] == [item.tags for item in same.items]
    assert (found.text_columns, found.label_column) == (("tokens",), "ner_tags")
    assert found.scheme == "IOB2"
    assert find_tagged(tmp_path).train == path


def test_columns_are_named(tmp_path: Path) -> None:
    columns = {"form": [["a", "b"]], "pos": [["X", "Y"]], "label": [["O", "B-x"]]}
    path = write(tmp_path / "train.pq", columns)
    examples = read_sentences(path, columns=WordColumns(word_key="form", tag_key="pos"))
    assert examples.items[0].tags == ("X", "Y")
    with pytest.raises(BertineError, match=r"train\.pq: cannot tell which key holds the words; na"):
        read_sentences(path)
    with pytest.raises(BertineError, match=r"no column 'foam' \(did you mean 'form'\?\)"):
        read_sentences(path, columns=WordColumns(word_key="foam", tag_key="pos"))
    with pytest.raises(BertineError, match=r"train\.pq: is not a column file; name its columns"):
        read_sentences(path, columns=WordColumns(word_column=1, given=("word_column",)))
    with pytest.raises(BertineError, match=r"leave out format"):
        read_sentences(path, DataConfig(format="jsonl"))


@pytest.mark.parametrize(
    "feature",
    [
        {"_type": "Sequence", "feature": {"_type": "ClassLabel", "names": NAMES}},
        [{"_type": "ClassLabel", "names": NAMES}],
    ],
)
def test_numbers_are_the_names_that_the_file_tells(tmp_path: Path, feature: Any) -> None:
    rows = listed(6)
    numbered = [[NAMES.index(tag) for tag in tags] for tags in rows["ner_tags"]]
    numbers = {**rows, "ner_tags": numbered}
    path = write(tmp_path / "train.parquet", numbers, features(ner_tags=feature))
    assert [list(item.tags or ()) for item in read_sentences(path).items] == rows["ner_tags"]
    with pytest.raises(BertineError, match=r"parquet:1: 'ner_tags' holds numbers, and noth"):
        read_sentences(write(path, numbers, features(other=feature)))
    numbered[4][0] = 5
    with pytest.raises(BertineError, match=r"parquet:5: 'ner_tags' holds 5, but its names are"):
        read_sentences(write(path, numbers, features(ner_tags=feature)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"tokens": [["a"], ["a", "b"]], "tags": [["O"], ["O"]]}, r":2: 2 words \(tokens\), but 1"),
        ({"tokens": [["a"], None], "tags": [["O"], ["O"]]}, r":2: 'tokens' must be a list of tex"),
        ({"tokens": ["a b"], "tags": [["O"]]}, r":1: 'tokens' must be a list of texts"),
        ({"tokens": [["a"]], "tags": [[""]]}, r":1: the tag of word 1 is empty"),
        ({"tokens": [[]], "tags": [[]]}, r"has no words"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    path = tmp_path / "train.parquet"
    schema = {"tokens": pa.list_(pa.string()), "tags": pa.list_(pa.string())}
    kinds = [(n, pa.string() if isinstance(columns[n][0], str) else schema[n]) for n in columns]
    pq.write_table(pa.table(columns, schema=pa.schema(kinds)), path)
    with pytest.raises(BertineError, match=message):
        read_sentences(path)


@pytest.mark.takes(4)
def test_from_parquet_to_a_tagger_and_its_answers(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "train.parquet", listed(96))
    write(tmp_path / "dev.parquet", listed(24, seed=1))
    run, recipe = tmp_path / "run", ["--epochs", "4", "--batch-size", "8", "--max-length", "24"]
    given = ["--model", str(model), "--data", str(tmp_path), "--out", str(run)]
    fast = ["--learning-rate", "3e-3", "--precision", "fp32"]
    assert main(["finetune", "tagging", *given, *recipe, *fast]) == 0
    assert "text: tokens; label: ner_tags" in capsys.readouterr().err
    scores = json.loads((run / "scores.json").read_text())["final"]["metrics"]
    report = bertine.evaluate(run, tmp_path / "dev.parquet", precision="fp32", show_progress=False)
    assert report.metrics == scores

    out = tmp_path / "out.jsonl"
    dev = tmp_path / "dev.parquet"
    quiet: dict[str, Any] = {"precision": "fp32", "show_progress": False}
    told = bertine.predict(run, dev, out, **quiet)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    source = pq.read_table(dev).to_pylist()
    assert [{name: row[name] for name in source[0]} for row in rows] == source
    answers = bertine.Predictor.load(run, precision="fp32")([row["tokens"] for row in source])
    assert [tuple(row["tags"]) for row in rows] == [answer.tags for answer in answers]
    assert "tagged 24 sentences, 192 words" in told.lines()[0]
    with pytest.raises(BertineError, match=r"dev\.parquet: there is no column 'words'"):
        bertine.predict(run, dev, tmp_path / "no", text_columns="words", **quiet)
    # The same as Parquet, in the order of the columns; its lists are lists.
    table = tmp_path / "out.parquet"
    bertine.predict(run, dev, table, all_probabilities=True, **quiet)
    found = pq.read_table(table)
    assert found.column_names == ["id", "tokens", "ner_tags", "tags", "probabilities", "entities"]
    assert pa.types.is_list(found.schema.field("tags").type)
    kept = found.drop_columns(["probabilities"]).to_pylist()
    assert kept == rows
    for row in found.to_pylist():
        assert len(row["probabilities"]) == len(row["tags"])
    assert not list(tmp_path.glob(".out.parquet*"))


def test_rows_are_read_in_bounded_chunks(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(model)
    task = Tagging(("A", "B"), ("tokens",), max_length=16)
    predictor = Predictor(Model(loaded.config, task.heads(loaded.config)), loaded.tokenizer, task)
    sizes: list[int] = []
    run = predictor.run

    def counted(examples: Any) -> Any:
        sizes.append(len(examples))
        return run(examples)

    monkeypatch.setattr(predictor, "run", counted)
    monkeypatch.setattr(predict_files, "CHUNK_CHARACTERS", 30)
    path = write(tmp_path / "in.parquet", listed(9))
    bertine.predict(predictor, path, tmp_path / "out.jsonl", show_progress=False)
    assert sum(sizes) == 9
    assert max(sizes) <= 2


def test_what_is_said_in_vain_is_refused(model: Path, tmp_path: Path) -> None:
    """A scheme of tags that are in none; columns of plain text."""
    path = tmp_path / "train.conll"
    sentences = ["the DT\nold JJ", "cat NN\nsleeps VB", "the DT\ncat NN", "old JJ", "sleeps VB"]
    path.write_text("\n\n".join(sentences) + "\n")
    given: dict[str, Any] = {"max_length": 16, "epochs": 1, "precision": "fp32"}
    quiet: dict[str, Any] = {"precision": "fp32", "show_progress": False}
    run = tmp_path / "run"
    bertine.finetune("tagging", model=model, data=path, out=run, **given)
    with pytest.raises(BertineError, match=r"mark no entities, so they are in no scheme; leave"):
        bertine.evaluate(run, path, tag_scheme="IOB2", **quiet)
    bertine.evaluate(run, path, tag_scheme="plain", **quiet)
    text = tmp_path / "in.txt"
    text.write_text(toys.sentence("cat", "old") + "\n")
    named: dict[str, Any]
    for named in ({"text_columns": "words"}, {"word_column": 2}):
        with pytest.raises(BertineError, match=r"in\.txt: is plain text, which has no columns; l"):
            bertine.predict(run, text, tmp_path / "out", **quiet, **named)
