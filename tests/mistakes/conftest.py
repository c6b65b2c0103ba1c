"""What is right, made once; and running ``bertine`` on what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import toys
from bertine.cli import main
from mistakes.commands import Fails, one_line


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is right: corpus.txt, tokenizer, store, model (pre-trained), classifier, train.csv."""
    home = tmp_path_factory.mktemp("made")
    toys.write_corpus(home / "corpus.txt")
    toys.tokenizer_folder(home / "tokenizer")
    toys.write_store(home / "store")
    toys.write_model(home / "model")
    toys.write_labelled(home / "train.csv")
    toys.write_classifier(home / "classifier")
    return home


@pytest.fixture
def fails(tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> Fails:
    """Run ``bertine`` in this process; check exit status, message and that no file has changed,
    appeared or gone. Returns the message."""

    def run(*arguments: object) -> str:
        before = toys.tree(tmp_path), toys.tree(made)
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        assert (toys.tree(tmp_path), toys.tree(made)) == before
        return one_line(capsys.readouterr().err)

    return run


@pytest.fixture
def works(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run ``bertine`` in this process and return all that it says."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run
