"""Options of ``serve``: where it listens, who may ask, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.errors import BertineError
from bertine.options.answering import Abstaining, BatchInvariance, Deciding, NearExamples
from bertine.options.fields import OptionGroup, declare
from bertine.options.machine import AnsweringMachine

#: Seconds that a request, or a batch, may be let wait at most: longer than a day is as good as for
#: ever, and somewhere above it the clocks of the system end.
_DAY = 86_400


class Address(OptionGroup):
    """Options that say where a server listens, and to whom."""

    host: str = declare(
        "127.0.0.1",
        "address to listen at; 0.0.0.0 is every address of this machine",
        metavar="ADDRESS",
    )
    port: int = declare(8000, "port to listen at; 0 takes a free one", least=0)
    api_key_file: Path | str | None = declare(
        None,
        "file with the key that requests must have",
        otherwise="the environment variable BERTINE_API_KEY, else no key",
        more="They have it as ``Authorization: Bearer KEY``.",
        metavar="FILE",
    )
    allowed_hosts: Sequence[str] | str | None = declare(
        None,
        "host names the server answers to, besides localhost, its own and IP addresses; ``*.NAME`` "
        "allows all subdomains, ``*`` allows any",
    )


class Bounds(OptionGroup):
    """Options that say how much may be asked of a server.

    Raises:
        BertineError: a value is out of range, or the queue has no room for the texts of one
            request.
    """

    title = "bounds"

    max_wait_ms: float = declare(
        5.0,
        "milliseconds a request waits at most for others to share its batch",
        metavar="MS",
        title="batches",
        least=0,
        most=1000 * _DAY,
    )
    max_batch_tokens: int = declare(
        768,
        "tokens in a batch, at most",
        more="A longer input is computed by itself.",
        title="batches",
        least=1,
    )
    max_queue: int = declare(
        1024, "texts (or windows of long ones) that may wait for a model", least=1
    )
    max_texts: int = declare(256, "texts in a request (2,048 for /v1/embeddings)", least=1)
    max_characters: int = declare(20_000, "characters of a text", least=1)
    max_body_bytes: int = declare(1 << 20, "bytes of a request", least=1)
    max_connections: int = declare(512, "connections open at once", least=1)
    request_timeout: float = declare(
        30.0, "seconds before a request times out", metavar="S", above=0, most=_DAY
    )
    read_timeout: float = declare(
        10.0,
        "seconds a client has to send its headers, again for its body, and again to read each "
        "16 KB of the answer",
        metavar="S",
        above=0,
        most=_DAY,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_queue < self.max_texts:
            raise BertineError(
                f"max_queue is {self.max_queue}, but one request may have max_texts = "
                f"{self.max_texts}; raise the first or lower the second"
            )


class ServeOptions(
    Address, Abstaining, Deciding, NearExamples, BatchInvariance, AnsweringMachine, Bounds
):
    """All options of ``serve``."""
