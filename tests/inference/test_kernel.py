"""The compiled kernel computes layers in 8 bits: close to fp32, and to the bit the same for a text
in any batch and with any number of threads."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from bertine.families.albert import AlbertConfig
from bertine.families.bert import BertConfig
from bertine.fast.int8 import RangeObserver
from bertine.fast.kernel import KernelBackbone, can_compute
from bertine.inference.compute import choose
from bertine.models.encoder import Encoder
from bertine.models.precision import kernel_library, using_threads

pytestmark = pytest.mark.skipif(
    kernel_library() is None, reason="needs AVX-512 VNNI, and a C compiler at installation"
)

SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 144,
    "max_position_embeddings": 160,
    "initializer_range": 0.08,
}
CONFIGS = [
    BertConfig(**SMALL),
    BertConfig(**{**SMALL, "hidden_size": 192, "intermediate_size": 400, "hidden_act": "gelu_new"}),
    BertConfig(**{**SMALL, "hidden_size": 288, "hidden_act": "relu"}),
    AlbertConfig(**SMALL, embedding_size=24),
]
LENGTHS = (1, 2, 3, 5, 16, 17, 40, 97, 130)


def packed(config: BertConfig | AlbertConfig) -> tuple[Encoder, KernelBackbone]:
    """Return an encoder, and the same in 8 bits."""
    torch.manual_seed(1)
    encoder = Encoder(config).eval()
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.1)
    assert can_compute(config)
    with torch.inference_mode(), RangeObserver(encoder) as seen:
        encoder(torch.randint(60, (8, 40)))
    return encoder, KernelBackbone(encoder, seen.ranges)


def texts() -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randint(60, (length,)) for length in LENGTHS]


def padded(chosen: list[Tensor]) -> tuple[Tensor, Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)
    lengths = torch.tensor([len(text) for text in chosen])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


@torch.inference_mode()
@pytest.mark.parametrize("config", CONFIGS, ids=["48", "192", "288", "albert"])
def test_states_are_close_to_those_in_fp32(config: BertConfig) -> None:
    encoder, kernel = packed(config)
    ids, mask = padded(texts())
    expected = encoder(ids, mask, output_hidden_states=True)
    ours = kernel(ids, mask, output_hidden_states=True)
    for state, other in zip(ours.hidden_states, expected.hidden_states, strict=True):
        difference = (state[mask] - other[mask]).norm() / other[mask].norm()
        # Steps of bytes are 1/127 of the largest of 256 values; three layers add their errors up.
        assert difference < 0.03
    for same in (mask, mask.float()):
        assert torch.equal(kernel(ids, same).last_hidden_state[mask], state[mask])


@torch.inference_mode()
def test_a_text_has_the_same_bits_in_any_batch_and_with_any_threads() -> None:
    _, kernel = packed(CONFIGS[1])
    alone = [kernel(text[None]) for text in texts()]
    for threads in (1, 2, 3):
        with using_threads(threads):
            ids, mask = padded([*texts(), *texts()])
            output = kernel(ids, mask)
            firsts = kernel(ids, mask).first_token
            for row, (text, own) in enumerate(zip(texts(), alone, strict=True)):
                states = own.last_hidden_state[0]
                assert torch.equal(output.last_hidden_state[row, : len(text)], states)
                assert torch.equal(firsts[row], states[0])
                assert torch.equal(kernel(text[None]).first_token[0], states[0])


@torch.inference_mode()
def test_threads_and_forked_processes_may_share_a_backbone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, kernel = packed(CONFIGS[0])
    ids, mask = padded(texts())
    expected = kernel(ids, mask).last_hidden_state
    results: list[Tensor] = []

    def encode() -> None:
        with torch.inference_mode(), using_threads(2):
            for _ in range(20):
                results.append(kernel(ids, mask).last_hidden_state)

    callers = [threading.Thread(target=encode) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 60
    assert all(torch.equal(result[mask], expected[mask]) for result in results)

    # Bertine computes with one thread there; the kernel alone could have several.
    monkeypatch.setattr("bertine.fast.kernel.allowed_threads", lambda threads: 2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            same = torch.equal(kernel(ids, mask).last_hidden_state[mask], expected[mask])
            status = 0 if same else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_layers_of_other_sizes_are_those_of_pytorch() -> None:
    config = BertConfig(**{**SMALL, "hidden_size": 60})
    assert not can_compute(config)
    chosen, check = choose(Encoder(config).eval(), "int8")
    assert not isinstance(chosen, KernelBackbone)
    assert check is not None
    assert check.differences["int8"] < 0.1
