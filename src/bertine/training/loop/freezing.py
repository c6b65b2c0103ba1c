"""Weights that training leaves as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from torch import nn

from bertine.errors import BertineError
from bertine.models.model import Model
from bertine.terminal.console import counted, say


def check_freezing(model: Model, layers: int) -> None:
    """Refuse to freeze more layers than there are.

    Raises:
        BertineError: there are fewer than `layers`.
    """
    if not 0 <= layers <= len(model.backbone.layers):
        raise BertineError(
            f"freeze_layers is {layers}, but the model has "
            f"{counted(len(model.backbone.layers), 'layer')}"
            + (" with weights of their own" if model.config.shares_layers else "")
        )


@contextlib.contextmanager
def frozen(model: Model, *, layers: int, embeddings: bool) -> Iterator[None]:
    """Within it, the lowest `layers` layers, and the embeddings if `embeddings`, are not trained:
    their weights get no gradient. Dropout in them goes on as elsewhere.

    Raises:
        BertineError: there are fewer layers.
    """
    check_freezing(model, layers)
    parts: list[nn.Module] = [*list(model.backbone.layers)[:layers]]
    if embeddings:
        parts.append(model.backbone.embeddings)
    held = [p for part in parts for p in part.parameters() if p.requires_grad]
    if held:
        every = sum(p.numel() for p in model.parameters())
        still = every - sum(p.numel() for p in held)
        names = ["embeddings"] if embeddings else []
        names += [f"the lowest {layers} of {len(model.backbone.layers)} layers"] if layers else []
        say(f"frozen: {' and '.join(names)}; {still:,} of {every:,} parameters are trained")
    with _without_gradients(held):
        yield


def has_biases(model: Model) -> bool:
    """Tell whether the linear layers of the backbone add biases; those of ModernBERT do not."""
    layers = [part for part in model.backbone.layers.modules() if isinstance(part, nn.Linear)]
    return any(layer.bias is not None for layer in layers)


@contextlib.contextmanager
def only_biases_trained(model: Model) -> Iterator[None]:
    """Within it, of the weights of `model` only the biases and the parameters of layer norms, all
    those of one dimension, are trained (BitFit: Ben Zaken et al. 2021, arXiv 2106.10199)."""
    held = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    with _without_gradients(held):
        yield


@contextlib.contextmanager
def _without_gradients(held: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within it, `held` get no gradient."""
    try:
        for parameter in held:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)
