"""Imports point one way, nothing heavy is imported early, and peers and pickles never."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bertine
from bertine.tasks import TASKS
from bertine.tasks.answer import Answer

SOURCE = Path(bertine.__file__).parent

#: Rooms from the ground up: modules, and the rooms they may import besides themselves.
#: Where a module stands in two rooms, the longer name counts.
BASE = {
    *(
        "errors",
        "names",
        "registry",
        "version",
        "terms",
        "rng",
        "intervals",
        "packages",
        "bundled",
        "published",
        "protobuf",
    ),
    *("scores", "strict_json", "files", "taskinfo"),
    *("cores", "terminal", "options", "system"),
    "text.special",
}
MODEL = {"models", "presets", "interop", "modeldir"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "names": set(),
    "registry": set(),
    "version": set(),
    "terms": set(),
    "bundled": set(),
    "published": {"registry"},
    "protobuf": set(),
    "text.special": set(),
    "rng": set(),
    "intervals": set(),
    "scores": {"terms"},
    "cores": set(),
    "packages": {"errors"},
    "terminal": {"errors", "cores"},
    "options": {"errors", "names", "terminal"},
    "strict_json": {"errors", "terminal"},
    "files": {"errors", "strict_json"},
    "taskinfo": {"errors", "files", "terminal"},
    "system": {"errors", "files", "cores", "options", "terminal"},
    "tables": BASE,
    "text": {*BASE, "tables"},
    "records": {*BASE, "tables"},
    "word_vectors": {*BASE, "tables", "text"},
    "data": {*BASE, "text"},
    "models": BASE,
    "generation": BASE,
    "recipes": set(),
    "presets": {*BASE, "models", "interop"},
    "interop": {*BASE, "models"},
    "model_card": {*BASE, "models"},
    "modeldir": {*BASE, "text", "models", "presets", "interop", "model_card"},
    "objectives": {*BASE, "text", "data", *MODEL},
    "tasks": {*BASE, "tables", "records", "text", "data", *MODEL, "objectives", "generation"},
    "datasets": {*BASE, "tables", "records", "tasks"},
    "inference": {
        *BASE,
        *("word_vectors", "generation"),
        *("tables", "records", "text", "data", *MODEL, "objectives", "tasks", "datasets"),
    },
    "runs": BASE,
    "reports": {*BASE, "text", "runs"},
    "inspection": {*BASE, "text", "data", *MODEL, "reports", "runs"},
    "training": {
        *BASE,
        *("tables", "records", "text", "data", *MODEL, "objectives", "tasks", "datasets"),
        *("inference", "runs", "reports", "word_vectors"),
    },
    "papers": {
        *BASE,
        *("text", "data", *MODEL, "objectives", "tasks", "datasets", "inference", "training"),
        *("runs", "reports"),
    },
    "serving": {*BASE, "text", "records", "data", *MODEL, "tasks", "inference"},
    "demo": {
        *BASE,
        *("records", "text", "data", *MODEL, "tasks", "inference", "training", "runs", "reports"),
        *("objectives", "recipes"),
    },
    "estimators": {*BASE, *MODEL, "records", "tasks", "datasets", "inference", "training"},
    # The command line: it reaches the rooms through the verbs of `bertine` itself.
    "commands": {"errors", "terminal", "names", "options", "text.special"},
    "config_file": {"errors", "files", "terminal", "commands"},
    "cli": {
        "errors",
        "version",
        "cores",
        "options",
        "system",
        "terminal",
        "commands",
        "config_file",
    },
    "__main__": {"cli"},
}


def room_of(module: str) -> str | None:
    """``"bertine.data.store"`` → ``"data"``; None for ``bertine`` itself."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in MAY_IMPORT:
            return ".".join(parts[:length])
    if parts:
        raise AssertionError(f"{module} stands in no room; give it one in {__file__}")
    return None


def module_name(file: Path) -> str:
    parts = ("bertine", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports_of(file: Path) -> tuple[tuple[str, str, int], ...]:
    """Every import in a file, late and type-checking ones too: module, name (or ""), line."""

    def found() -> Iterator[tuple[str, str, int]]:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "", node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}: imports are written in full"
                yield from ((node.module or "", alias.name, node.lineno) for alias in node.names)

    return tuple(found())


def attributes_of(module: str, file: Path) -> set[str]:
    """What a file uses of an imported module: ``{"load"}`` for ``pickle.load(handle)``."""
    return {
        node.attr
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == module
    }


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [file for file in FILES if file != SOURCE / "__init__.py"]


@pytest.mark.parametrize("file", MODULES, ids=module_name)
def test_imports_point_one_way(file: Path) -> None:
    room = room_of(module_name(file))
    assert room is not None
    for module, name, line in imports_of(file):
        if module.split(".")[0] != "bertine":
            continue
        if module == "bertine" and (name in bertine.__all__ or not name):
            # The verbs, which `bertine` imports lazily, are for the command line alone.
            assert room in ("cli", "commands"), f"{file}:{line}"
            continue
        target = f"{module}.{name}" if name and is_module(f"{module}.{name}") else module
        other = room_of(target)
        assert other == room or other in MAY_IMPORT[room], (
            f"{file}:{line}: {room} may not import {target}"
        )


def test_rooms_have_an_order() -> None:
    """The table above has no circle, so that a reader may begin at the ground."""
    built: set[str] = set()
    while ready := {room for room, below in MAY_IMPORT.items() if below <= built} - built:
        built |= ready
    assert built == set(MAY_IMPORT)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Late imports count too; those for types alone do not, nor does `bertine` itself, which
    imports its verbs when they are asked for."""
    below: dict[str, set[str]] = {}
    for file in MODULES:
        wanted = below.setdefault(module_name(file), set())
        for module, name, line in imports_of(file):
            if module.split(".")[0] == "bertine" and line not in type_checking_lines(file):
                target = f"{module}.{name}" if name and is_module(f"{module}.{name}") else module
                wanted |= {target} - {"bertine"}
    TopologicalSorter(below).prepare()  # CycleError, with the modules, where there is a circle


@cache
def type_checking_lines(file: Path) -> set[int]:
    """The lines of a file that stand under ``if TYPE_CHECKING``."""
    return {
        line
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def kinds_of_answers(kind: type) -> set[type]:
    return {kind, *(one for below in kind.__subclasses__() for one in kinds_of_answers(below))}


def test_nobody_asks_what_kind_of_task_it_is() -> None:
    """A task says what it does and an answer shows itself: nobody outside ``tasks/`` (and the
    readers of ``datasets/``, each of which knows its kind) tells them apart by their type."""
    tasks = {each.__name__ for each in TASKS.values()} | {"WholeTextTask"}
    kinds = tasks | {each.__name__ for each in kinds_of_answers(Answer)} | {"Tags"}
    asked = [
        f"{module_name(file)}:{node.lineno}"
        for file in MODULES
        if room_of(module_name(file)) not in ("tasks", "datasets")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and kinds & set(re.findall(r"\w+", ast.unparse(node.args[1])))
    ]
    assert asked == []


def test_the_documents_table_has_every_room() -> None:
    page = SOURCE.parents[1] / "docs" / "architecture.md"
    table = page.read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rooms = "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert sorted(re.findall(r"`([\w.]+)/?`", rooms)) == sorted(MAY_IMPORT)


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_no_peers_no_pickles(file: Path) -> None:
    forbidden = {"transformers", "sentence_transformers", "dill", "cloudpickle", "joblib"}
    for module, name, line in imports_of(file):
        assert module.split(".")[0] not in forbidden, f"{file}:{line}: imports {module}"
        if module == "pickle":  # its error may be caught: torch.load raises it
            used = {name} if name else attributes_of("pickle", file)
            assert used <= {"UnpicklingError"}, f"{file}:{line}: uses pickle"


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_torch_load_reads_weights_only(file: Path) -> None:
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert keywords.get("weights_only") == "True", f"{file}:{node.lineno}"


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh Python has imported after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    "code",
    [
        "import bertine",
        "import bertine.cli",
        "from bertine.cli import main\nmain(['pretrain', '--help'])",
        "from bertine.cli import main\nmain(['finetune', '--help'])",
        "from bertine.cli import main\nmain(['pretrain', '--no-such-option'])",
    ],
)
def test_nothing_heavy_until_it_is_needed(code: str) -> None:
    heavy = {"torch", "numpy", "pyarrow", "sklearn", "scipy", "matplotlib", "tokenizers", "jinja2"}
    assert not heavy & modules_after(code)


@pytest.mark.parametrize("name", sorted(set(bertine.__all__) - {"__version__"}))
def test_public_names_are_there(name: str) -> None:
    value = getattr(bertine, name)
    assert callable(value)
    assert value.__name__ == name
    assert value.__doc__
    assert name in dir(bertine)


@pytest.mark.parametrize("name", sorted(set(bertine.__all__) - {"__version__", "BertineError"}))
def test_every_argument_is_described(name: str) -> None:
    """In the docstring of a verb or a class, or in that of the one whose options it takes over."""
    value = getattr(bertine, name)
    told = [value, value.__init__] if inspect.isclass(value) else [value]
    told += {
        "search": [bertine.finetune],
        "lr_find": [bertine.finetune],
        "BertRegressor": [bertine.BertClassifier],
    }.get(name, [])
    text = " ".join(each.__doc__ or "" for each in told)
    if name != "BertConfig":  # whose names are those of every config.json
        names = set(inspect.signature(value).parameters)
        assert names <= set(re.findall(r"\w+", text))


def test_public_names_are_spelled_once() -> None:
    assert set(bertine.__all__) == {*bertine._HOME, "BertineError", "__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        _ = bertine.pretrian
