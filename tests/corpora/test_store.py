from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toys
from bertine.core.errors import BertineError
from bertine.corpora.store import MANIFEST, TokenStore, token_dtype
from bertine.corpora.store_writer import MAX_SENTENCE
from bertine.tokenization.tokenizer import Tokenizer

from .conftest import FIRST_ID, MakeStore

lengths = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=100), min_size=1, max_size=20)


def written(
    folder: Path, vocab_size: int, documents: list[list[list[int]]], **options
) -> TokenStore:
    folder.mkdir()
    with toys.DocumentWriter(folder, vocab_size=vocab_size, **options) as writer:
        for document in documents:
            writer.add_document(document)
        writer.finish({"tokenizer_fingerprint": "x", "language": "en"})
    return TokenStore.open(folder)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(documents=lengths, batch=st.integers(1, 500), shard=st.integers(1, 2000))
def test_what_is_written_is_read(make_store: MakeStore, documents, batch: int, shard: int):
    store, _ = make_store(documents, record_batch_tokens=batch, shard_tokens=shard)
    store.verify()
    assert store.num_documents == len(documents)
    assert store.num_sentences == sum(map(len, documents))
    assert store.num_tokens == sum(map(sum, documents))
    position = 0
    for number, expected in enumerate(documents):
        document = store.document(number)
        assert document.sentence_lengths.tolist() == expected
        total = sum(expected)
        ids = np.arange(position, position + total) + FIRST_ID
        assert np.array_equal(document.input_ids, ids)
        for offset in {0, total // 2, total - 1}:
            assert store.locate(position + offset) == (number, offset)
        chunk, row = store.row(number)
        starts = np.cumsum([0, *expected])
        for sentence in {0, len(expected) // 2, len(expected) - 1}:
            assert chunk.sentence_start(row, sentence) == starts[sentence]
        for offset in range(0, total, 7):
            sentence = int(np.searchsorted(starts, offset, side="right")) - 1
            assert chunk.sentence_at(row, offset) == (sentence, starts[sentence])
        position += total


def test_documents_may_arrive_in_any_pieces(tmp_path: Path):
    documents = [[[1, 2], [3]], [[4]], [[5, 6, 7], [8], [9, 10]]]
    whole = written(tmp_path / "whole", 20, documents)
    (tmp_path / "pieces").mkdir()
    with toys.DocumentWriter(tmp_path / "pieces", vocab_size=20, record_batch_tokens=4) as writer:
        writer.append(np.array([1, 2]), np.array([2]), np.array([], int))
        writer.append(np.array([3, 4, 5, 6, 7]), np.array([1, 1, 3]), np.array([1, 2]))
        writer.append(np.array([8, 9, 10]), np.array([1, 2]), np.array([], int))
        writer.finish({"tokenizer_fingerprint": "x"})
    pieces = TokenStore.open(tmp_path / "pieces")
    assert pieces.num_documents == whole.num_documents == 3
    for i in range(3):
        ours, theirs = pieces.document(i), whole.document(i)
        assert ours.input_ids.tolist() == theirs.input_ids.tolist()
        assert ours.sentence_lengths.tolist() == theirs.sentence_lengths.tolist()


def test_what_has_no_token_is_dropped_and_counted(tmp_path: Path):
    documents = [[], [[1], [], [2, 3]], [[], []], [[4]], []]
    store = written(tmp_path / "s", 20, documents)
    assert [store.document(i).input_ids.tolist() for i in range(2)] == [[1, 2, 3], [4]]
    assert store.document(0).sentence_lengths.tolist() == [1, 2]
    assert store.manifest["dropped"] == {
        "documents_without_tokens": 3,
        "sentences_without_tokens": 3,
    }
    assert store.manifest["single_sentence_documents"] == 1


def test_a_sentence_too_long_for_two_bytes_is_cut_and_counted(tmp_path: Path):
    (tmp_path / "s").mkdir()
    sizes = np.array([5, 2 * MAX_SENTENCE + 1, MAX_SENTENCE, 7])
    with toys.DocumentWriter(tmp_path / "s", vocab_size=10) as writer:
        writer.append(np.arange(sizes.sum()) % 10, sizes, np.array([1, 3, 4]))
        writer.finish({"tokenizer_fingerprint": "x"})
    store = TokenStore.open(tmp_path / "s")
    store.verify()
    assert store.document(1).sentence_lengths.tolist() == [MAX_SENTENCE] * 2 + [1, MAX_SENTENCE]
    assert [store.document(i).sentence_lengths.tolist() for i in (0, 2)] == [[5], [7]]
    assert store.manifest["cut_sentences"] == 1


@pytest.mark.parametrize(
    ("vocab_size", "dtype"),
    [(256, "uint8"), (257, "uint16"), (30522, "uint16"), (65536, "uint16"), (65537, "uint32")],
)
def test_ids_are_stored_in_the_smallest_integer(tmp_path: Path, vocab_size: int, dtype: str):
    assert token_dtype(vocab_size) == dtype
    store = written(tmp_path / "s", vocab_size, [[[vocab_size - 1]]])
    assert store.document(0).input_ids.dtype == dtype
    assert store.document(0).input_ids.tolist() == [vocab_size - 1]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_no_file_stays_open(tmp_path: Path):
    """A store of a thousand input files has a thousand shards; a process has 1,024 files."""
    documents = [[[5] * 40] * 3] * 30
    store = written(tmp_path / "s", 300, documents, record_batch_tokens=100, shard_tokens=100)
    assert len(list(store.path.glob("tokens-*.arrow"))) == 30
    before = len(os.listdir("/proc/self/fd"))
    views = [store.document(i).input_ids for i in range(30)]
    assert len(os.listdir("/proc/self/fd")) <= before
    del store
    assert all(view.tolist() == [5] * 120 for view in views)


def test_unigram_entropy_is_that_of_the_counts(tmp_path: Path):
    store = written(tmp_path / "s", 8, [[[1, 1, 1, 1], [2, 2]], [[3, 3]]])
    assert store.unigram_counts.tolist() == [0, 4, 2, 2, 0, 0, 0, 0]
    assert store.unigram_entropy == pytest.approx(1.5 * np.log(2))


def test_memory_of_writing_does_not_grow_with_the_store(tmp_path: Path):
    def peak(num_documents: int) -> int:
        folder = tmp_path / str(num_documents)
        folder.mkdir()
        ids, sizes = np.arange(5000) % 1000, np.full(250, 20)
        tracemalloc.start()
        arrow = pa.total_allocated_bytes()
        with toys.DocumentWriter(
            folder, vocab_size=1000, record_batch_tokens=100_000, shard_tokens=1_000_000
        ) as writer:
            for _ in range(num_documents):
                writer.append(ids, sizes, np.array([250]))
            writer.finish({"tokenizer_fingerprint": "x"})
        used = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - arrow
        tracemalloc.stop()
        return used

    small, large = peak(100), peak(1600)
    assert large < 1.2 * small


@pytest.mark.slow
def test_ids_are_views_into_the_mapped_file(tmp_path: Path):
    store = written(tmp_path / "s", 30522, [[[1] * 1000] * 1000] * 20)
    before = pa.total_allocated_bytes()
    for i in range(20):
        ids = store.document(i).input_ids
        assert not ids.flags.owndata
        assert not ids.flags.writeable
    assert pa.total_allocated_bytes() - before < 1 << 16


def test_ids_outside_the_vocabulary_are_not_written(tmp_path: Path):
    with (
        toys.DocumentWriter(tmp_path, vocab_size=10) as writer,
        pytest.raises(ValueError, match="of 10"),
    ):
        writer.add_document([[3, 10]])


def edit(store: TokenStore, **changes) -> None:
    (store.path / MANIFEST).write_text(json.dumps(store.manifest | changes))


def test_another_tokenizer_is_refused_and_both_are_named(make_store: MakeStore):
    store, tokenizer = make_store([[3, 2], [4]])
    other = Tokenizer.from_vocab([*tokenizer.tokens, "more"])
    with pytest.raises(BertineError) as error:
        TokenStore.open(store.path, other)
    assert tokenizer.fingerprint[:12] in str(error.value)
    assert other.fingerprint[:12] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("keep", [0, 1, 100, -8])
def test_a_truncated_shard_is_an_error(make_store: MakeStore, keep: int):
    store, _ = make_store([[30] * 50] * 3)
    shard = store.path / "tokens-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(BertineError, match=r"tokens-00000\.arrow: .*truncated"):
        TokenStore.open(store.path)


def test_a_shard_without_its_end_is_an_error_even_if_the_size_is_not_checked(
    make_store: MakeStore,
):
    store, _ = make_store([[30] * 50] * 3)
    shard = store.path / "tokens-00000.arrow"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[: size // 2].ljust(size, b"\0"))
    with pytest.raises(BertineError, match=r"tokens-00000\.arrow: damaged"):
        TokenStore.open(store.path).document(0)


def test_a_missing_shard_is_an_error(make_store: MakeStore):
    store, _ = make_store([[5] * 5] * 9, record_batch_tokens=10, shard_tokens=50)
    (store.path / "tokens-00001.arrow").unlink()
    with pytest.raises(BertineError, match=r"tokens-00001\.arrow: missing"):
        TokenStore.open(store.path)


def test_a_changed_byte_is_found_by_verify(make_store: MakeStore):
    store, _ = make_store([[30] * 50] * 3)
    shard = store.path / "tokens-00000.arrow"
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(BertineError, match=r"tokens-00000\.arrow: its checksum"):
        TokenStore.open(store.path).verify()


def test_an_id_outside_the_vocabulary_is_found_and_its_document_named(make_store: MakeStore):
    store, _ = make_store([[5], [5], [5]], record_batch_tokens=5)
    edit(store, vocab_size=FIRST_ID + 12)
    with pytest.raises(BertineError, match=rf"document 2 holds the id {FIRST_ID + 12}"):
        TokenStore.open(store.path).verify()


@pytest.mark.parametrize("name", ["num_documents", "num_sentences", "num_tokens"])
def test_a_wrong_count_is_found_by_verify(make_store: MakeStore, name: str):
    store, _ = make_store([[5, 4], [5]])
    edit(store, **{name: store.manifest[name] + 1})
    with pytest.raises(BertineError, match=name):
        TokenStore.open(store.path).verify()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no token store there"),
        ("{", "not valid JSON"),
        ("[]", "not the manifest"),
        ('{"format": "other"}', "not the manifest"),
        ('{"format": "bertine-token-store", "format_version": 2}', "format version 2"),
        ('{"format": "bertine-token-store", "format_version": 1}', "damaged"),
        ('{"format": "bertine-token-store", "format_version": 1, "shards": 3}', "damaged"),
    ],
)
def test_what_is_not_a_store_is_refused(tmp_path: Path, content: str | None, message: str):
    if content is not None:
        (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(BertineError, match=message):
        TokenStore.open(tmp_path)


def test_damaged_unigram_counts_are_an_error(make_store: MakeStore):
    store, _ = make_store([[5, 4], [5]])
    file = store.path / "unigram_counts.npy"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(BertineError, match=r"counts\.npy: is damaged, .* make the store again"):
        _ = TokenStore.open(store.path).unigram_entropy
    np.save(file, np.zeros(3, np.int64))
    with pytest.raises(BertineError, match="has shape"):
        _ = TokenStore.open(store.path).unigram_entropy
