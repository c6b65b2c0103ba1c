"""An option is declared once: its name, type and default stand in ``bertine.options`` alone."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertine
from bertine.options.declare import OptionGroup, declared

SOURCE = Path(bertine.__file__).parent
#: Classes that repeat options with their defaults, and why.
REPEATED = {
    "BertEstimator": "scikit-learn reads parameters from the signature, and editors show them",
    "DistilledMlm": "an objective is used without a command, too",
    "TextClassification": "a task is made of a model directory, too",
    "PartSettings": "the file of a part of a store keeps these, for stores begun before",
}
#: So many options in one class are a copy; fewer may share a name by chance.
FEWEST = 4


def defaults() -> dict[str, set[str]]:
    """The defaults of every option, as they are written, by its name."""
    known: dict[str, set[str]] = defaultdict(set)
    for file in sorted((SOURCE / "options").glob("*.py")):
        module = importlib.import_module(f"bertine.options.{file.stem}")
        for group in vars(module).values():
            if isinstance(group, type) and OptionGroup in group.__mro__[1:]:
                for entry in declared(group):
                    known[entry.name].add(repr(entry.default))
    return known


def repeated(known: dict[str, set[str]]) -> Iterator[tuple[str, list[str]]]:
    """Classes outside ``bertine.options``, with the options that they declare again."""
    for file in sorted(SOURCE.rglob("*.py")):
        if file.parent.name == "options":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            again = [
                field.target.id
                for field in node.body
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(field.value, ast.Constant)
                and repr(field.value.value) in known.get(field.target.id, ())
            ]
            if len(again) >= FEWEST:
                yield node.name, again


@pytest.mark.slow
def test_no_class_repeats_options_with_their_defaults() -> None:
    again = dict(repeated(defaults()))
    assert {name: options for name, options in again.items() if name not in REPEATED} == {}
    assert set(again) == set(REPEATED)
