"""Unigram: id for id what the originals give, which run sentencepiece over text that they have
prepared, and what `transformers` gives that opens our files.

The reference is written here after google-research/albert, ``tokenization.py``, and fairseq's
numbering of pieces; sentencepiece shares no code with the library that Bertine stands on.
"""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

import bertine
import unigrams
from bertine.tokenization.documents import Corpus
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram_files import read_model_file
from unigrams import NORMAL, model_bytes

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

DATA = Path(
    os.environ.get("BERTINE_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data")
)
PUBLISHED = DATA / "vocab" / "albert" / "30k-clean.model"
XLNET = DATA / "vocab" / "xlnet" / "spiece.model"
#: The bundled articles.
ARTICLES = Path(__file__).resolve().parents[2] / "src/bertine/contrib/demo/data/articles.jsonl.zst"

#: What the tokenizers may see differently.
ODD = [
    *("", " ", " a", "a ", "hello ,  world", "tab\tnew\nline\r\n", "a\u00a0b\u3000c", "\ufeffbom"),
    *("``quoted'' \"text\"", "''''", "````", "'s 't don't", "(a)-b.", "– £5 €6 $5,00!!", "…‥—–-―"),
    *("1,000 , 9,9 x9,", "3,4,5,", "1,", "A,", "9,a", "12,345,678.90", "¹²³ ₁", "½ ﬁ ① Ⅷ ２０ ©®™"),
    *("é e\u0301 ñ Ñ ß ẞ İ ı ſ", "a\u0301b \u0301a", "ελληνικά ΣΑΣ", "русский ЙОЖ", "Đặng Việt"),
    *(
        "中文字符 混合 text",
        "한국어 각",
        "ｶﾞ ガ ㎏ ㍿",
        "العربية ﷺ",
        "עברית",
        "😀 😃 👍🏽 🇩🇪",
        "x" * 300,
    ),
    *("\u200bzero\u200bwidth", "x\u200dy", "soft\u00adhyphen", "\x00\x01a\x7fb", "▁", "a▁b"),
    *("_under_score_ #hash @at", "http://x.com/a?b=1,2", "unbelievable cats sat, singing."),
]


def albert_pieces(processor, text: str, *, lowercase: bool = True) -> list[str]:
    """Follow ``preprocess_text`` and ``encode_pieces``, which ALBERT's program has from XLNet's."""
    text = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = text.lower() if lowercase else text
    pieces: list[str] = []
    for piece in processor.EncodeAsPieces(text):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            pieces.append(piece)
            continue
        parts = processor.EncodeAsPieces(piece[:-1].replace("▁", ""))
        if piece[0] != "▁" and parts[0][0] == "▁":
            parts = parts[1:] if len(parts[0]) == 1 else [parts[0][1:], *parts[1:]]
        pieces += [*parts, ","]
    return pieces


def processor_of(raw: bytes):
    return sentencepiece.SentencePieceProcessor(model_proto=raw)


def differing(tokenizer: Tokenizer, expected: list[list[int]], texts: list[str]) -> list[str]:
    """Return the texts that the tokenizer divides otherwise, by either of its ways."""
    by_words = tokenizer.encode_plain(texts)
    before, after = len(tokenizer.template.one.before), len(tokenizer.template.one.after)
    by_texts = [each.input_ids[before:-after] for each in tokenizer.encode_batch(texts)]
    return [
        text
        for text, ids, one, other in zip(texts, expected, by_words, by_texts, strict=True)
        if not ids == one == other
    ]


def paragraphs() -> Iterator[str]:
    """Yield 4,000 real paragraphs."""
    for name in ("wiki", "books"):
        corpus = Corpus([DATA / "corpus" / f"{name}.jsonl.zst"])
        lines = (line for document in corpus for line in document.text.split("\n"))
        yield from islice((line for line in lines if line.strip()), 1400)
    with open(DATA / "emotion" / "train.txt", encoding="utf-8") as handle:
        yield from (line.split(";")[0] for line in islice(handle, 1200))


@pytest.fixture(scope="module")
def published() -> Tokenizer:
    if not PUBLISHED.exists():
        pytest.skip(f"needs {PUBLISHED}")
    return Tokenizer.load(PUBLISHED)


@pytest.fixture(scope="module")
def fairseq_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as XLM-R's and CamemBERT's: with the pieces and the normalization of ALBERT's, or
    small where that is not there."""
    folder = unigrams.write_fairseq(tmp_path_factory.mktemp("fairseq"))
    file = folder / "sentencepiece.bpe.model"
    if PUBLISHED.exists():
        read = read_model_file(PUBLISHED)
        pieces = [(each.text, each.score, NORMAL) for each in read.pieces if each.kind == NORMAL]
        listed = [*unigrams.FAIRSEQ_SPECIALS, *pieces]
        file.write_bytes(model_bytes(listed, charsmap=read.charsmap))
    return file


def test_small_albert_gives_the_ids_of_the_original(tmp_path: Path) -> None:
    file = unigrams.write_albert(tmp_path) / "spiece.model"
    processor = processor_of(file.read_bytes())
    # Without a table of its own sentencepiece leaves characters as they are.
    texts = [text for text in ODD if text.isascii() and text.isprintable()]
    expected = [[processor.PieceToId(p) for p in albert_pieces(processor, t)] for t in texts]
    assert len(texts) == 20
    assert differing(Tokenizer.load(tmp_path), expected, texts) == []


@pytest.mark.slow
def test_published_albert_gives_the_ids_of_the_original(published: Tokenizer) -> None:
    processor = processor_of(PUBLISHED.read_bytes())
    texts = [*ODD, *paragraphs()]
    expected = [[processor.PieceToId(p) for p in albert_pieces(processor, t)] for t in texts]
    assert len(texts) > 4000
    assert differing(published, expected, texts) == []


@pytest.mark.slow
def test_published_xlnet_gives_the_ids_of_the_original() -> None:
    """But for a few numbers with a comma: the original takes ``4,`` apart when the text is divided,
    here it is unlikely beforehand, which may change what stands before it."""
    if not XLNET.exists():
        pytest.skip(f"needs {XLNET}")
    processor, tokenizer = processor_of(XLNET.read_bytes()), Tokenizer.load(XLNET)
    texts = [*ODD, *paragraphs()]
    expected = [
        [processor.PieceToId(p) for p in albert_pieces(processor, text, lowercase=False)]
        for text in texts
    ]
    wrong = differing(tokenizer, expected, texts)
    assert len(wrong) <= 12
    assert all(re.search(r"\d,", text) for text in wrong)


@pytest.mark.slow
def test_where_the_original_sees_other_spaces_and_accents(published: Tokenizer) -> None:
    """The differences that are known: Python splits at five control characters that Unicode calls
    none, and knows marks without a combining class, as vowels of Indic scripts are; and U+0085 is
    white space here and no character of sentencepiece's."""
    processor = processor_of(PUBLISHED.read_bytes())
    for text, ours in {"a\x1cb": ["▁ab"], "कि": ["▁", "<unk>"]}.items():
        pieces = [published.tokens[i] for i in published.encode_plain([text])[0]]
        assert pieces == ours
    assert albert_pieces(processor, "a\x1cb") == ["▁a", "▁b"]
    characters = [chr(point) for point in range(0x20, 0x2000)]
    texts = [f"a{c}b {c} c" for c in characters]
    expected = [[processor.PieceToId(p) for p in albert_pieces(processor, t)] for t in texts]
    wrong = {text[1] for text in differing(published, expected, texts)}
    assert {unicodedata.category(c)[0] for c in wrong} <= {"M", "L", "N"}
    assert not any(unicodedata.category(c)[0] in "LN" for c in wrong if ord(c) < 0x1CF0)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
def test_fairseq_gives_the_ids_of_the_original(
    tmp_path: Path, fairseq_file: Path, family: str
) -> None:
    """fairseq's numbers, as the slow tokenizers of transformers 4 had them."""
    raw = fairseq_file.read_bytes()
    (tmp_path / fairseq_file.name).write_bytes(raw)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    tokenizer = Tokenizer.load(tmp_path)
    processor = processor_of(raw)
    added = 1 if family == "xlm-roberta" else 4
    texts = [*ODD, *paragraphs()] if PUBLISHED.exists() else [t for t in ODD if t.isascii()]
    texts = [text for text in texts if text.isprintable() or PUBLISHED.exists()]
    expected = [[i + added if i else 3 for i in processor.EncodeAsIds(text)] for text in texts]
    assert differing(tokenizer, expected, texts) == []
    assert tokenizer.vocab_size == processor.GetPieceSize() + (2 if added == 1 else 5)
    assert tokenizer.mask_token_id == tokenizer.vocab_size - 1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["albert", "xlnet", "xlm-roberta", "camembert"])
def test_transformers_opens_our_files_and_gives_the_same(
    tmp_path: Path, fairseq_file: Path, family: str
) -> None:
    source = fairseq_file
    if family == "albert":
        source = (
            PUBLISHED if PUBLISHED.exists() else unigrams.write_albert(tmp_path) / "spiece.model"
        )
    if family == "xlnet":
        if not XLNET.exists():
            pytest.skip(f"needs {XLNET}")
        source = XLNET
    (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    tokenizer = Tokenizer.load(tmp_path / source.name)
    (tmp_path / source.name).unlink()
    tokenizer.save(tmp_path, model_max_length=64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [f"{text} {tokenizer.mask_text}." for text in ODD]
    encoded = theirs(texts)
    ours = tokenizer.encode_batch(texts)
    assert encoded["input_ids"] == [each.input_ids for each in ours]
    pairs = theirs("Hello, world", "of [SEP] cats")
    pair = tokenizer.encode("Hello, world", "of [SEP] cats")
    assert pairs["input_ids"] == pair.input_ids
    # XLM-R has one token type.
    assert ("token_type_ids" in pairs) == (family in ("albert", "xlnet"))
    assert theirs.padding_side == ("left" if family == "xlnet" else "right")
    assert pairs.get("token_type_ids", pair.token_type_ids) == pair.token_type_ids
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{name}_token_id") == getattr(tokenizer, f"{name}_token_id")
    assert theirs.model_max_length == 64
    # And what it saves opens here.
    theirs.save_pretrained(tmp_path / "theirs")
    again = Tokenizer.load(tmp_path / "theirs")
    assert again.encode_plain(ODD) == tokenizer.encode_plain(ODD)
    assert again.fingerprint == tokenizer.fingerprint


@pytest.fixture(scope="module")
def deberta_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the settings of DeBERTa-v3's, trained by sentencepiece on the bundled articles
    and some angle brackets, in one thread: with several it is another one each time."""
    documents = [document.text for document in Corpus([ARTICLES])]
    lines = [line for text in documents for line in text.split("\n") if line.strip()][:4000]
    lines += ["<p> 0 x 41 </p>"] * 100
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=3000,
        model_type="unigram",
        normalization_rule_name="nmt_nfkc",
        byte_fallback=True,
        num_threads=1,
        **{f"{name}_id": place for place, name in enumerate(("pad", "bos", "eos", "unk"))},
        **{"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
        minloglevel=2,
    )
    file = tmp_path_factory.mktemp("deberta") / "spm.model"
    file.write_bytes(model.getvalue())
    return file


def texts_of_all_kinds() -> list[str]:
    return [*ODD, *(paragraphs() if DATA.exists() else ())]


@pytest.mark.slow
def test_deberta_gives_the_ids_of_sentencepiece(deberta_file: Path) -> None:
    """As microsoft/DeBERTa, ``spm_tokenizer.py``, with its settings for version 3."""
    tokenizer, processor = Tokenizer.load(deberta_file), processor_of(deberta_file.read_bytes())
    # What the library takes for one character (base and mark), sentencepiece's table takes apart.
    texts = [text for text in texts_of_all_kinds() if "\uff9e" not in text]
    texts.append("the name of a byte, <0x41>, as text")
    expected = [processor.EncodeAsIds(text) for text in texts]
    others = differing(tokenizer, expected, texts)
    # Of two ways that are equally likely, one program takes this and one that, by the last bits of
    # sums of scores; those of sentencepiece have 32 bits.
    for text in others:
        one, other = processor.EncodeAsIds(text), tokenizer.encode_plain([text])[0]
        scores = [sum(processor.GetScore(i) for i in ids) for ids in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), text
    assert len(others) <= 2
    first_byte = processor.PieceToId("<0x00>")
    assert sum(any(0 <= i - first_byte < 256 for i in ids) for ids in expected) > 10
    assert (tokenizer.unk_token_id, tokenizer.mask_token_id) == (3, processor.GetPieceSize())


@pytest.mark.slow
def test_deberta_opens_in_transformers_and_from_it(tmp_path: Path, deberta_file: Path) -> None:
    texts = texts_of_all_kinds()
    model_type = json.dumps({"model_type": "deberta-v2"})
    # Our directory gives our ids there.
    ours = Tokenizer.load(deberta_file)
    (tmp_path / "ours").mkdir()
    ours.save(tmp_path / "ours", model_max_length=64)
    (tmp_path / "ours" / "config.json").write_text(model_type)
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert opened(texts)["input_ids"] == [each.input_ids for each in ours.encode_batch(texts)]
    pair = ours.encode("Hello, world", "of [SEP] cats")
    assert dict(opened("Hello, world", "of [SEP] cats")) == {
        "input_ids": pair.input_ids,
        "token_type_ids": pair.token_type_ids,
        "attention_mask": [1] * len(pair.input_ids),
    }
    assert opened.decode(pair.input_ids) == ours.decode(pair.input_ids, skip_special_tokens=False)
    # What its own class makes of the same file, without sentencepiece's table and without bytes,
    # gives its ids here.
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "spm.model").write_bytes(deberta_file.read_bytes())
    (tmp_path / "published" / "config.json").write_text(model_type)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "published")
    assert type(theirs).__name__ == "DebertaV2Tokenizer"
    theirs.save_pretrained(tmp_path / "theirs")
    read = Tokenizer.load(tmp_path / "theirs")
    expected = theirs(texts)["input_ids"]
    assert [each.input_ids for each in read.encode_batch(texts)] == expected
    assert read.encode_plain(texts) == [ids[1:-1] for ids in expected]
    assert read.tokens == ours.tokens
    # Plain text has the same ids in both.
    plain = [text for text in texts if text.isascii() and text.isprintable()]
    known = [
        (text, ids)
        for text, ids in zip(texts, expected, strict=True)
        if text in plain and 3 not in ids
    ]
    assert len(known) >= 15
    assert [ours.encode(text).input_ids for text, _ in known] == [ids for _, ids in known]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["XLMRobertaTokenizer", "CamembertTokenizer", "AlbertTokenizer", "DebertaV2Tokenizer"],
)
def test_files_of_transformers_open_here(tmp_path: Path, fairseq_file: Path, name: str) -> None:
    """What its classes write when they are given pieces with scores."""
    read = read_model_file(fairseq_file)
    pieces = [(each.text, each.score) for each in read.pieces[3:]]
    first = {
        "XLMRobertaTokenizer": ["<s>", "<pad>", "</s>", "<unk>"],
        "CamembertTokenizer": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"],
        "AlbertTokenizer": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        "DebertaV2Tokenizer": ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
    }[name]
    own = [("<s>", 0.0), ("</s>", 0.0)] if name == "CamembertTokenizer" else []
    last = {"AlbertTokenizer": [], "DebertaV2Tokenizer": [("[MASK]", 0.0)]}.get(
        name, [("<mask>", 0.0)]
    )
    vocab = [*((token, 0.0) for token in first), *own, *pieces, *last]
    with_table = read.charsmap and name != "DebertaV2Tokenizer"
    table = {"_spm_precompiled_charsmap": read.charsmap} if with_table else {}
    theirs = getattr(transformers, name)(vocab=vocab, **table)
    theirs.save_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode_plain(ODD) == theirs(ODD, add_special_tokens=False)["input_ids"]
    pair = tokenizer.encode("Hello, world", "of cats", max_length=64)
    assert pair.input_ids == theirs("Hello, world", "of cats")["input_ids"]
    assert tokenizer.mask_token_id == theirs.mask_token_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "prefix"), [("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert")]
)
def test_directories_with_the_file_of_sentencepiece_alone_open(
    tmp_path: Path, fairseq_file: Path, family: str, prefix: str
) -> None:
    """As published: ``config.json``, weights, ``sentencepiece.bpe.model``. Masks are filled as the
    model of `transformers` fills them for the ids of the original."""
    raw = fairseq_file.read_bytes()
    (tmp_path / fairseq_file.name).write_bytes(raw)
    processor = processor_of(raw)
    added, specials = (1, (0, 2)) if family == "xlm-roberta" else (4, (5, 6))
    size = processor.GetPieceSize() + added + 1
    sizes = {
        **{"vocab_size": size, "hidden_size": 16, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40},
        **{"type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5},
    }
    config = getattr(transformers, f"{prefix}Config")(**sizes)
    theirs = getattr(transformers, f"{prefix}ForMaskedLM")(config).eval()
    theirs.save_pretrained(tmp_path)
    before, after = (processor.EncodeAsIds(text) for text in ("the cat", "sat."))
    ids = [i + added if i else 3 for i in before], [i + added if i else 3 for i in after]
    sequence = [specials[0], *ids[0], size - 1, *ids[1], specials[1]]
    with torch.no_grad():
        logits = theirs(input_ids=torch.tensor([sequence])).logits[0, len(ids[0]) + 1]
    (filled,) = bertine.fill_mask(tmp_path, "the cat <mask> sat.", top_k=3)
    expected = logits.softmax(-1).topk(3).values.tolist()
    assert [c.probability for c in filled.candidates] == pytest.approx(expected, abs=1e-6)
