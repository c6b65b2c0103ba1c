"""Build the argument parsers of commands: one-line errors, switches, kinds of values, options.

The parser is the standard library's argparse: every command is flat, a list of scalars for one
function, and a command with kinds has a parser for each, which knows the options of that kind
alone. What jsonargparse and cyclopts lack is in ``docs/internals/decisions.md``.
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
from argparse import SUPPRESS, Action, Namespace
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args, get_origin

from bertine.core.errors import BertineError
from bertine.core.names import implementation
from bertine.core.text import is_number, listing, number_in

if TYPE_CHECKING:
    from bertine.options.declare import Declared, OptionGroup


#: A function that parses the text of a value: argparse's ``type``.
Kind = Callable[[str], Any]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` with the known word most similar to `word`, or nothing."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{matches[0]}'?)" if matches else ""


def whole(minimum: int = 0) -> Kind:
    """Return a parser of whole numbers from `minimum` on, also written 1_000_000 or 1e6."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            real = number_in(text)
            if not real.is_integer():  # false for NaN and the infinities too
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
    """An action for a truth value: its first option means yes; the others, if any, mean no. None:
    not given."""

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
        self, parser: Any, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


class Gather(argparse.Action):
    """An action for a list whose option may be repeated: ``--names a b`` is ``--names a --names
    b``. A list in a configuration file is replaced, not extended."""

    _namespace: Namespace | None = None

    def __call__(
        self, parser: Any, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest) if self._namespace is namespace else []
        self._namespace = namespace
        setattr(namespace, self.dest, [*before, *values])


def line_width() -> int:
    """Return the width of text for people: that of the terminal, up to a readable maximum."""
    return max(40, min(96, shutil.get_terminal_size((96, 24)).columns))


class HelpFormatter(argparse.HelpFormatter):
    """A formatter of help with the default after each option, and with descriptions kept as they
    are written if the terminal is wide enough."""

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


class Elsewhere(NamedTuple):
    """An option that a command has, but not the kind of it that was asked for."""

    name: str
    default: Any
    kinds: Sequence[str]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are :class:`BertineError` of one line.

    Options are never abbreviated, so the meaning of a script does not change when options are
    added; the message for an unknown option suggests the nearest known one.
    """

    def __init__(self, prog: str, description: str, kind: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=HelpFormatter,
        )
        #: The kind of the command, if it has kinds and this is the parser of one of them.
        self.kind = kind
        #: Values that the kind decides, by name.
        self.decided: dict[str, Any] = {}
        #: The options that only other kinds have, by their names and their flags.
        self.elsewhere: dict[str, Elsewhere] = {}
        #: The options that this kind has and at most one other: ``--help`` shows them.
        self.of_few_kinds: set[str] = set()
        #: Keys accepted in configuration files of another command that have no effect here or mean
        #: something else; the same names as options get a message of their own.
        self.left_out: frozenset[str] = frozenset()
        self._alternatives: list[dict[argparse.Action, Any]] = []

    def part(self, title: str) -> argparse._ArgumentGroup:
        """Return the section of the help under `title`; a new one if there is none yet."""
        known = (group for group in self._action_groups if group.title == title)
        return next(known, None) or self.add_argument_group(title)

    def add_kind(self, name: str, metavar: str, choices: Sequence[str], help: str) -> None:
        """Declare the positional argument that names the kind; in the parser of a kind its value is
        decided."""
        if self.kind:
            self.decided[name] = self.kind
        else:
            self.add_argument(name, metavar=metavar, choices=choices, help=help)

    def add_model(self, help: str) -> None:
        """Declare the positional argument MODEL."""
        self.add_path("model", "MODEL", help)

    def add_output(self, help: str, metavar: str = "FILE", **more: Any) -> None:
        """Declare --output, which may be written --out; `more` is argparse's."""
        self.add_argument("--output", "--out", metavar=metavar, help=help, **more)

    def require_output_folder(self, help: str) -> None:
        """Declare --output, a required folder."""
        self.add_output(help, "DIR", type=Path, required=True)

    def add_path(self, flag: str, metavar: str, help: str, **more: Any) -> None:
        """Declare a file or a folder; `more` is argparse's."""
        self.add_argument(flag, metavar=metavar, type=Path, help=help, **more)

    def require_path(self, flag: str, metavar: str, help: str) -> None:
        """Declare a required option: a file or a folder."""
        self.add_path(flag, metavar, help, required=True)

    def alternatives(self, *actions: argparse.Action) -> None:
        """Declare options that are alternatives to each other. If a configuration file gives one of
        them, the command line, or a later file, may give another instead."""
        self._alternatives.append({action: action.default for action in actions})

    def take_back(self, given: Container[argparse.Action]) -> None:
        """Reset to their defaults the alternatives to `given` that were set before."""
        for group in self._alternatives:
            if any(action in given for action in group):
                for action, default in group.items():
                    action.default = default

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument ", "", message)
        message = re.sub(r"^the following arguments are required: ", "missing: ", message)
        raise BertineError(f"{message}; see '{self.prog} --help'")

    def options(self) -> list[argparse.Action]:
        """Return every argument that can have a value on the command line or in a config file."""
        return [a for a in self._actions if a.dest not in ("help", "config")]

    def parse(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the value of every argument, by its name with underscores.

        Raises:
            BertineError: an option is unknown, a value is missing or of another kind.
        """
        self._refuse_unknown(arguments)
        known = self._option_string_actions
        names = (argument.partition("=")[0] for argument in arguments)
        self.take_back({known[name] for name in names if name in known})
        try:
            return self._values(arguments)
        except BertineError as error:
            return self._with_lists_ended(arguments, error)

    def _values(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the value of every argument, as parsed by argparse."""
        # Any number of texts may follow options too, which argparse does not support by itself.
        several = any(not item.option_strings and item.nargs == "*" for item in self._actions)
        read = self.parse_known_intermixed_args if several else self.parse_known_args
        namespace, unexpected = read(arguments)
        if unexpected:
            self.error(f"unexpected argument '{unexpected[0]}'")
        return {**self.decided, **vars(namespace)}

    def _with_lists_ended(self, arguments: Sequence[str], error: BertineError) -> dict[str, Any]:
        """Parse arguments again if the only positional argument follows a list, which takes all
        values after it. After a list of numbers it is the value that is not a number; after other
        lists it is ambiguous, so `error` is raised, with a hint.

        Raises:
            BertineError: that is not the case, or the second parse fails too.
        """
        named = [action for action in self._actions if not action.option_strings]
        if len(named) != 1 or named[0].nargs not in (None, "?"):
            raise error
        for option, place in self._ends_of_lists(arguments):
            last = arguments[place]
            if option.type not in (None, Path):
                if not is_number(last):
                    with contextlib.suppress(BertineError):
                        return self._values([last, *arguments[:place], *arguments[place + 1 :]])
            elif str(error).startswith(f"missing: {named[0].metavar}"):
                raise BertineError(
                    f"{error} (is it '{last}'? {option.option_strings[0]} takes all that follows "
                    "it, so write it before the options)"
                ) from None
        raise error

    def _ends_of_lists(self, arguments: Sequence[str]) -> Iterator[tuple[argparse.Action, int]]:
        """Yield each list option that was given, and the index of its last value."""
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

    def refuse_elsewhere(self, name: str, where: str = "") -> None:
        """Refuse an option, or a key of the file `where`, that only other kinds have.

        Raises:
            BertineError: it is one.
        """
        if name in self.elsewhere:
            kinds = listing(self.elsewhere[name].kinds)
            self.error(f"{where}{name} is for {kinds}, but this is '{self.prog}'")

    def _refuse_unknown(self, arguments: Sequence[str]) -> None:
        # Before argparse, which would report the missing option, not the misspelled one.
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--":
                return
            name = argument.partition("=")[0]
            is_option = re.fullmatch(r"-[^\W\d][^\s]*|--\S+", name) is not None
            if is_option and name not in known:
                self.refuse_elsewhere(name)
                if name.removeprefix("--").replace("-", "_") in self.left_out:
                    self.error(f"{name} has no effect here; remove it")
                hint = nearest(name, [option for option in known if option.startswith("--")])
                self.error(f"unknown option '{name}'{hint}")


def borrow(parser: Parser, other: Parser, without: Iterable[str]) -> frozenset[str]:
    """Declare the arguments of `other` in `parser` too, in their groups, except those named in
    `without` and those that `parser` has: a command that prepares another one accepts the same
    arguments.

    Returns:
        The names of the arguments of `other` that are left out, with or without an argument of the
        same name here.
    """
    mine = {action.dest for action in parser.options()}
    left_out = {*without, *mine}
    elsewhere = {flag: entry for flag, entry in other.elsewhere.items() if entry.name in left_out}
    for group in other._action_groups:
        for action in group._group_actions:
            # A flag for one value of an option, such as --all, is for `other` alone.
            if action.const is None and action.dest not in {"help", "config", *left_out}:
                parser.part(str(group.title))._add_action(action)
    parser._alternatives += other._alternatives
    parser.decided |= other.decided
    parser.elsewhere |= {
        flag: entry for flag, entry in other.elsewhere.items() if flag not in elsewhere
    }
    parser.of_few_kinds |= other.of_few_kinds
    known = {action.dest for action in other.options()}
    return frozenset(known | {entry.name for entry in elsewhere.values()}) & left_out


# Options: arguments of a command from a group of options (:mod:`bertine.options.declare`).


def add_options(
    parser: Parser,
    group: type[OptionGroup],
    *,
    but: Collection[str] = (),
    otherwise: Mapping[str, str] | None = None,
    help: Mapping[str, str] | None = None,
    title: str | None = None,
) -> None:
    """Declare the options of `group`, each in its section of the help.

    Args:
        parser: the parser of the command.
        group: the group of options; if it has kinds, those of the parser's kind.
        but: the names of options that the command does not have.
        otherwise: by name, the description of the default here.
        help: by name, the help text of an option here.
        title: the title of the section of the help for all of them; None: each in its own.
    """
    # Imported here, because ``bertine --help`` lists the commands without their options.
    from bertine.options.declare import alternatives_of, as_flags, declared

    if parser.kind in group.kinds:
        own = group.kinds[parser.kind]
        for entry in declared(group):
            kinds = group.kinds_with(entry.name)
            if parser.kind not in kinds:
                there = Elsewhere(entry.name, entry.default, kinds)
                parser.elsewhere |= dict.fromkeys((entry.name, *_flags(entry)), there)
            elif len(kinds) <= 2 and len(group.kinds) > 4:
                parser.of_few_kinds.update(_flags(entry))
        group = own
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
    """Return an option as it is written on the command line: its flags, and that which negates
    it."""
    words = entry.name.replace("_", "-")
    flags = tuple(f"--{flag}" for flag in entry.option.flags or (words,))
    # An option that is on, or not given, can be switched off.
    can_be_off = bool in entry.kinds and entry.default is not False
    return (*flags, f"--{entry.option.no or f'no-{words}'}") if can_be_off else flags


def _arguments(entry: Declared) -> dict[str, Any]:
    """Return the keywords for argparse of an option, other than its flags and its help."""
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
    parse = _parse_function(entry, kinds)
    return arguments if parse is None else arguments | {"type": parse}


def _parse_function(entry: Declared, kinds: tuple[Any, ...]) -> Kind | None:
    """Return the function that parses a value of an option whose values have the types `kinds`;
    None: a value is its text."""
    option = entry.option
    low = next((bound for bound in (option.least, option.above) if bound is not None), 0)
    if int in kinds:
        return whole(int(low))
    if float in kinds:
        bounds = (option.most, option.below, math.inf)
        return real(low, next(bound for bound in bounds if bound is not None))
    return Path if Path in kinds else None


# Commands: a name, arguments, and the function that is called.


@dataclass(frozen=True)
class Command:
    """A subcommand of ``bertine``.

    Attributes:
        name: the word after ``bertine``.
        summary: its description in a line of ``bertine --help``.
        description: the text of ``--help`` under the usage.
        add_arguments: declares the arguments. Their names, with underscores, and their defaults are
            those of the function of the command; a test checks that.
        options: the group of its other options, as "module:name"; "": none.
        verb: that function's name in ``bertine``; "": the command's, with underscores
            (:attr:`function`).
        run: replaces the default, which calls the function with the values of the arguments and
            prints the ``lines()`` of its result. It may return an exit status, where a part of the
            work failed. It imports the function itself, to keep ``--help`` fast.
        processes: whether ``torchrun`` may run it in several cooperating processes.
        examples: command lines at the beginning of its help; "": none.
        common: the options that ``--help`` shows, separated by spaces, while ``--help-all`` shows
            all; "": all.
        kinds: its kinds, each with its line of help: ``bertine finetune text``. The options of each
            are its own; without a kind the command takes those of all.
        kind_word: what stands for a kind in usage lines.
        kind: the kind of this command; see :meth:`of_kind`.
        brief: maps the values to whether to print only the result, without a line with the values.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[Parser], None]
    options: str = ""
    verb: str = ""
    run: Callable[[dict[str, Any]], int | None] | None = None
    processes: bool = False
    examples: str = ""
    common: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    kind_word: str = "TASK"
    kind: str = ""
    brief: Callable[[dict[str, Any]], bool] = lambda values: False

    def __call__(self, values: dict[str, Any]) -> int:
        """Run the command with the values of its arguments; return the exit status."""
        if self.run is not None:
            return self.run(values) or 0
        import bertine

        # The function's module is imported now, by `bertine.__getattr__`.
        result = getattr(bertine, self.function)(**values)
        print("\n".join([*result.lines(), *result.next_lines()]))
        return 0 if result.ok else 1

    @property
    def function(self) -> str:
        """The name of the function in ``bertine`` that the command calls."""
        return self.verb or self.name.replace("-", "_")

    def of_kind(self, kind: str) -> Command:
        """Return the command of one of the :attr:`kinds`; of "" the command itself."""
        if not kind:
            return self
        examples = [line for line in self.examples.splitlines() if f" {self.name} {kind} " in line]
        return replace(
            self,
            name=f"{self.name} {kind}",
            verb=self.function,
            description=f"{self.summary.capitalize()}.\n\n{kind}: {self.kinds[kind]}.",
            examples="\n".join(examples),
            kinds={},
            kind=kind,
        )

    def parser(self) -> Parser:
        """Return a fresh parser of this command's arguments, ``--config`` among them."""
        parser = Parser(f"bertine {self.name}", self.description, self.kind)
        self.add_arguments(parser)
        if self.options:
            # Imported here, because ``bertine --help`` lists the commands without their options.
            add_options(parser, implementation(self.options))
        parser.add_argument(
            "--config",
            metavar="FILE",
            action="append",
            help="YAML file with arguments under the same names (of pretrain also 'paper', which "
            "is in the package); the command line wins",
        )
        return parser

    def help(self, *, everything: bool) -> str:
        """Return the text of ``--help``, or with `everything` that of ``--help-all``."""
        if self.kinds and not everything:
            return self._kinds_help()
        parser = self.parser()
        if self.examples:
            parser.description = f"{parser.description}\n\n{textwrap.indent(self.examples, '    ')}"
        if everything or not self.common:
            return parser.format_help()
        hidden = 0
        shown = {*self.common.split(), *parser.of_few_kinds}
        for action in parser.options():
            options = set(action.option_strings)
            if options and not action.required and options.isdisjoint(shown):
                action.help, hidden = SUPPRESS, hidden + 1
        more = f"{hidden} more options: bertine {self.name} --help-all\n"
        return f"{parser.format_help()}\n{more}"

    def _kinds_help(self) -> str:
        """Return the text of ``--help`` of a command with kinds: the kinds, one per line."""
        word, width = self.kind_word, max(map(len, self.kinds)) + 2
        lines = [f"usage: bertine {self.name} {word} ...", "", self.description, ""]
        lines += [f"  {kind:<{width}}{line}" for kind, line in self.kinds.items()]
        lines += ["", textwrap.indent(self.examples, "    "), ""] if self.examples else [""]
        lines += [f"'bertine {self.name} {word} --help' says what each takes.", ""]
        return "\n".join(lines)


# Shared arguments: a corpus, texts on the command line, standard input.

CORPUS_HELP = """
CORPUS is files or folders: plain text with a blank line between documents (.txt), or JSON lines
(.jsonl), Parquet (.parquet), csv, tsv or a workbook (.xlsx), where each row is a document; text
also compressed: .gz, .zst, .xz.
"""


def add_corpus_argument(parser: Parser) -> None:
    """Declare the positional argument CORPUS... ."""
    parser.add_path("corpus", "CORPUS", "file or folder of documents", nargs="+")


def add_start_argument(parser: Parser) -> None:
    """Declare --model, the model that training starts from."""
    parser.add_path(
        "--model",
        "MODEL",
        "model to start from: a model directory, minilm, bertine-en, bertine-zh or hf:NAME "
        "(not given: the best one installed for the language of the texts)",
    )


def add_texts_argument(parser: Parser) -> None:
    """Declare the positional argument TEXT..., texts to answer."""
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        default=None,
        help="a text, or several; for a model of pairs two for each answer; for multiple choice "
        "what is given, then the choices",
    )


def read_what_is_piped_in(values: dict[str, Any], command: str, *others: str) -> None:
    """Use standard input as the input of a command that was given nothing to read.

    Args:
        values: the values of its arguments; ``input`` is set, no texts become None.
        command: its name.
        others: its arguments that may be read in place of ``input``.

    Raises:
        BertineError: standard input is a terminal, or there is none.
    """
    if "texts" in others:
        values["texts"] = values["texts"] or None
    if any(values[name] is not None for name in ("input", *others)):
        return
    wanted = "a text, --input FILE" if others else "--input FILE"
    if sys.stdin is None or sys.stdin.isatty():
        raise BertineError(
            f"nothing to {command}; give {wanted}, or pipe texts in; see 'bertine {command} --help'"
        )
    values["input"] = "-"
