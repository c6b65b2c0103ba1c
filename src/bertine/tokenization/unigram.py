"""Tokenize by Unigram, as ALBERT, XLM-R, CamemBERT and DeBERTa-v3 do.

Every piece has a probability, and a word is divided into the pieces with the greatest product (Kudo
2018, arXiv 1804.10959, section 3.2). The space before a word is a character, ``▁``, and every text
begins with one, so that a word has the same pieces at any place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object
from bertine.core.names import TokenizerKind
from bertine.core.text import briefly, shortened
from bertine.tokenization.base import Kind, Template, backend_of, check_switches, marked, state_of
from bertine.tokenization.unigram_files import (
    ALBERT,
    SPACE,
    XLNET,
    Layout,
    Scored,
    check_charsmap,
    layout_of,
    publication_of,
    read_model_file,
)

import tokenizers  # isort: skip
from tokenizers import AddedToken, decoders, processors  # isort: skip


# Normalization before the search for pieces, as parts of a tokenizer.json: created for ALBERT,
# XLM-R and new vocabularies, and checked in files.

#: The regular expressions in files: several spaces in a row, and other white space.
_SPACES = " {2,}"
_EXPRESSIONS = (_SPACES, r"\s{2,}|[\n\r\t]")

#: Steps without settings.
PLAIN = {"NFC", "NFD", "NFKC", "NFKD", "Nmt", "StripAccents", "Lowercase"}

#: Most steps of a normalization.
_MOST_STEPS = 32
#: The advice about a file with another normalization.
_HINT = "give a tokenizer as ALBERT or XLM-R have it"

Part = dict[str, Any]


def _replace(old: str, new: str) -> Part:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def albert_steps(charsmap: bytes, *, lowercase: bool, strip_accents: bool) -> Part:
    """Return ALBERT's normalization (google-research/albert, ``tokenization.py``,
    ``preprocess_text``; then sentencepiece's own).

    Args:
        charsmap: sentencepiece's table; empty: NFKC, which equals it for nearly all characters.
        lowercase: lower-case the text.
        strip_accents: remove accents.
    """
    steps = [_replace("``", '"'), _replace("''", '"')]
    if not charsmap:
        steps.append({"type": "Nmt"})
    if strip_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        steps.append({"type": "Lowercase"})
    steps.append(_precompiled(charsmap) if charsmap else {"type": "NFKC"})
    steps.append({"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "})
    return {"type": "Sequence", "normalizers": steps}


def plain_steps(charsmap: bytes, *, lowercase: bool = False) -> Part | None:
    """Return the normalization of XLM-R, CamemBERT and DeBERTa-v3: sentencepiece's own.

    Args:
        charsmap: sentencepiece's table; empty: characters are not changed.
        lowercase: lower-case the text first.
    """
    table = _precompiled(charsmap) if charsmap else None
    if not lowercase:
        return table
    steps = [{"type": "Lowercase"}, *([table] if table else [])]
    return {"type": "Sequence", "normalizers": steps}


def _precompiled(charsmap: bytes) -> Part:
    text = base64.b64encode(charsmap).decode("ascii")
    return {"type": "Precompiled", "precompiled_charsmap": text}


def word_splitting() -> Part:
    """Return the division into words: at white space, with ``▁`` before each."""
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}


def steps_of(normalizer: Part | None) -> list[Part]:
    """Return the single steps of a normalization."""
    if normalizer is None:
        return []
    if normalizer.get("type") == "Sequence":
        return list(normalizer["normalizers"])
    return [normalizer]


def check_normalizer(file: Path, normalizer: Any) -> None:
    """Refuse a normalization with unknown steps: they could make a text arbitrarily long, or take
    arbitrary time.

    Raises:
        BertineError: there is such a step.
    """
    if normalizer is None:
        return
    steps = [normalizer]
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        steps = normalizer.get("normalizers", [])
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise BertineError(
            f"{file}: its normalizer must be a list of at most {_MOST_STEPS} steps; {_HINT}"
        )
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else None
        if not isinstance(kind, str):
            kind = None
        if kind in PLAIN or (kind == "Replace" and _may_replace(step)):
            continue
        if kind == "Strip" and all(
            isinstance(step.get(name), bool) for name in ("strip_left", "strip_right")
        ):
            continue
        if kind != "Precompiled":
            raise BertineError(
                f"{file}: its normalizer has the step {shortened(str(kind or 'missing'), 80)}, "
                f"which Bertine does not know in this form; {_HINT}"
            )
        text = step.get("precompiled_charsmap")
        try:
            raw = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
        except (binascii.Error, ValueError) as error:
            raise BertineError(
                f"{file}: precompiled_charsmap is not base64; copy or download it again"
            ) from error
        check_charsmap(raw, file)


def _may_replace(step: Part) -> bool:
    """Return whether a replacement never makes a text longer."""
    pattern, content = step.get("pattern"), step.get("content")
    if not isinstance(pattern, dict) or len(pattern) != 1 or not isinstance(content, str):
        return False
    ((kind, old),) = pattern.items()
    if kind == "Regex":
        return old in _EXPRESSIONS and content in (" ", SPACE)
    return kind == "String" and isinstance(old, str) and 0 < len(content) <= len(old)


def keeps_to_words(normalizer: Part | None) -> bool:
    """Return whether a word is normalized in the same way at any place between spaces. Stripping a
    text changes no word, because a space is put before the text anyway."""
    for step in steps_of(normalizer):
        if step["type"] == "Replace":
            pattern = step["pattern"]
            if pattern.get("Regex") in _EXPRESSIONS and step["content"] == " ":
                continue
            if any(c.isspace() or c == SPACE for c in pattern.get("String", " ") + step["content"]):
                return False
    return True


def check_pre_tokenizer(file: Path, part: Any) -> None:
    """Refuse a division into words other than at white space or at ``▁``.

    Raises:
        BertineError: it is another one.
    """
    parts = part
    if isinstance(part, dict):
        parts = part.get("pretokenizers") if part.get("type") == "Sequence" else [part]
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        parts = []
    kinds = [part.get("type") for part in parts]
    if kinds not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]):
        raise BertineError(
            f"{file}: its pre_tokenizer is {shortened(_kinds(kinds), 80)}, not WhitespaceSplit "
            f"and Metaspace; {_HINT}"
        )
    space = parts[-1]
    if (
        space.get("replacement", SPACE) != SPACE
        or space.get("prepend_scheme", "always") != "always"
        or space.get("add_prefix_space", True) is not True
        or space.get("split", True) is not True
    ):
        raise BertineError(
            f"{file}: its Metaspace must put {SPACE} in front of every word and split there; "
            f"{_HINT}"
        )


def _kinds(kinds: list[Any]) -> str:
    return " and ".join(str(kind) for kind in kinds) or "missing"


# Tokenizer: its special tokens, settings and class.

#: The settings of a tokenizer_config.json that apply to a ``.model`` file.
_SWITCHES = ("do_lower_case", "keep_accents", "split_by_punct")

# A long text may be cut before a space between such characters.
_PLAIN = "A-Za-z0-9\u4e00-\u9fff"
_CUT = re.compile(f"(?<=[{_PLAIN},.;])(?= [{_PLAIN}])")
_NEVER = re.compile("(?!)")
# Texts with these are not divided: white space that the normalization may remove, or that Python
# and Unicode treat differently; white space that forms one character with a neighbour (UAX #29:
# Extend, SpacingMark, Prepend); and `▁` itself.
_ODD = re.compile(
    f"[\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000{SPACE}]"
    r"|\s(?=[^\w\s!-~\xa1-\xac\xae-\xb4\xb6-\xbf\u2010-\u2027\u2030-\u205e\u20a0-\u20c0"
    r"\u2190-\u25ff\u3001-\u3020\uff01-\uff60]|[\u0e33\u0eb3\uff9e\uff9f])"
    r"|[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U00011000-\U00011fff](?=\s)"
)


class Unigram(Kind):
    """Unigram with the special tokens of ALBERT, of XLNet, of XLM-R or of DeBERTa-v3."""

    name: ClassVar[TokenizerKind] = "unigram"
    title: ClassVar[str] = "Unigram"
    model: ClassVar[str] = "Unigram"
    vocabularies: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("spiece.model",),
        ("sentencepiece.bpe.model",),
        ("30k-clean.model",),
        ("spm.model",),
    )
    suffix: ClassVar[str] = ".model"
    keeps_spaces: ClassVar[bool] = False

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        layout: Layout,
        tokens: Sequence[str],
        *,
        falls_back: bool = False,
    ) -> None:
        """Store the library's object and its sources.

        Args:
            tokens: the pieces by their ids.
            falls_back: whether a character without a piece is written with the pieces of its bytes.
        """
        super().__init__(backend)
        self.layout, self.special = layout, layout.special
        normalizer, splitting = state_of(backend.normalizer), state_of(backend.pre_tokenizer)
        kinds = [step["type"] for step in steps_of(normalizer)]
        self.lowercase = "Lowercase" in kinds
        self.strip_accents = "StripAccents" in kinds
        added = backend.get_added_tokens_decoder().values()
        whole = not keeps_to_words(normalizer) or any(
            re.search(r"\s", token.content) for token in added
        )
        self.cut = _NEVER if whole else _CUT
        self._divides = not whole and len((splitting or {}).get("pretokenizers", [])) == 2
        self._space: int | None = backend.token_to_id(SPACE)
        # Pieces that may begin with such a mark; an unknown piece may, too.
        quotes = ('"', f'{SPACE}"')
        self._quotes = {i for i, token in enumerate(tokens) if token.startswith(quotes)}
        self._quotes.add(tokens.index(layout.special.unk or ""))
        self._trims = not self._divides
        self._falls_back = falls_back

    @classmethod
    def build(
        cls,
        vocab: Sequence[Scored],
        normalizer: dict[str, Any] | None,
        source: str,
        *,
        falls_back: bool = False,
    ) -> Self:
        """Create Unigram from a vocabulary.

        Args:
            vocab: the pieces in the order of their ids, with the logarithms of their
                probabilities.
            normalizer: the normalization of texts.
            source: names the vocabulary in messages.
            falls_back: write a character without a piece with the pieces of its bytes.

        Raises:
            BertineError: the special tokens are missing.
        """
        tokens = [token for token, _ in vocab]
        layout = layout_of(frozenset(tokens), source)
        value: dict[str, Any] = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": normalizer,
            "pre_tokenizer": word_splitting(),
            "model": {
                "type": "Unigram",
                "unk_id": tokens.index(layout.special.unk or ""),
                "vocab": [list(entry) for entry in vocab],
                "byte_fallback": falls_back,
            },
        }
        return cls(backend_of(Path(source), value), layout, tokens, falls_back=falls_back)

    @classmethod
    def from_json(cls, file: Path, value: dict[str, Any], config: dict[str, Any]) -> Self:
        check_switches(file, config, _SWITCHES)
        layout = _check_model(file, value)
        check_normalizer(file, value.get("normalizer"))
        check_pre_tokenizer(file, value.get("pre_tokenizer"))
        model = value["model"]
        tokens = [token for token, _ in model["vocab"]]
        falls_back = model.get("byte_fallback") is True
        kind = cls(backend_of(file, value), layout, tokens, falls_back=falls_back)
        lowercase = config.get("do_lower_case")
        if lowercase is not None and layout in (ALBERT, XLNET) and lowercase != kind.lowercase:
            logger.warning(
                f"{file.parent}: tokenizer_config.json has do_lower_case {lowercase}, the "
                f"normalizer of tokenizer.json has {kind.lowercase}; the latter is used"
            )
        return kind

    @classmethod
    def from_vocabulary(cls, path: Path, config: dict[str, Any]) -> tuple[Self, Path]:
        file = path
        if path.is_dir():
            held = (path / names[0] for names in cls.vocabularies)
            file = next(candidate for candidate in held if candidate.is_file())
        check_switches(file, config, _SWITCHES)
        read = read_model_file(file)
        publication = publication_of(read.pieces, _names_beside(file, config), file)
        if read.charsmap:
            check_charsmap(read.charsmap, file)
        if config.get("split_by_punct"):
            raise BertineError(
                f"{file.parent / 'tokenizer_config.json'}: split_by_punct is true, but Bertine "
                "divides text at spaces alone; give a tokenizer with false"
            )
        lowercase = publication.lowercase
        if lowercase is not None and config.get("do_lower_case") is not None:
            lowercase = config["do_lower_case"]
        if publication.cleans:
            normalizer: dict[str, Any] | None = albert_steps(
                read.charsmap,
                lowercase=bool(lowercase),
                strip_accents=config.get("keep_accents") is not True,
            )
        else:
            normalizer = plain_steps(read.charsmap, lowercase=bool(lowercase))
        vocab = publication.vocab(read.pieces)
        return cls.build(vocab, normalizer, str(file), falls_back=read.falls_back), file

    def complete(self, ids: Mapping[str, int]) -> Template:
        layout, backend = self.layout, self.backend
        taking = {
            token.content: token.lstrip for token in backend.get_added_tokens_decoder().values()
        }
        backend.add_special_tokens(
            [
                AddedToken(token, lstrip=taking.get(token, False), normalized=False, special=True)
                for token in sorted(self.special.tokens, key=ids.__getitem__)
            ]
        )
        spaces = decoders.Metaspace(SPACE, "always")
        backend.decoder = (
            decoders.Sequence([decoders.ByteFallback(), spaces]) if self._falls_back else spaces
        )
        single, pair = layout.written()
        named = dict.fromkeys(token for token in layout.pair if token is not None)
        backend.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=[(token, ids[token]) for token in named]
        )
        return layout.template(ids)

    def continues(self, token: str) -> bool:
        return self.layout.goes_on(token)

    def name_of(self, token: str) -> str:
        if self.continues(token):
            return marked(token)
        return token.removeprefix(SPACE) or "␣"

    def words(self, texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
        """Split texts at white space."""
        if not self._divides:
            return [[] for _ in texts], list(range(len(texts)))
        whole = [number for number, text in enumerate(texts) if _ODD.search(text)]
        split = [text.split() for text in texts]
        for number in whole:
            split[number] = []
        return split, whole

    def spans(
        self, ids: Sequence[int], offsets: list[tuple[int, int]], text: str
    ) -> list[tuple[int, int]]:
        """Correct the offsets of the library.

        The ``▁`` put before a word has no character; the library gives it the first one, which
        belongs to the next piece. A quotation mark made of two characters has both; the library
        gives it the second. The space before a word belongs to no piece if words are split at it.
        """
        start = -1
        for place in range(len(offsets) - 1, -1, -1):
            behind = start
            start, end = offsets[place]
            index = ids[place]
            if index == self._space and start >= behind >= 0:
                start = behind
                offsets[place] = (start, start)
            elif index in self._quotes and text[max(start - 1, 0) : start + 1] in ("''", "``"):
                start -= 1
                offsets[place] = (start, end)
            elif self._trims and text[start:end][:1].isspace():
                start += len(text[start:end]) - len(text[start:end].lstrip())
                offsets[place] = (start, end)
        return offsets

    def show(self, ids: Sequence[int]) -> str:
        """Join the pieces, with each special token apart."""
        tokens = [self.backend.id_to_token(index) or "" for index in ids]
        special = set(self.special.tokens)
        text = "".join(
            f" {token}" if token in special else token.replace(SPACE, " ") for token in tokens
        )
        return text.strip()

    def settings(self) -> list[Any]:
        """Return a hash of the library's serialization, which includes the scores."""
        value = json.loads(self.backend.to_str())
        what = [value[part] for part in ("normalizer", "pre_tokenizer", "model")]
        return [self.name, hashlib.sha256(json.dumps(what).encode()).hexdigest()]

    def files(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return no files: tokenizer.json has the pieces with their probabilities."""
        return {}

    def config(self, one_type: bool = False) -> dict[str, Any]:
        """Name the class that reads tokenizer.json unchanged. The classes of ALBERT, XLM-R and
        CamemBERT in `transformers` rebuild the normalization and lose some of its steps."""
        special = self.special
        types = ["token_type_ids"] if self.layout.has_types and not one_type else []
        inputs = ["input_ids", *types, "attention_mask"]
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": inputs,
            "bos_token": special.cls,
            "eos_token": special.sep,
            **special.named,
            **self.layout.settings,
        }


def _check_model(file: Path, value: dict[str, Any]) -> Layout:
    """Check values that the library does not check."""
    model = value["model"]
    vocab = model.get("vocab")
    if not isinstance(vocab, list) or not vocab:
        raise BertineError(f"{file}: vocab in its model must be a list of pieces with their scores")
    for number, entry in enumerate(vocab):
        if (
            not isinstance(entry, list)
            or len(entry) != 2
            or not isinstance(entry[0], str)
            or not entry[0]
            or type(entry[1]) not in (int, float)
            or abs(entry[1]) > 1e6
        ):
            raise BertineError(
                f"{file}: entry {number} of vocab is {briefly(entry)}, but must be a piece and its "
                "score"
            )
    tokens = [token for token, _ in vocab]
    # DeBERTa's mask is not one of the pieces, but an added token.
    added = [
        token["content"] for token in value.get("added_tokens") or [] if token["id"] >= len(tokens)
    ]
    layout = layout_of(frozenset([*tokens, *added]), str(file))
    if not isinstance(model.get("byte_fallback"), bool | None):
        raise BertineError(
            f"{file}: byte_fallback is {briefly(model['byte_fallback'])}, but must be true or false"
        )
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        raise BertineError(
            f"{file}: unk_id is {briefly(unknown)}, but must be the number of a piece"
        )
    if tokens[unknown] != layout.special.unk:
        raise BertineError(
            f"{file}: unk_id is {unknown}, which is {briefly(tokens[unknown])}, but must be that "
            f"of {layout.special.unk}"
        )
    return layout


def _names_beside(file: Path, config: dict[str, Any]) -> frozenset[str]:
    """Return the names of the tokenizer's class and model in the files next to a ``.model``
    file."""
    names = {str(config.get("tokenizer_class")).removesuffix("Fast")}
    if (file.parent / "config.json").is_file():
        values = read_json_object(file.parent / "config.json")
        names |= {
            str(values.get("model_type")),
            str(values.get("tokenizer_class")).removesuffix("Fast"),
        }
    return frozenset(names)
