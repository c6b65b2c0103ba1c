"""``bertine serve``: answers over HTTP."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.serving import ServeOptions

    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a model directory, or NAME=MODEL; the first answers requests that name none",
    )
    add_options(parser, ServeOptions)


SERVE = Command(
    name="serve",
    summary="answer over HTTP, with a page to try",
    description="Answer over HTTP: predictions, filled masks, vectors, and a page to try them on.\n"
    "Needs fastapi, uvicorn, httptools and prometheus-client. SIGTERM or Ctrl-C ends it;\n"
    "requests that have begun are answered.",
    add_arguments=_add_arguments,
    examples="bertine serve reviews-model\nbertine serve reviews-model --port 8080",
    common="--host --port --api-key-file --allowed-hosts --precision --device --max-wait-ms "
    "--config",
)
