"""One command: its name, its arguments, and the one function it calls."""

from __future__ import annotations

import textwrap
from argparse import SUPPRESS
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertine.commands.options.arguments import Parser


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
