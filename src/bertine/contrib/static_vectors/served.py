"""Serve a table of static vectors, which gives vectors and has no other operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.inference.embedding.embedder import Embedder
from bertine.serving.address import Limits
from bertine.serving.handles import ModelHandle
from bertine.serving.schemas import reads_chinese_only, sample_text

#: The number of pieces that cost the time of a token of a small encoder, a safe value.
_PIECES_OF_A_TOKEN = 20


class TableHandle(ModelHandle):
    """A table of static vectors.

    Args:
        name: the name by which requests choose it.
        embedder: the embedder of the table.
        limits: the limits of the server.
    """

    def __init__(self, name: str, embedder: Embedder, limits: Limits) -> None:
        self.name, self.limits = name, limits
        self.predictor, self.judge, self.embedder = None, None, embedder
        self._chinese = reads_chinese_only(embedder.tokenizer)
        self.operations = {"embed": self._embed, "rerank": self._embed}
        self.unpadded = {"embed", "rerank"}

    @classmethod
    def open(cls, name: str, path: Path, limits: Limits) -> TableHandle:
        """Load a table."""
        return cls(name, Embedder.opened(path), limits)

    @property
    def dimensions(self) -> int:
        assert self.embedder is not None
        return self.embedder.dimensions

    def describe(self) -> dict[str, Any]:
        assert self.embedder is not None
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "bertine",
            "task": self.task,
            "operations": sorted(self.operations),
            "labels": [],
            "text_columns": [],
            "max_choices": 0,
            "max_length": self.embedder.limit,
            "long_text": "head",
            "example": sample_text(self.task, [], 0, 0, self._chinese, ""),
            "mask": "",
            "dimensions": self.dimensions,
            "prompts": [],
            "layers": 0,
            "heads": 0,
        }

    def tokens(self, text: str) -> int:
        item = 4 if text.isascii() else 2
        return 1 + len(text) // item // _PIECES_OF_A_TOKEN
