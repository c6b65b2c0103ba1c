"""Checkpoints of TensorFlow are read without it, and other files end in one line."""

from __future__ import annotations

import math
import random
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertine.contrib.tensorflow.bundle import Bundle, crc32c, decompress
from bertine.core.errors import BertineError

from . import bundles

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tensorflow"
GOOGLE = FIXTURES / "google-bert-tiny" / "bert_model.ckpt.index"
CHINESE = FIXTURES / "tf1-index-bert-base-chinese" / "bert_model.ckpt.index"


def bit_by_bit(data: bytes) -> int:
    """CRC-32C by its definition."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_crc32c_gives_the_published_values() -> None:
    # RFC 3720, appendix B.4.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("size", [0, 1, 127, 128, 511, 512, 4099, 16_384, 20_001])
def test_crc32c_of_any_length_and_place(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 3, dtype=np.uint8)
    for start in (0, 1, 3):
        part = data[start : start + size]
        assert crc32c(part) == bit_by_bit(part.tobytes())


def test_crc32c_of_wide_rows_is_that_of_narrow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(0).integers(0, 256, 1_500_007, dtype=np.uint8)
    wide = crc32c(data)
    monkeypatch.setattr("bertine.contrib.tensorflow.bundle._WIDTHS", (1 << 5,))
    assert crc32c(data) == wide


def test_snappy_of_the_format_description() -> None:
    # Literals with lengths in one and two bytes, and copies with offsets of one, two, four bytes.
    plain = bytes(range(100)) * 3
    stream = bundles.number(300) + bytes([60 << 2, 99]) + plain[:100]
    stream += bytes([63 << 2 | 2, 100, 0]) + bytes([35 << 2 | 2, 100, 0])
    stream += bytes([63 << 2 | 3, 100, 0, 0, 0]) + bytes([28 << 2 | 3, 100, 0, 0, 0])
    stream += bytes([3 << 2 | 1, 100])
    assert decompress(stream) == plain
    # A copy that reaches into itself.
    assert decompress(bytes([9, 0, 7, (8 - 4) << 2 | 1, 1])) == bytes([7]) * 9
    data = b"abcdefgh" * 40 + b"xyz"
    assert decompress(bundles.snappy(data)) == data


def test_the_published_index_of_bert_base_chinese() -> None:
    bundle = Bundle(CHINESE)
    assert len(bundle.entries) == 206
    # Those of BertForPreTraining.
    assert sum(math.prod(entry.shape) for entry in bundle.entries.values()) == 102_882_442
    words = bundle.entries["bert/embeddings/word_embeddings"]
    assert (words.dtype, words.shape, words.shard) == ("float32", (21128, 768), 0)
    assert {entry.dtype for entry in bundle.entries.values()} == {"float32"}


def test_every_tensor_of_a_checkpoint_has_its_crc_and_values() -> None:
    bundle = Bundle(GOOGLE)
    assert len(bundle.entries) == 187
    assert bundle.entries["global_step"].dtype == "int64"
    for name in bundle.entries:
        assert np.isfinite(bundle.array(name)).all()
    assert int(bundle.array("global_step")) == 0


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_written_is_read(tmp_path: Path, shards: int, compress: bool) -> None:
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        f"scope/{kind}_{number}": draw.normal(size=(number, 5)).astype(kind)
        for kind in ("float32", "float64", "float16", "int32", "int64")
        for number in (1, 4, 9)
    }
    arrays["scalar"] = np.array(7, np.int64)
    arrays["empty"] = np.zeros((0, 3), np.float32)
    arrays["flags"] = np.array([True, False])
    half = np.array([1.0, -2.5, 3.0e38, 1e-30], np.float32)
    arrays["half"] = (half.view(np.uint32) >> 16).astype(np.uint16)
    bundles.write_bundle(
        tmp_path / "m.ckpt", arrays, shards=shards, compress=compress, codes={"half": 14}
    )
    bundle = Bundle(tmp_path / "m.ckpt.index")
    assert bundle.entries.keys() == arrays.keys()
    for name, array in arrays.items():
        read = bundle.array(name)
        if name == "half":
            np.testing.assert_allclose(read, half, rtol=2**-7)
            assert bundle.entries[name].dtype == "bfloat16"
        else:
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array)


def refused(tmp_path: Path, index: bytes, name: str = "w") -> str:
    """The message on an index of these bytes."""
    (tmp_path / "m.index").write_bytes(index)
    (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(64))
    with pytest.raises(BertineError) as error:
        Bundle(tmp_path / "m.index").array(name)
    message = str(error.value)
    assert str(tmp_path) in message
    assert "\n" not in message
    return message


ONE = bundles.entry(np.zeros(4, np.float32), 1, 0)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([(b"", bundles.header(1, 1)), (b"w", ONE)], "big-endian"),
        ([(b"", bundles.header(0)), (b"w", ONE)], "0 data files"),
        ([(b"", bundles.header(10**9)), (b"w", ONE)], "1000000000 data files"),
        ([(b"w", ONE)], "it has no header"),
        ([(b"", bundles.header()), (b"w", ONE + bundles.field(7, b""))], "partitioned variable"),
        (
            [(b"", bundles.header()), (b"_CHECKPOINTABLE_OBJECT_GRAPH", ONE)],
            "TensorFlow 2's objects",
        ),
        (
            [(b"", bundles.header()), (b"w/.ATTRIBUTES/VARIABLE_VALUE", ONE)],
            "TensorFlow 2's objects",
        ),
        (
            [(b"", bundles.header()), (b"w", bundles.field(1, 7))],
            "'w' is of type 7, not of numbers",
        ),
        ([(b"", bundles.header()), (b"v", ONE), (b"w", ONE)], "two tensors lie in one place"),
        (
            [(b"", bundles.header()), (b"w", bundles.entry(np.zeros(9, np.float32), 1, 60))],
            "is cut short: it has 64 bytes",
        ),
        (
            [(b"", bundles.header()), (b"w", bundles.entry(np.ones(4, np.float32), 1, 0))],
            "the CRC of 'w' is not the one in m.index",
        ),
        (
            [(b"", bundles.header()), (b"w", bundles.entry(np.ones(4, np.float32), 2, 0))],
            "the size of 'w' is not that of its shape",
        ),
        (
            [(b"", bundles.header()), (b"w", bundles.entry(np.ones(4, np.float32), 1, 0, shard=3))],
            "the place of 'w' is impossible",
        ),
        ([(b"", bundles.header()), (b"w", ONE), (b"v", ONE)], "names are not in order"),
    ],
)
def test_what_is_not_read(tmp_path: Path, entries: list[tuple[bytes, bytes]], said: str) -> None:
    assert said in refused(tmp_path, bundles.table(entries))


def test_an_index_that_is_damaged_or_none(tmp_path: Path) -> None:
    index = bytearray(GOOGLE.read_bytes())
    assert "does not end as an index does" in refused(tmp_path, bytes(index[:-1]))
    assert "does not end as an index does" in refused(tmp_path, b"")
    assert "cut short" in refused(tmp_path, bytes(index[1000:]))
    index[100] ^= 1
    assert "a block's CRC is not that of its bytes" in refused(tmp_path, bytes(index))


def test_a_data_file_that_is_missing(tmp_path: Path) -> None:
    bundles.write_bundle(tmp_path / "m", {"w": np.zeros(4, np.float32)})
    (tmp_path / "m.data-00000-of-00001").unlink()
    with pytest.raises(BertineError, match=r"missing, but m\.index has tensors"):
        Bundle(tmp_path / "m.index").array("w")


def with_crcs(data: bytearray) -> bytes:
    """A damaged table with the CRCs of its blocks mended, so that what is in them is read."""
    from bertine.contrib.tensorflow.bundle import masked_crc32c
    from bertine.core.foreign_files import varint

    def mend(start: int, size: int) -> None:
        if start + size + 5 <= len(data):
            crc = masked_crc32c(bytes(data[start : start + size + 1]))
            data[start + size + 1 : start + size + 5] = crc.to_bytes(4, "little")

    at, handles = 0, []
    for _ in range(4):
        value, at = varint(bytes(data[-48:]), at)
        handles.append(value)
    # The data blocks lie before the two that the footer names.
    start = 0
    for size in BLOCKS:
        mend(start, size)
        start += size + 5
    mend(handles[0], handles[1])
    mend(handles[2], handles[3])
    return bytes(data)


ENTRIES = [(b"", bundles.header())] + [
    (f"bert/scope_{number}/kernel".encode(), bundles.entry(np.zeros((2, 2), np.float32), 1, 16 * n))
    for n, number in enumerate(range(10, 40))
]
BLOCKS = [len(bundles.block(ENTRIES[start : start + 7])) for start in range(0, len(ENTRIES), 7)]
BLOCKS_PACKED = [
    len(bundles.snappy(bundles.block(ENTRIES[start : start + 7])))
    for start in range(0, len(ENTRIES), 7)
]


@pytest.mark.parametrize("compress", [False, True])
def test_damaged_indexes_end_in_a_line(
    tmp_path: Path, compress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = bundles.table(ENTRIES, compress=compress)
    if compress:
        monkeypatch.setitem(globals(), "BLOCKS", BLOCKS_PACKED)
    draw = random.Random(0)
    index, refusals = tmp_path / "m.index", []
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(draw.choice((1, 1, 2, 8))):
            data[draw.randrange(len(data))] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        try:
            index.write_bytes(with_crcs(data))
        except ValueError:  # the footer itself is damaged
            index.write_bytes(data)
        began = time.perf_counter()
        try:
            Bundle(index)
        except BertineError as error:
            refusals.append(str(error))
        assert time.perf_counter() - began < 2
    assert len(refusals) > 150
    assert all(message.startswith(f"{index}: ") for message in refusals)
    assert not any("\n" in message for message in refusals)


def with_blocks(content: bytes, handles: list[tuple[int, int]], kind: bytes = b"\0") -> bytes:
    """A table whose index names the one block `content` by these handles."""
    from bertine.contrib.tensorflow.bundle import masked_crc32c

    def closed(data: bytes, kind: bytes = b"\0") -> bytes:
        return data + kind + masked_crc32c(data + kind).to_bytes(4, "little")

    first = closed(content, kind)
    listed = bundles.block(
        [
            (f"{number:08}".encode(), bundles.number(start) + bundles.number(size))
            for number, (start, size) in enumerate(handles)
        ]
    )
    footer = bundles.number(0) + bundles.number(0)
    footer += bundles.number(len(first)) + bundles.number(len(listed))
    return first + closed(listed) + footer.ljust(40, b"\0") + bundles.MAGIC.to_bytes(8, "little")


def hostile() -> dict[str, bytes]:
    """Indexes whose sizes would take memory or time without end."""
    entries = bundles.block([(b"", bundles.header()), (b"w", ONE)])
    whole = (0, len(entries))
    # Keys that each have all of the one before and a letter more.
    longer = b"".join(
        bundles.number(length) + bundles.number(1) + bundles.number(0) + b"a"
        for length in range(100_000)
    )
    growing = longer + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    bomb = bundles.number(0xFFFFFFFF) + bytes([0, 65]) + bytes([63 << 2 | 2, 1, 0]) * 20_000
    return {
        "one block a thousand times": with_blocks(entries, [whole] * 1000),
        "a block of 2**60 bytes": with_blocks(entries, [(0, 1 << 60)]),
        "keys that grow": with_blocks(growing, [(0, len(growing))]),
        "snappy of 4 GB": with_blocks(bomb, [(0, len(bomb))], b"\1"),
        "snappy that says less": with_blocks(b"\5" + bomb[5:], [(0, len(bomb) - 4)], b"\1"),
        "a shape of 2**80 values": bundles.table(
            [
                (b"", bundles.header()),
                (
                    b"w",
                    bundles.field(1, 1)
                    + bundles.field(2, bundles.field(2, bundles.field(1, 1 << 40)) * 2),
                ),
            ]
        ),
        "a shape of a thousand dimensions": bundles.table(
            [
                (b"", bundles.header()),
                (
                    b"w",
                    bundles.field(1, 1)
                    + bundles.field(2, bundles.field(2, bundles.field(1, 1)) * 1000),
                ),
            ]
        ),
        "five megabytes": bytes(5_000_000),
    }


@pytest.mark.parametrize("name", hostile())
def test_hostile_indexes_take_little_time_and_memory(tmp_path: Path, name: str) -> None:
    index = tmp_path / "m.index"
    index.write_bytes(hostile()[name])
    tracemalloc.start()
    began = time.perf_counter()
    with pytest.raises(BertineError) as error:
        Bundle(index)
    assert time.perf_counter() - began < 5
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40e6
    assert len(str(error.value)) < 500
