"""Name options in messages: ``--resume`` on the command line, ``resume=True`` in Python.

A message that tells the user to change an option is read in both places. It names the option by
:func:`option`, and :mod:`bertine.cli` says that the command line is what the user sees.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

#: There while a command runs. In the environment, so that its threads and worker processes speak
#: alike.
_VARIABLE = "BERTINE_COMMAND_LINE"


@contextmanager
def on_the_command_line() -> Iterator[None]:
    """Name options as the command line writes them, until the end of the block."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]


def option(name: str, value: object = None) -> str:
    """Return what a message calls an option.

    Args:
        name: of the parameter, such as ``"keep_models"``.
        value: that it should have; a text, a number, or True or False for a switch. None: the
            name alone.

    Returns:
        On the command line ``"--keep-models"``, ``"--no-quotes"``, ``"--precision fp32"``; in
        Python ``"keep_models=True"``, ``"quotes=False"``, ``"precision='fp32'"``.
    """
    if _VARIABLE not in os.environ:
        return name if value is None else f"{name}={value!r}"
    words = name.replace("_", "-")
    if value is False:
        return f"--no-{words}"
    return f"--{words}" if value is None or value is True else f"--{words} {value}"


def text_option(columns: int = 1) -> str:
    """Return the option that names the columns of the texts, for a message about so many of them:
    on the command line ``"--text-column"`` of one and ``"--text-columns"`` of several (both are
    taken), in Python ``"text_columns"``."""
    return _written("text_columns", columns) if _VARIABLE in os.environ else "text_columns"


def shell_option(name: str, value: object) -> str:
    """Return an option of a command that is printed, of which `value` is the parameter `name`:
    ``"--learning-rate"``; ``"--text-column"`` or, of several, ``"--text-columns"``."""
    return _written(name, len(value) if isinstance(value, list | tuple) else 1)


def _written(name: str, values: int) -> str:
    single = name == "text_columns" and values == 1
    return "--text-column" if single else "--" + name.replace("_", "-")
