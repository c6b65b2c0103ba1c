"""WordPiece with other steps before it than BERT's, as the library's tutorial builds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from bertine.core.errors import BertineError
from bertine.tokenization.tokenizer import Tokenizer

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcé.1!", *(f"##{c}" for c in "abcé.1!"))
TEXTS = [
    "Abc, a..b !! É e\u0301 \u0301a",
    "1a 11b [MASK]a[SEP]",
    "a\x1cb\x85c\u3000a\xa0b \u200bc",
    "a" * 2000 + " b",
    "ﬁ Å ¨a",
    "a.b " * 20_000,  # is read in parts
]
TUTORIAL = ("NFD", "Lowercase", "StripAccents")
PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}


def steps(kind: str, *parts: Any) -> dict[str, Any]:
    return {"type": "Sequence", kind: [p if isinstance(p, dict) else {"type": p} for p in parts]}


def write(folder: Path, normalizer: Any, pre_tokenizer: Any) -> Path:
    model = tokenizers.models.WordPiece(
        {token: index for index, token in enumerate(TOKENS)}, unk_token="[UNK]"
    )
    value = json.loads(tokenizers.Tokenizer(model).to_str())
    value |= {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    (folder / "tokenizer.json").write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (steps("normalizers", *TUTORIAL), {"type": "Whitespace"}),
        (None, {"type": "WhitespaceSplit"}),
        ({"type": "NFKC"}, steps("pretokenizers", "WhitespaceSplit", PUNCTUATION)),
        (steps("normalizers", "NFC", "Lowercase"), {"type": "BertPreTokenizer"}),
    ],
)
def test_a_text_has_the_ids_of_the_library(
    tmp_path: Path, normalizer: Any, pre_tokenizer: Any
) -> None:
    ours = Tokenizer.load(write(tmp_path, normalizer, pre_tokenizer))
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.add_special_tokens(list(TOKENS[:5]))
    wanted = [[2, *theirs.encode(text).ids, 3] for text in TEXTS]
    assert [each.input_ids for each in ours.encode_batch(TEXTS)] == wanted
    assert [ids.tolist() for ids, _, _ in ours.encode_arrays(TEXTS)] == wanted
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").fingerprint == ours.fingerprint
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert [opened(text)["input_ids"] for text in TEXTS] == wanted


def test_the_settings_are_those_of_the_steps(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    settings = '{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}'
    (tmp_path / "tokenizer_config.json").write_text(settings)
    write(tmp_path, steps("normalizers", *TUTORIAL), {"type": "Whitespace"})
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, True)
    assert not tokenizer.split_chinese
    said = capfd.readouterr().err
    assert (
        "ignores what this file says of lower case and accents and Chinese characters and other"
        in said
    )


BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
BERT |= {"strip_accents": None, "lowercase": False}


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({"lowercase": True}, {"do_lower_case": True}, ""),
        ({}, {"do_lower_case": False}, ""),
        ({}, {}, "BertTokenizer ignores what this file says of lower case and accents;"),
        ({"strip_accents": True}, {"do_lower_case": False}, "says of accents;"),
        ({"handle_chinese_chars": False}, {"do_lower_case": False}, "says of Chinese characters;"),
        (
            {},
            {"tokenizer_class": "RobertaTokenizer"},
            "is of RobertaTokenizer, which may divide",
        ),
        ({}, {"tokenizer_class": "TokenizersBackend"}, "post_processor does not put [CLS] before"),
    ],
)
def test_what_transformers_would_not_read_in_it_is_told(
    tmp_path: Path,
    changes: dict[str, Any],
    settings: dict[str, Any],
    said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = {"tokenizer_class": "BertTokenizer"} | settings
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    Tokenizer.load(write(tmp_path, {**BERT, **changes}, {"type": "BertPreTokenizer"}))
    printed = " ".join(capfd.readouterr().err.split())
    assert said in printed
    assert bool(printed) == bool(said)


def test_a_class_of_any_kind_goes_by_the_file_alone(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    write(tmp_path, {**BERT, "lowercase": True}, {"type": "BertPreTokenizer"})
    assert Tokenizer.load(tmp_path).lowercase


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "message"),
    [
        (
            {"type": "Prepend", "prepend": "x"},
            {"type": "Whitespace"},
            "has 'Prepend', which",
        ),
        (
            steps("normalizers", {"type": "Sequence"}),
            {"type": "Whitespace"},
            "has 'Sequence',",
        ),
        ({"type": "Sequence", "normalizers": 3}, {"type": "Whitespace"}, "at most 32 steps"),
        (steps("normalizers", *["NFC"] * 33), {"type": "Whitespace"}, "at most 32 steps"),
        (None, None, "divides no words"),
        (None, PUNCTUATION, "divides no words"),
        (None, {"type": "ByteLevel"}, "has 'ByteLevel', which is not read here"),
    ],
)
def test_other_steps_are_refused(
    tmp_path: Path, normalizer: Any, pre_tokenizer: Any, message: str
) -> None:
    write(tmp_path, None, None)
    file = tmp_path / "tokenizer.json"
    value = json.loads(file.read_text())
    value |= {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    file.write_text(json.dumps(value))
    with pytest.raises(BertineError, match=message):
        Tokenizer.load(tmp_path)
