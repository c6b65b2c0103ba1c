"""Files of vectors hold what an embedder gives, in every format, or are not there."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import bertine.inference.rows as rows_module
from bertine.core.errors import BertineError
from bertine.inference.embedding.embed import embed
from bertine.inference.embedding.embedder import Embedder
from tolerance import assert_close, network_terms

from .test_predictor import random_texts


def write_csv(path: Path, texts: list[str]) -> Path:
    path.write_text("id,text\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(texts)))
    return path


@pytest.fixture
def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "CHUNK_ROWS", 7)


@pytest.mark.usefixtures("chunked")
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_files_of_every_format_hold_the_vectors(deep: Path, tmp_path: Path, dtype: str) -> None:
    texts = [text or "cat" for text in random_texts(30)]
    embedder = Embedder.load(deep, precision="fp32", max_length=12)
    source = write_csv(tmp_path / "in.csv", texts)
    expected = embedder.embed(texts).astype(np.float16 if dtype == "fp16" else np.float32)

    def written(name: str) -> Path:
        report = embed(embedder, source, tmp_path / name, dtype=dtype, show_progress=False)
        assert (report.rows, report.dimensions, report.agreement) == (30, 32, None)
        long = sum(len(ids) > 10 for ids in embedder.tokenizer.encode_plain(texts))
        assert report.cut == long > 0
        assert any(f"{long} of 30 texts were cut at 12 pieces" in line for line in report.lines())
        return tmp_path / name

    mapped = np.load(written("out.npy"), mmap_mode="r")
    assert mapped.dtype == expected.dtype
    # Chunks put other texts beside a text, which moves its last bits.
    close: Any = {"terms": network_terms(5, 32)}
    if dtype == "fp16":
        close = {"terms": 1, "dtype": torch.float16}
    assert_close(mapped, expected, **close)
    lines = [json.loads(line) for line in written("out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["text"]) for row in lines] == [(str(i), t) for i, t in enumerate(texts)]
    exact = np.array([row["vector"] for row in lines])
    assert np.array_equal(exact.astype(expected.dtype), mapped)
    table = pq.read_table(written("out.parquet"))
    assert table.column("text").to_pylist() == texts
    kind = table.schema.field("vector").type
    assert (kind.list_size, kind.value_type) == (32, pa.from_numpy_dtype(expected.dtype))
    assert np.array_equal(np.array(table.column("vector").to_pylist(), dtype=mapped.dtype), mapped)
    files = ["out.npy", "out.jsonl", "out.parquet"]
    assert {each.name for each in tmp_path.iterdir()} == {
        "in.csv",
        *files,
        *(f"{name}.json" for name in files[:2]),
    }


@pytest.mark.usefixtures("chunked")
def test_vectors_of_tokens_in_files(deep: Path, tmp_path: Path) -> None:
    texts = random_texts(20)
    source = tmp_path / "in.txt"
    source.write_text("\n".join(texts) + "\n")
    embedder = Embedder.load(deep, pooling="tokens", precision="fp32")
    expected = embedder.embed_tokens(texts)
    for name in ("out.npy", "out.parquet", "out.jsonl"):
        embed(embedder, source, tmp_path / name, show_progress=False)
    flat, starts = np.load(tmp_path / "out.npy"), np.load(tmp_path / "out.offsets.npy")
    assert len(starts) == 21
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for at, each in enumerate(expected):
        close = functools.partial(assert_close, expected=each.vectors, terms=network_terms(5, 32))
        close(flat[starts[at] : starts[at + 1]])
        assert rows[at]["tokens"] == lines[at]["tokens"] == each.tokens
        close(rows[at]["vectors"])
        assert np.array_equal(np.float32(rows[at]["vectors"]), np.float32(lines[at]["vectors"]))


def test_columns_of_parquet_keep_their_kinds(deep: Path, tmp_path: Path) -> None:
    rows = [
        {"text": "cat", "id": 3, "score": 1, "right": True, "more": [1], "none": None},
        {"text": "dog", "id": 4, "score": 0.5, "right": None, "more": {"a": "b"}, "none": None},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    embed(deep, source, tmp_path / "out.parquet", show_progress=False)
    found = pq.read_table(tmp_path / "out.parquet").drop(["vector"]).to_pylist()
    expected = [{**row, "more": json.dumps(row["more"])} for row in rows]
    assert found == expected
    for bad, said in [
        ({"text": "a", "id": "x"}, r"in\.jsonl:2: the column 'id' is of the kind int"),
        ({"x": 1}, r"in\.jsonl:2: has a key 'x'"),
    ]:
        embedder = Embedder.load(deep)
        source.write_text(json.dumps(rows[0]) + "\n")
        with source.open("a") as handle:
            handle.write(json.dumps({**rows[1], **bad}) + "\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows_module, "CHUNK_ROWS", 1)
            with pytest.raises(BertineError, match=said):
                embed(embedder, source, tmp_path / "bad.parquet", show_progress=False)
        assert not (tmp_path / "bad.parquet").exists()


def test_a_whole_number_that_parquet_would_round_is_refused(deep: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    lines = ['{"text": "cat", "n": 0.5}', '{"text": "dog", "n": %d}']
    source.write_text("\n".join(lines) % (2**53 + 1))
    with pytest.raises(BertineError, match=r"in\.jsonl:2: the column 'n' is of the kind float"):
        embed(deep, source, out, show_progress=False)
    assert not out.exists()
    source.write_text("\n".join(lines) % 2**53)
    embed(deep, source, out, show_progress=False)
    assert pq.read_table(out).column("n").to_pylist() == [0.5, 2.0**53]


def test_a_table_without_rows_gives_files_without_rows(deep: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,text\n")
    for name in ("out.npy", "out.parquet", "out.jsonl"):
        assert embed(deep, source, tmp_path / name, show_progress=False).rows == 0
    assert np.load(tmp_path / "out.npy").shape == (0, 32)
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["id", "text", "vector"]
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_mistakes_leave_no_file(deep: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", ["a cat"])
    with pytest.raises(BertineError, match=r"out.txt: vectors are written to .npy"):
        embed(deep, source, tmp_path / "out.txt", show_progress=False)
    with pytest.raises(BertineError, match=r"in.csv: is a table, not a model; name it with input"):
        embed(source, source, tmp_path / "out.npy", show_progress=False)
    with pytest.raises(BertineError, match="dtype 'int8' is not known; choose fp32, fp16"):
        embed(deep, source, tmp_path / "out.npy", dtype="int8", show_progress=False)
    with pytest.raises(BertineError, match=r"there is no column 'txt' \(did you mean 'text'\?\)"):
        embed(deep, source, tmp_path / "out.npy", text_column="txt", show_progress=False)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(BertineError, match=r"folder\.npy: is a folder; name a file in it"):
        embed(deep, source, tmp_path / "folder.npy", show_progress=False)
    (tmp_path / "folder.npy").rmdir()
    source.write_text("id,body\n1,a cat\n")
    with pytest.raises(BertineError, match=r"cannot tell which column holds the text"):
        embed(deep, source, tmp_path / "out.npy", show_progress=False)
    source.write_text('id,text\n1,a cat\n2,"a dog\n')
    (tmp_path / "out.npy").write_bytes(b"before")
    with pytest.raises(BertineError, match=r"in.csv:3: not valid csv"):
        embed(deep, source, tmp_path / "out.npy", show_progress=False)
    assert (tmp_path / "out.npy").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 2


def test_numbers_beyond_16_bits_are_refused(deep: Path, tmp_path: Path) -> None:
    embedder = Embedder.load(deep, precision="fp32")
    with torch.no_grad():
        embedder.model.backbone.layers[-1].output_norm.weight.mul_(1e6)
    source = write_csv(tmp_path / "in.csv", ["a cat"])
    with pytest.raises(BertineError, match="beyond 65504, the most of fp16"):
        embed(embedder, source, tmp_path / "out.npy", dtype="fp16", show_progress=False)
    embed(embedder, source, tmp_path / "out.npy", show_progress=False)
