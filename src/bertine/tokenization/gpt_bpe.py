"""Tokenize by BPE over words, as GPT-1 does.

A text is lower-cased and split into words and marks; ``</w>`` follows the last character of a word,
and in each word the pair of pieces that was learnt first is merged, until no pair is known
(Sennrich et al. 2016; openai/finetune-transformer-lm, ``text_utils.py``).

The published code splits with ftfy and spaCy, transformers splits as BERT does. The
tokenizer_config.json of a vocabulary says which of the two applies; if it does not, OpenAI's
vocabulary is read with the former if the packages are installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object
from bertine.core.names import TokenizerKind
from bertine.core.text import briefly
from bertine.tokenization.base import (
    Kind,
    SpecialTokens,
    Template,
    backend_of,
    check_part,
    check_special_tokens,
    check_vocab,
    divides_words,
    read_merges,
)
from bertine.tokenization.byte_bpe import bpe_backend, bpe_files, merges_of
from bertine.tokenization.wordpiece import normalizer, split_at_white_space

import tokenizers  # isort: skip
from tokenizers import decoders, pre_tokenizers, processors  # isort: skip


# Words of GPT-1's published code: texts are repaired by `ftfy`, made uniform, split by `spaCy`'s
# rules for English, and lower-cased (openai/finetune-transformer-lm, ``text_utils.py``).
#
# Both packages are optional (the extra ``gpt``); spaCy's rules need no trained model.

#: Characters that are replaced by others.
_UNIFORM = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
#: Runs of one mark, which are set apart.
_MARKS = re.compile(r'([-~!";?+,)(\\/*\[\]}{|_])\1*')
_LINES = re.compile(r"\s*\n\s*")
_SPACES = re.compile(r"[^\S\n]+")
#: How far after the last character the next one is searched for.
_AHEAD = 16


def has_exact_words() -> bool:
    """Return whether both packages are installed."""
    return find_spec("ftfy") is not None and find_spec("spacy") is not None


@lru_cache(1)
def _english() -> Any:
    """Load spaCy's English tokenizer, which takes a second."""
    import spacy

    return spacy.blank("en").tokenizer


def uniform(text: str) -> str:
    """Make dashes, dots and white space of `text` uniform, and put spaces around runs of marks
    (``text_standardize``)."""
    text = _MARKS.sub(lambda match: f" {match[0]} ", text.translate(_UNIFORM))
    return _SPACES.sub(" ", _LINES.sub(" \n ", text)).strip()


def exact_words(text: str) -> list[str]:
    """Split a text into lower-cased words; a line end is a word, too."""
    import ftfy

    words = (str(word.text).lower() for word in _english()(uniform(ftfy.fix_text(text))))
    # spaCy joins the space after a line end with it; the published code has the same exception when
    # it splits words into pieces.
    return ["\n" if word == "\n " else word for word in words]


def places(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Find the characters of `words` in their source text.

    The words are not all written as in the text, so each character is the next equal one within a
    short distance of the last one; a character without a match is placed at the end of the last
    one.

    Returns:
        For all characters of the words, in order, their (begin, end) in `text`.
    """
    spans, cursor = [], 0
    for character in "".join(words):
        ahead = text[cursor : cursor + _AHEAD]
        at = next((n for n, other in enumerate(ahead) if character in other.lower()), None)
        if at is None:
            spans.append((cursor, cursor))
        else:
            spans.append((cursor + at, cursor + at + 1))
            cursor += at + 1
    return spans


# Tokenizer: its special tokens, settings and class.

#: Follows the last character of a word.
END = "</w>"
UNKNOWN = "<unk>"
#: The special tokens that fine-tuning puts around texts (``train.py``); a vocabulary has all of
#: them or none.
START, DELIMITER, CLASSIFY = ADDED = ("_start_", "_delimiter_", "_classify_")
SPECIAL = SpecialTokens(UNKNOWN, UNKNOWN, CLASSIFY, DELIMITER, None, START)
#: For a vocabulary without them: as published, for running text.
BARE_SPECIAL = SpecialTokens(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, None)

#: The setting in tokenizer_config.json that selects the words, and its values.
_WORDS, EXACT, LIKE_BERT = "word_splitting", "ftfy-spacy", "bert"
#: A token that OpenAI's vocabulary has, unlike those learnt here: the line end.
_LINE_END = f"\n{END}"
_SEPARATOR = "\0"
_OPENAI_FILES = ("encoder_bpe_40000.json", "vocab_40000.bpe")
#: The class of transformers that reads any tokenizer.json unchanged, special tokens included.
_GENERAL = "PreTrainedTokenizerFast"
#: A text has the same words if it is cut after such a character; where spaCy splits, after a space
#: between two words of letters.
_CUT = re.compile(r"""[ \n\t\r!"#$%&'()*+,\-./:;=?@\\^`{|}~]""")
_CUT_EXACT = re.compile("(?<=[a-z]{2}) (?=[a-z]{2})")


class WordBpe(Kind):
    """BPE over words, with the special tokens of GPT-1's fine-tuning or only ``<unk>``, which then
    also pads short sequences, as in the published code.

    A piece continues a word if the one before it does not end in ``</w>``: its own text does not
    show it, so :attr:`continues` is False for all.
    """

    name: ClassVar[TokenizerKind] = "word-bpe"
    title: ClassVar[str] = "BPE over words"
    model: ClassVar[str] = "BPE"
    vocabularies: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("vocab.json", "merges.txt"),
        _OPENAI_FILES,
    )
    keeps_spaces: ClassVar[bool] = False

    def __init__(self, backend: tokenizers.Tokenizer, special: SpecialTokens, exact: bool) -> None:
        super().__init__(backend)
        self.special, self.exact = special, exact
        normalizer = backend.normalizer
        self.lowercase = True if exact else bool(normalizer.lowercase)
        self.strip_accents = False if exact else normalizer.strip_accents
        self.split_chinese = False if exact else bool(normalizer.handle_chinese_chars)
        self.cut = _CUT_EXACT if exact else _CUT

    @classmethod
    def build(
        cls,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        *,
        exact: bool,
        source: str,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> Self:
        """Create BPE from a vocabulary.

        Args:
            ids: the ids of the tokens.
            merges: pairs of tokens that are merged, in order of priority.
            exact: split texts as the published code does.
            source: names the vocabulary in messages.
            strip_accents: remove accents; None: yes.
            split_chinese: make every Chinese character a word.

        Raises:
            BertineError: a special token is missing, or a merge has a token that does not exist.
        """
        special = _special(ids, source)
        backend = bpe_backend(
            source, ids, merges, unk_token=UNKNOWN, end_of_word_suffix=END, fuse_unk=False
        )
        backend.normalizer = normalizer(True, strip_accents, split_chinese)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return cls(backend, special, exact)

    @classmethod
    def is_of_json(cls, value: Mapping[str, Any]) -> bool:
        return super().is_of_json(value) and divides_words(value)

    @classmethod
    def is_of_files(cls, path: Path) -> bool:
        """Recognize it by a token that ends a word."""
        file = _vocabulary(path)
        return any(token.endswith(END) for token in read_json_object(file))

    @classmethod
    def from_json(cls, file: Path, value: dict[str, Any], config: dict[str, Any]) -> Self:
        hint = "of BPE over words Bertine knows that of GPT-1"
        check_part(file, value, "normalizer", "BertNormalizer", hint)
        check_part(file, value, "pre_tokenizer", "BertPreTokenizer", hint)
        model = value["model"]
        vocab = check_vocab(file, model.get("vocab"))
        for name, wanted in (("end_of_word_suffix", END), ("unk_token", UNKNOWN)):
            if model.get(name) != wanted:
                raise BertineError(f"{file}: {name} is {briefly(model.get(name))}, not {wanted!r}")
        for name in ("continuing_subword_prefix", "dropout", "byte_fallback", "ignore_merges"):
            if model.get(name):
                raise BertineError(f"{file}: {name} is {briefly(model[name])}, but must be empty")
        added = [token["content"] for token in value.get("added_tokens") or []]
        special = _special({**vocab, **dict.fromkeys(added, 0)}, str(file))
        return cls(backend_of(file, value), special, _is_exact(file, vocab, config))

    @classmethod
    def from_vocabulary(cls, path: Path, config: dict[str, Any]) -> tuple[Self, Path]:
        file = _vocabulary(path)
        ids = check_vocab(file, read_json_object(file))
        other = _OPENAI_FILES[1] if file.name == _OPENAI_FILES[0] else "merges.txt"
        merges = read_merges(file.with_name(other))
        return cls.build(ids, merges, exact=_is_exact(file, ids, config), source=str(file)), file

    @property
    def encoder(self) -> tokenizers.Tokenizer:
        """The backend; if texts are split beforehand, a tokenizer that takes the words
        unchanged."""
        return _over_words(self.backend) if self.exact else self.backend

    def prepared(self, texts: Sequence[str]) -> Sequence[str]:
        """Separate the words as the published code does."""
        return [_SEPARATOR.join(exact_words(text)) for text in texts] if self.exact else texts

    def spans(
        self, ids: Sequence[int], offsets: list[tuple[int, int]], text: str
    ) -> list[tuple[int, int]]:
        if not self.exact:
            return offsets
        words = exact_words(text)
        spans: list[tuple[int, int]] = []
        at = iter(places(words, text))
        for number, word in enumerate(words):
            spans += [(0, 0)] * (number > 0)
            spans += [next(at) for _ in word]
        return [(spans[a][0], spans[b - 1][1]) if b > a else (0, 0) for a, b in offsets]

    def complete(self, ids: Mapping[str, int]) -> Template:
        special, backend = self.special, self.backend
        backend.add_special_tokens(sorted(special.tokens, key=ids.__getitem__))
        backend.decoder = decoders.BPEDecoder(suffix=END)
        if special.start is None:
            return Template((None,), (None, None))
        start, delimiter, classify = (ids[token] for token in ADDED)
        backend.post_processor = processors.TemplateProcessing(
            single=f"{START}:0 $A:0 {CLASSIFY}:0",
            pair=f"{START}:0 $A:0 {DELIMITER}:0 $B:0 {CLASSIFY}:0",
            special_tokens=[(token, ids[token]) for token in ADDED],
        )
        return Template((start, None, classify), (start, None, delimiter, None, classify))

    def continues(self, token: str) -> bool:
        return False

    def name_of(self, token: str) -> str:
        return token.removesuffix(END) or token

    def words(self, texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
        """Split texts at white space where the parts are read independently: not where spaCy
        splits, nor where a special token cannot be placed between words."""
        if self.exact or self.special.start is None:
            return [[] for _ in texts], list(range(len(texts)))
        return split_at_white_space(texts)

    def show(self, ids: Sequence[int]) -> str:
        return self.backend.decode(list(ids), skip_special_tokens=False)

    def with_task_tokens(self) -> WordBpe | None:
        """Add the tokens that the published code adds for fine-tuning (``train.py``)."""
        if self.special.start is not None:
            return None
        ids = self.backend.get_vocab(with_added_tokens=True)
        added = {token: len(ids) + number for number, token in enumerate(ADDED)}
        return self.build(
            ids | added,
            [(first, second) for first, second in merges_of(self.backend)],
            exact=self.exact,
            source="vocabulary",
            strip_accents=self.strip_accents,
            split_chinese=self.split_chinese,
        )

    def settings(self) -> list[Any]:
        kept = [] if self.exact else [self.lowercase, self.strip_accents, self.split_chinese]
        return [self.name, EXACT if self.exact else LIKE_BERT, merges_of(self.backend), *kept]

    def files(self, tokens: Sequence[str]) -> dict[str, str]:
        return bpe_files(self.backend, with_added=True)

    def config(self, one_type: bool = False) -> dict[str, Any]:
        special = self.special
        named = {"cls_token": special.cls, "sep_token": special.sep, "bos_token": special.start}
        return {
            "tokenizer_class": "OpenAIGPTTokenizer" if special.start is None else _GENERAL,
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
            "unk_token": UNKNOWN,
            "pad_token": UNKNOWN,
            _WORDS: EXACT if self.exact else LIKE_BERT,
            **({} if special.start is None else named),
        }


@lru_cache(8)
def _over_words(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return the model of `backend` for texts that are already split into words."""
    over = tokenizers.Tokenizer(backend.model)
    over.pre_tokenizer = pre_tokenizers.Split(_SEPARATOR, "removed")
    return over


def _vocabulary(path: Path) -> Path:
    """Return the tokens file of a folder, or next to a file in it."""
    folder = path if path.is_dir() else path.parent
    theirs = path.name in _OPENAI_FILES or not (folder / "vocab.json").is_file()
    return folder / (_OPENAI_FILES[0] if theirs else "vocab.json")


def _special(ids: Mapping[str, int], source: str) -> SpecialTokens:
    """Return the special tokens of a vocabulary."""
    check_special_tokens(ids, (UNKNOWN,), "BPE over words", source)
    if not any(token in ids for token in ADDED):
        return BARE_SPECIAL
    check_special_tokens(ids, (UNKNOWN, *ADDED), "GPT-1's fine-tuning", source)
    return SPECIAL


def _is_exact(file: Path, ids: Mapping[str, int], config: Mapping[str, Any]) -> bool:
    """Return whether texts are split as the published code does; warn if they should be but cannot
    be."""
    division = config.get(_WORDS)
    if division not in (None, EXACT, LIKE_BERT):
        raise BertineError(
            f"{file.parent / 'tokenizer_config.json'}: {_WORDS} is {briefly(division)}, but "
            f"must be {EXACT} or {LIKE_BERT}"
        )
    wanted = _LINE_END in ids if division is None else division == EXACT
    if wanted and not has_exact_words():
        logger.info(
            f"{file.parent}: words are divided as BERT does, which is not quite what this "
            "vocabulary was made with; for that: pip install ftfy spacy"
        )
        return False
    return wanted
