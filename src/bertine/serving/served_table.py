"""A table of static vectors as the server uses it: it gives vectors, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.inference.static_vectors.embedder import StaticEmbedder
from bertine.interop.word_models import STATIC, word_model_of
from bertine.names import AnswerPrecision
from bertine.options.answering import Deciding, NearExamples
from bertine.serving.examples import reads_chinese_only, sample_text
from bertine.serving.http.limits import Limits
from bertine.serving.served import Served, say_no_labels
from bertine.terminal.console import say


class ServedTable(Served):
    """A table of static vectors.

    Args:
        name: by which requests choose it.
        embedder: of the table.
        limits: of the server.
    """

    def __init__(self, name: str, embedder: StaticEmbedder, limits: Limits) -> None:
        self.name, self.limits = name, limits
        self.predictor, self.judge, self.embedder = None, None, embedder
        self._tokenizer = embedder.tokenizer
        self._chinese = reads_chinese_only(embedder.tokenizer)
        self.operations = {"embed": self._embed, "rerank": self._embed}
        self.unpadded = {"embed", "rerank"}

    @property
    def dimensions(self) -> int:
        assert self.embedder is not None
        return self.embedder.dimensions

    def describe(self) -> dict[str, Any]:
        assert isinstance(self.embedder, StaticEmbedder)
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
        each = 4 if text.isascii() else 2
        return 1 + len(text) // each // _PIECES_OF_A_TOKEN


#: Pieces that cost the time of a token of a small encoder, with room to spare.
_PIECES_OF_A_TOKEN = 20


def load_served(
    name: str,
    path: Path,
    limits: Limits,
    *,
    device: str | None,
    precision: AnswerPrecision,
    deciding: Deciding | None = None,
    near: NearExamples | None = None,
    batch_invariant: bool = False,
) -> Served:
    """Read a directory for the server, a table of static vectors or a model, and say what it is.
    The arguments are those of :meth:`bertine.serving.served.Served.load`.

    Raises:
        BertineError: what reading it raises.
    """
    if word_model_of(path) != STATIC:
        return Served.load(
            name,
            path,
            limits,
            device=device,
            precision=precision,
            deciding=deciding,
            near=near,
            batch_invariant=batch_invariant,
        )
    say(f"{name}: {path}")
    say_no_labels(name, deciding, near)
    embedder = StaticEmbedder.load(path)
    for line in embedder.load_lines:
        say(line)
    say(f"{name}: does embed, rerank; vectors in fp32")
    return ServedTable(name, embedder, limits)
