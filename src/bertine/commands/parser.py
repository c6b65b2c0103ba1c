"""The parts of commands' arguments: a parser that ends a mistake in one line, switches, and the
kinds of value.

The standard library's argparse and not jsonargparse: every command is flat, a list of scalars
that one function takes, so that what jsonargparse adds (nested data classes, signatures) would
have to import PyTorch to answer ``--help``; and its messages take several lines, name Python
types, and let a ``--config`` that stands last override the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import re
import shutil
import sys
import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin

from bertine.core.errors import BertineError

if TYPE_CHECKING:
    from bertine.options.declare import Declared, OptionGroup


Kind = Callable[[str], Any]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known word most like `word`, or nothing."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{matches[0]}'?)" if matches else ""


def whole(minimum: int = 0) -> Kind:
    """Return a parser of whole numbers from `minimum` on, also written 1_000_000 or 1e6."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            try:
                real = float(text)
            except ValueError:
                real = float("nan")
            if not real.is_integer():  # false for nan and the infinities too
                raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
            number = int(real)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{text} is below {minimum}, the least it can be")
        return number

    return parse


def real(minimum: float = 0.0, maximum: float = float("inf")) -> Kind:
    """Return a parser of finite numbers from `minimum` to `maximum`, both included."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
        if not minimum <= number <= maximum or number == float("inf"):
            upper = "" if maximum == float("inf") else f" to {maximum:g}"
            raise argparse.ArgumentTypeError(
                f"{text} is not in the range {minimum:g}{upper or ' on'}"
            )
        return number

    return parse


class Switch(argparse.Action):
    """A truth value: its first option says yes; the others, if any, say no. None: not said."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        default: bool | None = False,
        required: bool = False,
        help: str | None = None,
    ) -> None:
        super().__init__(
            option_strings, dest, nargs=0, default=default, required=required, help=help
        )

    def format_usage(self) -> str:
        return " | ".join(self.option_strings)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


class Gather(argparse.Action):
    """A list whose option may be given several times: ``--names a b`` is ``--names a --names b``.
    What stands in a configuration file is replaced, not added to."""

    _namespace: argparse.Namespace | None = None

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest) if self._namespace is namespace else []
        self._namespace = namespace
        setattr(namespace, self.dest, [*before, *values])


def _is_number(text: str) -> bool:
    """Tell whether a value is meant as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def line_width() -> int:
    """Return the width of what is written for people: the terminal's, and not too long to be
    read."""
    return max(40, min(96, shutil.get_terminal_size((96, 24)).columns))


class HelpFormatter(argparse.HelpFormatter):
    """A formatter of help with the default beside each option, and descriptions kept as they are
    written where the terminal has room for them."""

    def __init__(self, prog: str) -> None:
        width = line_width()
        super().__init__(prog, max_help_position=min(32, width // 3), width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            part if max(map(len, part.splitlines())) <= width else textwrap.fill(part, width)
            for part in text.strip().split("\n\n")
        ]
        return textwrap.indent("\n\n".join(paragraphs), indent)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (action.help or "").replace("%", "%%")
        if isinstance(action, Switch):
            if len(action.option_strings) > 1 and action.default is not None:
                text += f" (default: {action.option_strings[0 if action.default else 1]})"
        elif action.option_strings and action.default not in (None, argparse.SUPPRESS):
            text += " (default: %(default)s)"
        return text


class Parser(argparse.ArgumentParser):
    """An argument parser whose every complaint is a :class:`BertineError` of one line.

    Options are never abbreviated, so a script written today means the same when options are
    added; an unknown one is answered with the nearest known.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=HelpFormatter,
        )
        #: Keys of the configuration files of another command, which are taken here too, that do
        #: not matter here or mean something else: as options, too, they are named as such.
        self.left_out: frozenset[str] = frozenset()
        self._alternatives: list[dict[argparse.Action, Any]] = []

    def part(self, title: str) -> argparse._ArgumentGroup:
        """Return the part of the help under `title`; begun where there is none yet."""
        known = (group for group in self._action_groups if group.title == title)
        return next(known, None) or self.add_argument_group(title)

    def require_path(self, flag: str, metavar: str, help: str) -> None:
        """Declare an option that must be given: a file or a folder."""
        self.add_argument(flag, metavar=metavar, type=Path, required=True, help=help)

    def alternatives(self, *actions: argparse.Action) -> None:
        """Declare options that say the same thing in different ways. Where a configuration file
        gives one of them, the command line, or a later file, may give another instead."""
        self._alternatives.append({action: action.default for action in actions})

    def take_back(self, given: Container[argparse.Action]) -> None:
        """Put back to its declared default what stands, so far, in place of what is `given`."""
        for group in self._alternatives:
            if any(action in given for action in group):
                for action, default in group.items():
                    action.default = default

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument ", "", message)
        message = re.sub(r"^the following arguments are required: ", "missing: ", message)
        raise BertineError(f"{message}; see '{self.prog} --help'")

    def options(self) -> list[argparse.Action]:
        """Return every argument a value can be given to, on the command line or in a config
        file."""
        return [a for a in self._actions if a.dest not in ("help", "config")]

    def _current_name(self, argument: str) -> str:
        """Return an argument with the name that its option has now."""
        from bertine.options.declare import FORMER, warn_of_former

        name, equals, value = argument.partition("=")
        sign = "--no-" if name.startswith("--no-") else "--"
        new = FORMER.get(name.removeprefix(sign).replace("-", "_"))
        if new is None or not name.startswith("--") or name in self._option_string_actions:
            return argument
        current = sign + new.replace("_", "-")
        if current not in self._option_string_actions:
            return argument
        warn_of_former(name)
        return f"{current}{equals}{value}"

    def parse(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the value of every argument, by its name with underscores.

        Raises:
            BertineError: an option is unknown, a value is missing or is none of its kind.
        """
        arguments = [self._current_name(argument) for argument in arguments]
        self._refuse_unknown(arguments)
        known = self._option_string_actions
        names = (argument.partition("=")[0] for argument in arguments)
        self.take_back({known[name] for name in names if name in known})
        try:
            return self._values(arguments)
        except BertineError as error:
            return self._with_lists_ended(arguments, error)

    def _values(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the value of every argument, as argparse finds them."""
        # Any number of texts may stand behind options too, which argparse does not do by itself.
        several = any(not each.option_strings and each.nargs == "*" for each in self._actions)
        read = self.parse_known_intermixed_args if several else self.parse_known_args
        namespace, unexpected = read(arguments)
        if unexpected:
            self.error(f"unexpected argument '{unexpected[0]}'")
        return vars(namespace)

    def _with_lists_ended(self, arguments: Sequence[str], error: BertineError) -> dict[str, Any]:
        """Read arguments that could not be read where the one argument without an option stands
        behind a list, which takes all that follows it. Behind a list of numbers it is what is no
        number; of others nobody can tell, so `error` is raised, with a hint.

        Raises:
            BertineError: that is not the case, or they cannot be read then either.
        """
        named = [action for action in self._actions if not action.option_strings]
        if len(named) != 1 or named[0].nargs not in (None, "?"):
            raise error
        for option, place in self._ends_of_lists(arguments):
            last = arguments[place]
            if option.type not in (None, Path):
                if not _is_number(last):
                    with contextlib.suppress(BertineError):
                        return self._values([last, *arguments[:place], *arguments[place + 1 :]])
            elif str(error).startswith(f"missing: {named[0].metavar}"):
                raise BertineError(
                    f"{error} (is it '{last}'? {option.option_strings[0]} takes all that follows "
                    "it, so write it before the options)"
                ) from None
        raise error

    def _ends_of_lists(self, arguments: Sequence[str]) -> Iterator[tuple[argparse.Action, int]]:
        """Yield each option that is given several values, and where the last of them stands."""
        option, count = None, 0
        for place, argument in enumerate([*arguments, "--"]):
            if not argument.startswith("--"):
                count += 1
                continue
            if option is not None and option.nargs == "+" and count > 1:
                yield option, place - 1
            option, count = self._option_string_actions.get(argument), 0
            if argument == "--":
                return

    def _refuse_unknown(self, arguments: Sequence[str]) -> None:
        # Before argparse looks: it would speak of the option that is missing, not of the
        # misspelled one that was meant to be it.
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--":
                return
            name = argument.partition("=")[0]
            is_option = re.fullmatch(r"-[^\W\d][^\s]*|--\S+", name) is not None
            if is_option and name not in known:
                if name.removeprefix("--").replace("-", "_") in self.left_out:
                    self.error(f"{name} does not matter here; leave it out")
                hint = nearest(name, [option for option in known if option.startswith("--")])
                self.error(f"unknown option '{name}'{hint}")


def borrow(parser: Parser, other: Parser, without: Iterable[str]) -> frozenset[str]:
    """Declare the arguments of `other` in `parser` too, in their groups, but for those named in
    `without` and those that `parser` has: a command that prepares another one takes the same
    arguments.

    Returns:
        The names of the arguments of `other` that are left out, its own of that name or none.
    """
    mine = {action.dest for action in parser.options()}
    left_out = {*without, *mine}
    for group in other._action_groups:
        for action in group._group_actions:
            # What stands for one value of an option, such as --all, is for `other` alone.
            if action.const is None and action.dest not in {"help", "config", *left_out}:
                parser.part(str(group.title))._add_action(action)
    parser._alternatives += other._alternatives
    return frozenset(action.dest for action in other.options()) & left_out


# Arguments of a command, made from a group of options (:mod:`bertine.options.declare`).


def add_options(
    parser: Parser,
    group: type[OptionGroup],
    *,
    but: Collection[str] = (),
    otherwise: Mapping[str, str] | None = None,
    help: Mapping[str, str] | None = None,
    title: str | None = None,
) -> None:
    """Declare the options of `group`, each in its part of the help.

    Args:
        parser: of the command.
        group: whose options.
        but: names that the command does not take.
        otherwise: by name, what is done here where an option is not given.
        help: by name, what an option is here.
        title: of the part of the help in which all of them stand; None: each in its own.
    """
    # Here, because ``bertine --help`` lists the commands without their options.
    from bertine.options.declare import alternatives_of, as_flags, declared

    listed = [entry for entry in declared(group) if entry.name not in but]
    flags = {
        action.dest: action.option_strings[0]
        for action in parser.options()
        if action.option_strings
    }
    flags |= {entry.name: _flags(entry)[0] for entry in listed}
    actions: dict[str, Action] = {}
    for entry in listed:
        words = (help or {}).get(entry.name, entry.option.help)
        last = (otherwise or {}).get(entry.name, entry.option.otherwise)
        if last:
            words += f" (not given: {last})"
        heading = entry.title if title is None else title
        place = parser.part(heading) if heading else parser
        actions[entry.name] = place.add_argument(
            *_flags(entry), help=as_flags(words, flags), **_arguments(entry)
        )
    for names in alternatives_of(group):
        if all(name in actions for name in names):
            parser.alternatives(*(actions[name] for name in names))


def _flags(entry: Declared) -> tuple[str, ...]:
    words = entry.name.replace("_", "-")
    flags = tuple(f"--{flag}" for flag in entry.option.flags or (words,))
    # One that is on, or not said, can be put off.
    can_be_off = bool in entry.kinds and entry.default is not False
    return (*flags, f"--{entry.option.no or f'no-{words}'}") if can_be_off else flags


def _arguments(entry: Declared) -> dict[str, Any]:
    """Return what argparse needs of an option beside its flags and its help."""
    arguments: dict[str, Any] = {"dest": entry.name}
    if entry.default is MISSING:
        arguments["required"] = True
    else:
        arguments["default"] = entry.default
    kinds = entry.kinds
    if bool in kinds:
        return arguments | {"action": Switch}
    if entry.choices:
        return arguments | {"choices": entry.choices}
    arguments["metavar"] = entry.metavar
    lists = [kind for kind in kinds if get_origin(kind) is not None]
    if lists:
        kinds = get_args(lists[0])
        # A list of names may be given in several parts.
        arguments |= {"nargs": entry.option.values or "+"} | (
            {"action": Gather} if str in kinds else {}
        )
    kind = _kind(entry, kinds)
    return arguments if kind is None else arguments | {"type": kind}


def _kind(entry: Declared, kinds: tuple[Any, ...]) -> Kind | None:
    option = entry.option
    low = next((bound for bound in (option.least, option.above) if bound is not None), 0)
    if int in kinds:
        return whole(int(low))
    if float in kinds:
        bounds = (option.most, option.below, math.inf)
        return real(low, next(bound for bound in bounds if bound is not None))
    return Path if Path in kinds else None


# One command: its name, its arguments, and the one function it calls.


@dataclass(frozen=True)
class Command:
    """A subcommand of ``bertine``.

    Attributes:
        name: the word after ``bertine``.
        summary: what it does, in a line of ``bertine --help``.
        description: what ``--help`` says under the usage.
        add_arguments: declares the arguments. Their names, with underscores, and their defaults
            are those of the function the command stands for; a test holds that.
        verb: that function's name in ``bertine``; "": the command's, with underscores.
        run: what is done with the values of the arguments in place of calling the function and
            printing the ``lines()`` of what it returns. It may return an exit status, where a part
            of the work failed. It imports the function, and not before.
        processes: whether ``torchrun`` may start it in several processes that work together.
        examples: command lines that its help begins with; "": none.
        common: the options that ``--help`` shows, with spaces between them, ``--help-all`` showing
            all; "": all.
        brief: (the values) → whether to print nothing but the result: no line with the values.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[Parser], None]
    verb: str = ""
    run: Callable[[dict[str, Any]], int | None] | None = None
    processes: bool = False
    examples: str = ""
    common: str = ""
    brief: Callable[[dict[str, Any]], bool] = lambda values: False

    def __call__(self, values: dict[str, Any]) -> int:
        """Do what the command does with the values of its arguments; return the exit status."""
        if self.run is not None:
            return self.run(values) or 0
        import bertine

        print("\n".join(getattr(bertine, self.function)(**values).lines()))
        return 0

    @property
    def function(self) -> str:
        """The name of the function in ``bertine`` that the command stands for."""
        return self.verb or self.name.replace("-", "_")

    def parser(self) -> Parser:
        """Return a fresh parser of this command's arguments, ``--config`` among them."""
        parser = Parser(f"bertine {self.name}", self.description)
        self.add_arguments(parser)
        parser.add_argument(
            "--config",
            metavar="FILE",
            action="append",
            help="YAML file with arguments under the same names (of pretrain also 'paper', which "
            "is in the package); the command line wins",
        )
        return parser

    def help(self, *, everything: bool) -> str:
        """Return what ``--help`` prints, or with `everything` ``--help-all``."""
        parser = self.parser()
        if self.examples:
            parser.description = f"{parser.description}\n\n{textwrap.indent(self.examples, '    ')}"
        if everything or not self.common:
            return parser.format_help()
        hidden = 0
        for action in parser.options():
            options = set(action.option_strings)
            if options and not action.required and options.isdisjoint(self.common.split()):
                action.help, hidden = SUPPRESS, hidden + 1
        more = f"{hidden} more options: bertine {self.name} --help-all\n"
        return f"{parser.format_help()}\n{more}"


# Arguments for what several commands read: a corpus, texts on the command line, what is piped in.

CORPUS_HELP = """
CORPUS is files or folders: plain text with a blank line between documents (.txt), or JSON lines
(.jsonl), Parquet (.parquet), csv or tsv, where each row is a document; each also compressed: .gz,
.zst, .xz.
"""


def add_corpus_argument(parser: Parser) -> None:
    """Declare CORPUS..., the first thing that a command takes."""
    parser.add_argument(
        "corpus", metavar="CORPUS", nargs="+", type=Path, help="file or folder of documents"
    )


def add_texts_argument(parser: Parser) -> None:
    """Declare TEXT..., texts on the command line, to answer."""
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        default=None,
        help="a text, or several; for a model of pairs two for each answer; for multiple choice "
        "what is given, then the choices",
    )


def read_what_is_piped_in(values: dict[str, Any], command: str, wanted: str) -> None:
    """Make standard input the input of a command that was given nothing to read.

    Args:
        values: of its arguments; ``input`` is set.
        command: its name.
        wanted: what else may be given, for the message.

    Raises:
        BertineError: standard input is a terminal, or there is none.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise BertineError(
            f"nothing to {command}; give {wanted}, or pipe texts in; see 'bertine {command} --help'"
        )
    values["input"] = "-"
