"""Vectors by an exported model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from bertine.data.checks import check_batch
from bertine.errors import BertineError
from bertine.inference.compute.onnx_engine import OnnxEngine, refuse_device
from bertine.inference.compute.running import in_batches
from bertine.inference.embedding.cosines import Cosines
from bertine.inference.embedding.embedder import Embedder
from bertine.interop.exported import Exported, read_exported
from bertine.models.model import Model
from bertine.options.names import option
from bertine.tasks.base import Features, pad_features
from bertine.text.tokenizer import Tokenizer


def load_exported(
    folder: str | Path,
    device: str | None,
    precision: str,
    max_length: int | None,
    asked: Mapping[str, object],
) -> ExportedEmbedder:
    """Read a folder that ``bertine export`` has written.

    Raises:
        BertineError: something of `asked` is not None, as all of it was said in exporting; a device
            that is not the CPU; what :class:`ExportedEmbedder` raises.
    """
    for name, value in asked.items():
        if value is not None:
            raise BertineError(
                f"{folder}: is an exported model, whose {name} is that of the export; leave {name} "
                "out, or give the model directory"
            )
    exported = read_exported(folder)
    refuse_device(exported, device)
    return ExportedEmbedder(exported, precision=precision, max_length=max_length)


class ExportedEmbedder(Embedder):
    """An exported model that turns texts into vectors; pooling and normalizing are in the graph.

    Raises:
        BertineError: the graph gives no vectors; what :class:`OnnxEngine` raises; a maximum length
            beyond the model's positions, or without room for text.
    """

    def __init__(
        self, exported: Exported, *, precision: str = "auto", max_length: int | None = None
    ) -> None:
        if exported.pooling is None:
            raise BertineError(
                f"{exported.folder}: gives logits, not vectors; export the model with a pooling "
                f"({option('pooling')})"
            )
        self._graph = OnnxEngine(exported, precision)
        self._prepare(
            cast(Model, self._graph.model),
            Tokenizer.load(exported.folder),
            exported.pooling,
            exported.max_length if max_length is None else max_length,
            exported.prompt,
        )
        self.precision, self.on_cpu = self._graph.precision, True
        self.max_tokens = self._graph.max_tokens
        self.load_lines = [*self._lines(None), *self._graph.lines()]

    def agreement(self, features: Sequence[Features]) -> Cosines | None:
        """None: the model to compare with is not there."""
        return None

    def _compute(
        self, features: Sequence[Features], on_batch: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        config, pad_id = self.model.config, self.tokenizer.pad_token_id

        def compute(chosen: list[Features]) -> list[np.ndarray]:
            batch = pad_features(chosen, pad_id, config.longest_input)
            check_batch(batch, config)
            output = self._graph.backbone(
                batch.input_ids, batch.attention_mask, batch.token_type_ids
            )
            vectors = output.last_hidden_state.numpy()
            if not self.pooling.tokens:
                return list(vectors)
            return [
                row[: len(feature.input_ids)].copy()
                for row, feature in zip(vectors, chosen, strict=True)
            ]

        return in_batches(features, self.max_tokens, compute, on_batch)
