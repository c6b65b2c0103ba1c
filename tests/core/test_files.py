"""What is written replaces the old as a whole, where it is, and only what may be replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, atomic_file, read_json, write_json, write_text


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "folder").mkdir()
    (tmp_path / "disk" / "folder" / "old").touch()
    write_text(tmp_path / "disk" / "file", "old")
    for name in ("file", "folder"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    write_text(tmp_path / "file", "new")
    with atomic_dir(tmp_path / "folder") as folder:
        assert folder.parent == tmp_path / "disk"
        (folder / "new").touch()
    assert (tmp_path / "file").is_symlink()
    assert (tmp_path / "folder").is_symlink()
    assert (tmp_path / "disk" / "file").read_text() == "new"
    assert [p.name for p in (tmp_path / "disk" / "folder").iterdir()] == ["new"]
    assert sorted(p.name for p in (tmp_path / "disk").iterdir()) == ["file", "folder"]


def test_the_current_folder_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    with atomic_dir(".") as folder:
        (folder / "new").touch()
    assert (home / "new").exists()


def test_a_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").touch()
    rename = os.replace
    calls = []

    def second_fails(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(BertineError, match="Input/output error"), atomic_dir(out) as folder:
        (folder / "new").touch()
    assert len(calls) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert [p.name for p in out.iterdir()] == ["old"]


def test_half_a_character_is_written_as_json_has_it(tmp_path: Path) -> None:
    # Such as the name of a file that is no UTF-8, in the settings of a run.
    value = {"data_path": "a\udcff", "of": "ä"}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json", lenient=True) == value
    assert read_json(tmp_path / "a.json", lenient=True)["of"] == "ä"


def test_a_mistake_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")

    def write() -> None:
        with atomic_file(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("command", ["vocab", "prepare"])
def test_a_folder_of_something_else_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    toys.write_corpus(texts / "corpus.txt")
    site = tmp_path / "site"
    site.mkdir()
    (site / "manifest.json").write_text('{"name": "a web page"}')
    tokenizer = toys.tokenizer_folder(tmp_path / "tokenizer")
    extra = ["--vocab-size", "200"] if command == "vocab" else ["--tokenizer", str(tokenizer)]
    before = toys.tree(tmp_path)
    for out in (texts, site):
        assert main([command, str(texts), "--out", str(out), *extra]) == 2
        assert "is a folder, but not a" in capsys.readouterr().err
    assert toys.tree(tmp_path) == before


def test_their_own_kind_is_replaced(tmp_path: Path) -> None:
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    for _ in range(2):
        bertine.train_vocab(corpus, tmp_path / "vocab", vocab_size=200)
        bertine.prepare(corpus, tokenizer=tmp_path / "vocab", out=tmp_path / "store")
    assert bertine.TokenStore.open(tmp_path / "store").num_documents == 40


def test_answers_go_into_a_pipe_that_stays_one(tmp_path: Path) -> None:
    task_model = toys.write_classifier(tmp_path / "model")
    table = toys.write_labelled(tmp_path / "texts.csv", rows=8)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    bertine.predict(task_model, table, pipe, show_progress=False)
    reader.join(30)
    assert pipe.is_fifo()
    assert len(read[0].splitlines()) == 9


def test_files_are_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    """safetensors writes its files for the owner alone."""

    def write_privately(path: Path) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))

    (tmp_path / "plain").write_text("")
    usual = (tmp_path / "plain").stat().st_mode
    with atomic_file(tmp_path / "file") as temporary:
        write_privately(temporary)
    with atomic_dir(tmp_path / "folder") as folder:
        write_privately(folder / "weights")
    assert (tmp_path / "file").stat().st_mode == usual
    assert (tmp_path / "folder" / "weights").stat().st_mode == usual
