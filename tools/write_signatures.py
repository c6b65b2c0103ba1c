"""Write ``src/bertine/signatures.pyi``: the public verbs with every argument, for editors.

Verbs take their options from groups (``bertine.options``), so their source says ``options``
where a caller writes ``learning_rate=1e-4``. A type checker reads the file that this script
makes. Run it after a change of an option, of a verb or of its documentation:

    PYTHONPATH=src python tools/write_signatures.py

With ``--check`` nothing is written; the exit status is 1 where the file is not what it would be.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import bertine
from bertine.options.verbs import GROUPS

STUB = Path(bertine.__file__).parent / "signatures.pyi"
_HEAD = '"""The public verbs with every argument. Made by tools/write_signatures.py."""\n'


def verbs() -> dict[str, Callable[..., Any]]:
    """The public verbs that take options from groups."""
    found = {name: getattr(bertine, name) for name in sorted(bertine.__all__)}
    return {name: each for name, each in found.items() if hasattr(each, GROUPS)}


@cache
def imported_in(module: str) -> dict[str, str]:
    """The module that each imported name of `module` is from."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    return {
        alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def hint_of(verb: Callable[..., Any], name: str) -> tuple[str, str]:
    """The type of an argument as its source writes it, and the module of that source."""
    own = inspect.signature(inspect.unwrap(verb)).parameters
    if name in own:
        return str(own[name].annotation), verb.__module__
    for group in getattr(verb, GROUPS):
        for base in group.__mro__:
            if name in vars(base).get("__annotations__", {}):
                return str(vars(base)["__annotations__"][name]), base.__module__
    raise LookupError(f"{verb.__name__} has no argument {name}")


def text_of(verb: Callable[..., Any], imports: dict[str, set[str]]) -> str:
    """The verb as a stub; the names it needs are added to `imports`, by module."""

    def noted(hint: str, module: str) -> str:
        for name in re.findall(r"[A-Za-z_]\w*", hint):
            if name in imported_in(module):
                imports.setdefault(imported_in(module)[name], set()).add(name)
            elif hasattr(sys.modules[module], name):
                imports.setdefault(module, set()).add(name)
        return hint

    lines = [f"def {verb.__name__}("]
    star = False
    for each in inspect.signature(verb).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        default = "" if each.default is each.empty else f" = {_written(each.default)}"
        lines.append(f"    {each.name}: {noted(*hint_of(verb, each.name))}{default},")
    raw = inspect.signature(inspect.unwrap(verb)).return_annotation
    lines.append(f") -> {noted(str(raw), verb.__module__)}:")
    doc = inspect.cleandoc(verb.__doc__ or "")
    return "\n".join([*lines, textwrap.indent(f'"""{doc}\n"""', "    ")])


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def import_lines(imports: dict[str, set[str]]) -> Iterator[str]:
    """The imports, those of Python first."""
    for ours in (False, True):
        for module in sorted(imports):
            if module.startswith("bertine") is not ours:
                continue
            names = sorted(imports[module], key=str.lower)
            line = f"from {module} import {', '.join(names)}"
            if len(line) > 100:
                line = f"from {module} import (\n    " + ",\n    ".join(names) + ",\n)"
            yield line
        if not ours:
            yield ""


def signatures() -> str:
    """The whole file."""
    imports: dict[str, set[str]] = {}
    texts = [text_of(verb, imports) for verb in verbs().values()]
    return "\n".join([_HEAD, *import_lines(imports), "", "\n\n".join(texts)]) + "\n"


def main() -> int:
    text = signatures()
    if "--check" in sys.argv:
        same = STUB.is_file() and STUB.read_text(encoding="utf-8") == text
        print(f"{STUB}: {'as it should be' if same else 'is old; run tools/write_signatures.py'}")
        return 0 if same else 1
    STUB.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
