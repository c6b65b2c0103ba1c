"""Tokens that stand beside a vocabulary: id for id what `transformers` gives, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from bertine.core.errors import BertineError
from bertine.tokenization.byte_bpe import ALPHABET, FIRST_TOKENS
from bertine.tokenization.tokenizer import Tokenizer

WORDS = ("the", "parcel", "came", "pass", "co", "##vid", "##s", "new", "york", "e1", "[", "]", "/")
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
#: The first id behind the vocabulary.
N = len(TOKENS)
CLASS = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
TEXTS = [
    "the [E1] parcel [/E1] came",
    "[E1][e1] the[E1]parcel [ E1 ] [MASK][CLS]",
    "covidpass mycovidpassx COVIDPASS, covid-pass _covidpass_",
    "New York new york NEW  YORK newyork new\tyork",
    "新冠病毒 新 冠 parcelcame parcel, PARCEL",
    "the\x1ccovid\x85pass \u200bcovidpass\xa0e-mail e -mail",
    "",
]


def token(content: str, **flags: bool) -> dict[str, Any]:
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    return {"content": content, **dict.fromkeys(names, False), **flags}


def decoder(*tokens: dict[str, Any]) -> dict[str, Any]:
    return {**CLASS, "added_tokens_decoder": {str(N + at): each for at, each in enumerate(tokens)}}


def write(folder: Path, **files: Any) -> Path:
    (folder / "vocab.txt").write_text("".join(f"{each}\n" for each in TOKENS), encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    for name, content in {"tokenizer_config": CLASS, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


FILES: dict[str, dict[str, Any]] = {
    "added": {"added_tokens": {"[E1]": N, "[/E1]": N + 1, "covidpass": N + 2}},
    "cased": {
        "tokenizer_config": {**CLASS, "do_lower_case": False},
        "added_tokens": {"[E1]": N, "COVIDPASS": N + 1},
    },
    "special": {
        "tokenizer_config": {**CLASS, "additional_special_tokens": ["[E1]"]},
        "added_tokens": {"[E1]": N, "covidpass": N + 1},
    },
    "map": {
        "special_tokens_map": {"additional_special_tokens": ["[E1]"], "cls_token": token("[CLS]")},
        "added_tokens": {"[E1]": N},
    },
    "decoder": {
        "tokenizer_config": decoder(
            token("[E1]", special=True),
            token("covidpass", single_word=True),
            token("新冠", normalized=True, lstrip=True),
        ),
        # Older files count no longer.
        "added_tokens": {"york": 3},
        "special_tokens_map": {"cls_token": "<s>"},
    },
    "with a space": {"added_tokens": {"New York": N, "e-mail": N + 1}},
    "known": {"tokenizer_config": {**CLASS, "extra_special_tokens": ["parcel", "[X]"]}},
    "named": {"tokenizer_config": {**CLASS, "bos_token": "parcel", "eos_token": "</s>"}},
}


@pytest.mark.parametrize("name", FILES)
def test_a_text_has_the_ids_of_transformers(tmp_path: Path, name: str) -> None:
    ours = Tokenizer.load(write(tmp_path, **FILES[name]))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    long = " ".join(TEXTS) * 500  # is read in parts
    texts = [*TEXTS, long]
    wanted = [theirs(text)["input_ids"] for text in texts]
    assert [each.input_ids for each in ours.encode_batch(texts)] == wanted
    assert [ids.tolist() for ids, _, _ in ours.encode_arrays(texts)] == wanted
    # And so it is written.
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text('{"model_type": "bert"}')
    again = Tokenizer.load(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    assert [each.input_ids for each in again.encode_batch(texts)] == wanted
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert [opened(text)["input_ids"] for text in TEXTS] == wanted[:-1]


def test_flags_in_the_settings_go_before_those_of_tokenizer_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, added_tokens={"covidpass": N})
    (tmp_path / "saved").mkdir()
    Tokenizer.load(tmp_path).save(tmp_path / "saved")
    write(tmp_path / "saved", tokenizer_config=decoder(token("covidpass", single_word=True)))
    ours = Tokenizer.load(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert [e.input_ids for e in ours.encode_batch(TEXTS)] == [
        theirs(t)["input_ids"] for t in TEXTS
    ]
    assert capsys.readouterr().err == ""
    write(tmp_path / "saved", tokenizer_config={**CLASS, "added_tokens_decoder": {}})
    other = {**CLASS, "added_tokens_decoder": {"1": token("[UNK]", special=True)}}
    write(tmp_path / "saved", tokenizer_config=other)
    Tokenizer.load(tmp_path / "saved")
    assert "adds covidpass, which added_tokens_decoder" in " ".join(capsys.readouterr().err.split())


def test_byte_level_bpe_has_them_too(tmp_path: Path) -> None:
    pieces = [*FIRST_TOKENS, *ALPHABET, "<mask>"]
    last = len(pieces)
    (tmp_path / "vocab.json").write_text(json.dumps({each: at for at, each in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("")
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<e1>": last, "parcel": last + 1}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    for text in ("the <e1>parcel <E1> came", "parcels<e1>"):
        assert ours.encode(text).input_ids == theirs(text)["input_ids"]
    assert ours.vocab_size == last + 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"[E1]": N + 3}}, rf"'\[E1\]' has the id {N + 3} .* but {N} in this"),
        ({"added_tokens": {"parcel": N}}, rf"'parcel' has the id {N} .* but 6 in this"),
        ({"added_tokens": {"": N}}, "not a token and its id"),
        ({"added_tokens": {"x": -1}}, "not a token and its id"),
        ({"added_tokens": {"x": True}}, "not a token and its id"),
        ({"tokenizer_config": {"added_tokens_decoder": [1]}}, "must be tokens by id"),
        ({"tokenizer_config": {"added_tokens_decoder": {"x": token("y")}}}, "not a token by id"),
        ({"tokenizer_config": {"added_tokens_decoder": {"1": "y"}}}, "not a token by id"),
        ({"tokenizer_config": decoder(token("y") | {"lstrip": 1})}, "neither true nor false"),
        ({"tokenizer_config": {"extra_special_tokens": [3]}}, "has 3, which is no token"),
        ({"special_tokens_map": {"cls_token": "<s>"}}, r"cls_token is '<s>' .* must be \[CLS\]"),
        ({"tokenizer_config": {"unk_token": token("?")}}, r"unk_token is '\?' .* must be \[UNK\]"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(BertineError, match=message) as caught:
        Tokenizer.load(write(tmp_path, **files))
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "'BertJapaneseTokenizer': it divides text"),
        ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type 'mecab': it divides text"),
        ({"tokenizer_class": "RoFormerTokenizerFast"}, "'RoFormerTokenizerFast': it divides text"),
        ({"tokenizer_class": "DistilBertJapaneseTokenizer"}, "it divides text"),
        ({"tokenizer_class": "BertweetTokenizer"}, "it divides text"),
        ({"tokenizer_class": "FullTokenizer"}, "'FullTokenizer' is not known to read a vocab.txt"),
    ],
)
def test_a_class_that_divides_words_by_itself_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertineError, match=message):
        Tokenizer.load(write(tmp_path, tokenizer_config=settings))
    # Older folders name it beside the sizes.
    write(tmp_path, config=settings, tokenizer_config={"do_lower_case": False})
    if "tokenizer_class" in settings:
        with pytest.raises(BertineError, match=message):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["BertTokenizerFast", "ElectraTokenizer", None])
def test_classes_that_read_as_bert_does_are_read(tmp_path: Path, name: str | None) -> None:
    assert Tokenizer.load(write(tmp_path, tokenizer_config={"tokenizer_class": name})).lowercase


@pytest.mark.parametrize(
    ("before", "after"),
    [("\ufeff", ""), ("", "\n"), ("", "\n\n\r\n"), ("\ufeff", "\n")],
)
def test_blank_last_lines_and_a_byte_order_mark_are_no_tokens(
    tmp_path: Path, before: str, after: str
) -> None:
    plain = Tokenizer.load(write(tmp_path))
    file = tmp_path / "vocab.txt"
    file.write_text(before + file.read_text(encoding="utf-8") + after, encoding="utf-8")
    assert Tokenizer.load(tmp_path).tokens == plain.tokens == TOKENS
