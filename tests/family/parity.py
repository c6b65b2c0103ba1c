"""What the parity tests share: one batch with padding, equal losses, equal gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertine.core.rng import generator
from bertine.corpora.batch import Batch
from bertine.models.config import Config
from bertine.models.heads import Model

from .variants import Variant

SEEDS = (0, 1, 2, 3)


def random_batch(config: Config, seed: int, *, left: bool = False) -> Batch:
    """Make five sequences of different lengths, two segments each, with masked positions.

    Args:
        left: pad on the left.
    """
    draw = generator(seed, "parity batch")
    longest = config.longest_input - 2
    lengths = [longest, *(int(n) for n in draw.integers(4, longest, size=4))]
    ids = torch.full((5, longest), config.pad_token_id)
    mask = torch.zeros((5, longest), dtype=torch.bool)
    segments = torch.zeros((5, longest), dtype=torch.int64)
    usual = [index for index in range(config.vocab_size) if index != config.pad_token_id]
    positions = []
    for row, length in enumerate(lengths):
        begin = longest - length if left else 0
        here = slice(begin, begin + length)
        ids[row, here] = torch.from_numpy(draw.choice(usual, size=length))
        if (end := config.last_token_id) is not None:  # one in each, which is read
            ids[row][ids[row] == end] = usual[0]
            ids[row, begin + length - 2] = end
        mask[row, here] = True
        segments[row, begin + int(draw.integers(1, length)) : begin + length] = 1
        chosen = draw.choice(length, size=3, replace=False)
        positions += [row * longest + begin + int(position) for position in chosen]
    targets = {
        "mlm_positions": torch.tensor(positions),
        "mlm_labels": torch.from_numpy(draw.integers(0, config.vocab_size, size=len(positions))),
        "next_sentence_label": torch.from_numpy(draw.integers(0, 2, size=5)),
        "sentence_order_label": torch.from_numpy(draw.integers(0, 2, size=5)),
        "labels": torch.from_numpy(draw.integers(0, 3, size=5)),
    }
    return Batch(ids, mask, segments, targets)


def inputs(batch: Batch, config: Config) -> dict[str, Tensor]:
    """Return the batch as keyword arguments of a transformers model."""
    given = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask.long()}
    types = batch.token_type_ids
    if config.num_segment_ids > config.num_segments:
        given["token_type_ids"] = types
    if config.type_vocab_size:
        given["token_type_ids"] = types if config.type_vocab_size > 1 else torch.zeros_like(types)
    return given


def padded_left(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what is padded on the right (`given` of :func:`inputs`) padded on the left."""
    mask = given["attention_mask"]
    places = (torch.arange(mask.shape[1]) + mask.sum(1, keepdim=True)) % mask.shape[1]
    return {name: value.gather(1, places) for name, value in given.items()}


def full_labels(batch: Batch) -> Tensor:
    """Return the MLM targets as transformers wants them: [B, T] with -100 where nothing is
    scored."""
    labels = torch.full((batch.input_ids.numel(),), -100)
    labels[batch.targets["mlm_positions"]] = batch.targets["mlm_labels"]
    return labels.view(batch.input_ids.shape)


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    """Assert that both are equal to 1e-5, as the README says, of the largest number where that is
    above 1: without layer norms (MobileBERT) gradients of random weights are in the hundreds."""
    bound = 1e-5 * max(1.0, float(theirs.detach().abs().max()) if theirs.numel() else 0.0)
    torch.testing.assert_close(
        ours, theirs, rtol=1e-5, atol=bound, msg=lambda text: f"{what}: {text}"
    )


def same_gradients(variant: Variant, model: Model, other: nn.Module) -> None:
    """Assert that the parameters of both have the same gradients: all of them, but those that are
    in transformers' files without being used."""
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    names = variant.family.names
    ours = names.to_huggingface(gradients, model.config, bool(model.heads))
    theirs = {name: p.grad for name, p in other.named_parameters() if p.grad is not None}
    # What is tied has the name of whichever module is made first.
    for copy, original in names.copies:
        if copy in theirs and names.prefix + original in ours:
            theirs[names.prefix + original] = theirs.pop(copy)
    assert ours.keys() == theirs.keys()
    for name, grad in theirs.items():
        close(ours[name], grad, f"gradient of {name}")
