"""What the kinds of tokenizers have in common, and what each of them says by itself.

All of them stand on Hugging Face's `tokenizers`. A kind is one file that says how its files are
read, checked and written, where its special tokens stand, how text is divided into words that are
tokenized by themselves, and where a long text may be cut; :class:`bertine.Tokenizer` does the rest.
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

from bertine.core.console import briefly, logger, shortened
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_bounded
from bertine.core.names import TokenizerKind
from bertine.data.streams import EncodingCheck

# Names of pieces, for people: how a table, a page or an answer shows a piece of a word.
#
# A piece that goes on with the word before it has ``##`` in front of its characters, as in BERT's
# vocabularies, whatever its own vocabulary has there: ``un`` and ``##even`` are one word, of
# which RoBERTa's vocabulary has ``Ġun`` and ``even``. These names are what answers and files hold
# (:attr:`bertine.Tokenizer.names`), so that reports can join pieces without the vocabulary they
# are from.

_MARK = "##"


def marked(characters: str) -> str:
    """Return the name of a piece with these characters that goes on with a word."""
    return _MARK + characters


def goes_on(name: str) -> bool:
    """Return whether a piece goes on with the word before it."""
    return len(name) > len(_MARK) and name.startswith(_MARK)


def bare(name: str) -> str:
    """Return the characters of a piece."""
    return name[len(_MARK) :] if goes_on(name) else name


def run_together(names: Iterable[str]) -> str:
    """Join pieces into words, with a space between two words."""
    return "".join(bare(name) if goes_on(name) else f" {name}" for name in names).removeprefix(" ")


# Put the special tokens around one text and around two.
#
# A model reads its texts between special tokens: BERT ``[CLS] a [SEP] b [SEP]``, RoBERTa ``<s> a
# </s></s> b </s>``, GPT-1 ``_start_ a _delimiter_ b _classify_``, XLNet ``a <sep> b <sep>
# <cls>``. A :class:`Template` says where they stand. Whoever needs a sequence, its length, its
# segments or the place of a text in it asks the template, and counts nothing.

Ids = npt.NDArray[np.int32]
Segments = npt.NDArray[np.int8]
T = TypeVar("T")


@dataclass(frozen=True)
class Frame:
    """The special tokens of a sequence that is made of a number of texts.

    Attributes:
        before: ids in front of the first text.
        between: ids between two texts that follow each other.
        after: ids behind the last text.
        marks: the segment of each of these ids and of each text, in the order of the sequence;
            None: 0 throughout.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    marks: tuple[int, ...] | None = None

    def added(self, texts: int = 1) -> int:
        """Count the special tokens of a sequence of `texts` texts."""
        return len(self.before) + (texts - 1) * len(self.between) + len(self.after)

    def starts(self, lengths: Sequence[int]) -> list[int]:
        """Return the place of each text's first piece in a sequence of texts of these lengths."""
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
        """Return a sequence of values: those of each text's pieces, and `special` in the place of
        each special token."""
        values = [special] * len(self.before)
        for number, text in enumerate(texts):
            values += [special] * (len(self.between) if number else 0)
            values += text
        return values + [special] * len(self.after)

    def segments(self, lengths: Sequence[int]) -> Segments:
        """Return the segment (token type) of each place of a sequence of texts of these lengths."""
        total = sum(lengths) + self.added(len(lengths))
        if self.marks is None:
            return np.zeros(total, np.int8)
        return np.repeat(np.array(self.marks, np.int8), self.lay([[n] for n in lengths], 1))


@dataclass(frozen=True)
class Template:
    """The places of the special tokens of a vocabulary; each None is a text.

    Segments are counted for every template, whether or not a model reads them: 0 is the first text
    with the special tokens before and behind it, 1 begins at the first piece of the second text.
    (So of RoBERTa's two separators both belong to the first text.) A model that has them otherwise
    names them.

    Attributes:
        single: the sequence of one text.
        pair: the sequence of two texts.
        separator: stands between two stretches of running text, the end of one document and the
            beginning of the next, in a sequence of pre-training; None: nothing does.
        single_segments: the segment of each entry of `single`; None: as above.
        pair_segments: the segment of each entry of `pair`; None: as above.

    Raises:
        ValueError: there is not one text in `single`, not two in `pair`, or not a segment for each
            entry.
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
        """Whether nothing stands before a text, so that the token whose state stands for the whole
        sequence is the last one, and not the first."""
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
        """The id that the sequence of a single text begins with; None: it begins with the text."""
        return self.one.before[0] if self.one.before else None

    @property
    def last_id(self) -> int | None:
        """The id that the sequence of a single text ends with; None: it ends with the text."""
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
        """The special tokens around running text of one document or of several, all of it one
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
            second: those of the second text of a pair.

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


# `tokenizers` warns at every fork after its threads have been used, unless this variable is set;
# and threads that did not survive a fork would be waited for without end. So: threads here (unless
# the user says otherwise), none in a child made by fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=lambda: os.environ.__setitem__("TOKENIZERS_PARALLELISM", "false")
    )


#: Bytes of a file of tokens or of merges; a vocab.txt with a million pieces has about 10 MB.
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary, by what they are for.

    Attributes:
        pad: fills short sequences.
        unk: stands for what the vocabulary has not; None: it has everything.
        cls: the state of its place stands for the whole sequence.
        sep: ends a text.
        mask: hides a token; None: the models of this vocabulary fill no masks.
        start: begins a sequence, where `cls` does not; None: it does, or nothing does.
    """

    pad: str
    unk: str | None
    cls: str
    sep: str
    mask: str | None
    start: str | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """Each of them once."""
        named = (self.pad, self.unk, self.cls, self.sep, self.mask, self.start)
        return tuple(dict.fromkeys(token for token in named if token is not None))


class Kind(ABC):
    """One kind of tokenizer, with a vocabulary and settings.

    Attributes:
        name: of the kind, as the command line says it.
        title: of the kind, for people.
        model: the name of its model in a tokenizer.json.
        vocabularies: the files that together make a folder readable without a tokenizer.json, or
            each of several such groups.
        suffix: the ending of other files' names that are read as the first of these; "": none.
        keeps_spaces: whether the space before a word is a part of the word's first piece, so that
            a text has other pieces in the middle of a text than by itself.
        backend: the object of the `tokenizers` library; not to be changed.
        special: the special tokens.
        cut: matches where a text may be cut in two without a change to its pieces: the first part
            ends where the match does.
        lowercase, strip_accents, split_chinese: the normalization, where there is one.
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
        """Return whether the contents of a tokenizer.json are of this kind, and not of another one
        with the same :attr:`model`."""
        model = value.get("model")
        return isinstance(model, dict) and model.get("type") == cls.model

    @classmethod
    def is_of_files(cls, path: Path) -> bool:
        """Return whether the files of :attr:`vocabularies` in a folder, or one of them, are of this
        kind, and not of another one that calls its files alike."""
        return True

    @classmethod
    @abstractmethod
    def from_json(cls, file: Path, value: dict[str, Any], config: dict[str, Any]) -> Kind:
        """Make the kind of a tokenizer.json.

        Args:
            file: its path, for messages.
            value: its contents; may be changed.
            config: the contents of the tokenizer_config.json beside it, which goes before.

        Raises:
            BertineError: it is not of this kind, or something in it cannot be used.
        """

    @classmethod
    @abstractmethod
    def from_vocabulary(cls, path: Path, config: dict[str, Any]) -> tuple[Kind, Path]:
        """Make the kind of one of :attr:`vocabularies` in a folder, or of the first of its files.

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
        """Return whether a token that is not special goes on with the word before it."""

    @abstractmethod
    def name_of(self, token: str) -> str:
        """Return the name of a token that is not special."""

    @abstractmethod
    def words(self, texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
        """Divide texts into words that have the same pieces whatever stands around them.

        Returns:
            The words of each text, and the numbers of texts that cannot be divided, which have
            none.
        """

    @property
    def encoder(self) -> tokenizers.Tokenizer:
        """The object of the library that tokenizes what :meth:`prepared` returns."""
        return self.backend

    def prepared(self, texts: Sequence[str]) -> Sequence[str]:
        """Return what is given to the library for each text."""
        return texts

    def as_word(self, word: str) -> str:
        """Return the text whose pieces are those that `word` has in the middle of a text."""
        return word

    def shortened(self, part: str) -> str:
        """Return a text with the same pieces as `part`, which is long, at less cost if there is
        one."""
        return part

    def spans(
        self, ids: Sequence[int], offsets: list[tuple[int, int]], text: str
    ) -> list[tuple[int, int]]:
        """Return the characters (begin, end) of `text` that each piece comes from, given what the
        library says of them."""
        return offsets

    def kept_lengths(self, first: int, second: int, room: int | None) -> tuple[int, int]:
        """Tell how many pieces of each text of a pair are kept where there is `room` for so many;
        `second` is 0 for single texts."""
        return longest_first(first, second, room)

    @abstractmethod
    def show(self, ids: Sequence[int]) -> str:
        """Return the text of some pieces for people, special tokens included."""

    @abstractmethod
    def settings(self) -> list[Any]:
        """Return what ids depend on besides the tokens, as JSON values."""

    @abstractmethod
    def files(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the files of the vocabulary, by name."""

    @abstractmethod
    def config(self, one_type: bool = False) -> dict[str, Any]:
        """Return what `transformers` wants in a tokenizer_config.json.

        Args:
            one_type: the model has one token type, so that it is to be given none.
        """

    def with_task_tokens(self) -> Kind | None:
        """Return the same vocabulary, and behind it the special tokens that stand around texts and
        between them; None: it has them, or its kind adds none."""
        return None

    def extends(self, other: Kind) -> bool:
        """Return whether a vocabulary that begins with that of `other` reads text as it does."""
        return False

    def parts_of(self, token: str, known: Callable[[str], int | None]) -> list[int]:
        """Return the ids of the pieces that make up the `token` of another vocabulary; empty where
        they do not.

        Args:
            token: of a vocabulary that extends this one.
            known: the id of a token in this one.
        """
        return []


def longest_first(first: int, second: int, room: int | None) -> tuple[int, int]:
    """Cut the longer of two texts to fit, one piece after the other, the second where both are
    equal (``_truncate_seq_pair`` in google-research/bert, ``run_classifier.py``).

    Returns:
        How many pieces of each are kept.
    """
    if room is None or first + second <= room:
        return first, second
    # Cut the longer down to the other; from there the cuts alternate, the second first.
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
        what: needs them, in words.
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
    """Check the ids by token of a file.

    Raises:
        BertineError: they are none.
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
    """Check settings of the tokenizer_config.json beside `file`.

    Raises:
        BertineError: one is given that is neither true nor false.
    """
    for name in names:
        if not isinstance(config.get(name), bool | None):
            raise BertineError(
                f"{file.parent / 'tokenizer_config.json'}: {name} is {briefly(config[name])}, but "
                "must be true, false or null"
            )


def state_of(part: Any) -> dict[str, Any] | None:
    """Return the JSON values of a normalizer or pre-tokenizer of the library; None of none."""
    if part is None:
        return None
    value: dict[str, Any] = json.loads(part.__getstate__())
    return value


def override(file: Path, part: dict[str, Any], key: str, name: str, value: Any) -> None:
    """Put what tokenizer_config.json has under `name` into a part of a tokenizer.json, with a
    warning where the two differ."""
    if value != part.get(key):
        logger.warning(
            f"{file.parent}: tokenizer_config.json has {name} {value}, "
            f"tokenizer.json {briefly(part.get(key))}; the former is used"
        )
        part[key] = value


def read_lines(file: Path, what: str, name: str) -> list[str]:
    """Read the lines of a file of the vocabulary.

    Args:
        what: is in it, and `name` the usual name of such a file, for messages.

    Raises:
        BertineError: it cannot be read, or is not UTF-8.
    """
    with os_errors(file, f"loading the {what}"):
        try:
            return read_bounded(file, _MAX_BYTES).decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            EncodingCheck(file).damaged(file)
            raise BertineError(f"{file}: not UTF-8 text ({error.reason}); give a {name}") from error


def divides_words(value: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer.json with BPE marks the ends of words, and is of no bytes."""
    before = value.get("pre_tokenizer")
    of_bytes = isinstance(before, dict) and before.get("type") == "ByteLevel"
    return bool(value["model"].get("end_of_word_suffix")) and not of_bytes


def read_merges(file: Path) -> list[tuple[str, str]]:
    """Read a merges.txt: pairs of tokens, the first to be merged first.

    Raises:
        BertineError: it cannot be read, or a line is no pair.
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
        BertineError: they are no list of tokens.
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
    """Make the object of the library from the contents of a tokenizer.json, which are changed.

    Raises:
        BertineError: the library refuses it.
    """
    # Given anew in any case (:class:`bertine.Tokenizer`). What a file says of padding may ask the
    # library for more memory than there is, which ends the process.
    for part in ("truncation", "padding", "post_processor", "decoder"):
        value[part] = None
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(value))
    except Exception as error:  # `tokenizers` raises nothing more exact
        raise BertineError(f"{file}: not a tokenizer ({error})") from error
