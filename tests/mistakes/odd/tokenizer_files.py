"""Files of a WordPiece tokenizer as people have them: vocab.txt, tokenizer.json and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mistakes.odd.models import TOKENS, WORDS

Files = dict[str, Any]


def _vocabulary(
    tokens: tuple[str, ...] = TOKENS, end: str = "\n", before: str = "", after: str = "\n"
) -> bytes:
    return (before + end.join(tokens) + after).encode("utf-8")


def _token(content: str, **flags: bool) -> dict[str, Any]:
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    return {"content": content, **dict.fromkeys(names, False), **flags}


N = len(TOKENS)
CASED: Files = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
UNCASED: Files = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
#: Forms of vocab.txt that say the same: transformers reads some of them otherwise.
VOCABULARIES: dict[str, bytes] = {
    "plain": _vocabulary(),
    "CRLF": _vocabulary(end="\r\n", after="\r\n"),
    "byte order mark": _vocabulary(before="\ufeff"),
    "no last newline": _vocabulary(after=""),
    "blank end": _vocabulary(after="\n\n"),
    "blank lines": _vocabulary(after="\n\n\n"),
    "CRLF, mark": _vocabulary(end="\r\n", before="\ufeff", after="\r\n\r\n"),
    "CR": _vocabulary(end="\r", after="\r"),
    "blanks behind": _vocabulary(end=" \n"),
    "tabs behind": _vocabulary(end="\t\n"),
    "counts behind": _vocabulary(end="\t12\n"),
    "UTF-16": _vocabulary().decode().encode("utf-16"),
    "latin-1": _vocabulary().decode().encode("latin-1", "ignore"),
    "blank first": _vocabulary(before="\n"),
    "twice a token": _vocabulary((*TOKENS, "cat")),
    "no [PAD]": _vocabulary(TOKENS[1:]),
    "no [MASK]": _vocabulary((*TOKENS[:4], *WORDS)),
    "special in lower case": _vocabulary((*(token.lower() for token in TOKENS[:5]), *WORDS)),
    "special at the end": _vocabulary((*WORDS, *TOKENS[:5])),
    "unused": _vocabulary((*TOKENS, "[unused1]", "[unused2]")),
    "NFD": _vocabulary((*TOKENS[:10], "##e\u0301", "cafe\u0301", *TOKENS[12:])),
    "empty": b"",
    "quoted": _vocabulary(tuple(f'"{t}"' for t in TOKENS)),
    "inner blank line": _vocabulary((*TOKENS[:20], "", *TOKENS[20:])),
    "line separator": _vocabulary((*TOKENS, "a\u2028b")),
}
#: Other files beside a plain one.
BESIDE: dict[str, Files] = {
    "cased": {"tokenizer_config": CASED},
    "uncased": {"tokenizer_config": UNCASED},
    "nothing": {},
    "lower case as a text": {"tokenizer_config": {**CASED, "do_lower_case": "false"}},
    "lower case 0": {"tokenizer_config": {**CASED, "do_lower_case": 0}},
    "lower case null": {"tokenizer_config": {**CASED, "do_lower_case": None}},
    "accents kept": {"tokenizer_config": {**UNCASED, "strip_accents": False}},
    "accents gone": {"tokenizer_config": {**CASED, "strip_accents": True}},
    "accents null": {"tokenizer_config": {**UNCASED, "strip_accents": None}},
    "no Chinese": {"tokenizer_config": {**CASED, "tokenize_chinese_chars": False}},
    "basic tokenizer off": {"tokenizer_config": {**CASED, "do_basic_tokenize": False}},
    "never_split": {"tokenizer_config": {**UNCASED, "never_split": ["Cat", "CAFÉ"]}},
    "max length": {"tokenizer_config": {**CASED, "model_max_length": 4}},
    "max length huge": {"tokenizer_config": {**CASED, "model_max_length": 1e30}},
    "max_len": {"tokenizer_config": {**CASED, "max_len": 4}},
    "fast class": {"tokenizer_config": {**CASED, "tokenizer_class": "BertTokenizerFast"}},
    "other class": {"tokenizer_config": {**CASED, "tokenizer_class": "DistilBertTokenizer"}},
    "wrong class": {"tokenizer_config": {**CASED, "tokenizer_class": "RobertaTokenizer"}},
    "no class": {"tokenizer_config": {"do_lower_case": True}},
    "backend class": {"tokenizer_config": {**CASED, "tokenizer_class": "TokenizersBackend"}},
    "Japanese": {
        "tokenizer_config": {
            **CASED,
            "tokenizer_class": "BertJapaneseTokenizer",
            "word_tokenizer_type": "mecab",
        }
    },
    "padding left": {
        "tokenizer_config": {**CASED, "padding_side": "left", "truncation_side": "left"}
    },
    "clean up": {"tokenizer_config": {**CASED, "clean_up_tokenization_spaces": True}},
    "wordpieces prefix": {"tokenizer_config": {**CASED, "wordpieces_prefix": "@@"}},
    "added": {"tokenizer_config": CASED, "added_tokens": {"[E1]": N, "[/E1]": N + 1}},
    "added, uncased": {
        "tokenizer_config": UNCASED,
        "added_tokens": {"COVID19": N, "mycovid": N + 1},
    },
    "added, a gap": {"tokenizer_config": CASED, "added_tokens": {"[E1]": N + 3}},
    "added, an id of another": {"tokenizer_config": CASED, "added_tokens": {"[E1]": 7}},
    "added empty": {"tokenizer_config": CASED, "added_tokens": {}},
    "decoder": {
        "tokenizer_config": {
            **CASED,
            "added_tokens_decoder": {str(N): _token("[E1]", special=True)},
        }
    },
    "decoder, another id": {
        "tokenizer_config": {
            **CASED,
            "added_tokens_decoder": {str(N + 1): _token("[E1]", special=True)},
        }
    },
    "decoder single word": {
        "tokenizer_config": {
            **CASED,
            "added_tokens_decoder": {str(N): _token("covid1", single_word=True)},
        }
    },
    "decoder normalized": {
        "tokenizer_config": {
            **UNCASED,
            "added_tokens_decoder": {str(N): _token("covid1", normalized=True)},
        }
    },
    "decoder strips": {
        "tokenizer_config": {
            **CASED,
            "added_tokens_decoder": {str(N): _token("[E1]", lstrip=True, rstrip=True)},
        }
    },
    "additional special": {
        "tokenizer_config": {**CASED, "additional_special_tokens": ["[E1]", "[/E1]"]}
    },
    "extra special": {"tokenizer_config": {**CASED, "extra_special_tokens": ["<s>", "</s>"]}},
    "special map": {
        "tokenizer_config": CASED,
        "special_tokens_map": {"cls_token": "[CLS]", "unk_token": _token("[UNK]", special=True)},
    },
    "cls other": {"tokenizer_config": {**CASED, "cls_token": "<s>", "sep_token": "</s>"}},
    "cls of the vocabulary": {"tokenizer_config": {**CASED, "cls_token": "the"}},
    "pad other": {"tokenizer_config": {**CASED, "pad_token": "<pad>"}},
    "pad of the vocabulary": {"tokenizer_config": {**CASED, "pad_token": "[UNK]"}},
    "unk other": {"tokenizer_config": {**CASED, "unk_token": "x"}},
    "mask other": {"tokenizer_config": {**CASED, "mask_token": "x"}},
    "bos": {"tokenizer_config": {**CASED, "bos_token": "the", "eos_token": "[SEP]"}},
    "bos new": {"tokenizer_config": {**CASED, "bos_token": "<bos>"}},
    "config null": {"tokenizer_config": {"tokenizer_class": None}},
    "init_inputs": {"tokenizer_config": {**CASED, "init_inputs": [], "name_or_path": "x"}},
    "special_tokens_map_file": {
        "tokenizer_config": {
            **CASED,
            "special_tokens_map_file": "/x/y.json",
            "tokenizer_file": None,
            "full_tokenizer_file": None,
        }
    },
}
#: Changes to a tokenizer.json.
JSONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as saved": lambda v: None,
    "lower case in it": lambda v: v["normalizer"].update(lowercase=True),
    "no Chinese in it": lambda v: v["normalizer"].update(handle_chinese_chars=False),
    "no cleaning": lambda v: v["normalizer"].update(clean_text=False),
    "accents gone in it": lambda v: v["normalizer"].update(strip_accents=True),
    "normalizer null": lambda v: v.update(normalizer=None),
    "lower case step": lambda v: v.update(normalizer={"type": "Lowercase"}),
    "a sequence": lambda v: v.update(
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}],
        }
    ),
    "white space": lambda v: v.update(pre_tokenizer={"type": "Whitespace"}),
    "white space alone": lambda v: v.update(pre_tokenizer={"type": "WhitespaceSplit"}),
    "no pre_tokenizer": lambda v: v.update(pre_tokenizer=None),
    "no post_processor": lambda v: v.update(post_processor=None),
    "RoBERTa's post_processor": lambda v: v.update(
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["[SEP]", 3],
            "cls": ["[CLS]", 2],
            "trim_offsets": True,
            "add_prefix_space": True,
        }
    ),
    "other template": lambda v: v.update(
        post_processor={
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}},
        }
    ),
    "truncation": lambda v: v.update(
        truncation={"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    ),
    "padding": lambda v: v.update(
        padding={
            "strategy": {"Fixed": 20},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
    ),
    "prefix": lambda v: v["model"].update(continuing_subword_prefix="@@"),
    "short words": lambda v: v["model"].update(max_input_chars_per_word=3),
    "added token": lambda v: v["added_tokens"].append({"id": N, **_token("[E1]", special=True)}),
    "added normalized": lambda v: v["added_tokens"].append(
        {"id": N, **_token("covid1", normalized=True)}
    ),
    "no added tokens": lambda v: v.update(added_tokens=[]),
    "one more token": lambda v: v["model"]["vocab"].update(mycovid=N),
    "unk other": lambda v: v["model"].update(unk_token="x"),
    "version": lambda v: v.update(version="2.0"),
    "more keys": lambda v: v.update(comment="mine"),
    "decoder other": lambda v: v.update(
        decoder={
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        }
    ),
    "greedy": lambda v: v["model"].update(type="BPE"),
}
