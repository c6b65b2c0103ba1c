"""Splitting documents into sentences, for next-sentence prediction.

The splitting is done by `sentencex`, which knows the marks of all scripts and the abbreviations of
some thirty languages; some hundred others are split like a related one, all else like English.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import sentencex

from bertine.errors import BertineError

#: Lines of a document are taken together up to about so many characters, not all at once.
_CHARACTERS_AT_A_TIME = 1 << 16

_OWN = (
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
)
#: The languages that `sentencex` has rules for. Chinese ones are its marks, known everywhere.
LANGUAGES = (*_OWN.split(), "zh")
#: The languages that it splits like one of these, by that one.
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

    A line end always ends a sentence. No character is lost or changed but the white space around
    sentences (and lone surrogates, which become U+FFFD).

    Args:
        text: any text.
        language: a language code such as ``"en"`` or ``"zh"``; of ``"zh-Hans"`` or ``"pt_BR"`` the
            first part counts. Unknown ones are split like English.

    Returns:
        The sentences, stripped, none of them empty.
    """
    return list(iter_sentences(text, language))


def iter_sentences(text: str, language: str = "en", *, spaces: bool = False) -> Iterator[str]:
    """Yield the sentences of :func:`split_sentences`, one at a time: a document of any length takes
    no more memory than its text.

    Args:
        text, language: as there.
        spaces: put one space before a sentence that is parted from the one before it by white
            space or the end of a line, for tokenizers whose pieces hold spaces.
    """
    code = _code(language)
    begin = 0
    parted = False  # from a sentence before
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
    """Return what a user should know: that `language` is split by the rules of a related one; None
    where it has its own.

    Raises:
        BertineError: there are no rules for it, so English ones would be taken; names those there
            are.
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
    # What a splitter may do to a training text is cut it, and nothing else.
    return pieces if "".join(pieces) == line else [line]
