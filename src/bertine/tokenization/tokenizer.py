"""Convert text to ids and back, for every kind of vocabulary.

Each kind is defined in its own file, such as :mod:`bertine.tokenization.wordpiece`; the places of
the special tokens are in its :class:`~bertine.tokenization.base.Template`. Hugging Face's
`tokenizers` does the work, so ids equal those of `transformers`.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.core.console import logger, visible_list
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_json_object, write_json, write_text
from bertine.core.model_folders import locate
from bertine.core.names import TokenizerKind
from bertine.core.text import briefly, shortened
from bertine.tokenization.base import Kind, Template, bare, check_added_tokens, goes_on
from bertine.tokenization.byte_bpe import ByteBpe
from bertine.tokenization.gpt_bpe import WordBpe
from bertine.tokenization.unigram import Unigram
from bertine.tokenization.word_cache import ChunkedEncoder, Pieces, WordCache
from bertine.tokenization.wordpiece import SPECIAL_TOKENS, WordPiece

# Read the tokens that files next to a vocabulary add to it, as `transformers` reads them.
#
# These are the tokens of ``added_tokens_decoder`` in tokenizer_config.json; in older folders
# those of added_tokens.json and special_tokens_map.json. A text is split at them first.

SETTINGS, NAMED, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"

_DECODER = "added_tokens_decoder"
#: The settings for unnamed special tokens, in newer and older versions.
_MORE = _EXTRA, _ADDITIONAL = ("extra_special_tokens", "additional_special_tokens")
#: Most tokens named in a message.
_SHOWN = 5
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class NamedToken:
    """A token named by a file next to a vocabulary.

    Attributes:
        content: its text.
        index: its id; None: its id in the vocabulary, else the next free one.
        flags: the flags of its search in a text that are true.
        needed: whether it is added if the vocabulary lacks it.
        decisive: whether its flags override those of a tokenizer.json.
    """

    content: str
    index: int | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)
    needed: bool = True
    decisive: bool = False


def read_settings(folder: Path) -> dict[str, Any]:
    """Read tokenizer_config.json, special_tokens_map.json where it applies, and the tokenizer class
    if only config.json names it; {} if there are none."""
    settings: dict[str, Any] = {}
    if (folder / SETTINGS).is_file():
        settings = read_json_object(folder / SETTINGS)
    if _ADDITIONAL in settings and not settings.get(_EXTRA):
        settings[_EXTRA] = settings.pop(_ADDITIONAL)
    if _DECODER not in settings and (folder / NAMED).is_file():
        settings |= read_json_object(folder / NAMED)
    if "tokenizer_class" not in settings and (folder / "config.json").is_file():
        settings["tokenizer_class"] = read_json_object(folder / "config.json").get(
            "tokenizer_class"
        )
    return settings


def content_of(token: Any) -> str | None:
    """Return the text of a token, written as a string or an object; None if it is neither."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) and text else None


def named_tokens(folder: Path, settings: Mapping[str, Any]) -> list[NamedToken]:
    """List the tokens that the files of a folder name, those with ids first, in order.

    Args:
        folder: the folder of the vocabulary.
        settings: the result of :func:`read_settings`.

    Raises:
        BertineError: an entry is not a token.
    """
    more = {key: list(_more(folder / SETTINGS, settings, key)) for key in _MORE}
    special = [*more[_EXTRA], *_named(settings)]
    tokens: list[NamedToken] = []
    if settings.get(_DECODER) is not None:
        tokens += _of_decoder(folder / SETTINGS, settings[_DECODER])
    elif (folder / ADDED).is_file():
        # The tokens of an older special_tokens_map.json are not among the special ones there.
        tokens += _of_added(folder / ADDED, {token.content for token in special})
    return [*sorted(tokens, key=lambda token: token.index or 0), *special, *more[_ADDITIONAL]]


def _named(settings: Mapping[str, Any]) -> Iterator[NamedToken]:
    """Yield the named tokens, such as ``bos_token``: if the vocabulary lacks them, no model has
    been trained with them."""
    for key, value in settings.items():
        if key.endswith("_token") and (content := content_of(value)):
            yield NamedToken(content, None, {"special": True}, needed=False)


def _more(file: Path, settings: Mapping[str, Any], key: str) -> Iterator[NamedToken]:
    listed = settings.get(key) or []
    if isinstance(listed, dict):
        listed = list(listed.values())
    for value in listed if isinstance(listed, list) else [listed]:
        if (content := content_of(value)) is None:
            raise BertineError(f"{file}: {key} has {briefly(value)}, which is no token")
        yield NamedToken(content, None, _flags(file, value) | {"special": True})


def _of_decoder(file: Path, tokens: Any) -> Iterator[NamedToken]:
    if not isinstance(tokens, dict):
        raise BertineError(f"{file}: {_DECODER} is {briefly(tokens)}, but must be tokens by id")
    for key, value in tokens.items():
        content = content_of(value) if isinstance(value, dict) else None
        if content is None or not (key.isascii() and key.isdigit()) or len(key) > 9:
            raise BertineError(f"{file}: {_DECODER} has {briefly({key: value})}, not a token by id")
        yield NamedToken(content, int(key), _flags(file, value), decisive=True)


def _of_added(file: Path, special: Collection[str]) -> Iterator[NamedToken]:
    for content, index in read_json_object(file).items():
        if not content or type(index) is not int or index < 0:
            raise BertineError(f"{file}: has {briefly({content: index})}, not a token and its id")
        flag = "special" if content in special else "normalized"
        yield NamedToken(content, index, {flag: True})


def _flags(file: Path, token: Any) -> dict[str, bool]:
    """Return the flags of a token that are true."""
    flags = {name: token.get(name, False) for name in _FLAGS} if isinstance(token, dict) else {}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise BertineError(f"{file}: in {briefly(token)} a flag is neither true nor false")
    return {name: flag for name, flag in flags.items() if flag}


def add_tokens(file: Path, value: dict[str, Any], tokens: Sequence[NamedToken]) -> None:
    """Add missing tokens to `value`, the contents of a tokenizer.json.

    Raises:
        BertineError: an id differs from the one that a token has, or would get; `file` names the
            vocabulary.
    """
    ids = _ids(value["model"].get("vocab"))
    held = {token["content"]: token for token in value.get("added_tokens") or []}
    following = 1 + max([*ids.values(), *(token["id"] for token in held.values())], default=-1)
    decisive = {token.content for token in tokens if token.decisive}
    more = [content for content in held if content not in ids and content not in decisive]
    if decisive and more:
        logger.warning(
            f"{file}: adds {visible_list(more[:_SHOWN])}, which {_DECODER} in {SETTINGS} lacks; "
            "they are read here, but transformers may ignore them"
        )
    for token in tokens:
        entry = held.get(token.content)
        if entry is None and not (token.needed or token.content in ids):
            continue
        index = ids.get(token.content, following) if entry is None else entry["id"]
        if token.index not in (None, index):
            raise BertineError(
                f"{file}: the token {briefly(token.content)} has the id {token.index} in {ADDED} "
                f"or {SETTINGS}, but {index} in this vocabulary; they do not belong together"
            )
        flags = {**dict.fromkeys(_FLAGS, False), **token.flags}
        if entry is None:
            following += index == following
            held[token.content] = {**flags, "content": token.content, "id": index}
        elif token.decisive:
            entry |= flags
    value["added_tokens"] = sorted(held.values(), key=lambda token: int(token["id"]))


def _ids(vocab: Any) -> dict[str, int]:
    """Return the ids of a vocabulary's tokens, given as such or as a list of pieces with scores;
    without invalid entries, which the reader of the vocabulary refuses."""
    if isinstance(vocab, list):
        vocab = {
            str(entry[0]): at for at, entry in enumerate(vocab) if isinstance(entry, list) and entry
        }
    entries = vocab.items() if isinstance(vocab, dict) else ()
    return {token: index for token, index in entries if type(index) is int}


def with_tokens(
    kind: Kind, file: Path, settings: dict[str, Any], tokens: Sequence[NamedToken]
) -> Kind:
    """Return a kind read from a vocabulary `file`, with tokens added to it; the kind itself if they
    are its own special tokens."""
    if {token.content for token in tokens} <= set(kind.special.tokens):
        return kind
    value = json.loads(kind.backend.to_str())
    add_tokens(file, value, tokens)
    return kind.from_json(file, value, settings)


# Kinds of tokenizers by name, and detection of the kind in a folder.

KINDS: dict[TokenizerKind, type[Kind]] = {
    kind.name: kind for kind in (WordPiece, ByteBpe, Unigram, WordBpe)
}

#: Matches the classes of tokenizers that split text into words with a program of their own; and
#: their settings.
_DIVIDING = re.compile(
    "japanese|mecab|sudachi|juman|janome|jieba|roformer|wobert|cpm|bertweet|phobert|flaubert|^XLMTok"
    "|kobert",
    re.IGNORECASE,
)
_DIVIDING_KEYS = ("word_tokenizer_type", "mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs")

#: The files that a tokenizer's folder may hold.
FILES = frozenset(
    {
        *("tokenizer.json", SETTINGS, NAMED, ADDED),
        *(name for kind in KINDS.values() for names in kind.vocabularies for name in names),
    }
)


def holds_tokenizer(folder: Path) -> bool:
    """Return whether a folder holds the files of a tokenizer."""
    return any(
        all((folder / name).exists() for name in names)
        for names in (
            ("tokenizer.json",),
            *(names for kind in KINDS.values() for names in kind.vocabularies),
        )
    )


def read(path: Path) -> tuple[Kind, str]:
    """Read the kind from a path, for :meth:`bertine.Tokenizer.load`.

    Returns:
        The kind, and the name of the file that it was read from.
    """
    with os_errors(path, "loading the tokenizer"):
        path.stat()
    folder = path if path.is_dir() else path.parent
    config = read_settings(folder)
    _refuse_dividing(folder / SETTINGS, config)
    if path.is_dir():
        if (path / "tokenizer.json").exists():
            return _read_json(path / "tokenizer.json", config)
        fitting = [
            kind
            for kind in KINDS.values()
            if any(all((path / name).is_file() for name in names) for names in kind.vocabularies)
        ]
        if not fitting:
            groups = dict.fromkeys(n for kind in KINDS.values() for n in kind.vocabularies)
            names = " and no ".join(" with ".join(group) for group in groups)
            raise BertineError(f"{path}: no tokenizer.json and no {names} in this folder")
    else:
        fitting = [
            kind
            for kind in KINDS.values()
            if any(path.name in names for names in kind.vocabularies)
            or (kind.suffix and path.suffix == kind.suffix)
        ]
        if not fitting and path.suffix == ".json":
            return _read_json(path, config)
    if len(fitting) > 1:
        fitting = [kind for kind in fitting if kind.is_of_files(path)] or fitting
    kind, file = (fitting or [WordPiece])[0].from_vocabulary(path, config)
    return with_tokens(kind, file, config, named_tokens(folder, config)), str(file)


def _refuse_dividing(file: Path, config: dict[str, Any]) -> None:
    """Refuse a tokenizer that splits text into words with a program of its own, which is not in its
    files: without it, texts would get other ids than in training."""
    name = config.get("tokenizer_class")
    keys = [f"{key} {briefly(config[key])}" for key in _DIVIDING_KEYS if config.get(key)]
    if keys or _DIVIDING.search(str(name)):
        said = ", ".join([f"tokenizer_class {briefly(name)}", *keys])
        raise BertineError(
            f"{file}: {shortened(said, 200)}: it divides text into words by itself (as MeCab or "
            "Jieba do), which Bertine does not; ids would be other ones than the model was trained "
            "with"
        )


def _read_json(file: Path, config: dict[str, Any]) -> tuple[Kind, str]:
    value = read_json_object(file)
    model = value.get("model")
    name = model.get("type") if isinstance(model, dict) else None
    for kind in KINDS.values():
        if kind.is_of_json(value):
            check_added_tokens(file, value.get("added_tokens"))
            add_tokens(file, value, named_tokens(file.parent, config))
            return kind.from_json(file, value, config), str(file)
    known = " or ".join(dict.fromkeys(kind.model for kind in KINDS.values()))
    raise BertineError(
        f"{file}: its model is {shortened(str(name or 'missing'), 80)}, not {known}; give a "
        "tokenizer of a kind that Bertine knows"
    )


__all__ = ["SPECIAL_TOKENS", "Encoding", "Tokenizer"]


@dataclass(slots=True)
class Encoding:
    """One text, or pair of texts, as input of the model: for BERT ``[CLS] text [SEP] (pair
    [SEP])``.

    Attributes:
        input_ids: T ids.
        token_type_ids: T times 0 (up to the special tokens after the text) or 1 (from the pair's
            first piece on).
        offsets: T pairs (begin, end) of character positions of each token in the text (in the pair
            if the type is 1), end exclusive; (0, 0) for the special tokens added.
        special_tokens_mask: T times 1 for the special tokens added, else 0.
        num_truncated: pieces cut off to fit `max_length`.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    offsets: list[tuple[int, int]]
    special_tokens_mask: list[int]
    num_truncated: int = 0


class Tokenizer:
    """A tokenizer of any kind. Create one with :meth:`from_vocab` or :meth:`load`.

    As in `transformers`, the special tokens are recognized in raw text: "[MASK]" is one token.

    Attributes:
        kind: its kind: "wordpiece" (BERT), "byte-bpe" (RoBERTa, BART, GPT-2), "unigram" (ALBERT,
            XLM-R, CamemBERT, DeBERTa-v3).
        title: the same for people.
        backend: the object of the `tokenizers` library; not to be changed.
        lowercase, strip_accents, split_chinese: the normalization; see :meth:`from_vocab`.
        keeps_spaces: whether the space before a word belongs to the word's first piece, so that a
            word has other pieces at the beginning of a text than in its middle.
        tokens: the vocabulary; positions are ids.
        vocab_size: number of tokens.
        template: the places of the special tokens around one text and around two.
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special
            tokens; `special_ids` holds all of them. unk and mask are None if the vocabulary lacks
            them.
        mask_text: the text of a mask: "[MASK]", or "<mask>", which includes the space before it; ""
            if the vocabulary has no mask.
    """

    def __init__(self, kind: Kind, source: str) -> None:
        """Complete a kind that was read from files; `source` names it in messages."""
        self._kind = kind
        self.kind: TokenizerKind = kind.name
        self.title = kind.title
        self.backend = backend = kind.backend
        self.lowercase = kind.lowercase
        self.strip_accents = kind.strip_accents
        self.split_chinese = kind.split_chinese
        self.keeps_spaces = kind.keeps_spaces
        self._bounded = ChunkedEncoder(kind)
        self._lock = threading.Lock()

        ids = backend.get_vocab(with_added_tokens=True)
        self.tokens: list[str] = sorted(ids, key=ids.__getitem__)
        if [ids[token] for token in self.tokens] != list(range(len(ids))):
            raise BertineError(f"{source}: the ids of the vocabulary are not 0..{len(ids) - 1}")
        self.vocab_size = len(self.tokens)
        special = kind.special
        self.pad_token_id: int = ids[special.pad]
        self.unk_token_id: int | None = None if special.unk is None else ids[special.unk]
        self.cls_token_id: int = ids[special.cls]
        self.sep_token_id: int = ids[special.sep]
        self.mask_token_id: int | None = None if special.mask is None else ids[special.mask]
        self.mask_text = special.mask or ""
        self._remembered = self._new_memory()
        self.special_ids = frozenset(ids[token] for token in special.tokens)

        # Files that others have saved may truncate, pad or lack these parts.
        backend.no_truncation()
        backend.no_padding()
        self.template: Template = kind.complete(ids)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy: everything except the lock and the cached words."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_remembered")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._remembered = self._new_memory()

    def _new_memory(self) -> WordCache:
        return WordCache(self._plain, self._kind.special.sep, self.sep_token_id)

    @classmethod
    def from_vocab(
        cls,
        tokens: Sequence[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> Tokenizer:
        """Create a WordPiece tokenizer over `tokens`, whose positions are their ids.

        Args:
            tokens: the vocabulary, ``##`` before pieces inside words; holds `SPECIAL_TOKENS`.
            lowercase: lower-case the text (uncased vocabularies).
            strip_accents: remove accents; None: if `lowercase`.
            split_chinese: make every Chinese character a word.

        Raises:
            BertineError: a token is duplicated, or a special token is missing.
        """
        kind = WordPiece.build(
            tokens,
            lowercase=lowercase,
            strip_accents=strip_accents,
            split_chinese=split_chinese,
            source="vocabulary",
        )
        return cls(kind, "vocabulary")

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        """Read a folder with tokenizer.json, vocab.txt, vocab.json and merges.txt, or a
        sentencepiece Unigram ``.model``; one of these files itself; or a bundled model's tokenizer.

        The settings of tokenizer_config.json for lower case, accents, Chinese characters, or a
        space before a text override tokenizer.json, as in `transformers`. If there is only a
        vocab.txt, it is uncased if no token except those in brackets has a capital letter A-Z.
        Tokens that these files, added_tokens.json and special_tokens_map.json add are added.

        Raises:
            BertineError: nothing can be read, it is not a tokenizer of a known kind, it splits
                words with a program of its own, a token is duplicated, or a special token is
                missing.
        """
        return cls(*read(locate(path, weights=False)))

    def save(
        self,
        folder: Path,
        *,
        model_max_length: int | None = None,
        one_type: bool = False,
        pads_left: bool = False,
    ) -> None:
        """Write the vocabulary, tokenizer.json and tokenizer_config.json into the existing
        `folder`: the files that `transformers` needs.

        For `transformers`, `model_max_length`, the model's number of positions, is the length at
        which it truncates; `one_type` means that the model has one token type, so that none are
        passed to it; `pads_left` is the side on which it pads.
        """
        folder = Path(folder)
        for name, text in self._kind.files(self.tokens).items():
            write_text(folder / name, text)
        write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True) + "\n")
        config = self._kind.config(one_type)
        if model_max_length is not None:
            config["model_max_length"] = model_max_length
        if pads_left:
            config["padding_side"] = "left"
        write_json(folder / "tokenizer_config.json", config)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the vocabulary and the settings, everything that ids depend on."""
        what: list[Any] = [self._kind.settings(), self.tokens]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()

    @cached_property
    def continues(self) -> npt.NDArray[np.bool_]:
        """Whether each piece of the vocabulary continues the word before it, bool [V]: whole-word
        masks use it. Special tokens never do."""
        kind, special = self._kind, self.special_ids
        return np.array(
            [
                index not in special and kind.continues(token)
                for index, token in enumerate(self.tokens)
            ],
            np.bool_,
        )

    @cached_property
    def names(self) -> list[str]:
        """The names of the pieces for people by id, as in :mod:`bertine.tokenization.base`."""
        kind, special = self._kind, self.special_ids
        return [
            token if index in special else kind.name_of(token)
            for index, token in enumerate(self.tokens)
        ]

    def name_at(self, index: int, begins_text: bool) -> str:
        """Return the name of a piece in its context.

        Args:
            index: the id of the piece.
            begins_text: the piece is the first one of a text. If spaces belong to pieces, it has
                none, so that it would look like the continuation of a word.
        """
        name = self.names[index]
        return bare(name) if begins_text and self.keeps_spaces else name

    def put_piece(self, text: str, start: int, end: int, index: int) -> str:
        """Return `text` with the characters [start, end), those of a mask, replaced by a piece."""
        before, name, after = text[:start], self.names[index], text[end:]
        if goes_on(name):
            return before.rstrip() + bare(name) + after
        gap = " " if self.keeps_spaces and before and not before[-1].isspace() else ""
        return before + gap + name + after

    def token_to_id(self, token: str) -> int | None:
        """Return the id of exactly this token (no normalization); None if it is not in the
        vocabulary."""
        return self.backend.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        """Return the token with this id.

        Raises:
            BertineError: there is none.
        """
        if not 0 <= index < self.vocab_size:
            raise BertineError(
                f"token id {index} is out of range; this tokenizer has 0 to {self.vocab_size - 1}"
            )
        return self.tokens[index]

    def require_mask(self, what: str) -> int:
        """Return the id of the mask.

        Raises:
            BertineError: the vocabulary has none, which `what` needs.
        """
        if self.mask_token_id is None:
            raise BertineError(f"{what} needs a mask, which this vocabulary has not")
        return self.mask_token_id

    @property
    def mask_hint(self) -> str:
        """How to write the mask, after "has no [MASK]; "."""
        return "write it, in capitals" if self.mask_text.isupper() else "write it"

    def with_task_tokens(self) -> Tokenizer | None:
        """Return the same tokenizer with special tokens for texts of tasks after its vocabulary;
        None if it has them, or its kind adds none."""
        kind = self._kind.with_task_tokens()
        return None if kind is None else Tokenizer(kind, "vocabulary")

    def extends(self, old: Tokenizer) -> bool:
        """Return whether it has the tokens of `old` with their ids, further tokens after them, and
        reads text in the same way."""
        return (
            self.vocab_size > old.vocab_size
            and self.tokens[: old.vocab_size] == old.tokens
            and self._kind.extends(old._kind)
        )

    def parts_of(self, token: str) -> list[int]:
        """Return the ids of the pieces that make up a `token` of a vocabulary that extends this
        one: the longest first, as in tokenizing; empty if one of its characters is not in this
        vocabulary."""
        return self._kind.parts_of(token, self.token_to_id)

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's pieces, without special tokens, not truncated: the result
        of :meth:`encode_flat` as lists.
        """
        ids, lengths = self.encode_flat(texts)
        flat, ends = ids.tolist(), np.cumsum(lengths).tolist()
        return [flat[begin:end] for begin, end in pairwise([0, *ends])]

    def encode_flat(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the ids of all texts' pieces, without special tokens, not truncated.

        Parts between white space are tokenized independently (with the space before them, if spaces
        belong to pieces), so each is tokenized once and cached: that is several times as fast as
        tokenizing whole texts.

        Returns:
            int32 [pieces], of all texts in order; int64 [N], the number of pieces of each.
        """
        split, whole = self._kind.words(texts)
        with self._lock:
            ids, lengths = self._remembered.encode(split)
        if whole:
            parts = np.split(ids, np.cumsum(lengths)[:-1])
            for number, result in zip(whole, self._plain([texts[i] for i in whole]), strict=True):
                parts[number] = np.array(result, np.int32)
                lengths[number] = len(result)
            ids = np.concatenate(parts)
        return ids, lengths

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize each text as a whole."""
        return [ids for ids, _ in self._bounded.encode(texts, offsets=False)]

    def encode_words(
        self, words: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Tokenize words, each by itself, as in the middle of a text.

        Returns:
            The same as :meth:`encode_flat`.
        """
        return self.encode_flat([self._kind.as_word(word) for word in words])

    def encode_offsets(self, texts: Sequence[str]) -> list[Pieces]:
        """Return the ids of each text's pieces, without special tokens, not truncated, and the
        characters (begin, end), end exclusive, of each piece."""
        return list(self._bounded.encode(texts))

    def encode(
        self, text: str, pair: str | None = None, *, max_length: int | None = None
    ) -> Encoding:
        """Encode one text or pair: :meth:`encode_batch` for one."""
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, max_length=max_length)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
    ) -> list[Encoding]:
        """Encode texts, or pairs of texts, with special tokens. Threaded.

        Pieces beyond `max_length` tokens are cut off at the end: from the longer of the pair, one
        piece at a time, from the second if both are equal (``_truncate_seq_pair`` in
        google-research/bert, ``run_classifier.py``); byte-level BPE truncates like `transformers`.

        Args:
            texts: N texts.
            pairs: None, or the second texts of the N pairs.
            max_length: most tokens including special tokens, at least room for these. None: no
                limit.

        Raises:
            BertineError: `max_length` has no room for the special tokens.
            ValueError: there are not as many pairs as texts.
        """
        room = self._room(texts, pairs, max_length)
        firsts = self._bounded.encode(texts)
        if pairs is None:
            return [self._assemble(first, None, room) for first in firsts]
        seconds = self._bounded.encode(pairs)
        return [self._assemble(a, b, room) for a, b in zip(firsts, seconds, strict=True)]

    def encode_arrays(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
    ) -> list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int8], int]]:
        """Encode like :meth:`encode_batch`, without offsets, in a tenth of its time.

        The arguments and errors are the same.

        Returns:
            For each input the ids int32 [T], the token types int8 [T], and the number of pieces cut
            off.
        """
        room = self._room(texts, pairs, max_length)
        wrap, kept_lengths = self.template.wrap, self._kind.kept_lengths
        firsts = self._split(texts)
        if pairs is None:
            if room is None:
                return [(*wrap(a), 0) for a in firsts]
            return [(*wrap(a[:room]), max(0, len(a) - room)) for a in firsts]
        encoded = []
        for a, b in zip(firsts, self._split(pairs), strict=True):
            cut = 0
            if room is not None and (over := len(a) + len(b) - room) > 0:
                keep_a, keep_b = kept_lengths(len(a), len(b), room)
                a, b, cut = a[:keep_a], b[:keep_b], over
            encoded.append((*wrap(a, b), cut))
        return encoded

    def _split(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """Return the pieces of each text as an array."""
        ids, lengths = self.encode_flat(texts)
        ends = np.cumsum(lengths).tolist()
        return [ids[begin:end] for begin, end in pairwise([0, *ends])]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Convert pieces to text.

        WordPiece pieces are joined into words, and the spaces before punctuation removed; the
        effect of normalization is not reverted. Pieces of byte-level BPE give back the exact text.

        Raises:
            BertineError: an id is out of range.
        """
        ids = [int(index) for index in ids]
        for index in ids:
            self.id_to_token(index)
        return self.backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def show(self, ids: Iterable[int]) -> str:
        """Convert pieces to text for people, including the special tokens."""
        return self._kind.show([int(index) for index in ids])

    def _assemble(self, first: Pieces, second: Pieces | None, room: int | None) -> Encoding:
        texts = [first] if second is None else [first, second]
        lengths = [len(ids) for ids, _ in texts]
        kept = self._kind.kept_lengths(lengths[0], sum(lengths[1:]), room)[: len(texts)]
        frame = self.template.frame(len(texts))
        return Encoding(
            frame.join([ids[:length] for (ids, _), length in zip(texts, kept, strict=True)]),
            frame.segments(kept).tolist(),
            frame.lay([spans[:n] for (_, spans), n in zip(texts, kept, strict=True)], (0, 0)),
            frame.lay([[0] * length for length in kept], 1),
            sum(lengths) - sum(kept),
        )

    def _room(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int | None
    ) -> int | None:
        """Check the arguments of encoding, and return the room for pieces."""
        added = self.template.added(1 if pairs is None else 2)
        if max_length is not None and max_length < added:
            ends = " and ".join(dict.fromkeys((self._kind.special.cls, self._kind.special.sep)))
            raise BertineError(
                f"max_length {max_length} has no room for {ends}; give at least {added}"
            )
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"{len(texts)} texts, but {len(pairs)} pairs")
        return None if max_length is None else max_length - added
