"""What keeps the source small and readable: files are chapters, names are words of the field."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from test_imports import FILES, SOURCE, imports_of, is_module, module_name, nodes_of, target_of

#: Files that one other file of their folder imports and nothing else, and why they stand apart:
#: each is a chapter of its own. At most MOST of them in the core.
ONE_IMPORTER = {
    "bertine.data.pre_annotation": "writes answers into the objects of annotation tools",
    "bertine.data.sheets": "a program of its own, with limited memory",
    "bertine.contrib.demo.result": "what the demo prints and its page; `run` computes",
    "bertine.contrib.feature_based.bilstm": "the layers over frozen states",
    "bertine.contrib.feature_based.problems": "what is learned from frozen states",
    "bertine.contrib.papers.model_steps": "the models of a row; `paper` runs them",
    "bertine.contrib.tensorflow.bundle": "the files; `checkpoint` is the model in them",
    "bertine.contrib.tensorflow.variables": "the names in four programs",
    "bertine.corpora.merging": "joins the parts of a store; `prepare` runs the processes",
    "bertine.hub.model_card": "writes README.md; `model_directory` reads and writes the model",
    "bertine.inference.embedding.search": "searches vectors; `similar` reads queries",
    "bertine.inference.export_graph": "needs PyTorch; `export` checks first what needs none",
    "bertine.reports.finetuning_checks": "rules on fine-tuning; `diagnosis`: pre-training",
    "bertine.reports.run_scores": "the scores' part of a run's page",
    "bertine.reports.text_input": "what a model reads of a text; `inspect`: stores and models",
    "bertine.serving.app": "the application; `server` runs it",
    "bertine.serving.compat": "the shapes of other services, and reranking",
    "bertine.serving.server": "needs uvicorn; `serve` checks first what needs no package",
    "bertine.tokenization.learn_unigram": "trains Unigram: longer than the other learners",
    "bertine.tokenization.word_cache": "the speed of `Tokenizer`, which works without it",
    "bertine.training.distillation.on_task": "on a task; `distill`: on a store",
    "bertine.training.distillation.on_vectors": "on vectors",
    "bertine.training.learning_curve.result": "the curve's result and page",
    "bertine.training.search.table": "the grid and the table of a search, its page",
}
MOST = 18
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


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> None:
    """Parse every file once, for all tests."""
    for file in FILES:
        imports_of(file)


def importers() -> dict[str, set[str]]:
    """Return the modules of the package that import each of its modules, at once or late."""
    by: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for module, name, _ in imports_of(file):
            target = target_of(module, name)
            if target != module_name(file):
                by[target].add(module_name(file))
        # By its name in a text, as the families in core/names.py.
        for module in re.findall(r'"(bertine(?:\.\w+)+)[:"]', file.read_text(encoding="utf-8")):
            by[module].add(f"{module_name(file)} (late)")
    return by


def test_a_file_with_one_importer_next_door_is_a_chapter() -> None:
    by = importers()
    alone: set[str] = set()
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
    assert len([name for name in ONE_IMPORTER if not name.startswith("bertine.contrib")]) <= MOST


def names_in(file: Path) -> set[tuple[str, int]]:
    """Return the names that a file gives, with their lines."""
    given = {(file.stem, 1)}
    classes = [node for node in nodes_of(file) if isinstance(node, ast.ClassDef)]
    # Users read fields, so these keep their names.
    fields = {
        id(entry.target)
        for node in classes
        for entry in node.body
        if isinstance(entry, ast.AnnAssign)
    }
    for node in nodes_of(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            given.add((node.name, node.lineno))
        elif isinstance(node, ast.arg):
            given.add((node.arg, node.lineno))
        elif (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in fields
        ):
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
