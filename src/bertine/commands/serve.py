"""``bertine serve``: answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, real, whole
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.machine import AnsweringMachine

    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a model directory, or NAME=MODEL; the first answers requests that name none",
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen at; 0.0.0.0 is every address of this machine",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=whole(),
        default=8000,
        help="port to listen at; 0 takes a free one",
    )
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        type=Path,
        help="file with the key that requests must have (not given: the environment variable "
        "BERTINE_API_KEY, else no key)",
    )
    parser.add_argument(
        "--allowed-hosts",
        metavar="NAME",
        nargs="+",
        help="host names the server answers to, besides localhost, ADDRESS and IP addresses; "
        "*.NAME allows all subdomains, * allows any",
    )
    add_options(parser, AnsweringMachine)
    group = parser.add_argument_group("batches")
    group.add_argument(
        "--max-wait-ms",
        metavar="MS",
        type=real(),
        default=5.0,
        help="milliseconds a request waits at most for others to share its batch",
    )
    group.add_argument(
        "--max-batch-tokens",
        metavar="N",
        type=whole(1),
        default=768,
        help="tokens in a batch, at most",
    )
    bounds = parser.add_argument_group("bounds")
    for option, default, what in (
        ("--max-queue", 1024, "texts (or windows of long ones) that may wait for a model"),
        ("--max-texts", 256, "texts in a request (2,048 for /v1/embeddings)"),
        ("--max-characters", 20_000, "characters of a text"),
        ("--max-body-bytes", 1 << 20, "bytes of a request"),
        ("--max-connections", 512, "connections open at once"),
    ):
        bounds.add_argument(option, metavar="N", type=whole(1), default=default, help=what)
    bounds.add_argument(
        "--request-timeout",
        metavar="S",
        type=real(),
        default=30.0,
        help="seconds before a request times out",
    )
    bounds.add_argument(
        "--read-timeout",
        metavar="S",
        type=real(),
        default=10.0,
        help="seconds a client has to send its headers, again for its body, and again to read each "
        "16 KB of the answer",
    )


def _run(values: dict[str, Any]) -> None:
    from bertine import serve

    print("\n".join(serve(**values).lines()))


SERVE = Command(
    name="serve",
    summary="answer over HTTP, with a page to try",
    description="Answer over HTTP: predictions, filled masks, vectors, and a page to try them on.\n"
    "Needs fastapi, uvicorn, httptools and prometheus-client. SIGTERM or Ctrl-C ends it;\n"
    "requests that have begun are answered.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine serve reviews-model\nbertine serve reviews-model --port 8080",
    common=(
        "--host",
        "--port",
        "--api-key-file",
        "--allowed-hosts",
        "--precision",
        "--device",
        "--max-wait-ms",
        "--config",
    ),
)
