"""A command of ``bertine`` as Markdown for its page in the reference, made from its own parser.

Imports no Sphinx, so the tests need none.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator

from bertine.commands.parser import Command, Switch

#: What help texts may begin with and is never written with a capital.
_NAMES = {"csv", "tsv", "jsonl", "json", "cpu", "text", "torch"}
#: Titles of argparse's own groups, as they are called on a page.
_TITLES = {"positional arguments": "Arguments", "options": "Options"}


def command_page(command: Command) -> str:
    """Describe `command`: what it does, examples, usage, its options in their groups."""
    return "\n\n".join([*_introduction(command), *_groups(command)]) + "\n"


def _introduction(command: Command) -> Iterator[str]:
    parser = command.parser()
    # Lines broken for a terminal become paragraphs; indented ones are examples.
    for part in (parser.description or "").strip().split("\n\n"):
        lines = part.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            yield f"```bash\n{textwrap.dedent(part)}\n```"
        else:
            yield _text(" ".join(line.strip() for line in lines))
    if command.kinds:
        yield "\n".join(
            f"- `bertine {command.name} {kind}`: {_text(line)}"
            for kind, line in command.kinds.items()
        )
        yield (
            "Each takes the options that are its own. Below are those of all; an option that only "
            "some take begins with their names."
        )
    if command.examples:
        yield f"```bash\n{command.examples}\n```"
    yield f"In Python: {{py:func}}`bertine.{command.function}`."
    yield f"## Usage\n\n```text\n{usage(command)}\n```"
    if command.processes:
        yield "`torchrun` can start this command in several processes that work together."


def usage(command: Command) -> str:
    """The command with the arguments that it must have, and ``[options]`` for all the others."""
    words = [f"bertine {command.name}"]
    rest = [command.kind_word] if command.kinds else []
    for action in command.parser().options():
        if action.option_strings:
            if action.required:
                words.append(f"{action.option_strings[0]} {_values(action)}".rstrip())
        elif action.metavar not in rest:
            rest.append(_values(action))
    return " ".join([*words[:1], *rest, *words[1:], "[options]"])


def _groups(command: Command) -> Iterator[str]:
    yield f"```{{program}} bertine {command.name}\n```"
    for group in command.parser()._action_groups:
        actions = [action for action in group._group_actions if action.dest != "help"]
        if not actions:
            continue
        title = _TITLES.get(group.title or "", group.title or "")
        yield f"## {title[:1].upper()}{title[1:]}"
        if group.description:
            yield _text(group.description)
        for action in actions:
            yield _entry(action)


def _entry(action: argparse.Action) -> str:
    values = _values(action)
    if not action.option_strings:
        names = values
    elif isinstance(action, Switch) or not values:
        names = ", ".join(action.option_strings)
    else:
        names = ", ".join(f"{name} {values}" for name in action.option_strings)
    lines = [f"````{{option}} {names}", _text(_sentence(action.help or ""))]
    # A name with its own list of values says them in its help or metavar; else here.
    shown = list(action.choices or ())
    if shown and action.metavar:
        lines += ["", f"One of: {', '.join(f'`{each}`' for each in shown)}."]
    if facts := "; ".join(_facts(action)):
        lines += ["", f"*{facts}*"]
    return "\n".join([*lines, "````"])


def _facts(action: argparse.Action) -> Iterator[str]:
    if action.option_strings and action.required:
        yield "required"
    if isinstance(action, argparse._AppendAction) or action.dest == "config":
        yield "may be given several times"
    if isinstance(action, Switch):
        if len(action.option_strings) > 1 and action.default is not None:
            yield f"default: `{action.option_strings[0 if action.default else 1]}`"
    elif action.option_strings and action.default not in (None, argparse.SUPPRESS):
        yield f"default: `{_default(action.default)}`"


def _default(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _values(action: argparse.Action) -> str:
    """The values that `action` takes, as its usage writes them: ``N``, ``NAME [NAME ...]``."""
    if action.nargs == 0 or isinstance(action, Switch):
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    name = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if action.nargs == "?":
        return f"[{name}]"
    if action.nargs == "*":
        return f"[{name} ...]"
    if action.nargs == "+":
        return f"{name} [{name} ...]"
    return " ".join([name] * action.nargs) if isinstance(action.nargs, int) else name


def _sentence(text: str) -> str:
    """Begin with a capital, unless it begins with a list of names, and end with a stop."""
    first = re.match(r"[a-z][a-z'’]*(?:-[a-z]+)?(?=[ ,;])", text)
    if first and first[0] not in _NAMES:
        text = text[:1].upper() + text[1:]
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _text(text: str) -> str:
    """Plain help as Markdown: options, files and quoted commands as code, the rest escaped."""
    code = (
        r"'(?:bertine [^']+|[a-z-]+)'|(?<![\w`-])--[a-z][a-z0-9-]*"
        r"|(?<![\w`.*])\*?\.[a-z]\w*(?:\.\w+)?|\b[\w-]+\.(?:json|jsonl|txt|html|npy|yaml|csv|tsv)\b"
    )
    pieces: list[str] = []
    end = 0
    for match in re.finditer(code, text):
        pieces += [_escaped(text[end : match.start()]), f"`{match[0].strip(chr(39))}`"]
        end = match.end()
    return "".join([*pieces, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#$|])", r"\\\1", text)
