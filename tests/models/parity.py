"""What the parity tests share: random tiny configs, equal models, one batch with padding."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.interop.bert import FAMILY
from bertine.models.bert import BertConfig
from bertine.models.model import Model
from bertine.rng import generator

NAMES = FAMILY.names

SEEDS = (0, 1, 2, 3)


def random_config(seed: int) -> BertConfig:
    """A tiny architecture with odd sizes, so that no two dimensions can be mixed up unseen."""
    draw = generator(seed, "parity config")
    heads = int(draw.integers(1, 5))
    return BertConfig(
        vocab_size=int(draw.integers(40, 90)),
        hidden_size=heads * int(draw.integers(3, 9)),
        num_hidden_layers=int(draw.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=int(draw.integers(10, 60)),
        hidden_act=("gelu", "gelu_new", "relu", "gelu")[seed % 4],
        max_position_embeddings=int(draw.integers(24, 40)),
        type_vocab_size=2 + seed % 2,
        layer_norm_eps=(1e-12, 1e-5)[seed % 2],
    )


@torch.no_grad()
def scramble(model: nn.Module, seed: int) -> None:
    """Random values everywhere: initial biases and layer norms would hide a mix-up."""
    draw = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.normal_(std=0.3, generator=draw)
        if "norm.weight" in name:
            parameter.add_(1.0)


def twin(model: Model, name: str) -> transformers.PreTrainedModel:
    """transformers' model of class `name` with our weights, in evaluation mode."""
    config = transformers.BertConfig(**model.config.to_dict())
    if "classifier" in model.heads:
        config.num_labels = model.heads["classifier"].out.out_features
    other = getattr(transformers, name)(config)
    result = other.load_state_dict(
        NAMES.to_huggingface(model.state_dict(), model.config), strict=False
    )
    # The decoder is tied to the word embeddings and the bias, which were loaded.
    assert all(key.startswith("cls.predictions.decoder.") for key in result.missing_keys)
    assert not result.unexpected_keys
    return other.eval()


def random_batch(config: BertConfig, seed: int) -> Batch:
    """Five sequences of different lengths, two segments each, and masked positions."""
    draw = generator(seed, "parity batch")
    longest = config.max_position_embeddings - 2
    lengths = [longest, *(int(n) for n in draw.integers(4, longest, size=4))]
    ids = torch.full((5, longest), config.pad_token_id)
    mask = torch.zeros((5, longest), dtype=torch.bool)
    segments = torch.zeros((5, longest), dtype=torch.int64)
    positions = []
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.from_numpy(draw.integers(1, config.vocab_size, size=length))
        mask[row, :length] = True
        segments[row, int(draw.integers(1, length)) : length] = 1
        chosen = draw.choice(length, size=3, replace=False)
        positions += [row * longest + int(position) for position in chosen]
    targets = {
        "mlm_positions": torch.tensor(positions),
        "mlm_labels": torch.from_numpy(draw.integers(0, config.vocab_size, size=len(positions))),
        "next_sentence_label": torch.from_numpy(draw.integers(0, 2, size=5)),
        "labels": torch.from_numpy(draw.integers(0, 3, size=5)),
    }
    return Batch(ids, mask, segments, targets)


def inputs(batch: Batch) -> dict[str, Tensor]:
    """The batch as keyword arguments of a transformers model."""
    return {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask.long(),
        "token_type_ids": batch.token_type_ids,
    }


def full_labels(batch: Batch) -> Tensor:
    """The MLM targets as transformers wants them: [B, T] with -100 where nothing is scored."""
    labels = torch.full((batch.input_ids.numel(),), -100)
    labels[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
    return labels.view(batch.input_ids.shape)


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    torch.testing.assert_close(
        ours, theirs, rtol=1e-5, atol=1e-5, msg=lambda text: f"{what}: {text}"
    )


def same_gradients(model: Model, other: nn.Module) -> None:
    """Assert that every parameter of both has a gradient and that they are equal."""
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(grad is not None for grad in gradients.values())
    ours = NAMES.to_huggingface(gradients, model.config)
    theirs = {name: p.grad for name, p in other.named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, grad in theirs.items():
        close(ours[name], grad, f"gradient of {name}")
