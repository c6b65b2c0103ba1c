"""Vectors of texts: by the package's embedder where it is there, else means of the last layer."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from bertine.data.batching import restore_order, token_budget_batches
from bertine.inference.running import CPU_TOKENS, GPU_TOKENS
from bertine.models.model import Model
from bertine.models.precision import autocast
from bertine.tasks.base import Features, pad_features
from bertine.text.tokenizer import Tokenizer


class Vectors(Protocol):
    """What the server asks of whoever makes vectors."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """fp32 [N, H] of N texts, in their order."""
        ...


#: Where the embedder is, which honours the modules of sentence-transformers' directories.
_EMBEDDER = "bertine.inference.embedder"


class Late:
    """Vectors whose maker is opened when they are first asked for: not everybody who serves a
    classifier wants them, and they may take the weights once more.

    Args:
        open: makes them; what it raises is raised at every call until it succeeds.
    """

    def __init__(self, open: Callable[[], Vectors]) -> None:
        self._open = open
        self._opened: Vectors | None = None
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """fp32 [N, H] of N texts, in their order."""
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            opened = self._opened
        return opened(texts)


def open_vectors(path: Path, fallback: Vectors, *, device: str | None, precision: str) -> Vectors:
    """Vectors of the model directory at `path`, as the command ``embed`` makes them; `fallback`
    where the package has no embedder.

    Raises:
        BertineError: the directory asks for vectors that are not computed here.
    """
    if importlib.util.find_spec(_EMBEDDER) is None:
        return fallback
    embedder = importlib.import_module(_EMBEDDER).Embedder
    opened: Vectors = embedder.load(path, device=device, precision=precision)
    return opened


class MeanPooled:
    """The mean of the last layer over a text's tokens, [CLS] and [SEP] among them.

    Args:
        model: with any heads, on any device.
        tokenizer: of the model.
        dtype: to compute in.
        max_length: in tokens; longer texts are cut.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, dtype: torch.dtype, max_length: int
    ) -> None:
        self.model, self.tokenizer, self.dtype = model, tokenizer, dtype
        self.max_length = max_length

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """fp32 [N, H] of N texts, in their order."""
        backbone = self.model.backbone
        if not texts:
            return np.zeros((0, backbone.config.hidden_size), np.float32)
        encodings = self.tokenizer.encode_batch(list(texts), max_length=self.max_length)
        features = [
            Features(
                np.asarray(encoding.input_ids, np.int32),
                np.asarray(encoding.token_type_ids, np.int8),
                row=row,
            )
            for row, encoding in enumerate(encodings)
        ]
        device = next(self.model.parameters()).device
        budget = CPU_TOKENS if device.type == "cpu" else GPU_TOKENS
        batches = token_budget_batches([len(each.input_ids) for each in features], budget)
        rows: list[list[np.ndarray]] = []
        with torch.inference_mode(), autocast(self.dtype, device):
            for indices in batches:
                batch = pad_features(
                    [features[index] for index in indices],
                    self.tokenizer.pad_token_id,
                    self.max_length,
                ).to(device)
                hidden = backbone(batch.input_ids, batch.attention_mask, batch.token_type_ids)
                mask = batch.attention_mask[..., None]
                # Padding is left out by choosing, not by a product with 0: it may hold anything.
                states = torch.where(mask, hidden.last_hidden_state.float(), 0.0)
                rows.append(list((states.sum(1) / mask.sum(1)).cpu().numpy()))
        return np.stack(restore_order(batches, rows))
