"""What the source may not do: imports point one way, nothing heavy is imported early, peers and
pickles never; and only the package of texts knows special tokens."""

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

#: Rooms from the ground up, and the rooms that each may import besides itself.
MODEL = {"models", "families", "hub"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "options": {"core"},
    "data": {"core", "options"},
    "tokenization": {"core", "options", "data"},
    "corpora": {"core", "options", "tokenization"},
    "models": {"core", "options"},
    "families": {"core", "options", "models"},
    "fast": {"models", "families"},
    "hub": {"core", "tokenization", "models", "families"},
    "objectives": {"core", "options", "tokenization", "corpora", *MODEL},
    "tasks": {"core", "options", "data", "tokenization", "corpora", "models", "objectives"},
    "datasets": {"core", "options", "data", "tasks"},
    "inference": {
        *("core", "options", "data", "tokenization", "corpora", "fast", *MODEL),
        *("objectives", "reports", "tasks", "datasets"),
    },
    "reports": {"core", "options", "tokenization", "corpora", *MODEL, "objectives"},
    "training": {
        *("core", "options", "data", "tokenization", "corpora", *MODEL),
        *("objectives", "tasks", "datasets", "inference", "reports"),
    },
    "labelling": {
        *("core", "options", "data", "tasks", "inference", "reports"),
        *("training", "serving"),
    },
    "serving": {
        "core",
        "options",
        "tokenization",
        "corpora",
        "models",
        "hub",
        "tasks",
        "inference",
    },
    "recipes": set(),
    "estimators": {
        *("core", "options", "data", *MODEL, "tasks", "datasets", "inference", "training"),
    },
    # The command line: it reaches the rooms through the verbs of `bertine` itself.
    "commands": {"core", "options", "tokenization"},
    "cli": {"core", "options", "commands"},
    "__main__": {"cli"},
    # What comes beside the core, which knows it by name alone.
    "contrib": set(),
    "contrib.options": {"core", "options"},
    "contrib.recognize": {"core", "data", "models"},
    "contrib.commands": {"core", "options", "commands", "contrib.options"},
    "contrib.tensorflow": {"core", "models", "hub"},
    "contrib.word2vec": {
        *("core", "options", "data", "tokenization", "tasks", "inference", "contrib.options"),
        "contrib.recognize",
    },
    "contrib.elmo": {
        *("core", "options", "data", "tokenization", "corpora", "models", "hub", "tasks"),
        *("inference", "reports", "training", "contrib.options", "contrib.recognize"),
    },
    "contrib.static_vectors": {
        *("core", "options", "data", "tokenization", "models", "tasks", "inference"),
        *("contrib.options", "contrib.recognize"),
    },
    "contrib.feature_based": {
        *("core", "options", "data", "tokenization", "corpora", *MODEL, "tasks"),
        *("datasets", "inference", "training", "contrib.options", "contrib.elmo"),
        "contrib.word2vec",
    },
    "contrib.papers": {
        *("core", "options", "tokenization", "corpora", *MODEL, "datasets", "inference"),
        *("reports", "training", "contrib.options", "contrib.feature_based", "contrib.elmo"),
    },
    "contrib.demo": {
        *("core", "options", "data", "tokenization", "corpora", *MODEL, "objectives", "tasks"),
        *("inference", "reports", "training", "recipes"),
    },
}


def room_of(module: str) -> str | None:
    """``"bertine.corpora.store"`` → ``"corpora"``; None for ``bertine`` itself."""
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
def nodes_of(file: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> None:
    """Parse every file once, for all tests."""
    for file in FILES:
        nodes_of(file)


@cache
def imports_of(file: Path) -> tuple[tuple[str, str, int], ...]:
    """Every import in a file, late and type-checking ones too: module, name (or ""), line."""

    def found() -> Iterator[tuple[str, str, int]]:
        for node in nodes_of(file):
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
        for node in nodes_of(file)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == module
    }


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def target_of(module: str, name: str) -> str:
    """Return the module that ``from module import name`` reaches."""
    return f"{module}.{name}" if name and is_module(f"{module}.{name}") else module


FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [file for file in FILES if file != SOURCE / "__init__.py"]


def test_imports_point_one_way() -> None:
    wrong = []
    for file in MODULES:
        room = room_of(module_name(file))
        assert room is not None
        for module, name, line in imports_of(file):
            if module.split(".")[0] != "bertine":
                continue
            if module == "bertine" and (name in bertine.__all__ or not name):
                # The verbs, which `bertine` imports lazily, are for the command line alone.
                if room not in ("cli", "commands", "contrib.commands"):
                    wrong.append(f"{file}:{line}: {room} may not import verbs")
                continue
            target = target_of(module, name)
            other = room_of(target)
            if other != room and other not in MAY_IMPORT[room]:
                wrong.append(f"{file}:{line}: {room} may not import {target}")
    assert wrong == []


def test_the_core_imports_nothing_of_contrib() -> None:
    """Late imports, those for types alone and names in texts count too: it looks contrib up in
    `core/contrib.py`. Only `bertine` itself names it, to type checkers."""
    named = set()
    for file in MODULES:
        modules = {target_of(module, name) for module, name, _ in imports_of(file)}
        modules |= {
            node.value
            for node in nodes_of(file)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if any(re.match(r"bertine\.contrib\b", module) for module in modules):
            named.add(module_name(file))
    assert {name for name in named if not name.startswith("bertine.contrib")} == {
        "bertine.core.contrib"
    }


def test_rooms_have_an_order() -> None:
    """The table above has no circle, so that a reader may begin at the ground."""
    built: set[str] = set()
    while ready := {room for room, below in MAY_IMPORT.items() if below <= built} - built:
        built |= ready
    assert built == set(MAY_IMPORT)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Late imports and those for types alone count too; `bertine` itself does not, which imports
    its verbs when they are asked for."""
    below: dict[str, set[str]] = {}
    for file in MODULES:
        wanted = below.setdefault(module_name(file), set())
        for module, name, _ in imports_of(file):
            if module.split(".")[0] == "bertine":
                target = target_of(module, name)
                wanted |= {target} - {"bertine"}
    TopologicalSorter(below).prepare()  # CycleError, with the modules, where there is a circle


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
        for node in nodes_of(file)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and kinds & set(re.findall(r"\w+", ast.unparse(node.args[1])))
    ]
    assert asked == []


#: What a variable with a task is called outside ``tasks/``; ``info`` is what bertine.json says.
TASK = re.compile(r"(\w*task|built|info|_text|_tagging)(\(\))?")
#: Attributes of tasks that tell them apart without doing anything.
FLAGS = {
    *("reads_words", "reads_questions", "reads_whole_texts", "reads_apart", "has_choices"),
    *("writes", "keeps_head", "single_output", "one_label", "numeric", "takes_pairs", "unsaved"),
}


def is_task(node: ast.AST) -> bool:
    return bool(TASK.fullmatch(ast.unparse(node).split(".")[-1]))


def asks_what_it_is(node: ast.AST) -> Iterator[ast.AST]:
    """The questions in a node: a flag, a name that is compared, labels as a truth value, or whether
    a task has an attribute at all."""
    if isinstance(node, ast.Attribute) and node.attr in FLAGS and is_task(node.value):
        yield node
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        asked = ("name", "reader")
        named = [s for s in sides if isinstance(s, ast.Attribute) and s.attr in asked]
        fixed = any(isinstance(part, ast.Constant) for s in sides for part in ast.walk(s))
        fixed |= any(isinstance(s, ast.Name) and s.id.isupper() and s.id != "TASKS" for s in sides)
        if fixed and any(is_task(side.value) for side in named):
            yield node
    elif isinstance(node, ast.Call) and node.args:
        called, first = ast.unparse(node.func), node.args[0]
        lacking = called == "hasattr" or (called == "getattr" and len(node.args) > 2)
        kind = called == "bool" and isinstance(first, ast.Attribute) and first.attr == "labels"
        if (lacking and is_task(first)) or (kind and is_task(first.value)):
            yield node


_BELOW, _TOLD_APART = (
    "tasks stand above this room",
    "the kinds of files are told apart in one function",
)
#: The questions that are left, each with its reason. The list only shrinks.
STILL_ASKED = {
    "bertine.families.bart: task.name == 'seq2seq'": _BELOW,
    "bertine.hub.model_card: task.name != 'tagging'": _BELOW,
    "bertine.inference.predict: task.reader == 'words'": _TOLD_APART,
    "bertine.inference.predict: task.reader == 'questions'": _TOLD_APART,
    "bertine.inference.predictor: task.unsaved": "a whole model is copied only then",
    "bertine.serving.compat: predictor.task.name not in PAIR_TASKS": "a protocol of others",
    "bertine.serving.handles: predictor.task.name not in PAIR_TASKS": "a protocol of others",
    "bertine.training.distillation.on_task: task.numeric": "a warning beside others",
}


def test_nobody_asks_a_task_by_flags() -> None:
    """What differs between tasks is a method of theirs, so that a new one is one file."""
    asked = [
        f"{module_name(file)}: {ast.unparse(question)}"
        for file in MODULES
        if room_of(module_name(file)) != "tasks"
        and file.name != "glue.py"  # a task of GLUE's is data
        for node in nodes_of(file)
        for question in asks_what_it_is(node)
    ]
    assert {*asked} == {*STILL_ASKED}


def test_the_documents_table_has_every_room() -> None:
    page = SOURCE.parents[1] / "docs" / "architecture.md"
    table = page.read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rooms = "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert sorted(re.findall(r"`([\w.]+)/?`", rooms)) == sorted(MAY_IMPORT)


def test_no_peers_no_pickles() -> None:
    forbidden = {"transformers", "sentence_transformers", "dill", "cloudpickle", "joblib"}
    wrong = []
    for file in FILES:
        for module, name, line in imports_of(file):
            if module.split(".")[0] in forbidden:
                wrong.append(f"{file}:{line}: imports {module}")
            if module == "pickle":  # its error may be caught: torch.load raises it
                used = {name} if name else attributes_of("pickle", file)
                if not used <= {"UnpicklingError"}:
                    wrong.append(f"{file}:{line}: uses pickle")
    assert wrong == []


def test_torch_load_reads_weights_only() -> None:
    wrong = [
        f"{file}:{node.lineno}"
        for file in FILES
        for node in nodes_of(file)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "torch.load"
        and {k.arg: ast.unparse(k.value) for k in node.keywords}.get("weights_only") != "True"
    ]
    assert wrong == []


#: How special tokens and continued words are written.
MARKS = ("[CLS]", "[SEP]", "[MASK]", "##")


def test_only_the_package_of_texts_knows_special_tokens() -> None:
    wrong = []
    for file in FILES:
        if SOURCE / "tokenization" in file.parents or file == SOURCE / "core" / "names.py":
            continue
        nodes = nodes_of(file)
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Attribute):
                known = node.attr in ("cls_token_id", "sep_token_id")
            else:
                known = (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in prose
                    and any(mark in node.value for mark in MARKS)
                )
            if known:
                wrong.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []


def test_pages_ask_how_a_mask_is_written() -> None:
    pages = [*SOURCE.rglob("*.j2"), *SOURCE.rglob("*.html")]
    assert [p for p in pages if any(m in p.read_text(encoding="utf-8") for m in MARKS[:3])] == []


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh Python has imported after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_nothing_heavy_until_it_is_needed() -> None:
    heavy = {"torch", "numpy", "pyarrow", "sklearn", "scipy", "matplotlib", "tokenizers", "jinja2"}
    arguments = (["pretrain", "--help"], ["finetune", "--help"], ["pretrain", "--no-such-option"])
    code = "import bertine, bertine.cli\n"
    code += "".join(f"bertine.cli.main({each})\n" for each in arguments)
    assert not heavy & modules_after(code)


@pytest.mark.slow
def test_a_name_loads_what_it_needs() -> None:
    """The list of tables needs no PyTorch, and answers need no Arrow."""
    assert not {"torch", "pyarrow"} & modules_after("import bertine\nbertine.paper_tables()")
    assert "pyarrow" not in modules_after("import bertine\nbertine.Predictor, bertine.Embedder")


def test_public_names_are_there_and_described() -> None:
    for name in sorted(set(bertine.__all__) - {"__version__"}):
        value = getattr(bertine, name)
        assert callable(value), name
        assert value.__name__ == name
        assert value.__doc__, name
        assert name in dir(bertine)


def test_every_argument_is_described() -> None:
    """In the docstring of a verb or a class, or in that of the one whose options it takes over."""
    missing = []
    for name in sorted(set(bertine.__all__) - {"__version__", "BertineError", "BertConfig"}):
        value = getattr(bertine, name)
        described = [value, value.__init__] if inspect.isclass(value) else [value]
        described += {
            "search": [bertine.finetune],
            "lr_find": [bertine.finetune],
            "BertRegressor": [bertine.BertClassifier],
        }.get(name, [])
        words = set(re.findall(r"\w+", " ".join(each.__doc__ or "" for each in described)))
        missing += [f"{name}: {p}" for p in set(inspect.signature(value).parameters) - words]
    assert missing == []


def test_public_names_are_spelled_once() -> None:
    assert set(bertine.__all__) == {*bertine._HOME, "BertineError", "__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        _ = bertine.pretrian
