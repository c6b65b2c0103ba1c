"""The page on vector databases: LanceDB and Qdrant take the file of `embed`, and are asked with the
vectors that a server gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bertine
from bertine.core.model_folders import minilm_folder
from documents import ROOT, blocks

from .conftest import running

_PAGE = ROOT / "docs" / "guides" / "vector-databases.md"


@pytest.mark.slow
def test_the_page_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("lancedb", "qdrant_client", "httpx"):
        pytest.importorskip(package)
    if (folder := minilm_folder()) is None:
        pytest.skip("MiniLM is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with running({"minilm": folder}) as client:
        for block in blocks(_PAGE.read_text(encoding="utf-8")):
            if block.words == ("docs.csv",):
                Path("docs.csv").write_text(block.text, encoding="utf-8")
                bertine.embed("minilm", "docs.csv", "docs.parquet", show_progress=False)
                capsys.readouterr()
            elif block.words == ("served",):
                code = block.text.replace(":8000", f":{client.port}")
                exec(compile(code, f"{_PAGE}:{block.line}", "exec"), names)
            elif block.words == ("printed",):
                assert capsys.readouterr().out == block.text
    assert names["table"].count_rows() == 5
