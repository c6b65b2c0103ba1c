"""The engine encodes everything once, as the model does, in a precision that was checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertine.inference.compute as choosing
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.families.bert import BertConfig
from bertine.fast.layers import FEW_ROWS, Rows
from bertine.inference.compute import Engine, run_batch, run_features
from bertine.inference.predictor import Predictor
from bertine.models.encoder import Encoder
from bertine.models.heads import Model
from bertine.models.precision import Rates, using_threads
from bertine.tasks.base import Features, pad_features
from tolerance import assert_close, network_terms

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
TERMS = network_terms(2, 32)
BF16_IS_FASTER = Rates(1e11, 4e11)
BF16_IS_SLOWER = Rates(179e9, 97e9)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model(CONFIG, {}, add_pooler=True).eval()


def sequences(count: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [
        draw.integers(0, 50, size=n).tolist() for n in draw.integers(1, 25, size=count).tolist()
    ]


@dataclass(frozen=True)
class AllStates:
    """What is compared of a sequence: the states of its tokens in every layer, the last one and
    what the pooler makes of it, [T, layers + 2, H]."""

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        return pad_features(features, pad_id, CONFIG.longest_input)

    def outputs(self, model: Model, batch: Batch) -> torch.Tensor:
        encoded = model.encode(batch, all_states=True)
        assert encoded.hidden_states is not None
        assert encoded.pooler_output is not None
        last = encoded.last_hidden_state
        pooled = encoded.pooler_output[:, None].expand_as(last)
        return torch.stack([*encoded.hidden_states, last, pooled], 2)


@dataclass(frozen=True)
class Ends:
    """The first tokens and what the pooler makes of them: [B, 2, H], without the last layer of
    the other tokens."""

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        return pad_features(features, pad_id, CONFIG.longest_input)

    def outputs(self, model: Model, batch: Batch) -> torch.Tensor:
        encoded = model.encode(batch)
        assert encoded.pooler_output is not None
        return torch.stack([encoded.first_token, encoded.pooler_output], 1)


def features_of(
    ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None
) -> list[Features]:
    types = segments or [[0] * len(each) for each in ids]
    return [
        Features(np.array(one, np.int32), np.array(other, np.int8), row)
        for row, (one, other) in enumerate(zip(ids, types, strict=True))
    ]


def states(
    engine: Engine, features: list[Features], sizes: list[int] | None = None
) -> list[np.ndarray]:
    on_batch = None if sizes is None else sizes.append
    return run_features(engine, AllStates(), features, pad_id=0, on_batch=on_batch)


def test_every_sequence_comes_once_and_as_the_model_gives_it(model: Model) -> None:
    ids = sequences(40)
    segments = [[0] * (len(each) // 2) + [1] * (len(each) - len(each) // 2) for each in ids]
    engine = Engine(model, precision="fp32", max_tokens=64)
    assert (engine.check, engine.lines(), engine.precision) == (None, [], "fp32")
    met: list[int] = []
    found = states(engine, features_of(ids, segments), met)
    assert sum(met) == 40
    assert max(met) <= 64
    for index, each in enumerate(found):
        n = len(ids[index])
        with torch.no_grad():
            expected = model.backbone(
                torch.tensor([ids[index]]), None, torch.tensor([segments[index]]), True
            )
        assert each.shape[1] == 5
        for layer, right in enumerate([*expected.hidden_states, expected.last_hidden_state]):
            assert np.allclose(each[:n, layer], right[0], atol=1e-4)
        assert np.allclose(each[0, -1], expected.pooler_output[0], atol=1e-4)
    assert states(engine, []) == []


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
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel is compiled for the rows of a product and kept; a long job meets every size that
    the end of a chunk of it can have."""
    engine = Engine(model, precision="fp32", max_tokens=240)
    met = rows_met(engine, monkeypatch)
    for count in range(2, 31):
        for length in (3, 5, 8):
            if count * length > FEW_ROWS:
                ids, sizes = [[1 + row] * length for row in range(count)], list[int]()
                last = states(engine, features_of(ids), sizes)[-1][:, 3]
                assert sizes == [count]
                expected = model.backbone(torch.tensor(ids[-1:])).last_hidden_state
                assert_close(last, expected[0], terms=TERMS)
    assert {rows.count for rows in met} == set(range(64, 257, 32))


def test_a_batch_that_is_cut_already_is_not_cut_again(model: Model) -> None:
    engine = Engine(model, precision="fp32", max_tokens=64)
    features = features_of(sequences(20))
    whole = run_batch(engine, Ends(), features, pad_id=0)
    parts = run_features(engine, Ends(), features, pad_id=0)
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize(
    ("ids", "segments", "message"),
    [
        ([[1] * 25], None, "row 0: 25 tokens, but the model has positions for 24"),
        ([[1], [2, 50]], None, "row 1: token id 50 is outside the vocabulary of 50"),
        ([[1, 2]], [[0, 2]], "row 0: segment id 2 is outside the 2"),
    ],
)
def test_mistakes(
    model: Model, ids: list[list[int]], segments: list[list[int]] | None, message: str
) -> None:
    with pytest.raises(BertineError, match=message):
        states(Engine(model, precision="fp32"), features_of(ids, segments))


def test_what_cannot_be_made(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BertineError, match="precision 'int4' is not known"):
        Engine(model, precision="int4")
    with pytest.raises(BertineError, match="threads is 0"):
        Engine(model, precision="fp32", threads=0)
    monkeypatch.setattr(choosing, "why_not_int8", lambda: "this CPU is a toy")
    with pytest.raises(BertineError, match="precision 'int8': this CPU is a toy"):
        Engine(model, precision="int8")
    engine = Engine(model)
    assert engine.precision != "int8"
    assert engine.lines()[0] == "int8 is not used: this CPU is a toy"


def test_a_precision_that_is_far_off_is_not_chosen(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "TOLERANCE", {"bf16": 0.0, "int8": 0.0})
    monkeypatch.setattr(choosing, "why_not_int8", lambda: None)
    monkeypatch.setattr(choosing, "rates_for", lambda *_: BF16_IS_FASTER)
    if choosing.cpu_has_int8():
        engine = Engine(model)
        assert engine.precision == "fp32"
        assert [line.partition(" is not used")[0] for line in engine.lines()[:2]] == [
            "int8",
            "bf16",
        ]
        assert engine.lines()[2] == "computing in fp32"
    # One that is named is taken, and the check has the difference.
    named = Engine(model, precision="bf16")
    assert named.precision == "bf16"
    assert named.check is not None
    assert 0 < named.check.differences["bf16"] < 0.05
    assert named.lines() == ["computing in bf16"]


@pytest.mark.parametrize("rates", [BF16_IS_FASTER, BF16_IS_SLOWER, None])
@pytest.mark.parametrize("slower", [True, False])
def test_8_bits_are_compared_with_what_is_faster_of_bf16_and_fp32(
    model: Model, rates: Rates | None, slower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[torch.dtype] = []

    def is_slower(packed: object, backbone: object, rival: torch.dtype) -> bool:
        compared.append(rival)
        return slower

    pack = choosing.PackedBackbone  # which this machine may have no 8-bit products for
    monkeypatch.setattr(
        choosing,
        "PackedBackbone",
        lambda backbone, dtype, *_: pack(backbone, torch.float32 if dtype == torch.int8 else dtype),
    )
    monkeypatch.setattr(choosing, "why_not_int8", lambda: None)
    monkeypatch.setattr(choosing, "rates_for", lambda *_: rates)
    monkeypatch.setattr(choosing, "_slower", is_slower)
    _, check = choosing.choose(model.backbone, "auto")
    assert check is not None
    rival = "bf16" if rates == BF16_IS_FASTER else "fp32"
    assert compared == [torch.bfloat16 if rival == "bf16" else torch.float32]
    assert check.precision == (rival if slower else "int8")
    assert (f"int8 is not used: it is slower than {rival} here" in check.lines()) == slower
    assert ("fp32: 1.8 times as fast as bf16 here" in check.lines()) == (rates == BF16_IS_SLOWER)


def test_a_precision_that_the_machine_refuses(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = choosing.PackedBackbone

    def refusing(backbone: Encoder, dtype: torch.dtype, *ranges: object) -> object:
        if dtype != torch.float32:
            raise RuntimeError("could not create a primitive descriptor\nand more")
        return pack(backbone, dtype)

    monkeypatch.setattr(choosing, "PackedBackbone", refusing)
    monkeypatch.setattr(choosing, "why_not_int8", lambda: None)
    monkeypatch.setattr(choosing, "rates_for", lambda *_: BF16_IS_FASTER)
    engine = Engine(model)
    assert engine.precision == "fp32"
    why = "this machine cannot compute in it (could not create a primitive descriptor)"
    assert engine.lines() == [
        f"int8 is not used: {why}",
        f"bf16 is not used: {why}",
        "computing in fp32",
    ]
    with pytest.raises(BertineError, match=r"precision 'int8': this machine cannot .*choose fp32"):
        Engine(model, precision="int8")


def test_threads_where_the_system_tells_no_affinity(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)  # as on macOS
    assert Engine(model, precision="fp32").threads >= 1


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


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
        assert_close(ours.probability, theirs.probability, terms=TERMS, size=1.0)
    with pytest.raises(BertineError, match="predict_one takes one"):
        next(predictor.stream("a text"))
    with pytest.raises(BertineError, match="hold is 0"):
        next(predictor.stream(["a"], hold=0))
