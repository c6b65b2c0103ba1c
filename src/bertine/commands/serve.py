"""``bertine serve``: answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.arguments import Parser, real, whole
from bertine.commands.command import Command
from bertine.commands.run_arguments import add_machine_arguments


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a model directory, or NAME=MODEL; the first answers requests that name none",
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="0.0.0.0: every one of the machine"
    )
    parser.add_argument("--port", metavar="N", type=whole(), default=8000, help="0: a free one")
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        type=Path,
        help="with the key that requests must have (not given: BERTINE_API_KEY of the environment, "
        "else none)",
    )
    parser.add_argument(
        "--allowed-hosts",
        metavar="NAME",
        nargs="+",
        help="by which it may be asked, beside localhost, ADDRESS and all that are numbers; "
        "*.NAME: all under it; *: every one",
    )
    add_machine_arguments(parser, int8=True)
    group = parser.add_argument_group("batches")
    group.add_argument(
        "--max-wait-ms",
        metavar="MS",
        type=real(),
        default=5.0,
        help="how long a request waits for others to be computed with",
    )
    group.add_argument(
        "--max-batch-tokens", metavar="N", type=whole(1), default=768, help="computed together"
    )
    bounds = parser.add_argument_group("bounds")
    for option, default, what in (
        ("--max-queue", 1024, "texts (or windows of long ones) that wait for a model"),
        ("--max-texts", 256, "in a request"),
        ("--max-characters", 20_000, "of a text"),
        ("--max-body-bytes", 1 << 20, "of a request"),
        ("--max-connections", 512, "open at once"),
    ):
        bounds.add_argument(option, metavar="N", type=whole(1), default=default, help=what)
    bounds.add_argument(
        "--request-timeout", metavar="S", type=real(), default=30.0, help="until the answer"
    )
    bounds.add_argument(
        "--read-timeout",
        metavar="S",
        type=real(),
        default=10.0,
        help="for a client to send its headers, and its body, and to take 16 KB of the answer",
    )


def _run(values: dict[str, Any]) -> None:
    from bertine import serve

    print("\n".join(serve(**values).lines()))


SERVE = Command(
    name="serve",
    summary="answer over HTTP, with a page to try",
    description="Answer over HTTP: predictions, filled masks, vectors, and a page to try them on.\n"
    "Needs bertine[serve]. SIGTERM or Ctrl-C ends it; requests that have begun are answered.",
    add_arguments=_add_arguments,
    run=_run,
)
