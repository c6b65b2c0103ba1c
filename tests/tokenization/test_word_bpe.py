"""BPE over words: ids as transformers gives them, and as GPT-1's published code does where ftfy and
spaCy are installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.tokenization import gpt_bpe
from bertine.tokenization.gpt_bpe import has_exact_words, places, uniform
from bertine.tokenization.tokenizer import Tokenizer, read

transformers = pytest.importorskip("transformers")

DATA = Path(
    os.environ.get("BERTINE_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data")
)
OPENAI, ALLENNLP = DATA / "vocab" / "openai-gpt", DATA / "family" / "gpt1-allennlp"
TEXTS = (
    "The old cat sleeps; it isn't a dog!",
    "Übrigens: naïve 猫 \U0001f431 … — tabs\tand\nlines",
    "",
    " _start_ and _classify_ in a text",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("word-bpe")
    corpus = toys.write_corpus(path / "corpus.txt")
    report = bertine.train_vocab(corpus, path / "vocab", kind="word-bpe", vocab_size=200)
    assert report.kind == "word-bpe"
    assert report.unknown_share == 0.0
    assert any("BPE over words" in line for line in report.lines())
    return path / "vocab"


def test_a_new_vocabulary_has_the_special_tokens_around_texts(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.kind == "word-bpe"
    assert tokenizer.tokens[0] == "<unk>"
    assert tokenizer.tokens[-3:] == ["_start_", "_delimiter_", "_classify_"]
    ids = tokenizer.encode("the cat", "a dog").input_ids
    names = [tokenizer.id_to_token(index) for index in ids]
    assert names == [
        *("_start_", "the</w>", "cat</w>", "_delimiter_", "a</w>"),
        *(token for token in names[5:-1]),
        "_classify_",
    ]
    assert tokenizer.decode(ids) == "the cat a dog"


def test_transformers_reads_its_folder_alike(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert tokenizer.encode(text).input_ids == theirs(text)["input_ids"], text
        pair = theirs(text, "a second")["input_ids"]
        assert tokenizer.encode(text, "a second").input_ids == pair


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from("abct h,.'-!\n\tÜé猫_"), max_size=40))
def test_words_by_themselves_have_the_pieces_of_the_text(folder: Path, text: str) -> None:
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode_plain([text])[0] == tokenizer.encode_offsets([text])[0][0]


def test_the_kinds_of_bpe_are_distinguished(folder: Path, tmp_path: Path) -> None:
    """By their files alone, whichever there are."""
    for names in (("tokenizer.json",), ("vocab.json", "merges.txt")):
        part = tmp_path / "-".join(names)
        part.mkdir()
        for name in (*names, "tokenizer_config.json"):
            (part / name).write_bytes((folder / name).read_bytes())
        again = Tokenizer.load(part)
        assert again.kind == "word-bpe"
        assert again.fingerprint == Tokenizer.load(folder).fingerprint
        assert Tokenizer.load(part / names[0]).kind == "word-bpe"
    corpus = toys.write_corpus(tmp_path / "corpus.txt")
    bertine.train_vocab(corpus, tmp_path / "bytes", kind="byte-bpe", vocab_size=300)
    for name in ("tokenizer.json", "vocab.json"):
        assert Tokenizer.load(tmp_path / "bytes" / name).kind == "byte-bpe"


def test_what_does_not_belong_together_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    vocab = json.loads((folder / "vocab.json").read_text())
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(vocab))
    with pytest.raises(BertineError, match=r"merges.txt: .*no such file|merges.txt"):
        Tokenizer.load(path)
    with pytest.raises(BertineError, match=r"no tokenizer.json and no vocab.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_bytes((folder / "merges.txt").read_bytes())
    path.write_text(json.dumps({k: v for k, v in vocab.items() if k != "_classify_"}))
    with pytest.raises(BertineError, match=r"lacks the special token _classify_"):
        Tokenizer.load(tmp_path)
    path.write_text(json.dumps(vocab))
    (tmp_path / "tokenizer_config.json").write_text('{"word_splitting": "moses"}')
    with pytest.raises(BertineError, match=r"word_splitting is 'moses', but must be"):
        Tokenizer.load(tmp_path)
    with pytest.raises(BertineError, match=r"knows one case"):
        bertine.train_vocab(
            toys.write_corpus(tmp_path / "c.txt"), tmp_path / "v", kind="word-bpe", lowercase=False
        )


def test_texts_are_made_uniform_as_published() -> None:
    assert uniform("well—known… «it´s»") == "well-known... «it's»".replace("-", " - ")
    assert uniform('a  b\t\n\n c "" d!!?') == 'a b \n c "" d !! ?'


def test_places_are_found_in_what_was_written() -> None:
    text = "It´s   NAÏVE…"
    words = ["it", "'s", "naïve", "..."]
    spans = places(words, text)
    assert text[spans[0][0] : spans[1][1]] == "It"
    naive = spans[4:9]
    assert text[naive[0][0] : naive[-1][1]] == "NAÏVE"


@pytest.mark.skipif(not OPENAI.is_dir(), reason="needs OpenAI's vocabulary")
def test_without_the_packages_the_approximation_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line; it is then what transformers gives."""
    monkeypatch.setattr(gpt_bpe, "has_exact_words", lambda: False)
    tokenizer = Tokenizer.load(OPENAI)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "pip install ftfy spacy" in printed
    assert tokenizer.vocab_size == 40478
    ids = json.loads((OPENAI / "encoder_bpe_40000.json").read_text())
    lines = (OPENAI / "vocab_40000.bpe").read_text().split("\n")[1:-1]
    merges = [tuple(line.split()) for line in lines]
    theirs = transformers.OpenAIGPTTokenizer(vocab=ids, merges=merges)
    for text in TEXTS:
        assert tokenizer.encode(text).input_ids == theirs(text)["input_ids"], text


@pytest.mark.skipif(not has_exact_words(), reason="needs ftfy and spaCy")
@pytest.mark.skipif(not OPENAI.is_dir(), reason="needs OpenAI's vocabulary")
def test_a_lines_end_has_a_piece_of_openais_vocabulary() -> None:
    tokenizer = Tokenizer.load(OPENAI)
    assert tokenizer.encode_plain(["a\nb"]) == [[246, 40477, 259]]


@pytest.mark.skipif(not ALLENNLP.is_dir(), reason="needs the fixture of AllenNLP")
@pytest.mark.skipif(not has_exact_words(), reason="needs ftfy and spaCy")
def test_the_published_codes_ids() -> None:
    """Those that AllenNLP's tests expect of OpenAI's vocabulary."""
    kind, _ = read(OPENAI)
    assert isinstance(kind, gpt_bpe.WordBpe)
    assert kind.exact
    tokenizer = Tokenizer.load(OPENAI)
    lines = (ALLENNLP / "text.txt").read_text().splitlines()
    expected = json.loads((ALLENNLP / "indexed_text.json").read_text())
    assert tokenizer.encode_plain(lines[: len(expected)]) == expected
    (ids, spans) = tokenizer.encode_offsets(["He hasn´t left…"])[0]
    assert len(ids) == len(spans)
    assert [("He hasn´t left…")[a:b] for a, b in spans][:3] == ["He", "has", "n´t"]
