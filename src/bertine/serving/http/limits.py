"""Limits of what one request, and all of them together, may ask for."""

from __future__ import annotations

from typing import Self

from bertine.options.serving import Bounds


class Limits(Bounds):
    """The bounds of a server: those that are options, and those that are not.

    Requests beyond them are answered with 413 (the body), 422 (its texts), 429 (the queue), 503
    (connections), 408 and 504 (time).

    Attributes:
        explain_characters: of a text that is explained.
        explain_tokens: of a text that is explained; more are cut off, and counted.
        max_masks: in one text.
        max_top_k: candidates for a mask.
        max_embedding_inputs: texts in a request to ``/v1/embeddings``, OpenAI's bound.
    """

    explain_characters: int = 2000
    explain_tokens: int = 128
    max_masks: int = 16
    max_top_k: int = 50
    max_embedding_inputs: int = 2048

    @classmethod
    def within(cls, bounds: Bounds) -> Self:
        """Return the limits of a server with these options."""
        return cls(**Bounds.of(bounds).values())
