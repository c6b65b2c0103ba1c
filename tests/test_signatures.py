"""``signatures.pyi``, which editors read, says what the public verbs take."""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import bertine

SOURCE = Path(bertine.__file__).parent
SCRIPT = SOURCE.parents[1] / "tools" / "write_signatures.py"
STUBS = {
    node.name: node
    for node in ast.parse((SOURCE / "signatures.pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef)
}


@pytest.mark.slow
def test_the_file_is_what_the_script_writes() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_arguments_and_defaults_are_those_of_the_verb() -> None:
    for name, node in STUBS.items():
        stub = node.args
        assert stub.vararg is stub.kwarg is None
        defaults = dict(zip([a.arg for a in stub.kwonlyargs], stub.kw_defaults, strict=True))
        parameters = inspect.signature(getattr(bertine, name)).parameters
        assert [*(a.arg for a in stub.args), *defaults] == list(parameters), name
        for key, default in defaults.items():
            if default is None:
                assert parameters[key].default is inspect.Parameter.empty, (name, key)
            else:
                assert ast.literal_eval(default) == parameters[key].default, (name, key)


def test_results_are_those_of_the_verb() -> None:
    """By names that the file imports, or a type checker takes them for anything."""
    tree = ast.parse((SOURCE / "signatures.pyi").read_text(encoding="utf-8"))
    known = {a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    for name, node in STUBS.items():
        assert node.returns is not None
        verb = inspect.unwrap(getattr(bertine, name))
        assert ast.unparse(node.returns) == str(inspect.signature(verb).return_annotation)
        names = {each.id for each in ast.walk(node.returns) if isinstance(each, ast.Name)}
        assert "Any" not in names, name
        assert names <= known | set(dir(builtins)), name


def test_type_checkers_are_led_to_it() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    found = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bertine.signatures"
        for alias in node.names
    }
    assert found == set(STUBS)
