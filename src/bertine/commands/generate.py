"""``bertine generate``: texts that a model writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import read_what_is_piped_in


def _add_arguments(parser: Parser) -> None:
    from bertine.options.generation import GenerateOptions

    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a model directory of a type that writes texts: openai-gpt, bart",
    )
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        default=None,
        help="a text to go on with (of bart: to read), or several",
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="such texts: csv, tsv, jsonl, Parquet, or plain text with one text a line; - is "
        "standard input (not given: what is piped in)",
    )
    parser.add_argument(
        "--output",
        "--out",
        metavar="FILE",
        help="write the rows of the input there, with a column of what was written; of plain text "
        "a line for each text; named .csv, .jsonl or .parquet: that; - is standard output (not "
        "given: the texts are printed, each on a line)",
    )
    add_options(parser, GenerateOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import generate
    from bertine.terminal.text import printable

    values["texts"] = values["texts"] or None
    if values["texts"] is None and values["input"] is None:
        read_what_is_piped_in(values, "generate", "a text, --input FILE")
    if values["output"] is None and sys.stdout.isatty():
        # Token by token: what stands there already does not change.
        generate(**values, on_text=lambda text: print(printable(text), end="", flush=True))
        return
    print("\n".join(generate(**values).lines()), file=_where(values))


def _where(values: dict[str, Any]) -> Any:
    """Return the stream for what is said: where rows went to stdout, that is none of them."""
    return sys.stderr if values["output"] == "-" else sys.stdout


GENERATE = Command(
    name="generate",
    summary="write texts: go on with one, or answer it",
    description="Write texts with a model that guesses the next token: GPT-1 goes on with a text,\n"
    "BART reads one and writes another. The most probable token each time, unless tokens are\n"
    "drawn (--sample) or several texts are followed at once (--beams).\n\n"
    '    bertine generate MODEL "Once upon a time"\n'
    '    bertine generate MODEL "Once upon a time" --sample --top-p 0.9 --seed 3\n'
    "    bertine generate MODEL --input prompts.csv --output written.csv --beams 4",
    add_arguments=_add_arguments,
    run=_run,
    brief=lambda values: bool(values["texts"]),
)
