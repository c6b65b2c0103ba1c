"""Tables of static vectors: made of a model, opened by model2vec, and used like any other model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import bertine
import toys
from bertine.cli import main
from bertine.contrib.static_vectors.distill import (
    PieceTexts,
    StaticResult,
    fit_table,
    inputs_of,
    with_words,
)
from bertine.contrib.static_vectors.table import StaticEncoder, StaticTable, load_static
from bertine.core.errors import BertineError

TEXTS = ["the cat sat", "unheard-of words", "", "the dog, the dog"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers that see words from the first step on."""
    return toys.write_model(
        tmp_path_factory.mktemp("base") / "model",
        num_hidden_layers=4,
        initializer_range=0.2,
        max_position_embeddings=64,
    )


@pytest.fixture(scope="module")
def made(base: Path, tmp_path_factory: pytest.TempPathFactory) -> StaticResult:
    out = tmp_path_factory.mktemp("static") / "vectors"
    with toys.one_thread():
        result = bertine.distill(static=True, teacher=base, out=out, dimensions=8)
    assert isinstance(result, StaticResult)
    return result


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    lines = toys.corpus_text(60).splitlines()
    path.write_text("".join(f"{line}\n" for line in lines if line.strip()))
    return path


def by_hand(folder: Path, texts: list[str]) -> np.ndarray:
    """The vectors of the files alone, as model2vec computes them."""
    table = load_file(folder / "model.safetensors")["embeddings"].astype(np.float32)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    unknown = tokenizer.token_to_id("[UNK]")
    rows = []
    for text in texts:
        ids = [i for i in tokenizer.encode(text, add_special_tokens=False).ids if i != unknown]
        mean = table[ids].mean(0) if ids else np.zeros(table.shape[1], np.float32)
        rows.append(mean / (np.linalg.norm(mean) or 1))
    return np.stack(rows)


def test_the_directory_has_the_layout_of_model2vec(made: StaticResult) -> None:
    config = json.loads((made.out / "config.json").read_text())
    assert config["model_type"] == "model2vec"
    assert config["normalize"] is True
    assert config["hidden_dim"] == 8
    (name, table), *others = load_file(made.out / "model.safetensors").items()
    assert (name, others, table.dtype, table.shape) == (
        "embeddings",
        [],
        np.float16,
        (len(toys.tokenizer().tokens), 8),
    )
    modules = json.loads((made.out / "modules.json").read_text())
    assert [each["type"].rpartition(".")[2] for each in modules] == ["StaticEmbedding", "Normalize"]
    assert "model2vec" in (made.out / "README.md").read_text()


def test_vectors_are_the_means_that_the_files_give(made: StaticResult) -> None:
    np.testing.assert_allclose(made.embed(TEXTS), by_hand(made.out, TEXTS), atol=1e-6)
    assert not made.embed("").any()
    features = made.embedder.features(TEXTS)
    np.testing.assert_allclose(made.embedder.run(features), made.embed(TEXTS), atol=1e-6)


def test_model2vec_gives_the_same_vectors(made: StaticResult) -> None:
    model2vec = pytest.importorskip("model2vec")
    theirs = model2vec.StaticModel.from_pretrained(made.out).encode(TEXTS)
    np.testing.assert_allclose(made.embed(TEXTS), theirs, atol=2e-3)  # theirs are fp16


def test_with_all_components_pieces_are_as_far_apart_as_the_teachers(
    base: Path, tmp_path: Path
) -> None:
    """With all components and no weights, angles between pieces are those of the teacher's centred
    vectors."""
    with toys.one_thread():
        result = bertine.distill(
            static=True,
            teacher=base,
            out=tmp_path / "v",
            dimensions=1000,
            piece_weights="none",
            table_precision="fp32",
            precision="fp32",
        )
        teacher = bertine.Embedder.load(base, precision="fp32")
    tokenizer = toys.tokenizer()
    words = [t for t in tokenizer.tokens if t.isalpha()]
    every = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]
    assert any(f"have {teacher.dimensions} numbers" in note for note in result.notes)
    assert result.explained == pytest.approx(1)
    ids = [tokenizer.token_to_id(word) for word in words]
    own = load_static(result.out).table.vectors
    assert np.abs(own[every].mean(0)).max() < 1e-4
    wanted = teacher(words)
    wanted_gaps = ((wanted[:, None] - wanted[None]) ** 2).sum(-1)
    gaps = ((own[ids][:, None] - own[ids][None]) ** 2).sum(-1)
    np.testing.assert_allclose(gaps, wanted_gaps, rtol=1e-2, atol=1e-3)


def test_learning_from_texts_comes_nearer_to_the_teacher(
    base: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vectors"
    with toys.one_thread():
        code = main(
            [
                *("distill", str(texts), "--static", "--teacher", str(base), "--out", str(out)),
                *("--dimensions", "16", "--learning-rate", "0.01"),
            ]
        )
    printed = capsys.readouterr().out
    assert code == 0
    assert "of the variance of the teacher's vectors of texts" in printed
    assert "times as fast as the teacher" in printed
    facts = json.loads((out / "config.json").read_text())["bertine"]
    assert facts["cosine_after"] > facts["cosine_before"] + 0.05
    assert facts["texts"] == len(texts.read_text().splitlines())


def test_the_same_seed_gives_the_same_table(base: Path, texts: Path, tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        with toys.one_thread():
            bertine.distill(
                texts, static=True, teacher=base, out=tmp_path / name, dimensions=8, epochs=1
            )
        tables.append((tmp_path / name / "model.safetensors").read_bytes())
    assert tables[0] == tables[1]


def test_counts_make_frequent_pieces_short(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the the the the cat\n" * 50)
    options = {"static": True, "teacher": base, "dimensions": 8, "fit_tokens": False}
    with toys.one_thread():
        counted = bertine.distill(path, out=tmp_path / "a", **options)
        plain = bertine.distill(path, out=tmp_path / "b", piece_weights="none", **options)
    the, dog = (toys.tokenizer().token_to_id(word) for word in ("the", "dog"))
    lengths = [
        np.linalg.norm(result.embedder.encoder.table.vectors, axis=1) for result in (counted, plain)
    ]
    assert lengths[0][the] < 0.01 * lengths[1][the]
    assert lengths[0][dog] == pytest.approx(lengths[1][dog], rel=1e-2)


def test_frequent_words_become_pieces_of_their_own() -> None:
    tokenizer = bertine.Tokenizer.load("bertine-en")
    words = Counter({"the": 90, "transformerology": 9, "flibbertigibbet": 7, "zyx": 1, "Élan": 8})
    extended = with_words(tokenizer, words, 5)
    assert extended.tokens[tokenizer.vocab_size :] == ["transformerology", "flibbertigibbet"]
    row = extended.encode_plain(["a Flibbertigibbet"])[0][-1]
    assert row == tokenizer.vocab_size + 1
    parts = tokenizer.parts_of("flibbertigibbet")
    assert parts == tokenizer.encode_plain(["flibbertigibbet"])[0]
    # All else is divided as before.
    cased = bertine.Tokenizer.from_vocab(tokenizer.tokens, lowercase=False, strip_accents=False)
    extended = with_words(cased, words, 5)
    texts = ["The Élan of THE transformerology", "élan"]
    assert extended.lowercase is extended.strip_accents is False
    assert extended.encode_plain(texts[1:]) == cased.encode_plain(texts[1:])


def test_a_word_of_its_own_has_the_teachers_vector_of_its_pieces() -> None:
    teacher = bertine.Embedder.load("bertine-en", precision="fp32")
    words = with_words(teacher.tokenizer, Counter({"transformerology": 9}), 1)
    last = [words.vocab_size - 1]
    own = teacher.run([f for f in inputs_of(teacher.tokenizer, words) if f.row in last])
    np.testing.assert_allclose(own[0], teacher("transformerology"), atol=1e-5)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", np.float32), ("int8", np.int8)])
def test_other_numbers_give_nearly_the_same_directions(
    base: Path, made: StaticResult, tmp_path: Path, precision: str, dtype: type
) -> None:
    with toys.one_thread():
        result = bertine.distill(
            static=True, teacher=base, out=tmp_path / "v", dimensions=8, table_precision=precision
        )
    assert load_file(result.out / "model.safetensors")["embeddings"].dtype == dtype
    filled = [TEXTS[0], TEXTS[3]]
    assert (result.embed(filled) * made.embed(filled)).sum(1).min() > 0.99


def test_a_directory_of_model2vec_without_special_tokens_is_read(
    made: StaticResult, tmp_path: Path
) -> None:
    """As model2vec distils BERT: [CLS], [SEP] and [MASK] are gone from vocabulary and table."""
    value = json.loads((made.out / "tokenizer.json").read_text())
    table = load_file(made.out / "model.safetensors")["embeddings"]
    gone = {"[CLS]", "[SEP]", "[MASK]"}
    kept = [token for token in value["model"]["vocab"] if token not in gone]
    rows = [value["model"]["vocab"][token] for token in kept]
    value["model"]["vocab"] = {token: at for at, token in enumerate(kept)}
    value["added_tokens"] = [
        {**each, "id": kept.index(each["content"])}
        for each in value["added_tokens"]
        if each["content"] in kept
    ]
    value |= {"post_processor": None, "padding": None, "truncation": None}
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(value))
    save_file({"embeddings": table[rows]}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    theirs = bertine.Embedder.load(folder)
    assert isinstance(theirs.encoder, StaticEncoder)
    np.testing.assert_allclose(theirs(TEXTS), made.embed(TEXTS), atol=1e-6)
    assert np.isfinite(theirs(["a [MASK] in a text"])).all()


def test_mapping_and_weights_of_model2vec(made: StaticResult, tmp_path: Path) -> None:
    table = load_file(made.out / "model.safetensors")["embeddings"].astype(np.float32)
    mapping = np.arange(len(table)) % 5
    weights = np.linspace(0.5, 2, len(table)).astype(np.float32)
    folder = tmp_path / "quantized"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (folder / name).write_text((made.out / name).read_text())
    parts = {"embeddings": table[:5], "mapping": mapping, "weights": weights}
    save_file(parts, folder / "model.safetensors")
    found = bertine.Embedder.load(folder, normalize=False)(["the cat sat"])[0]
    ids = toys.tokenizer().encode_plain(["the cat sat"])[0]
    wanted = (table[:5][mapping[ids]] * weights[ids][:, None]).mean(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_embed_and_similar_take_the_directory(
    made: StaticResult, texts: Path, tmp_path: Path
) -> None:
    report = bertine.embed(made.out, texts, tmp_path / "v.npy", format="text", show_progress=False)
    vectors = np.load(tmp_path / "v.npy")
    lines = texts.read_text().splitlines()
    assert report.rows == len(lines)
    np.testing.assert_allclose(vectors, made.embed(lines), atol=1e-6)
    near = bertine.similar(lines[3], tmp_path / "v.npy", model=made.out, top=1, show_progress=False)
    assert near.found[0].score == pytest.approx(1, abs=1e-5)


def test_the_maximum_length_cuts(made: StaticResult) -> None:
    short = bertine.Embedder.load(made.out, max_length=2)
    ids = short.tokenizer.encode_plain(["the cat sat"])[0][:2]
    mean = short.encoder.table.vectors[ids].mean(0)
    np.testing.assert_allclose(short("the cat sat"), mean / np.linalg.norm(mean), atol=1e-5)
    assert (
        short.features("the cat sat")[0].num_truncated
        == len(short.tokenizer.encode_plain(["the cat sat"])[0]) - 2
    )


def test_mistakes_are_said_in_a_line(
    base: Path, made: StaticResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "v")
    few = tmp_path / "few.txt"
    few.write_text("one\n")
    static = ["distill", "--static", "--out", out]
    teacher = ["--teacher", str(base)]
    for arguments, wanted in (
        (["distill", "--out", out, *teacher], "--static"),
        ([*static], "--teacher"),
        ([*static, *teacher, "--student", "bert-mini"], "--student"),
        ([*static, *teacher, "--add-words", "5"], "--add-words"),
        ([*static, *teacher, "--piece-weights", "counts"], "--piece-weights"),
        ([*static[:1], str(few), *static[1:], *teacher], "1 text"),
        (["distill", str(few), "--out", out, *teacher, "--dimensions", "8"], "--dimensions"),
        ([*static, "--teacher", str(made.out)], "model2vec"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err.strip().splitlines()
        assert wanted in error[-1]
        assert not Path(out).exists()


def test_damaged_directories_are_refused(made: StaticResult, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    for path in made.out.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    table = load_file(folder / "model.safetensors")["embeddings"]
    for tensors, wanted in (
        ({"embeddings": table[:-1]}, "not of one model"),
        ({"other": table}, "has no tensor"),
        ({"embeddings": table.reshape(-1)}, "must be rows"),
        ({"embeddings": np.full_like(table, np.nan)}, "not finite"),
        ({"embeddings": table, "mapping": np.array([0, len(table)])}, "mapping"),
        ({"embeddings": table, "weights": np.zeros(3, np.float32)}, "weights"),
    ):
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(BertineError, match=wanted):
            bertine.Embedder.load(folder)
    with pytest.raises(BertineError, match="takes no layer=1; leave it out"):
        bertine.Embedder.load(made.out, layer=1)


@given(
    st.integers(0, 1000),
    st.lists(st.lists(st.integers(0, 7), max_size=5), min_size=1, max_size=6),
)
def test_means_are_those_of_the_known_pieces(seed: int, texts: list[list[int]]) -> None:
    table = np.random.default_rng(seed).normal(size=(6, 3)).astype(np.float32)
    ids = np.array([i for text in texts for i in text], np.int32)
    lengths = np.array([len(text) for text in texts])
    found = StaticTable(table, unk_token_id=1).means(ids, lengths)
    for text, mean in zip(texts, found, strict=True):
        known = [i for i in text if i < 6 and i != 1]
        wanted = table[known].mean(0) if known else np.zeros(3)
        np.testing.assert_allclose(mean, wanted, atol=1e-5)


def test_fitting_finds_a_table_that_made_the_targets() -> None:
    draws = np.random.default_rng(0)
    truth = draws.normal(size=(30, 4)).astype(np.float32)
    lengths = draws.integers(1, 6, 400)
    texts = PieceTexts(draws.integers(0, 29, int(lengths.sum())).astype(np.int32), lengths)
    targets = StaticTable(truth).means(texts.ids, texts.lengths)
    begin = draws.normal(size=(30, 4)).astype(np.float32)
    fitted = fit_table(
        begin,
        texts,
        targets,
        epochs=60,
        batch_size=32,
        learning_rate=0.05,
        seed=0,
        show_progress=False,
    )
    assert fitted.before < 0.5
    assert fitted.after > 0.98
    np.testing.assert_allclose(fitted.vectors[29], begin[29], rtol=1e-5)  # in no text
