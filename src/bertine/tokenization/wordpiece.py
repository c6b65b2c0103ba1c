"""Tokenize by WordPiece, as BERT does.

Normalization (control characters removed, Chinese characters set apart, for uncased vocabularies
lower case and no accents), splitting at white space and punctuation, then the longest piece first
(Devlin et al. 2018, section 3; google-research/bert, ``tokenization.py``). Ids equal those of
`transformers` and of other programs for BERT.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.names import WORDPIECE_MASK, TokenizerKind
from bertine.core.text import briefly
from bertine.tokenization.base import (
    Kind,
    SpecialTokens,
    Template,
    backend_of,
    check_special_tokens,
    check_switches,
    check_vocab,
    override,
    read_lines,
    state_of,
)
from bertine.tokenization.unigram import PLAIN, steps_of

# Imported after `base`, which sets the threads of `tokenizers`.
import tokenizers  # isort: skip
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors  # isort: skip

#: The special tokens, in the order in which a vocabulary trained by Bertine begins with them.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", WORDPIECE_MASK)

#: Words of more characters become [UNK] (``max_input_chars_per_word`` of the published code).
MAX_CHARS_PER_WORD = 100

#: Classes of transformers that read a vocab.txt like BERT, and some general ones.
_CLASSES = frozenset(
    f"{name}Tokenizer"
    for name in (
        *("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "SqueezeBert", "RetriBert"),
        *("LayoutLM", "Lxmert", "Funnel", "Splinter", "Realm", "Ernie", "Nezha"),
        *("DPRContextEncoder", "DPRQuestionEncoder", "DPRReader", "Auto"),
    )
)
#: The general classes, which only follow a tokenizer.json.
_OF_ANY_KIND = frozenset(("PreTrainedTokenizer", "TokenizersBackend"))

#: BERT's normalizer and splitter, and the steps of other ones that are accepted: none of them
#: depends on the text across white space.
_NORMALIZER, _SPLITTER = "BertNormalizer", "BertPreTokenizer"
_NORMALIZERS = frozenset({_NORMALIZER, "Strip", *PLAIN})
_SPLITTERS = frozenset({_SPLITTER, "Whitespace", "WhitespaceSplit"})
_FINER_SPLITTERS = frozenset({"Punctuation", "Digits"})

#: The settings that are true, false or missing, by their names in tokenizer_config.json: their
#: names in the normalizer.
_SWITCHES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

#: Most steps of the normalization.
_MOST_STEPS = 32

#: A tokenizer file may set more; the time for a word grows with the square of its characters.
_MOST_CHARS_PER_WORD = 1000

# Python splits at these and BERT's normalization removes them, so that two words become one.
_JOINING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")

# A text can be cut here without a change to its pieces: after a space or a mark that is never part
# of a word (brackets are part of special tokens), and after a Chinese character if these are set
# apart.
_CUT = re.compile(r"""[ \n\t\r!"#$%&'()*+,\-./:;<=>?@\\^_`{|}~\u3001\u3002\uff0c]""")
_CUT_CHINESE = re.compile(_CUT.pattern.replace("]", r"\u4e00-\u9fff]"))
# With added tokens, or if marks are not separated from each other.
_CUT_SPACE = re.compile("[ \n\t\r]")
_NEVER = re.compile("(?!)")
# Such a run is inside or equal to a word of more than `MAX_CHARS_PER_WORD` characters: [UNK].
_ENDLESS_WORD = re.compile(r"[A-Za-z0-9]{1024,}")

_INSIDE = "##"


class WordPiece(Kind):
    """WordPiece with BERT's normalization; see :meth:`build` for its settings."""

    name: ClassVar[TokenizerKind] = "wordpiece"
    title: ClassVar[str] = "WordPiece"
    model: ClassVar[str] = "WordPiece"
    vocabularies: ClassVar[tuple[tuple[str, ...], ...]] = (("vocab.txt",),)
    keeps_spaces: ClassVar[bool] = False
    special = SpecialTokens(*SPECIAL_TOKENS)

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        super().__init__(backend)
        normalizer, splitter = state_of(backend.normalizer), state_of(backend.pre_tokenizer)
        steps = {step["type"]: step for step in steps_of(normalizer)}
        bert = steps.get(_NORMALIZER, {})
        self.lowercase = "Lowercase" in steps or bert.get("lowercase", False)
        self.strip_accents: bool | None = (
            True if "StripAccents" in steps else bert.get("strip_accents", False)
        )
        self.split_chinese = bert.get("handle_chinese_chars", False)
        self._clean_text = bert.get("clean_text", False)
        #: Differences from BERT's own processing: other steps, and added tokens.
        usual = [*steps] == [_NORMALIZER] and splitter == {"type": _SPLITTER}
        self._parts = [] if usual else [normalizer, splitter]
        self._added = [
            token.__getstate__()
            for token in backend.get_added_tokens_decoder().values()
            if token.content not in SPECIAL_TOKENS
        ]
        self._whole = any(re.search(r"\s", token["content"]) for token in self._added)
        if self._whole:
            self.cut = _NEVER
        elif self._parts or self._added:
            self.cut = _CUT_SPACE
        else:
            self.cut = _CUT_CHINESE if self.split_chinese else _CUT

    @classmethod
    def build(
        cls,
        tokens: Sequence[str],
        *,
        lowercase: bool,
        strip_accents: bool | None,
        split_chinese: bool,
        source: str,
    ) -> Self:
        """Create WordPiece over `tokens`, whose positions are their ids.

        Args:
            lowercase: lower-case the text.
            strip_accents: remove accents; None: if `lowercase`.
            split_chinese: make every Chinese character a word.
            source: names the vocabulary in messages.

        Raises:
            BertineError: a token is duplicated, or a special token is missing.
        """
        ids = {token: index for index, token in enumerate(tokens)}
        if len(ids) < len(tokens):
            token = Counter(tokens).most_common(1)[0][0]
            lines = [str(number) for number, other in enumerate(tokens, 1) if other == token]
            raise BertineError(
                f"{source}: the token {token!r} is there {len(lines)} times (lines "
                f"{', '.join(lines[:5])}); each token must be there once"
            )
        check_special_tokens(tokens, SPECIAL_TOKENS, "BERT", source)
        backend = tokenizers.Tokenizer(
            models.WordPiece(
                vocab=ids, unk_token="[UNK]", max_input_chars_per_word=MAX_CHARS_PER_WORD
            )
        )
        backend.normalizer = normalizer(lowercase, strip_accents, split_chinese)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return cls(backend)

    @classmethod
    def from_json(cls, file: Path, value: dict[str, Any], config: dict[str, Any]) -> Self:
        check_switches(file, config, _SWITCHES)
        _check_names(file, config)
        normalizer = value.get("normalizer")
        _check_steps(file, "normalizer", normalizer, _NORMALIZERS)
        splitters = _check_steps(
            file, "pre_tokenizer", value.get("pre_tokenizer"), _SPLITTERS | _FINER_SPLITTERS
        )
        if _SPLITTERS.isdisjoint(splitters):
            raise BertineError(
                f"{file}: its pre_tokenizer divides no words; it must have one of "
                f"{', '.join(sorted(_SPLITTERS))}"
            )
        name = _class_name(config)
        of_bert = isinstance(normalizer, dict) and normalizer.get("type") == _NORMALIZER
        for switch, key in _SWITCHES.items():
            said = config.get(switch) is not None or switch == "strip_accents"
            if of_bert and switch in config and said and name not in _OF_ANY_KIND:
                override(file, value["normalizer"], key, switch, config[switch])
        _check_model(file, value["model"])
        if name in _OF_ANY_KIND and not _puts_cls_and_sep(value.get("post_processor")):
            logger.warning(
                f"{file}: its post_processor does not put [CLS] before a text and [SEP] behind it, "
                "as is done here; make sure that the model was trained so"
            )
        kind = cls(backend_of(file, value))
        # If there is a model in the same folder, it is read with this file.
        if not name and file.with_name("config.json").is_file():
            name = "BertTokenizer"
        if name and name not in _OF_ANY_KIND and (other := kind._unlike_class(name, config)):
            logger.warning(
                f"{file}: {other}; here the file is followed. If the model was trained with it, "
                "name PreTrainedTokenizerFast as tokenizer_class in tokenizer_config.json; else "
                "correct tokenizer.json"
            )
        return kind

    @classmethod
    def from_vocabulary(cls, path: Path, config: dict[str, Any]) -> tuple[Self, Path]:
        file = path / "vocab.txt" if path.is_dir() else path
        check_switches(file, config, _SWITCHES)
        _check_names(file, config)
        name = _class_name(config)
        if name and name not in _CLASSES | _OF_ANY_KIND:
            raise BertineError(
                f"{file.with_name('tokenizer_config.json')}: tokenizer_class {briefly(name)} "
                "is not known to read a vocab.txt as BERT does; if it does, name BertTokenizer "
                "there, or give a tokenizer.json"
            )
        tokens = _read_tokens(file)
        lowercase = config.get("do_lower_case")
        if lowercase is None:
            lowercase = _looks_uncased(tokens)
            if not lowercase and file.with_name("config.json").is_file():
                logger.warning(
                    f"{file}: has capitals, so texts keep theirs, though transformers' "
                    "BertTokenizer would lower-case them; say do_lower_case in a "
                    "tokenizer_config.json"
                )
        kind = cls.build(
            tokens,
            lowercase=bool(lowercase),
            strip_accents=config.get("strip_accents"),
            split_chinese=config.get("tokenize_chinese_chars") is not False,
            source=str(file),
        )
        return kind, file

    def _unlike_class(self, name: str, config: Mapping[str, Any]) -> str:
        """Describe how a tokenizer.json differs from the tokenizer that transformers' class `name`
        builds from a vocabulary and the folder's `config`; "" if it does not."""
        if name not in _CLASSES:
            return f"is of {name}, which may divide words otherwise"
        lowercase, accents = config.get("do_lower_case") is not False, config.get("strip_accents")
        made = (lowercase, lowercase if accents is None else accents)
        model = self.backend.model
        differs = {
            "lower case": self.lowercase != made[0],
            "accents": (self.lowercase if self.strip_accents is None else self.strip_accents)
            != made[1],
            "Chinese characters": self.split_chinese
            is (config.get("tokenize_chinese_chars") is False),
            "other steps than BERT's": bool(self._parts),
            "the prefix of pieces": model.continuing_subword_prefix != _INSIDE,
            "the longest word": model.max_input_chars_per_word != MAX_CHARS_PER_WORD,
        }
        said = " and ".join(what for what, differ in differs.items() if differ)
        return f"transformers' {name} ignores what this file says of {said}" if said else ""

    def complete(self, ids: Mapping[str, int]) -> Template:
        cls, sep = ids["[CLS]"], ids["[SEP]"]
        self.backend.add_special_tokens(list(SPECIAL_TOKENS))
        self.backend.decoder = decoders.WordPiece(prefix=_INSIDE)
        self.backend.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
        )
        return Template((cls, None, sep), (cls, None, sep, None, sep), sep)

    def continues(self, token: str) -> bool:
        return len(token) > len(_INSIDE) and token.startswith(_INSIDE)

    def name_of(self, token: str) -> str:
        return token

    def words(self, texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
        """Split texts at white space, which separates words unless an added token contains some."""
        if self._whole:
            return [[] for _ in texts], list(range(len(texts)))
        return split_at_white_space(texts)

    def shortened(self, part: str) -> str:
        if self._parts or self._added:
            return part
        return _ENDLESS_WORD.sub(lambda match: match.group()[:1024], part)

    def show(self, ids: Sequence[int]) -> str:
        return self.backend.decode(list(ids), skip_special_tokens=False)

    def settings(self) -> list[Any]:
        return [
            self.lowercase,
            self.lowercase if self.strip_accents is None else self.strip_accents,
            self.split_chinese,
            self._clean_text,
            self.backend.model.max_input_chars_per_word,
            *self._parts,
            *self._added,
        ]

    def files(self, tokens: Sequence[str]) -> dict[str, str]:
        return {"vocab.txt": "".join(f"{token}\n" for token in tokens)}

    def config(self, one_type: bool = False) -> dict[str, Any]:
        inputs = {"model_input_names": ["input_ids", "attention_mask"]} if one_type else {}
        return {
            # BERT's class rebuilds its normalization.
            "tokenizer_class": "PreTrainedTokenizerFast" if self._parts else "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.split_chinese,
            **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
            **inputs,
        }

    def extends(self, other: Kind) -> bool:
        return isinstance(other, WordPiece) and self.settings() == other.settings()

    def parts_of(self, token: str, known: Callable[[str], int | None]) -> list[int]:
        """Find the longest piece first, as in tokenizing."""
        inside = self.continues(token)
        rest = token[len(_INSIDE) :] if inside else token
        pieces: list[int] = []
        while rest:
            for end in range(len(rest), 0, -1):
                piece = known(f"{_INSIDE}{rest[:end]}" if inside else rest[:end])
                if piece is not None:
                    pieces.append(piece)
                    rest, inside = rest[end:], True
                    break
            else:
                return []
        return pieces


def split_at_white_space(texts: Sequence[str]) -> tuple[list[list[str]], list[int]]:
    """Split texts as in :meth:`bertine.tokenization.base.Kind.words`, if BERT's normalization
    separates words at white space."""
    # Texts that Python would split elsewhere are not split.
    whole = [number for number, text in enumerate(texts) if _JOINING.search(text)]
    split = [text.split() for text in texts]
    for number in whole:
        split[number] = []
    return split, whole


def normalizer(
    lowercase: bool, strip_accents: bool | None, split_chinese: bool
) -> normalizers.BertNormalizer:
    """Create BERT's normalization (``BasicTokenizer`` in google-research/bert,
    ``tokenization.py``)."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )


def _class_name(config: Mapping[str, Any]) -> str:
    """Return the tokenizer class of transformers that is named, "" if none is."""
    return str(config.get("tokenizer_class") or "").removesuffix("Fast")


def _puts_cls_and_sep(post_processor: Any) -> bool:
    """Return whether the last step of a tokenizer.json puts BERT's special tokens in BERT's places
    around one text."""
    step = post_processor if isinstance(post_processor, dict) else {}
    places = step.get("single") if step.get("type") == "TemplateProcessing" else None
    if not isinstance(places, list):
        return step.get("type") in ("BertProcessing", "RobertaProcessing")
    return [re.findall(r"\[CLS\]|\[SEP\]", str(place)) for place in places] == [
        ["[CLS]"],
        [],
        ["[SEP]"],
    ]


def _check_names(file: Path, config: Mapping[str, Any]) -> None:
    """Refuse settings that select other special tokens."""
    for token in SPECIAL_TOKENS[1:]:  # padding is never read
        name = f"{token[1:-1].lower()}_token"
        value = config.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        if content not in (None, token):
            raise BertineError(
                f"{file.parent}: {name} is {briefly(content)} in tokenizer_config.json or "
                f"special_tokens_map.json, but must be {token} in a WordPiece vocabulary"
            )


def _check_steps(file: Path, name: str, part: Any, known: Collection[str]) -> list[str]:
    """Return the types of the steps in a part of a tokenizer.json; empty if it is null.

    Raises:
        BertineError: a type is not in `known`.
    """
    steps: Any = [] if part is None else [part]
    if isinstance(part, dict) and part.get("type") == "Sequence":
        steps = part.get(f"{name.replace('_', '')}s")
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise BertineError(f"{file}: its {name} must be a list of at most {_MOST_STEPS} steps")
    kinds = [str(step.get("type")) if isinstance(step, dict) else "missing" for step in steps]
    for kind in kinds:
        if kind not in known:
            raise BertineError(
                f"{file}: its {name} is or has {briefly(kind)}, which is not read here; give "
                f"a tokenizer of BERT's kind, or with these alone: {', '.join(sorted(known))}"
            )
    return kinds


def _check_model(file: Path, model: dict[str, Any]) -> None:
    """Check values that the library does not check."""
    vocab = check_vocab(file, model.get("vocab"))
    check_special_tokens(vocab, SPECIAL_TOKENS, "BERT", str(file))
    unknown = model.get("unk_token", "[UNK]")
    if unknown != "[UNK]":
        raise BertineError(f"{file}: unk_token is {briefly(unknown)}, but must be '[UNK]'")
    prefix = model.get("continuing_subword_prefix", _INSIDE)
    if not isinstance(prefix, str):
        raise BertineError(
            f"{file}: continuing_subword_prefix is {briefly(prefix)}, but must be a text"
        )
    longest = model.get("max_input_chars_per_word", MAX_CHARS_PER_WORD)
    if type(longest) is not int or not 1 <= longest <= _MOST_CHARS_PER_WORD:
        raise BertineError(
            f"{file}: max_input_chars_per_word is {briefly(longest)}, but must be a whole number "
            f"from 1 to {_MOST_CHARS_PER_WORD:,}"
        )


def _read_tokens(file: Path) -> list[str]:
    tokens = read_lines(file, "vocabulary", "vocab.txt")
    while tokens and not tokens[-1].strip("\r"):
        tokens.pop()  # there is no token after the last line end, and a blank line is not a token
    # Stripped as in the published code, because one vocabulary (Chinese) has U+2028 in two tokens.
    return [token.rstrip() for token in tokens]


def _looks_uncased(tokens: Iterable[str]) -> bool:
    """Return whether no token has a capital letter A-Z, except those in brackets ([CLS], <S>)."""
    brackets = {"[": "]", "<": ">"}
    return not any(
        re.search("[A-Z]", token)
        for token in tokens
        if not (token[:1] in brackets and token.endswith(brackets[token[0]]))
    )
