"""Compute every layer's state of every word with a frozen encoder, and keep them on disk.

A word's state is that of its first piece (paper, section 5.3). One safetensors file has the words
of one file of sentences, a tensor ``layer_0`` (the embeddings), ``layer_1``, … of fp16 [words, H]
each; its name is a hash of all that it depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.core.files import atomic_file
from bertine.core.foreign_files import open_tensors
from bertine.corpora.batch import check_batch
from bertine.data.entities import OUTSIDE, Sentences
from bertine.inference.compute import (
    batch_tokens,
    computing_with,
    device_of,
    in_batches,
)
from bertine.models.heads import Model, weights_fingerprint
from bertine.tasks.base import Features
from bertine.tasks.tagged_words import WordFeatures
from bertine.tasks.tagging import Tagging
from bertine.tokenization.tokenizer import Tokenizer
from bertine.word_vectors.vectors import WordVectors

#: Version of the file contents; it is part of the hash.
_FORMAT = 2


class KnownStates(Protocol):
    """The states of the words of some sentences, one after the other."""

    @property
    def starts(self) -> np.ndarray:
        """The first word of each sentence, and the number of all words, int64 [N + 1]."""
        ...

    def layers(self, numbers: Sequence[int]) -> list[Tensor]:
        """Return the tensors [words, H] of these layers."""
        ...


def word_starts(sentences: Sentences) -> np.ndarray:
    """Return the first word of each of N sentences, and the number of all words, int64 [N + 1]."""
    sizes = [len(item.words) for item in sentences.items]
    starts: np.ndarray = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return starts


@dataclass(frozen=True)
class StaticStates:
    """Vectors of words in place of states: a word's vector is the same in all sentences.

    Attributes:
        starts: int64 [N + 1], the first word of each sentence, and the number of all words.
        vectors: fp32 [words, D]; zeros for words without a vector.
        unknown: the number of words without a vector.
    """

    starts: np.ndarray
    vectors: Tensor
    unknown: int

    @classmethod
    def of(cls, vectors: WordVectors, sentences: Sentences) -> StaticStates:
        """Look up the words of `sentences`, as written or in lower case."""
        starts = word_starts(sentences)
        rows = [vectors.row(word) for item in sentences.items for word in item.words]
        table = np.zeros((len(rows), vectors.dimensions), dtype=np.float32)
        for at, row in enumerate(rows):
            if row is not None:
                table[at] = vectors.vectors[row]
        return cls(starts, torch.from_numpy(table), rows.count(None))

    def layers(self, numbers: Sequence[int]) -> list[Tensor]:
        """Return the vectors, for each of `numbers`."""
        return [self.vectors for _ in numbers]


@dataclass(frozen=True)
class WordStates:
    """The states of the words of some sentences, one after the other, mapped from a file.

    Attributes:
        path: the path of the file.
        starts: int64 [N + 1], the first word of each sentence, and the number of all words.
        found: whether the file existed before.
    """

    path: Path
    starts: np.ndarray
    found: bool

    def layers(self, numbers: Sequence[int]) -> list[Tensor]:
        """Return the tensors fp16 [words, H] of these layers; 0 is the embeddings."""
        with open_tensors(self.path, "pt") as file:
            return [file.get_tensor(f"layer_{number}") for number in numbers]


def states_key(
    model: Model, tokenizer: Tokenizer, task: Tagging, sentences: Sentences, dtype: torch.dtype
) -> str:
    """Compute the SHA-256, as hex digits, of all that the states of `sentences` depend on: the
    weights of the backbone, the tokenizer, the words and their documents, the windows, whether
    words that normalization leaves empty are read as unknown ones, and the precision."""
    digest = hashlib.sha256()
    parts = [_FORMAT, tokenizer.fingerprint, task.max_length, task.document_context, str(dtype)]
    parts += ["no outside"] * (OUTSIDE not in task.labels)
    digest.update(repr(parts).encode())
    digest.update(weights_fingerprint(model.backbone).encode())
    for item in sentences.items:
        digest.update(repr((item.words, item.document)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def word_states(
    model: Model,
    tokenizer: Tokenizer,
    task: Tagging,
    sentences: Sentences,
    folder: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> WordStates:
    """Return the states of the words of `sentences`: from the file in `folder`, else computed and
    written there.

    Words that normalization leaves empty have states of zeros where a tag says "nothing" (O), else
    those of an unknown word. Memory holds all states, two bytes a number.

    Args:
        model: a model with a backbone, on any device; put into evaluation mode and back into the
            mode it was in.
        tokenizer: the tokenizer of the model.
        task: defines how sentences are cut into windows.
        sentences: the N sentences; their notes are extended.
        folder: the folder of the files.
        dtype: the type to compute in.
        max_tokens: maximum tokens of a batch, padding included; None: by the kind of device.
        on_batch: called with the number of windows of each finished batch.

    Raises:
        BertineError: an unknown tag, an input that does not fit the model, a file that cannot be
            written.
    """
    features = cast(list[WordFeatures], task.featurize(sentences, tokenizer))
    starts = word_starts(sentences)
    key = states_key(model, tokenizer, task, sentences, dtype)
    path = Path(folder) / f"states-{key[:24]}.safetensors"
    num_layers = len(model.config.passes) + 1
    if states_are_whole(path, key, num_layers):
        return WordStates(path, starts, True)
    shape = (int(starts[-1]), model.config.hidden_size)
    layers = [torch.zeros(shape, dtype=torch.float16) for _ in range(num_layers)]
    device = device_of(model)

    def keep(chosen: list[Features]) -> list[None]:
        """Put the states of the words of one batch into their places."""
        windows = cast(list[WordFeatures], chosen)
        batch = task.collate(windows, tokenizer.pad_token_id)
        check_batch(batch, model.config)
        output = model.encode(batch.to(device), all_states=True)
        assert output.hidden_states is not None
        rows = [np.full(len(f.positions), at) for at, f in enumerate(windows)]
        sequences = torch.from_numpy(np.concatenate(rows)).to(device)
        places = np.concatenate([f.positions for f in windows]).astype(np.int64)
        positions = torch.from_numpy(places).to(device)
        words = torch.from_numpy(np.concatenate([starts[f.row] + f.words for f in windows]))
        for layer, states in zip(layers, output.hidden_states, strict=True):
            layer[words] = states[sequences, positions].to("cpu", torch.float16)
        return [None] * len(chosen)

    with computing_with(model, dtype):
        in_batches(features, batch_tokens(device, max_tokens), keep, on_batch)
    save_states(path, key, layers)
    return WordStates(path, starts, False)


def save_states(path: Path, key: str, layers: Sequence[Tensor]) -> None:
    """Write the states of words, fp16 [words, H] of each layer, to the file that `key` names.

    Raises:
        BertineError: a number is not finite; the file cannot be written.
    """
    if not all(bool(layer.isfinite().all()) for layer in layers):
        raise BertineError("the encoder's states do not fit into 16 bits; are its weights broken?")
    tensors = {f"layer_{number}": layer for number, layer in enumerate(layers)}
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, metadata={"key": key})


def states_are_whole(path: Path, key: str, num_layers: int) -> bool:
    """Return whether the file exists and matches `key`."""
    if not path.is_file():
        return False
    try:
        with open_tensors(path, "pt") as file:
            names = set(file.keys())
            return (file.metadata() or {}).get("key") == key and len(names) == num_layers
    except BertineError:
        return False  # computed again
