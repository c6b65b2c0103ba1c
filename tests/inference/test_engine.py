"""The engine encodes everything once, as the model does, in a precision that was checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine.inference.compute.choosing as choosing
from bertine.errors import BertineError
from bertine.inference.compute.engine import Engine
from bertine.inference.predictor import Predictor
from bertine.models.bert import BertConfig
from bertine.models.encoder import Encoder
from bertine.models.fast.rows import FEW_ROWS, Bare, Padded, Rows

from .test_predictor import random_texts

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=24,
    initializer_range=0.2,
)


@pytest.fixture(scope="module")
def backbone() -> Encoder:
    torch.manual_seed(0)
    return Encoder(CONFIG).eval()


def sequences(count: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [
        draw.integers(0, 50, size=n).tolist() for n in draw.integers(1, 25, size=count).tolist()
    ]


def test_every_sequence_comes_once_and_as_the_model_gives_it(backbone: Encoder) -> None:
    ids = sequences(40)
    segments = [[0] * (len(each) // 2) + [1] * (len(each) - len(each) // 2) for each in ids]
    engine = Engine(backbone, precision="fp32", max_tokens=64)
    assert (engine.check, engine.lines(), engine.precision) == (None, [], "fp32")
    met: list[int] = []
    for batch in engine.encode(ids, segments, output_hidden_states=True):
        met += batch.indices
        length = batch.last_hidden_state.shape[1]
        assert length * len(batch.indices) <= 64
        assert batch.hidden_states is not None
        assert len(batch.hidden_states) == 3
        for row, index in enumerate(batch.indices):
            with torch.no_grad():
                expected = backbone(
                    torch.tensor([ids[index]]), None, torch.tensor([segments[index]])
                )
            n = len(ids[index])
            assert batch.lengths[row] == n
            last = batch.last_hidden_state[row, :n]
            assert torch.allclose(last, expected.last_hidden_state[0], atol=1e-4)
            assert torch.allclose(batch.pooler_output[row], expected.pooler_output[0], atol=1e-4)
    assert sorted(met) == list(range(40))
    assert list(engine.encode([])) == []


def rows_met(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Rows]:
    """How each batch lies, from now on, as the first layer is told."""
    first: Any = engine.backbone.layers[0]
    met: list[Rows] = []

    def noted(x: torch.Tensor, rows: Rows) -> torch.Tensor:
        assert len(x) == rows.count
        met.append(rows)
        out: torch.Tensor = first(x, rows)
        return out

    monkeypatch.setattr(engine.backbone, "layers", [noted, *engine.backbone.layers[1:]])
    return met


def test_batches_of_all_sizes_need_few_kernels(
    backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel is compiled for the rows of a product and kept; a long job meets every size that
    the end of a chunk of it can have."""
    engine = Engine(backbone, precision="fp32", max_tokens=240)
    met = rows_met(engine, monkeypatch)
    for count in range(2, 31):
        for length in (3, 5, 8):
            if count * length > FEW_ROWS:
                ids = [[1] * length] * count
                (batch,) = engine.encode(ids)
                expected = backbone(torch.tensor(ids[:1])).last_hidden_state
                assert torch.allclose(batch.last_hidden_state[-1:], expected, atol=1e-5)
    assert {rows.count for rows in met} == set(range(64, 257, 32))


def test_full_batches_are_padded_and_others_not(
    backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(backbone, precision="fp32")
    met = rows_met(engine, monkeypatch)
    engine.max_tokens = 100
    batches = list(engine.encode([[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 18))
    assert [len(batch.indices) for batch in batches] == [11, 7]
    assert isinstance(met[0], Padded)
    assert isinstance(met[1], Bare)
    expected = backbone(torch.arange(1, 10)[None])
    for batch in batches:
        assert batch.pooler_output is not None
        assert batch.pooler_output.shape == (len(batch.indices), 32)
        assert torch.allclose(batch.pooler_output, expected.pooler_output, atol=1e-5)
        assert torch.allclose(batch.first_token, expected.last_hidden_state[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("ids", "segments", "message"),
    [
        ([[1], []], None, "sequence 1 is empty"),
        ([[1] * 25], None, "sequence 0 has 25 tokens, but the model has positions for 24"),
        ([[1], [2, 50]], None, "sequence 1 has a token id outside 0 to 49"),
        ([[1, 2]], [[0, 2]], "sequence 0 has a token type outside 0 to 1"),
        ([[1, 2]], [[0]], "1 token types for a sequence of 2 ids"),
    ],
)
def test_mistakes(
    backbone: Encoder,
    ids: list[list[int]],
    segments: list[list[int]] | None,
    message: str,
) -> None:
    with pytest.raises(BertineError, match=message):
        list(Engine(backbone, precision="fp32").encode(ids, segments))


def test_what_cannot_be_made(backbone: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BertineError, match="precision 'int4' is not known"):
        Engine(backbone, precision="int4")
    with pytest.raises(BertineError, match="threads is 0"):
        Engine(backbone, precision="fp32", threads=0)
    monkeypatch.setattr(choosing, "why_not_int8", lambda: "this CPU is a toy")
    with pytest.raises(BertineError, match="precision 'int8': this CPU is a toy"):
        Engine(backbone, precision="int8")
    engine = Engine(backbone)
    assert engine.precision != "int8"
    assert engine.lines()[0] == "int8 is not used: this CPU is a toy"


def test_a_precision_that_is_far_off_is_not_chosen(
    backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "TOLERANCE", {"bf16": 0.0, "int8": 0.0})
    monkeypatch.setattr(choosing, "why_not_int8", lambda: None)
    monkeypatch.setattr(choosing, "cpu_has_bf16", lambda: True)
    if choosing.cpu_has_int8():
        engine = Engine(backbone)
        assert engine.precision == "fp32"
        assert [line.partition(" is not used")[0] for line in engine.lines()[:2]] == [
            "int8",
            "bf16",
        ]
        assert engine.lines()[2] == "computing in fp32"
    # One that is named is taken, and the check has the difference.
    named = Engine(backbone, precision="bf16")
    assert named.precision == "bf16"
    assert named.check is not None
    assert 0 < named.check.differences["bf16"] < 0.05
    assert named.lines() == ["computing in bf16"]


def test_a_precision_that_the_machine_refuses(
    backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = choosing.PackedBackbone

    def refusing(model: Encoder, dtype: torch.dtype, *ranges: object) -> object:
        if dtype != torch.float32:
            raise RuntimeError("could not create a primitive descriptor\nand more")
        return pack(model, dtype)

    monkeypatch.setattr(choosing, "PackedBackbone", refusing)
    monkeypatch.setattr(choosing, "why_not_int8", lambda: None)
    monkeypatch.setattr(choosing, "cpu_has_bf16", lambda: True)
    engine = Engine(backbone)
    assert engine.precision == "fp32"
    why = "this machine cannot compute in it (could not create a primitive descriptor)"
    assert engine.lines() == [
        f"int8 is not used: {why}",
        f"bf16 is not used: {why}",
        "computing in fp32",
    ]
    with pytest.raises(BertineError, match=r"precision 'int8': this machine cannot .*choose fp32"):
        Engine(backbone, precision="int8")


def test_threads_where_the_system_tells_no_affinity(
    backbone: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)  # as on macOS
    assert Engine(backbone, precision="fp32").threads >= 1


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with choosing.using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_a_predictor_in_every_precision(classifier: Path) -> None:
    texts = random_texts(40, seed=4)
    exact = Predictor.load(classifier, "cpu", "fp32")
    assert exact.precision_check is None
    expected = exact.predict(texts)
    precisions = ["bf16"] + ([] if choosing.why_not_int8() else ["int8"])
    for precision in precisions:
        rough = Predictor.load(classifier, "cpu", precision, threads=1)
        assert rough.engine is not None
        assert (rough.engine.precision, rough.engine.threads) == (precision, 1)
        assert rough.precision_check is not None
        found = rough.predict(texts)
        same = [a.label == b.label for a, b in zip(expected, found, strict=True)]
        assert sum(same) >= 36


def test_one_text_and_a_stream(classifier: Path) -> None:
    predictor = Predictor.load(classifier, "cpu", "fp32")
    texts = random_texts(23, seed=6)
    expected = predictor.predict(texts)
    assert predictor.predict_one(texts[3]).label == expected[3].label
    taken: list[str] = []

    def source() -> object:
        for text in texts:
            taken.append(text)
            yield text

    stream = predictor.stream(source(), hold=5)  # type: ignore[arg-type]
    first = next(stream)
    assert len(taken) == 5  # no more than are held
    answers = [first, *stream]
    assert [a.label for a in answers] == [e.label for e in expected]
    for ours, theirs in zip(answers, expected, strict=True):
        assert ours.probability == pytest.approx(theirs.probability, abs=1e-5)
    with pytest.raises(BertineError, match="predict_one takes one"):
        next(predictor.stream("a text"))
    with pytest.raises(BertineError, match="hold is 0"):
        next(predictor.stream(["a"], hold=0))
