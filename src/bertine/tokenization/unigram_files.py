"""Read Unigram files, and define the families' special tokens, their places, and what a word is.

The algorithm is the same for all families. They differ in a :class:`Layout`, one constant each.
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_bounded
from bertine.core.foreign_files import fields
from bertine.core.names import BYTE_BPE_MASK, WORDPIECE_MASK, SpecialStyle
from bertine.tokenization.base import SpecialTokens, Template

# Table of replacements (charsmap) with which a Unigram tokenizer normalizes text.
#
# It is a double-array trie over UTF-8 bytes whose leaves are positions in a list of texts
# (google/sentencepiece, ``builder.cc``). The library does not check the positions, and panics if
# one does not exist; so all of them are checked here.

_LEAF = np.uint32(1 << 31)


def check_charsmap(raw: bytes, source: object) -> None:
    """Refuse a table with an invalid position.

    Args:
        raw: uint32, the size of the trie in bytes; the trie, a uint32 per node; the texts, each
            followed by a zero byte.
        source: names it in the message.

    Raises:
        BertineError: there is one, or the table is otherwise damaged.
    """
    problem = _problem(raw)
    if problem:
        raise BertineError(
            f"{source}: the table of its normalization (precompiled_charsmap) is damaged "
            f"({problem}); copy or download it again"
        )


def _problem(raw: bytes) -> str:
    """Describe the defect of a table; ``""`` if there is none."""
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or size % 4 or not 4 <= size <= len(raw) - 4:
        return "its size is wrong"
    try:
        texts = raw[4 + size :].decode("utf-8")
    except UnicodeDecodeError:
        return "its texts are not UTF-8"
    trie = np.frombuffer(raw, "<u4", size // 4, 4)
    # The children of a node are at its position changed by its offset and by the byte that leads to
    # them (Darts-clone): all 256 of them are checked.
    inner = np.flatnonzero(trie < _LEAF)
    units = trie[inner].astype(np.int64)
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    children = inner ^ offsets
    if len(children) and int((children | 0xFF).max()) >= len(trie):
        return "a node leads out of it"
    ends = children[(units >> 8 & 1).astype(bool)]
    places = (trie[ends] & ~_LEAF).astype(np.int64)
    starts = np.zeros(len(raw) - 3 - size, np.bool_)
    starts[np.cumsum([0, *(len(character.encode()) for character in texts)])] = True
    if len(places) and (int(places.max()) >= len(starts) or not starts[places].all()):
        return "a leaf leads to no text"
    return ""


# Sentencepiece ``.model`` files, read without `sentencepiece`.
#
# The file is one protobuf message (google/sentencepiece, ``sentencepiece_model.proto``): field 1
# occurs once for each piece, field 2 describes the training, field 3 the normalization. Fields that
# do not affect the ids are skipped. A file cut between two pieces is a complete message too; but
# fields 2 and 3 follow the pieces, so both must exist.

#: Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

#: The pieces of bytes, if there are any.
BYTES = frozenset(f"<0x{value:02X}>" for value in range(256))

#: Most bytes of a file; XLM-R's has five million.
_MAX_BYTES = 64 * 2**20
#: Most pieces of a file, and most characters of one.
_MAX_PIECES, _MAX_CHARACTERS = 2**21, 1024

#: The names of the models by their number in field 3 of the second part.
_MODELS = {1: "Unigram", 2: "BPE", 3: "a list of words", 4: "a list of characters"}


@dataclass(frozen=True)
class Piece:
    """A piece of the vocabulary; its position is its id.

    Attributes:
        text: ``▁`` represents the space before a word.
        score: the logarithm of its probability.
        kind: :data:`NORMAL` and so on.
    """

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class ModelFile:
    """The contents of a ``.model`` file.

    Attributes:
        pieces: the vocabulary.
        charsmap: the normalization's table of replacements; empty if there is none.
        falls_back: whether a character without a piece is written with the pieces of its bytes.
    """

    pieces: tuple[Piece, ...]
    charsmap: bytes
    falls_back: bool


def read_model_file(file: Path) -> ModelFile:
    """Read a ``.model`` file of a Unigram tokenizer.

    Warns if there are fewer pieces than were learnt: some were removed, or lost.

    Raises:
        BertineError: it cannot be read, is truncated or another kind of file, or its model is not
            Unigram, or treats spaces in another way.
    """
    with os_errors(file, "loading the tokenizer"):
        raw = read_bounded(file, _MAX_BYTES)
    if len(raw) > _MAX_BYTES:
        raise BertineError(f"{file}: has more than {_MAX_BYTES:,} bytes, so is no tokenizer")
    pieces: list[Piece] = []
    trainer: bytes | None = None
    normalizer: bytes | None = None
    try:
        for field, value in fields(raw):
            if field == 1:
                pieces.append(_piece(_bytes(value)))
                if len(pieces) > _MAX_PIECES:
                    raise ValueError("too many pieces")
            elif field == 2:
                trainer = (trainer or b"") + _bytes(value)
            elif field == 3:
                normalizer = (normalizer or b"") + _bytes(value)
        if pieces and (trainer is None or normalizer is None):
            raise ValueError(f"it ends after {len(pieces):,} pieces")
        learnt, reading = dict(fields(trainer or b"")), dict(fields(normalizer or b""))
    except ValueError as error:
        raise BertineError(
            f"{file}: truncated, or not a sentencepiece model ({error}); copy or download it again"
        ) from error
    if not pieces:
        raise BertineError(f"{file}: not a sentencepiece model (it has no pieces)")
    count = learnt.get(4, 0)
    if isinstance(count, int) and len(pieces) < count and learnt.get(33, 1):
        logger.warning(
            f"{file}: has {len(pieces):,} pieces, but {count:,} were learnt; is it whole?"
        )
    model = learnt.get(3, 1)
    if model != 1:
        name = _MODELS.get(model if isinstance(model, int) else 0, "another model")
        raise BertineError(
            f"{file}: its model is {name}, not Unigram; Bertine reads Unigram models of "
            "sentencepiece"
        )
    of_bytes = {piece.text for piece in pieces if piece.kind == BYTE}
    falls_back = bool(learnt.get(35, 0) or of_bytes)
    if falls_back and of_bytes != BYTES:
        raise BertineError(
            f"{file}: falls back to bytes, but the pieces of its bytes are not <0x00> to <0xFF>; "
            "copy or download it again"
        )
    # Settings that the library does not support, with the default of the message.
    for wrong, what in (
        (learnt.get(24, 0), "puts spaces behind words"),
        (not reading.get(3, 1), "puts no space before a text"),
        (not reading.get(4, 1), "keeps several spaces in a row"),
        (not reading.get(5, 1), "leaves spaces as they are"),
    ):
        if wrong:
            raise BertineError(f"{file}: {what}, which Bertine does not; give another tokenizer")
    charsmap = reading.get(2, b"")
    return ModelFile(tuple(pieces), charsmap if isinstance(charsmap, bytes) else b"", falls_back)


def _piece(raw: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for number, value in fields(raw):
        if number == 1:
            try:
                text = _bytes(value).decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError("a piece is not UTF-8") from error
        elif number == 2:
            if not isinstance(value, int) or value >= 1 << 32:
                raise ValueError("a score is no number of 32 bits")
            (score,) = struct.unpack("<f", value.to_bytes(4, "little"))
        elif number == 3:
            kind = value if isinstance(value, int) else 0
    if not text or len(text) > _MAX_CHARACTERS or not math.isfinite(score) or not 1 <= kind <= BYTE:
        raise ValueError("a piece is damaged")
    return Piece(text, score, kind)


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field is of another type")
    return value


#: The character of the space before a word.
SPACE = "▁"

#: A piece and the logarithm of its probability.
Scored = tuple[str, float]

#: Characters of scripts without spaces between words: ideographs, kana and bopomofo, Thai, Lao,
#: Tibetan, Burmese, Khmer.
SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003fffd"
)
_SPACELESS = re.compile(f"[{SPACELESS}]")
#: Letters of other scripts, and ASCII marks except ' < = >.
_INSIDE_A_WORD = re.compile(
    rf"(?:(?![{SPACELESS}])[^\W\d_]|[!#$%&()*+,\-./:;?@\[\\\]^_`{{|}}~\"])+"
)


@dataclass(frozen=True)
class Layout:
    """The special tokens of a Unigram vocabulary and its conventions.

    Attributes:
        of: the family, for messages.
        special: the special tokens.
        single, pair: a sequence of one text and of two; each None is a text.
        types: the token type of each entry of `pair`, for `transformers`.
        single_types: the same for `single`; None: they are 0, and segments are as in
            :class:`~bertine.tokenization.base.Template`.
        has_types: whether the models of this vocabulary read token types.
        goes_on: a piece that is not a special token → whether it continues the word before it.
        before: pieces with which a new vocabulary begins, special tokens among them; empty: the
            special tokens.
        settings: further settings for `transformers`.
    """

    of: str
    special: SpecialTokens
    single: tuple[str | None, ...]
    pair: tuple[str | None, ...]
    types: tuple[int, ...]
    has_types: bool
    goes_on: Callable[[str], bool]
    single_types: tuple[int, ...] | None = None
    before: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first_pieces(self) -> tuple[str, ...]:
        """The pieces with which a new vocabulary begins."""
        return self.before or self.special.tokens

    def template(self, ids: Mapping[str, int]) -> Template:
        """Return the places of the special tokens by id."""
        single, pair = (
            tuple(None if token is None else ids[token] for token in entries)
            for entries in (self.single, self.pair)
        )
        sep = ids[self.special.sep]
        if self.single_types is None:
            return Template(single, pair, sep)
        return Template(single, pair, sep, self.single_types, self.types)

    def written(self) -> tuple[str, str]:
        """Return `single` and `pair` in the notation of the `tokenizers` library."""
        texts = iter("AAB")
        single, pair = (
            " ".join(
                f"{token or f'${next(texts)}'}:{kind}"
                for token, kind in zip(entries, types, strict=True)
            )
            for entries, types in (
                (self.single, self.single_types or (0,) * len(self.single)),
                (self.pair, self.types),
            )
        )
        return single, pair


def _goes_on_in_albert(token: str) -> bool:
    """Apply the rule of google-research/albert, ``create_pretraining_data.py``
    (``_is_start_piece_sp``): a piece that begins with a space or ``<`` begins a word, and so does a
    single mark and any piece with a digit or another character outside words.

    There, letters are a to z. Here they are those of every script with spaces between words, which
    makes no difference to the published vocabulary: it has no others without a space.
    """
    if token[0] in (SPACE, "<") or (len(token) == 1 and not token.isalpha()):
        return False
    return _INSIDE_A_WORD.fullmatch(token) is not None


def _goes_on_in_fairseq(token: str) -> bool:
    """Apply the rule of fairseq, the space (``get_whole_word_mask``); in a script without spaces
    between words, every piece is a word."""
    return token[0] != SPACE and not _SPACELESS.match(token)


def _goes_on_in_deberta(token: str) -> bool:
    """Apply the rule of microsoft/DeBERTa, ``spm_tokenizer.py`` (``part_of_whole_word``): a piece
    without a space before it continues a word, unless it is a single mark; here, in a script
    without spaces, every piece is a word."""
    if len(token) == 1 and (
        unicodedata.category(token)[0] in "PCZ" or (token.isascii() and not token.isalnum())
    ):
        return False
    return _goes_on_in_fairseq(token)


def _goes_on_in_xlnet(token: str) -> bool:
    """Apply the rule of zihangdai/xlnet, ``data_utils.py`` (``_is_start_piece``): a piece that
    begins with a space or ``<`` begins a word, and so does a single ASCII mark except ' = >; here,
    in a script without spaces, every piece is a word."""
    if token[0] == "<" or (len(token) == 1 and token in '!"#$%&()*+,-./:;?@[\\]^_`{|}~'):
        return False
    return _goes_on_in_fairseq(token)


ALBERT = Layout(
    of="ALBERT",
    special=SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", WORDPIECE_MASK),
    single=("[CLS]", None, "[SEP]"),
    pair=("[CLS]", None, "[SEP]", None, "[SEP]"),
    types=(0, 0, 0, 1, 1),
    has_types=True,
    goes_on=_goes_on_in_albert,
)

FAIRSEQ = Layout(
    of="XLM-R",
    special=SpecialTokens("<pad>", "<unk>", "<s>", "</s>", BYTE_BPE_MASK),
    single=("<s>", None, "</s>"),
    pair=("<s>", None, "</s>", "</s>", None, "</s>"),
    types=(0, 0, 0, 0, 0, 0),
    has_types=False,
    goes_on=_goes_on_in_fairseq,
)

DEBERTA = Layout(
    of="DeBERTa-v3",
    special=SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", WORDPIECE_MASK),
    single=ALBERT.single,
    pair=ALBERT.pair,
    types=ALBERT.types,
    has_types=True,
    goes_on=_goes_on_in_deberta,
)

XLNET = Layout(
    of="XLNet",
    special=SpecialTokens("<pad>", "<unk>", "<cls>", "<sep>", BYTE_BPE_MASK),
    single=(None, "<sep>", "<cls>"),
    pair=(None, "<sep>", None, "<sep>", "<cls>"),
    types=(0, 0, 1, 1, 2),
    has_types=True,
    goes_on=_goes_on_in_xlnet,
    single_types=(0, 0, 2),
    # In the published order, so that the ids of special tokens are the published ones.
    before=(*("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", BYTE_BPE_MASK, "<eod>", "<eop>"),),
    # Positions are relative, so padding may be anywhere; but transformers' classifier reads the
    # last position.
    settings={"padding_side": "left", "pad_token_type_id": 3},
)

#: The styles of special tokens for a new vocabulary.
STYLES: Mapping[SpecialStyle, Layout] = {"albert": ALBERT, "xlnet": XLNET}

#: In the order in which they are tried: XLNet's vocabularies have fairseq's tokens too.
LAYOUTS = (ALBERT, XLNET, FAIRSEQ, DEBERTA)


def layout_of(tokens: Collection[str], source: str) -> Layout:
    """Determine the family of a vocabulary's special tokens.

    Raises:
        BertineError: they belong to no known tokenizer.
    """
    for layout in LAYOUTS:
        if all(token in tokens for token in layout.special.tokens):
            return layout
    wanted = ", nor ".join(
        f"{layout.of}'s ({' '.join(layout.special.tokens)})" for layout in LAYOUTS
    )
    raise BertineError(
        f"{source}: the vocabulary lacks special tokens: it has neither {wanted}; give a Unigram "
        "tokenizer of one of these"
    )


#: Subtracted from the score of a piece that must not occur in a text.
_UNLIKELY = 100.0


@dataclass(frozen=True)
class Publication:
    """The numbering of the pieces of a family's ``.model`` file.

    Attributes:
        layout: the layout of its special tokens.
        names: the names of its tokenizer's class in `transformers`, and of its model types, which
            distinguish it from others with similar files.
        before: pieces that get the first ids, with their scores.
        left_out: the number of pieces at the beginning of the file that are left out.
        after: pieces that get the last ids if the file lacks them.
        comma: subtracted from the score of a piece that ends in a digit and a comma.
        cleans: whether text is prepared as for ALBERT, in addition to sentencepiece's
            normalization.
        lowercase: whether text is lower-cased if no setting says so; None: no setting is read.
    """

    layout: Layout
    names: tuple[str, ...]
    before: tuple[Scored, ...] = ()
    left_out: int = 0
    after: tuple[Scored, ...] = ()
    comma: float = 0.0
    cleans: bool = False
    lowercase: bool | None = None

    def vocab(self, pieces: Sequence[Piece]) -> list[Scored]:
        """Return the pieces in the order of their ids, with their scores."""
        scored = list(self.before)
        for piece in pieces[self.left_out :]:
            # Unused pieces cannot occur in a text: a word has no space at its end.
            text = f"{piece.text} " if piece.kind == UNUSED else piece.text
            # Pieces of bytes and control marks cannot occur in a text either, except as text with
            # their names: they are made too improbable.
            named = piece.kind == BYTE or (
                piece.kind == CONTROL and text not in self.layout.special.tokens
            )
            score = piece.score - (_UNLIKELY if named else 0.0)
            if self.comma and len(text) > 1 and text[-1] == "," and text[-2].isdigit():
                score -= self.comma
            scored.append((text, score))
        held = {text for text, _ in scored}
        return [*scored, *(entry for entry in self.after if entry[0] not in held)]


#: google-research/albert, ``tokenization.py``: ids are those of the file. A piece like ``▁9,`` is
#: split there, so that the comma is a piece by itself: here it is made too improbable to be chosen
#: (as the converters of `transformers` did).
PUBLISHED_ALBERT = Publication(
    ALBERT, ("albert", "AlbertTokenizer"), comma=_UNLIKELY, cleans=True, lowercase=True
)
#: zihangdai/xlnet, ``prepro_utils.py``: like ALBERT, which adopted it, but cased.
PUBLISHED_XLNET = Publication(
    XLNET, ("xlnet", "XLNetTokenizer"), comma=_UNLIKELY, cleans=True, lowercase=False
)
#: fairseq puts its own four first, in place of the file's first three, and the mask last.
PUBLISHED_XLM_R = Publication(
    FAIRSEQ,
    ("xlm-roberta", "XLMRobertaTokenizer"),
    before=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
    left_out=3,
    after=((BYTE_BPE_MASK, 0.0),),
)
#: CamemBERT's dictionary has the file's three once more; fairseq's own are not used.
PUBLISHED_CAMEMBERT = Publication(
    FAIRSEQ,
    ("camembert", "CamembertTokenizer"),
    before=(
        *(("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0)),
        ("<unk>NOTUSED", -100.0),
    ),
    left_out=1,
    after=((BYTE_BPE_MASK, 0.0),),
)

#: microsoft/DeBERTa, ``spm_tokenizer.py``: ids are those of the file, and the mask is last.
PUBLISHED_DEBERTA = Publication(
    DEBERTA,
    ("deberta-v2", "DebertaV2Tokenizer"),
    after=((WORDPIECE_MASK, 0.0),),
    lowercase=False,
)


def publication_of(pieces: Sequence[Piece], names: Collection[str], source: object) -> Publication:
    """Determine the numbering of the pieces of a ``.model`` file.

    Args:
        pieces: the pieces of the file.
        names: the names of the tokenizer's class and of the model type, from the files next to it.
        source: names the file in messages.

    Raises:
        BertineError: its special tokens belong to no known tokenizer.
    """
    texts = {piece.text for piece in pieces}
    if all(token in texts for token in ALBERT.special.tokens):
        return PUBLISHED_ALBERT
    if all(token in texts for token in XLNET.special.tokens):
        return PUBLISHED_XLNET
    if [piece.text for piece in pieces[:4]] == ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]:
        return PUBLISHED_DEBERTA
    if [piece.text for piece in pieces[:3]] == ["<unk>", "<s>", "</s>"] and not (
        texts & {"<cls>", "<sep>", "<pad>", BYTE_BPE_MASK}
    ):
        of_camembert = any(name in names for name in PUBLISHED_CAMEMBERT.names)
        return PUBLISHED_CAMEMBERT if of_camembert else PUBLISHED_XLM_R
    raise BertineError(
        f"{source}: has neither ALBERT's special tokens ({' '.join(ALBERT.special.tokens)}) nor "
        f"XLNet's ({' '.join(XLNET.special.tokens)}), nor "
        "begins as XLM-R's and CamemBERT's files do (<unk> <s> </s>) or DeBERTa-v3's ([PAD] [CLS] "
        "[SEP] [UNK]); give a tokenizer of one of these"
    )
