"""Set commands and options into a page: lines break before an option, and not within it."""

from __future__ import annotations

import re

from markupsafe import Markup

#: What a line of a command may begin with: an option, or the next command.
_BEGINS = re.compile(r"-|&&$|\|+$|;$")
#: An option in a sentence.
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*[a-z0-9])")


def command_markup(command: str) -> Markup:
    """Wrap each word of a command in a ``<span>``, and each option with its values in another.

    The style sheet makes boxes of them, which go to the next line as a whole: a browser would
    break ``--out`` after its hyphens. The text stays what it was, so it can be selected and copied.
    """
    groups: list[list[str]] = [[]]
    for part in re.split(r"(\s+)", command):
        if not part:
            continue
        if groups[-1] and _BEGINS.match(part):
            groups.append([])
        groups[-1].append(part)
    return Markup("").join(_group(parts) for parts in groups)


def _group(parts: list[str]) -> Markup:
    """Wrap an option and its values; the space behind them stands outside the box."""
    end = parts.pop() if parts and parts[-1].isspace() else ""
    inner = Markup("").join(
        part if part.isspace() else Markup("<span>{}</span>").format(part) for part in parts
    )
    return Markup("<span>{}</span>{}").format(inner, end)


def prose_markup(text: str) -> Markup:
    """Keep the options in a sentence in one piece."""
    parts = _OPTION.split(text)
    return Markup("").join(
        Markup('<span class="option">{}</span>').format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )
