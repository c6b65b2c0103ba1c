"""What keeps the source small and readable: files are chapters, names are words of the field."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from test_imports import FILES, SOURCE, imports_of, is_module, module_name

#: Files that one other file of their folder imports and nothing else, and why they stand apart:
#: each is a chapter of its own. At most MOST of them.
ONE_IMPORTER: dict[str, str] = {}
MOST = 20
#: Words that are riddles as names of classes, functions, arguments or variables, and what the
#: field says.
NOT_NAMES = {
    "beside": "extra, next_to, or what it is",
    "each": "item, or what it is",
    "found": "result, match, or what it is",
    "mended": "fixed, cleaned",
    "so_many": "count",
    "told": "message, record, or what it is",
    "tells": "is_…, has_…",
    "untold": "unknown",
    "whatever": "any",
}


def importers() -> dict[str, set[str]]:
    """Return the modules of the package that import each of its modules, at once or late."""
    by: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for module, name, _ in imports_of(file):
            target = f"{module}.{name}" if name and is_module(f"{module}.{name}") else module
            if target != module_name(file):
                by[target].add(module_name(file))
        # By its name in a text, as the families in core/names.py.
        for module in re.findall(r'"(bertine(?:\.\w+)+)[:"]', file.read_text(encoding="utf-8")):
            by[module].add(f"{module_name(file)} (late)")
    return by


def test_a_file_with_one_importer_next_door_is_a_chapter() -> None:
    by = importers()
    alone = set()
    for file in FILES:
        name = module_name(file)
        if file.name == "__init__.py" or len(by[name]) != 1:
            continue
        (importer,) = by[name]
        if importer.rpartition(".")[0] == name.rpartition(".")[0] or (
            is_module(importer) and importer == name.rpartition(".")[0]
        ):
            alone.add(name)
    assert alone - {"bertine.cli"} == set(ONE_IMPORTER)
    assert len(ONE_IMPORTER) <= MOST


def names_in(file: Path) -> set[tuple[str, int]]:
    """Return the names that a file gives, with their lines."""
    given = {(file.stem, 1)}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            given.add((node.name, node.lineno))
        elif isinstance(node, ast.arg):
            given.add((node.arg, node.lineno))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.add((node.id, node.lineno))
    return given


def test_names_are_words_of_the_field() -> None:
    wrong = [
        f"{file.relative_to(SOURCE)}:{line}: {name}: say {NOT_NAMES[name.strip('_').lower()]}"
        for file in FILES
        for name, line in sorted(names_in(file))
        if name.strip("_").lower() in NOT_NAMES
    ]
    assert wrong == []
