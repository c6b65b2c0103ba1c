"""A file of vectors remembers what made it, and `similar` compares it with nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertine.inference.embedding.embed as embed_module
import bertine.inference.embedding.similar as similar_module
from bertine.core.errors import BertineError
from bertine.data.tables import Table
from bertine.inference.embedding.embed import embed
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.similar import similar
from bertine.inference.embedding.vector_files import VectorMetadata
from bertine.inference.embedding.vectors import Cosines
from bertine.models.pooling import Pooling

from .test_predictor import random_texts

QUIET: dict[str, Any] = {"show_progress": False}


@pytest.fixture
def vectors(pretrained: Path, tmp_path: Path) -> Path:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{text or 'a'}\n" for text in random_texts(30)))
    embed(pretrained, source, tmp_path / "v.npy", precision="fp32", normalize=True, **QUIET)
    return tmp_path / "v.npy"


def test_it_says_how_the_vectors_were_made(vectors: Path, pretrained: Path) -> None:
    about = json.loads((vectors.parent / "v.npy.json").read_text())
    embedder = Embedder.load(pretrained)
    assert about["weights"] == embedder.model.fingerprint()
    assert about["tokenizer"] == embedder.tokenizer.fingerprint
    assert (about["pooling"], about["layer"], about["normalize"]) == (["mean"], 2, True)
    assert (about["prompt"], about["precision"], about["dtype"]) == ("", "fp32", "fp32")
    assert (about["rows"], about["dimensions"], about["max_length"]) == (30, 32, 40)
    assert about["model"] == "pretrained"
    assert str(vectors.parent) not in json.dumps(about)


@pytest.mark.parametrize("suffix", ["npy", "jsonl", "parquet"])
def test_files_of_every_format_say_it(suffix: str, pretrained: Path, tmp_path: Path) -> None:
    """Parquet in itself, where no other file can be lost."""
    (tmp_path / "in.txt").write_text("a cat\na dog\n")
    embed(pretrained, tmp_path / "in.txt", tmp_path / f"v.{suffix}", **QUIET)
    origin = VectorMetadata.read(tmp_path / f"v.{suffix}")
    assert origin is not None
    assert (origin.rows, origin.text_column, origin.named) == (2, "text", str(pretrained))
    assert (tmp_path / f"v.{suffix}.json").exists() == (suffix != "parquet")


def test_another_model_is_refused(vectors: Path, pretrained: Path, deep: Path) -> None:
    assert similar("a cat", vectors, model=pretrained, **QUIET).notes == []
    with pytest.raises(BertineError, match=r"v\.npy: was made with another model \(pretrained\)"):
        similar("a cat", vectors, model=deep, **QUIET)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"pooling": "cls"}, "was made with pooling mean, but the query has pooling cls"),
        ({"layer": 1}, "was made with layer 2, but the query has layer 1"),
    ],
)
def test_another_pooling_is_refused(
    how: dict[str, Any], said: str, vectors: Path, pretrained: Path
) -> None:
    with pytest.raises(BertineError, match=said):
        similar("a cat", vectors, model=pretrained, **how, **QUIET)
    # The last layer by another number is the same layer, and length does not change a cosine.
    assert similar("a cat", vectors, model=pretrained, layer=-1, **QUIET).rows == 30


def test_another_prompt_is_said(vectors: Path, pretrained: Path) -> None:
    """Models may have one prompt for queries and another for passages."""
    loaded = Embedder.load(pretrained, precision="fp32")
    asking = Embedder(loaded.model, loaded.tokenizer, Pooling(), prompt="the cat: ")
    found = similar("a cat", vectors, model=asking, **QUIET)
    assert found.notes == [f"before the texts of {vectors} stands '', before the query 'the cat: '"]


def test_vectors_belong_to_their_texts(vectors: Path, pretrained: Path) -> None:
    """The same number of other texts, or of the same in another order, is refused."""
    source = vectors.parent / "in.txt"
    lines = source.read_text().splitlines()
    asked: dict[str, Any] = {"input": vectors, "model": pretrained, "texts": source, **QUIET}
    assert similar(lines[3], **asked)[0].text == lines[3]
    for changed in ([*lines[1:], lines[0]], [*lines[:-1], "another text"]):
        source.write_text("".join(f"{line}\n" for line in changed))
        with pytest.raises(BertineError, match="made of other texts, or of these in another order"):
            similar(lines[3], **asked)
    about = vectors.parent / "v.npy.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "texts": ""}))  # an older one
    similar(lines[3], **asked)
    about.unlink()
    found = similar(lines[3], **asked)
    assert "nothing says which model made these vectors" in " ".join(found.notes)


def test_an_empty_query_has_no_answer(vectors: Path, pretrained: Path) -> None:
    asked: dict[str, Any] = {"input": vectors, "model": pretrained, **QUIET}
    found = similar(["the cat", " ", "soup"], **asked)
    assert [len(each) for each in found] == [10, 0, 10]
    assert "1 query is empty and has no answer (number 2)" in found.notes
    assert [row["query_row"] for row in found.records()] == [1] * 10 + [3] * 10
    assert found[0][0].score >= found[0][1].score
    with pytest.raises(BertineError, match="the query is empty"):
        similar("", **asked)


def test_vectors_of_elsewhere_are_compared_as_they_are(vectors: Path, pretrained: Path) -> None:
    (vectors.parent / "v.npy.json").unlink()
    assert similar("a cat", vectors, model=pretrained, pooling="cls", **QUIET).rows == 30


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, r"v\.npy\.json: is of another version"),
        ({"layer": "last"}, r"v\.npy\.json: does not say how vectors were made"),
        ({"pooling": [1]}, r"v\.npy\.json: does not say how vectors were made"),
        ({"rows": 31}, r"describes 31 vectors of 32, but .*v\.npy has the shape \[30, 32\]"),
    ],
)
def test_a_broken_or_old_description_is_refused(
    change: dict[str, Any], said: str, vectors: Path, pretrained: Path
) -> None:
    path = vectors.parent / "v.npy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BertineError, match=said):
        similar("a cat", vectors, model=pretrained, **QUIET)


def test_a_file_that_cannot_be_described_keeps_no_older_description(
    vectors: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if killed between the two files: better none than that of other vectors."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(embed_module.VectorMetadata, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        embed(pretrained, vectors.parent / "in.txt", vectors, pooling="cls", **QUIET)
    assert not (vectors.parent / "v.npy.json").exists()


def test_embed_says_on_how_many_texts_and_with_percentiles(
    pretrained: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{text or 'a'}\n" for text in random_texts(400)))
    embedder = Embedder.load(pretrained, precision="bf16")
    report = embed(embedder, tmp_path / "in.txt", tmp_path / "v.npy", **QUIET)
    assert report.agreement is not None
    assert report.compared == report.agreement.count == 40  # a tenth of the texts
    assert 0.99 < report.agreement.lowest <= report.agreement.median <= 1.0
    assert "cosine with fp32 over 40 sample texts: lowest 0.9" in report.lines()[1]


def test_cosines_are_those_of_their_definition() -> None:
    angles = np.radians(np.arange(101))  # 0 to 100 degrees
    ours = np.stack([np.cos(angles), np.sin(angles)], 1) * 3.0
    theirs = np.tile([[2.0, 0.0]], (101, 1))
    found = Cosines.between(ours, theirs)
    expected = np.cos(np.radians([100, 99, 95, 50]))
    given = (found.lowest, found.percent_1, found.percent_5, found.median)
    assert given == pytest.approx(tuple(expected))
    assert found.text() == "lowest -0.1736, 1% below -0.1564, 5% below -0.0872, median 0.6428"


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_table_with_vectors_is_not_embedded_again(
    suffix: str, pretrained: Path, deep: Path, tmp_path: Path
) -> None:
    rows = [{"id": at, "text": text or "a"} for at, text in enumerate(random_texts(20))]
    made = tmp_path / f"v.{suffix}"
    embed(pretrained, rows, made, precision="fp32", **QUIET)
    asked: dict[str, Any] = {"model": pretrained, "precision": "fp32", **QUIET}
    from_texts = similar(rows[3]["text"], rows, **asked)
    embedded = similar(rows[3]["text"], made, **asked)
    assert [(each.row, each.text, each.columns) for each in embedded] == [
        (each.row, each.text, each.columns) for each in from_texts
    ]
    assert embedded.notes == []
    with pytest.raises(BertineError, match=r"was made with another model \(pretrained\)"):
        similar("a cat", made, **asked | {"model": deep})
    embed(pretrained, rows, tmp_path / "t.parquet", pooling="tokens", **QUIET)
    with pytest.raises(BertineError, match="was made with pooling tokens, but the query has"):
        similar("a cat", tmp_path / "t.parquet", **asked)
    with Table(made) as table:
        read = [row.values for row in table]
    ends = np.eye(32, dtype=np.float32)[:20].tolist()
    turned = [row | {"vector": end} for row, end in zip(read, ends, strict=True)]
    in_memory = similar("a cat", turned, **asked)
    query = Embedder.load(pretrained, precision="fp32").embed("a cat")
    assert in_memory[0].row == int(np.argmax(query[:20])) + 1
    assert "input: is in memory, so nothing says which model made" in in_memory.notes[0]
    for bad in ([1.0], [10**400, *ends[0][1:]], None):
        read[5]["vector"] = bad
        with pytest.raises(BertineError, match=r"input\[5\]: 'vector' is not 32 numbers, as the"):
            similar("a cat", read, **asked)


def test_a_table_with_vectors_belongs_to_its_texts(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "v.jsonl"
    embed(pretrained, {"text": ["a cat", "a dog"]}, made, **QUIET)
    lines = made.read_text().splitlines()
    for changed in (lines[::-1], lines[:1], [lines[0].replace("cat", "dog"), lines[1]]):
        made.write_text("".join(f"{line}\n" for line in changed))
        with pytest.raises(BertineError, match="its vectors were made of other texts, or of these"):
            similar("a cat", made, model=pretrained, **QUIET)
    made.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(similar_module, "QUERIES", 2)  # the table is read again for the third
    assert similar(["a cat"] * 3, made, model=pretrained, top=1, **QUIET)[2][0].row == 1
