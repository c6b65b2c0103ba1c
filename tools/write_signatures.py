"""Write ``src/bertine/signatures.pyi``: the public verbs with every argument, for editors.

Verbs take their options from groups (``bertine.options``), so their source says ``options``
where a caller writes ``learning_rate=1e-4``. A type checker reads the file made here. Git ignores
it: every build makes it, ``pip install -e .`` included. To make it again after a change of an
option, of a verb or of its documentation (``make check`` does):

    python tools/write_signatures.py

A build has no PyTorch, so verbs are read from their source: only their options are imported.
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

SOURCE = Path(__file__).resolve().parents[1] / "src"
STUB = SOURCE / "bertine" / "signatures.pyi"
_HEAD = '"""The public verbs with every argument. Made by tools/write_signatures.py."""\n'

if str(SOURCE) not in sys.path:
    sys.path.insert(0, str(SOURCE))


def verbs() -> dict[str, Callable[..., Any]]:
    """Return the public verbs that take options from groups."""
    import bertine

    homes = sorted(bertine._HOME.items())
    return {name: verb for name, module in homes if (verb := verb_from_source(name, module))}


def verb_from_source(name: str, module: str) -> Callable[..., Any] | None:
    """Define a verb without its body; return None if it takes no options."""
    (verb,) = (node for node in tree_of(module).body if getattr(node, "name", "") == name)
    decorators = [
        node
        for node in getattr(verb, "decorator_list", [])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "takes_options"
    ]
    if not isinstance(verb, ast.FunctionDef) or not decorators:
        return None
    verb.decorator_list, verb.body = list(decorators), verb.body[:1]
    values = [*decorators, *filter(None, [*verb.args.defaults, *verb.args.kw_defaults])]
    named = {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)}
    needed = [
        node
        for node in tree_of(module).body
        if (isinstance(node, ast.ImportFrom) and _is_light(node.module or ""))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in named)
    ]
    space: dict[str, Any] = {"__name__": module}
    exec(compile(ast.Module([*needed, verb], []), module, "exec"), space)
    return space[name]


def _is_light(module: str) -> bool:
    return module.startswith(
        ("__future__", "bertine.options.", "bertine.contrib.options", "bertine.core.names")
    )


@cache
def tree_of(module: str) -> ast.Module:
    """Parse a module of the package."""
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def home_of(module: str) -> dict[str, str]:
    """Return the module of each name that `module` imports or defines."""
    homes: dict[str, str] = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom):
            homes |= {alias.name: node.module or "" for alias in node.names}
    for node in tree_of(module).body:
        for target in getattr(node, "targets", [node]):
            homes |= {getattr(target, "id", getattr(target, "name", "")): module}
    return homes


def hint_of(verb: Callable[..., Any], name: str) -> tuple[str, str]:
    """Return the type of an argument as its source writes it, and the module of that source."""
    from bertine.options.verbs import GROUPS

    own = inspect.signature(inspect.unwrap(verb)).parameters
    if name in own:
        return str(own[name].annotation), verb.__module__
    for group in getattr(verb, GROUPS):
        for base in group.__mro__:
            if name in vars(base).get("__annotations__", {}):
                return str(vars(base)["__annotations__"][name]), base.__module__
    raise LookupError(f"{verb.__name__} has no argument {name}")


def text_of(verb: Callable[..., Any], imports: dict[str, set[str]]) -> str:
    """Return the verb as a stub; the names it needs are added to `imports`, by module."""

    def noted(hint: str, module: str) -> str:
        for name in re.findall(r"[A-Za-z_]\w*", hint):
            if name in home_of(module):
                imports.setdefault(home_of(module)[name], set()).add(name)
        return hint

    lines = [f"def {verb.__name__}("]
    star = False
    for entry in inspect.signature(verb).parameters.values():
        if entry.kind is entry.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        default = "" if entry.default is entry.empty else f" = {_written(entry.default)}"
        lines.append(f"    {entry.name}: {noted(*hint_of(verb, entry.name))}{default},")
    raw = inspect.signature(inspect.unwrap(verb)).return_annotation
    lines.append(f") -> {noted(str(raw), verb.__module__)}:")
    doc = inspect.cleandoc(verb.__doc__ or "")
    return "\n".join([*lines, textwrap.indent(f'"""{doc}\n"""', "    ")])


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def import_lines(imports: dict[str, set[str]]) -> Iterator[str]:
    """Return the imports, those of Python first."""
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
    """Return the content of the file."""
    imports: dict[str, set[str]] = {}
    texts = [text_of(verb, imports) for verb in verbs().values()]
    return "\n".join([_HEAD, *import_lines(imports), "", "\n\n".join(texts)]) + "\n"


def write() -> None:
    """Write the file, unless it is up to date."""
    text = signatures()
    if not STUB.is_file() or STUB.read_text(encoding="utf-8") != text:
        STUB.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
