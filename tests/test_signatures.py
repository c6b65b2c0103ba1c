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
TOOLS = SOURCE.parents[1] / "tools"


@pytest.fixture(scope="module")
def tree() -> ast.Module:
    """The stub as a build makes it: with what the options import, but without PyTorch."""
    code = "import sys; from write_signatures import signatures as made; print(made())"
    code += "; assert not {'torch', 'numpy', 'yaml'} & sys.modules.keys()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TOOLS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return ast.parse(done.stdout)


@pytest.fixture(scope="module")
def stubs(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_arguments_and_defaults_are_those_of_the_verb(stubs: dict[str, ast.FunctionDef]) -> None:
    for name, node in stubs.items():
        stub = node.args
        assert stub.vararg is stub.kwarg is None
        defaults = dict(zip([a.arg for a in stub.kwonlyargs], stub.kw_defaults, strict=True))
        verb = getattr(bertine, name)
        parameters = inspect.signature(verb).parameters
        assert [*(a.arg for a in stub.args), *defaults] == list(parameters), name
        assert (ast.get_docstring(node) or "") == inspect.cleandoc(verb.__doc__).rstrip(), name
        for key, default in defaults.items():
            if default is None:
                assert parameters[key].default is inspect.Parameter.empty, (name, key)
            else:
                assert ast.literal_eval(default) == parameters[key].default, (name, key)


def test_results_are_those_of_the_verb(tree: ast.Module, stubs: dict[str, ast.FunctionDef]) -> None:
    """By names that the file imports, or a type checker takes them for anything."""
    known = {a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    for name, node in stubs.items():
        assert node.returns is not None
        verb = inspect.unwrap(getattr(bertine, name))
        assert ast.unparse(node.returns) == str(inspect.signature(verb).return_annotation)
        names = {each.id for each in ast.walk(node.returns) if isinstance(each, ast.Name)}
        assert "Any" not in names, name
        assert names <= known | set(dir(builtins)), name


def test_type_checkers_are_led_to_it(stubs: dict[str, ast.FunctionDef]) -> None:
    """From the package's own file, and no verb is missing."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bertine.signatures"
        for alias in node.names
    }
    takes = {name for name in bertine.__all__ if hasattr(getattr(bertine, name), "option_groups")}
    assert imported == set(stubs) == takes
