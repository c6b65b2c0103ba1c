"""WordPiece: text to ids and back, as in BERT's published code.

Normalization (control characters removed, Chinese characters set apart, for uncased vocabularies
lower case and no accents), splitting at white space and punctuation, then the longest piece first
(Devlin et al. 2018, section 3; google-research/bert, ``tokenization.py``). The work is done by
Hugging Face's `tokenizers`, so that ids equal those of `transformers`, and of all that is written
for it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.bundled import locate
from bertine.errors import BertineError
from bertine.files import write_json, write_text
from bertine.text import wordpiece
from bertine.text.bounded import BoundedEncoder, Pieces
from bertine.text.remembered import RememberedWords
from bertine.text.wordpiece import SPECIAL_TOKENS

# Imported after `wordpiece`, which says how `tokenizers` is to use threads.
import tokenizers  # isort: skip
from tokenizers import decoders, processors  # isort: skip

# What Python splits at and BERT's normalization removes, so that two words become one.
_JOINING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


@dataclass(slots=True)
class Encoding:
    """One text, or pair of texts, as the model takes it: ``[CLS] text [SEP] (pair [SEP])``.

    Attributes:
        input_ids: T ids.
        token_type_ids: T times 0 (through the first [SEP]) or 1 (the pair and its [SEP]).
        offsets: T pairs (begin, end) of character positions in the text that a token comes from
            (the pair where the type is 1), end exclusive; (0, 0) for the [CLS] and [SEP] added.
        special_tokens_mask: T times 1 for the [CLS] and [SEP] added, else 0.
        num_truncated: pieces cut off to meet `max_length`.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    offsets: list[tuple[int, int]]
    special_tokens_mask: list[int]
    num_truncated: int = 0


class Tokenizer:
    """A WordPiece tokenizer. Make one with :meth:`from_vocab` or :meth:`load`.

    As in `transformers`, the special tokens are recognized in raw text: "[MASK]" is one token.

    Attributes:
        backend: the object of the `tokenizers` library; not to be changed.
        lowercase, strip_accents, split_chinese: the normalization; see :meth:`from_vocab`.
        tokens: the vocabulary; positions are ids.
        vocab_size: how many there are.
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special
            tokens; `special_ids` holds all five.
    """

    def __init__(self, backend: tokenizers.Tokenizer, source: str) -> None:
        """Wrap WordPiece with BERT's normalizer; `source` names it in messages."""
        self.backend = backend
        self.lowercase: bool = backend.normalizer.lowercase
        self.strip_accents: bool | None = backend.normalizer.strip_accents
        self.split_chinese: bool = backend.normalizer.handle_chinese_chars
        self._bounded = BoundedEncoder(backend, self.split_chinese)
        self._lock = threading.Lock()

        ids = backend.get_vocab(with_added_tokens=True)
        wordpiece.check_special_tokens(ids, source)
        self.tokens: list[str] = sorted(ids, key=ids.__getitem__)
        if [ids[token] for token in self.tokens] != list(range(len(ids))):
            raise BertineError(f"{source}: the ids of the vocabulary are not 0..{len(ids) - 1}")
        self.vocab_size = len(self.tokens)
        self.pad_token_id, self.unk_token_id = ids["[PAD]"], ids["[UNK]"]
        self.cls_token_id, self.sep_token_id = ids["[CLS]"], ids["[SEP]"]
        self.mask_token_id = ids["[MASK]"]
        self._remembered = RememberedWords(self._plain, self.sep_token_id)
        self.special_ids = frozenset(ids[token] for token in SPECIAL_TOKENS)

        # Files that others have saved may truncate, pad or lack these parts.
        backend.no_truncation()
        backend.no_padding()
        backend.add_special_tokens(list(SPECIAL_TOKENS))
        backend.decoder = decoders.WordPiece(prefix="##")
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", self.cls_token_id), ("[SEP]", self.sep_token_id)],
        )

    @classmethod
    def from_vocab(
        cls,
        tokens: Sequence[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> Tokenizer:
        """A tokenizer over `tokens`, whose positions are their ids.

        Args:
            tokens: the vocabulary, ``##`` before pieces inside words; holds `SPECIAL_TOKENS`.
            lowercase: lower-case the text (uncased vocabularies).
            strip_accents: remove accents; None: if `lowercase`.
            split_chinese: make every Chinese character a word.

        Raises:
            BertineError: a token is there twice, or a special token is missing.
        """
        backend = wordpiece.build(
            tokens,
            lowercase=lowercase,
            strip_accents=strip_accents,
            split_chinese=split_chinese,
            source="vocabulary",
        )
        return cls(backend, "vocabulary")

    @classmethod
    def load(cls, path: Path | str) -> Tokenizer:
        """Read a folder with tokenizer.json or vocab.txt, a vocab.txt itself, or a bundled model's.

        What tokenizer_config.json says of lower case, accents and Chinese characters goes before
        what tokenizer.json says, as in `transformers`. Where there is only a vocabulary, it is
        uncased if no token but those in brackets has a capital letter A-Z.

        Raises:
            BertineError: nothing there to read, not a WordPiece tokenizer of BERT's kind, a token
                twice, or a special token missing.
        """
        return cls(*wordpiece.read(locate(path)))

    def save(self, folder: Path, *, model_max_length: int | None = None) -> None:
        """Write vocab.txt, tokenizer.json and tokenizer_config.json into the existing `folder`.

        `model_max_length`, the number of positions of the model, tells `transformers` where it is
        to truncate.
        """
        folder = Path(folder)
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in self.tokens))
        write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True) + "\n")
        config: dict[str, Any] = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.split_chinese,
        }
        for token in SPECIAL_TOKENS:
            config[f"{token[1:-1].lower()}_token"] = token
        if model_max_length is not None:
            config["model_max_length"] = model_max_length
        write_json(folder / "tokenizer_config.json", config)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the vocabulary and the normalization: what ids depend on."""
        accents = self.lowercase if self.strip_accents is None else self.strip_accents
        settings = [
            self.lowercase,
            accents,
            self.split_chinese,
            self.backend.normalizer.clean_text,
            self.backend.model.max_input_chars_per_word,
        ]
        return hashlib.sha256(json.dumps([settings, self.tokens]).encode()).hexdigest()

    def token_to_id(self, token: str) -> int | None:
        """The id of exactly this token (no normalization); None if it is not in the vocabulary."""
        return self.backend.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        """The token with this id.

        Raises:
            BertineError: there is none.
        """
        if not 0 <= index < self.vocab_size:
            raise BertineError(
                f"token id {index} is out of range; this tokenizer has 0 to {self.vocab_size - 1}"
            )
        return self.tokens[index]

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the pieces of each text, without special tokens, not truncated.

        The same as :meth:`encode_flat`, as lists.
        """
        ids, lengths = self.encode_flat(texts)
        flat, ends = ids.tolist(), np.cumsum(lengths).tolist()
        return [flat[begin:end] for begin, end in pairwise([0, *ends])]

    def encode_flat(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Ids of the pieces of all texts, without special tokens, not truncated.

        What stands between white space is tokenized by itself, whatever is around it, so it is
        tokenized once and remembered: that is several times as fast as tokenizing all of a text.

        Returns:
            int32 [pieces], of one text after the other; int64 [N], how many pieces each has.
        """
        # Texts that Python would split elsewhere are taken whole.
        whole = [number for number, text in enumerate(texts) if _JOINING.search(text)]
        split = [text.split() for text in texts]
        for number in whole:
            split[number] = []
        with self._lock:
            ids, lengths = self._remembered.encode(split)
        if whole:
            parts = np.split(ids, np.cumsum(lengths)[:-1])
            for number, found in zip(whole, self._plain([texts[i] for i in whole]), strict=True):
                parts[number] = np.array(found, np.int32)
                lengths[number] = len(found)
            ids = np.concatenate(parts)
        return ids, lengths

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, all of it tokenized."""
        return [ids for ids, _ in self._bounded.encode(texts, offsets=False)]

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

        What exceeds `max_length` tokens is cut off at the end: of the longer of the pair, one
        piece after the other, of the second where both are equal (``_truncate_seq_pair`` in
        google-research/bert, ``run_classifier.py``).

        Args:
            texts: N texts.
            pairs: None, or the N seconds of the pairs.
            max_length: tokens with special tokens; at least 2, or 3 for pairs. None: no limit.

        Raises:
            BertineError: `max_length` has no room for the special tokens.
            ValueError: there are not as many pairs as texts.
        """
        _check_inputs(texts, pairs, max_length)
        room = None if max_length is None else max_length - (2 if pairs is None else 3)
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
        """What :meth:`encode_batch` gives, without offsets, in a tenth of its time: of each input
        the ids int32 [T], the token types int8 [T], and how many pieces were cut off. The
        arguments and errors are those of :meth:`encode_batch`."""
        _check_inputs(texts, pairs, max_length)
        room = None if max_length is None else max_length - (2 if pairs is None else 3)
        cls = np.array([self.cls_token_id], np.int32)
        sep = np.array([self.sep_token_id], np.int32)
        firsts = self._split(texts)
        seconds = self._split(pairs) if pairs is not None else None
        made = []
        for number, a in enumerate(firsts):
            b = a[:0] if seconds is None else seconds[number]
            keep_a, keep_b = _longest_first(len(a), len(b), room)
            parts = [cls, a[:keep_a], sep]
            if seconds is not None:
                parts += [b[:keep_b], sep]
            ids = np.concatenate(parts)
            types = np.zeros(len(ids), np.int8)
            types[keep_a + 2 :] = 1
            made.append((ids, types, len(a) + len(b) - keep_a - keep_b))
        return made

    def _split(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """The pieces of each text."""
        ids, lengths = self.encode_flat(texts)
        ends = np.cumsum(lengths).tolist()
        return [ids[begin:end] for begin, end in pairwise([0, *ends])]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of the pieces, joined into words, with the spaces before punctuation removed.

        What normalization removed does not come back.

        Raises:
            BertineError: an id is out of range.
        """
        ids = [int(index) for index in ids]
        for index in ids:
            self.id_to_token(index)
        return self.backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def _assemble(
        self,
        first: Pieces,
        second: Pieces | None,
        room: int | None,
    ) -> Encoding:
        a, a_offsets = first
        b, b_offsets = second if second is not None else ([], [])
        keep_a, keep_b = _longest_first(len(a), len(b), room)
        ids = [self.cls_token_id, *a[:keep_a], self.sep_token_id]
        offsets = [(0, 0), *a_offsets[:keep_a], (0, 0)]
        types = [0] * len(ids)
        mask = [1, *([0] * keep_a), 1]
        if second is not None:
            ids += [*b[:keep_b], self.sep_token_id]
            offsets += [*b_offsets[:keep_b], (0, 0)]
            types += [1] * (keep_b + 1)
            mask += [*([0] * keep_b), 1]
        return Encoding(ids, types, offsets, mask, len(a) + len(b) - keep_a - keep_b)


def _check_inputs(
    texts: Sequence[str], pairs: Sequence[str] | None, max_length: int | None
) -> None:
    specials = 2 if pairs is None else 3
    if max_length is not None and max_length < specials:
        raise BertineError(
            f"max_length {max_length} has no room for [CLS] and [SEP]; give at least {specials}"
        )
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(f"{len(texts)} texts, but {len(pairs)} pairs")


def _longest_first(a: int, b: int, room: int | None) -> tuple[int, int]:
    """Lengths of a pair after cutting to `room`, piece by piece from the longer, of b if equal."""
    if room is None or a + b <= room:
        return a, b
    # Cut the longer down to the other; from there the cuts alternate, b first.
    if a > b:
        a = max(b, room - b)
    else:
        b = max(a, room - a)
    excess = a + b - room
    return a - excess // 2, b - (excess + 1) // 2
