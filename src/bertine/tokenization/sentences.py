"""Split documents into sentences, join Chinese characters, and find Chinese words.

Sentences, for next-sentence prediction, are split by `sentencex`, which knows the marks of all
scripts and the abbreviations of some thirty languages; some hundred others are split like a related
one, all others like English.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencex

from bertine.core.errors import BertineError, require_packages
from bertine.tokenization.tokenizer import Tokenizer

# Spaces between Chinese characters: remove those that joining pieces or words has added.
#
# Chinese and Japanese are written without spaces, but a tokenizer's pieces and the words of a
# column file are separate. Numbers and Latin words among the characters keep their spaces, as in
# most printed text.

#: Ideographs, kana and bopomofo.
_CHARACTERS = (
    "\u3005-\u3007\u3041-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003fffd"
)
#: Full-width punctuation, whose glyphs include their space.
_FULL_WIDTH = (
    "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
#: Marks of all scripts: quotes, brackets (also those of "[MASK]"), dashes.
_MARKS = r"\u2018\u2019\u201c\u201d\u2026\u2014\u00b7()\[\]<>\"'/"
_EXTRA_SPACE = re.compile(
    f"(?<=[{_FULL_WIDTH}]) +| +(?=[{_FULL_WIDTH}])"
    f"|(?<=[{_CHARACTERS}]) +(?=[{_CHARACTERS}{_MARKS}])"
    f"|(?<=[{_MARKS}]) +(?=[{_CHARACTERS}])"
)


def remove_cjk_spaces(text: str) -> str:
    """Join the Chinese and Japanese characters of a text made of pieces or words.

    Args:
        text: pieces or words with spaces between them: ``"在 2019 年 ， 北 京"`` becomes
            ``"在 2019 年，北京"``.
    """
    return _EXTRA_SPACE.sub("", text)


def cjk_space_places(text: str) -> tuple[str, list[int]]:
    """Join the characters like :func:`remove_cjk_spaces`, and map the positions.

    Returns:
        The new text, and for each position in the given text, its end included, the new position.
    """
    places: list[int] = []
    gone = passed = 0
    for space in _EXTRA_SPACE.finditer(text):
        places += range(passed - gone, space.start() - gone)
        places += [space.start() - gone] * (space.end() - space.start())
        gone += space.end() - space.start()
        passed = space.end()
    places += range(passed - gone, len(text) - gone + 1)
    return remove_cjk_spaces(text), places


# Chinese words, found with `jieba`, since Chinese is written without spaces.
#
# The pieces of a Chinese vocabulary are characters. Whole-word masks need to know which characters
# form a word (Cui et al. 2019, arXiv 1906.08101, section 3.1), which only the text shows: so words
# are found when a store is prepared, and stored in it (:mod:`bertine.corpora.store`).

#: A run of Chinese characters.
_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd]{2,}")


def check_segmenter() -> None:
    """Raise an error if `jieba` is not installed.

    Raises:
        BertineError: it is not installed.
    """
    require_packages("finding Chinese words", ["jieba"], "leave the segmenter out")


@lru_cache(1)
def _jieba() -> Any:
    """Load the segmenter with its dictionary, which takes a second."""
    import jieba

    segmenter = jieba.Tokenizer()
    # Like `initialize`, but without the cache, a marshal file in a folder writable by everybody.
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


class ChineseWords:
    """A segmenter by `jieba`, with its own dictionary and its model for unknown words.

    Args:
        tokenizer: the tokenizer of the pieces.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        check_segmenter()
        self._tokenizer = tokenizer

    def inside(self, text: str) -> npt.NDArray[np.bool_]:
        """Return which characters of a text continue a Chinese word, bool [characters]."""
        marks = np.zeros(len(text), np.bool_)
        for run in _RUN.finditer(text):
            place = run.start()
            for word in _jieba().cut(run.group()):
                marks[place + 1 : place + len(word)] = True
                place += len(word)
        return marks

    def encode(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the ids of all texts' pieces, as :meth:`bertine.Tokenizer.encode_flat` does, and
        which of them continue the word before: those that do so by the vocabulary, and those that
        begin inside a Chinese word.

        Returns:
            int32 [pieces]; int64 [texts], the number of pieces of each; bool [pieces].
        """
        ids, lengths = self._tokenizer.encode_flat(texts)
        goes_on = self._tokenizer.continues[ids]
        ends = np.cumsum(lengths)
        chinese = [number for number, text in enumerate(texts) if _RUN.search(text)]
        spans = self._tokenizer.encode_offsets([texts[number] for number in chinese])
        for number, (_, places) in zip(chinese, spans, strict=True):
            inside = self.inside(texts[number])
            begins = np.fromiter((begin for begin, _ in places), np.int64, len(places))
            begin = int(ends[number] - lengths[number])
            if len(begins):
                goes_on[begin : begin + len(begins)] |= inside[np.minimum(begins, len(inside) - 1)]
        return ids, lengths, goes_on


#: Lines of a document are joined up to about this number of characters.
_CHARACTERS_AT_A_TIME = 1 << 16

_OWN = (
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
)
#: The languages with rules in `sentencex`. The rules for Chinese are its marks, known everywhere.
LANGUAGES = (*_OWN.split(), "zh")
#: Related language → the language whose rules it uses.
_RELATIVES = {
    "ar": "acm aeb apc arq ary arz",
    "bn": "bpy",
    "ca": "oc",
    "da": "jut kl",
    "de": "als bar dsb frr gsw hrx hsb ksh lb nds pdc pdt pfl rm sli stq vmf",
    "el": "pnt",
    "es": "an arn ast ay ext gn guc lad nah qu qug",
    "fi": "fit krl olo smn vot",
    "fr": "atj avk bci bm dua fon frc frp gcf gcr hke ht kab kbp ln lua mg pcd ses sg shy ty wa "
    "wls wo",
    "hi": "anp awa mag mai sa",
    "hy": "hyw",
    "it": "aae co egl eml fur lij lld lmo nap pms rgn scn sdc sro vec",
    "kk": "kaa",
    "kn": "tcy",
    "my": "blk kjp ksw mnw",
    "nl": "li srn vls",
    "pl": "csb szl",
    "pt": "gl kea mwl tet",
    "ru": "ab alt av ba bxr ce cv gld inh kjh koi krc kum kv lbe lez mdf mhr mrj myv os rut sah "
    "sjd sty tt tyv udm xal",
    "sk": "cs",
    "uk": "rue",
    "zh": "gan hak lzh nan wuu yue",
}
_LIKE = {code: known for known, codes in _RELATIVES.items() for code in codes.split()}


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Split `text` into sentences.

    A line end always ends a sentence. No character is lost or changed except white space around
    sentences (and lone surrogates, which become U+FFFD).

    Args:
        text: any text.
        language: a language code such as ``"en"`` or ``"zh"``; only the first part of ``"zh-Hans"``
            or ``"pt_BR"`` is used. Unknown ones are split like English.

    Returns:
        The sentences, stripped, none of them empty.
    """
    return list(iter_sentences(text, language))


def iter_sentences(text: str, language: str = "en", *, spaces: bool = False) -> Iterator[str]:
    """Yield the sentences of :func:`split_sentences` one at a time: a document of any length takes
    no more memory than its text.

    Args:
        text, language: see :func:`split_sentences`.
        spaces: put one space before a sentence that is separated from the one before it by white
            space or a line end, for tokenizers whose pieces include spaces.
    """
    code = _code(language)
    begin = 0
    parted = False  # from the sentence before
    while begin < len(text):
        line_end = text.find("\n", begin + _CHARACTERS_AT_A_TIME)
        end = line_end + 1 if line_end >= 0 else len(text)
        for line in text[begin:end].splitlines():
            line = line.strip()
            if not line:
                continue
            if not spaces:
                yield from (s for piece in _segment(line, code) if (s := piece.strip()))
                continue
            for piece in _segment(line, code):
                if sentence := piece.strip():
                    parted = parted or piece[0].isspace()
                    yield f" {sentence}" if parted else sentence
                if piece:
                    parted = piece[-1].isspace()
            parted = True
        begin = end


def check_language(language: str) -> str | None:
    """Return a note if `language` is split by the rules of a related one; None if it has rules of
    its own.

    Raises:
        BertineError: there are no rules for it, so English ones would be used; names the languages
            with rules.
    """
    code = _code(language)
    if code in LANGUAGES:
        return None
    if code in _LIKE:
        return f"sentences of {language!r} are split by the rules of {_LIKE[code]!r}"
    near = difflib.get_close_matches(code, LANGUAGES, n=1, cutoff=0.8)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise BertineError(
        f"there are no rules for splitting sentences of the language {language!r}{hint}; name the "
        f"nearest of {', '.join(LANGUAGES)} (en, where none is near)"
    )


def _code(language: str) -> str:
    return language.strip().lower().replace("_", "-").split("-")[0]


def _segment(line: str, code: str) -> list[str]:
    try:
        pieces = sentencex.segment(code, line)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold
        return _segment(line.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), code)
    except BaseException as error:
        # A Rust panic is a BaseException of pyo3; it must not end a preparation of hours.
        if type(error).__name__ != "PanicException":
            raise
        return [line]
    # A splitter may only cut a training text, never change it.
    return pieces if "".join(pieces) == line else [line]
