"""Tokenize by byte-level BPE, as RoBERTa, BART, GPT-2 and ModernBERT do.

A text is its UTF-8 bytes, each written as a printable character (a space is ``Ġ``), so nothing is
unknown; nothing is normalized, unless a file requires NFC. It is split into words, numbers, marks
and white space, where one space before a word belongs to the word; in each part the pair of pieces
that was learnt first is merged, until no pair is known (Radford et al. 2019, section 2.2;
openai/gpt-2, ``encoder.py``; Liu et al. 2019, section 4.4).
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from bertine.core.errors import BertineError
from bertine.core.files import read_json_object
from bertine.core.names import BYTE_BPE_MASK, SpecialStyle, TokenizerKind
from bertine.core.text import briefly
from bertine.tokenization.base import (
    Kind,
    SpecialTokens,
    Template,
    backend_of,
    check_part,
    check_special_tokens,
    check_switches,
    check_vocab,
    divides_words,
    marked,
    override,
    read_merges,
)
from bertine.tokenization.wordpiece import SPECIAL_TOKENS

# Imported after `base`, which sets the threads of `tokenizers`.
import tokenizers  # isort: skip
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors  # isort: skip

#: The special tokens of RoBERTa in the order in which its vocabulary begins; the mask is its last
#: token.
SPECIAL = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", BYTE_BPE_MASK)
FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")

#: GPT-2's only special token, which it uses for all purposes; there is no mask and no unknown
#: token.
_END_OF_TEXT = "<|endoftext|>"
GPT2_SPECIAL = SpecialTokens(_END_OF_TEXT, None, _END_OF_TEXT, _END_OF_TEXT, None)

#: Special tokens with BERT's names and places (ModernBERT).
BERT_SPECIAL = SpecialTokens(*SPECIAL_TOKENS)
#: The styles of special tokens with which a vocabulary of this kind can be trained, and the tokens
#: with which it then begins.
STYLES: Mapping[SpecialStyle, tuple[SpecialTokens, tuple[str, ...]]] = {
    "roberta": (SPECIAL, FIRST_TOKENS),
    "bert": (BERT_SPECIAL, SPECIAL_TOKENS[:-1]),
}

#: The character of the byte of a space.
_SPACE = "Ġ"
#: The only normalizer that a file may have.
_NFC = {"type": "NFC"}
#: The setting that reads a text as if it began with a space.
_PREFIX = "add_prefix_space"

# White space as defined by Unicode, at which the library splits; Python has some more.
_WHITE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# A text has the same pieces if it is cut before a space that follows a non-space.
_BREAK = re.compile(f"(?<=[^{_WHITE}])(?= )")
# A long text may be cut there, and where letters, numbers and marks meet that cannot belong to a
# contraction or a special token.
_CUT = re.compile(
    rf"{_BREAK.pattern}|(?<=[A-Za-z\u4e00-\u9fa5])(?=[0-9,.\u3001\u3002\uff0c])"
    r"|(?<=[0-9])(?=[A-Za-z,.\u4e00-\u9fa5])"
)
_NEVER = re.compile("(?!)")
# If runs of spaces are tokens, a text is not cut inside one.
_BREAK_OUTSIDE_RUNS = re.compile(f"{_BREAK.pattern}(?!  )")
_RUN = re.compile("  +")
# White space other than one space between two words; or the character that separates words.
_ODD = re.compile("[\0\t-\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def _byte_characters() -> dict[str, int]:
    """Build the table of bytes by character: printable Latin-1 represents itself, other bytes have
    a character from U+0100 on (``bytes_to_unicode`` in openai/gpt-2, ``encoder.py``)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in sorted(printable)} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }


#: Byte by character: the alphabet.
ALPHABET = _byte_characters()


class ByteBpe(Kind):
    """Byte-level BPE with the special tokens of RoBERTa, with GPT-2's, or with names like BERT's.

    The pieces that continue a word are defined as in fairseq (``get_whole_word_mask``): those that
    do not begin with a space. So a mark belongs to the word before it ("cat," is one word, and
    "don't"), and a quoted word belongs to the mark before it. The first word of a text has no space
    before it either: fairseq joins it with the ``<s>``, here it is a word by itself
    (:mod:`bertine.corpora.collators`).
    """

    name: ClassVar[TokenizerKind] = "byte-bpe"
    title: ClassVar[str] = "byte-level BPE"
    model: ClassVar[str] = "BPE"
    vocabularies: ClassVar[tuple[tuple[str, ...], ...]] = (("vocab.json", "merges.txt"),)
    keeps_spaces: ClassVar[bool] = True

    def __init__(self, backend: tokenizers.Tokenizer, special: SpecialTokens) -> None:
        super().__init__(backend)
        self.special = special
        self.add_prefix_space: bool = backend.pre_tokenizer.add_prefix_space
        self._normalizes = backend.normalizer is not None
        added = [
            token
            for token in backend.get_added_tokens_decoder().values()
            if token.content not in special.tokens
        ]
        # Runs of spaces that are tokens (GPT-NeoX, ModernBERT).
        runs = [t for t in added if _RUN.fullmatch(t.content) and not (t.lstrip or t.rstrip)]
        # Such tokens extend beyond the text between spaces.
        self._whole = any(
            token.rstrip or re.search(f"[{_WHITE}]", token.content)
            for token in added
            if token not in runs
        )
        if self._whole:
            self.cut = _NEVER
        elif runs:
            self.cut = _BREAK_OUTSIDE_RUNS
        elif self.add_prefix_space or any(_CUT.search(token.content) for token in added):
            self.cut = _BREAK
        else:
            self.cut = _CUT
        self._runs = bool(runs)

    @classmethod
    def build(
        cls,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        *,
        add_prefix_space: bool,
        source: str,
    ) -> Self:
        """Create byte-level BPE from a vocabulary.

        Args:
            ids: the ids of the tokens.
            merges: pairs of tokens that are merged, in order of priority.
            add_prefix_space: read a text as if it began with a space.
            source: names the vocabulary in messages.

        Raises:
            BertineError: a special token or a byte is missing, or a merge has a token that does not
                exist.
        """
        special = _special(ids, source)
        _check_bytes(ids, source)
        backend = bpe_backend(source, ids, merges)
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        return cls(backend, special)

    @classmethod
    def is_of_json(cls, value: Mapping[str, Any]) -> bool:
        return super().is_of_json(value) and not divides_words(value)

    @classmethod
    def is_of_files(cls, path: Path) -> bool:
        """Recognize it by the lack of tokens that end a word, which BPE over words has."""
        file = (path if path.is_dir() else path.parent) / "vocab.json"
        return not any(token.endswith("</w>") for token in read_json_object(file))

    @classmethod
    def from_json(cls, file: Path, value: dict[str, Any], config: dict[str, Any]) -> Self:
        check_switches(file, config, [_PREFIX])
        hint = "of BPE Bertine knows the byte-level one of RoBERTa, GPT-2 and ModernBERT"
        before = check_part(file, value, "pre_tokenizer", "ByteLevel", hint)
        if value.get("normalizer") not in (None, _NFC):
            raise BertineError(
                f"{file}: has a normalizer; byte-level BPE is read without one, or with NFC alone"
            )
        if before.get("use_regex", True) is not True:
            raise BertineError(f"{file}: use_regex of its pre_tokenizer must be true")
        before.setdefault(_PREFIX, True)
        if config.get(_PREFIX) is not None:
            override(file, before, _PREFIX, _PREFIX, config[_PREFIX])
        added = value.get("added_tokens") or []
        special = _check_model(file, value["model"], [token["content"] for token in added])
        for token in added:
            if token["content"] == special.mask:
                token["lstrip"] = True
        return cls(backend_of(file, value), special)

    @classmethod
    def from_vocabulary(cls, path: Path, config: dict[str, Any]) -> tuple[Self, Path]:
        folder = path if path.is_dir() else path.parent
        file = folder / "vocab.json"
        check_switches(file, config, [_PREFIX])
        ids = check_vocab(file, read_json_object(file))
        merges = read_merges(folder / "merges.txt")
        prefix = config.get(_PREFIX) is True
        return cls.build(ids, merges, add_prefix_space=prefix, source=str(file)), file

    def complete(self, ids: Mapping[str, int]) -> Template:
        special, backend = self.special, self.backend
        backend.add_special_tokens(
            [
                AddedToken(token, lstrip=token == special.mask, normalized=False, special=True)
                for token in sorted(special.tokens, key=ids.__getitem__)
            ]
        )
        backend.decoder = decoders.ByteLevel()
        cls, sep = ids[special.cls], ids[special.sep]
        if special.mask is None:
            backend.post_processor = processors.ByteLevel(
                add_prefix_space=self.add_prefix_space, trim_offsets=True
            )
            return Template((None,), (None, None), sep)
        if special == BERT_SPECIAL:
            backend.post_processor = processors.TemplateProcessing(
                single=f"{special.cls}:0 $A:0 {special.sep}:0",
                pair=f"{special.cls}:0 $A:0 {special.sep}:0 $B:1 {special.sep}:1",
                special_tokens=[(special.cls, cls), (special.sep, sep)],
            )
            return Template((cls, None, sep), (cls, None, sep, None, sep), sep)
        backend.post_processor = processors.RobertaProcessing(
            (special.sep, sep), (special.cls, cls), True, self.add_prefix_space
        )
        return Template((cls, None, sep), (cls, None, sep, sep, None, sep), sep)

    def continues(self, token: str) -> bool:
        return not token.startswith(_SPACE)

    def name_of(self, token: str) -> str:
        """Return the characters of a piece; the codes of incomplete and control characters."""
        try:
            data = bytes(ALPHABET[character] for character in token)
        except KeyError:  # added as text, not as bytes
            return token
        text = data.decode("utf-8", "backslashreplace")
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        if shown.isspace():
            return shown.replace(" ", "␣")
        return shown[1:] if shown.startswith(" ") else marked(shown)

    def words(self, texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
        """Split texts before the spaces that follow words."""
        if self._whole:
            return [[] for _ in texts], list(range(len(texts)))
        if self._runs:
            whole = [number for number, text in enumerate(texts) if "  " in text]
            divided = self._divided(["" if "  " in text else text for text in texts])
            for number in whole:
                divided[number] = []
            return divided, whole
        return self._divided(texts), []

    def _divided(self, texts: Sequence[str]) -> list[list[str]]:
        return [
            _BREAK.split(text)
            if "  " in text or _ODD.search(text)
            else text.replace(" ", "\0 ").split("\0")
            for text in texts
        ]

    def as_word(self, word: str) -> str:
        return f" {word}"

    def kept_lengths(self, first: int, second: int, room: int | None) -> tuple[int, int]:
        """Cut the longer of two texts as `transformers` does: down to the other, then both to half
        of the room; if it is odd, the longer text keeps one more."""
        if room is None or first + second <= room:
            return first, second
        short, long = sorted((first, second))
        if 2 * short <= room:
            long = room - short
        else:
            short, long = room // 2, room - room // 2
        return (short, long) if first <= second else (long, short)

    def show(self, ids: Sequence[int]) -> str:
        """Decode the pieces, and restore the space before each mask, which the mask includes."""
        mask = self.backend.token_to_id(self.special.mask) if self.special.mask else None
        text, run = "", list[int]()
        for index in [*ids, None]:
            if index is not None and index != mask:
                run.append(index)
                continue
            text += self.backend.decode(run, skip_special_tokens=False)
            text += "" if index is None else f" {self.special.mask}"
            run = []
        return text.strip()

    def settings(self) -> list[Any]:
        normalizes = ["NFC"] if self._normalizes else []
        return [self.name, self.add_prefix_space, merges_of(self.backend), *normalizes]

    def files(self, tokens: Sequence[str]) -> dict[str, str]:
        return bpe_files(self.backend, with_added=False)

    def config(self, one_type: bool = False) -> dict[str, Any]:
        special = self.special
        values = {
            _PREFIX: self.add_prefix_space,
            "errors": "replace",
            "bos_token": special.cls,
            "eos_token": special.sep,
        }
        if special.mask is None:
            return {"tokenizer_class": "GPT2Tokenizer", **values, "unk_token": special.cls}
        if special == BERT_SPECIAL:
            types = [] if one_type else ["token_type_ids"]
            return {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_input_names": ["input_ids", *types, "attention_mask"],
                "clean_up_tokenization_spaces": False,
                **special.named,
            }
        return {
            "tokenizer_class": "RobertaTokenizer",
            **values,
            "trim_offsets": True,
            **special.named,
            "mask_token": {
                "__type": "AddedToken",
                "content": special.mask,
                "lstrip": True,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            },
        }


def bpe_backend(
    source: str, ids: Mapping[str, int], merges: Sequence[tuple[str, str]], **settings: Any
) -> tokenizers.Tokenizer:
    """Create the library's object for a BPE from a vocabulary; `settings` are further arguments of
    its model.

    Raises:
        BertineError: the library refuses it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = models.BPE(vocab=dict(ids), merges=list(merges), **settings)
    except Exception as error:  # `tokenizers` raises no narrower class
        raise BertineError(f"{source}: not a tokenizer ({error})") from error
    return tokenizers.Tokenizer(model)


def merges_of(backend: tokenizers.Tokenizer) -> list[list[str]]:
    """Return the pairs that a BPE merges, the first learnt first."""
    merges = json.loads(backend.to_str())["model"]["merges"]
    return [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]


def bpe_files(backend: tokenizers.Tokenizer, *, with_added: bool) -> dict[str, str]:
    """Return the contents of ``vocab.json`` and ``merges.txt`` of a BPE, with or without its added
    tokens."""
    ids = backend.get_vocab(with_added_tokens=with_added)
    ordered = {token: ids[token] for token in sorted(ids, key=ids.__getitem__)}
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges_of(backend))]
    return {
        "vocab.json": json.dumps(ordered, ensure_ascii=False) + "\n",
        "merges.txt": "".join(f"{line}\n" for line in lines),
    }


def _special(ids: Collection[str], source: str, added: Sequence[str] = ()) -> SpecialTokens:
    """Return the special tokens of a vocabulary; those like BERT's may be `added` to it."""
    if all(token in ids for token in SPECIAL.tokens):
        return SPECIAL
    if all(token in ids or token in added for token in SPECIAL_TOKENS):
        return BERT_SPECIAL
    if _END_OF_TEXT in ids and not any(token in ids for token in SPECIAL.tokens):
        return GPT2_SPECIAL
    needed = (*FIRST_TOKENS, BYTE_BPE_MASK)
    check_special_tokens(ids, needed, "byte-level BPE as RoBERTa has it", source)
    return SPECIAL


def _check_bytes(ids: Mapping[str, int], source: str) -> None:
    missing = [character for character in ALPHABET if character not in ids]
    if missing:
        raise BertineError(
            f"{source}: the vocabulary lacks {len(missing)} of the 256 bytes "
            f"({' '.join(missing[:5])}{' …' * (len(missing) > 5)}), so that texts would lose "
            "characters"
        )


def _check_model(file: Path, model: dict[str, Any], added: Sequence[str]) -> SpecialTokens:
    """Check values that the library does not check; `added` are the tokens outside its
    vocabulary."""
    vocab = check_vocab(file, model.get("vocab"))
    special = _special(vocab, str(file), added)
    for name, allowed, must in (
        ("continuing_subword_prefix", "", "empty"),
        ("end_of_word_suffix", "", "empty"),
        ("byte_fallback", False, "false"),
        ("ignore_merges", False, "false"),
    ):
        if model.get(name) not in (None, allowed):
            raise BertineError(f"{file}: {name} is {briefly(model[name])}, but must be {must}")
    if model.get("dropout") not in (None, 0):
        raise BertineError(
            f"{file}: dropout is {briefly(model['dropout'])}, which would give a text other pieces "
            "each time; set it to null"
        )
    if model.get("unk_token") is None:
        _check_bytes(vocab, str(file))
    elif model["unk_token"] not in special.tokens:
        raise BertineError(
            f"{file}: unk_token is {briefly(model['unk_token'])}, but must be "
            f"{special.unk or 'null'}"
        )
    return special
