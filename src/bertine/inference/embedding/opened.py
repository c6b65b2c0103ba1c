"""What turns texts into vectors, whatever model it is of."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from bertine.inference.embedding.embedder import Embedder
from bertine.interop.word_models import word_model_of
from bertine.registry import WORD_MODELS
from bertine.terminal.console import say


def open_embedder(model: Embedder | Path | str, **options: Any) -> Embedder:
    """Return `model` if it is an embedder already; else load it with `options`, those of
    :meth:`bertine.Embedder.load`, and say what was loaded.

    Raises:
        BertineError: what loading a model of its kind raises.
    """
    kind = None if isinstance(model, Embedder) else word_model_of(model)
    if isinstance(model, Embedder) or kind is None:
        return Embedder.opened(model, **options)
    module, _, name = WORD_MODELS[kind].partition(":")
    embedder: Embedder = getattr(import_module(module), name).load(model, **options)
    for line in embedder.load_lines:
        say(line)
    return embedder
