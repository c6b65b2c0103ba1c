"""Define what all kinds of tokenizers share: piece names, templates, and the class `Kind`.

All kinds use Hugging Face's `tokenizers`. A kind defines how its files are read, checked and
written, where its special tokens are placed, how text is split into independently tokenized
words, and where a long text may be cut; :class:`bertine.Tokenizer` does the rest.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import tokenizers

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_bounded
from bertine.core.names import TokenizerKind
from bertine.core.text import briefly, shortened
from bertine.data.streams import check_encoding

# Names of pieces, for people: how a table, a page or an answer shows a piece of a word.
#
# A piece that continues the word before it has ``##`` before its characters, as in BERT's
# vocabularies, regardless of its own vocabulary: ``un`` and ``##even`` are one word; RoBERTa's
# vocabulary has ``Ġun`` and ``even``. Answers and files hold these names
# (:attr:`bertine.Tokenizer.names`), so that reports can join pieces without the vocabulary.

_MARK = "##"


def marked(characters: str) -> str:
    """Return the name of a piece with these characters that continues a word."""
    return _MARK + characters


def goes_on(name: str) -> bool:
    """Return whether a piece continues the word before it."""
    return len(name) > len(_MARK) and name.startswith(_MARK)


def bare(name: str) -> str:
    """Return the characters of a piece."""
    return name[len(_MARK) :] if goes_on(name) else name


def run_together(names: Iterable[str]) -> str:
    """Join pieces into words, separated by spaces."""
    return "".join(bare(name) if goes_on(name) else f" {name}" for name in names).removeprefix(" ")


# Templates: put the special tokens around one text and around two.
#
# A model reads its texts between special tokens: BERT ``[CLS] a [SEP] b [SEP]``, RoBERTa ``<s> a
# </s></s> b </s>``, GPT-1 ``_start_ a _delimiter_ b _classify_``, XLNet ``a <sep> b <sep>
# <cls>``. A :class:`Template` holds their places. Code that needs a sequence, its length, its
# segments or the position of a text in it asks the template.

Ids = npt.NDArray[np.int32]
Segments = npt.NDArray[np.int8]
T = TypeVar("T")


@dataclass(frozen=True)
class Frame:
    """The special tokens of a sequence of a given number of texts.

    Attributes:
        before: ids before the first text.
        between: ids between two consecutive texts.
        after: ids after the last text.
        marks: the segment of each of these ids and of each text, in the order of the sequence;
            None: 0 for all.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    marks: tuple[int, ...] | None = None

    def added(self, texts: int = 1) -> int:
        """Count the special tokens of a sequence of `texts` texts."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def starts(self, lengths: Sequence[int]) -> list[int]:
        """Return the position of each text's first piece in a sequence of texts of these
        lengths."""
        places, place = [], len(self.before)
        for length in lengths:
            places.append(place)
            place += length + len(self.between)
        return places

    def arrays(
        self, dtype: npt.DTypeLike = np.int32
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return :attr:`before`, :attr:`between` and :attr:`after` as arrays."""
        before, between, after = (
            np.array(ids, dtype) for ids in (self.before, self.between, self.after)
        )
        return before, between, after

    def join(self, texts: Sequence[Sequence[int]]) -> list[int]:
        """Return the ids of a sequence of texts."""
        ids = list(self.before)
        for number, text in enumerate(texts):
            ids += self.between if number else ()
            ids += text
        return ids + list(self.after)

    def lay(self, texts: Sequence[Sequence[T]], special: T) -> list[T]:
        """Return a sequence of values: those of each text's pieces, and `special` for each special
        token."""
        values = [special] * len(self.before)
        for number, text in enumerate(texts):
            values += [special] * (len(self.between) if number else 0)
            values += text
        return values + [special] * len(self.after)

    def segments(self, lengths: Sequence[int]) -> Segments:
        """Return the segment (token type) of each position in a sequence of texts of these
        lengths."""
        total = sum(lengths) + self.added(len(lengths))
        if self.marks is None:
            return np.zeros(total, np.int8)
        return np.repeat(np.array(self.marks, np.int8), self.lay([[n] for n in lengths], 1))


@dataclass(frozen=True)
class Template:
    """The places of a vocabulary's special tokens; each None is a text.

    Segments are defined for every template, even if a model does not read them: 0 is the first text
    with the special tokens before and after it, 1 begins at the first piece of the second text.
    (So both of RoBERTa's separators belong to the first text.) A model with other segments names
    them.

    Attributes:
        single: the sequence of one text.
        pair: the sequence of two texts.
        separator: the token between two stretches of running text, the end of one document and the
            beginning of the next, in a sequence of pre-training; None: no token.
        single_segments: the segment of each entry of `single`; None: as above.
        pair_segments: the segment of each entry of `pair`; None: as above.

    Raises:
        ValueError: `single` does not have one text, `pair` does not have two, or the segments do
            not match the entries.
    """

    single: tuple[int | None, ...]
    pair: tuple[int | None, ...]
    separator: int | None = None
    single_segments: tuple[int, ...] | None = None
    pair_segments: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for entries, segments, texts in (
            (self.single, self.single_segments, 1),
            (self.pair, self.pair_segments, 2),
        ):
            if entries.count(None) != texts:
                raise ValueError(f"{entries} has {entries.count(None)} texts, not {texts}")
            if segments is not None and len(segments) != len(entries):
                raise ValueError(f"{len(segments)} segments, but {len(entries)} entries")

    @property
    def sums_up_at_end(self) -> bool:
        """Whether no token precedes a text, so that the last token's state, and not the first
        one's, represents the whole sequence."""
        return self.single[0] is None

    @cached_property
    def one(self) -> Frame:
        """The special tokens around one text."""
        place = self.single.index(None)
        return Frame(
            _ids(self.single[:place]), (), _ids(self.single[place + 1 :]), self.single_segments
        )

    @property
    def first_id(self) -> int | None:
        """The first id of a sequence of one text; None if it begins with the text."""
        return self.one.before[0] if self.one.before else None

    @property
    def last_id(self) -> int | None:
        """The last id of a sequence of one text; None if it ends with the text."""
        return self.one.after[-1] if self.one.after else None

    @cached_property
    def two(self) -> Frame:
        """The special tokens around two texts."""
        first = self.pair.index(None)
        second = self.pair.index(None, first + 1)
        marks = self.pair_segments or (0,) * second + (1,) * (len(self.pair) - second)
        before, after = _ids(self.pair[:first]), _ids(self.pair[second + 1 :])
        return Frame(before, _ids(self.pair[first + 1 : second]), after, marks)

    @cached_property
    def running(self) -> Frame:
        """The special tokens around running text of one or several documents, all of one
        segment."""
        between = () if self.separator is None else (self.separator,)
        return Frame(self.one.before, between, self.one.after)

    def frame(self, texts: int) -> Frame:
        """Return :attr:`one` or :attr:`two`."""
        return self.one if texts == 1 else self.two

    def added(self, texts: int = 1) -> int:
        """Count the special tokens around one text or two."""
        return self.frame(texts).added(texts)

    def wrap(self, first: Ids, second: Ids | None = None) -> tuple[Ids, Segments]:
        """Put the special tokens around one text or two.

        Args:
            first: the ids of a text's pieces.
            second: the ids of the second text of a pair.

        Returns:
            The ids of the sequence, int32, and its segments, int8.
        """
        if second is None:
            before, _, after = self._around_one
            ids = np.concatenate((before, first, after))
            if self.single_segments is None:
                return ids, np.zeros(len(ids), np.int8)
            return ids, self.one.segments((len(first),))
        before, between, after = self._around_two
        ids = np.concatenate((before, first, between, second, after))
        if self.pair_segments is None:
            segments = np.zeros(len(ids), np.int8)
            segments[len(before) + len(first) + len(between) :] = 1
            return ids, segments
        return ids, self.two.segments((len(first), len(second)))

    @cached_property
    def _around_one(self) -> tuple[Ids, Ids, Ids]:
        return self.one.arrays()

    @cached_property
    def _around_two(self) -> tuple[Ids, Ids, Ids]:
        return self.two.arrays()


def _ids(entries: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(index for index in entries if index is not None)


# `tokenizers` warns at every fork after its threads have been used unless this variable is set,
# and a child would wait forever for threads that do not survive a fork. So threads are enabled here
# (unless the user disables them) and disabled in a forked child.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=lambda: os.environ.__setitem__("TOKENIZERS_PARALLELISM", "false")
    )


#: Most bytes of a file of tokens or merges; a vocab.txt with a million pieces has about 10 MB.
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary, by purpose.

    Attributes:
        pad: fills short sequences.
        unk: represents text that the vocabulary lacks; None: it lacks nothing.
        cls: its state represents the whole sequence.
        sep: ends a text.
        mask: hides a token; None: models with this vocabulary do not fill masks.
        start: begins a sequence, if `cls` does not; None: `cls` does, or no token does.
    """

    pad: str
    unk: str | None
    cls: str
    sep: str
    mask: str | None
    start: str | None = None

    @property
    def named(self) -> dict[str, str | None]:
        """The tokens by their keys in tokenizer_config.json."""
        names = ("cls", "sep", "unk", "pad", "mask")
        return {f"{name}_token": getattr(self, name) for name in names}

    @property
    def tokens(self) -> tuple[str, ...]:
        """The special tokens without duplicates."""
        named = (self.pad, self.unk, self.cls, self.sep, self.mask, self.start)
        return tuple(dict.fromkeys(token for token in named if token is not None))


class Kind(ABC):
    """A kind of tokenizer, with a vocabulary and settings.

    Attributes:
        name: of the kind, as on the command line.
        title: of the kind, for people.
        model: the name of its model in a tokenizer.json.
        vocabularies: groups of files, each of which makes a folder readable without a
            tokenizer.json.
        suffix: the suffix of files with other names that are read as the first of these; "": none.
        keeps_spaces: whether the space before a word belongs to the word's first piece, so that the
            first word of a text has other pieces than in the middle of a text.
        backend: the object of the `tokenizers` library; not to be changed.
        special: the special tokens.
        cut: matches where a text may be cut in two without a change to its pieces: the first part
            ends where the match does.
        lowercase, strip_accents, split_chinese: the normalization, if there is one.
    """

    name: ClassVar[TokenizerKind]
    title: ClassVar[str]
    model: ClassVar[str]
    vocabularies: ClassVar[tuple[tuple[str, ...], ...]]
    suffix: ClassVar[str] = ""
    keeps_spaces: ClassVar[bool]

    special: SpecialTokens
    cut: re.Pattern[str]
    lowercase: bool = False
    strip_accents: bool | None = False
    split_chinese: bool = False

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend

    @classmethod
    def is_of_json(cls, value: Mapping[str, Any]) -> bool:
        """Return whether the contents of a tokenizer.json are of this kind, not of another one with
        the same :attr:`model`."""
        model = value.get("model")
        return isinstance(model, dict) and model.get("type") == cls.model

    @classmethod
    def is_of_files(cls, path: Path) -> bool:
        """Return whether the files of :attr:`vocabularies` in a folder, or one of them, are of this
        kind, not of another one with the same file names."""
        return True

    @classmethod
    @abstractmethod
    def from_json(cls, file: Path, value: dict[str, Any], config: dict[str, Any]) -> Kind:
        """Create the kind from a tokenizer.json.

        Args:
            file: its path, for messages.
            value: its contents; may be changed.
            config: the contents of the tokenizer_config.json in the same folder, which takes
                precedence.

        Raises:
            BertineError: it is not of this kind, or something in it cannot be used.
        """

    @classmethod
    @abstractmethod
    def from_vocabulary(cls, path: Path, config: dict[str, Any]) -> tuple[Kind, Path]:
        """Create the kind from one of :attr:`vocabularies` in a folder, or from the first of its
        files.

        Returns:
            The kind, and the file that messages name.

        Raises:
            BertineError: they cannot be read, or something in them cannot be used.
        """

    @abstractmethod
    def complete(self, ids: Mapping[str, int]) -> Template:
        """Give the backend the parts that files may lack: special tokens, decoder and template.

        Args:
            ids: of all tokens.
        """

    @abstractmethod
    def continues(self, token: str) -> bool:
        """Return whether a token that is not special continues the word before it."""

    @abstractmethod
    def name_of(self, token: str) -> str:
        """Return the name of a token that is not special."""

    @abstractmethod
    def words(self, texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
        """Split texts into words that have the same pieces regardless of their neighbours.

        Returns:
            The words of each text, and the indices of texts that cannot be split, which have none.
        """

    @property
    def encoder(self) -> tokenizers.Tokenizer:
        """The library's object that tokenizes the result of :meth:`prepared`."""
        return self.backend

    def prepared(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the text to give to the library for each text."""
        return texts

    def as_word(self, word: str) -> str:
        """Return the text whose pieces are those of `word` in the middle of a text."""
        return word

    def shortened(self, part: str) -> str:
        """Return a cheaper text with the same pieces as `part`, which is long, if there is one."""
        return part

    def spans(
        self, ids: Sequence[int], offsets: list[tuple[int, int]], text: str
    ) -> list[tuple[int, int]]:
        """Return the characters (begin, end) of `text` for each piece, given the library's
        offsets."""
        return offsets

    def kept_lengths(self, first: int, second: int, room: int | None) -> tuple[int, int]:
        """Return how many pieces of each text of a pair are kept if there is `room` for this
        number; `second` is 0 for single texts."""
        return longest_first(first, second, room)

    @abstractmethod
    def show(self, ids: Sequence[int]) -> str:
        """Return the text of some pieces for people, special tokens included."""

    @abstractmethod
    def settings(self) -> list[Any]:
        """Return the settings that ids depend on, in addition to the tokens, as JSON values."""

    @abstractmethod
    def files(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the files of the vocabulary, by name."""

    @abstractmethod
    def config(self, one_type: bool = False) -> dict[str, Any]:
        """Return the tokenizer_config.json that `transformers` needs.

        Args:
            one_type: the model has one token type, so no token types are to be passed to it.
        """

    def with_task_tokens(self) -> Kind | None:
        """Return the same vocabulary, followed by the special tokens around and between texts; None
        if it has them, or its kind adds none."""
        return None

    def extends(self, other: Kind) -> bool:
        """Return whether a vocabulary that begins with that of `other` reads text as it does."""
        return False

    def parts_of(self, token: str, known: Callable[[str], int | None]) -> list[int]:
        """Return the ids of the pieces that make up the `token` of another vocabulary; empty if
        they do not make it up.

        Args:
            token: a token of a vocabulary that extends this one.
            known: returns the id of a token in this vocabulary.
        """
        return []


def longest_first(first: int, second: int, room: int | None) -> tuple[int, int]:
    """Cut the longer of two texts to fit, one piece at a time, the second if both are equal
    (``_truncate_seq_pair`` in google-research/bert, ``run_classifier.py``).

    Returns:
        The number of pieces of each that are kept.
    """
    if room is None or first + second <= room:
        return first, second
    # Cut the longer down to the other; then the cuts alternate, the second first.
    if first > second:
        first = max(second, room - second)
    else:
        second = max(first, room - first)
    excess = first + second - room
    return first - excess // 2, second - (excess + 1) // 2


def check_special_tokens(
    tokens: Iterable[str], needed: Sequence[str], what: str, source: str
) -> None:
    """Refuse a vocabulary without a special token.

    Args:
        needed: the special tokens.
        what: what needs them, in words.
        source: names the vocabulary in the message.

    Raises:
        BertineError: one is missing.
    """
    held = set(tokens)
    missing = [token for token in needed if token not in held]
    if missing:
        raise BertineError(
            f"{source}: the vocabulary lacks the special token{'s' * (len(missing) > 1)} "
            f"{' '.join(missing)}; {what} needs {' '.join(needed)}, each once"
        )


def check_vocab(file: Path, vocab: Any) -> dict[str, int]:
    """Check a file's mapping of tokens to ids.

    Raises:
        BertineError: they are not valid.
    """
    if not isinstance(vocab, dict) or not vocab:
        raise BertineError(f"{file}: vocab in its model must be an object of ids by token")
    wrong = next((token for token, index in vocab.items() if type(index) is not int), None)
    if wrong is not None:
        raise BertineError(
            f"{file}: the id of the token {briefly(wrong)} is {briefly(vocab[wrong])}, but must be "
            "a whole number"
        )
    return vocab


def check_part(
    file: Path, value: dict[str, Any], part: str, wanted: str, hint: str
) -> dict[str, Any]:
    """Return a part of a tokenizer.json that must be of the type `wanted`.

    Raises:
        BertineError: it is missing or of another type; `hint` says what to do.
    """
    content = value.get(part)
    kind = content.get("type") if isinstance(content, dict) else None
    if not isinstance(content, dict) or kind != wanted:
        raise BertineError(
            f"{file}: its {part} is {shortened(str(kind or 'missing'), 80)}, not {wanted}; {hint}"
        )
    return content


def check_switches(file: Path, config: dict[str, Any], names: Iterable[str]) -> None:
    """Check settings of the tokenizer_config.json next to `file`.

    Raises:
        BertineError: a setting is neither true nor false.
    """
    for name in names:
        if not isinstance(config.get(name), bool | None):
            raise BertineError(
                f"{file.parent / 'tokenizer_config.json'}: {name} is {briefly(config[name])}, but "
                "must be true, false or null"
            )


def state_of(part: Any) -> dict[str, Any] | None:
    """Return the JSON values of a normalizer or pre-tokenizer of the library; None for None."""
    if part is None:
        return None
    value: dict[str, Any] = json.loads(part.__getstate__())
    return value


def override(file: Path, part: dict[str, Any], key: str, name: str, value: Any) -> None:
    """Set a part of a tokenizer.json to the value of `name` in tokenizer_config.json, with a
    warning if the two differ."""
    if value != part.get(key):
        logger.warning(
            f"{file.parent}: tokenizer_config.json has {name} {value}, "
            f"tokenizer.json {briefly(part.get(key))}; the former is used"
        )
        part[key] = value


def read_lines(file: Path, what: str, name: str) -> list[str]:
    """Read the lines of a vocabulary file.

    Args:
        what: the file's contents, and `name` the usual name of such a file, for messages.

    Raises:
        BertineError: it cannot be read, or is not UTF-8.
    """
    with os_errors(file, f"loading the {what}"):
        try:
            return read_bounded(file, _MAX_BYTES).decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            check_encoding(file, file, readable=False)
            raise BertineError(f"{file}: not UTF-8 text ({error.reason}); give a {name}") from error


def divides_words(value: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer.json with BPE marks the ends of words and is not byte-level."""
    before = value.get("pre_tokenizer")
    of_bytes = isinstance(before, dict) and before.get("type") == "ByteLevel"
    return bool(value["model"].get("end_of_word_suffix")) and not of_bytes


def read_merges(file: Path) -> list[tuple[str, str]]:
    """Read a merges.txt: pairs of tokens, the first to be merged first.

    Raises:
        BertineError: it cannot be read, or a line is not a pair.
    """
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(file, "merges", "merges.txt"), 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2 or not all(pair):
            raise BertineError(
                f"{file}:{number}: must hold two tokens with a space between them, but is "
                f"{briefly(line)}"
            )
        merges.append((pair[0], pair[1]))
    return merges


def check_added_tokens(file: Path, tokens: Any) -> None:
    """Check the ``added_tokens`` of a tokenizer.json.

    Raises:
        BertineError: they are not a list of tokens.
    """
    for token in [] if tokens is None else tokens if isinstance(tokens, list) else [None]:
        if (
            not isinstance(token, dict)
            or type(token.get("id")) is not int
            or not isinstance(token.get("content"), str)
            or not token["content"]
        ):
            raise BertineError(
                f"{file}: added_tokens must be a list of objects with an id and a content that is "
                "not empty"
            )


def backend_of(file: Path, value: dict[str, Any]) -> tokenizers.Tokenizer:
    """Create the library's object from the contents of a tokenizer.json, which are changed.

    Raises:
        BertineError: the library refuses it.
    """
    # Always set again later (:class:`bertine.Tokenizer`). A file's padding settings may make the
    # library request more memory than there is, which ends the process.
    for part in ("truncation", "padding", "post_processor", "decoder"):
        value[part] = None
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(value))
    except Exception as error:  # `tokenizers` raises no narrower class
        raise BertineError(f"{file}: not a tokenizer ({error})") from error
