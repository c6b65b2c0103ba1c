"""A table of static vectors, served."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.options.inference import ServeOptions
from bertine.serving.address import Limits
from bertine.serving.handles import ModelHandle
from bertine.serving.schemas import ModelInfo
from serving.conftest import ON_CPU, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    teacher = toys.write_model(tmp_path / "teacher")
    with toys.one_thread():
        bertine.distill(static=True, teacher=teacher, out=tmp_path / "vectors", dimensions=8)
    return tmp_path / "vectors"


def test_it_gives_vectors_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = ModelHandle.load("pet", folder, ServeOptions(**ON_CPU), Limits())
    assert "does embed" in capsys.readouterr().err
    assert list(served.operations) == ["embed", "rerank"]
    found = served.operations["embed"](["the cat sat", ""])
    wanted = bertine.Embedder.load(folder)(["the cat sat", ""])
    np.testing.assert_allclose([each.vector for each in found], wanted, atol=1e-6)
    described = served.describe()
    assert (described["task"], described["dimensions"], described["labels"]) == ("embed", 8, [])
    assert described["max_length"] is None
    ModelInfo(**described)
    assert served.tokens("the cat sat") >= 1


def test_shorter_vectors_are_those_of_the_embedder(folder: Path) -> None:
    """Of length 1 again, as whole ones of the table are."""
    texts = ["the cat sat", "soup"]
    wanted = bertine.Embedder.load(folder, dimensions=3)(texts)
    with running({"pet": folder}) as client:
        found = client("/embed", {"texts": texts, "dimensions": 3}).json
        assert client("/embed", {"texts": texts, "dimensions": 9}).status == 422
    np.testing.assert_allclose(found["vectors"], wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["table", "pre-trained"])
def test_options_of_labels_are_for_models_that_give_them(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder if kind == "table" else folder.parent / "teacher"
    ModelHandle.load("pet", path, ServeOptions(abstain_below=0.5, **ON_CPU), Limits())
    said = capsys.readouterr().err
    assert "pet: gives no labels, so its answers are the same without abstain_below=0.5" in said
    with pytest.raises(BertineError, match="no model here gives labels; leave out abstain_below="):
        bertine.serve(path, port=0, abstain_below=0.5)
