"""Vectors of words and tables of vectors, given where a model with layers is wanted: one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bertine
import toys
from bertine.contrib.elmo.files import load_elmo
from bertine.contrib.static_vectors.table import StaticModel, StaticTable, save_static
from bertine.core.errors import BertineError
from bertine.inference.minimal_pairs.evaluate_pairs import open_log_probability
from contrib.elmo import elmos

OF_WORDS = "word vectors, without layers and heads .*: use it with embed, similar or feature-based"
OF_PIECES = "static vectors .*, without layers and heads .*: use it with embed or similar"


def words(folder: Path) -> Path:
    bertine.WordVectors(["the"], np.ones((1, 2))).save(folder / "v")
    return folder / "v"


def table(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    return folder


def file_of(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text("the 1 2\n")
        return folder / name

    return make


def feature_based(path: Path) -> None:
    (path.parent / "t.csv").write_text("text,label\na,x\nb,y\n")
    bertine.feature_based(path, data=path.parent / "t.csv", task="text", out=path.parent / "o")


@pytest.mark.parametrize(
    ("make", "use", "said"),
    [
        (words, bertine.Predictor.load, OF_WORDS),
        (words, lambda path: bertine.export(path, path / "o"), OF_WORDS),
        (words, open_log_probability, OF_WORDS),
        (table, bertine.Predictor.load, OF_PIECES),
        (table, lambda path: bertine.export(path, path / "o"), OF_PIECES),
        (table, feature_based, "a vector for each piece and none for a word"),
        *(
            (
                file_of(name),
                use,
                "is (a file; .* known by .bin, .txt and .vec|an archive, which is to be unpacked)",
            )
            for name in ("glove.6B.zip", "vectors.glove", "w.txt.bz2")
            for use in (
                lambda path: bertine.convert(path, path.parent / "o"),
                bertine.Embedder.load,
            )
        ),
    ],
)
def test_what_to_do_with_them_is_said(
    tmp_path: Path, make: Callable[[Path], Path], use: Callable[[Path], object], said: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(BertineError, match=said) as caught:
        use(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_inspect_describes_each(tmp_path: Path) -> None:
    bertine.convert(elmos.write(tmp_path / "small"), tmp_path / "elmo")
    tokenizer = toys.tokenizer()
    vectors = np.ones((tokenizer.vocab_size, 4), np.float32)
    (tmp_path / "static").mkdir()
    save_static(StaticModel(StaticTable(vectors), tokenizer), tmp_path / "static", "fp32")
    found = [bertine.inspect(path).lines() for path in (words(tmp_path), tmp_path / "static")]
    assert found[0][1] == "1 word, vectors of 2 numbers: 2 parameters"
    assert found[1][1].startswith(f"static vectors: {tokenizer.vocab_size} pieces (WordPiece), ")
    config = load_elmo(tmp_path / "elmo").model.config
    lines = bertine.inspect(tmp_path / "elmo").lines()
    assert f"ELMo, {config.num_hidden_layers} LSTMs of {config.lstm_size}" in lines[1]
    assert lines[2].startswith(f"parameters: {config.num_parameters:,} (words ")
    with pytest.raises(BertineError, match="of another kind, but text is for a text with a model"):
        bertine.inspect(tmp_path / "elmo", text=["a"])
