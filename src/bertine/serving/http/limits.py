"""What one request, and all of them together, may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bertine.errors import BertineError

#: Seconds that a request, or a batch, may be let wait at most. Longer than a day is as good as
#: for ever, and somewhere above it the clocks of the system end.
_DAY = 86_400.0


@dataclass(frozen=True)
class Limits:
    """The bounds of a server.

    Attributes:
        max_body_bytes: of a request's body (413).
        max_texts: in a request (422).
        max_characters: of one text (422).
        max_embedding_inputs: texts in a request to ``/v1/embeddings``, OpenAI's bound (422).
        max_queue: inputs that wait for a model: texts, or windows of long ones (429).
        max_connections: that are open at once (503).
        max_batch_tokens: computed together; a longer input is computed by itself.
        max_wait_ms: how long a request waits for others to be computed with.
        request_timeout: seconds from a request's first byte to its answer (504).
        read_timeout: seconds that a client has for the headers, again for the body (408), and
            again for each 16 KB of the answer.
        explain_characters: of a text that is explained (422).
        explain_tokens: of a text that is explained; more are cut off, and counted.
        max_masks: in one text (422).
        max_top_k: candidates for a mask (422).

    Raises:
        BertineError: a bound below 1 (of the waiting: below 0, or above a day), or a queue that
            has no room for the texts of one request.
    """

    max_body_bytes: int = 1 << 20
    max_texts: int = 256
    max_characters: int = 20_000
    max_queue: int = 1024
    max_connections: int = 512
    max_batch_tokens: int = 768
    max_wait_ms: float = 5.0
    request_timeout: float = 30.0
    read_timeout: float = 10.0
    explain_characters: int = 2000
    explain_tokens: int = 128
    max_masks: int = 16
    max_top_k: int = 50
    max_embedding_inputs: int = 2048

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            least = 0 if name in ("max_wait_ms", "request_timeout", "read_timeout") else 1
            if not value >= least or (name.endswith("timeout") and not value > 0):
                raise BertineError(f"{name} is {value:g}, which leaves nothing to serve; raise it")
        for name, seconds in (
            ("max_wait_ms", self.max_wait_ms / 1000),
            ("request_timeout", self.request_timeout),
            ("read_timeout", self.read_timeout),
        ):
            if seconds > _DAY:
                raise BertineError(f"{name} is {getattr(self, name):g}, more than a day; lower it")
        if self.max_queue < self.max_texts:
            raise BertineError(
                f"max_queue is {self.max_queue}, but one request may have max_texts = "
                f"{self.max_texts}; raise the first or lower the second"
            )
