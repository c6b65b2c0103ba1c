"""What turns texts into vectors, whatever model it is of."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.mean_words import MeanWordEmbedder
from bertine.interop.word_models import word_model_of
from bertine.options.names import option
from bertine.registry import WORD_MODELS
from bertine.terminal.console import say
from bertine.word_vectors.files import file_format
from bertine.word_vectors.vectors import is_word_vectors


def open_embedder(model: Embedder | Path | str, **options: Any) -> Embedder:
    """Return `model` if it is an embedder already; else load it with `options`, those of
    :meth:`bertine.Embedder.load`, and say what was loaded.

    Raises:
        BertineError: what loading a model of its kind raises; an ELMo is to be batch-invariant.
    """
    if isinstance(model, Embedder):
        return model
    kind = word_model_of(model)
    if holds_word_vectors(model):
        embedder: Embedder = MeanWordEmbedder.load_words(model, **options)
    elif kind is not None:
        # A table's vectors depend on no other texts.
        if options.pop("batch_invariant", False) and kind == "elmo":
            raise BertineError(f"{model}: an ELMo has no {option('batch_invariant')}")
        module, _, name = WORD_MODELS[kind].partition(":")
        embedder = getattr(import_module(module), name).load(model, **options)
    else:
        return Embedder.opened(model, **options)
    for line in embedder.load_lines:
        say(line)
    return embedder


def holds_word_vectors(model: Embedder | Path | str) -> bool:
    """Tell whether `model` is a folder of word vectors, or a file of the word2vec program's."""
    if isinstance(model, Embedder):
        return isinstance(model, MeanWordEmbedder)
    return is_word_vectors(model) or (file_format(model) is not None and Path(model).is_file())
