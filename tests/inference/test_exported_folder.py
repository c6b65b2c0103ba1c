"""An exported folder is for `predict` and other programs: whoever gives it to another command reads
that in one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import bertine
from bertine.cli import main
from bertine.core.errors import BertineError

COMMANDS: dict[str, Callable[[Path, Path], list[object]]] = {
    "evaluate": lambda folder, file: ["evaluate", folder, "--data", file],
    "explain": lambda folder, file: ["explain", folder, "the cat"],
    "embed": lambda folder, file: [
        *("embed", folder, "--input", file, "--output", file.parent / "v.npy")
    ],
    "similar": lambda folder, file: ["similar", "a cat", "--in", file, "--model", folder],
    "serve": lambda folder, file: ["serve", folder, "--port", "0"],
    "export": lambda folder, file: [
        *("export", folder, "--out", file.parent / "out", "--format", "torch")
    ],
    "inspect": lambda folder, file: ["inspect", folder],
}


@pytest.fixture
def folder(classifier: Path, tmp_path: Path) -> Path:
    """What stands in an exported folder, but for the graph."""
    path = tmp_path / "exported"
    shutil.copytree(classifier, path)
    for name in ("model.safetensors", "bertine.json"):
        (path / name).unlink()
    (path / "export.json").write_text("{}")
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_whose_it_is(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text,label\nthe cat,joy\na dog,fear\n")
    assert main([str(word) for word in COMMANDS[name](folder, file)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert errors == [
        f"bertine: error: {folder}: is an exported model, for 'bertine predict' and for other "
        "programs (ONNX Runtime, PyTorch); here give the model directory that it was made of"
    ]


@pytest.mark.parametrize("load", [bertine.Predictor.load, bertine.Embedder.load])
def test_loading_says_whose_it_is(load: Callable[[Path], object], folder: Path) -> None:
    with pytest.raises(BertineError, match="is an exported model, for 'bertine predict'"):
        load(folder)
