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

from bertine.commands import COMMANDS
from bertine.commands.options.arguments import Parser, line_width, nearest
from bertine.commands.options.command import Command
from bertine.config_file import apply_config
from bertine.cores import launch
from bertine.errors import BertineError
from bertine.options.names import on_the_command_line
from bertine.system.process import (
    Terminated,
    check_address_space,
    out_of_memory,
    prepared_process,
)
from bertine.terminal.text import one_line, printable
from bertine.version import __version__

EXIT_MISTAKE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``bertine`` with `argv` (the process's own arguments if None); its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with prepared_process(), on_the_command_line():
        return _main(arguments)


def _main(arguments: list[str]) -> int:
    try:
        with contextlib.ExitStack() as stack:
            if not launch.is_main():
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            status = _run(arguments)
        sys.stdout.flush()
    except BertineError as error:
        _tell(f"bertine: error: {one_line(error)}")
        return EXIT_MISTAKE
    except Terminated as ended:
        _tell("bertine: terminated")
        return ended.status
    except KeyboardInterrupt:
        _tell("bertine: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()  # whoever read our output has left (`| head`)
        return EXIT_PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            # Not only where a file is read or written: asking whether it exists may be refused.
            _tell(f"bertine: error: {one_line(f'{error.filename}: {error.strerror}')}")
            return EXIT_MISTAKE
        if error.errno == errno.ENOSPC:
            _drop_stdout()
            _tell("bertine: error: the disk of the standard output is full")
            return EXIT_MISTAKE
        return _without_memory(error)
    except (MemoryError, ImportError, RuntimeError) as error:
        return _without_memory(error)
    return status


def _without_memory(error: Exception) -> int:
    """Return the exit status where memory has run out, and say so; raise any other error."""
    line = out_of_memory(error)
    if line is None:
        raise error
    _tell(f"bertine: error: {one_line(line)}")
    return EXIT_MISTAKE


def _tell(line: str) -> None:
    """Say how it ended; of several processes that end alike, one says so."""
    if launch.tells():
        print(line, file=sys.stderr, flush=True)


def _drop_stdout() -> None:
    """Send what stdout still holds nowhere: Python would complain when it flushes at exit."""
    with contextlib.suppress(OSError):  # a stream in memory has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    arguments = with_name_joined(arguments)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(overview())
    elif name in ("-V", "--version"):
        print(f"bertine {__version__}")
    elif name in COMMANDS:
        command = COMMANDS[name]
        rest = arguments[1:]
        if {"-h", "--help", "--help-all"} & set(rest):
            print(command.help(everything="--help-all" in rest), end="")
        else:
            values = parse_arguments(command, rest)
            if launch.launched() and not command.processes:
                raise BertineError(f"'bertine {name}' is one process; start it without torchrun")
            quiet = command.brief(values) or values.get("quiet")
            shown = launch.is_main() and not quiet
            if shown and (line := resolved(command, values)):
                print(printable(line), file=sys.stderr, flush=True)
            if shown and (quota := launch.quota_line()):
                print(f"{name}: {quota}", file=sys.stderr, flush=True)
            check_address_space()
            return command(values)
    else:
        kind = "option" if name.startswith("-") else "command"
        hint = nearest(name, [*COMMANDS, "--help", "--version"])
        raise BertineError(f"unknown {kind} '{name}'{hint}; see 'bertine --help'")
    return 0


def with_name_joined(arguments: list[str]) -> list[str]:
    """Return the arguments with a command of two words as one: ``finetune similarity`` is
    ``finetune-similarity``."""
    name = "-".join(arguments[:2])
    return [name, *arguments[2:]] if name in COMMANDS else arguments


def overview() -> str:
    """Return what ``bertine`` and ``bertine --help`` print: the commands, one per line."""
    lines = ["usage: bertine COMMAND ...", "", "From raw text to a BERT that answers.", ""]
    width = max(map(len, COMMANDS)) + 1
    lines += [f"  {name:<{width}}{command.summary}" for name, command in COMMANDS.items()]
    lines += [
        "",
        "'bertine COMMAND --help' says what a command takes ('--help-all': all); each also takes",
    ]
    lines += ["'--config FILE', YAML with the same names. 'bertine --version' prints the version."]
    return "\n".join(lines)


def parse_arguments(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the value of every argument of `command`: from the command line, else from its config
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
    """Return the values that `command` is called with and that differ from the defaults, as
    ``name=value``: the arguments given on the command line and in configuration files.

    Returns:
        One paragraph, broken at the width of the terminal; "" where nothing differs.
    """
    defaults = {action.dest: action.default for action in command.parser().options()}
    words = [
        f"{key}={_shown(value)}"
        for key, value in values.items()
        if value != defaults.get(key) and value != []
    ]
    if not words:
        return ""
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
