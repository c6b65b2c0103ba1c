"""Training a Unigram vocabulary: the sums against every division of small texts, the result against
sentencepiece's trainer."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import transformers

import toys
from bertine.core.errors import BertineError
from bertine.core.rng import generator
from bertine.tokenization import learn_unigram
from bertine.tokenization.learn_unigram import Lattice, Texts
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import ALBERT
from bertine.tokenization.vocab import train_vocab


def divisions(text: str, scores: dict[str, float]) -> list[list[str]]:
    """All ways to make a text of pieces."""
    if not text:
        return [[]]
    return [
        [text[:end], *rest]
        for end in range(1, len(text) + 1)
        if text[:end] in scores
        for rest in divisions(text[end:], scores)
    ]


def small_text(seed: int) -> tuple[list[str], list[int], dict[str, float]]:
    draw = generator(seed, "unigram")
    texts = sorted(
        {"".join(draw.choice(list("abc▁"), int(draw.integers(1, 9)))) for _ in range(12)}
    )
    substrings = sorted(
        {t[a:b] for t in texts for a in range(len(t)) for b in range(a + 1, len(t) + 1)}
    )
    pieces = [p for p in substrings if len(p) == 1 or draw.random() < 0.5]
    scores = np.log(draw.dirichlet(np.ones(len(pieces))))
    return texts, draw.integers(1, 9, len(texts)).tolist(), dict(zip(pieces, scores, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_expectations_are_those_of_all_divisions(seed: int) -> None:
    texts, counts, scores = small_text(seed)
    pieces = list(scores)
    lattice = Lattice(Texts(texts), learn_unigram._table(pieces))
    expected, likelihood = lattice.expected(
        np.array(list(scores.values())), np.array(counts, float)
    )
    wanted: Counter[str] = Counter()
    log = 0.0
    for text, times in zip(texts, counts, strict=True):
        ways = divisions(text, scores)
        chances = [math.exp(sum(scores[piece] for piece in way)) for way in ways]
        log += times * math.log(sum(chances))
        for way, chance in zip(ways, chances, strict=True):
            for piece in way:
                wanted[piece] += times * chance / sum(chances)
    np.testing.assert_allclose(expected, [wanted[piece] for piece in pieces], rtol=1e-9)
    assert likelihood == pytest.approx(log)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_division_into_several_pieces_is_found(seed: int) -> None:
    texts, _, scores = small_text(seed)
    best = Lattice(Texts(texts), learn_unigram._table(list(scores))).best(
        np.array(list(scores.values()))
    )
    for text, score in zip(texts, best, strict=True):
        ways = [sum(scores[p] for p in way) for way in divisions(text, scores) if len(way) > 1]
        assert score == pytest.approx(max(ways, default=-math.inf))


def test_the_first_pieces_are_substrings_that_come_often() -> None:
    texts, counts, _ = small_text(7)
    pieces, frequencies = learn_unigram._seeds(Texts(texts), np.array(counts, float), 10_000, 3)
    wanted: Counter[str] = Counter()
    for text, times in zip(texts, counts, strict=True):
        for a in range(len(text)):
            for b in range(a + 1, min(len(text), a + 16) + 1):
                wanted[text[a:b]] += times
    often = {
        piece: times
        for piece, times in wanted.items()
        if len(piece) == 1
        or (times >= 3 and not any(wanted[piece + c] == times for c in "abc▁" if len(piece) < 16))
    }
    assert dict(zip(pieces, frequencies, strict=True)) == often


def test_it_is_laid_out_as_alberts_and_opens_everywhere(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = train_vocab(corpus, out, kind="unigram", vocab_size=78)
    tokenizer = Tokenizer.load(out)
    assert tokenizer.kind == report.kind == "unigram"
    assert tuple(tokenizer.tokens[:5]) == ALBERT.special.tokens
    assert tokenizer.vocab_size == report.size <= 78
    assert {path.name for path in out.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    assert report.lowercase
    assert "(Unigram)" in "\n".join(report.lines())
    assert {"▁the", "▁narrow"} <= set(tokenizer.tokens)
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    text = "The keeper's café [MASK] stairs, 1893 ''x''"
    ours = tokenizer.encode(text, text)
    encoded = theirs(text, text)
    assert encoded["input_ids"] == ours.input_ids
    assert encoded["token_type_ids"] == ours.token_type_ids
    assert tokenizer.decode(ours.input_ids).startswith("the keeper's cafe")
    train_vocab(corpus, out, kind="unigram", vocab_size=79)  # replaced
    assert Tokenizer.load(out).vocab_size <= 79


def test_case_and_accents_are_kept_by_option(corpus: Path, tmp_path: Path) -> None:
    for options, shown in (
        ({"lowercase": False}, "Zürich"),
        ({"strip_accents": False}, "zürich"),
        ({"lowercase": False, "strip_accents": True}, "Zurich"),
        ({}, "zurich"),
    ):
        train_vocab(corpus, tmp_path / "out", kind="unigram", vocab_size=100, **options)
        tokenizer = Tokenizer.load(tmp_path / "out")
        assert tokenizer.decode(tokenizer.encode("Zürich").input_ids) == shown
        assert tokenizer.lowercase == shown[0].islower()


def test_it_is_as_good_as_that_of_sentencepiece(tmp_path: Path) -> None:
    """As likely a text, with as many pieces, or better."""
    sentencepiece = pytest.importorskip("sentencepiece")
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    text = corpus.read_text(encoding="utf-8")
    train_vocab(corpus, tmp_path / "out", kind="unigram", vocab_size=200)
    ours = Tokenizer.load(tmp_path / "out")
    lines = [line for line in text.split("\n") if line.strip()]
    processor = _sentencepiece(sentencepiece, lines, ours.vocab_size, tmp_path)
    theirs = {processor.IdToPiece(i): processor.GetScore(i) for i in range(processor.vocab_size())}
    scores = _scores(tmp_path / "out")
    divided = [[ours.tokens[i] for i in ids] for ids in ours.encode_plain(lines)]
    other = [processor.EncodeAsPieces(line) for line in lines]
    assert sum(map(len, divided)) <= 1.02 * sum(map(len, other))
    likelihoods = (
        sum(scores[piece] for line in divided for piece in line),
        sum(theirs[piece] for line in other for piece in line),
    )
    assert likelihoods[0] >= 1.02 * likelihoods[1]


def test_rare_characters_and_encoded_data_do_not_shape_it(tmp_path: Path) -> None:
    file = tmp_path / "c.txt"
    text = ["the cat sat"] * 5000 + ["q9" * 100_000] * 3 + ["the ж cat"]
    file.write_text("\n".join(text) + "\n", encoding="utf-8")
    report = train_vocab(file, tmp_path / "out", kind="unigram", vocab_size=40)
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert report.size < 40
    assert f"only {report.size} of the 40 tokens asked for" in "\n".join(report.lines())
    assert "ж" not in tokenizer.tokens
    assert not any("q9" in token for token in tokenizer.tokens)
    assert report.coverage < 1
    assert tokenizer.unk_token_id in tokenizer.encode("ж").input_ids


def test_what_is_not_counted_is_said(
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learn_unigram, "_MOST_WORDS", 20)
    monkeypatch.setattr(learn_unigram, "_MOST_CHARACTERS", 30)
    train_vocab(corpus, tmp_path / "out", kind="unigram", vocab_size=60)
    printed = " ".join(capsys.readouterr().err.split())
    assert "rare words are not counted: there are more than 20 different ones" in printed
    assert "pieces are learnt from the" in printed


def test_a_size_that_is_asked_for_is_enough(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="give at least") as error:
        train_vocab(corpus, tmp_path / "out", kind="unigram", vocab_size=20)
    least = int(str(error.value).split("at least ")[1].split(",")[0])
    train_vocab(corpus, tmp_path / "out", kind="unigram", vocab_size=least)
    with pytest.raises(BertineError, match="give at least"):
        train_vocab(corpus, tmp_path / "out", kind="unigram", vocab_size=least - 1)


def test_an_empty_corpus_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("\u200b\n", encoding="utf-8")
    with pytest.raises(BertineError, match="no visible character"):
        train_vocab(tmp_path / "c.txt", tmp_path / "out", kind="unigram", vocab_size=40)


def _scores(folder: Path) -> dict[str, float]:
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return dict(vocab)


def _sentencepiece(module, lines: list[str], size: int, folder: Path):
    module.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "theirs"),
        vocab_size=size,
        model_type="unigram",
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return module.SentencePieceProcessor(model_file=str(folder / "theirs.model"))
