"""The command line: finds the command, reads its arguments, calls its one function.

A mistake ends with one line on stderr and exit status 2; an interruption with one line and 130.
An exception that is nobody's mistake but ours keeps its traceback (exit status 1, which is also
that of a command of which a part failed). Results go to stdout; what was resolved, notes and
progress go to stderr.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine import __version__, launch
from bertine.commands import COMMANDS
from bertine.commands.arguments import Parser, line_width, nearest
from bertine.commands.command import Command
from bertine.config_file import apply_config
from bertine.errors import BertineError

EXIT_MISTAKE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``bertine`` with `argv` (the process's own arguments if None); its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with contextlib.ExitStack() as stack:
            if not launch.is_main():
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            status = _run(arguments)
        sys.stdout.flush()
    except BertineError as error:
        _tell(f"bertine: error: {' '.join(str(error).split())}")
        return EXIT_MISTAKE
    except KeyboardInterrupt:
        _tell("bertine: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()  # whoever read our output has left (`| head`)
        return EXIT_PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            # Not only where a file is read or written: asking whether it exists may be refused.
            _tell(f"bertine: error: {error.filename}: {error.strerror}")
            return EXIT_MISTAKE
        if error.errno != errno.ENOSPC:
            raise
        _drop_stdout()
        print("bertine: error: the disk of the standard output is full", file=sys.stderr)
        return EXIT_MISTAKE
    return status


def _tell(line: str) -> None:
    """How it ended; of several processes that end alike, one says so."""
    if launch.tells():
        print(line, file=sys.stderr, flush=True)


def _drop_stdout() -> None:
    """Send what stdout still holds nowhere: Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        print(overview())
    elif name in ("-V", "--version"):
        print(f"bertine {__version__}")
    elif name in COMMANDS:
        command = COMMANDS[name]
        rest = arguments[1:]
        if {"-h", "--help"} & set(rest):
            print(command.parser().format_help(), end="")
        else:
            values = parse_arguments(command, rest)
            if launch.launched() and not command.processes:
                raise BertineError(f"'bertine {name}' is one process; start it without torchrun")
            if launch.is_main():
                print(resolved(command, values), file=sys.stderr, flush=True)
            return command.run(values) or 0
    elif not name:
        raise BertineError("no command given; see 'bertine --help'")
    else:
        kind = "option" if name.startswith("-") else "command"
        hint = nearest(name, [*COMMANDS, "--help", "--version"])
        raise BertineError(f"unknown {kind} '{name}'{hint}; see 'bertine --help'")
    return 0


def overview() -> str:
    """What ``bertine --help`` prints: the commands, a line each."""
    lines = ["usage: bertine COMMAND ...", "", "From raw text to a BERT that answers.", ""]
    width = max(map(len, COMMANDS)) + 1
    lines += [f"  {name:<{width}}{command.summary}" for name, command in COMMANDS.items()]
    lines += ["", "'bertine COMMAND --help' says what a command takes; every command also takes"]
    lines += ["'--config FILE', YAML with the same names. 'bertine --version' prints the version."]
    return "\n".join(lines)


def parse_arguments(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """The value of every argument of `command`: from the command line, else from its config
    files (the last wins), else the default.

    Raises:
        BertineError: something is unknown, missing or of the wrong kind.
    """
    finder = Parser(f"bertine {command.name}", "")
    finder.add_argument("--config", action="append")
    files = finder.parse_known_args(arguments)[0].config
    parser = command.parser()
    for file in files or ():
        if unused := apply_config(file, parser):
            print(
                f"{command.name}: {file} was written for another command; not taken from it: "
                f"{', '.join(unused)}",
                file=sys.stderr,
            )
    values = parser.parse(arguments)
    del values["config"]
    return values


def resolved(command: Command, values: dict[str, Any]) -> str:
    """Every value that `command` is called with, as ``name=value``; what is not set is left out."""
    words = [f"{key}={_shown(value)}" for key, value in values.items() if value is not None]
    return textwrap.fill(
        f"{command.name}: {' '.join(words)}",
        width=line_width(),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path):
        return shlex.quote(str(value))
    return str(value)
