"""Run the command line: find the command, read its arguments, call its function.

A user's mistake ends with one line on stderr and exit status 2; an interruption with one line and
130. An exception that is an error in Bertine keeps its traceback (exit status 1, which is also that
of a command of which a part failed). Results go to stdout; resolved settings, notes and progress go
to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine.commands.parser import Command, Parser, Switch, line_width, nearest
from bertine.commands.study import (
    BLIMP,
    CHECK_LABELS,
    DRIFT,
    INSPECT,
    LABEL,
    LEARNING_CURVE,
    LR_FIND,
    REPORT,
    SEARCH,
    SUGGEST,
)
from bertine.commands.train import (
    DISTILL,
    FEW_SHOT,
    FINETUNE,
    FINETUNE_SIMILARITY,
    PREPARE,
    PRETRAIN,
    VOCAB,
)
from bertine.commands.use import (
    CONVERT,
    EMBED,
    EVALUATE,
    EXPLAIN,
    EXPORT,
    FILL_MASK,
    GENERATE,
    GLUE_SUBMISSION,
    INDEX_VECTORS,
    PREDICT,
    SERVE,
    SIMILAR,
)
from bertine.core import cpu
from bertine.core.contrib import registered
from bertine.core.errors import BertineError
from bertine.core.files import read_bounded
from bertine.core.names import __version__, implementation, on_the_command_line
from bertine.core.process import (
    Terminated,
    check_address_space,
    out_of_memory,
    prepared_process,
)
from bertine.core.strict_json import parse_yaml
from bertine.core.text import briefly, one_line, printable

#: The commands under their headings, in the order of their use; a new command needs a line here, or
#: in :data:`bertine.contrib.COMMANDS`.
_GROUPS: dict[str, list[Command]] = {
    "begin": [],  # those of contrib
    "text": [VOCAB, PREPARE, INSPECT],
    "train": [PRETRAIN, FINETUNE, FINETUNE_SIMILARITY, FEW_SHOT, DISTILL],
    "use": [
        *(PREDICT, EXPLAIN, FILL_MASK, GENERATE, EMBED, INDEX_VECTORS, SIMILAR),
        *(EXPORT, CONVERT, SERVE),
    ],
    "judge and compare": [
        *(EVALUATE, DRIFT, REPORT, LABEL, SUGGEST, CHECK_LABELS, LEARNING_CURVE, LR_FIND),
        *(SEARCH, BLIMP, GLUE_SUBMISSION),
    ],
}
for _heading, _places in registered("COMMANDS").items():
    _GROUPS[_heading] += map(implementation, _places)
COMMANDS: dict[str, Command] = {
    command.name: command for commands in _GROUPS.values() for command in commands
}

# Configuration: ``--config FILE`` reads a command's arguments from a YAML file with the same names,
# or from a recipe of the package, by its name.
#
# A file is checked like the command line: an unknown key, a duplicate key and a value of the wrong
# type are errors that name the file and the key. Dashes and underscores are equivalent in a key.
# The command line overrides the file, at any position of ``--config``, and also if it sets an
# alternative of a key in the file: ``--hours`` overrides ``steps``.

#: The recipes of the package.
_RECIPES = Path(__file__).parent / "recipes"


#: Most bytes of a file; the longest recipe has 3 kB.
_MAX_BYTES = 2**18


def recipes() -> list[str]:
    """Return the names of the recipes of the package."""
    return sorted(path.stem for path in _RECIPES.glob("*.yaml"))


def _recipe_file(path: str | Path) -> Path:
    """Return the file `path`; if it does not exist, the package's recipe of that name."""
    if not Path(path).exists() and str(path) in recipes():
        return _RECIPES / f"{path}.yaml"
    return Path(path)


def read_config(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML file, or of a recipe of the package; dashes in keys become
    underscores.

    Raises:
        BertineError: the file cannot be read, is not YAML, or is not keys with values.
    """
    path = _recipe_file(path)
    raw = read_bounded(path, _MAX_BYTES, pipes=True)
    if len(raw) > _MAX_BYTES:
        raise BertineError(f"{path}: is larger than {_MAX_BYTES >> 10} KiB, not a configuration")
    content = parse_yaml(raw, path)
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise BertineError(f"{path}: expected lines such as 'batch_size: 32'")
    config: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name in config:
            raise BertineError(f"{path}: '{key}' is given twice, with dashes and underscores")
        config[name] = value
    return config


def apply_config(path: str | Path, parser: Parser) -> list[str]:
    """Make the values of the file `path` the defaults of `parser`.

    Returns:
        The keys that were ignored: those that `parser` leaves out, if some of them are not its own
        arguments, which shows that the file was written for the other command.

    Raises:
        BertineError: a key is not an argument of the command, or a value has the wrong type.
    """
    arguments = {action.dest: action for action in parser.options()}
    config = read_config(path)
    unused = [key for key in config if key in parser.left_out]
    if arguments.keys() >= set(unused):
        unused = []
    said_keys = {key for key, value in config.items() if value is not None}
    parser.take_back({action for name, action in arguments.items() if name in said_keys})
    for key, value in config.items():
        if key in unused:
            continue
        if key in parser.decided:
            continue  # the command line has it
        if key in parser.elsewhere and value in (None, parser.elsewhere[key].default):
            continue  # a file for all kinds may say what is so anyway
        if key not in arguments:
            parser.refuse_elsewhere(key, f"{path}: ")
            hint = nearest(key, arguments) or "; its keys are the options of --help-all"
            raise BertineError(f"{path}: unknown key '{key}' for '{parser.prog}'{hint}")
        action = arguments[key]
        if value is None:
            if action.default is not None:
                raise BertineError(f"{path}: {key} has no value; give one or remove the line")
            continue
        action.default = _convert(path, key, value, action)
        action.required = False
        if not action.option_strings:
            # A positional argument may now be omitted; then its default applies.
            action.nargs = "*" if action.nargs in ("+", "*") else "?"
    return unused


def _convert(path: str | Path, key: str, value: Any, action: argparse.Action) -> Any:
    """Convert the value of a key in the file `path` to that of the argument `action`."""
    if isinstance(action, Switch):
        if not isinstance(value, bool):
            raise BertineError(f"{path}: {key} is {briefly(value)}, but must be true or false")
        return value
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        items = value if isinstance(value, list) else [value]
        if not items:
            raise BertineError(f"{path}: {key} is an empty list")
        if isinstance(action.nargs, int) and len(items) != action.nargs:
            raise BertineError(f"{path}: {key} has {len(items)} values, but needs {action.nargs}")
        return [_convert_one(path, key, item, action) for item in items]
    return _convert_one(path, key, value, action)


def _convert_one(path: str | Path, key: str, value: Any, action: argparse.Action) -> Any:
    """Convert a single value, or one item of a list."""
    if isinstance(value, list | dict | bool) or value is None:
        raise BertineError(f"{path}: {key} is {briefly(value)}, but must be one number or text")
    # Through text: YAML reads 1e-4 as text and 7 as a number, for any type of argument.
    try:
        text = str(value)
        converted = action.type(text) if callable(action.type) else text
    except (argparse.ArgumentTypeError, ValueError, OverflowError) as error:
        raise BertineError(f"{path}: {key}: {error}") from error
    if action.choices is not None and converted not in action.choices:
        choices = ", ".join(str(choice) for choice in action.choices)
        raise BertineError(f"{path}: {key} is {briefly(text)}, but must be one of {choices}")
    return converted


EXIT_MISTAKE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, by shell convention
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``bertine`` with `argv` (None: the process's arguments); return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with prepared_process(), on_the_command_line():
        return _main(arguments)


def _main(arguments: list[str]) -> int:
    """Run the command, and turn the errors that end it into a line and an exit status."""
    try:
        with contextlib.ExitStack() as stack:
            if not cpu.is_main():
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
        _drop_stdout()  # the reader of our output has ended (`| head`)
        return EXIT_PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            # Not only on reading or writing a file: a check whether it exists may be refused.
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
    """Report an out-of-memory error, and return its exit status; raise any other error."""
    line = out_of_memory(error)
    if line is None:
        raise error
    _tell(f"bertine: error: {one_line(line)}")
    return EXIT_MISTAKE


def _tell(line: str) -> None:
    """Print how the command ended; only one of several processes prints it."""
    if cpu.reports_the_end():
        print(line, file=sys.stderr, flush=True)


def _drop_stdout() -> None:
    """Discard the rest of stdout's buffer: Python would report an error on flushing it at exit."""
    with contextlib.suppress(OSError):  # a stream in memory has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    """Find the command that `arguments` name, and call it with their values; or print a help text.
    Return the exit status."""
    arguments = with_name_joined(arguments)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(overview())
    elif name in ("-V", "--version"):
        print(f"bertine {__version__}")
    elif name in COMMANDS:
        command = COMMANDS[name]
        rest = arguments[1:]
        if rest and rest[0] in command.kinds:
            command = command.of_kind(rest.pop(0))
        if {"-h", "--help", "--help-all"} & set(rest):
            print(command.help(everything="--help-all" in rest), end="")
        else:
            values = parse_arguments(command, rest)
            if cpu.launched() and not command.processes:
                raise BertineError(f"'bertine {name}' is one process; start it without torchrun")
            quiet = command.brief(values) or values.get("quiet")
            shown = cpu.is_main() and not quiet
            if shown and (line := resolved(command, values)):
                print(printable(line), file=sys.stderr, flush=True)
            if shown and (quota := cpu.quota_line()):
                print(f"{name}: {quota}", file=sys.stderr, flush=True)
            check_address_space()
            return command(values)  # Command.__call__
    else:
        kind = "option" if name.startswith("-") else "command"
        hint = nearest(name, [*COMMANDS, "--help", "--version"])
        raise BertineError(f"unknown {kind} '{name}'{hint}; see 'bertine --help'")
    return 0


def with_name_joined(arguments: list[str]) -> list[str]:
    """Join a command of two words in the arguments: ``finetune similarity`` becomes
    ``finetune-similarity``."""
    name = "-".join(arguments[:2])
    return [name, *arguments[2:]] if name in COMMANDS else arguments


def overview() -> str:
    """Return the output of ``bertine`` and ``bertine --help``: the commands, one per line, under
    their headings."""
    lines = ["usage: bertine COMMAND ...", "", "From raw text to a BERT that answers.", ""]
    width = max(map(len, COMMANDS)) + 1
    for title, commands in _GROUPS.items():
        if commands:
            lines.append(f"{title}:")
            lines += [f"  {command.name:<{width}}{command.summary}" for command in commands]
            lines.append("")
    lines += [
        "'bertine COMMAND --help' says what a command takes ('--help-all': all); each also takes",
    ]
    lines += ["'--config FILE', YAML with the same names. 'bertine --version' prints the version."]
    return "\n".join(lines)


def parse_arguments(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the value of every argument of `command`: from the command line, else from its config
    files (the last one wins), else the default.

    Raises:
        BertineError: an argument is unknown, missing or of the wrong type.
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
    """Format the values of `command` that differ from the defaults as ``name=value``: the arguments
    from the command line and from configuration files.

    Returns:
        One paragraph, wrapped to the terminal's width; "" if no value differs.
    """
    parser = command.parser()
    defaults = {action.dest: action.default for action in parser.options()} | parser.decided
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
